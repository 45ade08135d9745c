"""A program of a user's own, however its class is made."""

from dataclasses import dataclass, field

import pytest

import strata as st
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


def test_a_program_that_changes_is_priced_anew():
    program, layout = Compared(), st.layout({"r": 8}, {"rows": "r"})
    before = st.evaluate("8xh200", program, st.forward(8192.0), layout).metrics.step_time
    program.width = 8192.0
    assert st.evaluate("8xh200", program, st.forward(8192.0), layout).metrics.step_time > 2.0 * before
