"""Metrics: what a point delivers, each declared once with its unit, which way is better, its label and its
phases.

Whoever ranks, bounds, sweeps, prints or plots metrics reads `METRICS`; nobody keeps a list of names.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from strata.arrays import Number, register_pytree
from strata.errors import UnknownName
from strata.records import readable

ANY_PHASE = ("prefill", "decode", "serve", "train", "forward")
GENERATING = ("decode", "serve")
HIGHER, LOWER = "higher", "lower"
TIME, RATE = "time", "rate"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric: its SI unit, which way is better, how people call it, the phases that have it, and whether
    it is the time of a step or the rate of one (`kind`): steps that are never slower make neither worse.
    `formula` says in words how it is worked out.
    """

    name: str
    unit: str
    better: str
    label: str
    phases: tuple[str, ...] = ANY_PHASE
    kind: str = ""
    formula: str = ""

    @property
    def higher_is_better(self) -> bool:
        return self.better == HIGHER


def metric(unit: str, better: str, label: str, phases: tuple[str, ...] = ANY_PHASE, kind: str = "") -> Any:
    """A field of a record of metrics."""
    told = {"unit": unit, "better": better, "label": label, "phases": phases, "kind": kind}
    return field(metadata={"metric": told})


# How each is worked out, in words; a step's own time is the subject of `strata.pricing.step`.
FORMULAS = {
    "step_time": "times of all ops of the slowest stage + bubbles of the pipeline + the engine's host",
    "mfu": "useful FLOP / (time x devices x matrix peak)",
    "mbu": "DRAM bytes of a device / (time x DRAM peak)",
    "power": "devices x (power of a device + its share of hosts, cooling and supply)",
    "device_power": "energy of what a device does / time + static power",
    "clock": "highest clock x the share of it that limits of power and heat allow",
    "temperature": "coolant + sum of thermal resistances x powers, at the hottest cell of any die",
    "cost_per_device_hour": "(price / lifetime + power x price of energy) / devices, or the rent",
    "memory_used": "weights + caches + activations + scratch of the fullest device",
    "memory_limit": "capacity x the share of it that the engine may fill",
    "lower": "no design with these peaks is faster",
    "upper": "resources of each op one after the other: nothing overlaps",
    "items_per_s": "items of a step / time",
    "energy_per_item": "power of the system x time / items",
    "cost_per_mitem": "cost of the system for its time / items x 1,000,000",
    "ttft": "time of the step that reads all prompts of the batch at once",
    "tpot": "time of a decode step, the mean over contexts from the first output token to the last",
    "tokens_per_s": "tokens of the batch / time; of serving output tokens / (TTFT + outputs x TPOT)",
    "tokens_per_s_per_user": "1 / TPOT",
    "tokens_per_s_per_device": "tokens/s / devices",
    "energy_per_token": "power of the system x time / tokens",
    "cost_per_mtoken": "cost of the system for its time / tokens x 1,000,000",
}


@register_pytree
@readable()
@dataclass(frozen=True, eq=False, kw_only=True)
class StepMetrics:
    """What a step of any program delivers; where it does not fit or is not legal, times are +inf, rates 0."""

    # one forward of the phase, or one optimiser step; `lower` and `upper` bound it
    step_time: Number = metric("s", LOWER, "time of a step", kind=TIME)
    mfu: Number = metric("1", HIGHER, "MFU")  # model FLOP utilisation: useful FLOP over the matrix peak
    mbu: Number = metric("1", HIGHER, "MBU")  # memory bandwidth utilisation: DRAM bytes over the DRAM peak
    power: Number = metric("W", LOWER, "power")  # of the whole system, hosts included
    device_power: Number = metric("W", LOWER, "power of a device")  # hosts not included
    clock: Number = metric("Hz", HIGHER, "clock of the cores")  # as limits of power and heat allow it
    # hottest place of a device's dies; nan where the chip's cooling is not described
    temperature: Number = metric("K", LOWER, "temperature")
    # of buying and powering a device and what stands around it, or of renting it; nan where it has no price
    cost_per_device_hour: Number = metric("USD", LOWER, "cost/device-hour")
    memory_used: Number = metric("B", LOWER, "memory used a device")  # of the fullest one
    memory_limit: Number = metric("B", HIGHER, "memory of a device")  # that it may fill
    lower: Number = metric("s", LOWER, "lower bound of a step")
    upper: Number = metric("s", LOWER, "upper bound of a step")


@register_pytree
@readable()
@dataclass(frozen=True, eq=False, kw_only=True)
class ItemMetrics(StepMetrics):
    """What a step delivers of the items its program counts: samples, grids, rows."""

    items_per_s: Number = metric("1", HIGHER, "items/s", kind=RATE)
    energy_per_item: Number = metric("J", LOWER, "energy/item")
    cost_per_mitem: Number = metric("USD", LOWER, "cost/Mitem")  # nan where the chip has no price


@register_pytree
@readable()
@dataclass(frozen=True, eq=False, kw_only=True)
class TokenMetrics(StepMetrics):
    """What a step of a language model delivers, in tokens; times that a phase does not have are +inf."""

    # of every sequence, and between its tokens
    ttft: Number = metric("s", LOWER, "time to first token", ("prefill", "serve"), TIME)
    tpot: Number = metric("s", LOWER, "time per output token", GENERATING, TIME)
    tokens_per_s: Number = metric("1", HIGHER, "tokens/s", kind=RATE)  # of the whole system
    tokens_per_s_per_user: Number = metric("1", HIGHER, "tokens/s/user", GENERATING, RATE)
    tokens_per_s_per_device: Number = metric("1", HIGHER, "tokens/s/device", kind=RATE)
    energy_per_token: Number = metric("J", LOWER, "energy/token")
    cost_per_mtoken: Number = metric("USD", LOWER, "cost/Mtoken")

    # A language model's items are tokens.
    @property
    def items_per_s(self) -> Number:
        return self.tokens_per_s

    @property
    def energy_per_item(self) -> Number:
        return self.energy_per_token

    @property
    def cost_per_mitem(self) -> Number:
        return self.cost_per_mtoken


def declared(record: type) -> dict[str, Metric]:
    """The metrics of a record, in its order.

    >>> declared(TokenMetrics)["tpot"].better, declared(StepMetrics)["device_power"].unit
    ('lower', 'W')
    """
    told = {f.name: f.metadata["metric"] | {"formula": FORMULAS[f.name]} for f in fields(record)}
    return {name: Metric(name=name, **one) for name, one in told.items()}


METRICS = declared(TokenMetrics) | declared(ItemMetrics)
METRIC_UNITS = {name: one.unit for name, one in METRICS.items()}


def known_metric(name: str, phase: str) -> Metric:
    """A metric that points of a phase have; others are refused with the nearest.

    >>> known_metric("tpot", "prefill")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    strata.errors.UnknownName: no metric of prefill called 'tpot'; nearest: ...
    """
    has = {n: m for n, m in METRICS.items() if phase in m.phases}
    if name not in has:
        raise UnknownName(f"metric of {phase}", name, has, ", ".join(has))
    return has[name]
