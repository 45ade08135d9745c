"""The network inside a chip: closed forms against graphs, bounds, and where it is built."""

import itertools

import numpy as np
import pytest

import strata as st
from strata.hardware import noc as n
from strata.hardware.noc import Noc
from strata.hardware.silicon.floorplan import router_area


def made(topology, placement="logic", width=128.0, **more):
    numbers = {
        "link_clock": 1e9,
        "hop_latency": 2e-9,
        "hop_energy": 1e-12,
        "wire_pitch": 1e-7,
        "bond_pitch": 6e-6,
        "bond_latency": 1e-9,
        "bond_energy": 4e-13,
    }
    return Noc(topology=topology, placement=placement, width=width, **{**numbers, **more})


ALL = ("crossbar", "mesh", "ring")


def distances(topology, side):
    """Hops of all pairs of different nodes, counted."""
    if topology == "ring":
        p = side * side
        return [min((a - b) % p, (b - a) % p) for a, b in itertools.permutations(range(p), 2)]
    nodes = list(itertools.product(range(side), repeat=2))
    return [abs(a[0] - b[0]) + abs(a[1] - b[1]) for a, b in itertools.permutations(nodes, 2)]


@pytest.mark.parametrize("topology", ["mesh", "ring"])
@pytest.mark.parametrize("side", [2, 3, 4, 8])
def test_mean_hops_are_those_of_the_graph(topology, side):
    assert float(n.noc_hops(made(topology), float(side * side))) == pytest.approx(
        np.mean(distances(topology, side))
    )


@pytest.mark.parametrize("topology", ALL)
def test_remote_traffic_never_passes_the_bisection_or_the_links(topology):
    noc = made(topology)
    for p in (2.0, 4.0, 9.0, 16.0, 64.0):
        total = float(n.remote_bandwidth(noc, p))
        assert total * p / (4 * (p - 1)) <= float(n.noc_bisection(noc, p)) * (1 + 1e-12)
        assert total <= p * float(n.link_bandwidth(noc)) * (1 + 1e-12)


@pytest.mark.parametrize("topology", ALL)
@pytest.mark.parametrize("placement", ["logic", "dram"])
def test_a_local_access_is_never_slower_later_or_dearer(topology, placement):
    noc, share = made(topology, placement), np.linspace(0.0, 1.0, 21)
    fast = n.access_bandwidth(noc, 64.0, 20e12, share)
    assert np.all(np.diff(fast) >= 0) and fast[-1] == 20e12 and np.all(fast <= 20e12)
    late, dear = n.access_latency(noc, 64.0, share), n.access_energy(noc, 64.0, share)
    assert np.all(np.diff(late) < 0) and late[-1] == 0 and np.all(np.diff(dear) < 0) and dear[-1] == 0


def test_one_core_has_no_network():
    for topology in ALL:
        noc = made(topology, "dram")
        assert (
            float(n.noc_hops(noc, 1.0))
            == float(n.noc_bisection(noc, 1.0))
            == float(n.access_latency(noc, 1.0, 0.0))
            == 0
        )
        assert float(n.access_bandwidth(noc, 1.0, 5e12, 0.0)) == 5e12


def test_a_network_in_the_stack_saves_area_and_costs_time_and_energy():
    inside, above = made("crossbar"), made("crossbar", "dram")
    assert float(router_area(above, 16.0)) < float(router_area(inside, 16.0))
    assert float(n.access_latency(above, 16.0, 0.0)) > float(n.access_latency(inside, 16.0, 0.0))
    assert float(n.access_energy(above, 16.0, 0.0)) == pytest.approx(
        float(n.access_energy(inside, 16.0, 0.0)) + 2 * 4e-13
    )


def test_area_grows_with_the_square_of_the_width_and_with_vaults_of_a_crossbar():
    for topology in ALL:
        assert float(router_area(made(topology, width=256.0), 16.0)) == pytest.approx(
            4 * float(router_area(made(topology), 16.0))
        )
    assert float(router_area(made("crossbar"), 32.0)) == pytest.approx(
        2 * float(router_area(made("crossbar"), 16.0))
    )
    assert (
        float(router_area(made("mesh"), 32.0))
        == float(router_area(made("mesh"), 16.0))
        > float(router_area(made("ring"), 16.0))
    )


def test_multicast_is_never_more_than_unicasts_nor_less_than_the_receivers():
    receivers = np.arange(1.0, 33.0)
    for topology in ALL:
        links = n.multicast_hops(made(topology), 64.0, receivers)
        alone = n.noc_hops(made(topology), 64.0) * receivers
        assert (
            np.all(links <= alone * (1 + 1e-12))
            and np.all(links >= receivers - 1e-12)
            and np.all(np.diff(links) > 0)
        )


def test_a_batch_equals_singles():
    nodes, share = np.array([1.0, 4.0, 16.0])[:, None], np.array([0.0, 0.3, 1.0])
    for topology in ALL:
        noc = made(topology, "dram")
        for function in (
            lambda p, s, noc=noc: n.access_bandwidth(noc, p, 5e12, s),
            lambda p, s, noc=noc: n.access_latency(noc, p, s),
        ):
            batch = function(nodes, share)
            assert batch.shape == (3, 3)
            for i, j in itertools.product(range(3), range(3)):
                assert batch[i, j] == float(function(float(nodes[i, 0]), float(share[j])))


def test_the_reference_devices_network_carries_its_dram():
    owner = st.chip("stack-ref")
    noc = owner.silicon.noc
    assert float(n.access_bandwidth(noc, 8.0, owner.memory.bandwidth, 1 / 8)) == pytest.approx(
        float(owner.memory.bandwidth)
    )
