"""Fabrics: networks between chips as composed dimensions, innermost first."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any

import numpy as np

from strata.arrays import Number, namespace
from strata.errors import BadValue, require
from strata.hardware.fabric_parts import TAPERED, Dimension, Host
from strata.hardware.transport import IDEAL, limited
from strata.memo import Memo, is_settled, settled_record
from strata.params import (
    Sources,
    find,
    override,
    part,
    read_record,
    record,
    remembered,
    table_named,
    text,
)
from strata.records import readable


@readable("name", "title")
@record
class Fabric:
    """Dimensions from the innermost (fastest) to the outermost, and the host beside each device."""

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    note: str = text("what a reader of these numbers should know", default="")
    dimension: tuple[Dimension, ...] = part(Dimension, "dimensions, innermost first", many=True)
    host: Host | None = part(Host, "beside each device")
    sources: Sources = field(default_factory=Sources)


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
    strata.errors.BadValue: sizes of fabric hgx-h200 (nvlink, infiniband) must be whole numbers of at least...
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
    strata.errors.BadValue: a group on fabric hgx-h200 (8 nvlink x 4 infiniband) has 1 to 32 ranks, ...
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


def group_share(dimension: Dimension, members: Number) -> Number:
    r"""Part of its bandwidth into a dimension that a device can use inside a group of some of the members.

    .. math:: s = 1 \;\text{(switch)}, \quad s = \frac{g-1}{N-1} \;\text{(full)}, \quad
              s = \max\left(\frac{g-1}{N-1}, \frac{1}{2}\right) \;\text{(dragonfly)}

    g members of N. Where each pair has its own link, a group reaches only the links between its members. A
    dragonfly may go round through a third group instead, which crosses two global links for one: never below
    a half.

    Kim, Dally, Scott & Abts, Technology-Driven, Highly-Scalable Dragonfly Topology, ISCA (2008), sec. 4:
    Valiant routing.

    >>> mesh = fabric("mi325x-node").dimension[0]
    >>> groups = fabric("slingshot-dragonfly").dimension[2]
    >>> round(float(group_share(mesh, 4.0)), 3), round(float(group_share(groups, 2.0)), 3)
    (0.429, 0.5)
    """
    if dimension.kind not in ("full", "dragonfly"):
        return 1.0
    xp = namespace(members, dimension.size)
    direct = xp.maximum(members - 1.0, 1.0) / xp.maximum(dimension.size - 1.0, 1.0)
    return direct if dimension.kind == "full" else xp.maximum(direct, 0.5)
