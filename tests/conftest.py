"""What tests share: every graph is checked after every pass; a user at the command line; the packet simulator."""

import json
import os
import shutil
import subprocess
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

import strata.calls

os.environ.setdefault("STRATA_CHECK", "1")
strata.calls.quiet = nullcontext  # tests hear what NumPy warns of
SOURCE = Path(__file__).parents[1] / "validation" / "ns3" / "collective.cc"


def refuse(word):
    raise AssertionError(f"{word} is not JSON")


def strict_json(text):
    """JSON without NaN and Infinity."""
    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def strata(monkeypatch, capsys):
    """Type a command line at the real entry point, in this process; gives its exit code, stdout and stderr."""
    from strata.app.cli import main

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


_PREDICTED = {}  # files of the project's own data with their points, as this process predicted them


@pytest.fixture(scope="module")
def predicted_once():
    """Rows of the project's own data are predicted once in a process, whichever of them an answer compares."""
    from strata.validation.accuracy import run

    read = run._read

    def known(folder, name, reader, catalogue):
        changed = catalogue.chips or catalogue.engines or catalogue.transports
        if folder.resolve() != SOURCE.parents[1] or changed:
            return read(folder, name, reader, catalogue)
        if name not in _PREDICTED:
            _PREDICTED[name] = read(folder, name, reader, catalogue)
        return _PREDICTED[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "_read", known)
        yield


@pytest.fixture(scope="session")
def simulator(tmp_path_factory):
    """The packet simulator, built once for the tests that run it; where ns-3 is not installed they are skipped by name."""
    compiler = os.environ.get("CXX", "g++")
    asked = [compiler, "-E", "-x", "c++", "-"]
    include = '#include "ns3/core-module.h"\n'
    here = (
        shutil.which(compiler)
        and subprocess.run(asked, input=include, capture_output=True, text=True, check=False).returncode == 0
    )
    if not here:
        pytest.skip("ns-3 is not installed (Debian: apt-get install ns3 libns3-dev)")
    program = tmp_path_factory.mktemp("ns3") / "collective"
    libraries = ["-lns3-core", "-lns3-network", "-lns3-point-to-point"]
    subprocess.run([compiler, "-O1", "-std=c++17", str(SOURCE), "-o", str(program), *libraries], check=True)
    return program
