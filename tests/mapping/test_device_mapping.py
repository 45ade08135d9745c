"""Shards laid over a grid: each has a device of its own, neighbours stay neighbours, and equal dimensions are
interchangeable.
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from deepflow.device_mapping import (
    LogicalDimension,
    lay_out,
    mapping_orders,
    shard_count,
    talking_shards,
)
from strata.base.errors import BadValue

degrees = some.lists(some.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)


def mesh_of(sizes, topology="ring"):
    return tuple(LogicalDimension(f"d{k}", n, topology) for k, n in enumerate(sizes))


@given(sizes=degrees, laying=some.sampled_from(["wrap", "snake"]))
def test_every_shard_has_a_device_of_its_own(sizes, laying):
    mesh, grid = mesh_of(sizes), (6, 6, 36)
    for order in mapping_orders(mesh):
        places = lay_out(mesh, order, grid, laying)
        if places is None:
            assert laying == "snake"
            continue
        assert len(set(places.values())) == shard_count(mesh) == len(places)
        assert all(0 <= p < n for place in places.values() for p, n in zip(place, grid, strict=True))


@given(rows=some.tuples(some.integers(1, 4), some.integers(1, 4), some.integers(1, 4)))
def test_a_snake_keeps_a_chain_on_neighbours(rows):
    count = rows[0] * rows[1] * rows[2]
    mesh = (LogicalDimension("pp", count, "chain"),)
    order = mapping_orders(mesh)[0] if count > 1 else ()
    path = list(lay_out(mesh, order, rows, "snake").values())
    assert all(sum(abs(a - b) for a, b in zip(p, q, strict=True)) == 1 for p, q in pairwise(path))


def test_orders_are_those_of_different_degrees():
    # 4! / (2! 2!) and, where one of the equal ones is a chain, all that tell it from a ring
    assert len(mapping_orders(mesh_of((4, 4, 2, 2)))) == 6
    chain = (*mesh_of((4, 4, 2)), LogicalDimension("pp", 4, "chain"))
    assert len(mapping_orders(chain)) == 12
    assert len(mapping_orders(mesh_of((4, 4)), {"d0": 1e9, "d1": 1e6})) == 2
    # of two, a ring and a chain are the same pair
    assert len(mapping_orders((*mesh_of((2,)), LogicalDimension("pp", 2, "chain")))) == 1


def test_pairs_of_each_topology_by_hand():
    assert LogicalDimension("ep", 4, "full").pairs() == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    assert LogicalDimension("tp", 2).pairs() == [(0, 1)]
    assert LogicalDimension("tp", 1).pairs() == []
    mesh = (LogicalDimension("tp", 4), LogicalDimension("dp", 3))
    assert {name: len(pairs) for name, pairs in talking_shards(mesh).items()} == {"tp": 12, "dp": 12}


def test_what_does_not_fit_or_is_unknown_is_one_line():
    with pytest.raises(BadValue, match=r"must fit on the 2x2 devices, but got \(shards=8\)"):
        lay_out(mesh_of((8,)), ("d0",), (2, 2))
    with pytest.raises(BadValue, match="one of ring, chain, full, but got 'star'"):
        LogicalDimension("tp", 4, "star")
    with pytest.raises(BadValue, match="whole number of at least 1"):
        LogicalDimension("tp", 0)
    with pytest.raises(BadValue, match="wrap or snake"):
        lay_out(mesh_of((4,)), ("d0",), (2, 2), "spiral")
