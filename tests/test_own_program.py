"""A program of a user's own, however its class is made."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from test_docs import blocks

import strata as st
from strata.base.errors import StrataError
from strata.workload.graph import Block, BlockSequence, Extent, Graph
from strata.workload.ops import MatMul


def product(width, work):
    rows, wide = Extent(work.batch, 1.0, "rows"), Extent(width)
    op = MatMul(
        name="product", module="m", inputs=("x",), output="y", m=rows, n=(wide,), k=wide, weight="bf16", activation="bf16"
    )  # fmt: skip
    return Graph(
        blocks=(Block(name="one", ops=(op,)),),
        sequence=BlockSequence(first=("one",)),
        items=work.batch,
        inputs=("x",),
        formats=(("bf16", "bf16"),),
    )


@dataclass
class Compared:
    """Neither frozen nor told apart by identity."""

    width: float = 4096.0
    name: str = "mine"
    units: dict = field(default_factory=dict)

    def trace(self, work):
        return product(self.width, work)


class Plain:
    name, units = "plain", {}

    def trace(self, work):
        return product(4096.0, work)


@pytest.mark.parametrize("program", [Compared(), Plain()], ids=["dataclass", "class"])
def test_any_class_with_a_trace_is_a_program(program):
    made = st.evaluate("8xh200", program, st.forward(8192.0), st.layout({"r": 8}, {"rows": "r"}))
    assert made.fits and made.metrics.mfu > 0.1 and "items/s" in repr(made)


HOW_TO = Path(__file__).parents[1] / "docs" / "how-to" / "add-a-program.md"
(OWN_FILE,) = (b.body for b in blocks(HOW_TO.read_text(encoding="utf-8")) if b.word == "file")


def test_a_program_in_a_file_is_divided_by_its_axes(tmp_path):
    (tmp_path / "mine.py").write_text(OWN_FILE)
    own = st.program(tmp_path / "mine.py", size=8192)
    typed = st.evaluate("8xh200", own, st.forward(1.0), "rows=4,columns=2")
    laid = st.layout({"rows": 4, "columns": 2}, {"rows": "rows", "columns": "columns"})
    assert own.size == 8192.0 and typed.fits
    assert typed.metrics.step_time == st.evaluate("8xh200", own, st.forward(1.0), laid).metrics.step_time


def test_a_program_in_a_file_is_predicted_and_shown_from_the_command_line(tmp_path, answer):
    (tmp_path / "mine.py").write_text(OWN_FILE)
    shown = answer("show", "program", f"{tmp_path}/mine.py")
    assert "divided with --plan rows=2,columns=2" in shown and "65536" in shown
    assert "plan columns=8" in answer(
        "predict", "-m", f"{tmp_path}/mine.py", "-s", "8xh200", "--plan", "columns=8"
    )


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("x = 1", "one class with units and trace"),
        (OWN_FILE + OWN_FILE.replace("class Power", "class Other"), "but got OtherIteration, PowerIteration"),
        ("import nothing_like_it", "line 1: ModuleNotFoundError"),
        ("def f(:", "line 1: SyntaxError"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path, code, line):
    (tmp_path / "mine.py").write_text(code)
    with pytest.raises(StrataError, match=line):
        st.program(tmp_path / "mine.py")


def test_a_program_that_changes_is_priced_anew():
    program, layout = Compared(), st.layout({"r": 8}, {"rows": "r"})
    before = st.evaluate("8xh200", program, st.forward(8192.0), layout).metrics.step_time
    program.width = 8192.0
    assert st.evaluate("8xh200", program, st.forward(8192.0), layout).metrics.step_time > 2.0 * before
