"""Algorithms by name: closed forms agree with their schedules, what is left out is never cheaper, and open
groups are chains.
"""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hy

import strata as st
from strata.base.arrays import enable_jax
from strata.hardware.fabric import Dimension, peak_link
from strata.mapping.place import GroupLayout, spread
from strata.pricing.network.algorithm_names import always_crosses, crosses, matching_algorithms
from strata.pricing.network.algorithms import all_ideal_times, ideal_times, is_closed
from strata.pricing.network.collective_schedules import schedule
from strata.pricing.network.collectives import PATTERNS, algorithm_times, price_collective
from strata.workload.graph import Collective

KINDS = ("switch", "full", "dragonfly", "ring", "chain")


def dimension(kind="switch", size=8.0, bandwidth=1e11, latency=1e-6, reduction=None):
    return Dimension(
        name="d",
        kind=kind,
        size=size,
        bandwidth=bandwidth,
        efficiency=1.0,
        latency=latency,
        energy=1e-11,
        reduction=reduction,
    )


@hy.composite
def groups(draw):
    """A dimension of any kind and a group that lies on it."""
    size = draw(hy.integers(2, 24))
    stride = draw(hy.integers(1, size // 2))
    members = draw(hy.integers(2, size // stride))
    kind = draw(hy.sampled_from(KINDS))
    reduction = draw(hy.sampled_from([None, 0.0, 1.0])) if kind == "switch" else None
    return GroupLayout(float(members), float(stride)), dimension(
        kind, float(size), latency=draw(hy.sampled_from([0.0, 1e-7, 1e-5])), reduction=reduction
    )


def step_time(step, link, latency, of):
    """One step where the bytes of a link are those with the same label."""
    return latency + max(step.bytes[label].sum() for label in of(step)) / link


def senders(step):
    return [step.source == rank for rank in np.unique(step.source)]


def directed(step):
    return [
        (step.source == a) & (step.target == b)
        for a, b in set(zip(step.source.tolist(), step.target.tolist(), strict=True))
    ]


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 8, 16])
@pytest.mark.parametrize(
    ("pattern", "name", "way"),
    [
        ("all_reduce", "ring", "ring"), ("all_reduce", "halving_doubling", "halving-doubling"), ("all_reduce", "two_shot", "scatter and gather"),
        ("all_reduce", "one_shot", "one-shot"), ("all_gather", "direct", "scatter"), ("reduce_scatter", "halving_doubling", "halving-doubling"),
        ("all_gather", "ring", "ring"), ("all_to_all", "direct", "exchange"), ("all_to_all", "pairwise", "pairwise"),
    ],
)  # fmt: skip
def test_closed_forms_through_a_switch_are_their_schedules(pattern, name, way, ranks):
    one, spread_ = dimension(size=float(ranks)), GroupLayout(float(ranks), 1.0)
    found = all_ideal_times(pattern, 3e6, spread_, one)[way]
    if name == "halving_doubling" and ranks & (ranks - 1):
        assert found == np.inf
        return
    steps = schedule(pattern, name, (ranks,), 3e6)
    assert float(found) == pytest.approx(sum(step_time(s, 1e11, 1e-6, senders) for s in steps), rel=1e-12)


@pytest.mark.parametrize("ranks", [3, 4, 5, 8, 9])
@pytest.mark.parametrize("pattern", ["all_reduce", "all_gather", "reduce_scatter"])
def test_closed_forms_round_a_ring_are_their_schedules(pattern, ranks):
    ring, spread_ = dimension("ring", float(ranks)), GroupLayout(float(ranks), 1.0)
    found = all_ideal_times(pattern, 3e6, spread_, ring)
    both = schedule(pattern, "bidirectional_ring", (ranks,), 3e6)
    assert float(found["bidirectional ring"]) == pytest.approx(
        sum(step_time(s, 0.5e11, 1e-6, directed) for s in both), rel=1e-12
    )
    # Two rings that turn against each other have half of the buffer and half of the links each.
    half = schedule(pattern, "ring", (ranks,), 1.5e6)
    assert float(found["ring"]) == pytest.approx(
        sum(step_time(s, 0.5e11, 1e-6, directed) for s in half), rel=1e-12
    )
    relayed = schedule("all_to_all", "relay", (ranks,), 3e6)
    priced = all_ideal_times("all_to_all", 3e6, spread_, ring)["relay"]
    assert float(priced) == pytest.approx(
        sum(step_time(s, 0.5e11, 1e-6, directed) for s in relayed), rel=1e-12
    )


@given(groups(), hy.sampled_from(PATTERNS[:5]))
@settings(max_examples=300, deadline=None)
def test_what_the_choice_leaves_out_is_never_cheaper(group, pattern):
    spread_, one = group
    sizes = np.geomspace(1.0, 1e10, 30)
    best = np.min(
        [np.broadcast_to(t, (30,)) for t in ideal_times(pattern, sizes, spread_, one).values()], axis=0
    )
    for way, time in all_ideal_times(pattern, sizes, spread_, one).items():
        assert np.all(time >= best * (1 - 1e-12)), way
        assert np.all(np.isinf(time)) or np.all(np.diff(np.broadcast_to(time, (30,))) >= 0), way


@given(groups(), hy.sampled_from(PATTERNS[:5]), hy.floats(1.0, 1e10))
@settings(max_examples=200, deadline=None)
def test_no_way_beats_injection_bisection_or_latency(group, pattern, payload):
    spread_, one = group
    p, link = spread_.size, peak_link(one)
    for way, time in all_ideal_times(pattern, payload, spread_, one).items():
        passes = 2.0 if pattern == "all_reduce" and way != "in switch" else 1.0
        crossing = payload if pattern == "broadcast" else passes * (p - 1) / p * payload
        assert time >= crossing / link * (1 - 1e-12), way
        assert time >= one.latency, way
        if pattern == "all_to_all" and one.kind in ("ring", "chain"):
            # links between two halves, one direction
            cuts = (2.0 if is_closed(spread_, one) else 1.0) / spread_.stride
            halves = (p // 2) * (p - p // 2) * payload / p
            assert time >= halves / (cuts * link / 2.0) * (1 - 1e-12), way


@given(hy.lists(groups(), min_size=2, max_size=5), hy.sampled_from(PATTERNS[:5]), hy.sampled_from(KINDS))
@settings(max_examples=60, deadline=None)
def test_a_batch_of_groups_equals_singles(found, pattern, kind):
    members, strides, wide = (
        np.array([x for x in column])
        for column in zip(*((s.size, s.stride, d.size) for s, d in found), strict=True)
    )
    many = all_ideal_times(pattern, 1e6, GroupLayout(members, strides), dimension(kind, wide))
    for i in range(len(found)):
        single = all_ideal_times(
            pattern, 1e6, GroupLayout(float(members[i]), float(strides[i])), dimension(kind, float(wide[i]))
        )
        assert single.keys() == many.keys()
        for way, time in single.items():
            assert float(np.broadcast_to(many[way], members.shape)[i]) == pytest.approx(
                float(time), rel=1e-12
            ), way


def test_jax_prices_named_ways_alike():
    pytest.importorskip("jax")
    jax = enable_jax()
    sizes = np.geomspace(1e3, 1e9, 5)
    for kind in KINDS:
        for pattern in PATTERNS[:5]:
            plain = all_ideal_times(pattern, sizes, GroupLayout(8.0, 1.0), dimension(kind))
            traced = jax.jit(
                lambda n, p, kind=kind, pattern=pattern: all_ideal_times(
                    pattern, n, GroupLayout(p, 1.0), dimension(kind)
                )
            )(sizes, 8.0)
            for way, time in plain.items():
                np.testing.assert_allclose(
                    np.broadcast_to(traced[way], (5,)), np.broadcast_to(time, (5,)), rtol=1e-12
                )


# --------------------------------------------------------------------------------------------- open and
# uneven groups


@pytest.mark.parametrize("pattern", PATTERNS[:5])
def test_a_group_smaller_than_its_ring_is_a_chain(pattern):
    """Half a ring of 8 has no link from its last member to its first; a group that goes all the way round
    has.
    """
    ring, chain = dimension("ring", 8.0), dimension("chain", 8.0)
    times = {}
    for members, stride in ((4.0, 1.0), (4.0, 2.0), (8.0, 1.0), (2.0, 1.0), (2.0, 4.0)):
        spread_ = GroupLayout(members, stride)
        assert is_closed(spread_, ring) == (members * stride == 8.0) and not is_closed(spread_, chain)
        on_ring, on_chain = (min(ideal_times(pattern, 1e8, spread_, one).values()) for one in (ring, chain))
        assert on_ring == pytest.approx(on_chain, rel=1e-12) if members * stride < 8 else on_ring < on_chain
        times[members, stride] = on_ring
    batch = ideal_times(pattern, 1e8, GroupLayout(np.array([4.0, 8.0]), 1.0), ring)
    assert [float(x) for x in next(iter(batch.values()))] == pytest.approx(
        [times[4.0, 1.0], times[8.0, 1.0]], rel=1e-12
    )


def test_a_group_that_does_not_divide_a_dimension_is_bounded():
    """Six ranks on nodes of four: two links of the second node carry what it needs, half of the buffer each."""
    nodes = st.hardware.sized(st.fabric("switch-256"), (4, 4))
    uneven = spread(1.0, 6.0, nodes)
    assert [(float(s.size), float(s.members)) for s in uneven[:2]] == [(4.0, 2.0), (2.0, 1.0)]
    inner, outer = nodes.dimension[:2]
    op = Collective(pattern="all_reduce", group="tp", payload=1e9)
    by_hand = min(algorithm_times("all_reduce", 1e9, GroupLayout(4.0, 1.0), inner).values()) + min(
        algorithm_times("all_reduce", 5e8, GroupLayout(2.0, 1.0), outer).values()
    )
    assert price_collective(op, uneven, nodes).time == pytest.approx(by_hand)
    # Never less than the even groups around it.
    four, eight = (price_collective(op, spread(1.0, r, nodes), nodes).time for r in (4.0, 8.0))
    assert by_hand > four and by_hand > eight


@given(hy.integers(1, 12), hy.integers(1, 40), hy.integers(1, 8), hy.integers(1, 8))
@settings(max_examples=200, deadline=None)
def test_spreads_are_whole_and_hold_every_rank(stride, degree, inner, outer):
    nodes = st.hardware.sized(st.fabric("hgx-h200"), (inner, outer))
    if stride * degree > inner * outer:
        return
    found = spread(float(stride), float(degree), nodes)
    sizes = [float(s.size) for s in found]
    assert all(s == int(s) for s in sizes) and np.prod(sizes) >= degree * (1 - 1e-12)
    assert all(1 <= float(s.members) <= float(s.size) for s in found)
    if inner % stride == 0 and (stride * degree) % inner == 0:
        assert np.prod(sizes) == degree and all(s.members == s.size for s in found)
    many = spread(np.array([float(stride), 1.0]), np.array([float(degree), 1.0]), nodes)
    assert [(float(s.size[0]), float(s.stride[0]), float(s.least[0])) for s in many] == [
        (float(s.size), float(s.stride), float(s.least)) for s in found
    ]


# ------------------------------------------------------------------------------------------------------------
# by name


@pytest.mark.parametrize(
    "name", ["ring", "halving_doubling", "double_tree", "one_shot", "two_shot", "in_switch"]
)
def test_a_collective_by_name(name):
    found = st.network.collective(
        "4x8xh200", "all_reduce", bytes=np.array([10.0, 1e5, 1e8]), ranks=8, algorithm=name, links=True
    )
    best = st.network.collective(
        "4x8xh200", "all_reduce", bytes=np.array([10.0, 1e5, 1e8]), ranks=8, links=True
    )
    assert np.all(found.time >= best.time) and np.any(found.time > best.time)
    only = set(found.algorithms[0])
    assert (
        len(only) == 1
        and matching_algorithms(name, dict.fromkeys(only, 1.0))
        and set(found.algorithms[1]) == {""}
    )
    assert np.all(found.algorithm_times[0][only.pop()] == found.time)


def test_a_name_for_each_dimension():
    mixed = st.network.collective(
        "4x8xh200", "all_reduce", bytes=1e6, algorithm=("one_shot", "ring"), links=True
    )
    assert mixed.algorithms == ("one-shot", "ring")
    cheapest_inside = st.network.collective(
        "4x8xh200", "all_reduce", bytes=1e6, algorithm=("", "ring"), links=True
    )
    assert cheapest_inside.algorithms[1] == "ring" and cheapest_inside.time <= mixed.time
    library = st.network.collective("4x8xh200", "all_reduce", bytes=1e6, algorithm="ring", engine="megatron")
    assert all(way.startswith("ring ") for way in library.algorithms) and library.engine == "megatron"


BAD = {
    "power": (
        {"ranks": 6},
        "on nvlink of 6 an algorithm is one of scatter_and_gather, one_shot, in_switch, ring, double_tree, but got 'halving_doubling'",
    ),
    "one of many": (
        {"ranks": np.array([4, 6])},
        "on nvlink of 4 to 6 an algorithm is one of scatter_and_gather",
    ),
    "unknown": (
        {"algorithm": "bucket"},
        "on nvlink of 8 an algorithm is one of scatter_and_gather, one_shot, in_switch, ring, halving_doubling",
    ),
    "pattern": (
        {"pattern": "broadcast"},
        "on nvlink of 8 an algorithm is one of trees, but got 'halving_doubling'",
    ),
    "software": (
        {"links": False},
        "on nvlink of 8, with its transport nvlink4, an algorithm is one of ring_ll, ring_ll128, ring_simple",
    ),
    "too many": (
        {"algorithm": ("ring",) * 3},
        "algorithms are one name, or one for each of the 2 dimensions, but got 3: ring, ring, ring",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_an_algorithm_that_does_not_fit_is_one_line_with_the_legal_ones(case):
    changes, said = BAD[case]
    with pytest.raises(st.StrataError, match="^" + re.escape(said)) as caught:
        st.network.collective(
            **{
                "on": "4x8xh200",
                "pattern": "all_reduce",
                "bytes": 1e6,
                "ranks": 8,
                "algorithm": "halving_doubling",
                "links": True,
            }
            | changes
        )
    assert "\n" not in str(caught.value)


def test_a_traced_size_is_not_asked_for_its_value(monkeypatch):
    """JAX looks for where a value came from before it refuses it: half of the time of a trace."""
    jax = pytest.importorskip("jax")
    seen = []

    def refused(self, *args, **kw):
        raise AssertionError("asked for")

    def sizes(n):
        seen.append((crosses(n), always_crosses(n)))
        return n

    with monkeypatch.context() as patch:
        patch.setattr(jax.core.Tracer, "__array__", refused)
        jax.make_jaxpr(sizes)(2.0)
    assert seen == [(True, False)] and (crosses(1.0), always_crosses(2.0)) == (False, True)
