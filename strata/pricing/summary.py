"""summarise(): from priced steps to the numbers people ask for."""

from __future__ import annotations

from dataclasses import dataclass

from strata.arrays import Number, namespace, register_pytree
from strata.hardware.silicon.cost import price_of
from strata.hardware.system import Economics, System
from strata.mapping.plan import CORES, LIMITS, MEMORY, Plan, violations
from strata.precision import rate_of
from strata.pricing.kernels.device import arithmetic, on_chip
from strata.pricing.metrics import TokenMetrics
from strata.pricing.power_cap import voltage_energy
from strata.pricing.price import RESOURCES
from strata.pricing.step import OP_KINDS, Step
from strata.workload.model import Model
from strata.workload.tasks import Workload

MILLION = 1e6


@register_pytree
@dataclass(frozen=True, eq=False)
class Summary:
    """Metrics, why a point is out (a bitmask, 0 is in), and where time and memory go."""

    metrics: TokenMetrics
    reason: Number
    resources: dict[str, Number]  # mean device time credited to each resource, and waiting [s]
    kinds: dict[str, Number]  # mean device time by kind of op [s]
    memory: dict[str, Number]  # bytes by purpose
    energy: dict[str, Number]  # joules a token by level, of the whole system; they add up to energy_per_token
    # mean device time that communication beside computation saves [s], of what `kinds` counts
    overlap: Number


def summarise(
    system: System,
    model: Model,
    work: Workload,
    plan: Plan,
    money: Economics,
    steps: list[tuple[Number, Step]],
    share: Number,
    prefill: Step | None,
) -> Summary:
    """Metrics of weighted steps (the decode steps of a generation, or the one step of another phase).

    steps: weight and step, weights adding up to 1; share: the part of device memory that may be filled;
    prefill: the step that reads the prompts of a served batch.
    """
    time = sum((w * s.time for w, s in steps), 0.0)
    xp = namespace(time, work.batch)
    devices = system.devices
    main = steps[-1][1]
    memory = main.memory
    used = sum(memory.values(), 0.0)
    limit = system.chip.memory.capacity * share
    reason = legality(system, model, work, plan, used, limit) + _unbuilt(
        system, [s for _, s in steps] + ([] if prefill is None else [prefill])
    )
    out = reason > 0
    tokens, span = _tokens(work, time, prefill)
    every = [(w * (work.output if prefill is not None else 1.0), s) for w, s in steps] + (
        [(1.0, prefill)] if prefill is not None else []
    )
    flop = sum((w * s.flop for w, s in every), 0.0)
    moved = sum((w * s.price.memory_bytes for w, s in every), 0.0)
    dynamic = sum((w * s.price.energy for w, s in every), 0.0)
    static = sum((w * s.static * s.time for w, s in every), 0.0) / sum((w * s.time for w, s in every), 0.0)
    device_power = dynamic / span + static
    host = 0.0 if system.fabric.host is None else system.fabric.host.power
    power = devices * (device_power + host)
    rate = tokens / span
    infinite = xp.where(out, xp.inf, 0.0)

    def gated(value: Number) -> Number:
        return xp.where(out, 0.0, value)

    user = work.generated / time if work.phase == "decode" else rate / work.batch
    metrics = TokenMetrics(
        step_time=time + infinite,
        ttft=(prefill.time if prefill is not None else (time if work.phase == "prefill" else xp.inf))
        + infinite,
        tpot=(
            time / (work.generated if work.phase == "decode" else 1.0)
            if work.phase in ("decode", "serve")
            else xp.inf
        )
        + infinite,
        items_per_s=gated(rate),
        tokens_per_s=gated(rate),
        tokens_per_s_per_user=gated(1.0 / time if work.phase == "serve" else user),
        tokens_per_s_per_device=gated(rate / devices),
        mfu=gated(flop / (span * devices * _peak(system, model))),
        mbu=gated(moved / (span * system.chip.memory.bandwidth)),
        energy_per_item=power * span / tokens + infinite,
        energy_per_token=power * span / tokens + infinite,
        power=gated(power),
        device_power=gated(device_power),
        clock=main.clock * system.chip.compute.max_clock,
        temperature=_hottest(every),
        memory_used=used,
        memory_limit=limit,
        cost_per_mitem=cost_rate(system, money, power) * span / tokens * MILLION + infinite,
        cost_per_mtoken=cost_rate(system, money, power) * span / tokens * MILLION + infinite,
        lower=sum((w * s.lower for w, s in steps), 0.0) + infinite,
        upper=sum((w * s.upper for w, s in steps), 0.0) + infinite,
    )
    resources = {r: sum((w * getattr(s.price, r) for w, s in every), 0.0) for r in RESOURCES}
    # What no device works on: pipeline bubbles, stages that wait for slower ones, the engine's host time.
    waited = sum((w * (s.time - s.price.time) for w, s in every), 0.0)
    # a difference of sums: its last bits are noise
    resources["waiting"] = xp.where(waited > 1e-12 * time, waited, 0.0)
    saved = sum((w * s.price.saved for w, s in every), 0.0)
    kinds = {k: sum((w * s.kinds.get(k, 0.0) for w, s in every), 0.0) for k in OP_KINDS}
    return Summary(
        metrics, reason, resources, kinds, memory, energy_by_level(system, every, static, span, tokens), saved
    )


def _hottest(every: list[tuple[Number, Step]]) -> Number:
    """The highest temperature of any step [K]."""
    found = every[0][1].logic
    for _, step in every:
        xp = namespace(found, step.logic, step.dram)
        found = xp.maximum(found, xp.maximum(step.logic, step.dram))
    return found


def _unbuilt(system: System, steps: list[Step]) -> Number:
    """The bits of rules that a chip breaks by itself: limits it cannot hold, cores its die has no room for."""
    kept: Number = 1.0
    for step in steps:
        kept = kept * step.holds
    reason = (1.0 - kept) * float(LIMITS.bit)
    if system.chip.cores_fit is not None:
        reason = reason + (system.chip.cores_fit < system.chip.compute.cores) * float(CORES.bit)
    return reason


def energy_by_level(
    system: System, every: list[tuple[Number, Step]], static: Number, span: Number, tokens: Number
) -> dict[str, Number]:
    """Joules a token: operations, bytes on the chip, DRAM, links, what idles, and the hosts."""
    chip, devices = system.chip, system.devices
    dynamic, moved, links = (
        sum((w * getattr(s.price, name) for w, s in every), 0.0)
        for name in ("energy", "memory_bytes", "link_energy")
    )
    cached = sum(
        (w * s.price.cache_bytes * voltage_energy(s.clock, chip.energy.voltage_slope) for w, s in every), 0.0
    )
    memory, on_die = moved * chip.energy.memory, cached * on_chip(chip)
    host = 0.0 if system.fabric.host is None else system.fabric.host.power
    parts = {
        "compute": dynamic - memory - on_die - links,
        "cache": on_die,
        "memory": memory,
        "network": links,
    }
    parts |= {"static": static * span, "hosts": host * span}
    return {name: devices * joules / tokens for name, joules in parts.items()}


def _tokens(work: Workload, time: Number, prefill: Step | None) -> tuple[Number, Number]:
    """Tokens that count, and the time they take."""
    if prefill is not None:
        return work.batch * work.output, prefill.time + work.output * time
    return work.batch * work.generated, time


def _peak(system: System, model: Model) -> Number:
    """The fastest matrix peak the model's formats use on this chip."""
    rates = system.chip.compute.matrix_rate
    used = [
        rate_of(rates, arithmetic(system.chip, w, model.activations))
        for w in (model.weights, model.expert_weights, model.embedding_dtype)
    ]
    peak = used[0]
    for other in used[1:]:
        peak = namespace(peak, other).maximum(peak, other)
    return peak


def legality(system: System, model: Model, work: Workload, plan: Plan, used: Number, limit: Number) -> Number:
    """The bitmask of rules a point breaks."""
    reason = (used > limit) * float(MEMORY.bit)
    for rule, broken, _, _ in violations(plan, model, work, system.devices):
        reason = reason + broken * float(rule.bit)
    return reason


def cost_rate(system: System, money: Economics, power: Number) -> Number:
    r"""Cost of running a system [USD/s].

    .. math:: C = \frac{K}{L u} + P \, e \, \eta

    price K of chips, links and hosts, written off over lifetime L at utilisation u; power P, electricity
    price e, facility overhead η. A chip without a price has that of its making times the usual markup; NaN
    where nothing says how it is made.

    >>> from strata.hardware.system import economics, system
    >>> round(float(cost_rate(system("8xh200"), economics(), 1e4)) * 3600, 1)  # USD an hour
    18.2
    """
    price = price_of(system.chip, money.markup)
    if price is None:
        return float("nan") * power
    for dimension in system.fabric.dimension:
        if dimension.price is not None:
            price = price + namespace(dimension.size, dimension.price).where(
                dimension.size > 1, dimension.price, 0.0
            )
    if system.fabric.host is not None and system.fabric.host.price is not None:
        price = price + system.fabric.host.price
    return (
        system.devices * price / (money.lifetime * money.utilisation)
        + power * money.electricity * money.overhead
    )
