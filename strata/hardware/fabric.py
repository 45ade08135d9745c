"""Fabrics: networks between chips as composed dimensions, innermost first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from strata.base.arrays import Number
from strata.base.errors import BadValue, require
from strata.base.memo import Memo, is_settled, settled_record
from strata.base.records import readable
from strata.base.shipped import paper_offers
from strata.hardware.transport import IDEAL, LIBRARY, Direct, Transport
from strata.params import (
    Named,
    Sources,
    choice,
    find,
    override,
    part,
    positive,
    quantity,
    read_record,
    record,
    remembered,
    table_named,
    text,
)

MEDIA = ("package", "board", "host", "optical", "network")
COOLINGS = ("air", "liquid")
KINDS = ("switch", "ring", "chain", "full", "dragonfly")
DIRECT = ("switch", "full", "dragonfly")  # any two members are one step apart
TAPERED = ("switch", "dragonfly")  # these may be oversubscribed: links above a device's own are shared
COLLECTIVES = ("", *paper_offers("collectives"))  # the usual algorithms, or a model of a paper
ONE_RING = "one ring"


@record
class RingMemory:
    """What a ring whose every step passes local memory finds at each rank."""

    bandwidth: Number = positive("B/s", "of the memory that steps are written to and read from")
    latency: Number = quantity("s", "of one access to it")
    launch: Number = quantity("s", "start of a kernel that adds up, or that puts a gathered buffer together")
    rate: Number = positive("FLOP/s", "additions a second while adding up")
    element: Number = positive("B", "one number of the buffer")


@record
class GroupDivisor:
    """What a link's bandwidth is divided by in rings of groups up to a size."""

    ranks: Number = quantity("1", "largest group that it holds for", minimum=1)
    divisor: Number = positive("1", "what the bandwidth is divided by")


@record
class Dimension:
    """One direction of a fabric: `size` devices (or groups of devices) joined in one way."""

    name: str = text("what it is, like nvlink or infiniband")
    kind: str = text(
        "switch, ring (a torus is several), chain (a mesh is several), full (each to each) or dragonfly "
        "(groups each to each, shared links)",
        choices=KINDS,
    )
    size: Number = quantity(
        "1", "members; left out where the system's name gives it", optional=True, minimum=1
    )
    bandwidth: Number = positive(
        "B/s", "peak of one device into this dimension, one direction, all its links together", more="faster"
    )
    efficiency: Number = positive("1", "sustained fraction of the peak for long messages", more="faster")
    latency: Number = quantity("s", "one step: software, wire and switch, to the first byte")
    energy: Number = quantity("J/B", "energy of one byte over one hop")
    reduction: Number | None = quantity("1", "1 where the switch adds up an all-reduce itself, else 0")
    medium: str = choice(
        "what its links lie on, for the price list: package, board (backplanes, racks), host (ports of "
        "the processor), optical, network (switches, adapters and cables of their own)",
        "",
        *MEDIA,
    )
    price: Number | None = quantity(
        "USD",
        "links, switches and adapters of this dimension for one device, in place of the price list's",
        more="dearer",
    )
    links: Number | None = positive(
        "1", "links of one device into this dimension that make up its bandwidth; may be a share"
    )
    wrap: Number | None = quantity(
        "1",
        "of a ring that is used in slices: members whose multiples have its closing link, as 16 of a 16 x 16 "
        "pod; a slice of others is a chain. Every slice closes when left out",
        minimum=1,
    )
    transport: str = text(
        "a transport's name or TOML path: what the software that sends costs; ideal when left out", default=""
    )
    transport_model: Transport | None = part(Transport, "the transport's quantities, from its file")
    oversubscription: Number | None = quantity(
        "1",
        "bandwidth of the devices over that of the links above them: 2 where a leaf has half as many "
        "uplinks; 1 when left out",
        minimum=1,
    )
    shares_links_of: str = text(
        "inner dimension whose links its traffic leaves a device by, as a spine's does by the leaf's; its "
        "own when left out",
        default="",
    )
    collectives: str = choice(
        "memory-ring where sums, gathers and scatters are rings whose every step passes local memory, with "
        "kernels of their own that add up; as its transport sends, or ideal, when left out",
        *COLLECTIVES,
    )
    crossing: str = choice(
        "one ring where a group that reaches into this dimension runs over it alone, links of inner "
        "dimensions left idle; dimension by dimension when left out",
        "",
        ONE_RING,
    )
    ring_memory: RingMemory | None = part(
        RingMemory, "what such rings find at a rank; the chip's own when left out"
    )
    divisors: tuple[GroupDivisor, ...] | None = part(
        GroupDivisor,
        "divisions of a link's bandwidth by the size of such a ring's group, smallest first, the last for "
        "all larger ones: there only to repeat a program that has them; none when left out",
        many=True,
    )


@record
class Host:
    """What stands beside each device: its share of processors, adapters, chassis. How much power that is
    follows from one rule (`strata.hardware.money.host_power`), unless stated.
    """

    processors: Number | None = quantity("1", "processors beside one device; may be a share")
    machine: Number | None = positive(
        "1", "devices of one machine; left out: those of the innermost dimension"
    )
    adapters: Number | None = quantity("1", "network adapters beside one device")
    switch_chips: Number | None = quantity(
        "1", "switch chips of its node or rack for one device; may be a share"
    )
    cooling: str = choice(
        "how it is cooled: air or liquid; where left out, fans and supplies count in its power", "", *COOLINGS
    )
    power: Number | None = quantity("W", "power beside one device that is always on, in place of the rule's")
    price: Number | None = quantity("USD", "price beside the device, for one device")
    link: Number | None = positive("B/s", "sustained rate between a device and its host's memory, one way")
    stream_rate: Number | None = positive(
        "B/s", "rate at which processors stream the host's memory for one device"
    )


@readable("name", "title")
@record
class Fabric(Named):
    """Dimensions from the innermost (fastest) to the outermost, and the host beside each device."""

    note: str = text("what a reader of these numbers should know", default="")
    dimension: tuple[Dimension, ...] = part(Dimension, "dimensions, innermost first", many=True)
    host: Host | None = part(Host, "beside each device")


def fabric(name: str, /, **changes: Any) -> Fabric:
    """A fabric by name or TOML path; `bandwidth=` changes the innermost dimension's, or `"1.bandwidth"`.

    >>> [d.kind for d in fabric("hgx-h200").dimension]
    ['switch', 'switch']
    """
    stated: Fabric = _stated(str(name))
    if not changes:
        return stated
    changed, given = override(stated, {_full_path(stated, k): v for k, v in changes.items()}, "fabric")
    _check_dimensions(changed, find("fabric", name).name)
    return replace(changed, sources=stated.sources.updated(given))


def as_fabric(given: Fabric | str) -> Fabric:
    """The fabric that is given, or the one of a name."""
    return fabric(given) if isinstance(given, str) else given


@remembered
def _stated(name: str) -> Fabric:
    stated, params, file = read_record(Fabric, "fabric", name, with_transports)
    _check_dimensions(stated, file)
    return replace(stated, sources=Sources(params))


def with_transports(table: dict[str, Any]) -> dict[str, Any]:
    """A fabric's table with the transports that dimensions name written out, under what these say."""
    dimensions = table.get("dimension")
    if not isinstance(dimensions, list):
        return table
    return table | {"dimension": [_with_transport(d) for d in dimensions]}


def _with_transport(dimension: Any) -> Any:
    if not (isinstance(dimension, dict) and dimension.get("transport")):
        return dimension
    over = dimension.get("transport_model", {})
    return dimension | {"transport_model": table_named("transport", str(dimension["transport"]), over)}


def _check_dimensions(fabric: Fabric, file: str) -> None:
    """What quantities one by one cannot tell: which kinds may be oversubscribed, whose links are shared."""
    for i, dimension in enumerate(fabric.dimension):
        if dimension.oversubscription is not None and dimension.kind not in TAPERED:
            raise BadValue(
                f"{file}: dimension.{i}.oversubscription needs kind {' or '.join(TAPERED)}, "
                f"but {dimension.name} is a {dimension.kind}"
            )
        inner = [d.name for d in fabric.dimension[:i]]
        if dimension.shares_links_of and dimension.shares_links_of not in inner:
            legal = ", ".join(inner) or "none, as it is the innermost"
            raise BadValue(
                f"{file}: dimension.{i}.shares_links_of must name an inner dimension ({legal}), "
                f"but got '{dimension.shares_links_of}'"
            )


def _full_path(joined: Fabric, name: str) -> str:
    """`bandwidth` means the innermost dimension; `1.bandwidth`, `infiniband.bandwidth` name another one."""
    head, _, rest = name.replace("__", ".").partition(".")
    if not rest:
        return f"dimension.0.{head}" if hasattr(joined.dimension[0], head) else head
    for i, dimension in enumerate(joined.dimension):
        if head in (str(i), dimension.name):
            return f"dimension.{i}.{rest}"
    return name


def sized(joined: Fabric, sizes: tuple[Number, ...]) -> Fabric:
    """The fabric with its dimensions' sizes given, innermost first; outer dimensions not named become 1.

    >>> sized(fabric("hgx-h200"), (8, 0))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: sizes of fabric hgx-h200 (nvlink, infiniband) must be whole numbers of...
    """
    require(
        len(sizes) <= len(joined.dimension),
        f"fabric {joined.name} has {len(joined.dimension)} dimensions",
        sizes=sizes,
    )
    for dimension, size in zip(joined.dimension, sizes, strict=False):
        if isinstance(size, (int, float, np.ndarray, np.number)):
            known = ", ".join(d.name for d in joined.dimension)
            relation = f"sizes of fabric {joined.name} ({known}) must be whole numbers of at least 1"
            require(
                bool(np.all((np.asarray(size) >= 1) & (np.asarray(size) % 1 == 0))),
                relation,
                **{dimension.name: size},
            )
    full = (*sizes, *([1.0] * (len(joined.dimension) - len(sizes))))
    return replace(
        joined,
        dimension=tuple(
            replace(d, size=s, kind="chain" if _is_open(d, s) else d.kind)
            for d, s in zip(joined.dimension, full, strict=True)
        ),
    )


def closes(dimension: Dimension, size: Number) -> bool:
    """Whether so many members of a dimension have a ring's closing link.

    >>> closes(fabric("tpu-v5e-torus").dimension[0], 16.0), closes(fabric("tpu-v5e-torus").dimension[0], 8.0)
    (True, False)
    """
    return dimension.kind == "ring" and not _is_open(dimension, size)


def _is_open(dimension: Dimension, size: Number) -> bool:
    """Whether so many members of a ring that is used in slices are a line; of several sizes, all of them."""
    if dimension.kind != "ring" or dimension.wrap is None:
        return False
    return bool(np.all(np.asarray(size) % np.asarray(dimension.wrap) != 0))


def devices_of(joined: Fabric) -> Number:
    """Devices a fabric joins: the product of its dimensions' sizes."""
    total: Number = 1.0
    for dimension in joined.dimension:
        total = total * dimension.size
    return total


def check_group(joined: Fabric, ranks: Number) -> None:
    """Refuse a group that does not fit on a fabric.

    >>> check_group(sized(fabric("hgx-h200"), (8, 4)), 64)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: a group on fabric hgx-h200 (8 nvlink x 4 infiniband) has 1 to 32 ranks, ...
    """
    shape = " x ".join(f"{np.max(d.size):g} {d.name}" for d in joined.dimension)
    fits = np.all((np.asarray(ranks) >= 1) & (np.asarray(ranks) <= devices_of(joined)))
    require(
        bool(fits),
        f"a group on fabric {joined.name} ({shape}) has 1 to {np.max(devices_of(joined)):g} ranks",
        ranks=ranks,
    )


def peak_link(dimension: Dimension) -> Number:
    r"""Peak of one device into a dimension, one direction, when all devices use it at once [B/s].

    .. math:: \beta_{peak} = b / o

    bandwidth b of the device's own links [B/s]; oversubscription o, devices' bandwidth over that of the links
    above them.

    Leiserson, Fat-trees, IEEE Trans. Computers 34 (1985): a level's capacity bounds all that crosses it.

    >>> round(peak_link(fabric("fat-tree-ndr").dimension[2]) / 1e9, 2)  # 50 GB/s, 48 ports down and 16 up
    16.67
    """
    return (
        dimension.bandwidth
        if dimension.oversubscription is None
        else dimension.bandwidth / dimension.oversubscription
    )


def with_library(joined: Fabric, library: str, experts: bool = False) -> Fabric:
    """The fabric as one engine uses it: its transports limited to `library`, to `any` way there is, or to a
    framework's kernels; `experts`: with kernels made to exchange tokens, whatever carries the rest.

    `ideal` leaves the links alone: closed forms of their latency and sustained bandwidth.

    >>> with_library(fabric("hgx-h200"), "ideal").dimension[0].transport_model is None
    True
    """
    if all(d.transport_model is None for d in joined.dimension):
        return joined
    key = (joined, library, experts) if is_settled(joined) else None
    return _WITH_LIBRARY.of(key, lambda: _limited(joined, library, experts, key is not None))


_WITH_LIBRARY = Memo(64)


def _limited(joined: Fabric, library: str, experts: bool, again: bool) -> Fabric:
    kept = tuple(
        replace(
            d,
            transport_model=None
            if d.transport_model is None or library == IDEAL
            else limited(d.transport_model, library, experts),
        )
        for d in joined.dimension
    )
    made = replace(joined, dimension=kept)
    return settled_record(made) if again else made


def sustained_link(dimension: Dimension) -> Number:
    """Bandwidth one device sustains into a dimension, one direction, when all use it at once [B/s]."""
    return peak_link(dimension) * dimension.efficiency


def limited(transport: Transport, library: str, experts: bool = False) -> Transport:
    """The transport as one engine uses it: `library` alone, `any` way there is, or the kernels of a framework
    by name; `experts`: with kernels made to exchange tokens, whatever carries the rest.

    A framework that was not measured on this link may use any of the kernels that were.
    """
    if library == LIBRARY:
        return replace(transport, direct=None, experts=transport.experts if experts else None)
    if transport.direct is None or library not in transport.direct.start:
        return transport
    return replace(transport, direct=_only(transport.direct, library))


def _only(direct: Direct, name: str) -> Direct:
    kept: dict[str, Any] = {f: {name: getattr(direct, f)[name]} for f in ("start", "peer", "share")}
    for part_of in ("second", "limit"):
        table = getattr(direct, part_of) or {}
        kept[part_of] = {name: table[name]} if name in table else None
    return replace(direct, **kept)
