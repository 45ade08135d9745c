"""Words that a command takes as they are typed, beside typer's own way for all other values."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest
import typer

from strata.app.cli import commands_app, take_words_as_typed


def taken(*words: str, quick: bool) -> object:
    """What a command with a parameter of each kind got, or the error of its command line."""
    app = typer.Typer()
    got: list[object] = []

    @app.command()
    def one(
        name: str,
        plain: str = "x",
        listed: Annotated[list[str] | None, typer.Option("--listed")] = None,
        number: int = 3,
        share: Annotated[float, typer.Option(min=0.0, max=1.0)] = 0.5,
        where: Path | None = None,
        parsed: Annotated[str, typer.Option(parser=str.upper)] = "a",
        flag: bool = False,
    ) -> None:
        got.extend([name, plain, listed, number, share, where, parsed, flag])

    command = typer.main.get_command(app)
    if quick:
        take_words_as_typed(command)
    try:
        command(list(words), standalone_mode=False)
    except Exception as error:
        return type(error).__name__, str(error)
    return got


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a --plain y --listed b --listed c",
        "a --number 7 --share 0.25 --where out.csv --flag",
        "a --number 1.5",
        "a --share 2",
        "a --parsed bc",
        "",
        "a --plain",
        "a --nothing 1",
    ],
)
def test_values_are_those_of_typers_own_way(line):
    assert taken(*line.split(), quick=True) == taken(*line.split(), quick=False)


def test_python_m_strata_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "strata", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("strata ")
    bad = subprocess.run(
        [sys.executable, "-m", "strata", "nosuch"], capture_output=True, text=True, check=False
    )
    assert bad.returncode == 2 and len(bad.stderr.splitlines()) == 1


def test_every_name_that_can_be_completed_is_listed():
    """Completion loads its lists by name: none may have moved."""
    goals = []
    for name, command in typer.main.get_command(commands_app()).commands.items():
        context = command.make_context(name, [], resilient_parsing=True)
        offered = {p.name: [item.value for item in p.shell_complete(context, "")] for p in command.params}
        goals += offered["goal"] if name == "search" else []
    assert "tokens_per_s" in goals
