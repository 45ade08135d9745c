"""Collectives on any network: never beyond their links, longer for larger messages."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as hy

import strata as st
from strata.hardware.fabric import Dimension
from strata.mapping.place import GroupLayout
from strata.pricing.network.collectives import PATTERNS, price_collective
from strata.workload.graph import Collective


def dimension_of(kind, size, bandwidth, latency, reduction):
    return Dimension(
        name="d",
        kind=kind,
        size=size,
        bandwidth=bandwidth,
        efficiency=0.8,
        latency=latency,
        energy=1e-11,
        reduction=reduction,
    )


@hy.composite
def networks(draw):
    """One to three dimensions of any kind, and a group that lies on them."""
    made, spreads = [], []
    for _ in range(draw(hy.integers(1, 3))):
        size = 2.0 ** draw(hy.integers(0, 4))
        group = 2.0 ** draw(hy.integers(0, int(np.log2(size))))
        stride = 2.0 ** draw(hy.integers(0, int(np.log2(size / group))))
        kind, reduction = draw(
            hy.sampled_from(
                [("switch", None), ("switch", 1.0), ("ring", None), ("chain", None), ("full", None)]
            )
        )
        made.append(
            dimension_of(
                kind,
                size,
                draw(hy.sampled_from([5e10, 4.5e11])),
                draw(hy.sampled_from([0.0, 1e-6])),
                reduction,
            )
        )
        spreads.append(GroupLayout(group, stride))
    return replace(st.fabric("hgx-h200"), dimension=tuple(made)), tuple(spreads)


def priced(pattern, payload, network):
    fabric, spreads = network
    return price_collective(Collective(pattern=pattern, group="tp", payload=payload), spreads, fabric)


@given(networks(), hy.sampled_from(PATTERNS))
@settings(max_examples=150)
def test_larger_messages_take_longer(network, pattern):
    price = priced(pattern, np.geomspace(1.0, 1e10, 60), network)
    for value in (price.time, price.energy, price.lower):
        assert np.all(np.diff(np.broadcast_to(value, (60,))) >= 0)


@given(networks(), hy.sampled_from(PATTERNS))
@settings(max_examples=60)
def test_a_group_of_one_does_not_communicate(network, pattern):
    fabric, spreads = network
    price = priced(pattern, 1e6, (fabric, tuple(GroupLayout(1.0, s.stride) for s in spreads)))
    assert (price.time, price.network, price.energy, price.lower) == (0, 0, 0, 0)


@given(networks(), hy.sampled_from(PATTERNS), hy.floats(1.0, 1e10))
@settings(max_examples=200)
def test_no_collective_beats_the_bandwidth_of_its_links(network, pattern, payload):
    """Each rank must get what it does not have yet through its own links at their peak."""
    fabric, spreads = network
    price = priced(pattern, payload, network)
    ranks = np.prod([s.size for s in spreads])
    fastest = max(
        (d.bandwidth for s, d in zip(spreads, fabric.dimension, strict=True) if s.size > 1), default=np.inf
    )
    missing = payload if pattern == "send" and ranks > 1 else (ranks - 1) / ranks * payload
    assert price.time >= missing / fastest * (1 - 1e-12)
    assert price.time >= price.lower * (1 - 1e-12)


@given(networks(), hy.floats(1.0, 1e10))
@settings(max_examples=100)
def test_an_all_reduce_costs_at_most_a_reduce_scatter_and_an_all_gather(network, payload):
    whole, scatter, gather = (
        priced(p, payload, network).time for p in ("all_reduce", "reduce_scatter", "all_gather")
    )
    assert whole <= (scatter + gather) * (1 + 1e-12)
    assert whole >= max(scatter, gather) * (1 - 1e-12) or any(
        d.reduction or d.kind in ("switch", "full") for d in network[0].dimension
    )
