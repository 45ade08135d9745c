"""Metrics: what a point delivers, each declared once with its unit, which way is better, its label and its
phases; and how they follow from priced steps (`summarise`).

Whoever ranks, bounds, sweeps, prints or plots metrics reads `METRICS`; nobody keeps a list of names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import reduce
from operator import mul
from typing import Any

from strata.base.arrays import Number, namespace
from strata.base.errors import UnknownName
from strata.base.precision import rate_of
from strata.base.records import readable
from strata.case import Case
from strata.hardware.making import cost_rate
from strata.hardware.money import HOUR, Economics, host_power
from strata.hardware.system import System
from strata.mapping.rules import CORES, LIMITS, MEMORY
from strata.params import record
from strata.pricing.kernels.device import arithmetic_format, cache_byte_energy
from strata.pricing.power_cap import voltage_energy
from strata.pricing.price import BOUNDS
from strata.pricing.step import OP_KINDS, Step
from strata.workload.tasks import Workload

MILLION = 1e6
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


@readable()
@record
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


@readable()
@record
class ItemMetrics(StepMetrics):
    """What a step delivers of the items its program counts: samples, grids, rows."""

    items_per_s: Number = metric("1", HIGHER, "items/s", kind=RATE)
    energy_per_item: Number = metric("J", LOWER, "energy/item")
    cost_per_mitem: Number = metric("USD", LOWER, "cost/Mitem")  # nan where the chip has no price


@readable()
@record
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


@readable("metrics", "reason")
@record
class Summary:
    """Metrics, why a point is out (a bitmask, 0 is in), and where time and memory go."""

    metrics: StepMetrics  # TokenMetrics of a language model, ItemMetrics of any other program
    reason: Number
    # time of the run by what binds a mean device, and by what it waits for [s]: they add up to the whole
    resources: dict[str, Number]
    time_by_kind: dict[str, Number]  # mean device time by category of op [s]
    memory: dict[str, Number]  # bytes by purpose
    energy: dict[str, Number]  # joules an item by level, of the whole system; they add up to energy_per_item
    # mean device time that communication beside computation saves [s], of what `time_by_kind` counts
    overlap: Number


@dataclass(frozen=True, eq=False, kw_only=True)
class Run:
    """Steps of one kind of work with their weights, and what they yield."""

    steps: list[tuple[Number, Step]]  # weights add up to 1
    prefill: Step | None
    time: Number  # mean of the steps
    span: Number  # of the whole run
    items: Number  # that it yields

    @property
    def every(self) -> list[tuple[Number, Step]]:
        """All steps with how often they run."""
        if self.prefill is None:
            return self.steps
        often = (self.span - self.prefill.time) / self.time
        return [*((w * often, s) for w, s in self.steps), (1.0, self.prefill)]

    def total(self, path: str) -> Number:
        """A quantity of the steps' mean device, added up over the run."""
        return self.over(lambda step: getattr(step.price, path))

    def over(self, what: Callable[[Step], Number]) -> Number:
        """Something of steps, added up over the run as often as they run."""
        return sum((w * what(s) for w, s in self.every), 0.0)


def run_of(work: Workload, steps: list[tuple[Number, Step]], prefill: Step | None) -> Run:
    """The run that steps make: one step of a phase, or a generation after its prompts were read."""
    time = sum((w * s.time for w, s in steps), 0.0)
    if prefill is None:
        return Run(steps=steps, prefill=None, time=time, span=time, items=steps[-1][1].items)
    span = prefill.time + work.output * time
    return Run(steps=steps, prefill=prefill, time=time, span=span, items=work.batch * work.output)


def summarise(case: Case, steps: list[tuple[Number, Step]], prefill: Step | None) -> Summary:
    """Metrics of weighted steps (the decode steps of a generation, or the one step of another phase)."""
    system, run = case.system, run_of(case.workload, steps, prefill)
    main = steps[-1][1]
    used = sum(main.memory.values(), 0.0)
    limit = system.chip.memory.capacity * case.engine.gpu_memory_utilization
    reason = legality(case, used, limit) + _unbuilt(system, [s for _, s in run.every])
    static = sum((w * s.static * s.time for w, s in run.every), 0.0) / run.over(lambda s: s.time)
    return Summary(
        metrics=_metrics(case, run, reason > 0, static, used, limit),
        reason=reason,
        resources={b: sum((w * s.time_by_bound[b] for w, s in run.every), 0.0) for b in BOUNDS},
        time_by_kind={k: sum((w * s.time_by_kind.get(k, 0.0) for w, s in run.every), 0.0) for k in OP_KINDS},
        memory=main.memory,
        energy=energy_by_level(system, run, static, case.economics),
        overlap=run.total("saved"),
    )


def _metrics(case: Case, run: Run, out: Number, static: Number, used: Number, limit: Number) -> StepMetrics:
    """Metrics of a run; where a point is `out`, times are infinite and rates nothing."""
    system, main = case.system, run.steps[-1][1]
    xp = namespace(run.time, case.workload.batch, out)
    infinite = xp.where(out, xp.inf, 0.0)

    def gated(value: Number) -> Number:
        return xp.where(out, 0.0, value)

    flop = run.over(lambda s: s.flop)
    device_power = run.total("energy") / run.span + static
    beside = sum(host_power(system.fabric, case.economics, device_power))
    power, rate = system.devices * (device_power + beside), run.items / run.span
    energy = power * run.span / run.items + infinite
    spent = cost_rate(system, case.economics, power)
    cost = spent * run.span / run.items * MILLION + infinite
    found: dict[str, Any] = {
        "step_time": run.time + infinite,
        "mfu": gated(flop / (run.span * system.devices * _peak(system, main.formats))),
        "mbu": gated(run.total("memory_bytes") / (run.span * system.chip.memory.bandwidth)),
        "power": gated(power),
        "device_power": gated(device_power),
        "clock": main.clock * system.chip.compute.max_clock,
        "temperature": _hottest(run.every),
        "cost_per_device_hour": spent / system.devices * HOUR + 0.0 * run.span,
        "memory_used": used,
        "memory_limit": limit,
        "lower": sum((w * s.lower for w, s in run.steps), 0.0) + infinite,
        "upper": sum((w * s.upper for w, s in run.steps), 0.0) + infinite,
    }
    if main.item != "token":
        return ItemMetrics(**found, items_per_s=gated(rate), energy_per_item=energy, cost_per_mitem=cost)
    tokens = _token_metrics(case, run, rate, gated, infinite)
    return TokenMetrics(**found, **tokens, energy_per_token=energy, cost_per_mtoken=cost)


def _token_metrics(case: Case, run: Run, rate: Number, gated: Any, infinite: Number) -> dict[str, Number]:
    """What users of a language model see."""
    work, time = case.workload, run.time
    nothing = float("inf")
    first = run.prefill.time if run.prefill is not None else time if work.phase == "prefill" else nothing
    each = work.generated if work.phase == "decode" else 1.0
    next_token = time / each if work.phase in ("decode", "serve") else nothing
    user = {"decode": work.generated / time, "serve": 1.0 / time}.get(work.phase, rate / work.batch)
    return {
        "ttft": first + infinite,
        "tpot": next_token + infinite,
        "tokens_per_s": gated(rate),
        "tokens_per_s_per_user": gated(user),
        "tokens_per_s_per_device": gated(rate / case.system.devices),
    }


def _hottest(every: list[tuple[Number, Step]]) -> Number:
    """The highest temperature of any step [K]."""
    places = [place for _, step in every for place in (step.logic, step.dram)]
    return reduce(namespace(*places).maximum, places)


def _unbuilt(system: System, steps: list[Step]) -> Number:
    """The bits of rules a chip breaks by itself: limits it cannot hold, cores its die has no room for."""
    kept = reduce(mul, (step.within_limits for step in steps))
    reason: Number = (1.0 - kept) * float(LIMITS.bit)
    if system.chip.cores_fit is not None:
        reason = reason + (system.chip.cores_fit < system.chip.compute.cores) * float(CORES.bit)
    return reason


def energy_by_level(system: System, run: Run, static: Number, money: Economics) -> dict[str, Number]:
    """Joules an item: operations, bytes on chip and of DRAM, links, idling, hosts, cooling and supplies."""
    chip = system.chip
    dynamic, moved, links = (run.total(name) for name in ("energy", "memory_bytes", "link_energy"))
    voltage = chip.energy.voltage_slope
    cached = sum((w * s.price.cache_bytes * voltage_energy(s.clock, voltage) for w, s in run.every), 0.0)
    memory, on_die = moved * chip.energy.memory, cached * cache_byte_energy(chip)
    always, added = host_power(system.fabric, money, dynamic / run.span + static)
    parts = {
        "compute": dynamic - memory - on_die - links,
        "cache": on_die,
        "memory": memory,
        "network": links,
        "static": static * run.span,
        "hosts": always * run.span,
        "cooling and supply": added * run.span,
    }
    return {name: system.devices * joules / run.items for name, joules in parts.items()}


def _peak(system: System, formats: tuple[tuple[str, str], ...]) -> Number:
    """The fastest matrix peak of products of these formats on this chip; without products the vector peak."""
    if not formats:
        return system.chip.compute.vector_rate
    chip = system.chip
    rates = [rate_of(chip.compute.matrix_rate, arithmetic_format(chip, *pair)) for pair in formats]
    return reduce(namespace(*rates).maximum, rates)


def legality(case: Case, used: Number, limit: Number) -> Number:
    """The bitmask of rules a point breaks."""
    reason = (used > limit) * float(MEMORY.bit)
    for violation in case.plan.violations(case.program.units, case.workload, case.system.devices):
        reason = reason + violation.broken * float(violation.rule.bit)
    return reason


def known_metric(name: str, phase: str) -> Metric:
    """A metric that points of a phase have; others are refused with the nearest.

    >>> known_metric("tpot", "prefill")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    strata.base.errors.UnknownName: no metric of prefill called 'tpot'; nearest: ...
    """
    has = {n: m for n, m in METRICS.items() if phase in m.phases}
    if name not in has:
        raise UnknownName(f"metric of {phase}", name, has, ", ".join(has))
    return has[name]
