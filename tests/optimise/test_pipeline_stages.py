"""Stages of a pipeline: the best partition of all, on chains and on graphs."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from layout_programs import gpt_layer

import strata as st
from strata.errors import BadValue
from strata.optimise.layout import chosen_layout, layout_setting
from strata.optimise.layouts.layout_rules import layout_rules
from strata.optimise.layouts.pipeline_stages import StageTensor, kernel_stages, partition_stages


def slowest_of(stage_of, times, tensors, stages, rules):
    """Brute force: the slowest stage of an assignment, infinite where it sends back."""
    work, sent = [0.0] * stages, [0.0] * stages
    for k, s in enumerate(stage_of):
        work[s] += times[k]
    for t in tensors:
        at, last = stage_of[t.producer], max((stage_of[r] for r in t.readers), default=0)
        if any(stage_of[r] < at for r in t.readers):
            return np.inf
        for s in range(at, last):
            sent[s] += t.seconds if s == at or rules.skips == "every stage" else 0.0
    both = zip(work, sent, strict=True)
    return max(max(w, s) if rules.stages == "max" else w + s for w, s in both)


@settings(max_examples=50, deadline=None)
@given(
    some.integers(0, 10**6), some.sampled_from(("max", "sum")), some.sampled_from(("direct", "every stage"))
)
def test_the_best_of_all_assignments(seed, stages, skips):
    random = np.random.default_rng(seed)
    rules, count, parts = layout_rules(stages=stages, skips=skips), 6, 3
    times = random.random(count)
    tensors = [
        StageTensor(
            i, tuple(j for j in range(i + 1, count) if random.random() < 0.4), float(random.random() / 3)
        )
        for i in range(count)
    ]
    found = partition_stages(times, tensors, parts, rules)
    every = itertools.product(range(parts), repeat=count)
    # empty stages send on what passes them; contiguous numbering leaves none empty
    truth = min(
        slowest_of(c, times, tensors, parts, rules) for c in every if set(c) == set(range(max(c) + 1))
    )
    assert found.slowest == pytest.approx(truth)
    assert found.proved


def test_a_chain_is_cut_where_it_balances():
    found = partition_stages([1.0] * 8, [StageTensor(i, (i + 1,), 0.0) for i in range(7)], 4)
    assert [len(s) for s in found.stages] == [2, 2, 2, 2]
    assert found.slowest == 2.0
    assert found.ideals == 9


def test_skip_tensors_pay_on_every_stage_passed_where_rules_say_so():
    tensors = [StageTensor(0, (1, 3), 0.25), StageTensor(1, (2,), 0.0), StageTensor(2, (3,), 0.0)]
    sent = {
        skips: partition_stages([1.0] * 4, tensors, 4, layout_rules(skips=skips)).sent
        for skips in ("direct", "every stage")
    }
    assert sent["direct"] == (0.25, 0.0, 0.0, 0.0)
    assert sent["every stage"] == (0.25, 0.25, 0.25, 0.0)


def test_too_many_ideals_leave_a_bound():
    found = partition_stages([1.0, 2.0, 1.0, 2.0, 3.0], [], 2, limit=4)
    assert found.bound <= partition_stages([1.0, 2.0, 1.0, 2.0, 3.0], [], 2).slowest <= found.slowest


def test_kernels_out_of_order_are_told():
    with pytest.raises(BadValue, match="which is after it"):
        partition_stages([1.0, 1.0], [StageTensor(1, (0,), 0.0)], 2)


def test_kernels_of_a_layer_are_cut_into_stages():
    setting = layout_setting("8xh200", gpt_layer(), st.prefill(batch=1, length=2048), {"tp": 4, "pp": 2})
    best = chosen_layout(setting)
    names, found = kernel_stages(setting, best.layout, 2)
    assert found.proved
    assert len(found.stages) == 2
    assert names[found.stages[0][0]] == "Add_Prev_Layer"
    whole = kernel_stages(setting, best.layout, 1)[1]
    assert whole.slowest == pytest.approx(best.time / 4)  # of four layers
    assert 0.5 * whole.slowest <= found.slowest < whole.slowest
