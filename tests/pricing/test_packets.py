"""Packet networks: closed forms against the router, against bounds, and against ns-3."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.hardware.transport import Packets
from strata.hardware.transport import packets as network
from strata.pricing import packets
from strata.pricing.packets import Axis, Hop, Tree, message_time, packet_count
from strata.pricing.routes import Level, routed
from strata.validation.datasets import read_table
from strata.validation.network import TOPOLOGIES, collective_time, own_runs
from strata.validation.run import reader_of

DATA = Path(__file__).parents[2] / "validation"
OWN, PUBLISHED = network("ns3"), network("astra-sim")
CLOCKS = st.sampled_from([OWN, PUBLISHED, Packets(256.0, 32.0, 32.0, 1e-12)])
SIZES = st.integers(1, 10**6).map(float)
RATES = st.sampled_from([32e9, 46e9, 64e9, 256e9, 512e9])
HOPS = st.sampled_from([0.0, 32e-9, 500e-9])


def shifted(ranks: int, target: np.ndarray, size: float) -> np.ndarray:
    traffic = np.zeros((ranks, ranks))
    traffic[np.arange(ranks), target] = size
    return traffic


def along(sizes: tuple[int, ...], d: int) -> np.ndarray:
    """The next rank along a dimension of a grid, for every rank; dimension 0 varies fastest."""
    ranks = np.arange(int(np.prod(sizes))).reshape(sizes[::-1])
    return np.roll(ranks, -1, axis=len(sizes) - 1 - d).ravel()


@settings(max_examples=40, deadline=None)
@given(size=SIZES, rate=RATES, hop=HOPS, how=CLOCKS, side=st.integers(2, 6), other=st.integers(1, 3))
def test_ring_step_is_what_the_router_finds(size, rate, hop, how, side, other):
    levels = (Level("ring", side, rate, hop), Level("ring", other, rate, hop))
    found = routed(shifted(side * other, along((side, other), 0), size), levels, how).time
    assert float(packets.ring_step(size, Axis(float(side), rate, hop), how)) == pytest.approx(found, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(size=SIZES, rate=RATES, hop=HOPS, how=CLOCKS, side=st.integers(2, 6))
def test_chain_step_is_the_routers_and_a_wait(size, rate, hop, how, side):
    found = routed(shifted(side, along((side,), 0), size), (Level("chain", side, rate, hop),), how).time
    closed = float(packets.ring_step(size, Axis(float(side), rate, hop, 0.0), how))
    packet = float(packets.packet_time(how.payload + how.header, rate, how))
    assert found * (1 - 1e-12) <= closed <= found + 1.5 * (side - 2) * packet + 1e-15


@settings(max_examples=40, deadline=None)
@given(size=SIZES, rate=RATES, up=RATES, hop=HOPS, how=CLOCKS, inner=st.sampled_from([1, 2, 4, 8]), outer=st.sampled_from([1, 2, 4]))
def test_switch_steps_are_what_the_router_finds(size, rate, up, hop, how, inner, outer):
    ranks, tree = inner * outer, Tree(float(inner), float(outer), rate, hop, up, hop)
    levels = (Level("switch", inner, rate, hop), Level("tree", outer, up, hop))
    everyone = np.arange(ranks)
    for k in range(int(np.log2(ranks))):
        crosses = 2**k >= inner
        found = routed(shifted(ranks, everyone ^ 2**k, size), levels, how).time
        assert float(packets.tree_message(size, tree, crosses, 1.0, float(inner), how)) == pytest.approx(found, rel=1e-12)
    if ranks > 1:
        found = routed(shifted(ranks, (everyone + 1) % ranks, size), levels, how).time
        assert float(packets.tree_ring_step(size, tree, how)) == pytest.approx(found, rel=1e-12)
        found = routed(np.full((ranks, ranks), size), levels, how).time
        assert float(packets.tree_all_to_all(size, tree, how)) == pytest.approx(found, rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(kinds=st.lists(st.sampled_from(["ring", "chain", "full", "switch"]), min_size=1, max_size=3), seed=st.integers(0, 99))
def test_routes_conserve_bytes_and_keep_bounds(kinds, seed):
    random = np.random.default_rng(seed)
    levels = tuple(Level(kind, int(random.integers(1, 5)), float(random.choice([32e9, 50e9])), 1e-7) for kind in kinds)
    ranks = int(np.prod([level.size for level in levels]))
    traffic = random.integers(0, 5000, (ranks, ranks)) * random.integers(0, 2, (ranks, ranks)).astype(float)
    np.fill_diagonal(traffic, 0.0)
    step = routed(traffic, levels, OWN)
    leaving = sum(b for link, b in step.bytes.items())
    assert leaving >= traffic.sum() - 1e-6  # each byte crosses at least one link
    for link, carried in step.bytes.items():
        assert step.time >= carried / link.bandwidth * (1 - 0.5 / 20) + 2 * link.latency  # whole ticks may round down by half a tick
    double = routed(2.0 * traffic, levels, OWN)
    assert double.time >= step.time


@settings(max_examples=40, deadline=None)
@given(size=SIZES, more=SIZES, rate=RATES, hop=HOPS, how=CLOCKS, hops=st.integers(1, 5), sharing=st.integers(1, 8))
def test_message_is_monotone_and_above_its_bounds(size, more, rate, hop, how, hops, sharing):
    path = (Hop(rate, hop, float(sharing), float(hops)),)
    time = float(message_time(size, path, how))
    tick = float(how.tick) * float(packet_count(size, how)) * sharing
    assert time >= sharing * size / rate - 0.5 * tick + 2 * hops * hop - 1e-15
    slack = how.tick * 2 * (hops + sharing)  # a message of one more, nearly empty packet may store and forward in shorter slots
    assert float(message_time(size + more, path, how)) >= time - slack


def test_batch_equals_singles():
    sizes, inner = np.array([1.0, 999.0, 1001.0, 5e5, 6.4e7]), np.array([4.0, 8.0, 1.0, 8.0, 2.0])
    tree = Tree(inner, 8.0, 256e9, 128e-9, 32e9, 512e-9)
    for price in (packets.tree_all_gather, packets.tree_all_reduce, packets.tree_all_to_all, packets.tree_ring_all_reduce):
        many = price(sizes, tree, PUBLISHED)
        ones = [price(float(n), Tree(float(g), 8.0, 256e9, 128e-9, 32e9, 512e-9), PUBLISHED) for n, g in zip(sizes, inner, strict=True)]
        np.testing.assert_allclose(many, ones, rtol=1e-12)
    axes = (Axis(inner, 32e9, 32e-9), Axis(3.0, 64e9, 1e-7, 0.0))
    for price in (packets.grid_all_gather, packets.grid_all_reduce, packets.grid_all_to_all):
        many = price(sizes, axes, OWN)
        ones = [price(float(n), (Axis(float(g), 32e9, 32e-9), axes[1]), OWN) for n, g in zip(sizes, inner, strict=True)]
        np.testing.assert_allclose(many, ones, rtol=1e-12)


def test_a_group_of_one_sends_nothing():
    assert packets.tree_all_reduce(1e6, Tree(1.0, 1.0, 32e9, 1e-7, 32e9, 1e-7), OWN) == 0.0
    assert packets.grid_all_reduce(1e6, (Axis(1.0, 32e9, 1e-7),), OWN) == 0.0


def test_long_messages_cost_their_headers():
    """At 64 GB/s a packet of 1048 B takes 16 ns, not 15.6: 2.4 % over the link's own rate, the published sets' overhead."""
    time = packets.grid_all_reduce(1e9, (Axis(8.0, 64e9, 1e-7),), PUBLISHED)
    assert time / (2 * 7 / 8 * 1e9 / 64e9) == pytest.approx(1.024, rel=1e-3)


def test_closed_forms_hold_against_ns3_runs():
    found = own_runs(read_table(DATA, "ns3/runs.csv"))
    assert len(found) >= 300 and not found.why
    error = np.abs(found.predicted / found.measured - 1.0)
    assert error.max() <= 0.10
    for topology in TOPOLOGIES:
        for collective in ("all_gather", "all_reduce", "all_to_all"):
            of = [g.startswith(topology) and g.endswith(collective) for g in found.group]
            assert np.mean(error[of]) <= 0.02, (topology, collective)


def test_published_columns_are_read(tmp_path):
    (tmp_path / "ns3").mkdir()
    header = "topology,nodes_inner,nodes_outer,link_GBps_inner,link_GBps_outer,hop_ns_inner,hop_ns_outer,case,collective,algorithm,bytes,ns3_ns"
    rows = [
        "switch,8,1,128,,128,,s0,all_gather,halving_doubling,512,1600",
        "switch,8,8,256,32,128,512,s1,all_to_all,direct,512,11000",
        "torus,4,4,32,32,32,32,t2,all_gather,rs_ag_ag_3stage,512,500",
        "torus,4,4,32,32,32,32,t2,all_gather,tree,512,500",
        "switch,6,1,32,32,32,32,x,all_reduce,rabenseifner,512,500",
    ]
    (tmp_path / "ns3" / "collectives.csv").write_text("\n".join([header, *rows]) + "\n")
    reader = reader_of("ns3/collectives.csv")
    assert reader is not None
    found = reader(read_table(tmp_path, "ns3/collectives.csv"))
    assert list(found.predicted > 0) == [True, True, True, False, False]
    assert "there are:" in found.why[5] and "power of two" in found.why[6]
    assert found.predicted[0] == pytest.approx(3 * 512e-9, rel=0.2)


@pytest.fixture(scope="module")
def simulator(tmp_path_factory):
    compiler = os.environ.get("CXX", "g++")
    source = '#include "ns3/core-module.h"\n'
    asked = [compiler, "-E", "-x", "c++", "-"]
    here = shutil.which(compiler) and subprocess.run(asked, input=source, capture_output=True, text=True, check=False).returncode == 0
    if not here:
        pytest.skip("ns-3 is not installed (Debian: apt-get install ns3 libns3-dev)")
    program = tmp_path_factory.mktemp("ns3") / "collective"
    libraries = ["-lns3-core", "-lns3-network", "-lns3-point-to-point"]
    subprocess.run([compiler, "-O1", "-std=c++17", str(DATA / "ns3/collective.cc"), "-o", str(program), *libraries], check=True)
    return program


def test_ns3_runs_today_as_stored_and_as_priced(simulator):
    table = read_table(DATA, "ns3/runs.csv")
    wanted = table.keep(np.flatnonzero(table.number("bytes") <= 3000)[::12])
    names = ("nodes_inner", "nodes_outer", "nodes_third")
    lines = []
    for i in range(len(wanted)):
        cell = {name: values[i] for name, values in wanted.columns.items()}
        sides = [cell[n] for n in names if n == "nodes_inner" or cell[n] != "1"]
        lines.append(
            f"{cell['topology']} {'x'.join(sides)} {cell['link_GBps_inner']}x{cell['link_GBps_outer']} {cell['hop_ns_inner']}x{cell['hop_ns_outer']} "
            f"{cell['collective']} {cell['algorithm']} {cell['bytes']}"
        )
    done = subprocess.run([str(simulator), "--batch=1"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    assert [int(t) for t in done.stdout.split()] == list(wanted.number("ns3_ns").astype(int))


def test_ns3_agrees_on_a_fabric_that_is_not_stored(simulator):
    sides = {"nodes_inner": 5.0, "nodes_outer": 2.0, "nodes_third": 3.0, "bytes": 7777.0}
    links = {"link_GBps_inner": 77.0, "link_GBps_outer": 41.0, "hop_ns_inner": 90.0, "hop_ns_outer": 150.0}
    command = [str(simulator), "--topology=torus", "--sizes=5x2x3", "--GBps=77x41", "--hop=90x150", "--algorithm=ring", "--bytes=7777"]
    for collective in ("all_gather", "all_reduce"):
        done = subprocess.run([*command, f"--collective={collective}"], capture_output=True, text=True, check=True)
        priced = float(collective_time("torus", collective, "ring", sides | links, OWN)) * 1e9
        assert priced == pytest.approx(float(done.stdout), rel=0.01)


def test_router_is_near_ns3_where_flows_differ(simulator):
    """All pairs at once on grids, where near and far flows share links and no closed form is offered."""
    lines, priced = [], []
    for topology, sizes in (("mesh", (4,)), ("mesh", (3, 3, 3)), ("torus", (5,)), ("torus", (3, 5))):
        levels = [Level("chain" if topology == "mesh" else "ring", n, (37e9 if i else 46e9), (310e-9 if i else 75e-9)) for i, n in enumerate(sizes)]
        ranks = int(np.prod(sizes))
        for size in (512, 16384, 65536):
            lines.append(f"{topology} {'x'.join(map(str, sizes))} 46x37 75x310 all_to_all at_once {size}")
            priced.append(routed(np.full((ranks, ranks), float(size)), levels, OWN).time * 1e9)
    done = subprocess.run([str(simulator), "--batch=1"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    error = np.array(priced) / np.array(done.stdout.split(), float) - 1.0
    assert np.mean(np.abs(error)) < 0.05 and np.max(np.abs(error)) < 0.15
