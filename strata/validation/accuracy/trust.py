"""trust(): the interval beside any answer, by what was asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from strata.hardware.chip import Chip
from strata.result import Result
from strata.units import show
from strata.validation.accuracy.intervals import RATES, Interval, LikeCase, NothingLike, interval
from strata.validation.readers.like_cases import model_family, model_kind
from strata.workload.model import Model

# What a result of each phase quotes, and the measured quantity it is like.
QUOTED = {
    "serve": {"ttft": "prefill", "tpot": "decode"},
    "prefill": {"ttft": "prefill"},
    "decode": {"tpot": "decode"},
    "train": {"step_time": "train"},
}
UNITS = {"ttft": "s", "tpot": "s", "step_time": "s", "time": "s", "power": "W", "memory": "B"}
NOT_PHYSICS = ("package.", "energy.")  # quantities that leave a chip's speed alone


@dataclass(frozen=True, kw_only=True)
class Trust:
    """How far to trust one number: where like cases were measured, and what that rests on."""

    metric: str
    value: Any
    found: Interval | NothingLike
    unit: str = "s"

    @property
    def bounds(self) -> tuple[Any, Any] | None:
        """Lowest and highest of what would be measured, None where nothing like it was."""
        return self.found.bounds(self.value) if isinstance(self.found, Interval) else None

    @property
    def text(self) -> str:
        """One line for people."""
        if not isinstance(self.found, Interval):
            return f"{self.metric}: nothing like it was measured ({'; '.join(self.found.missing)})"
        low, high = self.found.bounds(float(self.value))
        return (
            f"{self.metric} of like cases measured: {show(low, self.unit)} to {show(high, self.unit)} (80 % of "
            f"{self.found.points} rows no fit saw: {self.found.like})"
        )

    def to_dict(self) -> dict[str, Any] | None:
        """The same for machines; None where nothing like it was measured."""
        if not isinstance(self.found, Interval):
            return None
        low, high = self.found.bounds(self.value)
        return {
            "low": low,
            "high": high,
            "share": 0.8,
            "points": self.found.points,
            "like": self.found.like,
            "inside": self.found.inside,
            "missing": list(self.found.missing),
        }


def chip_form(chip: Chip) -> str:
    """How a chip is built: what was measured on one form says nothing about another.

    >>> from strata.hardware.chip import chip
    >>> [chip_form(chip(name)) for name in ("h200", "tpu-v4", "stack-ref", "sn40l")]
    ['gpu', 'systolic', 'stacked', 'dataflow']
    """
    if chip.stack is not None:
        return "stacked"
    return "dataflow" if chip.execution == "dataflow" else chip.kind


def chip_fitted(chip: Chip) -> bool:
    """Whether a chip's quantities rest on its own measurements, or on those of a sibling with the same dies;
    a chip that a caller has changed is another one.

    >>> from strata.hardware.chip import chip
    >>> [chip_fitted(chip(name)) for name in ("h200", "h100", "rtx-4090", "hbm-ref")]
    [True, True, False, False]
    >>> chip_fitted(chip("h200", memory__bandwidth=6e12))
    False
    """
    own = False
    for path, param in chip.sources.items():
        if param.source == "given by the caller" and not path.startswith(NOT_PHYSICS):
            return False
        own |= param.source.startswith("fitted:") and chip.name in param.source.lower()
        own |= param.source.startswith("assumed: as fitted on")
    return own


def like_chip(chip: Chip, metric: str, engine: str = "*", kind: str = "", family: str = "") -> LikeCase:
    """A case on a chip."""
    return LikeCase(
        metric=metric,
        engine=engine,
        chip=chip.name,
        form=chip_form(chip),
        fitted=chip_fitted(chip),
        kind=kind,
        family=family,
    )


def _case_of(result: Result, measured: str) -> LikeCase:
    kind, family = model_kind(result.model), model_family(result.model.name)
    return like_chip(result.system.chip, measured, result.case.engine.name, kind, family)


def trust(result: Result, metric: str, like: str = "", value: Any = None) -> Trust:
    """How far to trust a metric of a result: `like` is the measured quantity it is compared with, by its phase
    unless told (`request` and `throughput` are those of a loaded server); `value` is another number than the
    result's own.

    >>> import strata as st
    >>> result = st.evaluate("8xh200", "llama-3-70b", st.decode(batch=8, context=2048), "tp=8", "vllm")
    >>> low, high = trust(result, "tpot").bounds
    >>> bool(low <= result.metrics.tpot <= high)
    True
    """
    number = getattr(result.metrics, metric) if value is None else value
    phase = result.workload.phase
    measured = like or QUOTED.get(phase, {}).get(metric, "")
    inverse = not measured and metric == "tokens_per_s"
    if inverse:
        measured = {"serve": "decode", "decode": "decode", "prefill": "prefill", "train": "train"}[phase]
    unit = UNITS.get(metric, "1/s" if inverse or measured in RATES else "")
    if not isinstance(result.program, Model):
        none = NothingLike(missing=(f"no {phase} of {result.program.name} or any program like it",))
        return Trust(metric=metric, value=number, found=none, unit=unit)
    found = interval(_case_of(result, measured or metric))
    if inverse and isinstance(found, Interval):
        found = found.of_rate()
    return Trust(metric=metric, value=number, found=found, unit=unit)


def trusts(result: Result) -> dict[str, Trust]:
    """How far to trust each time a result quotes."""
    return {metric: trust(result, metric) for metric in QUOTED.get(result.workload.phase, {})}


def trust_kernel(chip: Chip, kernel: str, time: Any) -> Trust:
    """How far to trust the time of a kernel on a chip: gemm, attention, grouped, stream, …"""
    return Trust(metric="time", value=time, found=interval(like_chip(chip, f"kernel {kernel}")))


def trust_collective(chip: Chip | None, pattern: str, time: Any, software: str = "*") -> Trust:
    """How far to trust the time of a collective on the fabric of a chip; `software` is what sends ("ns3" for
    packets of the simulator); of a fabric alone, without a chip, nothing is known.
    """
    metric = f"{'packets' if software == 'ns3' else 'collective'} {pattern}"
    if software == "ns3":
        found = interval(LikeCase(metric=metric, engine="ns3", chip="ns3"))
    elif chip is None or software == "links":
        found = NothingLike(missing=(f"no {pattern} on such links alone",))
    else:
        found = interval(like_chip(chip, metric, software))
    return Trust(metric="time", value=time, found=found)
