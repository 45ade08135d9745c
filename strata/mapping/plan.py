"""Plans: how many ways each dimension of the work is divided. Degrees may be arrays; which is legal is an answer."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from strata.arrays import Number, floor_div, namespace, register_pytree
from strata.errors import BadValue, UnknownName, require
from strata.workload.model import Model
from strata.workload.tasks import Workload

RECOMPUTE = ("none", "selective", "full")


@register_pytree
@dataclass(frozen=True, eq=False)
class Plan:
    """Parallel degrees. Devices = tp x cp x dp x pp; the experts of a mixture share out the same tp x cp x dp devices anew."""

    tp: Number = 1.0  # tensor parallel: heads, ffn columns, vocabulary
    cp: Number = 1.0  # context parallel: tokens of a sequence
    dp: Number = 1.0  # data parallel: sequences (also "attention data parallel")
    pp: Number = 1.0  # pipeline parallel: layers
    ep: Number = 1.0  # expert parallel: experts, over the tp x cp x dp devices
    moe_tp: Number = 1.0  # how often each expert is cut; tp / ep unless given
    sp: Number = 0.0  # 1: norms and residuals are split over the tp group (Megatron sequence parallel)
    zero: Number = 0.0  # 1 optimiser state, 2 and gradients, 3 and weights are sharded over dp (3 is FSDP)
    microbatches: Number = 0.0  # pieces a rank's batch is cut into; 0 lets the phase decide
    virtual: Number = 1.0  # interleaved pipeline: model chunks on each stage
    recompute: Number = 0.0  # training: 0 keep activations, 1 recompute attention, 2 recompute layers
    order: tuple[str, ...] = ("tp", "cp", "dp", "pp")  # innermost first on the fabric

    @property
    def devices(self) -> Number:
        return self.tp * self.cp * self.dp * self.pp

    @property
    def moe_groups(self) -> Number:
        """Copies of the whole set of experts."""
        return self.tp * self.cp * self.dp / (self.ep * self.moe_tp)


_DEGREES = ("tp", "cp", "dp", "pp", "ep", "moe_tp", "virtual")


def plan(text: str = "", **degrees: Any) -> Plan:
    """A plan from keywords or from text such as ``tp=8,ep=8``; `fsdp` means zero=3 and `recompute` may be a word.

    >>> float(plan("tp=8,ep=2").moe_tp), float(plan(tp=4, dp=2, ep=8).moe_groups)
    (4.0, 1.0)
    """
    for item in filter(None, re.split(r"[,\s]+", text)):
        key, equals, value = item.partition("=")
        require(bool(equals), "a plan is written like tp=8,ep=8", plan=text)
        require(key not in degrees, "a plan says each degree once", plan=text, twice=key)
        degrees[key] = value
    known = [f.name for f in fields(Plan)]
    made: dict[str, Any] = {}
    for key, value in degrees.items():
        if key == "fsdp":
            key, value = "zero", 3.0 * _degree(key, value)
        if key not in known:
            raise UnknownName("degree of a plan", key, [*known, "fsdp"], ", ".join(known))
        made[key] = tuple(value.split("-") if isinstance(value, str) else value) if key == "order" else _degree(key, value)
    if "moe_tp" not in made:
        made["moe_tp"] = usual_moe_tp(*(made.get(k, 1.0) for k in ("tp", "cp", "dp", "ep")))
    order = made.get("order", Plan.order)
    require(sorted(order) == sorted(Plan.order), "plan.order must name tp, cp, dp and pp once each, like tp-cp-dp-pp", order="-".join(order))
    return Plan(**made)


def usual_moe_tp(tp: Number, cp: Number, dp: Number, ep: Number) -> Number:
    """How often an expert is cut unless told: inside a tensor group what expert parallelism leaves of it; where expert
    parallelism reaches over data parallel ranks, as often as the group has ranks left, but not more than tp.

    >>> [float(usual_moe_tp(*p)) for p in ((8.0, 1.0, 1.0, 2.0), (4.0, 1.0, 32.0, 32.0), (4.0, 1.0, 2.0, 8.0))]
    [4.0, 4.0, 1.0]
    """
    xp = namespace(tp, cp, dp, ep)
    outside = xp.maximum(xp.minimum(tp, tp * cp * dp / ep), 1.0)
    return xp.where(ep <= tp, tp / ep, outside) + 0.0


def _degree(key: str, value: Any) -> Number:
    if key == "recompute" and value in RECOMPUTE:
        return float(RECOMPUTE.index(value))
    if not hasattr(value, "shape"):
        try:
            value = float(value)
        except (TypeError, ValueError):
            raise BadValue(f"plan.{key} must be a whole number, but got ({key}={value!r})") from None
    low = value.min() if hasattr(value, "min") else value
    least = 1 if key in _DEGREES else 0
    require(bool(low >= least), f"plan.{key} must be at least {least}", **{key: value})
    require(bool(np.all((value == np.floor(value)) & np.isfinite(value))), f"plan.{key} must be a whole number", **{key: value})
    return value * 1.0


@dataclass(frozen=True)
class Rule:
    """One relation a legal plan obeys: its bit in `Result.reason`, its words, and what to change."""

    bit: int
    relation: str
    levers: tuple[str, ...]


MEMORY = Rule(
    1,
    "what a device holds must fit its memory",
    ("raise tp, pp or ep", "lower batch or context", "store weights or kv in fewer bits", "use more devices", "zero=3"),
)
DEVICES = Rule(2, "plan.tp x cp x dp x pp must be the system's devices", ("change dp", "name a system of that size"))
HEADS = Rule(4, "plan.tp must divide heads or be a multiple of them", ("choose tp among the divisors of heads",))
KV_HEADS = Rule(8, "plan.tp must divide kv_heads or be a multiple of it", ("choose tp among the divisors or multiples of kv_heads",))
EXPERTS = Rule(16, "plan.ep must divide experts", ("choose ep among the divisors of experts; a dense model has ep=1",))
MOE_GRID = Rule(32, "plan.ep x moe_tp must divide tp x cp x dp", ("choose ep among the divisors of tp x cp x dp",))
LAYERS = Rule(64, "plan.pp x virtual must not exceed layers", ("lower pp or virtual",))
BATCH = Rule(128, "plan.dp must not exceed the batch", ("lower dp", "raise batch"))
MICRO = Rule(256, "plan.microbatches must not exceed the sequences of a rank", ("lower microbatches", "raise batch"))
LIMITS = Rule(
    512,
    "power and temperatures of a device must keep their limits at its lowest clock",
    ("a better cooling", "fewer layers", "a higher power limit", "fewer accesses: larger batch or tiles"),
)
CORES = Rule(1024, "the cores of a chip must fit its die", ("a larger die", "fewer connected layers", "less local memory", "fewer cores"))
RULES = (MEMORY, DEVICES, HEADS, KV_HEADS, EXPERTS, MOE_GRID, LAYERS, BATCH, MICRO, LIMITS, CORES)


def violations(made: Plan, model: Model, work: Workload, devices: Number) -> list[tuple[Rule, Number, Number, Number]]:
    """For each rule of legality: the rule, where it is broken, what is asked for and what there is."""
    group = made.tp * made.cp * made.dp
    experts = model.experts if model.has_experts else 1.0 + 0.0 * model.heads
    kv_heads = model.heads if model.attention == "mla" else model.kv_heads
    return [
        (DEVICES, made.devices != devices, made.devices, devices),
        (HEADS, _unequal(made.tp, model.heads), made.tp, model.heads),
        (KV_HEADS, _unequal(made.tp, kv_heads), made.tp, kv_heads),
        (EXPERTS, _rest(experts, made.ep) > 0, made.ep, experts),
        (MOE_GRID, _rest(group, made.ep * made.moe_tp) > 0, made.ep * made.moe_tp, group),
        (LAYERS, made.pp * made.virtual > model.layers, made.pp * made.virtual, model.layers),
        (BATCH, made.dp > work.batch, made.dp, work.batch),
        (MICRO, made.microbatches * made.dp > work.batch, made.microbatches * made.dp, work.batch),
    ]


def _rest(a: Number, b: Number) -> Number:
    return a - b * floor_div(a, b)


def _unequal(parts: Number, units: Number) -> Number:
    """Whether units cannot be shared out: parts neither divides them nor is a multiple of them."""
    return (_rest(units, parts) > 0) & (_rest(parts, units) > 0)


def divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def plans(devices: int, model: Model, *, phase: str = "decode", batch: float = float("inf"), zero: tuple[int, ...] = (0,)) -> Plan:
    """Every legal plan of a device count, as one Plan whose degrees are arrays.

    Context parallelism is left out in decode only where a sequence has nothing to share (it splits the cache there).
    """
    require(devices >= 1, "devices must be at least 1", devices=devices)
    rows = []
    experts = int(float(model.experts)) if model.has_experts else 1
    for tp, cp, dp in itertools.product(divisors(devices), repeat=3):
        if devices % (tp * cp * dp):
            continue
        group = tp * cp * dp
        grids = [
            (ep, mt) for ep in divisors(group) if experts % ep == 0 for mt in {int(usual_moe_tp(tp, cp, dp, ep)), 1} if mt and group % (ep * mt) == 0
        ]
        grids = [(1, tp)] if not model.has_experts else sorted(set(grids))
        for (ep, moe_tp), level in itertools.product(grids, zero):
            if level == 0 or dp > 1:
                rows.append((tp, cp, dp, devices // group, ep, moe_tp, level))
    table = np.array(rows, float).T
    made = Plan(**dict(zip(("tp", "cp", "dp", "pp", "ep", "moe_tp", "zero"), table, strict=True)))
    work = Workload(phase, batch, 1.0, 1.0)
    broken = np.zeros(table.shape[1], bool)
    for _, mask, _, _ in violations(made, model, work, float(devices)):
        broken |= np.broadcast_to(mask, broken.shape)
    keep = ~broken
    return replace(made, **{f.name: getattr(made, f.name)[keep] for f in fields(Plan) if isinstance(getattr(made, f.name), np.ndarray)})


def plan_text(plan: Plan) -> str:
    """A plan as it is typed: only what differs from one device.

    >>> plan_text(plan(tp=8, ep=8))
    'tp=8,ep=8'
    """
    base = Plan()
    parts = []
    for f in fields(Plan):
        value = getattr(plan, f.name)
        implied = f.name == "moe_tp" and value == usual_moe_tp(plan.tp, plan.cp, plan.dp, plan.ep)
        if f.name != "order" and value != getattr(base, f.name) and not implied:
            parts.append(f"{f.name}={value:g}")
    return ",".join(parts) or "tp=1"
