"""What requests see of an engine under load, what it delivers, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.records import readable


@readable("rate", "ttft", "ttft_p95", "tpot", "tokens_per_s", "power")
@dataclass(frozen=True, eq=False, kw_only=True)
class LoadMetrics:
    """What requests see, and what the engine delivers and spends. Where it cannot keep up, times are
    infinite.

    The numbers of `strata plan` and of `strata serving`.
    """

    rate: Array  # requests completed [1/s]
    ttft: Array  # mean time to the first token, waiting included [s]
    tpot: Array  # mean time between a request's later tokens [s]
    # the part of ttft before its prompt is read: taken in, in queues, until the step under way ends [s]
    waits: Array
    reads: Array  # the part in which it is [s]
    active: Array  # mean sequences being generated
    utilisation: Array  # of whatever is nearest its limit; at 1 queues grow without end
    tokens_per_s: Array  # generated, of the whole system
    queued: Array  # the part of waits for prompts read before [s]
    power: Array  # of the whole system, hosts included [W]; nan where prompts are read elsewhere
    dollars: Array  # what that costs [USD/s]; nan where the chip has no price
    devices: Array
    first_token: Any  # the distribution behind ttft: a `FirstToken`, or the times of a simulation
    refusal: Array  # why the closed form does not answer for this load; empty where it does

    def ttft_at(self, share: float) -> Array:
        """The time to first token that a share of requests does not exceed [s], for a share of at least
        half.
        """
        return np.where(np.isfinite(self.ttft), self.first_token.within_share(share), np.inf)

    @property
    def ttft_p95(self) -> Array:
        """The 95th percentile of the time to first token [s]."""
        return self.ttft_at(0.95)

    @property
    def energy_per_mtoken(self) -> Array:
        """Energy of a million generated tokens [J]."""
        return self._per_mtoken(self.power)

    @property
    def cost_per_mtoken(self) -> Array:
        """Cost of a million generated tokens [USD]."""
        return self._per_mtoken(self.dollars)

    @property
    def cost_per_device_hour(self) -> Array:
        """What a device costs for an hour, with its share of links and hosts, and its electricity [USD]."""
        return self.dollars * 3600.0 / self.devices

    def _per_mtoken(self, spent: Array) -> Array:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.tokens_per_s > 0, spent / self.tokens_per_s * 1e6, np.inf)

    @property
    def fits(self) -> Array:
        return self.utilisation < 1.0

    def at(self, *index: Any) -> LoadMetrics:
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        first = parts.pop("first_token")
        cut = {name: np.asarray(value)[index] for name, value in parts.items()}
        return LoadMetrics(**cut, first_token=first.at(*index))

    def within(self, ttft: float, tpot: float, share: float | None = None) -> Array:
        """Where both limits are kept: on average, or of time to first token by a share of all requests."""
        with np.errstate(invalid="ignore"):
            early = self.ttft <= ttft if share is None else self.first_token.keeps(ttft, share)
            return self.fits & early & (self.tpot <= tpot)
