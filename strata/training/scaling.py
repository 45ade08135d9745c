"""How training scales: the best plan of every device count, at one batch (strong) or a growing one (weak)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from strata.base.errors import BadValue, StrataError, require
from strata.hardware.fabric import Fabric, fabric
from strata.hardware.part_of_domain import sizes_of, used_part
from strata.hardware.system import System, as_system
from strata.software.engine import Engine
from strata.training.reliability import Reliability
from strata.training.run import USUAL_LENGTH, TrainRun, train_run, usual_batch
from strata.workload.lora import Lora
from strata.workload.model import Model
from strata.workload.model import model as make_model

KINDS_OF_SCALING = ("strong", "weak")
# Of a point's run.
RUN_COLUMNS = ("plan", "tokens_per_s_per_device", "mfu", "goodput_share", "days", "cost_USD")


@dataclass(frozen=True, eq=False, kw_only=True)
class ScalingPoint:
    """One device count: its run under the best plan, or why there is none."""

    devices: int
    batch: float
    run: TrainRun | None
    why_none: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class ScalingCurve:
    """Runs of the same tokens on more and more devices."""

    kind: str
    points: tuple[ScalingPoint, ...]

    @property
    def runs(self) -> list[TrainRun]:
        """Those that have a plan."""
        return [point.run for point in self.points if point.run is not None]

    def efficiency(self) -> list[float]:
        """Tokens/s of a device over those of the first point, goodput included."""
        rates = [run.tokens_per_s_per_device * float(run.goodput.share) for run in self.runs]
        return [rate / rates[0] for rate in rates]

    def to_dict(self) -> list[dict[str, Any]]:
        rows = []
        for point in self.points:
            run = {} if point.run is None else point.run.to_dict()
            row: dict[str, Any] = {"devices": point.devices, "batch": point.batch}
            row |= {name: run.get(name) for name in RUN_COLUMNS}
            rows.append(row | {"why_none": point.why_none or None})
        return rows


def with_devices(known: System, devices: int) -> System:
    """The same chips on the same fabric, so many of them.

    >>> from strata.hardware.system import system
    >>> [[d.size for d in with_devices(system(s), 64).fabric.dimension] for s in ("512xh100", "4xh100")]
    [[8.0, 8.0], [8.0, 8.0]]
    """
    joined = _any_size(known.fabric)
    sizes = sizes_of(devices, None, joined, known.name)
    return replace(known, name=f"{devices}x{known.chip.name}", fabric=used_part(joined, sizes))


def _any_size(joined: Fabric) -> Fabric:
    """A fabric without the sizes that a system gave it: those of its file, the outermost dimension open."""
    try:
        stated = fabric(joined.name).dimension
    except StrataError:  # made in Python, or changed by name
        stated = joined.dimension
    sized = tuple(
        replace(own, size=before.size, kind=before.kind)
        for own, before in zip(joined.dimension, stated, strict=True)
    )
    opened: Any = None  # a size that the number of devices fills in
    return replace(joined, dimension=(*sized[:-1], replace(sized[-1], size=opened)))


def scaling_curve(
    system: System | str,
    model: Model | str,
    tokens: float | str,
    devices: Sequence[int],
    *,
    kind: str = "strong",
    batch: float | None = None,
    length: float = USUAL_LENGTH,
    engine: Engine | str = "megatron",
    reliability: Reliability | None = None,
    where: str = "",
    adapters: Lora | None = None,
    frozen: tuple[str, ...] = (),
) -> ScalingCurve:
    """The best plan of every device count: strong scaling keeps the batch, weak scaling the sequences of a
    device.

    `batch` is that of the system itself; of strong scaling it is the batch of every point.

    >>> curve = scaling_curve("8xh100", "llama-3-8b", "10B", [4, 8], batch=64)
    >>> [round(e, 1) for e in curve.efficiency()][0], [point.batch for point in curve.points]
    (1.0, [64.0, 64.0])
    """
    require(kind in KINDS_OF_SCALING, "scaling is strong or weak", kind=kind)
    require(
        len(devices) > 0 and all(float(n) >= 1 and float(n) == int(n) for n in devices),
        "scaling takes device counts, like 64,128,256",
        devices=devices,
    )
    whole = as_system(system)
    trained = make_model(model) if isinstance(model, str) else model
    usual = usual_batch(float(whole.devices), length) if batch is None else float(batch)
    points = []
    for count in sorted({int(n) for n in devices}):
        size = usual if kind == "strong" else max(round(usual * count / float(whole.devices)), 1.0)
        try:
            run = train_run(
                with_devices(whole, count),
                trained,
                tokens,
                batch=float(size),
                length=length,
                engine=engine,
                reliability=reliability,
                where=where,
                top=1,
                adapters=adapters,
                frozen=frozen,
            )
            points.append(ScalingPoint(devices=count, batch=float(size), run=run))
        except StrataError as error:
            points.append(ScalingPoint(devices=count, batch=float(size), run=None, why_none=str(error)))
    if not any(point.run for point in points):
        raise BadValue(points[-1].why_none)
    return ScalingCurve(kind=kind, points=tuple(points))
