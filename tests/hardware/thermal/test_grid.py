"""Layers and their cells: edges, blocks, shares of a power map, and assemblies that cannot be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as hy

from strata.base.errors import BadFile, BadValue, UnknownName
from strata.hardware.thermal.grid import (
    Assembly,
    Layer,
    convection_resistance,
    edges,
    layer_blocks,
    slab_resistance,
    strip_shares,
)


def die(**changes):
    return Layer(**{"name": "die", "side": 0.01, "thickness": 1e-4, "conductivity": 100.0} | changes)


def wide(cells=8, lid=1.7, sink=3.0):
    """A die under a lid under a sink, each larger than what is below it."""
    return Assembly(
        (die(), die(name="lid", side=0.01 * lid, slices=2), die(name="sink", side=0.01 * sink)),
        1e4,
        300.0,
        cells=cells,
    )


@pytest.mark.parametrize("lid, sink", [(1.0, 1.0), (1.7, 1.7), (1.7, 3.0), (1.01, 9.0)])
@pytest.mark.parametrize("cells", [1, 4, 9])
def test_cells_are_equal_below_the_smallest_layer_and_end_on_every_edge(cells, lid, sink):
    lines = edges(wide(cells, lid, sink))
    assert lines == pytest.approx(-lines[::-1]) and np.all(np.diff(lines) > 0)
    for side in (0.01, 0.01 * lid, 0.01 * sink):
        assert np.min(np.abs(lines - side / 2)) < 1e-12
    inner = np.diff(lines[np.abs(lines) <= 0.005 * (1 + 1e-9)])
    assert len(inner) == cells and inner == pytest.approx(0.01 / cells)


def test_a_block_holds_the_layers_of_one_side():
    made = wide()
    blocks, places = layer_blocks(made, edges(made))
    assert [len(b.thickness) for b in blocks] == [1, 2, 1]
    assert [b.widths.sum() for b in blocks] == pytest.approx([0.01, 0.017, 0.03])
    assert [b.start for b in blocks] == [0, blocks[0].size, blocks[0].size + blocks[1].size]
    assert places["lid"] == (blocks[1], slice(0, 2)) and places["sink"][1] == slice(0, 1)
    # half a slice of the die and half a slice of the lid, then the coolant above half of the sink
    assert blocks[0].top == pytest.approx(1 / (1e-4 / 2 / 100.0 + 1e-4 / 4 / 100.0))
    assert blocks[-1].top == pytest.approx(1 / (1e-4 / 2 / 100.0 + 1e-4))


def test_conduction_inside_a_block_moves_no_heat_where_all_is_as_warm():
    made = wide()
    for block in layer_blocks(made, edges(made))[0]:
        assert block.stiffness @ np.ones(len(block.widths)) == pytest.approx(0.0, abs=1e-9)
        values, vectors = block.modes
        assert values[0] == 0 and np.all(values[1:] > 0)
        assert vectors.T @ np.diag(block.widths) @ vectors == pytest.approx(np.eye(len(values)), abs=1e-9)


@given(hy.lists(hy.floats(1e-4, 1e-2), min_size=1, max_size=12), hy.integers(1, 12))
def test_strips_of_a_power_map_lose_nothing_to_cells(widths, count):
    lines = np.concatenate([[0.0], np.cumsum(widths)])
    shares = strip_shares(lines, count)
    assert shares.shape == (count, len(widths)) and np.all(shares >= 0)
    assert shares.sum(axis=1) == pytest.approx(1.0)


def test_resistances_in_series_add_up():
    halves = 2 * slab_resistance(25e-6, 4.0, 1e-4)
    assert halves == pytest.approx(slab_resistance(50e-6, 4.0, 1e-4))
    assert convection_resistance(1e4, 2e-4) == pytest.approx(convection_resistance(1e4, 1e-4) / 2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Assembly((), 1e4, 300.0), "at least one layer"),
        (
            lambda: Assembly((die(conductivity=0.0),), 1e4, 300.0),
            "conductivity of layer die must be positive",
        ),
        (lambda: Assembly((die(lateral=-1.0),), 1e4, 300.0), "lateral of layer die must be positive"),
        (lambda: Assembly((die(thickness=-1e-6),), 1e4, 300.0), "thickness of layer die must be positive"),
        (
            lambda: Assembly((die(thickness=float("nan")),), 1e4, 300.0),
            "thickness of layer die must be positive",
        ),
        (
            lambda: Assembly((die(), die(name="lid", side=0.005)), 1e4, 300.0),
            "lid must be at least as large as die",
        ),
        (lambda: Assembly((die(), die()), 1e4, 300.0), "names of their own"),
        (lambda: Assembly((die(),), 0.0, 300.0), "coefficient must be positive"),
        (lambda: Assembly((die(),), 1e4, 300.0, height=5e-5), "but its package has room for"),
    ],
)
def test_a_bad_assembly_gets_one_line(make, words):
    with pytest.raises((BadValue, BadFile, UnknownName)) as stop:
        make()
    said = str(stop.value)
    assert words in said and "\n" not in said and "nan" not in said.replace("nan)", "")
