"""Collectives packet by packet: closed forms where there are any, the same as the router's; one line where
there is nothing.
"""

import re

import numpy as np
import pytest

import strata as st
from strata.hardware.transport import packets
from strata.mapping.place import spread
from strata.pricing.network.collectives import PATTERNS
from strata.pricing.network.packet_collectives import closed_form, fabric_segments, packet_price, router_price

HOW = packets("ns3")
SIZES = (512.0, 65536.0, 1e6)


def on(name, sizes):
    return st.hardware.sized(st.fabric(name), sizes)


def closed(pattern, payload, ranks, where, asked=""):
    layout_key = spread(1.0, float(ranks), where)
    return closed_form(pattern, payload, fabric_segments(layout_key, where), len(where.dimension), HOW, asked)


@pytest.mark.parametrize("payload", SIZES)
@pytest.mark.parametrize("pattern", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
@pytest.mark.parametrize(
    ("name", "sizes", "ranks", "asked"),
    [
        ("deepstack-torus-64", (4, 4), 16, ""),
        ("torus-mesh-mesh-256", (3, 4), 12, ""),
        ("hgx-h200", (8, 1), 8, ""),
        ("hgx-h200", (8, 1), 4, ""),
        ("deepstack-switch-64", (8, 4), 8, "ring"),
    ],
)
def test_closed_forms_agree_with_the_router(name, sizes, ranks, asked, pattern, payload):
    where = on(name, sizes)
    by = {"all_to_all": ""}.get(pattern, asked)
    exact = closed(pattern, payload, ranks, where, by)
    followed = router_price(pattern, payload, spread(1.0, float(ranks), where), where, HOW, by)
    # With every pair at once the last packet's place in the queues depends on whose message is sent first.
    assert exact.time == pytest.approx(followed.time, rel=0.05 if pattern == "all_to_all" else 0.02)


@pytest.mark.parametrize("pattern", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("name", ["deepstack-switch-64", "fat-tree-ndr"])
def test_levels_of_switches_agree_with_the_router(name, pattern):
    """Rails of their own between nodes; or spines that are reached through a leaf's links, which the group's
    members share.
    """
    where = on(name, (4, 4, 2)[: len(st.fabric(name).dimension)])
    ranks = int(np.prod([d.size for d in where.dimension]))
    assert len(fabric_segments(spread(1.0, float(ranks), where), where)) == 2
    for payload in SIZES:
        exact = closed(pattern, payload, ranks, where)
        followed = router_price(
            pattern, payload, spread(1.0, float(ranks), where), where, HOW, "halving_doubling"
        )
        if pattern == "all_gather" and name == "deepstack-switch-64":
            assert exact.names == ("halving-doubling",) * 2
        assert exact.time == pytest.approx(followed.time, rel=0.05), payload


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", ["deepstack-torus-64", "hgx-h200", "mi325x-node", "fat-tree-ndr"])
def test_packets_cost_more_than_the_bound_and_grow_with_size(name, pattern):
    made = st.fabric(name)
    where = st.hardware.sized(made, (4, 2, 2)[: len(made.dimension)])
    found = st.network.collective(where, pattern, bytes=np.array([1.0, 1e4, 3e5, 1e6]), packets="ns3")
    assert (
        found.time.shape == (4,)
        and np.all(np.diff(found.time) > 0)
        and np.all(found.time >= found.lower)
        and found.packets == "ns3"
    )
    for i, size in enumerate((1.0, 1e4)):
        one = st.network.collective(where, pattern, bytes=size, packets=HOW)
        assert float(one.time) == pytest.approx(float(found.time[i]), rel=1e-12)
        assert one.algorithms == tuple(str(np.broadcast_to(names, (4,))[i]) for names in found.algorithms)


def test_a_batch_of_groups_equals_singles():
    ranks = np.array([2, 4, 8, 6])
    for pattern in ("all_reduce", "all_gather", "all_to_all", "send"):
        batch = st.network.collective("8xh200", pattern, bytes=1e5, ranks=ranks, packets="ns3")
        for i, r in enumerate(ranks):
            one = st.network.collective("8xh200", pattern, bytes=1e5, ranks=int(r), packets="ns3")
            assert float(np.broadcast_to(batch.time, (4,))[i]) == pytest.approx(float(one.time), rel=1e-12)
    assert list(
        st.network.collective("8xh200", "all_reduce", bytes=1e5, ranks=ranks, packets="ns3").algorithms[0][
            -2:
        ]
    ) == ["halving-doubling", "ring"]


def test_what_has_no_closed_form_is_routed():
    assert st.network.collective("8xh200", "broadcast", bytes=1e5, packets="ns3").algorithms == (
        "routed tree",
        "",
    )
    tree = st.network.collective("8xh200", "all_reduce", bytes=1e5, packets="ns3", algorithm="double_tree")
    assert tree.algorithms == ("routed double_tree", "") and tree.time > tree.lower
    # Every second member of a ring: wires in between are used, too.
    ring = on("deepstack-torus-64", (8, 1))
    near, far = (
        st.network.collective(ring, "all_reduce", bytes=1e5, ranks=4, stride=s, packets="ns3") for s in (1, 2)
    )
    assert near.algorithms[0] == "ring" and far.algorithms[0] == "routed by_dimension" and far.time > 0
    named = packet_price("all_gather", 1e5, spread(1.0, 8.0, ring), ring, HOW, "bidirectional_ring")
    assert (
        named.names[0] == "routed bidirectional_ring"
        and named.time < packet_price("all_gather", 1e5, spread(1.0, 8.0, ring), ring, HOW).time
    )


BAD = {
    "network": ({"packets": "ns4"}, "no packets called 'ns4'; nearest: ns3"),
    "power": (
        {"ranks": 6, "algorithm": "halving_doubling"},
        "all_reduce of 6 ranks goes by ring, bidirectional_ring",
    ),
    "algorithm": ({"algorithm": "bucket"}, "all_reduce of 8 ranks goes by ring"),
    "one each": (
        {"algorithm": ("ring", "ring")},
        "packet by packet a collective goes by one algorithm for all dimensions, but got ring, ring",
    ),
    "too many": (
        {"on": "64x8xh200", "pattern": "broadcast"},
        "packet by packet, broadcast on fabric hgx-h200 has no closed form, and the router takes 256 ranks at most, but got 512; closed forms: rings",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_there_is_not_is_one_line(case):
    changes, said = BAD[case]
    with pytest.raises(st.StrataError, match="^" + re.escape(said)) as caught:
        st.network.collective(
            **{"on": "8xh200", "pattern": "all_reduce", "bytes": 1e5, "packets": "ns3"} | changes
        )
    assert "\n" not in str(caught.value)
