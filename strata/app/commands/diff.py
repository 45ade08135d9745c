"""`strata diff`: two saved results line by line, or two technologies, devices or links side by side."""

from __future__ import annotations

from pathlib import Path

from strata.app.commands.options import JsonFlag, TableFile, argument, command
from strata.app.rows_out import answer


@command(
    "diff",
    "Two saved results, or two technologies, line by line.",
    "strata diff a.json b.json (each saved with strata predict ... --json), or strata diff n7 n5",
)
def diff_command(
    first: str = argument(
        ...,
        "FILE|NAME",
        "a result saved with --json; or a technology, device, link, bonding or packaging, by name or "
        "TOML path",
    ),
    second: str = argument(..., "FILE|NAME", "another one"),
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """Two saved results, line by line: what was asked differently and what came out differently. Or two
    technologies, memory devices, links, bonds or packages: every number side by side.
    """
    if not any(_is_result(name) for name in (first, second)):
        from strata.app.render.technology import part_differences, parts_table

        kind, parts = part_differences(first, second)
        answer(lambda: parts, lambda: [parts_table(kind, parts, first, second)], json, table)
        return
    from strata.app.render.difference import differences, differences_table

    rows = differences(Path(first), Path(second))
    answer(lambda: rows, lambda: [differences_table(rows, Path(first).name, Path(second).name)], json, table)


def _is_result(name: str) -> bool:
    """Whether a name is a result's file rather than a part's: JSON, or any file or folder but TOML."""
    return name.endswith(".json") or (not name.endswith(".toml") and Path(name).exists())
