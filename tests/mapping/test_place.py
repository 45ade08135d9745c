"""Groups of ranks on a fabric."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as hy

import strata as st
from strata.hardware.fabric import ONE_RING, fabric, sized
from strata.mapping.place import place, spread
from strata.mapping.plan import DIMENSIONS, ORDERS
from strata.mapping.plan_layout import ORDERED, exchange_ranks


@given(hy.lists(hy.integers(0, 3), min_size=1, max_size=4), hy.data())
@settings(max_examples=80)
def test_a_group_lies_on_the_fabric_with_all_its_members(exponents, data):
    dimension = st.fabric("hgx-h200").dimension[0]
    fabric = replace(
        st.fabric("hgx-h200"), dimension=tuple(replace(dimension, size=2.0**e) for e in exponents)
    )
    left, degrees = sum(exponents), []
    for _ in range(3):
        degrees.append(data.draw(hy.integers(0, left)))
        left -= degrees[-1]
    tp, cp, dp, pp = (2.0**e for e in (*degrees, left))
    order = data.draw(hy.sampled_from(ORDERS))
    ep = 2.0 ** data.draw(hy.integers(0, sum(degrees)))
    plan = st.plan(tp=tp, cp=cp, dp=dp, pp=pp, ep=ep, order=order)
    placed = place(plan, fabric, frozenset(("tp", "cp", "dp", "pp", "ep", "expert_dp", ORDERED))).groups
    for name in DIMENSIONS:
        assert np.prod([s.size for s in placed[name]]) == getattr(plan, name), name
        assert all(
            s.size >= 1 and s.stride >= 1 and s.size * s.stride <= d.size
            for s, d in zip(placed[name], fabric.dimension, strict=True)
        )
    # Groups of one plan share the fabric out: each dimension is filled exactly once.
    for i, d in enumerate(fabric.dimension):
        assert np.prod([placed[name][i].size for name in DIMENSIONS]) == d.size
    if plan.ep * plan.moe_tp <= tp * cp * dp:
        assert np.prod([s.size for s in placed["ep"]]) == exchange_ranks(plan)
        assert np.prod([s.size for s in placed["expert_dp"]]) == plan.moe_groups
    if order == DIMENSIONS:  # in the usual order the two ways to lay a plan down are one
        usual = place(plan, fabric, frozenset(("tp", "cp", "dp", "pp", "ep", "expert_dp"))).groups
        for name, lies in usual.items():
            assert [(s.size, s.members) for s in placed[name]] == [(s.size, s.members) for s in lies], name
            assert [s.stride for s in placed[name] if s.size > 1] == [s.stride for s in lies if s.size > 1], (
                name
            )


def test_a_group_that_crosses_as_one_ring_lies_in_the_outer_dimension_alone():
    """DeepFlow's rule: all members a step each between packages, or all of them inside one."""

    plain = sized(fabric("hgx-h200"), (8, 4))
    inner, outer = plain.dimension
    rings = replace(plain, dimension=(inner, replace(outer, crossing=ONE_RING)))
    degrees = np.array([1.0, 2.0, 8.0, 16.0, 32.0])
    inside, between = spread(1.0, degrees, rings)
    assert inside.size.tolist() == [1.0, 2.0, 8.0, 1.0, 1.0]
    assert between.size.tolist() == [1.0, 1.0, 1.0, 16.0, 32.0]
    apart, across = spread(8.0, 4.0, rings)
    assert float(apart.size) == 1.0 and float(across.size) == 4.0
