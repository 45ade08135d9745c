"""trust(): the interval beside any answer, by what was asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.base.units import show
from strata.hardware.chip import Chip
from strata.hardware.system import System
from strata.result import Result
from strata.validation.accuracy.intervals import (
    RATES,
    REPRICED,
    SHARE,
    Interval,
    LikeCase,
    NothingLike,
    interval,
)
from strata.validation.readers.labels import model_family, model_kind
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
        """Lowest and highest of what would be measured (factors where there is no value), None where nothing
        like it was.
        """
        one = 1.0 if self.value is None else self.value
        return self.found.bounds(one) if isinstance(self.found, Interval) else None

    @property
    def text(self) -> str:
        """One plain sentence: ``tpot ±15 % (21 to 28 ms), 80 % of 47 measured runs: vllm on h200, llama
        models``.
        """
        if not isinstance(self.found, Interval):
            return f"{self.metric}: no run like this was measured ({'; '.join(self.found.missing)})"
        low, high = (round(100.0 * (factor - 1.0)) for factor in self.found.bounds(1.0))
        share = f"±{high} %" if low == -high else f"{low:+d} % to {high:+d} %"
        where = ""
        if self.value is not None and np.size(self.value) == 1 and np.isfinite(self.value).all():
            ends = self.found.bounds(float(np.asarray(self.value).item()))
            first, last = (show(end, self.unit) for end in ends)
            number, _, unit = first.partition(" ")
            where = f" ({number if last.endswith(f' {unit}') else first} to {last})"
        runs = f"{SHARE:.0%} of {self.found.points:,} measured runs".replace("%", " %")
        return f"{self.metric} {share}{where}, {runs}: {self.found.like}"

    def to_dict(self) -> dict[str, Any] | None:
        """The same for machines; None where nothing like it was measured."""
        if not isinstance(self.found, Interval) or self.bounds is None:
            return None
        low, high = self.bounds
        ends = {"low_factor": low, "high_factor": high} if self.value is None else {"low": low, "high": high}
        return {
            **ends,
            "share": SHARE,
            "points": self.found.points,
            "like": self.found.like,
            "inside": self.found.inside,
            "distance": self.found.distance,
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


def like_chip(chip: Chip, metric: str, engine: str = "*", kind: str = "", family: str = "") -> LikeCase:
    """A case on a chip; one that the caller has changed is no chip that was measured.

    >>> from strata.hardware.chip import chip
    >>> [like_chip(one, "decode").chip for one in (chip("h200"), chip("h200", memory__bandwidth=6e12))]
    ['h200', '']
    """
    changed = any(
        param.source == "given by the caller" and not path.startswith(NOT_PHYSICS)
        for path, param in chip.sources.items()
    )
    name = "" if changed else chip.name
    return LikeCase(metric=metric, engine=engine, chip=name, form=chip_form(chip), kind=kind, family=family)


def trust_served(
    system: System, program: Any, engine: str, metric: str, value: Any, like: str, inverse: bool = False
) -> Trust:
    """How far to trust a number of a program on a system by an engine: `like` is the measured quantity it is
    compared with, `inverse` where it is one over that. Without software's own time only single devices were
    measured; of several there are runs of real engines, priced without what these add.
    """
    if engine == "ideal" and np.any(np.asarray(system.devices) > 1):
        engine = REPRICED
    unit = UNITS.get(metric, "1/s" if inverse or like in RATES else "")
    if not isinstance(program, Model):
        none = NothingLike(missing=(f"no {like} of {program.name} or any program like it",))
        return Trust(metric=metric, value=value, found=none, unit=unit)
    kind, family = model_kind(program), model_family(program.name)
    found = interval(like_chip(system.chip, like, engine, kind, family))
    if inverse and isinstance(found, Interval):
        found = found.of_rate()
    return Trust(metric=metric, value=value, found=found, unit=unit)


def trust(result: Result, metric: str) -> Trust:
    """How far to trust a metric of a result: its times by phase, tokens_per_s as one over them, power and
    memory.

    >>> import strata as st
    >>> result = st.evaluate("8xh200", "llama-3-70b", st.decode(batch=8, context=2048), "tp=8", "vllm")
    >>> low, high = trust(result, "tpot").bounds
    >>> bool(low <= result.metrics.tpot <= high)
    True
    """
    times = QUOTED.get(result.workload.phase, {})
    inverse = metric == "tokens_per_s" and bool(times)
    like = list(times.values())[-1] if inverse else times.get(metric, metric)
    value = getattr(result.metrics, metric)
    return trust_served(result.system, result.program, result.case.engine.name, metric, value, like, inverse)


def trusts(result: Result) -> dict[str, Trust]:
    """How far to trust each time a result quotes."""
    return {metric: trust(result, metric) for metric in QUOTED.get(result.workload.phase, {})}


def trust_kernel(chip: Chip, kernel: str, time: Any) -> Trust:
    """How far to trust the time of a kernel on a chip: gemm, attention, grouped, stream, …"""
    return Trust(metric="time", value=time, found=interval(like_chip(chip, f"kernel {kernel}", "bare")))


def trust_collective(chip: Chip | None, pattern: str, time: Any, *, inside: bool, software: bool) -> Trust:
    """How far to trust the time of a collective between some of a chip: measured were libraries of
    collectives (`software`, not links alone), `inside` one node and between nodes.
    """
    if chip is None or not software:
        found: Interval | NothingLike = NothingLike(missing=(f"no {pattern} on links alone",))
    else:
        found = interval(like_chip(chip, f"collective {pattern}{'' if inside else ' between nodes'}", "nccl"))
    return Trust(metric="time", value=time, found=found)
