"""The switch that bounds of a search are priced with: no way through a fabric beats it, in a node, over
several, or by kernels for experts.
"""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as hy

from strata.hardware.fabric import fabric, sized, with_library
from strata.mapping.place import GroupLayout
from strata.pricing.network.collectives import PATTERNS, price_collective
from strata.pricing.network.expert_exchange import price_exchange
from strata.search.relax import best_switch
from strata.workload.graph import Collective, Exchange

FABRICS = (
    *("hgx-a100", "hgx-h100", "hgx-h200", "hgx-h800", "hgx-b200", "hgx-b300", "nvl72", "nvl72-roce"),
    *("p4d-efa", "p5-efa", "a3-tcpx", "alps-gh200", "gh200-nvl32", "mi300x-node", "mi355x-node"),
    *("dgx-1-v100", "dgx-2", "fat-tree-ndr", "wse-node", "slingshot-dragonfly"),
)
SIZES = np.geomspace(8.0, 1e10, 31)


@hy.composite
def groups(draw):
    """A shipped fabric as an engine uses it, and a group that lies on it."""
    made = fabric(draw(hy.sampled_from(FABRICS)))
    sizes = tuple(64.0 if d.size is None else float(np.max(d.size)) for d in made.dimension)
    made = with_library(sized(made, sizes), draw(hy.sampled_from(("any", "library"))))
    layouts = tuple(GroupLayout(float(2 ** draw(hy.integers(0, int(np.log2(size))))), 1.0) for size in sizes)
    return made, layouts


def bound(made, layouts):
    """The same group on the best switch."""
    total = sum(float(d.bandwidth) for d in made.dimension)
    ranks = float(np.prod([one.size for one in layouts]))
    switch = best_switch([made], total, max(ranks, 1.0))
    return replace(made, dimension=(switch,)), (GroupLayout(ranks, 1.0),)


@given(groups(), hy.sampled_from(PATTERNS))
@settings(max_examples=150, deadline=None)
def test_no_collective_beats_the_best_switch_nor_its_lower_bound(group, pattern):
    op = Collective(pattern=pattern, group="tp", payload=SIZES)
    (made, layouts), (best, whole) = group, bound(*group)
    price, least = price_collective(op, layouts, made), price_collective(op, whole, best)
    assert np.all(price.lower <= price.time * (1 + 1e-9))
    assert np.all(least.time <= price.time * (1 + 1e-9))


@given(
    groups(),
    hy.sampled_from(("dispatch", "combine")),
    hy.sampled_from((1.0, 2.0, 8.0)),
    hy.sampled_from(((1.0, 1.0), (8.0, 4.0))),
    hy.sampled_from((1.0, 1.5, 3.0)),
    hy.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_no_exchange_beats_the_best_switch_nor_its_lower_bound(
    group, direction, picks, routing, busiest, generates
):
    (made, layouts), (best, whole) = group, bound(*group)
    tokens, ranks = np.geomspace(1.0, 32768.0, 31), whole[0].size
    element = 1.0 if direction == "dispatch" else 2.0
    sizes = {"tokens": tokens, "top_k": picks, "experts": 256.0, "width": 7168.0, "element": element}
    uneven = {"busiest": busiest, "received": 0.5 + 0.5 * busiest, "generates": generates}
    sent = Exchange(direction=direction, groups=routing[0], top_groups=routing[1], **sizes, **uneven)
    copies = ranks * (1.0 - (1.0 - 1.0 / ranks) ** picks)
    payload = tokens * 7168.0 * element * copies
    op = Collective(pattern="all_to_all", group="ep", payload=payload, exchange=sent)
    price, least = price_exchange(op, layouts, made), price_exchange(op, whole, best)
    assert np.all(price.lower <= price.time * (1 + 1e-9))
    assert np.all(least.time <= price.time * (1 + 1e-9))
