"""Failures and checkpoints: the interval is the best one, shares add up, a batch equals its singles."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from strata.training.reliability import (
    daly_interval,
    reliability,
    trained_share,
    training_goodput,
)

STALLS = some.floats(0.1, 1e3)
MTBFS = some.floats(1.2e4, 1e8)


@given(stall=STALLS, mtbf=MTBFS, other=some.floats(0.2, 5.0))
def test_no_other_interval_trains_more(stall, mtbf, other):
    best = float(daly_interval(stall, mtbf))
    here = float(trained_share(best, stall, mtbf, 600.0))
    there = float(trained_share(best * other, stall, mtbf, 600.0))
    assert there <= here * (1 + 2e-3)


@given(
    state=some.floats(1e9, 1e14),
    devices=some.floats(1.0, 1e5),
    beside=some.sampled_from((0.0, 1.0)),
    stragglers=some.floats(1e-6, 0.5),
)
def test_shares_add_up(state, devices, beside, stragglers):
    given = reliability(asynchronous=beside, stragglers=stragglers)
    found = training_goodput(state, devices, given)
    assert float(found.share) + sum(map(float, found.lost.values())) == pytest.approx(1.0)
    assert all(float(share) >= -1e-9 for share in found.lost.values())
    assert 0 < float(found.share) <= 1 / (1 + stragglers)


def test_a_run_like_llama_3s_trains_more_than_90_percent_of_its_time():
    # arXiv 2407.21783, sec. 3.3.4: "higher than 90 %" over 54 days on 16,384 GPUs, 419 unexpected interruptions
    found = training_goodput(14 * 405e9, 16384.0, reliability())
    assert 0.90 < float(found.share) < 0.95
    assert float(found.failures) * 54 / 30 == pytest.approx(419, rel=1e-3)


def test_without_failures_checkpoints_and_stragglers_all_time_counts():
    perfect = reliability(
        device_mtbf="1e12 h", planned_every="1e12 h", stragglers=0, pause="0 s", restart="0 s"
    )
    found = training_goodput(1e12, 512.0, perfect, 3600.0)
    assert float(found.share) == pytest.approx(1.0, abs=1e-4)


def test_waiting_for_storage_costs_more_than_writing_beside_training():
    beside, waiting = (training_goodput(1e13, 1024.0, reliability(asynchronous=a)) for a in (1, 0))
    assert float(waiting.stall) > float(beside.stall)
    assert float(waiting.share) < float(beside.share)


def test_a_batch_of_jobs_equals_its_singles():
    devices = np.array([8.0, 512.0, 16384.0])
    many = training_goodput(1e12, devices, reliability())
    for i, count in enumerate(devices):
        one = training_goodput(1e12, float(count), reliability())
        assert float(many.share[i]) == pytest.approx(float(one.share), rel=1e-12)
        assert float(many.lost["restarts"][i]) == pytest.approx(float(one.lost["restarts"]), rel=1e-12)
