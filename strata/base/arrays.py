"""Array namespaces, and the few array idioms every equation uses.

An equation takes scalars or arrays and returns what broadcasting makes of them; `namespace` picks the library
from the arguments, so the same code runs on NumPy and inside ``jax.jit``.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

# What an equation takes and returns: a float, or an array of values (of flags too: they multiply as 0 and 1).
# JAX's arrays flow through the same annotations: they act as NumPy's do, and `namespace` tells them apart.
Array: TypeAlias = NDArray[Any]
Number: TypeAlias = float | Array
Mask: TypeAlias = bool | NDArray[np.bool_]
_PLAIN = (float, int, np.floating, np.integer, np.bool_, np.ndarray)


_ONE: Any = frozenset((float, np.float64, int))
_SINGLE: Any = _ONE | {bool, np.bool_}  # and what they compare to


class _Scalars:
    """The namespace of plain numbers: what equations use, without NumPy's cost for a single number.

    Each function still does the right thing with an array that an equation did not name when it asked for a
    namespace.
    """

    @staticmethod
    def maximum(a: Number, b: Number) -> Number:
        if a.__class__ is float and b.__class__ is float:  # what nearly all are, and quicker to tell
            return a if a >= b else b
        if a.__class__ in _ONE and b.__class__ in _ONE:
            return a if a >= b else b
        return _arrays(a, b).maximum(a, b)

    @staticmethod
    def minimum(a: Number, b: Number) -> Number:
        if a.__class__ is float and b.__class__ is float:
            return a if a <= b else b
        if a.__class__ in _ONE and b.__class__ in _ONE:
            return a if a <= b else b
        return _arrays(a, b).minimum(a, b)

    @staticmethod
    def where(condition: Any, a: Number, b: Number) -> Number:
        if condition.__class__ in (bool, np.bool_):
            return a if condition else b
        return _arrays(condition, a, b).where(condition, a, b)

    @staticmethod
    def ceil(x: Number) -> Number:
        return float(math.ceil(float(x))) if x.__class__ in _ONE else _arrays(x).ceil(x)

    @staticmethod
    def floor(x: Number) -> Number:
        return float(math.floor(float(x))) if x.__class__ in _ONE else _arrays(x).floor(x)

    @staticmethod
    def sqrt(x: Number) -> Number:
        return math.sqrt(x) if x.__class__ in _ONE and x >= 0.0 else _arrays(x).sqrt(x)

    @staticmethod
    def log(x: Number) -> Number:
        return math.log(x) if x.__class__ in _ONE and x > 0.0 else _arrays(x).log(x)

    @staticmethod
    def exp(x: Number) -> Number:
        return math.exp(x) if x.__class__ in _ONE and x < 700.0 else _arrays(x).exp(x)

    abs = staticmethod(abs)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


SCALARS = _Scalars()


def _arrays(*values: Any) -> Any:
    found = namespace(*values)
    return np if found is SCALARS else found


def namespace(*values: Number) -> Any:
    """The array namespace of the arguments: of plain numbers, NumPy, or what one of them says.

    >>> namespace(1.0, np.ones(3)) is np, namespace(1.0, 2.0) is SCALARS
    (True, True)
    """
    found: Any = SCALARS
    for value in values:
        kind = value.__class__
        if kind is float or kind in _SINGLE:
            continue
        if not isinstance(value, _PLAIN):
            from array_api_compat import array_namespace

            return array_namespace(value)
        found = np
    return found


def _quotient(a: Number, b: Number, nudge: float) -> Number:
    """a / b moved by a hair; the extra factor goes to the smaller array, which is cheaper."""
    if getattr(b, "size", 1) < getattr(a, "size", 1):
        return a * (nudge / b)
    return (a * nudge) / b


def ceil_div(a: Number, b: Number) -> Number:
    """Whole pieces of size b that cover a: ceil(a / b), safe against the last bit of an inexact division.

    >>> float(ceil_div(129, 64)), float(ceil_div(0.3, 0.1))
    (3.0, 3.0)
    """
    if a.__class__ is float and b.__class__ is float:
        return float(math.ceil(a * (1 - 1e-12) / b))
    return _rounded("ceil", namespace(a, b), _quotient(a, b, 1 - 1e-12))


def floor_div(a: Number, b: Number) -> Number:
    """Whole pieces of size b inside a: floor(a / b), safe against the last bit of an inexact division.

    >>> float(floor_div(129, 64)), float(floor_div(0.3, 0.1))
    (2.0, 3.0)
    """
    return _rounded("floor", namespace(a, b), _quotient(a, b, 1 + 1e-12))


def _rounded(how: str, xp: Any, value: Number) -> Number:
    """A quotient as a whole number. Under JAX its slope is that of the quotient, not zero: a search that asks
    for slopes then sees what a count is made of (straight-through, Bengio et al., arXiv 1308.3432).
    """
    if xp is np or xp is SCALARS:
        return getattr(xp, how)(value)
    return _with_slope(how)(value)


@lru_cache(maxsize=2)
def _with_slope(how: str) -> Callable[[Any], Any]:
    import jax

    rounding = jax.custom_jvp(getattr(jax.numpy, how))
    rounding.defjvp(lambda primals, tangents: (getattr(jax.numpy, how)(*primals), tangents[0]))
    return rounding


def has_axes(value: Number) -> TypeGuard[Array]:
    """Whether a quantity is an array over points, of any namespace, and no single number.

    >>> has_axes(np.ones(3)), has_axes(2.0), has_axes(np.array(2.0))
    (True, False, False)
    """
    return getattr(value, "ndim", 0) > 0


def lowest(value: Any) -> Any:
    """The least of what a quantity is at its points; a single number itself."""
    return value.min() if hasattr(value, "min") else value


def highest(value: Any) -> Any:
    """The most of what a quantity is at its points; a single number itself."""
    return value.max() if hasattr(value, "max") else value


def is_traced(value: Any) -> bool:
    """Whether a compiler traces a quantity, whose value is not known then; to ask for it and fail is slow."""
    return "jax" in sys.modules and isinstance(value, sys.modules["jax"].core.Tracer)


def rank_of(*values: Number) -> int:
    """Axes of what the values broadcast to."""
    return max([getattr(v, "ndim", 0) for v in values], default=0)


def lead(values: Any, rank: int, like: Any = np) -> Array:
    """Choices on a leading axis, ready to broadcast against quantities of so many axes.

    Choices lead so that the points, of which there are many, lie next to each other in memory.

    >>> lead([64.0, 128.0], 2).shape
    (2, 1, 1)
    """
    return like.asarray(values).reshape((-1,) + (1,) * rank)


def choose(cost: Array, *others: Array) -> tuple[Number, ...]:
    """Companions of the least (positive) cost along the leading axis; of equal ones the first.

    >>> choose(np.array([[3.0, 2.0], [1.0, 5.0]]), np.array([[10.0, 10.0], [20.0, 20.0]]))
    (array([20., 10.]),)
    """
    count = cost.shape[0]
    if cost.ndim == 1 and isinstance(cost, np.ndarray):  # one point
        values, best = cost.tolist(), 0
        for i in range(1, count):
            best = i if values[i] * (1.0 + 1e-9) < values[best] else best
        return tuple(o[best if o.shape[0] > 1 else 0] for o in others)
    xp = namespace(cost)
    # A tournament: for a few choices it is faster than finding indices and gathering by them.
    least, picked = cost[0], [o[0] for o in others]
    for i in range(1, count):
        better = cost[i] * (1.0 + 1e-9) < least
        least = xp.where(better, cost[i], least)
        picked = [
            xp.where(better, o[i if o.shape[0] > 1 else 0], p) for o, p in zip(others, picked, strict=True)
        ]
    return tuple(picked)


def best_of(
    candidates: Array, function: Callable[..., tuple[Any, ...]], rank: int, xp: Any
) -> tuple[Number, ...]:
    """Companions of the least cost that `function` gives for a candidate: a row of its arguments.

    NumPy tries them one after the other, in memory that stays in a core's cache; a compiler, or a single
    point, gets all of them on a leading axis.

    >>> best_of(np.array([[1.0], [2.0], [3.0]]), lambda x: ((x - np.array([2.2, 0.9])) ** 2, 10 * x), 1, np)
    (array([20., 10.]),)
    """
    if xp is not np or rank == 0:
        cost, *others = function(
            *(lead(column, rank, np if xp is SCALARS else xp) for column in candidates.T)
        )
        return choose(cost, *others)
    least, *picked = function(*candidates[0].tolist())
    for row in candidates[1:].tolist():
        cost, *others = function(*row)
        better = cost * (1.0 + 1e-9) < least
        least = xp.where(better, cost, least)
        picked = [xp.where(better, other, before) for other, before in zip(others, picked, strict=True)]
    return tuple(picked)


def repeated(steps: int, body: Callable[[Any], Any], start: Any, still: float | None = None) -> Any:
    """The state after so many steps, or after the first that changes no point by more than `still`.

    A compiler keeps the loop: unrolled, it would work out what it starts from again for each of its steps.

    >>> repeated(3, lambda x: 2.0 * x, 1.0), round(repeated(99, lambda x: 0.5 * (x + 2.0 / x), 1.0, 1e-9), 6)
    (8.0, 1.414214)
    """
    xp = namespace(*start) if isinstance(start, tuple) else namespace(start)
    if xp is np or xp is SCALARS:
        for _ in range(steps):
            before, start = start, body(start)
            if still is not None and np.max(np.abs(start - before), initial=0.0) <= still:
                break
        return start
    import jax

    if still is None:
        return jax.lax.fori_loop(0, steps, lambda _, state: body(state), start)

    def on(state: tuple[Any, Any, Any]) -> Any:
        return (state[0] < steps) & (state[2] > still)

    def once(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        count, before, _ = state
        after = body(before)
        return count + 1, after, xp.max(xp.abs(after - before))

    return jax.lax.while_loop(on, once, (0, start, xp.asarray(float("inf"))))[1]


def is_leaf(value: object) -> bool:
    """Whether a field holds a quantity (a number or an array), not structure (a name, a flag, a tuple)."""
    kind = value.__class__
    if kind is float:
        return True
    if kind is str or kind is bool or value is None:
        return False
    return isinstance(value, _PLAIN) or hasattr(value, "__array_namespace__")


_FIELD_NAMES: dict[type, tuple[str, ...]] = {}


def field_names(cls: type) -> tuple[str, ...]:
    """Names of a dataclass's fields, () for anything else."""
    names = _FIELD_NAMES.get(cls)
    if names is None:
        names = _FIELD_NAMES[cls] = tuple(f.name for f in fields(cls)) if is_dataclass(cls) else ()
    return names


def map_leaves(function: Callable[[Number], Number], tree: Any) -> Any:
    """The same nested dataclasses, dicts and tuples with the function applied to each quantity."""
    if is_leaf(tree):
        return function(tree)
    names = field_names(type(tree))
    if names:
        changed = {}
        for name in names:
            old = getattr(tree, name)
            new = map_leaves(function, old)
            if new is not old:
                changed[name] = new
        return replace(tree, **changed) if changed else tree
    if isinstance(tree, dict):
        return {k: map_leaves(function, v) for k, v in tree.items()}
    if isinstance(tree, tuple) and not hasattr(tree, "_fields"):
        return tuple(map_leaves(function, v) for v in tree)
    return tree


def leaves(tree: Any) -> list[Number]:
    """Every quantity in a nest of dataclasses, dicts and tuples, in field order."""
    if is_leaf(tree):
        return [tree]
    names = field_names(type(tree))
    if names:
        inside: Any = (getattr(tree, name) for name in names)
    elif isinstance(tree, dict):
        inside = tree.values()
    elif isinstance(tree, tuple):
        inside = tree
    else:
        return []
    return [leaf for value in inside if value.__class__ is not str for leaf in leaves(value)]


def as_float(value: Number) -> Number:
    """A quantity as float64 of its own backend; integer products of sizes would wrap."""
    if isinstance(value, np.ndarray):
        return value.astype(np.float64, copy=False)
    if isinstance(value, (int, float, np.integer, np.floating)):
        return float(value)
    return value


def register_pytree(cls: type) -> type:
    """Make a dataclass a JAX pytree, once JAX is used: quantities are children, everything else static."""
    _registry().add(cls)
    return cls


@lru_cache(maxsize=1)
def _registry() -> set[type]:
    return set()


def cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(maxsize=1)
def _known_to_jax() -> set[type]:
    return set()


def enable_jax() -> Any:
    """JAX in float64, with all records so far as pytrees; ImportError where it is not installed."""
    import jax

    jax.config.update("jax_enable_x64", True)
    for cls in _registry() - _known_to_jax():
        _known_to_jax().add(cls)
        jax.tree_util.register_pytree_node(cls, _flatten, _unflatten)
    return jax


def _nested(value: object) -> bool:
    return is_leaf(value) or is_dataclass(value) or isinstance(value, dict) or _quantity_tuple(value)


def _quantity_tuple(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and all(_nested(v) for v in value)


def _flatten(node: Any) -> tuple[list[Any], Any]:
    names = [f.name for f in fields(node)]
    dynamic = [n for n in names if _nested(getattr(node, n))]
    static = tuple((n, getattr(node, n)) for n in names if n not in dynamic)
    return [getattr(node, n) for n in dynamic], (type(node), tuple(dynamic), static)


def _unflatten(aux: Any, children: Any) -> Any:
    cls, dynamic, static = aux
    node = object.__new__(cls)
    for name, value in (*static, *zip(dynamic, children, strict=True)):
        object.__setattr__(node, name, value)
    return node
