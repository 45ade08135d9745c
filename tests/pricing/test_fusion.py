"""Equations of a fused partition: arrays equal singles, and a million chips at a fixed partition are a call."""

import time

import numpy as np
import pytest

from strata.base.errors import BadValue, UnknownName
from strata.pricing import fusion
from strata.pricing.fusion import (
    PartitionLimits,
    PartitionWork,
    TensorUse,
    partition_flows,
    price_partition,
)
from strata.pricing.fusion_rules import fusion_rules


def whole(sram, bandwidth, peak):
    """A partition with 600 MB of weights on chips."""
    passes = fusion.weight_passes(600e6, 50e6, sram)
    traffic = fusion.partition_traffic(40e6, 10e6, passes, 600e6 / 8, 0.0, False)
    compute = fusion.utilised_time(3e12, peak, 0.9) * fusion.fill_factor(32.0, 8.0, 4.0, 1.0)
    memory = traffic / bandwidth
    return fusion.critical_time(compute, memory, 1e-4, "all") + 4e-6 / 8.0


def test_a_batch_of_chips_equals_single_ones():
    rng = np.random.default_rng(1)
    sram, bandwidth, peak = (
        rng.uniform(1e8, 1e9, 50),
        rng.uniform(1e10, 1e12, 50),
        rng.uniform(1e13, 1e15, 50),
    )
    batch = whole(sram, bandwidth, peak)
    assert batch == pytest.approx(
        [whole(*map(float, one)) for one in zip(sram, bandwidth, peak, strict=True)], rel=1e-12
    )


def test_a_million_chips_are_one_call():
    grid = np.linspace(1e8, 1e9, 1_000_000)
    began = time.process_time()
    assert whole(grid, 1e11, 3e14).shape == grid.shape
    assert time.process_time() - began < 2.0


TENSORS = ((0, (1, 2), 6e6), (1, (2,), 4e6), (3, (0,), 2e6), (2, (3,), 3e6))  # 3 is outside


def partition(size, sram, bandwidth, rules):
    """Kernels 1 and 2 of a chain of three with a skip, on chips."""
    uses = [TensorUse(source=s, targets=t, bytes=b * size, whole=(False,) * len(t)) for s, t, b in TENSORS]
    flows = partition_flows(uses, (False, True, True, False), (0.0, 1.0, 2.0, 0.0), 1.0)
    work = PartitionWork(flows=flows, weights=1e7, compute=1e-4 * size, levels=2.0, live=1e6 * size)
    return price_partition(work, PartitionLimits(sram=sram, bandwidth=bandwidth), rules, 4.0, 2.0)


@pytest.mark.parametrize("rules", ["strata", "dfmodel-2024"])
def test_a_fixed_partition_on_many_chips_equals_single_ones(rules):
    rng, given_rules = np.random.default_rng(2), fusion_rules(rules)
    size, sram, bandwidth = (rng.uniform(0.5, 2.0, 40) * unit for unit in (1.0, 1.5e7, 1e11))
    batch = partition(size, sram, bandwidth, given_rules)
    for i in range(40):
        one = partition(float(size[i]), float(sram[i]), float(bandwidth[i]), given_rules)
        for name in ("time", "sram", "traffic", "fits"):
            value = np.broadcast_to(getattr(batch, name), 40)[i]
            assert value == pytest.approx(getattr(one, name), rel=1e-12)
    assert 0 < np.sum(batch.fits) < 40


def test_flows_of_a_partition_by_hand():
    """Reads the skipped tensor once, writes its result, keeps what passes between its two kernels."""
    found = partition(1.0, 1e9, 1e11, fusion_rules("dfmodel-2024"))
    assert found.traffic == 6e6 + 3e6 and found.sram == 2 * 4e6 / 4 + 2 * 9e6 / 4 + 1e7


def test_more_passes_and_less_overlap_never_shorten():
    assert fusion.critical_time(3.0, 4.0, 2.0, "all") <= fusion.critical_time(3.0, 4.0, 2.0, "network apart")
    assert fusion.critical_time(3.0, 4.0, 2.0, "network apart") <= fusion.critical_time(3.0, 4.0, 2.0, "none")
    with pytest.raises(BadValue, match="overlap is all, network apart or none"):
        fusion.critical_time(1.0, 1.0, 1.0, "some")


def test_rules_are_data():
    ours, theirs = fusion_rules("strata"), fusion_rules("dfmodel-2024")
    assert (ours.weight_traffic, theirs.weight_traffic) == ("read", "free")
    assert fusion_rules(theirs, fill="yes").fill == "yes"
    with pytest.raises(UnknownName, match="dfmodel-2024"):
        fusion_rules("dfmodel-2023")
