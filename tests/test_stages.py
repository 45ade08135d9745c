"""Stages: what is compiled in parts gives what the whole gives, and works nothing out at a larger shape than
its own.
"""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("jax")

from strata.base.arrays import choose, enable_jax, namespace, repeated
from strata.base.batch import pieces, run_box
from strata.base.stages import cut, flattened, kept_quantities, staged

ROWS, COLUMNS = np.linspace(1.0, 2.0, 5)[:, None], np.linspace(0.5, 3.0, 7)


def mixed(x, y):
    """Small axes that meet, a choice, a loop and a reduction, each of them used more than once."""
    xp = namespace(x, y)
    per_row = xp.exp(xp.sqrt(x) + 0.5) / (1.0 + x)
    per_column = xp.log(y + 1.0) / (y * y + 1.0)
    both = per_row * per_column + per_row / per_column
    (picked,) = choose(xp.stack([both, 2.0 - both]), xp.stack([per_row + 0.0 * y, per_column + 0.0 * x]))
    rooted = repeated(60, lambda v: 0.5 * (v + both / v), 1.0 + 0.0 * both, 1e-13)
    return {"both": both, "picked": picked * rooted, "most": xp.max(both), "rooted": rooted}


def traced(function, *inputs):
    jax = enable_jax()
    return flattened(jax.make_jaxpr(lambda *given: jax.tree_util.tree_leaves(function(*given)))(*inputs))


def test_stages_give_what_numpy_gives():
    run = staged(mixed)
    for factor in (1.0, 1.7):  # the second call is not compiled again
        expected, found = mixed(factor * ROWS, COLUMNS), run(factor * ROWS, COLUMNS)
        assert expected.keys() == found.keys()
        for name, value in expected.items():
            assert np.allclose(np.asarray(found[name]), value, rtol=1e-12, atol=0.0), name


def test_a_small_axis_is_worked_out_at_its_own_size():
    """The exponential of a row is a number a row in every stage, never one a point, and no stage works it out
    again.
    """
    flat = traced(mixed, ROWS, COLUMNS)
    dear = [e for stage in cut(flat) for e in stage.equations if e.operation.name in ("exp", "log")]
    assert len(dear) == 2
    assert all(flat.size(e.gives[0]) < ROWS.size * COLUMNS.size for e in dear)
    assert {
        n for e in flat.equations for n in e.gives if e.operation.name == "reduce_max"
    } <= kept_quantities(flat)


def test_equal_equations_are_merged_and_idle_ones_dropped():
    def twice(x):
        xp = namespace(x)
        _ = xp.log(x)
        return xp.exp(x * 2.0) + xp.exp(x * 2.0)

    names = [e.operation.name for e in traced(twice, COLUMNS).equations]
    assert names.count("exp") == 1 and "log" not in names


def test_stages_take_what_earlier_ones_gave():
    flat = traced(mixed, ROWS, COLUMNS)
    there = set(flat.inputs) | set(flat.fixed)
    for stage in cut(flat):
        assert set(stage.takes) <= there
        there = (there | set(stage.gives)) - set(stage.last)
    assert set(flat.results) <= there


@pytest.mark.parametrize("shape", [(12, 5), (3, 7, 11), (29,)])
def test_even_pieces_cover_a_box_and_have_one_shape(shape):
    seen = np.zeros(shape, int)
    found = list(pieces(shape, 10, even=True))
    for where in found:
        seen[where] += 1
    assert seen.min() == 1
    assert len({tuple(s.stop - s.start for s in where) for where in found}) == 1


def test_workers_change_nothing():
    x, y = np.arange(40.0)[:, None], np.arange(9.0)
    alone, shared_out = (
        run_box(lambda t: (t[0] * t[1], t[0] - t[1]), (x, y), (40, 9), 50, True, workers)
        for workers in (1, 3)
    )
    assert all(np.array_equal(a, b) for a, b in zip(alone, shared_out, strict=True))
    assert np.array_equal(alone[0], x * y)


def test_records_of_modules_loaded_later_are_known_to_jax():
    """A program loads when it is first asked for, which may be after JAX was used."""
    pytest.importorskip("jax")
    code = (
        "import strata as st\n"
        "st.evaluate('8xh200', 'llama-3-8b', st.decode([1, 2], 1024), 'tp=8', backend='jax')\n"
        "lstm, work = st.program('lstm-lm-v100'), st.forward([8, 16])\n"
        "one, other = (st.evaluate('1xh200', lstm, work, backend=b) for b in ('jax', 'numpy'))\n"
        "assert abs(one.metrics.step_time / other.metrics.step_time - 1).max() < 1e-9\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
