"""Routes of logical edges, what they make of the links, and the order that suits the traffic."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from deepflow.device_mapping import LogicalDimension
from deepflow.link_sharing import best_mapping, device_mappings, fabric_grid, package_grid
from strata.base.errors import BadValue
from strata.hardware.fabric import fabric, sized

TORUS = fabric_grid(sized(fabric("torus-256"), (4, 4, 2, 2, 1)))
RINGS = (True, True, False, False, False)


def ring(name, degree):
    return LogicalDimension(name, degree)


def distance(a, b, sizes, rings):
    steps = [abs(p - q) for p, q in zip(a, b, strict=True)]
    return sum(min(s, n - s) if r else s for s, n, r in zip(steps, sizes, rings, strict=True))


places = some.tuples(*(some.integers(0, n - 1) for n in TORUS.sizes))


@given(source=places, target=places)
def test_routes_on_a_fabric_are_connected_and_shortest(source, target):
    path = TORUS.route(source, target)
    ends = [link.ends for link in path]
    assert len(path) == distance(source, target, TORUS.sizes, RINGS)
    assert all(a[1] == b[0] for a, b in pairwise(ends))
    assert not path or (ends[0][0], ends[-1][1]) == (source, target)
    axes = [TORUS.networks.index(link.network) for link in path]
    assert axes == sorted(axes)


@given(data=some.data(), side=some.integers(1, 5), packages=some.integers(1, 4))
def test_routes_between_packages_go_x_then_y_through_every_border(data, side, packages):
    grid = package_grid(side, packages)
    device = some.tuples(*(some.integers(0, n - 1) for n in grid.sizes))
    source, target = data.draw(device), data.draw(device)
    path = grid.route(source, target)
    across = abs((source[0] + side * source[2]) - (target[0] + side * target[2]))
    assert len(path) == across + abs(source[1] - target[1])
    assert [link.network for link in path].count("inter") == abs(source[2] - target[2])
    assert all(a.ends[1] == b.ends[0] for a, b in pairwise(path))
    turned = [a.ends[0][1] != a.ends[1][1] for a in path]
    assert turned == sorted(turned)


@settings(max_examples=25, deadline=None)
@given(degrees=some.lists(some.sampled_from([2, 3, 4]), min_size=1, max_size=3), packages=some.integers(1, 4))
def test_no_link_is_shared_less_than_the_mean_of_its_network(degrees, packages):
    grid = package_grid(4, packages)
    mesh = [ring(f"d{k}", n) for k, n in enumerate(degrees)]
    if np.prod(degrees) > 16 * packages:
        return
    links = {"intra": 2 * packages * 2 * 12, "inter": max(2 * 4 * (packages - 1), 1)}
    for mapping in device_mappings(mesh, grid):
        for network, worst in mapping.sharing.items():
            carried = sum(load.total() for link, load in mapping.loads.items() if link.network == network)
            assert worst >= carried / links[network]
            assert worst <= carried


@settings(max_examples=15, deadline=None)
@given(degrees=some.permutations([2, 2, 4]))
def test_names_of_equal_dimensions_change_nothing(degrees):
    def found(names):
        mesh = [ring(name, n) for name, n in zip(names, degrees, strict=True)]
        sized_orders = []
        for m in device_mappings(mesh, package_grid(4, 1)):
            by_name = {d.name: d.degree for d in mesh}
            sized_orders.append((tuple(by_name[n] for n in m.order), m.laying, tuple(m.sharing.items())))
        return sorted(sized_orders)

    assert found("abc") == found("bca") == found("xyz")


def test_a_ring_in_a_row_by_hand():
    # 4 devices in a row: each link carries one step of the ring, and the way back of its closing edge
    [mapping, *_] = device_mappings([ring("tp", 4)], package_grid(4, 1, 100.0), layings=("wrap",))
    assert mapping.sharing == {"intra": 2, "inter": 0}
    assert mapping.bandwidth == {"tp": 50.0}
    # on a square it closes: no link is shared
    square = device_mappings([ring("tp", 4)], package_grid(2, 1, 100.0), layings=("snake",))[0]
    assert square.sharing["intra"] == 1


def test_far_packages_load_every_package_on_the_way():
    # kp2 = 2 over 8 packages of one device, kp1 = 4 inside: 4 edges cross the middle, as a cut must
    mesh = [ring("kp1", 4), ring("kp2", 2)]
    by_order = {m.order: m for m in device_mappings(mesh, package_grid(1, 8), layings=("wrap",))}
    assert by_order["kp1", "kp2"].sharing["inter"] == 5
    assert by_order["kp2", "kp1"].sharing["inter"] == 5


def test_the_best_order_follows_the_traffic():
    mesh = [ring("tp", 8), ring("dp", 8)]
    node = fabric_grid(sized(fabric("hgx-h200"), (8, 8)))
    heavy = {"tp": 1e9, "dp": 1e6}
    assert best_mapping(mesh, node, heavy).order == ("tp", "dp")
    assert best_mapping(mesh, node, {"tp": 1e6, "dp": 1e9}).order == ("dp", "tp")
    assert best_mapping(mesh, node, heavy).networks_used == {"tp": ("nvlink",), "dp": ("infiniband",)}
    # a ring of 8 through a switch: each port carries one edge to the next and one to the one before
    assert best_mapping(mesh, node, heavy).sharing == {"nvlink": 2, "infiniband": 2}


def test_the_best_is_never_slower_than_any_order():
    mesh = [ring("kp1", 4), ring("kp2", 2), LogicalDimension("lp", 4, "chain"), ring("dp", 2)]
    grid = package_grid(4, 4, 1e12, 1e11)
    for sent in (
        {"kp1": 3e8, "kp2": 1e8, "lp": 1e7, "dp": 5e8},
        {"kp1": 1e6, "kp2": 0.0, "lp": 1e9, "dp": 1e8},
    ):
        for together in (False, True):
            best = best_mapping(mesh, grid, sent, together=together)
            every = device_mappings(mesh, grid)
            assert float(best.time(sent, together)) <= min(float(m.time(sent, together)) for m in every)


def test_a_batch_of_volumes_is_the_volumes_one_by_one():
    [mapping, *_] = device_mappings([ring("tp", 4), ring("dp", 4)], package_grid(2, 4, 1e12, 1e11))
    tp, dp = np.array([1e6, 1e9])[:, None], np.array([1e3, 1e6, 1e9])
    for together in (False, True):
        box = mapping.time({"tp": tp, "dp": dp}, together)
        single = [[mapping.time({"tp": a, "dp": b}, together) for b in dp] for a in tp[:, 0]]
        assert box.shape == (2, 3)
        assert np.allclose(box, np.array(single, float), rtol=1e-15)


def test_all_at_once_is_between_the_longest_and_the_sum():
    sent = {"tp": 1e9, "dp": 1e8, "pp": 1e7}
    mesh = [ring("tp", 4), ring("dp", 4), LogicalDimension("pp", 4, "chain")]
    for mapping in device_mappings(mesh, package_grid(4, 4, 1e12, 1e11)):
        longest = max(v / mapping.alone_bandwidth[n] for n, v in sent.items())
        assert longest <= float(mapping.time(sent, together=True)) * (1 + 1e-12)
        assert float(mapping.time(sent, together=True)) <= float(mapping.time(sent)) * (1 + 1e-12)


def test_bad_meshes_are_one_line():
    with pytest.raises(BadValue, match=r"at most as many shards.*\(shards=32, devices=16\)"):
        device_mappings([ring("tp", 32)], package_grid(4, 1))
    with pytest.raises(BadValue, match="names of their own"):
        device_mappings([ring("tp", 2), ring("tp", 2)], package_grid(4, 1))
    with pytest.raises(BadValue, match="no mesh dimension called ep; there: tp"):
        device_mappings([ring("tp", 4)], package_grid(4, 1))[0].time({"ep": 1.0})
    with pytest.raises(BadValue, match="has no size; give one"):
        fabric_grid(fabric("hgx-h200"))
