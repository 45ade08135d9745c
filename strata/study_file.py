"""The file of a study: its runs and claims, each key looked at before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strata.errors import require
from strata.params import read_toml
from strata.reading import flag_of, number_of, table_of, tables_of, text_of, texts_of
from strata.shipped import paper_offers

RUN_TEXTS = ("name", "model", "system", "phase", "plan", "engine", "weights", "kv", "metric", "where", "chip")
RUN_NUMBERS = ("batch", "input", "output", "devices")
# Runs that read their keys in their own way.
OWN_KINDS = ("space", "technology", "upgrades", "published", "file")


def study_table(folder: Path) -> dict[str, Any]:
    """The table of a study's file."""
    table, at = read_toml(folder / "study.toml"), f"{folder.name}/study.toml"
    for key in ("title", "paper", "run", "claim"):
        require(key in table, f"{at} needs title, paper, [[run]] and [[claim]]", missing=key)
    for key in ("title", "paper"):
        text_of(table, key, at)
    kinds = (*OWN_KINDS, *paper_offers("study runs", folder))
    for entry in tables_of(table, "run", at):
        require("name" in entry, f"{folder.name}: every run has a name", run=str(entry)[:60])
        where = f"{at}: run {text_of(entry, 'name', at)}"
        if not any(key in entry for key in kinds):
            _check_run(entry, where)
    for claim in tables_of(table, "claim", at):
        check_claim(claim, at)
    for key in ("run", "claim"):
        require(bool(table[key]), f"{at} has at least one [[{key}]]")
    return table


def _check_run(entry: dict[str, Any], where: str) -> None:
    """Keys of sweeps of models and chips hold what they should."""
    for key in RUN_TEXTS:
        if key in entry:
            text_of(entry, key, where, "")
    for key in RUN_NUMBERS:
        if key in entry:
            number_of(entry, key, where)
    for key in ("vary", "set"):
        if key in entry:
            texts_of(entry, key, where)
    for key in ("orders", "gains"):
        flag_of(entry, key, where)
    for key, text in table_of(entry, "let", where).items():
        if not isinstance(text, int | float):
            text_of({key: text}, key, f"{where}: let")


def check_claim(claim: dict[str, Any], where: str) -> None:
    """A claim has its texts."""
    for key in ("id", "says", "ours", "holds"):
        require(
            key in claim,
            f"{where}: every claim has id, says, ours and holds",
            claim=claim.get("id", "?"),
            missing=key,
        )
        text_of(claim, key, f"{where}: claim {claim.get('id', '?')}")
    text_of(claim, "note", f"{where}: claim {claim['id']}", "")
