"""Short expressions in data files: arithmetic, comparisons and a few functions over named numbers and arrays,
and nothing else.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from strata.errors import BadValue, StrataError, UnknownName


def correlation(a: Any, b: Any) -> float:
    """Pearson's correlation of two quantities, over all their points.

    >>> correlation([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    1.0
    """
    return float(round(np.corrcoef(np.ravel(a), np.ravel(b))[0, 1], 12))


def geomean(values: Any) -> float:
    """Geometric mean of a quantity, over all its points.

    >>> round(geomean([1.0, 4.0, 16.0]), 12)
    4.0
    """
    return float(np.exp(np.mean(np.log(np.asarray(values, float)))))


FUNCTIONS: dict[str, Any] = {
    "abs": np.abs,
    "all": np.all,
    "any": np.any,
    "argmax": np.argmax,
    "argmin": np.argmin,
    "ceil": np.ceil,
    "correlation": correlation,
    "diff": np.diff,
    "exp": np.exp,
    "floor": np.floor,
    "geomean": geomean,
    "len": np.size,
    "log": np.log,
    "max": np.max,
    "maximum": np.maximum,
    "mean": np.mean,
    "median": np.median,
    "min": np.min,
    "minimum": np.minimum,
    "nanmax": np.nanmax,
    "nanmin": np.nanmin,
    "nanquantile": np.nanquantile,
    "round": np.round,
    "sqrt": np.sqrt,
    "sum": np.sum,
    "where": np.where,
}
_LEGAL = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.Call,
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Slice,
    ast.Constant,
    ast.Tuple,
    ast.List,
    ast.IfExp,
    ast.Load,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
)


class Names:
    """Named values an expression reaches with a dot."""

    def __init__(self, what: str, values: Mapping[str, Any]):
        self._what, self._values = what, dict(values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._values:
            raise UnknownName(
                f"quantity of {self._what}", name, self._values, ", ".join(sorted(self._values))
            )
        return self._values[name]


def calculate(text: str, names: Mapping[str, Any], where: str) -> Any:
    """The value of an expression; `where` says in an error which one it is.

    >>> values = {"layers": [2, 4, 6], "rate": np.array([1.0, 3.0, 2.0])}
    >>> calculate("layers[argmax(rate)] if max(rate) > 1 else 0", values, "an example")
    4
    >>> calculate("layers.__class__", {"layers": 1.0}, "here")
    Traceback (most recent call last):
    ...
    strata.errors.BadValue: here: an expression has numbers, names and functions, but got 'layers.__class__'
    """
    known = {**FUNCTIONS, **names}
    code, used = _compiled(text, where)
    for name in used:
        if name not in known:
            raise UnknownName(f"name in {where}", name, known, ", ".join(sorted(names)))
    try:
        return eval(code, {"__builtins__": {}}, known)
    except StrataError:
        raise
    except (ArithmeticError, IndexError, ValueError, TypeError, AttributeError) as error:
        raise BadValue(f"{where}: '{text}' has no value: {error}") from None


@lru_cache(maxsize=256)
def _compiled(text: str, where: str) -> tuple[Any, tuple[str, ...]]:
    """An expression that has nothing but what is legal in it, compiled, and the names it uses."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        raise BadValue(f"{where}: cannot read the expression '{text}'") from None
    used = []
    for node in ast.walk(tree):
        hidden = isinstance(node, ast.Attribute) and (
            node.attr.startswith("_") or not isinstance(node.value, ast.Name)
        )
        called = isinstance(node, ast.Call) and not (
            isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
        )
        if not isinstance(node, _LEGAL) or hidden:
            raise BadValue(f"{where}: an expression has numbers, names and functions, but got '{text}'")
        if called:
            raise BadValue(f"{where}: functions are {', '.join(FUNCTIONS)}, but got '{ast.unparse(node)}'")
        if isinstance(node, ast.Name):
            used.append(node.id)
    return compile(tree, where, "eval"), tuple(used)


def mentions(text: str, name: str, where: str = "an expression") -> bool:
    """Whether an expression has this name in it; `where` as of `calculate`."""
    return name in _compiled(text, where)[1]
