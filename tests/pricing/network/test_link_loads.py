"""Loads of links: the same bytes on the same links as the router's, for any mixture of dimensions."""

import numpy as np
import pytest

from strata.base.errors import BadValue
from strata.hardware.fabric import fabric, sized
from strata.hardware.transport import packets
from strata.pricing.network.collective_schedules import ScheduleStep, schedule
from strata.pricing.network.link_loads import collective_loads, link_loads, load_schedules
from strata.pricing.network.routes import RouteLevel, route_steps

SWITCH, RING, CHAIN = (RouteLevel(kind, 4, 1e9, 1e-6) for kind in ("switch", "ring", "chain"))
FULL, TREE, ODD = (
    RouteLevel(kind, size, 1e9, 1e-6) for kind, size in (("full", 3), ("tree", 2), ("ring", 5))
)


@pytest.mark.parametrize(
    "levels",
    [(SWITCH,), (RING, CHAIN), (SWITCH, TREE, RING), (ODD, FULL), (FULL, SWITCH, TREE), (CHAIN, SWITCH)],
    ids=lambda levels: "-".join(level.kind for level in levels),
)
def test_bytes_of_every_link_are_the_routers(levels):
    rng, devices = np.random.default_rng(3), int(np.prod([level.size for level in levels]))
    steps = [
        ScheduleStep(
            rng.integers(0, devices, 40), rng.integers(0, devices, 40), rng.integers(1, 900, 40) * 1.0
        )
        for _ in range(2)
    ]
    routed = route_steps(steps, levels, packets("ns3")).bytes
    strides = np.cumprod([1, *(level.size for level in levels)])
    ways = {1: "+1", -1: "-1"}
    told = {}
    for link, carried in routed.items():
        i, way, place = link.place
        named = f"to {way}" if levels[i].kind == "full" else ways.get(way, way)
        told[i, named, int(np.dot(place, strides[:-1]))] = carried
    counted = {
        (i, way, int(device)): float(loads.bytes[way][device])
        for i, loads in enumerate(link_loads(steps, levels))
        for way in loads.bytes
        for device in np.flatnonzero(loads.bytes[way])
    }
    assert counted == pytest.approx(told)


@pytest.mark.parametrize("name", ["tpu-v4-torus", "hgx-h200", "mi325x-node"])
def test_what_leaves_arrives(name):
    """Every byte of an all-to-all goes up into a switch and down again."""
    joined = fabric(name)
    joined = sized(joined, (4,) + (2,) * (len(joined.dimension) - 1))
    devices = int(np.prod([d.size for d in joined.dimension]))
    members = np.arange(devices)[None]
    _, loads = collective_loads(joined, "all_to_all", members, 8e6)
    assert sum(float(carried.sum()) for level in loads for carried in level.bytes.values()) > 0
    for level in loads:
        if level.level.kind == "switch":
            assert level.bytes["up"].sum() == pytest.approx(level.bytes["down"].sum())


def test_groups_at_once_load_all_their_links_alike():
    node = sized(fabric("hgx-h200"), (8, 2))
    members = np.arange(16).reshape(4, 4)
    name, (nvlink, between) = collective_loads(node, "all_reduce", members, 4e6, "ring")
    assert name == "ring" and not between.bytes["up"].any()
    assert np.allclose(nvlink.bytes["up"], 2 * 3 / 4 * 4e6)
    steps = schedule("all_reduce", "ring", (4,), 4e6)
    assert nvlink.bytes["up"][0] == pytest.approx(sum(step.bytes[0] for step in steps))


def test_too_many_messages_and_wrong_schedules_are_one_line():
    large = sized(fabric("hgx-h200"), (8, 512))
    with pytest.raises(BadValue, match="up to 20,000,000 parts"):
        collective_loads(large, "all_to_all", np.arange(4096)[None], 1e6)
    with pytest.raises(BadValue, match="goes by"):
        collective_loads(large, "all_reduce", np.arange(8)[None], 1e6, "relay")


def test_a_group_that_lies_unevenly_goes_round_in_one_ring():
    node = sized(fabric("hgx-h200"), (8, 4))
    assert load_schedules("all_reduce", np.arange(9), node)[0] == "ring"
