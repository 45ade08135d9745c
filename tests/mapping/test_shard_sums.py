"""Sums of operands between ranks: partial sums are added where they lie alike, then brought to where an op
wants them by one collective for each group.
"""

from dataclasses import replace

import pytest

import strata as st
from strata.base.errors import BadValue
from strata.mapping.shard import shard
from strata.workload.dataflow import Dataflow, DataflowKernel
from strata.workload.graph import Block, BlockSequence, Extent, Graph, Tensor
from strata.workload.ops import MatMul, Vector

ROWS, WIDE, DEEP = Extent(512.0, 1.0, "rows"), Extent(64.0, 1.0, "wide"), Extent(256.0, 1.0, "deep")
SIZE = 512 * 64 * 2.0  # bytes of a result
WORK = st.prefill(batch=1, length=1)


def product(name, source="x"):
    return MatMul(
        name=name, module=name, inputs=(source,), output=f"{name}_out", m=ROWS, n=(WIDE,), k=DEEP,
        weight="bf16", activation="bf16",
    )  # fmt: skip


def vector(name, *inputs, adds=False):
    return Vector(
        name=name, module=name, inputs=inputs, output=f"{name}_out", m=ROWS, n=(WIDE,), reads=1.0, writes=1.0,
        flop_per_element=1.0, special_per_element=0.0, precision="bf16", adds=adds,
    )  # fmt: skip


def sent(ops, mesh, leaves=None, axes=None, **modules):
    """Collectives of a block whose products sum over depth: pattern, group, tensor, bytes."""
    graph = Graph(
        blocks=(
            Block(
                name="b", role="b", ops=tuple(ops), leaves=leaves or (ops[-1].output,),
                entry=Tensor("x", (ROWS, DEEP), "bf16"), output=Tensor("y", (ROWS, WIDE), "bf16"),
            ),
        ),
        sequence=BlockSequence(period=(("b",),), layers=1.0),
    )  # fmt: skip
    layout = st.layout(mesh, axes, **modules)
    made = shard(graph, layout.sharding(graph, WORK, layout.active()))
    return [
        (op.pattern, op.group, op.output, float(op.payload))
        for _, op in made.ops()
        if op.kind == "collective"
    ]


DEPTH = {"deep": "tp"}


def test_partial_operands_are_added_on_each_rank_and_scattered_once():
    ops = [product("p"), product("q"), vector("norm", "p_out", "q_out", adds=True)]
    found = sent(ops, {"tp": 8}, p=DEPTH, q=DEPTH, norm={"rows": "tp"}, b={"rows": "tp"})
    assert [f for f in found if f[2] != "x"] == [("reduce_scatter", "tp", "q_out", SIZE)]
    whole = sent(ops, {"tp": 8}, p=DEPTH, q=DEPTH)
    assert whole == [("all_reduce", "tp", "q_out", SIZE)]
    # Not added up by the op: each by itself.
    ops[-1] = replace(ops[-1], adds=False)
    assert [f[2] for f in sent(ops, {"tp": 8}, p=DEPTH, q=DEPTH)] == ["p_out", "q_out"]


def test_a_whole_operand_of_a_sum_is_only_sliced():
    """A residual that every rank holds costs nothing where the sum is wanted in pieces."""
    ops = [
        product("p"),
        vector("copy", "p_out"),
        product("q"),
        vector("norm", "copy_out", "q_out", adds=True),
    ]
    found = sent(ops, {"tp": 8}, q=DEPTH, norm={"rows": "tp"}, b={})
    assert found == [
        ("reduce_scatter", "tp", "q_out", SIZE),
        ("all_gather", "tp", "norm_out", SIZE),
    ]


def test_an_operand_of_a_sum_in_another_layout_is_brought_like_any_other():
    ops = [product("p"), product("q"), vector("norm", "p_out", "q_out", adds=True)]
    found = sent(ops, {"tp": 8}, p={"wide": "tp"}, q=DEPTH)
    assert found == [("all_gather", "tp", "p_out", SIZE), ("all_reduce", "tp", "q_out", SIZE)]
    exchanged = sent(ops, {"tp": 8}, p={"wide": "tp"}, q=DEPTH, norm={"rows": "tp"}, b={"rows": "tp"})
    assert [f for f in exchanged if f[2] != "x"] == [
        ("all_to_all", "tp", "p_out", SIZE / 8),
        ("reduce_scatter", "tp", "q_out", SIZE),
    ]


def test_partial_operands_that_lie_apart_are_not_added_before():
    """One is divided along rows over dp, the other whole there: each goes its own way."""
    ops = [product("p"), product("q"), vector("norm", "p_out", "q_out", adds=True)]
    found = sent(ops, {"tp": 4, "dp": 2}, p={**DEPTH, "rows": "dp"}, q=DEPTH, norm={"rows": "dp"})
    assert [f for f in found if f[2] in ("p_out", "q_out")] == [
        ("all_reduce", "tp", "p_out", SIZE / 2),
        ("all_reduce", "tp", "q_out", SIZE),
    ]


def test_sums_over_several_groups_are_one_collective_each():
    """Partial over tp, and over tp and dp: two sums, the second of the pieces of the first."""
    ops = [product("p"), product("q"), vector("norm", "p_out", "q_out", adds=True)]
    both = {"deep": ("tp", "dp")}
    found = sent(ops, {"tp": 4, "dp": 2}, p=DEPTH, q=both, norm={"rows": "tp"})
    assert [f for f in found if f[2] in ("p_out", "q_out")] == [
        ("reduce_scatter", "tp", "q_out", SIZE),
        ("all_reduce", "dp", "q_out", SIZE / 4),
    ]


def test_what_several_operands_made_together_is_no_sum_of_one_of_them():
    """A further reader of one operand adds up that one; of an op with one operand it finds the sum."""
    ops = [product("p"), product("q"), vector("norm", "p_out", "q_out", adds=True), vector("read", "p_out")]
    leaves = ("norm_out", "read_out")
    assert sent(ops, {"tp": 8}, leaves, p=DEPTH, q=DEPTH) == [
        ("all_reduce", "tp", "q_out", SIZE),
        ("all_reduce", "tp", "p_out", SIZE),
    ]
    alone = [product("p"), vector("norm", "p_out", adds=True), vector("read", "p_out")]
    assert sent(alone, {"tp": 8}, leaves, p=DEPTH) == [("all_reduce", "tp", "p_out", SIZE)]


def test_partial_results_that_leave_or_that_nobody_reads_are_added_up():
    ops = [product("p"), product("q")]
    assert sent(ops, {"tp": 8}, ("p_out", "q_out"), DEPTH, b={"deep": "tp"}) == [
        ("all_reduce", "tp", "q_out", SIZE)
    ]
    scattered = sent(ops, {"tp": 8}, ("p_out", "q_out"), p=DEPTH, q=DEPTH, b={"rows": "tp"})
    assert [f for f in scattered if f[2] != "x"] == [("reduce_scatter", "tp", "q_out", SIZE)]
    unread = sent(ops, {"tp": 8}, ("p_out",), p=DEPTH, q=DEPTH)
    assert unread == [("all_reduce", "tp", "p_out", SIZE), ("all_reduce", "tp", "q_out", SIZE)]


def test_what_was_gathered_for_a_reader_is_not_gathered_again_to_leave():
    ops = [product("p"), vector("read", "p_out")]
    found = sent(ops, {"tp": 8}, ("p_out", "read_out"), p={"wide": "tp"})
    assert found == [("all_gather", "tp", "p_out", SIZE)]


def heads_program(**given):
    kernel = DataflowKernel(name="a", kind="simd", reads=("x",))
    sizes = {"rows": 64.0, "heads": 16.0, "head": 128.0}
    return Dataflow(
        name="rows", sizes=sizes, inputs=(("x", ("rows", "heads", "head")),), kernels=(kernel,), **given
    )


def test_an_axis_that_no_op_has_is_told():
    """`head` is only the unit of heads: dividing it would do nothing."""
    told = r"nothing can be divided along head \(dimension tp of the mesh\); .*: rows, heads$"
    with pytest.raises(BadValue, match=told):
        st.evaluate("2xh200", heads_program(), st.forward(1), st.layout({"tp": 2}, {"head": "tp"}))
    with pytest.raises(BadValue, match=r"divided like rows=2,heads=2 .*, but got 'head=2'"):
        st.evaluate("2xh200", heads_program(), st.forward(1), "head=2")
    assert heads_program().mesh_dimensions == ("rows", "heads")
    # A dimension of one rank divides nothing, whatever it names; several axes need not all be there.
    st.evaluate("1xh200", heads_program(), st.forward(1), st.layout({"tp": 1}, {"head": "tp"}))
    two = st.layout({"tp": 2}, {"head": "tp", "heads": "tp"})
    st.evaluate("2xh200", heads_program(), st.forward(1), two)


def test_a_program_of_collectives_alone_needs_ranks():
    moved = DataflowKernel(name="a", kind="all_to_all", reads=("x",), settings=(("over", "tp"),))
    program = replace(heads_program(layouts=(("tp", (("*", "rows"),)),)), kernels=(moved,))
    with pytest.raises(BadValue, match="nothing to run here: all its kernels are collectives"):
        st.evaluate("1xh200", program, st.forward(1))
    assert st.evaluate("2xh200", program, st.forward(1), "tp=2").metrics.step_time > 0
