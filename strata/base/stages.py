"""Stages: a traced function cut where small quantities meet large ones, so that a compiler works nothing out
twice.

A compiler that fuses element-wise code works out what a fused loop needs inside the loop: a quantity of 12
chips that meets 1,796 plans would be worked out 21,552 times, and one that ten results need ten times. Here a
function is traced once for its shapes; what it repeats is merged; quantities that are broadcast, reduced,
looped over, or needed several times are kept in memory; and what lies between them is compiled stage by
stage. Results do not change but for the last bits of a rounding.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np

from strata.base.arrays import cores, enable_jax
from strata.base.batch import is_list, run_box, unlabelled

# Points that compiled code prices at once: of a list on a CPU, at least and at most of a box.
LIST_AT_ONCE, BOX_AT_LEAST, AT_MOST = 1 << 15, 1 << 16, 1 << 22

# whose equations are taken as if written in place
CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call")
FREE = ("broadcast_in_dim", "convert_element_type", "reshape", "squeeze", "copy")
# What an operation costs a core, in multiplications; those not named cost one.
COSTS = {"div": 4, "sqrt": 5, "exp": 15, "log": 15, "expm1": 20, "log1p": 20, "pow": 30} | dict.fromkeys(
    FREE, 0
)
# What reads its operands more than once or out of order: they are kept, and so is what it gives.
_REDUCED = ("reduce_min", "reduce_max", "reduce_sum", "reduce_and", "reduce_or", "argmax", "argmin")
APART = ("scan", "while", "cond", *_REDUCED, "gather", "sort", "concatenate")
AGAIN = 4  # cost of what is rather worked out again than kept, where it has the whole box's shape
AGAIN_SMALL = 60  # and where it has fewer points: there a compiler's time counts
LONGEST = 300  # cost of one loop: longer ones compile slowly


@dataclass(frozen=True, eq=False, slots=True)
class Equation:
    """One operation of a traced function; quantities are numbered."""

    operation: Any
    settings: dict[str, Any]
    takes: tuple[int, ...]
    gives: tuple[int, ...]


@dataclass(eq=False)
class Flat:
    """A traced function without calls, equal equations, or any that no result needs."""

    shapes: list[Any] = field(default_factory=list)  # of each quantity, with its type
    fixed: dict[int, Any] = field(default_factory=dict)  # constants
    equations: list[Equation] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    results: list[int] = field(default_factory=list)

    def size(self, number: int) -> int:
        return math.prod(self.shapes[number].shape)


@dataclass(frozen=True, eq=False, slots=True)
class Stage:
    """Equations that are compiled together, what they take and give, and what nothing needs afterwards."""

    takes: tuple[int, ...]
    gives: tuple[int, ...]
    equations: tuple[Equation, ...]
    last: tuple[int, ...]


def flattened(traced: Any) -> Flat:
    """A closed jaxpr as plain equations: calls opened, equal equations merged, those without use dropped."""
    from jax.extend.core import Literal

    flat = Flat()
    known: dict[Any, tuple[int, ...]] = {}

    def number(shape: Any) -> int:
        flat.shapes.append(shape)
        return len(flat.shapes) - 1

    def constant(value: Any, shape: Any) -> int:
        found = np.asarray(value)
        key = (found.dtype.str, found.shape, found.tobytes(), shape.weak_type)
        if key not in known:
            known[key] = (number(shape),)
            flat.fixed[known[key][0]] = value
        return known[key][0]

    def opened(jaxpr: Any, constants: Iterable[Any], given: Sequence[int]) -> list[int]:
        names = dict(zip(jaxpr.invars, given, strict=True))
        names |= {v: constant(c, v.aval) for v, c in zip(jaxpr.constvars, constants, strict=True)}

        def read(v: Any) -> int:
            return constant(v.val, v.aval) if isinstance(v, Literal) else names[v]

        for e in jaxpr.eqns:
            takes = tuple(read(v) for v in e.invars)
            inner = e.params.get("jaxpr", e.params.get("call_jaxpr")) if e.primitive.name in CALLS else None
            if inner is not None:
                gives: Sequence[int] = opened(inner.jaxpr, inner.consts, takes)
            else:
                # Loops and branches carry functions, which are the same only where they are one.
                bodies = any(
                    hasattr(p, "jaxpr")
                    for value in e.params.values()
                    for p in (value if isinstance(value, tuple) else (value,))
                )
                key = (e.primitive.name, takes, id(e) if bodies else repr(sorted(e.params.items())))
                if key not in known:
                    known[key] = tuple(number(v.aval) for v in e.outvars)
                    flat.equations.append(Equation(e.primitive, e.params, takes, known[key]))
                gives = known[key]
            names |= zip(e.outvars, gives, strict=True)
        return [read(v) for v in jaxpr.outvars]

    flat.inputs = [number(v.aval) for v in traced.jaxpr.invars]
    flat.results = opened(traced.jaxpr, traced.consts, flat.inputs)
    needed, kept = set(flat.results), []
    for e in reversed(flat.equations):
        if not needed.isdisjoint(e.gives):
            kept.append(e)
            needed.update(e.takes)
    flat.equations = kept[::-1]
    return flat


def kept_quantities(flat: Flat) -> set[int]:
    """Quantities to keep in memory between stages: results, and what would be worked out again and again."""
    made = {number for e in flat.equations for number in e.gives}
    uses = Counter(number for e in flat.equations for number in set(e.takes))
    whole = max((flat.size(number) for number in flat.results), default=1)
    kept = made & set(flat.results)
    cost: dict[int, int] = {}  # of working a quantity out from those kept
    for e in flat.equations:
        size, takes = max(flat.size(number) for number in e.gives), made.intersection(e.takes)
        apart = e.operation.name in APART
        kept |= {number for number in takes if cost[number] and (apart or flat.size(number) < size)}
        own = COSTS.get(e.operation.name, 1) + sum(cost[number] for number in takes - kept)
        again = AGAIN if size >= whole else AGAIN_SMALL
        for number in e.gives:
            cost[number] = own
            if apart or own > LONGEST or (own > again and uses[number] > 1):
                kept.add(number)
    return kept


def cut(flat: Flat) -> list[Stage]:
    """Stages in order: each works out the kept quantities that need only those of stages before it."""
    kept = kept_quantities(flat)
    maker = {number: i for i, e in enumerate(flat.equations) for number in e.gives}
    level: dict[int, int] = {}
    for e in flat.equations:
        after = max((level.get(number, 0) for number in e.takes), default=0)
        level |= {number: after + (number in kept) for number in e.gives}
    by_level: dict[int, list[int]] = defaultdict(list)
    for number in sorted(kept):
        by_level[level[number]].append(number)
    found = []
    for gives in (by_level[at] for at in sorted(by_level)):
        inside, takes, open_ = set[int](), set[int](), [maker[number] for number in gives]
        while open_:
            i = open_.pop()
            if i in inside:
                continue
            inside.add(i)
            for number in flat.equations[i].takes:
                if number in maker and number not in kept:
                    open_.append(maker[number])
                elif number not in flat.fixed:
                    takes.add(number)
        found.append((tuple(sorted(takes)), tuple(gives), tuple(flat.equations[i] for i in sorted(inside))))
    last = {number: i for i, (takes, gives, _) in enumerate(found) for number in (*gives, *takes)}
    ends = [
        tuple(n for n in (*takes, *gives) if last[n] == i and n not in flat.results)
        for i, (takes, gives, _) in enumerate(found)
    ]
    return [Stage(*parts, end) for parts, end in zip(found, ends, strict=True)]


def _runs(stage: Stage, fixed: dict[int, Any]) -> Callable[..., tuple[Any, ...]]:
    """A stage as a function of the quantities it takes."""

    def run(*given: Any) -> tuple[Any, ...]:
        values = dict(zip(stage.takes, given, strict=True))
        for e in stage.equations:
            found = e.operation.bind(*(values[n] if n in values else fixed[n] for n in e.takes), **e.settings)
            values |= zip(e.gives, found if e.operation.multiple_results else (found,), strict=True)
        return tuple(values[number] for number in stage.gives)

    return run


class StagedProgram:
    """A function compiled in stages for inputs of fixed shapes; it takes and gives flat lists of arrays."""

    def __init__(self, function: Callable[..., Sequence[Any]], inputs: Sequence[Any]) -> None:
        jax = enable_jax()
        self.flat = flattened(jax.make_jaxpr(function)(*inputs))
        self.stages = cut(self.flat)
        lowered = []
        for stage in self.stages:
            shapes = (self.flat.shapes[number] for number in stage.takes)
            given = (jax.ShapeDtypeStruct(s.shape, s.dtype) for s in shapes)
            lowered.append(jax.jit(_runs(stage, self.flat.fixed)).lower(*given))
        with ThreadPoolExecutor(cores()) as pool:
            self.compiled = list(pool.map(lambda one: one.compile(), lowered))

    def __call__(self, *inputs: Any) -> list[Any]:
        given = enable_jax().device_put(list(inputs))
        values = self.flat.fixed | dict(zip(self.flat.inputs, given, strict=True))
        for stage, compiled in zip(self.stages, self.compiled, strict=True):
            values |= zip(stage.gives, compiled(*(values[number] for number in stage.takes)), strict=True)
            for number in stage.last:
                del values[number]  # memory for the next stages
        return [values[number] for number in self.flat.results]


def staged(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of nested records of arrays, compiled in stages once for each structure and set of shapes.

    >>> import numpy as np
    >>> rows, columns = np.arange(3.0)[:, None], np.arange(4.0)
    >>> np.asarray(staged(lambda x, y: (x**2 + 1.0) * y)(rows, columns)).tolist()[2]
    [0.0, 5.0, 10.0, 15.0]
    """
    jax = enable_jax()
    programs: dict[Any, tuple[StagedProgram, Any]] = {}
    compiling = Lock()

    def compiled(structure: Any, found: list[Any]) -> tuple[StagedProgram, Any]:
        shape: list[Any] = []

        def flat(*given: Any) -> list[Any]:
            trees = jax.tree_util.tree_unflatten(structure, given)
            results, out = jax.tree_util.tree_flatten(function(*trees))
            shape.append(out)
            return list(results)

        program = StagedProgram(flat, found)
        return program, shape[0]

    def run(*trees: Any) -> Any:
        found, structure = jax.tree_util.tree_flatten(trees)
        found = [np.asarray(v, float) if isinstance(v, float | int) else v for v in found]
        key = (structure, tuple((v.shape, str(v.dtype)) for v in found))
        with compiling:  # once, however many threads ask for it
            if key not in programs:
                programs[key] = compiled(structure, found)
        program, out = programs[key]
        return jax.tree_util.tree_unflatten(out, program(*found))

    return run


def run_compiled(function: Callable[..., Any], tree: Any, shape: tuple[int, ...], *fixed: Any) -> Any:
    """Apply a pure function to a box as `run_box`, compiled once for its structure and what is `fixed`."""
    compiled, to_numpy = compiled_for(function, *fixed), enable_jax().tree_util.tree_map
    limit, workers = _at_once(shape)

    def part(inputs: Any) -> Any:
        return to_numpy(np.asarray, compiled(inputs))

    return run_box(part, unlabelled(tree), shape, limit, even=True, workers=workers)


@lru_cache(maxsize=64)
def compiled_for(function: Callable[..., Any], *fixed: Any) -> Callable[..., Any]:
    """A function of records and what is fixed beside them, staged."""
    return staged(lambda tree: function(tree, *fixed))


def _at_once(shape: tuple[int, ...]) -> tuple[int, int]:
    """Points that compiled code prices at once, and how many such chunks side by side.

    On a CPU every core has its own: of a list what stays in its caches, of a box its share, so that small
    axes stay whole.
    """
    if enable_jax().default_backend() != "cpu":
        return AT_MOST, 1
    workers = cores()
    share = -(-math.prod(shape) // workers)
    return (LIST_AT_ONCE if is_list(shape) else min(max(share, BOX_AT_LEAST), AT_MOST)), workers
