"""Schedules: every rank ends with what it should, no contribution counts twice, and the bytes are those of
the formula.
"""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hy

import strata as st
from strata.pricing.network.collective_schedules import (
    PIECES,
    SCHEDULES,
    legal_schedules,
    schedule,
    tree_depths,
)

shapes = (
    hy.lists(hy.integers(1, 5), min_size=1, max_size=3).filter(lambda s: 2 <= np.prod(s) <= 24).map(tuple)
)
CASES = [(pattern, name) for pattern, names in SCHEDULES.items() for name in names]


def contents(pattern, ranks, parts):
    """What each rank has of each piece before the first step: the ranks whose contributions are in it."""
    holders = {
        "all_reduce": lambda r, q: {r},
        "reduce_scatter": lambda r, q: {r},
        "all_gather": lambda r, q: {r} if q * ranks // parts == r else set(),
        "all_to_all": lambda r, q: {r} if q // ranks == r else set(),
        "broadcast": lambda r, q: {0} if r == 0 else set(),
        "send": lambda r, q: {0} if r == 0 else set(),
    }[pattern]
    return [[holders(r, q) for q in range(parts)] for r in range(ranks)]


def after(pattern, steps, ranks, parts):
    """The same after all steps. A step's messages leave before any of them arrives; a sum must not count a
    contribution twice.
    """
    held = contents(pattern, ranks, parts)
    for step in steps:
        sent = [
            (t, q, held[s][q])
            for s, t, pieces in zip(step.source, step.target, step.pieces, strict=True)
            for q in pieces
        ]
        for target, piece, given_ in sent:
            assert given_, "a rank sends what it does not have"
            old = held[target][piece]
            assert not old & given_ or given_ >= old, "a contribution counts twice"
            held[target][piece] = old | given_
    return held


def expected(pattern, rank, piece, ranks, parts):
    """The contributions that a rank must have of a piece at the end; None where it does not matter."""
    everyone, owner = set(range(ranks)), piece * ranks // parts
    return {
        "all_reduce": everyone,
        "reduce_scatter": everyone if owner == rank else None,
        "all_gather": {owner},
        "all_to_all": {piece // ranks} if piece % ranks == rank else None,
        "broadcast": {0},
        "send": {0} if rank == 1 else None,
    }[pattern]


@pytest.mark.parametrize(("pattern", "name"), CASES)
@given(sizes=shapes)
@settings(max_examples=25, deadline=None)
def test_every_rank_ends_with_what_it_should(pattern, name, sizes):
    if name not in legal_schedules(pattern, sizes):
        return
    ranks = int(np.prod(sizes))
    steps = schedule(pattern, name, sizes, 1000.0)
    parts = {"all_to_all": ranks**2}.get(pattern, 1 + max(int(step.pieces.max()) for step in steps))
    held = after(pattern, steps, ranks, parts)
    for rank in range(ranks):
        for piece in range(parts):
            wanted = expected(pattern, rank, piece, ranks, parts)
            assert wanted is None or held[rank][piece] == wanted, (rank, piece)


def total_bytes(pattern, name, sizes, n):
    """Bytes that all ranks send together, by the book."""
    p = float(np.prod(sizes))
    if pattern == "all_to_all" and name == "relay":
        return sum(p * d * (d - 1) / 2 * n / d for d in sizes)
    if name == "one_shot":
        return p * (p - 1) * n
    if pattern in ("broadcast", "send"):
        return (p - 1) * n if pattern == "broadcast" else n
    return (2 if pattern == "all_reduce" else 1) * (p - 1) * n


@pytest.mark.parametrize(("pattern", "name"), CASES)
@given(sizes=shapes, n=hy.floats(1.0, 1e9))
@settings(max_examples=25, deadline=None)
def test_bytes_are_those_of_the_formula(pattern, name, sizes, n):
    if name not in legal_schedules(pattern, sizes):
        return
    steps = schedule(pattern, name, sizes, n)
    assert sum(step.bytes.sum() for step in steps) == pytest.approx(
        total_bytes(pattern, name, sizes, n), rel=1e-9
    )
    for step in steps:
        assert (
            step.source.shape == step.target.shape == step.bytes.shape
            and np.all(step.source != step.target)
            and np.all(step.bytes > 0)
        )


def count(pattern, name, *sizes):
    return len(schedule(pattern, name, sizes, 1e6))


def test_steps_are_as_many_as_the_algorithm_says():
    assert (
        count("all_reduce", "ring", 8),
        count("all_gather", "bidirectional_ring", 8),
        count("all_gather", "bidirectional_ring", 7),
    ) == (14, 4, 3)
    assert (
        count("all_reduce", "halving_doubling", 16),
        count("all_reduce", "two_shot", 6),
        count("all_reduce", "one_shot", 6),
    ) == (8, 2, 1)
    assert (count("all_reduce", "by_dimension", 4, 3), count("all_reduce", "hierarchical", 4, 3)) == (10, 6)
    assert (
        count("all_to_all", "pairwise", 5),
        count("all_to_all", "relay", 4, 3),
        count("broadcast", "tree", 9),
    ) == (4, 9, 4)
    assert (
        count("all_reduce", "double_tree", 5) == 2 * 3 + PIECES - 1
        and count("broadcast", "pipeline", 5) == 3 + PIECES
    )


@given(hy.integers(2, 200))
@settings(max_examples=50)
def test_two_trees_are_shallow_and_a_leaf_of_one_is_inside_the_other(ranks):
    parent, depth = tree_depths(ranks)
    assert depth.max() == np.ceil(np.log2(ranks)) and np.all(depth[1:] == depth[parent[1:]] + 1)
    children = np.bincount(parent[1:], minlength=ranks)
    assert children.max() <= 2 and children[0] == 1
    # rank r is at place r of one tree and r + 1 of the other
    busy = (children > 0) & (np.roll(children, -1) > 0)
    assert not np.any(busy[:-1])  # the last rank is on top of the second tree


BAD = {
    "power": (
        ("all_reduce", "halving_doubling", (6,), 1.0),
        "all_reduce of 6 ranks goes by ring, bidirectional_ring, double_tree, one_shot, two_shot",
    ),
    "other pattern": (
        ("all_to_all", "ring", (4,), 1.0),
        "all_to_all of 4 ranks goes by direct, pairwise, relay, but got 'ring'",
    ),
    "pattern": (("allgather", "ring", (4,), 1.0), "no collective called 'allgather'; nearest: all_gather"),
    "one rank": (
        ("send", "send", (1,), 1.0),
        "a collective has sizes of at least 1 and 2 ranks or more, but got (sizes=(1,))",
    ),
    "empty": (("send", "send", (4, 0), 1.0), "a collective has sizes of at least 1"),
    "negative": (("send", "send", (4,), -1.0), "bytes of a collective must be positive numbers, but got -1"),
    "matrix": (
        ("all_reduce", "ring", (4,), np.ones((4, 4))),
        "a matrix of bytes belongs to an all_to_all and has 4 rows and columns",
    ),
    "shape": (
        ("all_to_all", "direct", (4,), np.ones((3, 3))),
        "a matrix of bytes belongs to an all_to_all and has 4 rows and columns, but got shape (3, 3)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_named_in_one_line(case):
    asked, said = BAD[case]
    with pytest.raises(st.StrataError, match="^" + re.escape(said)) as caught:
        schedule(*asked)
    assert "\n" not in str(caught.value)


@given(hy.integers(2, 8), hy.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_uneven_traffic_is_all_moved(ranks, seed):
    traffic = np.random.default_rng(seed).uniform(0.0, 200.0, (ranks, ranks))
    direct = traffic.sum() - np.trace(traffic)
    for name in SCHEDULES["all_to_all"]:
        steps = schedule("all_to_all", name, (ranks,), traffic)
        moved = sum(step.bytes.sum() for step in steps)
        assert moved >= direct * (1 - 1e-9) if name == "relay" else moved == pytest.approx(direct)
