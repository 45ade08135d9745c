"""A user at the command line: the real entry point, in this process."""

import json
from types import SimpleNamespace

import pytest

from strata.app.cli import main


def refuse(word):
    raise AssertionError(f"{word} is not JSON")


def strict_json(text):
    """JSON without NaN and Infinity."""
    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def strata(monkeypatch, capsys):
    """Type a command line; gives its exit code, stdout and stderr."""

    def run(*words):
        monkeypatch.setattr("sys.argv", ["strata", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        said = capsys.readouterr()
        return SimpleNamespace(code=stop.value.code or 0, out=said.out, err=said.err)

    return run


@pytest.fixture
def answer(strata):
    """Type a command line that must succeed; gives its stdout, parsed with --json."""

    def run(*words):
        got = strata(*words)
        assert got.code == 0, got.err
        return strict_json(got.out) if "--json" in words else got.out

    return run
