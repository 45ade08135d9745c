"""Fabrics: closed forms of topology against walking the graph and cutting it every way; oversubscription;
errors; shipped presets.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from fabric_graph import distances, graph, max_flow, narrowest
from hypothesis import given, settings
from hypothesis import strategies as hy

import strata as st
from strata.base.errors import BadFile, BadValue
from strata.hardware.fabric import (
    KINDS,
    TAPERED,
    Dimension,
    check_group,
    peak_link,
    sustained_link,
    with_library,
)
from strata.hardware.topology import (
    all_reduce_bound,
    all_to_all_bound,
    bisection,
    cables,
    diameter,
    mean_hops,
    topology,
)
from strata.mapping.place import GroupLayout
from strata.params import names
from strata.pricing.network.algorithm_names import group_share
from strata.pricing.network.collectives import price_collective
from strata.workload.graph import Collective

FABRICS = names("fabric")


def dimension(kind, size, bandwidth=8e9, **more):
    return Dimension(
        name=kind,
        kind=kind,
        size=float(size),
        bandwidth=bandwidth,
        efficiency=0.9,
        latency=1e-6,
        energy=1e-11,
        price=1.0,
        **more,
    )


def made_of(*dimensions):
    return replace(st.fabric("hgx-h200"), dimension=tuple(dimensions))


# ------------------------------------------------------------------------------- the graph, walked and cut


SINGLE = [
    (kind, size, o)
    for kind in KINDS
    for size in (2, 3, 4, 5, 6, 7)
    for o in ((None, 1.75) if kind in TAPERED else (None,))
]


@pytest.mark.parametrize(("kind", "size", "o"), SINGLE)
def test_the_closed_forms_of_a_dimension_agree_with_its_graph(kind, size, o):
    d = dimension(kind, size, oversubscription=o)
    found = graph(made_of(d))
    steps = distances(found)
    assert steps.max() == pytest.approx(diameter(d)) and steps.mean() == pytest.approx(mean_hops(d))
    assert narrowest(found, size // 2) == pytest.approx(bisection(d))


EVEN = [
    [("ring", 4), ("ring", 4)],
    [("ring", 4), ("chain", 2)],
    [("chain", 4), ("chain", 2)],
    [("switch", 4), ("switch", 2)],
    [("full", 4), ("full", 2)],
    [("full", 4), ("switch", 2)],
    [("chain", 2), ("chain", 2), ("switch", 2)],
    [("switch", 2), ("dragonfly", 4)],
    [("ring", 2), ("ring", 2), ("ring", 2)],
]


@pytest.mark.parametrize("shape", EVEN, ids=str)
@pytest.mark.parametrize("speeds", [(8e9, 8e9, 8e9), (64e9, 8e9, 2e9)])
def test_the_bisection_of_composed_dimensions_is_the_least_of_all_cuts(shape, speeds):
    joined = made_of(*(dimension(k, s, b) for (k, s), b in zip(shape, speeds, strict=False)))
    found, whole = graph(joined), topology(joined).whole
    steps = distances(found)
    devices = found.devices
    assert steps.max() == pytest.approx(whole.diameter) and steps.sum() / (
        devices * (devices - 1)
    ) == pytest.approx(whole.mean_hops)
    if devices <= 8:
        assert narrowest(found, devices // 2) == pytest.approx(whole.bisection)
    else:  # every cut straight through, and some others
        rng = np.random.default_rng(0)
        straight = [frozenset(d for d in range(16) if d // stride % 4 < 2) for stride in (1, 4)]
        random = [frozenset(rng.permutation(16)[:8].tolist()) for _ in range(200)]
        assert min(max_flow(found, cut) for cut in straight) == pytest.approx(whole.bisection)
        assert all(max_flow(found, cut) >= whole.bisection * (1 - 1e-9) for cut in random)


@hy.composite
def fabrics(draw):
    """One to four dimensions of any kind and any sizes, not powers of two only; at most 120 devices."""
    made, devices = [], 1
    for _ in range(draw(hy.integers(1, 4))):
        kind, size = draw(hy.sampled_from(KINDS)), draw(hy.integers(1, 7))
        if devices * size > 120:
            break
        devices *= size
        o = draw(hy.sampled_from([None, 1.0, 2.0, 3.5])) if kind in TAPERED else None
        made.append(dimension(kind, size, draw(hy.sampled_from([8e9, 50e9])), oversubscription=o))
    return made_of(*made)


@given(fabrics())
@settings(max_examples=60, deadline=None)
def test_hops_of_any_composition_agree_with_its_graph(joined):
    found, whole = graph(joined), topology(joined).whole
    steps = distances(found)
    devices = found.devices
    assert steps.max() == pytest.approx(whole.diameter)
    assert steps.sum() / max(devices * (devices - 1), 1) == pytest.approx(whole.mean_hops)
    straight, stride = [], 1
    for d in joined.dimension:
        size = int(d.size)
        if size > 1:
            straight.append(
                max_flow(found, frozenset(n for n in range(devices) if n // stride % size < size // 2))
            )
        stride *= size
    assert min(straight, default=0.0) == pytest.approx(whole.bisection)


@given(fabrics())
@settings(max_examples=60, deadline=None)
def test_bandwidth_of_the_links_of_a_device_is_its_bandwidth(joined):
    found = graph(joined)
    sums = np.zeros((len(joined.dimension), found.devices))
    for e in found.edges:
        for node in (e.first, e.second):
            if node < found.devices:
                sums[e.dimension, node] += e.bandwidth
    for place, d in enumerate(joined.dimension):
        if d.size > 1 and d.kind in ("ring", "full"):
            assert sums[place] == pytest.approx(d.bandwidth)
        elif d.size > 1 and d.kind == "switch":
            assert sums[place] == pytest.approx(peak_link(d))
        elif d.size > 1 and d.kind == "chain":
            assert sums[place].max() <= d.bandwidth * (1 + 1e-9)


def test_cables_are_counted_as_the_graph_has_them():
    for kind, size in itertools.product(("ring", "chain", "full", "switch"), (2, 3, 5)):
        assert cables(dimension(kind, size)) == len(graph(made_of(dimension(kind, size))).edges)
    assert cables(dimension("switch", 8, links=18.0)) == 144 and cables(dimension("ring", 1)) == 0


def test_bounds_hold_for_what_collectives_are_priced_at():
    """No price beats the bounds; the wires of a direct network reach the all-to-all bound."""
    for kind, o in (("switch", 2.0), ("switch", None), ("ring", None), ("chain", None), ("full", None)):
        d = replace(dimension(kind, 6, oversubscription=o), efficiency=1.0, latency=0.0)
        spreads = (GroupLayout(6.0, 1.0),)
        for pattern, bound in (("all_reduce", all_reduce_bound(d)), ("all_to_all", all_to_all_bound(d))):
            time = float(
                price_collective(
                    Collective(name="c", pattern=pattern, group="tp", payload=1e12), spreads, made_of(d)
                ).time
            )
            assert time >= 1e12 / bound * (1 - 1e-9), (kind, pattern)


def test_a_batch_of_sizes_and_bandwidths_equals_singles():
    sizes, speeds = np.array([2.0, 3.0, 8.0, 17.0]), np.array([1e9, 2e9, 5e10, 9e10])
    for kind in KINDS:
        many = topology(
            made_of(
                replace(dimension(kind, 1), size=sizes, bandwidth=speeds),
                dimension("switch", 4, reduction=1.0),
            )
        ).whole
        for i in range(4):
            one = topology(
                made_of(dimension(kind, sizes[i], speeds[i]), dimension("switch", 4, reduction=1.0))
            ).whole
            for name in (
                "size",
                "bisection",
                "diameter",
                "mean_hops",
                "latency",
                "energy",
                "links",
                "price",
                "all_reduce",
                "all_to_all",
            ):
                assert np.broadcast_to(getattr(many, name), (4,))[i] == pytest.approx(
                    float(getattr(one, name)), rel=1e-12
                ), (kind, name)


# ------------------------------------------------------------------------------------------- oversubscription


@pytest.mark.parametrize("pattern", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
def test_oversubscription_slows_collectives_across_its_dimension_and_no_other(pattern):
    def time(o, ranks):
        wide = with_library(
            st.hardware.sized(st.fabric("fat-tree-ndr", **{"spine.oversubscription": o}), (8, 48, 4)), "ideal"
        )
        spreads = tuple(GroupLayout(r, 1.0) for r in ranks)
        return float(
            price_collective(
                Collective(name="c", pattern=pattern, group="tp", payload=1e10), spreads, wide
            ).time
        )

    assert time(1.0, (8.0, 48.0, 1.0)) == time(4.0, (8.0, 48.0, 1.0))
    across = [time(o, (1.0, 1.0, 4.0)) for o in (1.0, 2.0, 4.0)]
    assert across[1] / across[0] == pytest.approx(2, rel=1e-3) and across[2] / across[0] == pytest.approx(
        4, rel=1e-3
    )


def test_left_out_oversubscription_is_one():
    plain = dimension("switch", 8)
    assert peak_link(plain) == peak_link(replace(plain, oversubscription=1.0)) == plain.bandwidth
    assert sustained_link(replace(plain, oversubscription=2.0)) == plain.bandwidth * 0.9 / 2
    assert bisection(replace(plain, oversubscription=2.0)) == bisection(plain) / 2


def test_ports_that_two_dimensions_share_count_once():
    shared, alone = dimension("switch", 4, shares_links_of="switch"), dimension("switch", 4)
    once, twice = (
        topology(made_of(dimension("switch", 8), shared)).whole,
        topology(made_of(dimension("switch", 8), alone)).whole,
    )
    assert once.bandwidth == 8e9 and twice.bandwidth == 16e9
    assert once.all_reduce == pytest.approx(8e9 * 32 / 62) and once.bisection == twice.bisection
    assert (
        topology("fat-tree-ndr").whole.bandwidth
        == topology("fat-tree-ndr", (8, 1, 4)).whole.bandwidth
        == 500e9
    )


def test_a_dragonfly_goes_round_where_its_direct_links_are_few():
    far, full = dimension("dragonfly", 33), dimension("full", 33)
    assert group_share(far, 2.0) == 0.5 and group_share(full, 2.0) == 1 / 32
    assert (
        group_share(far, 33.0) == group_share(full, 33.0) == group_share(dimension("switch", 33), 2.0) == 1.0
    )


# ------------------------------------------------------------------------------------------------- bad input

FILE = """
name = "mine"
title = "one of mine"
[[dimension]]
name = "links"
kind = "{kind}"
size = {{ value = {size}, source = "assumed: for a test" }}
bandwidth = {{ value = "1 GB/s", source = "assumed: for a test" }}
efficiency = {{ value = 1, source = "assumed: for a test" }}
latency = {{ value = "1 us", source = "assumed: for a test" }}
energy = {{ value = "1 pJ/B", source = "assumed: for a test" }}
{more}
"""
BAD = {
    "kind": (
        dict(kind="hypercube"),
        "dimension.0.kind must be one of switch, ring, chain, full, dragonfly, but got 'hypercube'",
    ),
    "size 0": (dict(size=0), "dimension.0.size must be at least 1, but got '0'"),
    "below 1": (
        dict(more='oversubscription = { value = 0.5, source = "assumed: for a test" }'),
        "oversubscription must be at least 1, but got '0.5'",
    ),
    "not tapered": (
        dict(kind="ring", more='oversubscription = { value = 2, source = "assumed: for a test" }'),
        "dimension.0.oversubscription needs kind switch or dragonfly, but links is a ring",
    ),
    "shares_links_of": (
        dict(more='shares_links_of = "leaf"'),
        "dimension.0.shares_links_of must name an inner dimension (none, as it is the innermost), "
        "but got 'leaf'",
    ),
    "mistyped": (
        dict(more='oversubscribtion = { value = 2, source = "assumed: for a test" }'),
        "nearest: oversubscription",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_fabric_file_is_refused_in_one_line(tmp_path, case):
    given, said = BAD[case]
    path = tmp_path / "mine.toml"
    path.write_text(FILE.format(**{"kind": "switch", "size": 4, "more": "", **given}))
    with pytest.raises((BadFile, BadValue)) as error:
        st.fabric(str(path))
    assert said in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("sizes", [(0,), (8, -1), (2.5,), (np.array([2.0, 0.0]),)])
def test_sizes_are_whole_numbers_of_at_least_one(sizes):
    with pytest.raises(BadValue, match="must be whole numbers of at least 1"):
        st.hardware.sized(st.fabric("hgx-h200"), sizes)


def test_a_group_larger_than_the_fabric_is_refused():
    small = st.hardware.sized(st.fabric("hgx-h200"), (8, 4))
    check_group(small, 32)
    for ranks in (33, 0):
        with pytest.raises(BadValue, match="has 1 to 32 ranks"):
            check_group(small, ranks)


# --------------------------------------------------------------------------------------------------- presets


@pytest.mark.parametrize("name", FABRICS)
def test_shipped_fabrics_have_sane_topologies(name):
    whole = topology(name).whole
    assert 1 <= whole.mean_hops <= whole.diameter and whole.bisection > 0 and whole.price > 0
    assert 0 < whole.all_reduce < np.inf and 0 < whole.all_to_all < np.inf


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize("pattern", ["all_reduce", "all_to_all"])
def test_no_collective_over_a_whole_fabric_beats_its_bounds(name, pattern):
    found = topology(name)
    spreads = tuple(GroupLayout(float(d.size), 1.0) for d in found.fabric.dimension)
    payload = np.geomspace(1e3, 1e12, 10)
    time = price_collective(
        Collective(name="c", pattern=pattern, group="tp", payload=payload), spreads, found.fabric
    ).time
    assert np.all(np.asarray(time) >= payload / getattr(found.whole, pattern) * (1 - 1e-9))


def test_closed_forms_run_inside_jax():
    jax = pytest.importorskip("jax")

    def cut(size, speed):
        whole = topology(
            made_of(*(replace(dimension(kind, 1), size=size, bandwidth=speed) for kind in KINDS))
        ).whole
        return whole.bisection, whole.mean_hops, whole.all_reduce, whole.all_to_all

    for got, wanted in zip(jax.jit(cut)(5.0, 8e9), cut(5.0, 8e9), strict=True):
        assert float(got) == pytest.approx(float(wanted), rel=1e-5)


def test_published_bisections():
    """What vendors and papers state, in both directions together where they say so."""
    assert 2 * topology("dgx-2", (16,)).whole.bisection == pytest.approx(2.4e12)  # NVIDIA DGX-2 datasheet
    # six links join the two quads
    assert topology("dgx-1-cube-mesh", (4, 2)).whole.bisection == pytest.approx(6 * 25e9)
    # four links a pair of groups
    assert topology("slingshot-dragonfly").whole.bisection == pytest.approx(37 * 37 * 4 * 25e9, rel=1e-3)
    assert topology("slingshot-dragonfly").dimension[2].links == pytest.approx(74 * 73 / 2 * 4)
    # k-ary n-cube: 2 N / k links
    assert topology("tpu-v4-torus", (4, 4, 4)).whole.bisection == pytest.approx(2 * 16 * 50e9)


def test_the_cube_mesh_is_that_of_the_machine():
    """Links of a V100 DGX-1, as its topology matrix has them: 0-1 1, 0-2 1, 0-3 2, 1-2 2, 1-3 1, 2-3 2;
    across 2, 2, 1, 1.
    """
    quad = {(0, 1): 1, (0, 2): 1, (0, 3): 2, (1, 2): 2, (1, 3): 1, (2, 3): 2}
    links = (
        quad
        | {(a + 4, b + 4): n for (a, b), n in quad.items()}
        | {(i, i + 4): n for i, n in enumerate((2, 2, 1, 1))}
    )
    ends = [sum(n for pair, n in links.items() if i in pair) for i in range(8)]
    halves = [frozenset(c) for c in itertools.combinations(range(8), 4)]
    least = min(sum(n for (a, b), n in links.items() if (a in half) != (b in half)) for half in halves)
    found = topology("dgx-1-cube-mesh", (4, 2))
    assert ends == [6] * 8 and found.whole.links == sum(links.values()) == 24
    assert found.whole.bisection == pytest.approx(least * 25e9)
