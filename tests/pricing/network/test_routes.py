"""The router: agreement with closed forms, conservation and bounds, and agreement with ns-3 on what has no
closed form.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.base.errors import BadFile, BadValue
from strata.hardware.transport import Packets
from strata.hardware.transport import packets as network
from strata.measure.ns3 import simulated
from strata.pricing.network import packet_trains as trains
from strata.pricing.network import packets
from strata.pricing.network.collective_schedules import ScheduleStep, legal_schedules, schedule
from strata.pricing.network.packet_runs import scheduled_job
from strata.pricing.network.packets import GridAxis, SwitchTree, packet_slots, packet_time
from strata.pricing.network.routes import (
    RoutedTraffic,
    RouteLevel,
    device_count,
    route,
    route_steps,
    run_schedules,
    steps_on_devices,
)
from strata.validation.measured.reader import reader_of
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import read_table

DATA = Path(__file__).parents[3] / "validation"
OWN, PUBLISHED = network("ns3"), network("astra-sim")
CLOCKS = st.sampled_from([OWN, PUBLISHED, Packets(256.0, 32.0, 32.0, 1e-12)])
SIZES = st.integers(1, 10**5).map(float)
RATES = st.sampled_from([32e9, 46e9, 64e9, 256e9])
# closed forms let acknowledgements hide behind the latency of the way
HOPS = st.sampled_from([32e-9, 150e-9, 500e-9])
KINDS = st.lists(st.sampled_from(["ring", "chain", "full", "switch", "tree"]), min_size=1, max_size=3)


def shifted(ranks: int, target: np.ndarray, size: float) -> np.ndarray:
    traffic = np.zeros((ranks, ranks))
    traffic[np.arange(ranks), target] = size
    return traffic


def routed(traffic: np.ndarray, levels: tuple[RouteLevel, ...], how: Packets) -> RoutedTraffic:
    """One step in which every device sends `traffic[source, target]` bytes, to its next neighbours first."""
    source, target = np.nonzero(traffic * (1 - np.eye(len(traffic))))
    order = np.argsort((target - source) % len(traffic), kind="stable")
    source, target = source[order], target[order]
    return route_steps((ScheduleStep(source, target, traffic[source, target]),), levels, how)


def along(sizes: tuple[int, ...], d: int) -> np.ndarray:
    """The next rank along a dimension of a grid, for every rank; dimension 0 varies fastest."""
    ranks = np.arange(int(np.prod(sizes))).reshape(sizes[::-1])
    return np.roll(ranks, -1, axis=len(sizes) - 1 - d).ravel()


def some_levels(kinds: list[str], random: np.random.Generator) -> tuple[RouteLevel, ...]:
    """Levels of given kinds and any sizes; a tree without a switch below it becomes a switch."""
    made: list[RouteLevel] = []
    for kind in kinds:
        fits = kind != "tree" or (made and made[-1].kind in ("switch", "tree"))
        made.append(
            RouteLevel(
                kind if fits else "switch",
                int(random.integers(1, 5)),
                float(random.choice([32e9, 50e9])),
                float(random.choice([5e-8, 3e-7])),
            )
        )
    return tuple(made)


@settings(max_examples=40, deadline=None)
@given(size=SIZES, rate=RATES, hop=HOPS, how=CLOCKS, side=st.integers(2, 6), other=st.integers(1, 3))
def test_ring_step_is_what_the_router_finds(size, rate, hop, how, side, other):
    levels = (RouteLevel("ring", side, rate, hop), RouteLevel("ring", other, rate, hop))
    found = routed(shifted(side * other, along((side, other), 0), size), levels, how).time
    assert float(packets.grid_ring_step(size, GridAxis(float(side), rate, hop), how)) == pytest.approx(
        found, rel=1e-9
    )


@settings(max_examples=40, deadline=None)
@given(size=SIZES, rate=RATES, hop=HOPS, how=CLOCKS, side=st.integers(2, 6))
def test_chain_step_is_the_routers_and_a_wait(size, rate, hop, how, side):
    found = routed(shifted(side, along((side,), 0), size), (RouteLevel("chain", side, rate, hop),), how).time
    closed = float(packets.grid_ring_step(size, GridAxis(float(side), rate, hop, 0.0), how))
    packet = float(packet_time(how.payload + how.header, rate, how))
    assert 0.98 * found <= closed <= found + 1.5 * (side - 2) * packet + 1e-15


# the same draws each time: of a thousand, one or two tiny messages differ by a few packets' time more
@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    size=SIZES,
    rate=RATES,
    up=RATES,
    hop=HOPS,
    how=CLOCKS,
    inner=st.sampled_from([1, 2, 4, 8]),
    outer=st.sampled_from([1, 2, 4]),
)
def test_switch_steps_are_what_the_router_finds(size, rate, up, hop, how, inner, outer):
    ranks, tree = inner * outer, SwitchTree(float(inner), float(outer), rate, hop, up, hop)
    levels = (RouteLevel("switch", inner, rate, hop), RouteLevel("tree", outer, up, hop))
    everyone = np.arange(ranks)
    # An acknowledgement may find others before it on each link, which a closed form of one message does not
    # see.
    slack = 2.0 * sum(float(packet_time(how.reply, bandwidth, how)) for bandwidth in (rate, up))
    for k in range(int(np.log2(ranks))):
        found = routed(shifted(ranks, everyone ^ 2**k, size), levels, how).time
        assert float(
            packets.tree_message(size, tree, 2**k >= inner, 1.0, float(inner), how)
        ) == pytest.approx(found, rel=0.02, abs=slack)
    if ranks > 1:
        found = routed(shifted(ranks, (everyone + 1) % ranks, size), levels, how).time
        assert float(packets.tree_ring_step(size, tree, how)) == pytest.approx(found, rel=0.02, abs=slack)
        found = routed(np.full((ranks, ranks), size), levels, how).time
        assert float(packets.tree_all_to_all(size, tree, how)) == pytest.approx(found, rel=0.02, abs=slack)


@settings(max_examples=40, deadline=None)
@given(kinds=KINDS, seed=st.integers(0, 999))
def test_routes_conserve_bytes_and_keep_bounds(kinds, seed):
    random = np.random.default_rng(seed)
    levels = some_levels(kinds, random)
    ranks = device_count(levels)
    traffic = random.integers(0, 5000, (ranks, ranks)) * random.integers(0, 2, (ranks, ranks)).astype(float)
    np.fill_diagonal(traffic, 0.0)
    step = routed(traffic, levels, OWN)
    paths = {(s, t): route(s, t, levels) for s, t in zip(*np.nonzero(traffic), strict=True)}
    # every byte crosses its links, once each
    assert sum(step.bytes.values()) == sum(traffic[ends] * len(path) for ends, path in paths.items())
    for link, busy in step.busy.items():
        assert step.time >= (busy + 2 * link.latency) * (1 - 1e-9)
    for (source, target), path in paths.items():
        back = route(int(target), int(source), levels)
        slots = [packet_slots(traffic[source, target], link.bandwidth, OWN) for link in path]
        alone = max(s[2] for s in slots) + sum(link.latency for link in path + back)
        assert step.time >= alone * (1 - 1e-9)  # no message is faster than on an empty fabric
    assert routed(2.0 * traffic, levels, OWN).time >= step.time


@settings(max_examples=20, deadline=None)
@given(kinds=KINDS, seed=st.integers(0, 999))
def test_a_way_ends_where_it_should(kinds, seed):
    """A path leaves by a link of the source and ends in one of the target, and no link comes twice."""
    levels = some_levels(kinds, np.random.default_rng(seed))
    for source in range(device_count(levels)):
        for target in range(device_count(levels)):
            path = route(source, target, levels)
            assert len(set(path)) == len(path) and bool(path) == (source != target)


def test_trains_are_near_single_packets(monkeypatch):
    levels, random = (
        (RouteLevel("ring", 4, 46e9, 75e-9), RouteLevel("chain", 3, 37e9, 310e-9)),
        np.random.default_rng(0),
    )
    traffic = random.integers(0, 400_000, (12, 12)).astype(float)
    single = routed(traffic, levels, OWN)
    monkeypatch.setattr(trains, "MOST_EVENTS", 0)
    assert routed(traffic, levels, OWN).time == pytest.approx(single.time, rel=0.03)
    assert routed(traffic, levels, OWN).time >= max(single.busy.values())


def test_collectives_at_once_contend_and_apart_do_not():
    levels = (RouteLevel("switch", 8, 50e9, 200e-9),)
    reduce = schedule("all_reduce", "ring", (4,), 1e6)
    low, high = steps_on_devices(reduce, range(4)), steps_on_devices(reduce, range(4, 8))
    alone = route_steps(low, levels, OWN).time
    assert run_schedules((low, high), levels, OWN).times == (alone, alone)
    both = run_schedules((low, low), levels, OWN)
    assert both.time > 1.7 * alone
    assert sum(both.bytes.values()) == 2 * sum(route_steps(low, levels, OWN).bytes.values())


def test_bad_steps_and_levels_are_refused_in_one_line():
    one = (ScheduleStep(np.array([0]), np.array([9]), np.array([8.0])),)
    with pytest.raises(BadValue, match="the fabric has 4 devices"):
        route_steps(one, (RouteLevel("ring", 4, 1e9, 1e-7),), OWN)
    with pytest.raises(BadValue, match="below a tree"):
        route(0, 5, (RouteLevel("ring", 4, 1e9, 1e-7), RouteLevel("tree", 2, 1e9, 1e-7)))
    with pytest.raises(BadFile, match="make ns3"):
        simulated([((one,), (RouteLevel("ring", 16, 1e9, 1e-7),))], OWN, program="no/such/program")


def test_router_holds_against_ns3_runs_of_schedules():
    name = "ns3/schedules.csv"
    table = read_table(DATA, name)
    assert len(table) >= 150
    short = table.keep(np.flatnonzero(table.number("bytes") <= 1e6))
    found = reader_of(name, Catalogue())(short, Catalogue())
    assert not found.why
    error = np.abs(found.predicted / found.measured - 1.0)
    assert error.max() <= 0.10
    for group in set(found.group):
        assert np.mean(error[found.group == group]) <= 0.02, group


SHAPES = [
    ("switch:5:46:75", (5,)),
    ("switch:2:46:75 tree:2:37:310 tree:3:64:100", (2, 2, 3)),
    ("ring:6:46:75", (6,)),
    ("full:4:46:75 ring:3:37:310", (4, 3)),
    ("chain:3:46:75 chain:4:37:310", (3, 4)),
    ("ring:4:32:50 switch:2:64:80 tree:2:46:200", (4, 2, 2)),
]


@pytest.mark.parametrize(("shape", "sizes"), SHAPES)
def test_ns3_agrees_on_every_schedule(simulator, shape, sizes):
    cell = dict.fromkeys(("members", "skew", "other_collective"), "") | {
        "levels": shape,
        "collective": "broadcast",
        "algorithm": "tree",
        "bytes": "1",
    }
    levels, jobs = scheduled_job(cell)[1], []
    for pattern in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send"):
        jobs += [
            ((schedule(pattern, algorithm, sizes, 30_000.0),), levels)
            for algorithm in legal_schedules(pattern, sizes)
        ]
    jobs.append(((jobs[0][0][0], jobs[-3][0][0]), levels))  # two at once
    for job, times in zip(jobs, simulated(jobs, OWN, simulator), strict=True):
        found = run_schedules(*job, OWN)
        assert [found.time, *found.times] == pytest.approx(list(times), rel=0.02)


def test_ns3_repeats_stored_schedules(simulator):
    table = read_table(DATA, "ns3/schedules.csv")
    cells = [{name: str(values[i]) for name, values in table.columns.items()} for i in range(len(table))]
    cheap = [cell for cell in cells if float(cell["bytes"]) <= 6000 and not cell["other_collective"]][::6]
    again = simulated([scheduled_job(cell) for cell in cheap], OWN, simulator)
    assert [round(times[0] * 1e9) for times in again] == [int(cell["ns3_ns"]) for cell in cheap]
