"""Packet networks: closed forms against the router, against bounds, and against ns-3."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.hardware.transport import Packets
from strata.hardware.transport import packets as network
from strata.pricing.network import packets
from strata.pricing.network.packet_runs import TOPOLOGIES, packet_collective_time
from strata.pricing.network.packets import GridAxis, PacketHop, SwitchTree, message_time, packet_count
from strata.validation.measured.reader import reader_of
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import read_table

DATA = Path(__file__).parents[3] / "validation"
OWN, PUBLISHED = network("ns3"), network("astra-sim")
CLOCKS = st.sampled_from([OWN, PUBLISHED, Packets(256.0, 32.0, 32.0, 1e-12)])
SIZES = st.integers(1, 10**6).map(float)
RATES = st.sampled_from([32e9, 46e9, 64e9, 256e9, 512e9])
HOPS = st.sampled_from([0.0, 32e-9, 500e-9])


@settings(max_examples=40, deadline=None)
@given(
    size=SIZES,
    more=SIZES,
    rate=RATES,
    hop=HOPS,
    how=CLOCKS,
    hops=st.integers(1, 5),
    sharing=st.integers(1, 8),
)
def test_message_is_monotone_and_above_its_bounds(size, more, rate, hop, how, hops, sharing):
    path = (PacketHop(rate, hop, float(sharing), float(hops)),)
    time = float(message_time(size, path, how))
    tick = float(how.tick) * float(packet_count(size, how)) * sharing
    assert time >= sharing * size / rate - 0.5 * tick + 2 * hops * hop - 1e-15
    # a message of one more, nearly empty packet may store and forward in shorter slots
    slack = how.tick * 2 * (hops + sharing)
    assert float(message_time(size + more, path, how)) >= time - slack


def test_batch_equals_singles():
    sizes, inner = np.array([1.0, 999.0, 1001.0, 5e5, 6.4e7]), np.array([4.0, 8.0, 1.0, 8.0, 2.0])
    tree = SwitchTree(inner, 8.0, 256e9, 128e-9, 32e9, 512e-9)
    for price in (
        packets.tree_all_gather,
        packets.tree_all_reduce,
        packets.tree_all_to_all,
        packets.tree_ring_all_reduce,
    ):
        many = price(sizes, tree, PUBLISHED)
        ones = [
            price(float(n), SwitchTree(float(g), 8.0, 256e9, 128e-9, 32e9, 512e-9), PUBLISHED)
            for n, g in zip(sizes, inner, strict=True)
        ]
        np.testing.assert_allclose(many, ones, rtol=1e-12)
    axes = (GridAxis(inner, 32e9, 32e-9), GridAxis(3.0, 64e9, 1e-7, 0.0))
    for price in (packets.grid_all_gather, packets.grid_all_reduce, packets.grid_all_to_all):
        many = price(sizes, axes, OWN)
        ones = [
            price(float(n), (GridAxis(float(g), 32e9, 32e-9), axes[1]), OWN)
            for n, g in zip(sizes, inner, strict=True)
        ]
        np.testing.assert_allclose(many, ones, rtol=1e-12)


def test_a_group_of_one_sends_nothing():
    assert packets.tree_all_reduce(1e6, SwitchTree(1.0, 1.0, 32e9, 1e-7, 32e9, 1e-7), OWN) == 0.0
    assert packets.grid_all_reduce(1e6, (GridAxis(1.0, 32e9, 1e-7),), OWN) == 0.0


def test_long_messages_cost_their_headers():
    """At 64 GB/s a packet of 1048 B takes 16 ns, not 15.6: 2.4 % over the link's own rate, the published
    sets' overhead.
    """
    time = packets.grid_all_reduce(1e9, (GridAxis(8.0, 64e9, 1e-7),), PUBLISHED)
    assert time / (2 * 7 / 8 * 1e9 / 64e9) == pytest.approx(1.024, rel=1e-3)


def test_closed_forms_hold_against_ns3_runs():
    found = reader_of("ns3/runs.csv", Catalogue())(read_table(DATA, "ns3/runs.csv"), Catalogue())
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
    reader = reader_of("ns3/collectives.csv", Catalogue())
    assert reader is not None
    found = reader(read_table(tmp_path, "ns3/collectives.csv"), Catalogue())
    assert list(found.predicted > 0) == [True, True, True, False, False]
    assert "there are:" in found.why[5] and "power of two" in found.why[6]
    assert found.predicted[0] == pytest.approx(3 * 512e-9, rel=0.2)


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
    done = subprocess.run(
        [str(simulator), "--batch=1"],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert [int(t) for t in done.stdout.split()] == list(wanted.number("ns3_ns").astype(int))


def test_ns3_agrees_on_a_fabric_that_is_not_stored(simulator):
    sides = {"inner": 5.0, "outer": 2.0, "third": 3.0, "bytes": 7777.0}
    links = {"inner_rate": 77e9, "outer_rate": 41e9, "inner_hop": 90e-9, "outer_hop": 150e-9}
    command = [
        str(simulator),
        "--topology=torus",
        "--sizes=5x2x3",
        "--GBps=77x41",
        "--hop=90x150",
        "--algorithm=ring",
        "--bytes=7777",
    ]
    for collective in ("all_gather", "all_reduce"):
        done = subprocess.run(
            [*command, f"--collective={collective}"], capture_output=True, text=True, check=True
        )
        priced = float(packet_collective_time("torus", collective, "ring", OWN, **sides, **links)) * 1e9
        assert priced == pytest.approx(float(done.stdout), rel=0.01)
