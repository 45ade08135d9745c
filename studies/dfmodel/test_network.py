"""DFModel's laws of communication: against the house's closed forms where they mean the same, and its logs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from dfmodel.network import (
    bisection_all_to_all,
    bisection_links,
    dfmodel_all_gather,
    dfmodel_all_reduce,
    panel_broadcast,
    stage_handover,
    two_level_all_reduce,
)
from strata.hardware.fabric import fabric, sized
from strata.mapping.place import GroupLayout
from strata.pricing.network.algorithms import ideal_times


def test_a_ring_of_both_directions_is_dfmodels_with_one_pass():
    """Its program's default counts V (p-1) / p over one link: both directions of the ring at once."""
    ring = sized(fabric("dfmodel-torus-2d"), (8.0,)).dimension[0]  # two links of 50 GB/s
    whole = GroupLayout(8.0, 1.0)
    both_ways = ideal_times("all_reduce", 1e9, whole, ring)["bidirectional ring"]
    assert dfmodel_all_reduce("ring", 1e9, 8.0, 50e9, 1.0) == pytest.approx(float(both_ways), rel=1e-12)


def test_fully_connected_ranks_agree_with_ours():
    full = sized(fabric("dfmodel-dragonfly"), (8.0,)).dimension[0]  # seven links of 50 GB/s
    whole = GroupLayout(8.0, 1.0)
    gathered = ideal_times("all_gather", 1e9, whole, full)["scatter"]
    assert dfmodel_all_gather("full", 1e9, 8.0, 50e9) == pytest.approx(float(gathered), rel=1e-12)


def test_dfmodel_reference_logged_times():
    assert stage_handover(10240.0, 2048.0, 2.0, 60.0, 12.5e9) == pytest.approx(402653184e-9)
    side = 2.0**20 - 2048.0 * np.arange(64)
    assert panel_broadcast(side, 2048.0, 2.0, 32.0, 50e9).sum() == pytest.approx(161229040e-9, rel=1e-7)
    # FFT of 2^40 points in 2 bytes each, logged network times of the five topologies
    kinds = {
        "ring ring": (32, 32),
        "ring ring ring": (8, 8, 16),
        "full full": (32, 32),
        "ring switch": (8, 128),
    }
    logged = (343597376e-9, 171798688e-9, 42949672e-9, 85899344e-9)
    for (said, sizes), there in zip(kinds.items(), logged, strict=True):
        links = bisection_links(said.split(), [float(s) for s in sizes])
        assert bisection_all_to_all(2.0**21, 1024.0, links, 50e9) == pytest.approx(there, rel=1e-7)
    # its program now doubles the links of a torus: 0.1089 for 0.0562 of utilisation in the study
    assert bisection_links(["ring"] * 2, [32.0, 32.0], doubled=True) == 64.0


def test_dfmodel_reference_domains_of_high_bandwidth():
    """Fig 7, 16384 chips, hidden 25600, tensor parallel 8: network times of a layer [ns] by domain size.

    From 8 on the tensor parallel group lies inside: what is left falls with 1/h (data parallel, between
    domains), and below 8 four all-reduces of 2048 tokens slow down by the law.
    """
    logged = {2: 8557445.0, 4: 4255701.5, 8: 2104850.25, 16: 1524579.625, 32: 1234450.125, 64: 1089379.5}
    between = 16 * (logged[8] - logged[16])
    assert 32 * (logged[16] - logged[32]) == pytest.approx(between, rel=1e-4)
    size = 25600.0 * 2048 * 2
    ours = {h: 4e9 * float(two_level_all_reduce(size, 8.0, h, 900e9, 50e9)) + between / h for h in (2, 4, 8)}
    for small, large in ((2, 4), (4, 8)):
        assert ours[small] - ours[large] == pytest.approx(logged[small] - logged[large], rel=2e-5)


@given(some.floats(2.0, 512.0), some.floats(1e9, 1e12), some.sampled_from(("ring", "full", "switch")))
def test_wider_links_and_fewer_passes_never_take_longer(ranks, link, kind):
    gathered = dfmodel_all_gather(kind, 1e9, ranks, link)
    assert dfmodel_all_gather(kind, 1e9, ranks, 2 * link) <= gathered
    assert dfmodel_all_gather(kind, 1e9, 1.0, link) == 0.0
    once, twice = (dfmodel_all_reduce(kind, 1e9, ranks, link, passes, 1e-6) for passes in (1.0, 2.0))
    assert twice == pytest.approx(2 * once)
    batch = dfmodel_all_reduce(kind, 1e9, np.array([ranks, 1.0]), link, 2.0)
    assert batch.tolist() == [dfmodel_all_reduce(kind, 1e9, ranks, link, 2.0), 0.0]
