"""`strata diff`: two saved results, line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strata.app.commands.options import JsonFlag
from strata.app.terminal import (
    print_json,
    say,
)


def register_diff(app: typer.Typer) -> None:
    """Give an app this command."""
    app.command(
        "diff",
        short_help="Two saved results, line by line.",
        epilog="Example: strata diff a.json b.json (each saved with strata predict ... --json)",
    )(diff_command)


def diff_command(
    first: Annotated[Path, typer.Argument(metavar="FILE", help="a result saved with --json")],
    second: Annotated[Path, typer.Argument(metavar="FILE", help="another one")],
    json: JsonFlag = False,
) -> None:
    """Two saved results, line by line: what was asked differently and what came out differently."""
    from strata.app.render.difference import differences, differences_table

    rows = differences(first, second)
    if json:
        print_json(rows)
    else:
        say(differences_table(rows, first.name, second.name))
