"""Plans: the named layouts of language models, as parallel degrees that may be arrays. One field of `Plan` is
one degree; what it does to axes stands in `plan_layout`.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from strata.base.arrays import Number, is_leaf, lowest, namespace, register_pytree
from strata.base.errors import BadValue, UnknownName, require
from strata.base.records import brief, to_dict
from strata.base.units import finite_array, finite_quantity
from strata.mapping.kernel_parallel import (
    KERNEL_MESH,
    WRITTEN,
    Strategy,
    from_mesh,
    is_strategy,
    layout_of,
    mesh_text,
    parse_strategy,
    with_degrees,
)
from strata.mapping.layout import Layout, Sharding, layout
from strata.mapping.plan_layout import active_groups, group_ranks, plan_sharding, plan_violations
from strata.mapping.rules import Violation, bounded_degree, mesh_degree
from strata.mapping.training_plan import (
    OFFLOAD,
    RECOMPUTE,
    RECOMPUTE_MODULES,
    SCHEDULE,
    flags_code,
    flags_text,
)
from strata.workload.graph import Graph
from strata.workload.protocol import member
from strata.workload.tasks import Workload

Words = tuple[str, ...]
CONTEXT = ("gather", "ring", "ulysses", "a2a+p2p")


def degree(
    default: float, divides: str, *, words: Words = (), flags: Words = (), dimension: bool = False
) -> Any:
    """A degree: what it divides, words of its values (`flags`: joined by +), whether the mesh has it."""
    least = 1 if default else 0
    row = {"divides": divides, "least": least, "words": words, "flags": flags, "dimension": dimension}
    return field(default=default, metadata=row)


@register_pytree
@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """Parallel degrees. Devices = tp x cp x dp x pp; experts share out the same tp x cp x dp anew."""

    tp: Number = degree(1.0, "tensor parallel: heads, ffn columns, vocabulary", dimension=True)
    cp: Number = degree(1.0, "context parallel: tokens of a sequence", dimension=True)
    dp: Number = degree(1.0, 'data parallel: sequences (also "attention data parallel")', dimension=True)
    pp: Number = degree(1.0, "pipeline parallel: layers", dimension=True)
    ep: Number = degree(1.0, "expert parallel: experts, over the tp x cp x dp devices")
    moe_tp: Number = degree(1.0, "expert tensor parallel: parts of each expert; tp / ep unless given")
    sp: Number = degree(
        0.0, "1: norms and residuals are split over the tp group (Megatron sequence parallel)"
    )
    zero: Number = degree(
        0.0, "ZeRO: 1 optimiser state, 2 and gradients, 3 and weights are sharded over dp (3 is FSDP)"
    )
    microbatches: Number = degree(0.0, "micro-batches of a rank; 0 lets the phase decide")
    virtual_stages: Number = degree(1.0, "interleaved pipeline: model chunks on each stage")
    recompute: Number = degree(
        0.0, "training: keep activations, recompute attention, recompute layers", words=RECOMPUTE
    )
    recompute_layers: Number = degree(
        0.0, "training: layers of each chunk of a stage that recompute=full recomputes; 0: all of them"
    )
    recompute_modules: Number = degree(
        0.0, "training: what recompute=selective recomputes, like core_attn+mlp", flags=RECOMPUTE_MODULES
    )
    schedule: Number = degree(
        0.0, "order of a pipeline's passes (1f1b is interleaved with virtual_stages)", words=SCHEDULE
    )
    split_ends: Number = degree(
        0.0, "1: embedding and head count as layers where a pipeline is split into stages"
    )
    dp_shard: Number = degree(0.0, "ranks that ZeRO shards over, copies of them beside (HSDP); 0: all")
    offload: Number = degree(0.0, "training: what lies in the host's memory between uses", words=OFFLOAD)
    # keys are gathered first, keys go round a ring beside attention, tokens are swapped for heads (Ulysses),
    # or swapped among cp_a2a neighbours and keys passed round between these
    cp_mode: Number = degree(0.0, "how context ranks meet in attention", words=CONTEXT)
    cp_a2a: Number = degree(0.0, "context ranks that swap tokens for heads with cp_mode=a2a+p2p")
    redundant_experts: Number = degree(
        0.0, "copies of popular experts in each layer, beside the experts themselves"
    )
    order: Number = degree(0.0, "which of ORDERS: the dimensions as they lie on the fabric, innermost first")

    def __repr__(self) -> str:
        """As it is typed; of an array of plans the degrees that differ."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if np.ndim(getattr(self, f.name))}
        if not arrays:
            return f"plan({plan_text(self)!r})"
        return f"Plan({', '.join(f'{name}={brief(value)}' for name, value in arrays.items())})"

    def to_dict(self) -> Any:
        return to_dict(self)

    @property
    def devices(self) -> Number:
        return self.tp * self.cp * self.dp * self.pp

    @property
    def moe_groups(self) -> Number:
        """Copies of the whole set of experts."""
        return self.tp * self.cp * self.dp / (self.ep * self.moe_tp)

    def active(self) -> frozenset[str]:
        return active_groups(self)

    def group_ranks(self, active: frozenset[str]) -> dict[str, Any]:
        return group_ranks(self, active)

    def sharding(self, graph: Graph, work: Workload, active: frozenset[str]) -> Sharding:
        return plan_sharding(self, work, active)

    def violations(self, units: dict[str, Number], work: Workload, devices: Number) -> list[Violation]:
        return plan_violations(self, units, work, devices)


DIMENSIONS = tuple(f.name for f in fields(Plan) if f.metadata["dimension"])
# innermost first on the fabric; the first is the usual one
ORDERS = tuple(itertools.permutations(DIMENSIONS))
_LEAST = {f.name: f.metadata["least"] for f in fields(Plan)} | {"fsdp": 0}
FLAGS = {f.name: f.metadata["flags"] for f in fields(Plan) if f.metadata["flags"]}
WORDS = {f.name: f.metadata["words"] for f in fields(Plan) if f.metadata["words"]}


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
        used = [d for d in DIMENSIONS if np.any(np.asarray(made.get(d, 1.0)) > 1)]
        made["order"] = _order(made["order"], used)
    if "moe_tp" not in made:
        made["moe_tp"] = usual_moe_tp(*(made.get(k, 1.0) for k in ("tp", "cp", "dp", "ep")))
    return Plan(**made)


def _order(value: Any, used: list[str]) -> Number:
    """Which of ORDERS a text like dp-tp-pp or a list of names means, dimensions of one rank left out; an
    index (or an array of them) stays.
    """
    if isinstance(value, (str, tuple, list)):
        named = tuple(value.split("-") if isinstance(value, str) else value)
        whole = (*named, *(d for d in DIMENSIONS if d not in named))
        legal = whole in ORDERS and set(used) <= set(named)
        require(
            legal,
            "plan.order must name tp, cp, dp and pp once each, like tp-cp-dp-pp; "
            "those of one rank may be left out",
            order="-".join(map(str, named)),
        )
        return float(ORDERS.index(whole))
    require(
        bool(np.all(np.isin(value, range(len(ORDERS))))),
        f"plan.order must be names or an index below {len(ORDERS)}",
        order=value,
    )
    return value * 1.0


def order_text(plan: Plan) -> str:
    """The order of one plan on the fabric, innermost first, of more than one rank; "" for the usual one.

    >>> order_text(plan(tp=4, dp=8, order="dp-tp")), order_text(plan(tp=4, order="dp-tp"))
    ('dp-tp', '')
    """
    used = [d for d in ORDERS[int(plan.order)] if getattr(plan, d) > 1]
    return "" if used == [d for d in DIMENSIONS if d in used] else "-".join(used)


def usual_moe_tp(tp: Number, cp: Number, dp: Number, ep: Number) -> Number:
    """How often an expert is cut unless told: inside a tensor group what expert parallelism leaves of it;
    where expert parallelism reaches over data parallel ranks, as often as the group has ranks left, but not
    more than tp.

    >>> degrees = ((8.0, 1.0, 1.0, 2.0), (4.0, 1.0, 32.0, 32.0), (4.0, 1.0, 2.0, 8.0))
    >>> [float(usual_moe_tp(*p)) for p in degrees]
    [4.0, 4.0, 1.0]
    """
    xp = namespace(tp, cp, dp, ep)
    outside = xp.maximum(xp.minimum(tp, tp * cp * dp / ep), 1.0)
    return xp.where(ep <= tp, tp / ep, outside) + 0.0


def _degree(key: str, value: Any) -> Number:
    words = WORDS.get(key, ())
    if isinstance(value, str) and key in FLAGS and not value.isdigit():
        return flags_code(value, FLAGS[key], f"part of plan.{key}")
    if isinstance(value, str) and value in words:
        return float(words.index(value))
    if not hasattr(value, "shape"):
        try:
            value = float(value)
        except (TypeError, ValueError):
            legal = f"one of {', '.join(words)}" if words else "a whole number"
            raise BadValue(f"plan.{key} must be {legal}, but got ({key}={value!r})") from None
    low = lowest(value)
    least = _LEAST[key]
    require(bool(low >= least), f"plan.{key} must be at least {least}", **{key: value})
    require(
        bool(np.all((value == np.floor(value)) & np.isfinite(value))),
        f"plan.{key} must be a whole number",
        **{key: value},
    )
    bounded_degree(value, f"plan.{key}")
    if words or key in FLAGS:
        most = len(words) or 2 ** len(FLAGS[key])
        legal = f"one of {', '.join(words)}" if words else f"below {most}"
        require(bool(np.all(value < most)), f"plan.{key} must be {legal}", **{key: value})
    return value * 1.0


def layout_degrees(program: Any) -> tuple[str, ...]:
    """Degrees of the layout that a program names itself; () for programs that plans divide.

    >>> from strata.workload.program import program
    >>> layout_degrees(program("fft-1024")), layout_degrees(program("llama-3-8b"))
    (('p', 'q'), ())
    """
    if member(program, "kernel_modules"):
        return KERNEL_MESH
    return () if member(program, "takes_plans") else tuple(member(program, "mesh_dimensions"))


def division(program: Any, given: Plan | Layout | Strategy | str | None, **degrees: Any) -> Plan | Layout:
    """A plan or layout as it is, or from text: degrees of a plan, or of the layout a program names itself, or
    a strategy of kernel parallelism.

    >>> from strata.workload.program import program
    >>> division(program("fft-1024"), "p=2,q=4").mesh, division(program("llama-3-8b"), "tp=8")
    ({'p': 2.0, 'q': 4.0}, plan('tp=8'))
    >>> division_text(division(program("gemm-8192"), "RC-4-2-d8"))
    'RC-4-2-d8'
    """
    if isinstance(given, Strategy):
        return layout_of(given, program)
    if given is not None and not isinstance(given, str):
        return _checked_record(given)
    known = layout_degrees(program)
    if given and is_strategy(given) and (not known or known == KERNEL_MESH):
        return layout_of(with_degrees(parse_strategy(given), degrees), program)
    if not known:
        return plan(given or "", **degrees)
    for item in filter(None, re.split(r"[,\s]+", given or "")):
        key, _, value = item.partition("=")
        try:
            degrees[key] = float(value)
        except ValueError:
            words = division_words(program)
            raise BadValue(f"{program.name} is divided like {words}, but got '{item}'") from None
    if not set(degrees) <= set(known):
        raise BadValue(f"{program.name} is divided like {division_words(program)}, but got '{given}'")
    if known == KERNEL_MESH:
        return layout_of(from_mesh(degrees), program)
    told = member(program, "layout")(**degrees)
    return layout(told.pop("mesh"), told.pop("axes", None), **told)


def _checked_record(given: Any) -> Plan | Layout:
    """A plan or layout made as a record, checked as `plan` and `layout` do; lists become arrays."""
    if isinstance(given, Layout):
        degrees = {name: mesh_degree(value, name) for name, value in given.mesh.items()}
        return replace(given, mesh=degrees) if _has_list(given.mesh) else given
    if not isinstance(given, Plan):
        raise BadValue(f"a plan is text like tp=8, a Plan, a Layout or a Strategy, but got {brief(given)}")
    degrees = {f.name: getattr(given, f.name) for f in fields(Plan)}
    for name, value in degrees.items():
        if isinstance(value, list | tuple):
            degrees[name] = value = finite_array(value, f"plan.{name}")
        if not is_leaf(value):
            raise BadValue(f"plan.{name} must be a whole number, but got ({name}={value!r})")
        if isinstance(value, int | float | np.number | np.ndarray):
            finite_quantity(value, f"plan.{name}")
            low = np.min(value)
            require(bool(low >= _LEAST[name]), f"plan.{name} must be at least {_LEAST[name]}", **{name: low})
            bounded_degree(value, f"plan.{name}")
    return Plan(**degrees) if _has_list(vars(given)) else given


def _has_list(held: dict[str, Any]) -> bool:
    return any(isinstance(value, list | tuple) for value in held.values())


def divides_itself(program: Any) -> bool:
    """Whether a program names its one layout; for others plans or strategies of kernels are searched.

    >>> from strata.workload.program import program
    >>> [divides_itself(program(name)) for name in ("fft-1024", "gemm-8192", "llama-3-8b")]
    [True, False, False]
    """
    return bool(layout_degrees(program)) and not member(program, "kernel_modules")


def usual_division(program: Any, devices: Number) -> str:
    """The division that a program itself has for so many devices; "" where it says none.

    >>> from strata.workload.program import program
    >>> usual_division(program("gpt3-layer"), 8.0), usual_division(program("llama-3-8b"), 8.0)
    ('tp=8', '')
    """
    return str(member(program, "division_over")(float(devices)))


def division_words(program: Any) -> str:
    """How a program's division is typed.

    >>> from strata.workload.program import program
    >>> division_words(program("mlp-8192"))
    'kp1=4,kp2=2 (rows and columns), or depth=8'
    """
    if member(program, "kernel_modules"):
        return f"{WRITTEN}; or kp1=4,kp2=2"
    return str(member(program, "layout_text")())


def division_text(division: Plan | Layout) -> str:
    """A plan or a layout's mesh as it is typed.

    >>> division_text(plan(tp=8)), division_text(layout({"p": 2, "q": 4}))
    ('tp=8', 'p=2,q=4')
    """
    if isinstance(division, Plan):
        return plan_text(division)
    degrees = (f"{name}={float(ranks):g}" for name, ranks in division.mesh.items() if ranks > 1)
    return division.name or mesh_text(division.mesh) or ",".join(degrees) or "1 rank"


def plan_text(plan: Plan) -> str:
    """A plan as it is typed: only what differs from one device.

    >>> plan_text(plan(tp=8, ep=8)), plan_text(plan(tp=4, dp=32, ep=32, moe_tp=1))
    ('tp=8,ep=8', 'tp=4,dp=32,ep=32,moe_tp=1')
    """
    base = Plan()
    parts = []
    for f in fields(Plan):
        value, usual = getattr(plan, f.name), getattr(base, f.name)
        if f.name == "moe_tp":
            usual = usual_moe_tp(plan.tp, plan.cp, plan.dp, plan.ep)
        if f.name != "order" and value != usual:
            words = WORDS.get(f.name)
            said = words[int(value)] if words else f"{value:g}"
            parts.append(f"{f.name}={flags_text(value, FLAGS[f.name]) if f.name in FLAGS else said}")
    if order_text(plan):
        parts.append(f"order={order_text(plan)}")
    return ",".join(parts) or "tp=1"
