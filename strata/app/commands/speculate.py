"""`strata speculate`: a target decodes with guesses of drafts, over windows and acceptances."""

from __future__ import annotations

from pathlib import Path

from strata.app.commands.options import EngineName, JsonFlag, TableFile, command, flag, option, picture
from strata.app.rows_out import answer
from strata.app.terminal import (
    names_of,
    one_of,
    system_names,
    typed_number,
    wrote,
)
from strata.errors import BadValue, require
from strata.mapping.engine import USUAL_SERVER
from strata.units import whole

MOST = 64  # windows or acceptances of a table


COUNTING = option(
    "independent",
    "NAME",
    "tokens of a round: independent (a guess counts if all before it do), proportional (K a + 1)",
    one_of("independent", "proportional"),
)
TARGET = option(
    ..., "NAME", "model that decodes: name, or path of a Hugging Face config.json", names_of("models")
)
SYSTEM = option(
    ..., "NAME", "system of both, like 16xsn40l, or a TOML path", system_names, flags="--system -s"
)


@command(
    "speculate",
    "Speculative decoding: drafts, windows, acceptances.",
    "strata speculate --target llama-3.1-405b --draft llama-3.1-8b --system 16xsn40l "
    "--window 1:8 --acceptance 0.6,0.8",
)
def speculate_command(
    target: str = TARGET,
    draft: str = option(..., "NAME,...", "models that guess, one table each", names_of("models")),
    system: str = SYSTEM,
    window: str = option("1:8", "K", "tokens a guess is deep: 4, a list 2,4,8 or a range 1:8"),
    acceptance: str = option(
        "0.6,0.8", "SHARE,...", "chance that the target agrees with one more guess: 0.8, or a list 0.6,0.8"
    ),
    tree: bool = flag("--tree", "guess trees of two branches; --branches for others"),
    branches: str = option("", "N", "alternatives at each level of a guess  [default: 1, a sequence]"),
    counting: str = COUNTING,
    batch: str = option("1", "N", "sequences at once", flags="--batch -b"),
    context: str = option("2048", "N", "tokens of a sequence so far"),
    plan: str = option(
        "", "PLAN", "of the target, like tp=16  [default: its quickest that fits]", flags="--plan -p"
    ),
    draft_plan: str = option("", "PLAN", "of the drafts  [default: the quickest of each]"),
    engine: EngineName = USUAL_SERVER,
    set: list[str] | None = option(
        None, "PATH=VALUE", "change a number of chip, fabric or engine, as often as needed"
    ),
    svg: Path | None = picture("write a heat map of tokens/s over window and acceptance, by draft"),
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """A small model guesses tokens, the target verifies all of them in one step: tokens/s by window and
    acceptance, the speed-up, the best window, and which draft is best.
    """
    from strata.app.render.speculate import draft_comparison_dict, draft_comparison_tables, draft_rows
    from strata.search.inputs import named_inputs
    from strata.serving.drafts import compare_drafts
    from strata.workload.model import Model

    require(not (tree and branches), "--tree is --branches 2; give one of them")
    names = [name.strip() for name in draft.split(",") if name.strip()]
    require(bool(names), "--draft names at least one model", given=draft)
    hardware, large, software = named_inputs(target, system, engine, "", "", set or [])
    require(isinstance(large, Model), "--target is a language model that decodes", target=target)
    found = compare_drafts(
        large,
        names,
        hardware,
        window=typed_windows(window),
        acceptance=typed_acceptances(acceptance),
        branches=2.0 if tree else whole(branches, "--branches") if branches else 1.0,
        batch=whole(batch, "--batch"),
        context=whole(context, "--context"),
        plan=plan or None,
        draft_plan=draft_plan or None,
        engine=software,
        counting=counting,
    )
    answer(
        lambda: draft_comparison_dict(found), lambda: draft_comparison_tables(found), json, table, draft_rows
    )
    if svg is not None:
        from strata.app.render.speculate import draw_comparison

        wrote("picture", draw_comparison(found, svg))


def typed_windows(text: str) -> list[float]:
    """Windows as typed: one, a list, or every whole number from one to another.

    >>> typed_windows("1:4"), typed_windows("2,8")
    ([1.0, 2.0, 3.0, 4.0], [2.0, 8.0])
    """
    first, between, last = text.partition(":")
    if not between:
        return [whole(item.strip(), "--window") for item in text.split(",")]
    low, high = whole(first.strip(), "--window"), whole(last.strip(), "--window")
    if not low <= high < low + MOST:
        raise BadValue(f"--window is a range like 1:8, at most {MOST} long, but got '{text}'")
    return [low + i for i in range(int(high - low) + 1)]


def typed_acceptances(text: str) -> list[float]:
    """Acceptances as typed, each from 0 to 1.

    >>> typed_acceptances("0.6,0.8")
    [0.6, 0.8]
    """
    values = [typed_number(item.strip(), "--acceptance") for item in text.split(",")]
    wrong = [v for v in values if not 0.0 <= v <= 1.0]
    require(not wrong, "--acceptance must lie between 0 and 1", acceptance=text)
    return values
