"""Power caps as people set them (`nvidia-smi -pl`, MaxQ): what a lower limit of each device costs in speed
and saves in energy, at the devices and at the plug.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strata.base.arrays import Array, leaves
from strata.base.errors import require
from strata.evaluate import evaluate
from strata.hardware.money import plug_power
from strata.hardware.system import System, as_system
from strata.mapping.kernel_parallel import Strategy
from strata.mapping.layout import Layout
from strata.mapping.plan import Plan
from strata.mapping.rules import LIMITS
from strata.pricing.metrics import TokenMetrics
from strata.result import Result
from strata.search.inputs import usual_plan
from strata.serving.pools import capped_system, checked_caps, resting_power
from strata.software.engine import Engine
from strata.workload.program import program as make_program
from strata.workload.protocol import Program
from strata.workload.tasks import Workload


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PowerCaps:
    """A workload under caps of each device's power. `result` has the caps on its first axis, and what else
    the workload leaves open (prompts) on the others: quantities are ranges over those.
    """

    caps: Array  # [W] of one device, rising
    result: Result

    def __repr__(self) -> str:
        ends = f"{self.caps[0]:g} to {self.caps[-1]:g} W" if len(self.caps) > 1 else f"{self.caps[0]:g} W"
        best = "none fits" if self.best is None else f"least energy at {self.caps[self.best]:g} W"
        asked = f"{self.result.program.name} on {self.system.name}"
        return f"PowerCaps({asked}, {len(self.caps)} caps of {ends}: {best})"

    @property
    def system(self) -> System:
        return self.result.system

    def values(self, name: str) -> Array:
        """A metric, a row for each cap; `device_energy` is of devices alone, per token or item [J]."""
        if name == "device_energy":
            joules = self.system.devices * self.values("device_power")
            rate = self.values(self.rate)
            return np.where(rate > 0.0, joules / np.where(rate > 0.0, rate, 1.0), np.inf)
        return self._rows(np.asarray(getattr(self.result.metrics, name), float))

    def _rows(self, values: object) -> Array:
        """A quantity of every point, a row for each cap."""
        return np.broadcast_to(np.asarray(values), self.result.shape).reshape(len(self.caps), -1)

    def range(self, name: str) -> tuple[Array, Array]:
        """The least and the most of a metric at each cap."""
        every = self.values(name)
        return every.min(axis=1), every.max(axis=1)

    def middle(self, name: str) -> Array:
        """The middle of a metric's range at each cap."""
        low, high = self.range(name)
        return np.where(low == high, low, 0.5 * (low + high))

    @property
    def ranged(self) -> bool:
        """Whether quantities are ranges."""
        return bool(np.prod(self.result.shape[1:]) > 1)

    @property
    def rate(self) -> str:
        """The metric of speed: tokens a second of a language model, else items."""
        return "tokens_per_s" if isinstance(self.result.metrics, TokenMetrics) else "items_per_s"

    @property
    def energy(self) -> str:
        """The metric of energy at the plug."""
        return "energy_per_token" if self.rate == "tokens_per_s" else "energy_per_item"

    @property
    def latency(self) -> str:
        """What a user waits for: the next token, the first, or a step."""
        phase = self.result.workload.phase
        return {"serve": "tpot", "decode": "tpot", "prefill": "ttft"}.get(phase, "step_time")

    @property
    def fits(self) -> Array:
        """Whether all points of a cap fit, and hold it at their lowest clock."""
        return (self._rows(self.result.reason) == 0).all(axis=1)

    @property
    def too_low(self) -> Array:
        """Caps that a device cannot hold even at its lowest clock, though all else fits."""
        reason = self._rows(self.result.reason)
        return (reason == LIMITS.bit).any(axis=1) & np.isin(reason, (0, LIMITS.bit)).all(axis=1)

    @property
    def binds(self) -> Array:
        """Where the cap slows some step down."""
        return self.fits & (self._rows(self.result.summary.resources["throttling"]) > 0.0).any(axis=1)

    @property
    def best(self) -> int | None:
        """The cap with the least energy at the plug; None where none fits."""
        if not self.fits.any():
            return None
        return int(np.argmin(np.where(self.fits, self.middle(self.energy), np.inf)))

    @property
    def idle_power(self) -> float:
        """Of the whole system at the plug while nothing runs, devices ready [W]."""
        rest = resting_power(self.system.chip)
        each = plug_power(self.system.fabric, self.result.economics, rest, 0.0)
        return float(np.max(self.system.devices * each))


def power_caps(
    system: System | str,
    program: Program | str,
    workload: Workload,
    plan: Plan | Layout | Strategy | str | None = None,
    engine: Engine | str = "ideal",
    *,
    caps: Sequence[float] | Array | None = None,
) -> PowerCaps:
    """A workload on a system whose devices are limited to each of some powers [W]: from 40 % of the chip's
    own limit to all of it unless told. One plan for all of them: as told, else the best without a cap.

    Where the workload holds arrays (prompts from 200 to 400 tokens), answers are ranges over them.

    >>> import strata as st
    >>> found = power_caps("8xh200", "llama-3-70b", st.decode(256, 2048), "tp=8", caps=[300.0, 500.0, 700.0])
    >>> rate, power = found.middle("tokens_per_s"), found.middle("device_power")
    >>> bool(np.all(np.diff(rate) >= 0)), bool(np.all(power <= found.caps))
    (True, True)
    """
    known = as_system(system)
    code = make_program(program) if isinstance(program, str) else program
    limit = known.chip.energy.power_limit
    require(np.ndim(limit) == 0, "caps are tried on one chip, whose limit is one number", power_limit=limit)
    every = checked_caps(caps, known.chip)
    chosen = usual_plan(known, code, workload, engine) if plan is None or plan == "" else plan
    rank = max((np.ndim(leaf) for leaf in leaves(workload)), default=0)
    shaped = every.reshape(-1, *([1] * rank))
    return PowerCaps(
        caps=every, result=evaluate(capped_system(known, shaped), code, workload, chosen, engine)
    )
