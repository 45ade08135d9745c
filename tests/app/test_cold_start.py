"""A command starts with what it needs: heavy libraries and other commands are left alone until then."""

import subprocess
import sys

HEAVY = (
    "scipy",
    "pyarrow",
    "ortools",
    "jax",
    "array_api_compat",
    "matplotlib",
    "ray",
    "pandas",
    "numpy.f2py",
    "pydantic",
)
UNUSED = (
    "strata.serving.curve",
    "strata.hardware.generate.recipe",
    "strata.search.run",
    "strata.search.space",
    "strata.workload.dataflow",
    "strata.adapters.onnx.graph",
    "strata.app.commands.serving",
    "strata.app.commands.map",
    "strata.simulate",
    "strata.optimise",
)
CODE = """
import sys
from strata.app.cli import run_command
code = run_command(["predict", "--model", "llama-3-70b", "--system", "8xh200", "--batch", "64"])
sys.stderr.write("\\n".join([str(code), *sys.modules]))
"""


def test_predict_loads_no_more_than_it_needs():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    code, *loaded = done.stderr.splitlines()
    assert code == "0" and "time per output token" in done.stdout
    assert not {m for m in loaded if m.split(".")[0] in HEAVY or m in HEAVY or m in UNUSED}


def test_names_of_a_lazy_package_are_what_they_hold_whatever_was_loaded_first():
    code = (
        "import strata.search.goal, strata.search.sweep, strata.serving.curve, strata as st\n"
        "assert callable(st.search.goal) and callable(st.search.sweep) and callable(st.serving.curve)\n"
        "from strata.search import goal, Goal\n"
        "assert isinstance(goal('tokens_per_s'), Goal)\n"
        "assert set(st.search.__all__) <= set(dir(st.search)) and all(getattr(st.search, n) for n in st.search.__all__)\n"
        "assert all(getattr(st.serving, n) for n in st.serving.__all__)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
