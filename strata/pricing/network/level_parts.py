"""Levels: the dimensions that a collective of a library crosses, as one algorithm over all finds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strata.arrays import Number, namespace
from strata.hardware.fabric import Dimension
from strata.hardware.transport import Transport
from strata.mapping.place import GroupLayout
from strata.pricing.network.algorithm_names import always_crosses
from strata.pricing.network.algorithms import group_link


def between_nodes(dimension: Dimension) -> bool:
    """Whether a library's proxies move messages over adapters of a network in this dimension."""
    transport = dimension.transport_model
    return dimension.medium == "network" and transport is not None and transport.rings.post is not None


def joins_levels(dimensions: Sequence[Dimension]) -> bool:
    """Whether a library's one algorithm runs over these dimensions: all its own, one between nodes."""
    known = all(d.transport_model is not None and not d.collectives for d in dimensions)
    return known and any(between_nodes(d) for d in dimensions)


@dataclass(frozen=True, eq=False, slots=True)
class Level:
    """One dimension as a collective over several finds it."""

    size: Number  # members of the group
    inner: Number  # ranks of the group inside one member
    outer: Number  # ranks inside this level and all below it
    link: Number  # most of one rank into the group, one direction [B/s]
    all_links: Number  # of all ranks inside one member together [B/s]
    dimension: Dimension
    transport: Transport
    network: bool  # between nodes
    always: bool  # every point crosses it, as far as is known

    def where(self, value: Number) -> Number:
        """A quantity where the group crosses the level, else 0."""
        return value if self.always else namespace(self.size, value).where(self.size > 1, value, 0.0)

    def step(self, protocol: str) -> Number:
        """Until a rank over there sees a piece [s]: latency, and what the host's proxy adds."""
        rings = self.transport.rings
        post = 0.0 if rings.post is None else rings.post.get(protocol, 0.0)
        return self.dimension.latency * rings.step[protocol] + post


def make_level(layout: GroupLayout, dimension: Dimension, transport: Transport, inner: Number = 1.0) -> Level:
    """A level of a group that lies so in a dimension, `inner` ranks of it inside each member."""
    link, most = group_link(layout, dimension), transport.rings.ceiling
    if most is not None:
        link = namespace(link, most).minimum(link, most)
    return Level(
        size=layout.size,
        inner=inner,
        outer=layout.size if inner.__class__ is float and inner == 1.0 else inner * layout.size,
        link=link,
        all_links=link if inner.__class__ is float and inner == 1.0 else inner * link,
        dimension=dimension,
        transport=transport,
        network=between_nodes(dimension),
        always=always_crosses(layout.size),
    )


def crossed_levels(layouts: Sequence[GroupLayout], dimensions: Sequence[Dimension]) -> list[Level]:
    """The dimensions a group crosses at some point, innermost first."""
    levels = []
    inner: Number = 1.0
    for layout, dimension in zip(layouts, dimensions, strict=True):
        crossed = not (layout.size.__class__ is float and layout.size <= 1.0)
        if crossed and dimension.transport_model is not None:
            levels.append(make_level(layout, dimension, dimension.transport_model, inner))
        inner = layout.members if inner.__class__ is float and inner == 1.0 else inner * layout.members
    return levels
