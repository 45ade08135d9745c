"""Transports: what the software that moves messages over a link costs, as data beside the link's own numbers.

A dimension of a fabric without a transport is ideal: steps of its latency, messages at its sustained
bandwidth. With one, a collective is what a library's kernels make of it: starts and steps take time, and each
way of sending has its share of the link. Shares and steps are relative to the dimension's `bandwidth` and
`latency`, so that a better link is still a better link.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from strata.base.arrays import Number, register_pytree
from strata.params import Named, Sources, by_name, part, positive, quantity, record, sourced_record, text

# what an engine may use of a transport: all of it, the library alone, none
ANY, LIBRARY, IDEAL = "any", "library", "ideal"


@record
class Rings:
    """All-gather, reduce-scatter and all-reduce of a library: rings in three protocols, or addition inside
    the switch.

    Names: `ll` (each 8 bytes carry 4 of flag), `ll128` (128 bytes carry 8 of flag), `simple` (whole buffers,
    then a flag).
    """

    start: dict[str, Number] = by_name(
        "s", "kernel and meeting of all ranks: flagged (ll, ll128), simple, and in_switch where there is one"
    )
    step: dict[str, Number] = by_name("1", "one step of a ring by protocol, in latencies of the dimension")
    share: dict[str, Number] = by_name(
        "1", "share of the link's peak: ll, ll128, the collective's own name (simple), in_switch"
    )
    own: Number = positive(
        "B/s", "speed at which a rank passes on its own part of the buffer, which crosses no link"
    )
    tree: Number | None = positive(
        "1",
        "share of the link's peak that two trees at once reach in an all-reduce; absent where there are none",
    )
    post: dict[str, Number] | None = by_name(
        "s",
        "what the host's proxy adds to a step between nodes, by protocol: posts, slots, flushes; empty: of "
        "whole buffers with hardly anything in them, as full ones when left out; absent inside a node",
    )
    chunk: Number | None = positive(
        "B", "most bytes in one piece of a tree's pipeline or a ring's step: slots of all channels together"
    )
    pieces: Number | None = positive("1", "pieces into which a tree cuts a buffer shorter than those")
    in_switch_ranks: Number | None = positive(
        "1", "most ranks of a node whose switch adds up inside a tree between nodes; absent where none does"
    )
    ceiling: Number | None = positive(
        "B/s",
        "most that the host moves for one device, whatever its adapters; absent where adapters move data "
        "themselves",
    )


@record
class Pairs:
    """All-to-all and sends of a library: every pair at once, flagged bytes through one channel a pair, or
    whole buffers.
    """

    start: dict[str, Number] = by_name("s", "kernel and meeting of a pair: flagged, simple")
    peer: Number = quantity("s", "each further peer of a rank")
    channel: Number = positive("1", "share of the link's peak that one pair has for flagged bytes")
    share: Number = positive("1", "share of the link's peak for whole buffers")
    own: Number = positive("B/s", "speed at which a rank copies what it sends to itself")


@record
class Direct:
    """All-reduce kernels of serving frameworks that read their peers' memory; a name for each framework."""

    start: dict[str, Number] = by_name("s", "kernel and meeting of two ranks")
    peer: dict[str, Number] = by_name("s", "each further peer: its flag and its address")
    share: dict[str, Number] = by_name("1", "share of the link's peak while reading peers")
    second: dict[str, Number] | None = by_name(
        "s", "meeting between the two halves of a two-shot kernel; absent where there is none"
    )
    limit: dict[str, Number] | None = by_name(
        "B", "longest buffer the kernels take; absent where they take any"
    )


@record
class ExpertTransport:
    """Exchange of tokens between ranks of experts by kernels of its own: `dispatch` out, `combine` back.

    Two kinds, as DeepEP has them: a message for each pick (low latency: `start` to `message`), or a copy for
    each node, forwarded inside it (many tokens: `forward` to `notify`). Between nodes both go at what the
    outer dimension's adapters sustain.
    """

    start: dict[str, Number] = by_name("s", "kernel and meeting of the ranks: dispatch, combine")
    expert: dict[str, Number] = by_name(
        "s", "each expert of the layer: its counter and its slot: dispatch, combine"
    )
    share: dict[str, Number] = by_name("1", "share of the link's peak: dispatch, combine")
    lane: Number = positive(
        "B/s", "speed at which the threads of one expert receive what is dispatched to it"
    )
    header: Number = quantity("B", "beside each token that is dispatched")
    scale: Number = quantity("B", "scales beside each element of 8 bits or fewer that is dispatched")
    limit: Number | None = positive("1", "most tokens of a rank in one call; absent where there is none")
    message: Number | None = quantity(
        "s", "each message handed to an adapter between nodes; nothing when left out"
    )
    forward: Number | None = positive(
        "1",
        "share of the link's peak of the kernels for many tokens, which send a token to a node once and "
        "forward it there; absent where there are none",
    )
    core: Number | None = positive(
        "B/s", "tokens that one core copies in such kernels; any speed when left out"
    )
    cores: Number | None = positive("1", "cores that such kernels take; as many as they need when left out")
    notify: Number | None = quantity(
        "s",
        "ranks telling each other what will come, and the host waiting for it, before such a dispatch; half "
        "of it is counted on the way back",
    )


@record
class Tiles:
    """Kernels that send or take in tiles while they compute."""

    start: Number = quantity("s", "each time all ranks must meet: a kernel's launch, flags set and seen")
    share: Number = positive("1", "share of the link's peak that transfers reach beside a product")
    cores: Number = quantity(
        "1", "share of the chip's cores that transfers and waiting for flags take from the product"
    )


@record
class Transport(Named):
    """How messages move over one dimension of a fabric: a library, and kernels that go around it."""

    aliases: str = text(
        "other names that users and data sets give its network, separated by spaces", default=""
    )
    note: str = text("what a reader of these numbers should know", default="")
    rings: Rings = part(Rings, "collectives of the library over rings")
    pairs: Pairs = part(Pairs, "all-to-all and sends of the library")
    direct: Direct | None = part(Direct, "all-reduce kernels of serving frameworks")
    experts: ExpertTransport | None = part(ExpertTransport, "expert exchange kernels")
    tiles: Tiles | None = part(
        Tiles, "communication inside kernels that compute; absent where there are no such kernels"
    )


def transport(name: str) -> Transport:
    """A transport by name or TOML path.

    >>> transport("infiniband").rings.share["all_reduce"]
    0.94
    """
    return sourced_record(Transport, "transport", name)


@register_pytree
@dataclass(frozen=True, eq=False)
class Packets:
    """How a packet network cuts and times messages. Ticks are of the clock that times them."""

    payload: Number = positive("B", "payload of a full packet")
    header: Number = quantity("B", "header of every packet")
    reply: Number = quantity("B", "an acknowledgement, header included")
    tick: Number = positive("s", "resolution of the clock: a packet takes whole ticks on a wire")
    least: Number = field(
        default=0.0, metadata=quantity("1", "least time of a packet on a wire, in ticks").metadata
    )
    up: Number = field(
        default=0.5,
        metadata=quantity("1", "part of a tick from which a packet's time is rounded up").metadata,
    )
    name: str = text("short name, as in the file's name", default="")
    title: str = text("what it is", default="")
    sources: Sources = field(default_factory=Sources)


def packets(name: str) -> Packets:
    """A packet network by name or TOML path.

    >>> packets("ns3").payload, packets("astra-sim").header
    (1000.0, 56.0)
    """
    return sourced_record(Packets, "packets", name)


def as_packets(given: Packets | str) -> Packets:
    """The packet network that is given, or the one of a name."""
    return packets(given) if isinstance(given, str) else given
