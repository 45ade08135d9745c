"""The roofs of a chip and the ops of a step under them: every level, every peak, where each op stands."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from strata.base.arrays import Number
from strata.hardware.hierarchy import CACHE, memory_levels
from strata.pricing.kernels.device import Device, arithmetic_format, device
from strata.pricing.power_cap import price_at_clock
from strata.pricing.price import RESOURCES, Price
from strata.result import Result
from strata.workload.graph import Op
from strata.workload.ops import is_vector


@dataclass(frozen=True, kw_only=True)
class Roof:
    """A memory level: what it delivers to the whole chip, sustained and at peak [B/s]."""

    name: str
    bandwidth: float
    peak: float


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """A rate of arithmetic: of a product's formats, or of vectors; sustained and peak [FLOP/s]."""

    name: str
    rate: float
    peak: float


@dataclass(frozen=True, kw_only=True)
class RooflinePoint:
    """One op of a step, over all the times it runs: what binds it, and where it stands."""

    block: str
    op: str
    bound_by: str  # a resource of `Price`
    level: str  # whose bytes count: the level that binds, DRAM's where none does
    count: int
    time: float  # of all [s]
    share: float  # of the step's time
    flop: float  # of one, vector operations included
    moved: float  # of one, bytes of that level
    rate: float  # [FLOP/s]

    @property
    def intensity(self) -> float:
        """Operations for each byte of the level."""
        return self.flop / self.moved


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """Roofs, innermost level first, ceilings, highest first, and points, longest first; `hidden` is the share
    of the step's time in ops that compute nothing or move nothing: communication, mostly.
    """

    chip: str
    roofs: tuple[Roof, ...]
    ceilings: tuple[Ceiling, ...]
    points: tuple[RooflinePoint, ...]
    hidden: float


def roofline_of(result: Result) -> Roofline:
    """The roofline of a single answer: of the last step, one micro-batch, at the clock it holds.

    >>> import strata as st
    >>> found = roofline_of(st.evaluate("8xh200", "llama-3-70b", st.decode(batch=64, context=2048), "tp=8"))
    >>> [roof.name for roof in found.roofs], found.points[0].bound_by
    (['registers', 'local', 'cache', 'HBM3e'], 'memory')
    """
    line = result.timeline  # refuses boxes
    chip, step = result.system.chip, result.steps[-1]
    used, whole = device(chip), line.time or 1.0
    times = Counter((e.block, e.name) for e in line.events)
    points = []
    for priced in step.blocks:
        for op, full in priced.ops:
            price = price_at_clock(full, step.clock, chip)
            count = times[(priced.block.name, op.name)] // max(len(priced.block.nodes), 1)
            points.append(_point(priced.block.name, op, price, (CACHE, chip.memory.kind), count, whole))
    known = [point for point in points if point is not None]
    return Roofline(
        chip=chip.name,
        roofs=_roofs(used),
        ceilings=_ceilings(used, step.formats, float(step.clock)),
        points=tuple(sorted(known, key=lambda point: -point.time)),
        hidden=max(1.0 - sum(point.share for point in known), 0.0),
    )


def _point(
    block: str, op: Op, price: Price, names: tuple[str, str], count: int, whole: float
) -> RooflinePoint | None:
    vector: Number = op.vector_flop() if is_vector(op) else 0.0
    flop, time = float(price.flop + vector), float(price.time)
    bound = max(RESOURCES, key=lambda name: float(getattr(price, name)))
    by_cache = bound == "cache" or float(price.memory_bytes) == 0.0
    moved = float(price.cache_bytes if by_cache else price.memory_bytes)
    if not count or flop <= 0.0 or moved <= 0.0 or bound == "network":
        return None
    return RooflinePoint(
        block=block, op=op.name, bound_by=bound, level=names[0] if by_cache else names[1], count=count,
        time=time * count, share=time * count / whole, flop=flop, moved=moved, rate=flop / time,
    )  # fmt: skip


def _roofs(used: Device) -> tuple[Roof, ...]:
    *inner, dram = memory_levels(used.chip)
    boost = float(used.boost)
    found = [
        Roof(
            name=level.name,
            bandwidth=float(level.bandwidth * level.efficiency) * boost,
            peak=float(level.bandwidth) * boost,
        )
        for level in inner
    ]
    last = Roof(name=dram.name, bandwidth=float(used.bandwidth), peak=float(dram.bandwidth))
    return (*found, last)


def _ceilings(used: Device, formats: tuple[tuple[str, str], ...], clock: float) -> tuple[Ceiling, ...]:
    """Ceilings at the share of the highest clock that a step holds."""
    found: dict[str, Ceiling] = {}
    for weight, activation in formats:
        unit = used.matrix(weight, activation)
        name = arithmetic_format(used.chip, weight, activation)
        found[name] = Ceiling(name=name, rate=float(unit.sustained) * clock, peak=float(unit.peak) * clock)
    vector = float(used.chip.compute.vector_rate) * clock
    found["vector"] = Ceiling(name="vector", rate=vector, peak=vector)
    return tuple(sorted(found.values(), key=lambda ceiling: -ceiling.peak))
