"""Collectives at once: never faster than alone, never slower than one after the other, no byte lost."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hy

import strata as st
from strata.pricing.network.collectives import PATTERNS
from strata.pricing.network.concurrent import fair_share_finish, finish_times, time_by_link

times = hy.floats(0.0, 1e3)


@given(hy.lists(hy.tuples(times, times), min_size=1, max_size=6))
def test_a_shared_link_does_all_the_work_and_no_more(found):
    works, rests = [w for w, _ in found], [r for _, r in found]
    ends = fair_share_finish(works, rests)
    for (work, rest), end in zip(found, ends, strict=True):
        assert work + rest <= end * (1 + 1e-12) + 1e-12 and end <= rest + sum(works) + 1e-9
    # the link is busy until the last is done
    assert max(e - r for e, r in zip(ends, rests, strict=True)) == pytest.approx(sum(works), abs=1e-9)


def test_a_shared_link_gives_equal_shares():
    """Step by step: while n send, each has an n-th; compared with a fluid of small steps."""
    works = np.array([1.0, 2.5, 4.0])
    left, clock, done, step = works.copy(), 0.0, np.zeros(3), 1e-4
    while np.any(left > 0):
        active = left > 0
        left = np.where(active, left - step / active.sum(), left)
        clock += step
        done = np.where(active & (left <= 0), clock, done)
    np.testing.assert_allclose(fair_share_finish(tuple(works), (0.0,) * 3), done, rtol=1e-3)


asked = hy.fixed_dictionaries(
    {
        "pattern": hy.sampled_from(PATTERNS),
        "bytes": hy.floats(1.0, 1e10),
        "ranks": hy.sampled_from([2, 4, 8, 32]),
    }
)
PLACES = ("4x8xh200", "torus", "tree")


def place(name):
    if name == "torus":
        return st.hardware.sized(st.fabric("torus-256"), (4, 4, 2))
    return st.hardware.sized(st.fabric("fat-tree-ndr"), (8, 2, 2)) if name == "tree" else name


@given(
    hy.sampled_from(PLACES),
    hy.lists(asked, min_size=1, max_size=4),
    hy.sampled_from(["ideal", "megatron"]),
    hy.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_laws_of_collectives_at_once(where, several, engine, links):
    found = st.network.concurrent_collectives(place(where), several, engine=engine, links=links)
    for one, end in zip(found.alone, found.finish, strict=True):
        assert end >= one.time * (1 - 1e-9)
    assert found.time <= found.one_after_the_other * (1 + 1e-9)
    if len(several) == 1:
        assert found.time == pytest.approx(float(found.alone[0].time))
    for one in found.alone:
        works, rest = time_by_link(one)
        assert (
            rest >= -1e-15 * one.time
            and all(w >= 0 for w in works.values())
            and sum(works.values()) + rest == pytest.approx(float(one.time))
        )


@given(hy.lists(asked, min_size=2, max_size=3))
@settings(max_examples=30, deadline=None)
def test_a_batch_of_collectives_at_once_equals_singles(several):
    sizes = np.array([1e3, 1e6, 1e9])
    batch = st.network.concurrent_collectives(
        "4x8xh200", [one | {"bytes": sizes} for one in several], links=True
    )
    for i, size in enumerate(sizes):
        single = st.network.concurrent_collectives(
            "4x8xh200", [one | {"bytes": float(size)} for one in several], links=True
        )
        for many, one in zip(batch.finish, single.finish, strict=True):
            assert float(np.broadcast_to(many, (3,))[i]) == pytest.approx(float(one), rel=1e-12)


def test_only_links_that_both_cross_are_shared():
    inside = {"pattern": "all_gather", "bytes": 1e9, "ranks": 8}
    between = {"pattern": "all_gather", "bytes": 1e9, "ranks": 4, "stride": 8}
    apart = st.network.concurrent_collectives("4x8xh200", [inside, between], links=True)
    assert [float(t) for t in apart.finish] == pytest.approx([float(c.time) for c in apart.alone])
    same = st.network.concurrent_collectives("4x8xh200", [inside, inside], links=True)
    latency = float(st.fabric("hgx-h200").dimension[0].latency)
    assert float(same.time) == pytest.approx(2 * float(same.alone[0].time) - latency)
    assert finish_times(same.alone) == same.finish
    # A spine is reached through the leaf's adapters: what crosses one meets what crosses the other.
    tree = st.hardware.sized(st.fabric("fat-tree-ndr"), (8, 4, 2))
    leaf, spine = (
        {"pattern": "all_gather", "bytes": 1e9, "ranks": r, "stride": s} for r, s in ((4, 8), (2, 32))
    )
    met = st.network.concurrent_collectives(tree, [leaf, spine], links=True)
    assert all(end > one.time for end, one in zip(met.finish, met.alone, strict=True))


BAD = {
    "none": ([], "concurrent_collectives needs one collective or more"),
    "no bytes": (
        [{"pattern": "send"}],
        "a collective of concurrent_collectives has pattern and bytes, and may have ranks, stride, algorithm, but got pattern",
    ),
    "more": (
        [{"pattern": "send", "bytes": 1, "size": 2}],
        "a collective of concurrent_collectives has pattern and bytes",
    ),
    "shapes": (
        [{"pattern": "send", "bytes": np.ones(2)}, {"pattern": "send", "bytes": np.ones(3)}],
        "collectives at once must broadcast against each other, but got send (2,), send (3,)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_one_line(case):
    several, said = BAD[case]
    with pytest.raises(st.StrataError, match="^" + re.escape(said)):
        st.network.concurrent_collectives("8xh200", several)
