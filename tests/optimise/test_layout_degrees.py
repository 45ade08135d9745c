"""Degrees and placement: the best of all factorisations, with a certificate of what was bounded away."""

import numpy as np
import pytest
from layout_programs import gpt_layer

import strata as st
from strata.hardware.system import as_system
from strata.optimise.layouts.layout_degrees import best_degrees, degree_candidates, factorisations
from strata.optimise.layouts.layout_rules import layout_rules

WORK = st.train(batch=16, length=2048)
SMALL = gpt_layer(hidden=4096.0, heads=32.0, layers=8.0)


def test_factorisations_are_all_there():
    assert len(list(factorisations(1024, 3))) == 66  # of ten twos among three dimensions: 12 over 2
    assert all(np.prod(f) == 24 for f in factorisations(24, 3))


def test_every_candidate_uses_all_devices_and_lies_otherwise():
    system = as_system("16xh200")
    found = list(degree_candidates(system, 8.0, WORK, ("tp",), layout_rules()))
    assert all(np.prod(list(c.mesh.values())) == 16 for c in found)
    assert {c.stages for c in found} == {1.0, 2.0, 4.0, 8.0}
    marks = [
        (sorted(c.mesh.items()), [[(g.size, g.stride) for g in c.placement.groups[d]] for d in sorted(c.placement.groups)])
        for c in found
    ]  # fmt: skip
    assert all(a != b for i, a in enumerate(marks) for b in marks[:i])


def test_one_strategy_a_fabric_dimension_subdivides_none():
    system = as_system("16xh200")
    rules = layout_rules("dfmodel-2024")
    found = list(degree_candidates(system, 8.0, WORK, ("tp",), rules))
    assert found
    assert {n for c in found for n in c.mesh.values()} <= {1.0, 2.0, 8.0, 16.0}
    assert len(found) < len(list(degree_candidates(system, 8.0, WORK, ("tp",), layout_rules())))


def test_the_best_is_the_best_of_all_and_bounds_are_below():
    best = best_degrees("8xh200", SMALL, WORK)
    assert best.proved
    assert best.best.fits
    assert len(best.priced) + best.bounded == best.candidates
    system = as_system("8xh200")
    every = list(degree_candidates(system, 8.0, WORK, ("tp",), layout_rules()))
    assert best.candidates == len(every)
    fit = [p.step for p in best.priced if p.fits]
    assert best.best.step <= min(fit) * (1 + 1e-12)


def test_what_fits_fits_and_what_does_not_is_said():
    best = best_degrees("8xh200", gpt_layer(layers=8.0), WORK)
    assert best.best is not None
    assert best.best.memory <= float(as_system("8xh200").chip.memory.capacity)
    assert any(not p.fits for p in best.priced)
    huge = best_degrees("8xh200", gpt_layer(layers=96.0), st.train(batch=8, length=2048))
    assert huge.best is None
    assert "does not fit" in huge.advice


def test_dfmodel_formula_of_a_step():
    """II (1 + (PP - 1) / (m (L - 1))) L batch / DP + p2p, by hand from the parts of a priced candidate."""
    best = best_degrees("8xh200", SMALL, WORK, rules=layout_rules(step="formula"))
    for p in best.priced:
        c = p.candidate
        layers = 8.0 / c.stages
        fill = 1.0 + (c.stages - 1.0) / (c.microbatches * max(layers - 1.0, 1.0))
        by_hand = p.stage * fill * c.microbatches + p.send * c.microbatches + p.gradients
        assert p.step == pytest.approx(by_hand)


def test_hundreds_of_devices_take_seconds():
    best = best_degrees("256xh200", gpt_layer(layers=96.0), st.train(batch=512, length=2048), time_limit=60.0)
    assert best.proved
    assert best.best.fits
    assert best.seconds < 60.0
    assert best.bounded > 0
