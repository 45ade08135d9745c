"""What tests share: every graph is checked after every pass; a user at the command line; predictions of the
project's own data; the packet simulator.
"""

import json
import os
import pickle
import shutil
import signal
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import hypothesis
import pytest

import strata.base.calls
from strata.base.shipped import paper

try:
    import fcntl
except ImportError:  # no locks of files on Windows: two workers may predict the same
    fcntl = None

os.environ.setdefault("STRATA_CHECK", "1")
# A job in the background is started deaf to Ctrl-C, and hands that on to the commands that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
# JAX's programs here are compiled once and run once: kernels that are quick to compile, where its compiler is
# one that was tried (one that does not know the flag ends the process).
if find_spec("jaxlib") and version("jaxlib").startswith("0.10."):
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")
hypothesis.settings.register_profile("project", deadline=None, derandomize=True)  # machines differ in speed
hypothesis.settings.load_profile("project")
strata.base.calls.quiet = nullcontext  # tests hear what NumPy warns of
for name in ("deepflow", "deepstack", "dfmodel", "upgrades"):  # Python of papers, beside the package
    paper(name)
SOURCE = Path(__file__).parents[1] / "validation" / "ns3" / "collective.cc"


# Files whose tests take long begin first, so that no worker is left with one of them at the end.
LONG = (
    "tests/validation/accuracy/test_validate.py",
    "tests/test_batch.py",
    "tests/test_docs.py",
    "tests/search/test_executors.py",
    "tests/validation/readers/test_published_runs.py",
    "tests/validation/readers/test_served_rows.py",
    "tests/serving/test_closed_form.py",
    "tests/serving/test_simulated_service.py",
    "tests/validation/readers/test_nanotron.py",
    "tests/test_plans.py",
    "tests/test_studies.py",
    "tests/pricing/test_fused_block.py",
    "tests/mapping/test_kernel_parallel.py",
    "tests/workload/test_recurrent.py",
    "tests/workload/test_dataflow.py",
    "tests/fuzz/test_fuzz.py",
)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


@pytest.fixture(autouse=True)
def same_folder():
    """A test that goes elsewhere leaves the others where they were."""
    here = os.getcwd()
    yield
    os.chdir(here)


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


@pytest.fixture(scope="session")
def predictions(tmp_path_factory):
    """Reads a file of the project's own data with its points; of all workers the first that asks predicts it."""
    from strata.validation.accuracy.run import _read
    from strata.validation.accuracy.tables import ONE_IN

    own = tmp_path_factory.getbasetemp()
    folder = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    read = {}

    def known(data, name, reader, catalogue, wait=True):
        if name not in read:
            kept = folder / f"predicted-{name.replace('/', '-')}.pickle"
            with kept.with_suffix(".lock").open("w") as lock:
                if fcntl is not None:
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except BlockingIOError:
                        return None
                if not kept.exists():
                    made = kept.with_suffix(f".{os.getpid()}")
                    few = replace(catalogue, one_in=ONE_IN)
                    made.write_bytes(pickle.dumps(_read(data, name, reader, few)))
                    made.replace(kept)
            read[name] = pickle.loads(kept.read_bytes())
        return read[name]

    return known


@pytest.fixture(scope="session")
def own_points(predictions):
    """A file of the project's own data by its name: its rows and their points, as `strata validate` has them."""
    from strata.validation.measured.reader import reader_of
    from strata.validation.readers.labels import Catalogue

    def of(name):
        catalogue = Catalogue()
        table, points, _ = predictions(SOURCE.parents[1], name, reader_of(name, catalogue), catalogue)
        return table, points

    return of


@pytest.fixture(scope="module")
def predicted_once(predictions):
    """Rows of the project's own data are predicted once, whichever of them an answer compares."""
    from strata.validation.accuracy import run
    from strata.validation.measured.reader import data_files, reader_of
    from strata.validation.readers.labels import Catalogue

    read, plain = run._read, Catalogue()
    # Workers begin at opposite ends and leave to each other what is under way.
    for name in data_files(SOURCE.parents[1])[:: -1 if os.environ.get("PYTEST_XDIST_WORKER") == "gw1" else 1]:
        if (reader := reader_of(name, plain)) is not None:
            predictions(SOURCE.parents[1], name, reader, plain, wait=False)

    def known(folder, name, reader, catalogue):
        changed = catalogue.chips or catalogue.engines or catalogue.transports
        own = folder.resolve() == SOURCE.parents[1] and not changed
        return (predictions if own else read)(folder, name, reader, catalogue)

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
