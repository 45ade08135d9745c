"""Degrees and placement: all factorisations, each placed in every way."""

import numpy as np

import strata as st
from strata.hardware.system import as_system
from strata.optimise.layouts.layout_degrees import degree_candidates, factorisations
from strata.optimise.layouts.layout_options import layout_rules

WORK = st.train(batch=16, length=2048)


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
