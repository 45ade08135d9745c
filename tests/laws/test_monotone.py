"""More of anything is never slower, and more work never faster."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from cases import FAMILIES, points, roomy, uncapped
from hypothesis import given, settings
from hypothesis import strategies as hy

import strata as st
from strata.base.batch import take

BETTER = [
    "memory.bandwidth",
    "cache.bandwidth",
    "cache.capacity",
    "compute.matrix_rate.*",
    "compute.vector_rate",
    "compute.special_rate",
    "link.bandwidth",
    "link.latency",
    "overhead.kernel",
    "overhead.launch",
    "memory.capacity",
    "memory.latency",
]
FACTORS = np.array([1.0, 1.01, 1.3, 2.0, 5.0, 40.0])


def improved(where, what):
    """The system with one quantity better by each of FACTORS: times divided, everything else multiplied."""
    owner, _, field = what.partition(".")
    factor = 1 / FACTORS if owner == "overhead" or field == "latency" else FACTORS
    if owner == "link":
        dimensions = tuple(replace(d, **{field: getattr(d, field) * factor}) for d in where.fabric.dimension)
        return replace(where, fabric=replace(where.fabric, dimension=dimensions))
    part = getattr(where.chip, owner)
    if field.endswith(".*"):
        changed = {field[:-2]: {k: v * factor for k, v in getattr(part, field[:-2]).items()}}
    else:
        changed = {field: getattr(part, field) * factor}
    return replace(where, chip=replace(where.chip, **{owner: replace(part, **changed)}))


@pytest.mark.parametrize("what", BETTER)
@given(point=points(models=FAMILIES))
@settings(max_examples=25)
def test_more_of_anything_is_never_slower(what, point):
    """Without a power limit: under one, more of a thing may draw more and lower the clock."""
    where, *rest = point
    where = uncapped(where)
    r = st.evaluate(improved(where, what), *rest, engine="vllm")
    times = np.broadcast_to(r.metrics.step_time, FACTORS.shape)
    assert np.all(times[1:] <= times[:-1] * (1 + 1e-7))  # choices between equals are made to 1e-9 each


@pytest.mark.parametrize(
    "what", ["memory.bandwidth", "compute.matrix_rate.*", "link.bandwidth", "overhead.kernel"]
)
def test_more_of_what_binds_is_faster(what):
    """The law above is not kept by ignoring the quantity."""
    where, plan = uncapped(roomy("8xh200")), st.plan(tp=8)
    work = st.prefill(8, 4096) if "matrix" in what or "link" in what else st.decode(8, 4096)
    times = st.evaluate(improved(where, what), "llama-3-70b", work, plan).metrics.step_time
    assert times[2] < 0.98 * times[0]  # 30 % more


SERVED = ("memory.bandwidth", "compute.matrix_rate.*", "link.bandwidth", "overhead.kernel", "memory.capacity")


@pytest.mark.parametrize("clients", [4, 64])
@pytest.mark.parametrize("what", SERVED)
@given(name=hy.sampled_from(["llama-3-8b", "qwen3-30b-a3b"]), length=hy.sampled_from([256, 2048]))
@settings(max_examples=4)
def test_clients_of_a_better_system_wait_no_longer(what, clients, name, length):
    """Requests served in closed form, on a system with one quantity better."""
    requests = st.serving.Requests(float(length), 128.0)
    seen = [
        st.serving.closed_load(st.serving.curve(system, name, requests, st.plan(tp=2)), float(clients))
        for system in (uncapped(take(improved(st.system("2xh200"), what), (i,), 1)) for i in (0, 2, 3))
    ]
    for one, better in pairwise(seen):
        assert better.tpot <= one.tpot * (1 + 1e-6) and better.tokens_per_s >= one.tokens_per_s * (1 - 1e-6)


@given(points(models=FAMILIES))
@settings(max_examples=40)
def test_more_work_is_never_faster(point):
    """Four times the sequences, or four times the tokens of each, on the same plan."""
    where, made, work, plan = point
    plan = replace(plan, microbatches=1.0)
    scale = np.array([1.0, 4.0])
    for field in ("batch", "sequence", "context"):
        if work.phase == "decode" and field == "sequence":
            continue
        if field == "context" and work.phase != "decode":
            continue
        grown = {field: getattr(work, field) * scale} | (
            {"context": work.context * scale} if field == "sequence" else {}
        )
        times = st.evaluate(where, made, replace(work, **grown), plan).metrics.step_time
        # A larger piece may fill cores better: the same bytes then flow a little faster.
        assert times[0] <= times[1] * 1.02, field
