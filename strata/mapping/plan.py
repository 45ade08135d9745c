"""Plans: how many ways each dimension of the work is divided. Degrees may be arrays; which is legal is an
answer.
"""

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
CONTEXT = ("gather", "ring", "ulysses")
DIMENSIONS = ("tp", "cp", "dp", "pp")
# innermost first on the fabric; the first is the usual one
ORDERS = tuple(itertools.permutations(DIMENSIONS))


@register_pytree
@dataclass(frozen=True, eq=False)
class Plan:
    """Parallel degrees. Devices = tp x cp x dp x pp; the experts of a mixture share out the same tp x cp x dp
    devices anew.
    """

    tp: Number = 1.0  # tensor parallel: heads, ffn columns, vocabulary
    cp: Number = 1.0  # context parallel: tokens of a sequence
    dp: Number = 1.0  # data parallel: sequences (also "attention data parallel")
    pp: Number = 1.0  # pipeline parallel: layers
    ep: Number = 1.0  # expert parallel: experts, over the tp x cp x dp devices
    moe_tp: Number = 1.0  # how often each expert is cut; tp / ep unless given
    sp: Number = 0.0  # 1: norms and residuals are split over the tp group (Megatron sequence parallel)
    zero: Number = 0.0  # 1 optimiser state, 2 and gradients, 3 and weights are sharded over dp (3 is FSDP)
    microbatches: Number = 0.0  # pieces a rank's batch is cut into; 0 lets the phase decide
    virtual_stages: Number = 1.0  # interleaved pipeline: model chunks on each stage
    recompute: Number = 0.0  # training: 0 keep activations, 1 recompute attention, 2 recompute layers
    cp_mode: Number = (
        # context ranks meet in attention: 0 keys are gathered first, 1 keys go round a ring beside it, 2
        # tokens swapped for heads (Ulysses)
        0.0
    )
    redundant_experts: Number = 0.0  # copies of popular experts in each layer, beside the experts themselves
    order: Number = 0.0  # which of ORDERS: the dimensions as they lie on the fabric, innermost first

    @property
    def devices(self) -> Number:
        return self.tp * self.cp * self.dp * self.pp

    @property
    def moe_groups(self) -> Number:
        """Copies of the whole set of experts."""
        return self.tp * self.cp * self.dp / (self.ep * self.moe_tp)


_DEGREES = (*DIMENSIONS, "ep", "moe_tp", "virtual_stages")
WORDS = {"recompute": RECOMPUTE, "cp_mode": CONTEXT}


def plan(text: str = "", **degrees: Any) -> Plan:
    """A plan from keywords or from text such as ``tp=8,ep=8``; `fsdp` means zero=3, and `recompute`,
    `cp_mode` and `order` are words.

    >>> float(plan("tp=8,ep=2").moe_tp), float(plan(tp=4, dp=2, ep=8).moe_groups)
    (4.0, 1.0)
    >>> plan_text(plan("tp=4,dp=8,cp=2,cp_mode=ring,order=dp-tp-cp-pp"))
    'tp=4,cp=2,dp=8,cp_mode=ring,order=dp-tp-cp'
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
        made[key] = value if key == "order" else _degree(key, value)
    if "order" in made:
        made["order"] = _order(
            made["order"], [d for d in DIMENSIONS if np.any(np.asarray(made.get(d, 1.0)) > 1)]
        )
    if "moe_tp" not in made:
        made["moe_tp"] = usual_moe_tp(*(made.get(k, 1.0) for k in ("tp", "cp", "dp", "ep")))
    return Plan(**made)


def _order(value: Any, used: list[str]) -> Number:
    """Which of ORDERS a text like dp-tp-pp or a list of names means; an index (or an array of them) stays.

    Dimensions of one rank need not be named.
    """
    if isinstance(value, (str, tuple, list)):
        named = tuple(value.split("-") if isinstance(value, str) else value)
        whole = (*named, *(d for d in DIMENSIONS if d not in named))
        legal = whole in ORDERS and set(used) <= set(named)
        require(
            legal,
            "plan.order must name tp, cp, dp and pp once each, like tp-cp-dp-pp; those of one rank may be left out",
            order="-".join(named),
        )
        return float(ORDERS.index(whole))
    require(
        bool(np.all(np.isin(value, range(len(ORDERS))))),
        f"plan.order must be names or an index below {len(ORDERS)}",
        order=value,
    )
    return value * 1.0


def order_text(plan: Plan) -> str:
    """The order of one plan on the fabric, innermost first: dimensions of more than one rank; "" where that
    is the usual one.

    >>> order_text(plan(tp=4, dp=8, order="dp-tp")), order_text(plan(tp=4, order="dp-tp"))
    ('dp-tp', '')
    """
    used = [d for d in ORDERS[int(plan.order)] if getattr(plan, d) > 1]
    return "" if used == [d for d in DIMENSIONS if d in used] else "-".join(used)


def usual_moe_tp(tp: Number, cp: Number, dp: Number, ep: Number) -> Number:
    """How often an expert is cut unless told: inside a tensor group what expert parallelism leaves of it;
    where expert parallelism reaches over data parallel ranks, as often as the group has ranks left, but not
    more than tp.

    >>> [float(usual_moe_tp(*p)) for p in ((8.0, 1.0, 1.0, 2.0), (4.0, 1.0, 32.0, 32.0), (4.0, 1.0, 2.0, 8.0))]
    [4.0, 4.0, 1.0]
    """
    xp = namespace(tp, cp, dp, ep)
    outside = xp.maximum(xp.minimum(tp, tp * cp * dp / ep), 1.0)
    return xp.where(ep <= tp, tp / ep, outside) + 0.0


def _degree(key: str, value: Any) -> Number:
    words = WORDS.get(key, ())
    if isinstance(value, str) and value in words:
        return float(words.index(value))
    if not hasattr(value, "shape"):
        try:
            value = float(value)
        except (TypeError, ValueError):
            legal = f"one of {', '.join(words)}" if words else "a whole number"
            raise BadValue(f"plan.{key} must be {legal}, but got ({key}={value!r})") from None
    low = value.min() if hasattr(value, "min") else value
    least = 1 if key in _DEGREES else 0
    require(bool(low >= least), f"plan.{key} must be at least {least}", **{key: value})
    require(
        bool(np.all((value == np.floor(value)) & np.isfinite(value))),
        f"plan.{key} must be a whole number",
        **{key: value},
    )
    if words:
        require(
            bool(np.all(value < len(words))), f"plan.{key} must be one of {', '.join(words)}", **{key: value}
        )
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
    (
        "raise tp, pp or ep",
        "lower batch or context",
        "store weights or kv in fewer bits",
        "use more devices",
        "zero=3",
    ),
)
DEVICES = Rule(
    2, "plan.tp x cp x dp x pp must be the system's devices", ("change dp", "name a system of that size")
)
HEADS = Rule(
    4, "plan.tp must divide heads or be a multiple of them", ("choose tp among the divisors of heads",)
)
KV_HEADS = Rule(
    8,
    "plan.tp must divide kv_heads or be a multiple of it",
    ("choose tp among the divisors or multiples of kv_heads",),
)
EXPERTS = Rule(
    16,
    "plan.ep must divide experts and their redundant copies",
    ("choose ep among the divisors of experts; a dense model has ep=1",),
)
MOE_GRID = Rule(
    32, "plan.ep x moe_tp must divide tp x cp x dp", ("choose ep among the divisors of tp x cp x dp",)
)
LAYERS = Rule(64, "plan.pp x virtual_stages must not exceed layers", ("lower pp or virtual_stages",))
BATCH = Rule(
    128,
    "plan.dp must not exceed the batch, but for ranks that share one set of experts",
    ("lower dp", "raise batch"),
)
MICRO = Rule(
    256, "plan.microbatches must not exceed the sequences of a rank", ("lower microbatches", "raise batch")
)
LIMITS = Rule(
    512,
    "power and temperatures of a device must keep their limits at its lowest clock",
    ("a better cooling", "fewer layers", "a higher power limit", "fewer accesses: larger batch or tiles"),
)
CORES = Rule(
    1024,
    "the cores of a chip must fit its die",
    ("a larger die", "fewer connected layers", "less local memory", "fewer cores"),
)
SWAP = Rule(
    2048,
    "plan.tp x cp must divide heads where context ranks swap tokens for heads (cp_mode=ulysses)",
    ("lower cp", "cp_mode=ring"),
)
COPIES = Rule(
    4096,
    "plan.redundant_experts must not exceed the experts",
    ("lower redundant_experts; a dense model has none",),
)
RULES = (
    MEMORY,
    DEVICES,
    HEADS,
    KV_HEADS,
    EXPERTS,
    MOE_GRID,
    LAYERS,
    BATCH,
    MICRO,
    LIMITS,
    CORES,
    SWAP,
    COPIES,
)


def violations(
    made: Plan, model: Model, work: Workload, devices: Number
) -> list[tuple[Rule, Number, Number, Number]]:
    """For each rule of legality: the rule, where it is broken, what is asked for and what there is."""
    group = made.tp * made.cp * made.dp
    experts = model.experts if model.has_experts else 1.0 + 0.0 * model.heads
    kv_heads = model.heads if model.attention == "mla" else model.kv_heads
    swapped = namespace(made.cp_mode, made.cp).where(made.cp_mode > 1, made.cp, 1.0) * made.tp
    copies = experts if model.has_experts else 0.0 * model.heads
    # Ranks without a sequence still serve their experts; in training they would have no gradients to add.
    alone = made.dp if work.phase == "train" else made.dp / sharing(made)
    return [
        (DEVICES, made.devices != devices, made.devices, devices),
        (HEADS, _unequal(made.tp, model.heads), made.tp, model.heads),
        (KV_HEADS, _unequal(made.tp, kv_heads), made.tp, kv_heads),
        (
            EXPERTS,
            _rest(experts + made.redundant_experts, made.ep) > 0,
            made.ep,
            experts + made.redundant_experts,
        ),
        (MOE_GRID, _rest(group, made.ep * made.moe_tp) > 0, made.ep * made.moe_tp, group),
        (LAYERS, made.pp * made.virtual_stages > model.layers, made.pp * made.virtual_stages, model.layers),
        (BATCH, alone > work.batch, alone, work.batch),
        (MICRO, made.microbatches * made.dp > work.batch, made.microbatches * made.dp, work.batch),
        (SWAP, (made.cp_mode > 1) & (_rest(model.heads, swapped) > 0), swapped, model.heads),
        (COPIES, made.redundant_experts > copies, made.redundant_experts, copies),
    ]


def sharing(made: Plan) -> Number:
    """Data parallel ranks that share one set of experts, as these are dealt to tensor ranks first, then
    context ranks, then data parallel ones.

    >>> float(sharing(plan(tp=16, dp=16, ep=16, moe_tp=16))), float(sharing(plan(tp=4, cp=4, dp=2, ep=8))), float(sharing(plan(dp=8)))
    (16.0, 2.0, 1.0)
    """
    return namespace(made.ep, made.moe_tp, made.tp, made.cp).maximum(
        made.ep * made.moe_tp / (made.tp * made.cp), 1.0
    )


def _rest(a: Number, b: Number) -> Number:
    return a - b * floor_div(a, b)


def _unequal(parts: Number, units: Number) -> Number:
    """Whether units cannot be shared out: parts neither divides them nor is a multiple of them."""
    return (_rest(units, parts) > 0) & (_rest(parts, units) > 0)


def divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def plans(
    devices: int,
    model: Model,
    *,
    phase: str = "decode",
    batch: float = float("inf"),
    zero: tuple[int, ...] = (0,),
    cp_mode: tuple[int, ...] = (0,),
    freely: bool = True,
    sp: bool = False,
) -> Plan:
    """Every legal plan of a device count, as one Plan whose degrees are arrays: all factorisations into tp,
    cp, dp and pp, all ways to share the experts out, and each of the ZeRO levels and of the ways of context
    parallelism asked for.

    An expert is cut into as many parts as attention at most, or, without expert parallelism, over every data
    parallel rank; not `freely`: as its tensor group leaves it, or not at all. With `sp` tensor groups share
    out norms and residuals.
    """
    require(devices >= 1, "devices must be at least 1", devices=devices)
    rows = []
    experts = int(float(model.experts)) if model.has_experts else 1
    for tp, cp, dp in itertools.product(divisors(devices), repeat=3):
        if devices % (tp * cp * dp):
            continue
        group = tp * cp * dp
        grids = _grids(tp, cp, dp, experts, freely) if model.has_experts else [(1, tp)]
        for (ep, moe_tp), level, by in itertools.product(grids, zero, cp_mode):
            if (level == 0 or dp > 1) and (by == cp_mode[0] or cp > 1):
                rows.append((tp, cp, dp, devices // group, ep, moe_tp, level, by))
    table = np.array(rows, float).T
    made = Plan(**dict(zip(("tp", "cp", "dp", "pp", "ep", "moe_tp", "zero", "cp_mode"), table, strict=True)))
    made = replace(made, sp=(made.tp > 1) * 1.0) if sp else made
    work = Workload(phase, batch, 1.0, 1.0)
    broken = np.zeros(table.shape[1], bool)
    for _, mask, _, _ in violations(made, model, work, float(devices)):
        broken |= np.broadcast_to(mask, broken.shape)
    return taken(made, ~broken)


def _grids(tp: int, cp: int, dp: int, experts: int, freely: bool) -> list[tuple[int, int]]:
    """Ways to share out experts over tp x cp x dp ranks: how many parts, and how often each expert is cut."""
    group = tp * cp * dp
    found = set()
    for ep in divisors(group):
        if experts % ep == 0:
            cuts = {int(usual_moe_tp(tp, cp, dp, ep)), 1, *(divisors(tp) if freely else ())}
            # attention data parallel, experts cut over all of its ranks
            cuts |= {tp * dp} if ep == cp == 1 else set()
            found |= {(ep, cut) for cut in cuts if cut and group % (ep * cut) == 0}
    return sorted(found)


def taken(many: Plan, which: Any) -> Plan:
    """Some of the plans of an array of plans, by a mask or by indices."""
    return replace(
        many,
        **{
            f.name: getattr(many, f.name)[which]
            for f in fields(Plan)
            if isinstance(getattr(many, f.name), np.ndarray)
        },
    )


def plan_text(plan: Plan) -> str:
    """A plan as it is typed: only what differs from one device.

    >>> plan_text(plan(tp=8, ep=8)), plan_text(plan(tp=4, dp=32, ep=32, moe_tp=1))
    ('tp=8,ep=8', 'tp=4,dp=32,ep=32,moe_tp=1')
    """
    base = Plan()
    parts = []
    for f in fields(Plan):
        value = getattr(plan, f.name)
        usual = (
            usual_moe_tp(plan.tp, plan.cp, plan.dp, plan.ep) if f.name == "moe_tp" else getattr(base, f.name)
        )
        if f.name != "order" and value != usual:
            words = WORDS.get(f.name)
            parts.append(f"{f.name}={words[int(value)] if words else f'{value:g}'}")
    if order_text(plan):
        parts.append(f"order={order_text(plan)}")
    return ",".join(parts) or "tp=1"
