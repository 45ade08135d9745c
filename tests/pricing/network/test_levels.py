"""Collectives over nodes as one algorithm on all levels: laws, hand sums, and what nccl-tests print."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hy

import strata as st
from strata.base.arrays import enable_jax
from strata.hardware.fabric import with_library
from strata.hardware.transport import transport
from strata.mapping.place import spread
from strata.pricing.network.algorithm_names import between_nodes, crossed_levels
from strata.pricing.network.collectives import chosen_algorithms, price_collective
from strata.pricing.network.levels import level_rings, level_times, level_trees
from strata.workload.graph import Collective

SUMS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
NODES = ("hgx-h100", "hgx-b200", "p4d-efa", "p5-efa", "p5en-efa", "alps-gh200", "nvl72-roce", "mi300x-node")


def cluster(name="hgx-h100", inside=8.0, nodes=2.0, **changes):
    return with_library(st.hardware.sized(st.fabric(name, **changes), (inside, nodes)), "library")


def price(pattern, size, fabric, ranks=None, stride=1.0, asked=""):
    devices = float(np.prod([d.size for d in fabric.dimension]))
    op = Collective(pattern=pattern, group="dp", payload=size)
    return price_collective(
        op, spread(stride, devices / stride if ranks is None else ranks, fabric), fabric, asked
    )


# time [us] of all-reduces over two and four nodes of eight H100 with a 400 Gb/s InfiniBand adapter each, as
# nccl-tests 2.26.2 printed them (a public thread; validation/network/multinode.csv)
MEASURED = {
    2: {8: 24.7, 65536: 33.08, 2**21: 76.24, 2**27: 748.3, 2**30: 4470.2, 2**34: 68652},
    4: {8: 34.75, 65536: 47.6, 2**21: 132.2, 2**27: 990.7, 2**30: 5802.8, 2**34: 90986},
}


@pytest.mark.parametrize("nodes", MEASURED)
def test_all_reduces_between_nodes_are_near_what_is_measured(nodes):
    sizes = np.array(list(MEASURED[nodes]), float)
    found = price("all_reduce", sizes, cluster(nodes=float(nodes))).time * 1e6
    errors = np.abs(found / np.array(list(MEASURED[nodes].values())) - 1)
    assert errors.max() < 0.25 and errors.mean() < 0.12


def test_two_nodes_exceed_their_adapters_bus_bandwidth():
    """Each of two nodes is the root of one tree: a buffer crosses once a direction, not 2 (p-1)/p times."""
    size = 2.0**34
    bus = 2 * 15 / 16 * size / price("all_reduce", size, cluster()).time
    assert bus > 8 * 50e9
    four = 2 * 31 / 32 * size / price("all_reduce", size, cluster(nodes=4.0)).time
    assert four < 8 * 50e9


@settings(max_examples=60, deadline=None)
@given(
    pattern=hy.sampled_from(SUMS),
    name=hy.sampled_from(NODES),
    inside=hy.sampled_from((1.0, 2.0, 4.0)),
    nodes=hy.sampled_from((2.0, 3.0, 8.0, 64.0)),
    size=hy.floats(8.0, 1e10),
)
def test_laws_of_levels(pattern, name, inside, nodes, size):
    made = cluster(name, inside, nodes)
    found = price(pattern, np.array([size, 2 * size]), made)
    assert found.time[1] > found.time[0] > 0
    assert np.all(found.lower <= found.time * (1 + 1e-12))
    # never above the sum of its levels, each with the others' links free of charge
    outer = cluster(name, inside, nodes, **{"0.bandwidth": 1e30, "0.latency": 0.0})
    inner = cluster(name, inside, nodes, **{"1.bandwidth": 1e30, "1.latency": 0.0})
    apart = [float(price(pattern, size, one).time) for one in (outer, inner)]
    assert found.time[0] >= max(apart) * (1 - 1e-9)
    way = "pairs simple" if pattern == "all_to_all" else "ring simple"  # the same on both: protocols differ
    whole, *apart = (float(price(pattern, size, one, asked=way).time) for one in (made, outer, inner))
    assert whole <= sum(apart) * (1 + 1e-9)
    assert found.lower[0] * (1 + 1e-12) >= {"all_to_all": (nodes - 1) / nodes}.get(
        pattern, 0.0
    ) * size / float(made.dimension[1].bandwidth)


@pytest.mark.parametrize("pattern", ["all_reduce", "all_gather", "reduce_scatter"])
def test_the_slower_level_rules_long_messages(pattern):
    size, passes = 1e12, 2.0 if pattern == "all_reduce" else 1.0
    slow = cluster(nodes=4.0, **{"1.bandwidth": 1e9})
    at_least = passes * 31 / 32 * size / 8e9
    assert at_least < price(pattern, size, slow).time < 1.3 * at_least
    faster = cluster(nodes=4.0, **{"1.bandwidth": 1e9, "0.bandwidth": 9e11})
    assert price(pattern, size, faster).time == pytest.approx(price(pattern, size, slow).time, rel=1e-3)


@pytest.mark.parametrize("pattern", SUMS)
@pytest.mark.parametrize("name", NODES)
def test_a_group_inside_a_node_is_priced_as_in_a_node_alone(pattern, name):
    sizes = np.array([64.0, 1e5, 1e9])
    many, one = cluster(name, 4.0, 16.0), cluster(name, 4.0, 1.0)
    np.testing.assert_array_equal(
        price(pattern, sizes, many, ranks=4.0).time, price(pattern, sizes, one, ranks=4.0).time
    )


@pytest.mark.parametrize("pattern", SUMS)
def test_a_box_of_groups_is_its_points(pattern):
    """Some inside a node, some over nodes, some one device a node."""
    made = cluster(nodes=4.0)
    ranks, stride = np.array([2.0, 8.0, 16.0, 32.0, 4.0]), np.array([1.0, 1.0, 1.0, 1.0, 8.0])
    op = Collective(pattern=pattern, group="dp", payload=3e6)
    box = price_collective(op, spread(stride, ranks, made), made)
    for i in range(5):
        alone = price_collective(op, spread(float(stride[i]), float(ranks[i]), made), made)
        assert box.time[i] == pytest.approx(float(alone.time), rel=1e-12)
        assert box.lower[i] == pytest.approx(float(alone.lower), rel=1e-12)
        assert box.link_energy[i] == pytest.approx(float(alone.link_energy), rel=1e-12)


def test_a_compiler_traces_levels():
    jax = pytest.importorskip("jax")
    enable_jax()
    made, sizes = cluster(nodes=4.0), np.array([1e3, 1e8])
    traced = jax.jit(lambda size: price("all_reduce", size, made).time)(sizes)
    np.testing.assert_allclose(traced, price("all_reduce", sizes, made).time, rtol=1e-6)


def test_protocols_and_trees_by_size():
    made = cluster(nodes=4.0)
    where = spread(1.0, 32.0, made)

    def chosen(size):
        op = Collective(pattern="all_reduce", group="dp", payload=size)
        return chosen_algorithms(op, where, made)

    assert chosen(8.0) == ("tree ll", "tree ll") and chosen(2e6) == ("tree ll128", "tree ll128")
    assert "ll" not in chosen(1e10)[0]
    slingshot = cluster("alps-gh200", 4.0, 2.0)
    levels = crossed_levels(spread(1.0, 8.0, slingshot), slingshot.dimension)
    names = level_times("all_reduce", 1e6, levels, levels[0].transport)
    assert not any("ll128" in name or "nvls" in name for name in names)


def test_a_named_algorithm_runs_over_all_levels_and_a_list_of_names_in_phases():
    made = cluster(nodes=4.0)
    ring, tree, whole = (
        float(price("all_reduce", 1e9, made, asked=name).time) for name in ("ring", "nvls tree", "")
    )
    assert whole == min(ring, tree) or whole < min(ring, tree)
    assert float(price("all_reduce", 1e9, made, asked=("ring", "ring")).time) > ring
    with pytest.raises(st.StrataError, match="the levels 8 nvlink x 4 infiniband"):
        price("all_reduce", 1e9, made, asked="halving_doubling")


def test_domains_larger_than_the_librarys_heads_take_trees_and_rings():
    small, large = (cluster("nvl72-roce", inside, 2.0) for inside in (32.0, 64.0))
    levels = [crossed_levels(spread(1.0, 2.0 * n, f), f.dimension) for n, f in ((32.0, small), (64.0, large))]
    found = [level_times("all_reduce", 1e9, one, one[0].transport)["nvls tree"] for one in levels]
    assert np.isfinite(found[0]) and not np.isfinite(found[1])


def test_a_network_that_adds_up_has_two_steps_whatever_its_size():
    made = [cluster(nodes=n, **{"1.reduction": 1.0}) for n in (4.0, 64.0)]
    levels = [
        crossed_levels(spread(1.0, 8.0 * n, f), f.dimension) for n, f in zip((4.0, 64.0), made, strict=True)
    ]
    small = [float(level_trees(8.0, one, one[0].transport.rings)["tree ll"]) for one in levels]
    assert small[0] == pytest.approx(small[1], rel=1e-9)


def test_dimensions_without_a_transport_keep_their_phases():
    made = with_library(st.hardware.sized(st.fabric("hgx-h100"), (8.0, 4.0)), "ideal")
    assert not any(between_nodes(d) for d in made.dimension)
    ideal = st.hardware.sized(st.fabric("dgx-1-v100"), (8.0, 4.0))
    inner = price("all_reduce", 1e8, ideal, ranks=8.0).time
    outer = price("all_reduce", 1e8 / 8, ideal, ranks=4.0, stride=8.0).time
    assert price("all_reduce", 1e8, ideal).time == pytest.approx(inner + outer, rel=1e-9)


def test_collectives_at_once_share_the_level_that_rules():
    gather = {"pattern": "all_gather", "bytes": 1e9}
    both = st.network.concurrent_collectives("4x8xa100-80", [gather, gather], engine="megatron")
    alone = float(both.alone[0].time)
    assert alone < both.time <= 2 * alone * (1 + 1e-12) and both.time > 1.9 * alone
    inside = gather | {"ranks": 8}
    apart = st.network.concurrent_collectives("4x8xa100-80", [gather, inside], engine="megatron")
    assert apart.time == pytest.approx(alone, rel=0.05)  # adapters rule one, NVLink the other


def test_steps_of_many_ranks_wait_for_their_blocks_alone():
    """A bucket of 128 MB over 16 nodes of eight: NCCL's own estimate of its ring's latencies (4 us inside a node,
    14 us between them, tuning.cc) is 0.66 ms; full slots at every step would be three times that.
    """
    from strata.hardware.fabric import fabric, sized
    from strata.mapping.place import spread
    from strata.pricing.network.algorithm_names import crossed_levels
    from strata.pricing.network.levels import filled_step

    nodes = sized(fabric("hgx-b200"), (8, 16))
    levels = crossed_levels(spread(1.0, 128.0, nodes), nodes.dimension)
    found = float(level_rings("all_gather", 128e6, levels, levels[0].transport.rings)["ring simple"])
    assert 0.5e-3 < found < 1.2e-3
    steps = [float(filled_step(11.0, 1.0, block, 4e6)) for block in (0.0, 1e6, 4e6, 9e6)]
    assert steps == sorted(steps) and steps[0] == 1.0 and steps[-1] == steps[-2] == 11.0
    assert filled_step(11.0, 1.0, 0.0, None) == 11.0


@pytest.mark.parametrize("name", ["infiniband", "roce", "efa", "slingshot", "tcpx", "sockets"])
def test_slots_with_hardly_anything_in_them_are_posted_all_the_same(name):
    """A step in whole buffers takes longer than one with flags, however short its blocks: 9 us more, by the
    library's own tuning, where adapters move data; where the host does, as long as with full slots.
    """
    model = transport(name)
    fabric = cluster(nodes=4.0)
    node, net = fabric.dimension
    fabric = replace(fabric, dimension=(node, replace(net, transport_model=model)))
    levels = crossed_levels(spread(8.0, 4.0, fabric), fabric.dimension)
    found = level_rings("all_gather", 64.0, levels, model.rings)
    post = model.rings.post
    step = net.latency * model.rings.step["simple"] + post.get("empty", post["simple"])
    assert float(found["ring simple"]) == pytest.approx(3.0 * step + model.rings.start["simple"], rel=1e-4)
    assert float(found["ring simple"]) > float(found["ring ll"])
