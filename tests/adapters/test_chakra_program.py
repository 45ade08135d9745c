"""Chakra traces read as programs: what other tools write, groups of ranks, and files that are none."""

import json

import pytest

import strata as st
from strata.adapters.chakra.trace import (
    COLLECTIVE,
    COMPUTE,
    MEM_LOAD,
    METADATA,
    RECEIVE,
    SEND,
    ChakraFile,
    ChakraNode,
    chakra_bytes,
)
from strata.base.errors import BadFile, BadValue, StrataError, UnknownName
from strata.workload.graph import is_collective
from strata.workload.program import program

WORK = {"is_cpu_op": False, "num_ops": 10**12, "tensor_size": 10**9}


def node(number, kind=COMPUTE, deps=(), **told):
    return ChakraNode(id=number, name=f"n{number}", type=kind, data_deps=deps, attributes=told or WORK)


def put(path, *nodes, **told):
    path.write_bytes(chakra_bytes(ChakraFile(nodes=nodes, attributes=told)))
    return path


def summed(comm_type=0, group="0", size=10**8):
    return {"is_cpu_op": False, "comm_type": comm_type, "comm_size": size, "pg_name": group}


def test_a_node_is_a_roofline_of_its_numbers(tmp_path):
    path = put(tmp_path / "x.0.et", node(0))
    found = st.evaluate("1xh200", program(path), st.forward(1.0))
    step = found.steps[-1]
    assert step.flop == 1e12 and float(step.price.memory_bytes) == 1e9
    chip = st.chip("h200")
    assert found.metrics.step_time >= max(
        1e12 / chip.compute.matrix_rate["bf16"], 1e9 / chip.memory.bandwidth
    )


def test_precision_and_unit_are_those_of_the_node(tmp_path):
    plain = put(tmp_path / "a.0.et", node(0))
    narrow = put(tmp_path / "b.0.et", node(0, **WORK, precision="fp8"))
    vector = put(tmp_path / "c.0.et", node(0, **WORK, unit="vector"))
    times = [
        st.evaluate("1xh200", program(p), st.forward(1.0)).metrics.step_time for p in (plain, narrow, vector)
    ]
    assert times[1] < times[0] < times[2]
    told = st.evaluate("1xh200", program(plain, precision="fp8"), st.forward(1.0)).metrics.step_time
    assert told == times[1]
    wide = st.evaluate("1xh200", program(narrow, precision="bf16"), st.forward(1.0)).metrics.step_time
    assert wide == times[0]


def test_a_group_that_is_not_named_is_all_ranks(tmp_path):
    for rank in range(4):
        put(tmp_path / f"x.{rank}.et", node(0), node(1, COLLECTIVE, (0,), **summed()))
    read = program(tmp_path / "x.0.et")
    assert read.layout_text() == "world=4" and read.ranks == 4
    found = st.evaluate("4xh200", read, st.forward(1.0), "world=4")
    assert found.fits and found.steps[-1].time_by_bound["network"] > 0.0
    assert program(tmp_path / "x.et").ranks == 4 and program(tmp_path / "x.et").name == "x"


def test_of_a_prefix_the_busiest_rank_is_taken(tmp_path):
    put(tmp_path / "x.0.et", node(0))
    put(tmp_path / "x.1.et", node(0), node(1))
    graph = program(tmp_path / "x.et").trace(st.forward(1.0))
    assert len(list(graph.ops())) == 2 and float(graph.flop()) == 4e12  # of two ranks


def test_groups_make_a_mesh_with_copies_between(tmp_path):
    groups = json.dumps({"1": [0, 1], "7": [0, 8]})
    nodes = node(0), node(1, COLLECTIVE, (0,), **summed(2, "1")), node(2, COLLECTIVE, (1,), **summed(7, "7"))
    read = program(put(tmp_path / "x.0.et", *nodes, process_groups=groups, ranks=32))
    assert read.layout_text() == "group1=2,copies=4,group7=2,copies2=2"
    ops = [op for _, op in read.trace(st.forward(1.0)).ops() if is_collective(op)]
    # a gather is told by what each rank brings
    assert [(op.pattern, op.group, op.payload / 32) for op in ops] == [
        ("all_gather", "group1", 2e8),
        ("reduce_scatter", "group7", 1e8),
    ]


def test_groups_may_stand_in_a_file_beside(tmp_path):
    path = put(tmp_path / "x.0.et", node(0), node(1, COLLECTIVE, (0,), **summed(0, "5")))
    with pytest.raises(BadFile, match=r"group 5, whose ranks no process_groups and no PREFIX.groups.json"):
        program(path)
    (tmp_path / "x.groups.json").write_text(json.dumps({"5": [0, 2, 4, 6]}))
    assert program(path).layout_text() == "copies=2,group5=4"


def test_messages_have_a_dimension_and_receipts_cost_nothing(tmp_path):
    message = {"is_cpu_op": False, "comm_size": 10**8, "comm_src": 0, "comm_dst": 2, "comm_tag": 1}
    read = program(
        put(tmp_path / "x.0.et", node(0), node(1, SEND, (0,), **message), node(2, RECEIVE, **message))
    )
    assert read.layout_text() == "copies=2,p2p=2"
    patterns = [op.pattern for _, op in read.trace(st.forward(1.0)).ops() if is_collective(op)]
    assert patterns == ["send"]


def test_nodes_of_the_host_and_of_metadata_only_order(tmp_path):
    host = node(1, COMPUTE, (0,), is_cpu_op=True, num_ops=10**15)
    load = node(4, MEM_LOAD, (3,), is_cpu_op=False, tensor_size=10**6, num_ops=7)
    read = program(put(tmp_path / "x.0.et", node(0), host, node(2, METADATA, (1,)), node(3, deps=(2,)), load))
    ops = [op for _, op in read.trace(st.forward(1.0)).ops()]
    assert [op.name for op in ops] == ["0 n0", "3 n3", "4 n4"]
    assert ops[1].inputs == ("0 n0",) and ops[2].work() == 0.0 and ops[2].bytes_read == 1e6


def test_reduce_gather_scatter_are_what_moves_as_much(tmp_path):
    nodes = [node(i, COLLECTIVE, **summed(kind)) for i, kind in enumerate((1, 3, 4, 5, 6))]
    read = program(put(tmp_path / "x.0.et", *nodes, ranks=4))
    patterns = [op.pattern for _, op in read.trace(st.forward(1.0)).ops()]
    assert patterns == ["broadcast", "all_gather", "reduce_scatter", "broadcast", "all_to_all"]


BAD = {
    "cycle": ((node(0, deps=(1,)), node(1, deps=(0,))), "wait for each other in a cycle: 0, 1"),
    "missing": ((node(0, deps=(9,)),), "node 0 'n0' depends on node 9, which is not there"),
    "twice": ((node(3), node(3)), "two nodes with id 3"),
    "type": ((node(0, 12),), "node 0 'n0' is of type 12; known are 0 INVALID_NODE"),
    "timed": ((node(0, is_cpu_op=False),), "durations alone cannot be priced"),
    "none": ((), "holds no nodes"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_traces_are_a_line(tmp_path, what):
    nodes, said = BAD[what]
    with pytest.raises(BadFile, match=said) as caught:
        program(put(tmp_path / "x.0.et", *nodes))
    assert "\n" not in str(caught.value)


def test_collectives_of_no_known_kind_and_uneven_groups_are_a_line(tmp_path):
    read = program(put(tmp_path / "x.0.et", node(0, COLLECTIVE, **summed(9)), ranks=4))
    with pytest.raises(BadFile, match="comm_type 9; known are 0 all_reduce"):
        read.trace(st.forward(1.0))
    one = node(0, COLLECTIVE, **summed(0, "1"))
    for listed, said in (([0, 1, 5], "unevenly"), (["a"], "unevenly|whole|invalid"), ("x", "unevenly")):
        with pytest.raises(StrataError, match=said):
            program(put(tmp_path / "y.0.et", one, process_groups=json.dumps({"1": listed})))
    both = one, node(1, COLLECTIVE, **summed(0, "2"))
    groups = json.dumps({"1": [0, 1, 2, 3], "2": [0, 2, 4, 6]})
    with pytest.raises(BadFile, match="make no mesh"):
        program(put(tmp_path / "z.0.et", *both, process_groups=groups))
    with pytest.raises(BadFile, match="no JSON"):
        program(put(tmp_path / "w.0.et", one, process_groups="{"))


def test_other_files_are_a_line(tmp_path):
    whole = put(tmp_path / "x.0.et", node(0), node(1)).read_bytes()
    for name, data, said in (
        ("cut", whole[:-3], "is cut off"),
        ("json", b'{"a": 1}', "is JSON"),
        ("zip", b"\x1f\x8b\x08\x00", "compressed"),
        ("text", b"hello, this is no trace at all", "no Chakra trace"),
        ("noise", bytes(range(255, 0, -1)), "cut off|no Chakra trace"),
        ("empty", b"", "no nodes"),
    ):
        path = tmp_path / f"{name}.et"
        path.write_bytes(data)
        with pytest.raises(BadFile, match=said) as caught:
            program(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(BadFile, match="no Chakra trace at"):
        program(tmp_path / "absent.et")


def test_any_bytes_end_in_a_line_or_a_program(tmp_path):
    import random

    whole = bytearray(put(tmp_path / "x.0.et", node(0), node(1, COLLECTIVE, (0,), **summed())).read_bytes())
    draw = random.Random(0)
    path = tmp_path / "y.0.et"
    for _ in range(400):
        changed = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        path.write_bytes(changed)
        try:
            program(path).trace(st.forward(1.0))
        except StrataError as error:
            assert "\n" not in str(error)


def test_a_trace_takes_what_it_can_take(tmp_path):
    path = put(tmp_path / "x.0.et", node(0))
    with pytest.raises(UnknownName, match="precision, ranks"):
        program(path, layers=3)
    with pytest.raises(UnknownName, match="number format"):
        program(path, precision="fp7")
    with pytest.raises(BadValue, match="phase forward"):
        st.evaluate("1xh200", program(path), st.train(1.0, 1.0))
    assert not st.evaluate("2xh200", program(path), st.forward(1.0), "copies=1").fits
    assert "TracedRank(1 nodes)" in repr(program(path))
