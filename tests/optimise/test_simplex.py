"""Laws of the projection onto shares: feasible, idempotent, nearest, order kept, rows apart, alike under JAX."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy.optimize import minimize

from deepflow.design.variables import project_shares
from strata.base.errors import BadValue

ROWS = some.lists(some.floats(-3.0, 3.0), min_size=1, max_size=8)
FLOORS = some.sampled_from([0.0, 0.01, 0.1])


def feasible(rng, count, floor):
    """Random shares that keep the rules."""
    drawn = rng.dirichlet(np.ones(count + 1), 400)[:, :count]
    return floor + (1.0 - count * floor) * drawn


@settings(max_examples=60, deadline=None)
@given(ROWS, FLOORS)
def test_the_projection_is_feasible_idempotent_and_keeps_order(row, floor):
    row = np.array(row)
    shares = project_shares(row, floor)
    assert np.all(shares >= floor) and shares.sum() <= 1.0 + 1e-12
    assert np.allclose(project_shares(shares, floor), shares, atol=1e-12)
    order = np.argsort(row, kind="stable")
    assert np.all(np.diff(shares[order]) >= 0.0)


@settings(max_examples=60, deadline=None)
@given(ROWS, FLOORS, some.integers(0, 99))
def test_no_feasible_point_is_nearer(row, floor, seed):
    row = np.array(row)
    distance = np.linalg.norm(project_shares(row, floor) - row)
    others = feasible(np.random.default_rng(seed), len(row), floor)
    assert np.all(np.linalg.norm(others - row, axis=1) >= distance - 1e-12)


def test_a_general_solver_finds_the_same_point():
    row = np.array([0.8, 0.05, 0.4, -0.3])
    found = minimize(
        lambda w: np.sum((w - row) ** 2),
        np.full(4, 0.25),
        bounds=[(0.02, 1.0)] * 4,
        constraints={"type": "ineq", "fun": lambda w: 1.0 - w.sum()},
        options={"ftol": 1e-14},
    )
    assert project_shares(row, 0.02) == pytest.approx(found.x, abs=1e-6)


def test_a_batch_equals_its_rows():
    rows = np.random.default_rng(0).normal(size=(5, 3, 6))
    whole = project_shares(rows, 0.01, total=0.9)
    assert np.array_equal(whole[2, 1], project_shares(rows[2, 1], 0.01, total=0.9))


def test_feasible_shares_stay():
    assert project_shares(np.array([0.2, 0.3])).tolist() == [0.2, 0.3]


def test_floors_that_do_not_fit_are_refused():
    with pytest.raises(BadValue, match="floors of all shares fit the total"):
        project_shares(np.ones(3), floor=0.5)


def test_jax_gives_the_same_and_a_gradient():
    jax = pytest.importorskip("jax")
    from strata.base.arrays import enable_jax

    enable_jax()
    row = np.array([0.8, 0.05, 0.4, -0.3])
    traced = jax.jit(lambda w: project_shares(w, 0.02))(jax.numpy.asarray(row))
    assert np.asarray(traced) == pytest.approx(project_shares(row, 0.02), abs=1e-12)
    slope = jax.grad(lambda w: project_shares(w, 0.0)[0])(jax.numpy.asarray(row))
    assert np.asarray(slope) == pytest.approx([0.5, 0.0, -0.5, 0.0])
