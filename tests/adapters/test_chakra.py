"""Chakra traces: their bytes against Google's protobuf, a step as nodes of all ranks, and the way back."""

import json
from collections import Counter

import pytest

import strata as st
from strata.adapters.chakra.out import chakra_traces
from strata.adapters.chakra.trace import (
    COLLECTIVE,
    COMM_TYPES,
    COMPUTE,
    RECEIVE,
    SEND,
    ChakraFile,
    ChakraNode,
    attribute_bytes,
    chakra_bytes,
    node_bytes,
    read_chakra,
)
from strata.base.errors import BadValue, StrataError
from strata.workload.graph import is_collective
from strata.workload.program import program

DECODE = ("8xh200", "llama-3-8b", st.decode(batch=64, context=2048), "tp=4,dp=2")
TRAIN = ("8xh200", "llama-3-8b", st.train(batch=16, length=2048), "tp=2,pp=2,dp=2,microbatches=4")
SHARDED = ("8xh200", "llama-3-8b", st.train(batch=8, length=2048), "dp=8,zero=3,recompute=full", "megatron")
EXPERTS = ("8xh200", "deepseek-v3", st.decode(batch=64, context=2048), "dp=8,ep=8")
RING = ("8xh200", "llama-3-8b", st.prefill(batch=1, length=32768), "cp=8,cp_mode=ring")
POINTS = {"decode": DECODE, "train": TRAIN, "zero-3": SHARDED, "experts": EXPERTS, "ring": RING}


def messages():
    """et_def.proto in the words of the protobuf package, as far as it is written here."""
    protobuf = pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    assert protobuf
    of = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="et.proto", package="c", syntax="proto3")
    kinds = {
        "AttributeProto": [
            ("name", 1, of.TYPE_STRING, 1), ("double_val", 3, of.TYPE_DOUBLE, 1), ("int32_val", 7, of.TYPE_INT32, 1),
            ("int64_val", 9, of.TYPE_INT64, 1), ("uint64_val", 13, of.TYPE_UINT64, 1),
            ("sint64_val", 17, of.TYPE_SINT64, 1), ("fixed32_val", 19, of.TYPE_FIXED32, 1),
            ("bool_val", 27, of.TYPE_BOOL, 1), ("bool_list", 28, "BoolList", 1), ("string_val", 29, of.TYPE_STRING, 1),
        ],
        "BoolList": [("values", 1, of.TYPE_BOOL, 3)],
        "GlobalMetadata": [("version", 1, of.TYPE_STRING, 1), ("attr", 2, "AttributeProto", 3)],
        "Node": [
            ("id", 1, of.TYPE_UINT64, 1), ("name", 2, of.TYPE_STRING, 1), ("type", 3, of.TYPE_UINT64, 1),
            ("ctrl_deps", 4, of.TYPE_UINT64, 3), ("data_deps", 5, of.TYPE_UINT64, 3),
            ("start_time_micros", 6, of.TYPE_UINT64, 1), ("duration_micros", 7, of.TYPE_UINT64, 1),
            ("attr", 10, "AttributeProto", 3),
        ],
    }  # fmt: skip
    for name, rows in kinds.items():
        made = file.message_type.add(name=name)
        for word, number, kind, label in rows:
            told = (
                {"type": of.TYPE_MESSAGE, "type_name": f".c.{kind}"}
                if isinstance(kind, str)
                else {"type": kind}
            )
            made.field.add(name=word, number=number, label=label, **told)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {n: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"c.{n}")) for n in kinds}


TOLD = {
    "is_cpu_op": False,
    "num_ops": 123456789012,
    "tensor_size": 2**40,
    "comm_type": 0,
    "comm_dst": 7,
    "pg_name": "3",
    "involved_dim": (True, False, True),
    "share": 0.25,
    "below": -5,
}


def test_bytes_are_those_of_protobuf():
    kinds = messages()
    node = ChakraNode(
        id=300, name="a b", type=COMPUTE, data_deps=(1, 299), ctrl_deps=(2,), duration=17, attributes=TOLD
    )
    read = kinds["Node"].FromString(node_bytes(node))
    assert (read.id, read.name, read.type, read.duration_micros) == (300, "a b", COMPUTE, 17)
    assert list(read.data_deps) == [1, 299] and list(read.ctrl_deps) == [2]
    by_name = {a.name: a for a in read.attr}
    assert by_name["num_ops"].int64_val == TOLD["num_ops"] and by_name["below"].int64_val == -5
    assert by_name["tensor_size"].uint64_val == 2**40 and by_name["comm_dst"].int32_val == 7
    assert list(by_name["involved_dim"].bool_list.values) == [True, False, True]
    assert by_name["pg_name"].string_val == "3" and by_name["share"].double_val == 0.25
    # what this package writes, fields in their order, is what protobuf writes
    for name, value in TOLD.items():
        told = attribute_bytes(name, value)
        assert kinds["AttributeProto"].FromString(told).name == name


def test_what_protobuf_writes_is_read(tmp_path):
    kinds = messages()
    node = kinds["Node"](id=5, name="x", type=COLLECTIVE, data_deps=[0, 1], ctrl_deps=[3])
    node.attr.add(name="comm_size", int64_val=4096)
    node.attr.add(name="zig", sint64_val=-3)
    node.attr.add(name="fixed", fixed32_val=9)
    node.attr.add(name="is_cpu_op", bool_val=True)
    parts = [kinds["GlobalMetadata"](version="0.0.4").SerializeToString(), node.SerializeToString()]
    path = tmp_path / "x.0.et"
    path.write_bytes(b"".join(bytes([len(p)]) + p for p in parts))
    found = read_chakra(path, 10)
    assert found.version == "0.0.4"
    (read,) = found.nodes
    assert (read.id, read.name, read.type) == (5, "x", COLLECTIVE)
    assert read.data_deps == (0, 1) and read.ctrl_deps == (3,)
    assert read.attributes == {"comm_size": 4096, "zig": -3, "fixed": 9, "is_cpu_op": True}


def test_files_hold_what_was_put_in(tmp_path):
    nodes = tuple(
        ChakraNode(id=i, name=f"n{i}", type=COMPUTE, data_deps=tuple(range(i)), attributes=TOLD)
        for i in range(4)
    )
    trace = ChakraFile(nodes=nodes, attributes={"ranks": 8, "title": "é"})
    path = tmp_path / "a.0.et"
    path.write_bytes(chakra_bytes(trace))
    assert read_chakra(path, 10) == trace


@pytest.fixture(scope="module", params=POINTS)
def made(request, tmp_path_factory):
    result = st.evaluate(*POINTS[request.param])
    assert result.fits
    traces = chakra_traces(result)
    prefix = tmp_path_factory.mktemp("chakra") / "step"
    traces.write(prefix)
    return result, traces, prefix


def test_every_node_stands_after_those_it_depends_on(made):
    _, traces, _ = made
    for rank in (0, traces.ranks - 1):
        seen = set()
        for node in traces.rank(rank).nodes:
            assert {*node.data_deps, *node.ctrl_deps} <= seen
            seen.add(node.id)


def test_ranks_of_a_group_do_the_same_collectives_in_one_order(made):
    """Else a simulator would wait for ever."""
    _, traces, _ = made
    ranks = [traces.rank(r) for r in range(traces.ranks)]
    for (name, members), number in traces.numbered.items():
        told = {
            tuple(
                (n.attributes["comm_type"], n.attributes["comm_size"])
                for n in ranks[rank].nodes
                if n.type == COLLECTIVE and n.attributes["pg_name"] == str(number)
            )
            for rank in members
        }
        assert len(told) == 1, (name, members)


def test_each_message_that_is_sent_is_received(made):
    _, traces, _ = made
    sent, received = Counter(), Counter()
    for rank in range(traces.ranks):
        for n in traces.rank(rank).nodes:
            if n.type in (SEND, RECEIVE):
                a = n.attributes
                assert rank == a["comm_src" if n.type == SEND else "comm_dst"]
                key = (a["comm_src"], a["comm_dst"], a["comm_tag"], a["comm_size"])
                (sent if n.type == SEND else received)[key] += 1
    assert sent == received and max(sent.values(), default=1) == 1


def test_out_then_in_keeps_operations_bytes_and_collectives(made):
    """The law of the way round: what a rank's file counts, the program that is read from it counts."""
    _, traces, prefix = made
    own = traces.rank(0)
    read = program(f"{prefix}.0.et")
    ops = [op for _, op in read.trace(st.forward(1.0)).ops()]
    work = [op for op in ops if not is_collective(op)]
    assert sum(op.work() for op in work) == read.ranks * sum(n.number("num_ops") for n in own.nodes)
    moved = sum(op.elements() * (op.bytes_read + op.bytes_written) for op in work)
    assert moved == read.ranks * sum(n.number("tensor_size") for n in own.nodes)
    groups = {str(number): members for (_, members), number in traces.numbered.items()}

    def whole(node):
        gathers = COMM_TYPES[node.attributes["comm_type"]] == "all_gather"
        members = len(groups[node.attributes["pg_name"]]) if gathers else 1
        return COMM_TYPES[node.attributes["comm_type"]], members * node.number("comm_size")

    told = Counter(whole(n) for n in own.nodes if n.type == COLLECTIVE)
    told += Counter(("send", n.number("comm_size")) for n in own.nodes if n.type == SEND)
    found = Counter((op.pattern, op.payload / read.ranks) for op in ops if is_collective(op))
    assert found == told and read.ranks == traces.ranks


def test_counts_are_those_of_the_step(made):
    """Of a step without a pipeline: useful operations of the whole system, and bytes of a device."""
    result, traces, _ = made
    if len(traces.stages) > 1 or result.workload.phase == "train" or result.program.name == "deepseek-v3":
        return  # a stage is no mean device; recomputed operations and the fullest rank's experts count twice
    own = traces.rank(0).nodes
    useful = sum(n.number("num_ops") for n in own if n.attributes.get("unit") == "matrix")
    assert useful * traces.ranks == pytest.approx(result.steps[-1].flop, rel=1e-6)
    moved = sum(n.number("tensor_size") for n in own)
    assert moved == pytest.approx(float(result.steps[-1].price.memory_bytes), rel=1e-6)


def test_a_trace_is_priced_near_the_step_it_came_from(tmp_path):
    result = st.evaluate(*DECODE)
    chakra_traces(result).write(tmp_path / "step")
    read = program(tmp_path / "step.et")
    again = st.evaluate("8xh200", read, st.forward(1.0), read.layout_text())
    assert again.fits and again.steps[-1].flop == result.steps[-1].flop
    assert again.metrics.step_time == pytest.approx(result.metrics.step_time, rel=0.15)
    network = result.steps[-1].time_by_bound["network"]
    assert again.steps[-1].time_by_bound["network"] == pytest.approx(network, rel=1e-9)


def test_groups_are_a_file_of_astra_sim(made):
    _, traces, prefix = made
    told = json.loads(prefix.with_name("step.groups.json").read_text())
    assert {int(k) for k in told} == set(range(1, len(told) + 1))  # 0 are all ranks
    assert all(sorted(m) == m and max(m) < traces.ranks for m in told.values())
    used = {
        n.attributes["pg_name"]
        for r in range(traces.ranks)
        for n in traces.rank(r).nodes
        if n.type == COLLECTIVE
    }
    assert used <= set(told)
    assert len(list(prefix.parent.glob("step.*.et"))) == traces.ranks


def test_attributes_have_the_types_that_are_read(made):
    _, traces, _ = made
    for n in traces.rank(0).nodes:
        a = n.attributes
        assert a["is_cpu_op"] is False
        if n.type == COMPUTE:
            assert isinstance(a["num_ops"], int) and isinstance(a["tensor_size"], int)
            assert a["num_ops"] >= 1 and a["tensor_size"] >= 0
        elif n.type == COLLECTIVE:
            assert int(a["pg_name"]) >= 1 and a["comm_size"] >= 1 and 0 <= a["comm_type"] < len(COMM_TYPES)


def test_what_cannot_be_written_is_a_line(tmp_path):
    big = st.evaluate("128x8xh200", "llama-3-70b", st.train(4096, 4096), "tp=8,dp=128,microbatches=8,zero=1")
    with pytest.raises(BadValue, match=r"1,024 ranks would have some .* nodes"):
        chakra_traces(big)
    import numpy as np

    box = st.evaluate("8xh200", "llama-3-8b", st.decode(batch=np.array([1.0, 2.0]), context=1024), "tp=8")
    with pytest.raises(BadValue, match="one point"):
        chakra_traces(box)
    (tmp_path / "full").write_text("")
    with pytest.raises((StrataError, OSError)):
        chakra_traces(st.evaluate(*DECODE)).write(tmp_path / "full" / "step")
