"""Short expressions in data files: arithmetic and a few functions over named numbers and arrays."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import EllipsisType, MappingProxyType
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np

from strata.base.errors import BadValue, StrataError, UnknownName


def correlation(a: Any, b: Any) -> float:
    """Pearson's correlation of two quantities, over all their points.

    >>> correlation([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    1.0
    """
    if np.size(a) != np.size(b) or np.size(a) < 2 or np.std(a) == 0 or np.std(b) == 0:
        raise BadValue("a correlation is of two quantities that vary, each with as many points")
    return float(round(np.corrcoef(np.ravel(a), np.ravel(b))[0, 1], 12))


def geomean(values: Any) -> float:
    """Geometric mean of a quantity, over all its points.

    >>> round(geomean([1.0, 4.0, 16.0]), 12)
    4.0
    """
    return float(np.exp(np.mean(np.log(np.asarray(values, float)))))


def _rounded(values: Any, digits: Any = 0) -> Any:
    """Values to some digits, at most as many as a float has."""
    if not (_whole(digits) and abs(digits) <= 300):
        raise BadValue("round is to a whole number of digits between -300 and 300")
    return np.round(values, digits)


def _of_some(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of at least one value that is a number: NumPy warns of others, and goes on."""

    def checked(values: Any, *more: Any) -> Any:
        if np.size(values) == 0 or np.all(np.isnan(np.asarray(values, float))):
            raise BadValue(f"{function.__name__} needs at least one number")
        return function(values, *more)

    return checked


# of NumPy by their own names: of any values, and of at least one number
_ENDS = ("argmax", "argmin", "max", "maximum", "min", "minimum")
_PLAIN = ("abs", "all", "any", "ceil", "diff", "exp", "floor", "log", "sqrt", "sum", "where", *_ENDS)
_SOME = ("mean", "median", "nanmax", "nanmin", "nanquantile")
_OTHERS = {"correlation": correlation, "geomean": _of_some(geomean), "len": np.size, "round": _rounded}
FUNCTIONS: dict[str, Any] = {name: getattr(np, name) for name in _PLAIN} | _OTHERS
FUNCTIONS |= {name: _of_some(getattr(np, name)) for name in _SOME}
FUNCTIONS = dict(sorted(FUNCTIONS.items()))  # as errors list them
_OPERATIONS = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.IfExp)
_VALUES = (ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Constant, ast.Tuple, ast.List)
_SIGNS = (ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
_LEGAL = (ast.Expression, ast.Load, *_OPERATIONS, *_VALUES, *_SIGNS)


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


# What an expression may be at most: characters, parts, bits of a whole number, and items of a list it makes.
LONGEST, MOST_PARTS, MOST_BITS, MOST_ITEMS = 2000, 400, 1024, 10_000


def _member(value: Any, name: str) -> Any:
    """What stands behind a dot: a quantity of named values, never an attribute of an object."""
    if not isinstance(value, Names):
        raise BadValue(f"'.{name}' follows the name of a run, but got a value")
    return getattr(value, name)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _power(base: Any, exponent: Any) -> Any:
    """A power; one of whole numbers has at most `MOST_BITS` bits."""
    if _whole(base) and _whole(exponent) and exponent * max(abs(base).bit_length(), 1) > MOST_BITS:
        raise BadValue(f"a whole number has at most {MOST_BITS} bits")
    found = base**exponent
    if isinstance(found, complex):
        raise BadValue("a root of a negative number is not a number")
    return found


def _times(a: Any, b: Any) -> Any:
    """A product; lists and texts repeated have at most `MOST_ITEMS` items."""
    for one, other in ((a, b), (b, a)):
        if isinstance(one, str | list | tuple) and _whole(other) and len(one) * other > MOST_ITEMS:
            raise BadValue(f"a list has at most {MOST_ITEMS} items")
    return a * b


def _shifted(value: Any, bits: Any) -> Any:
    """A shift to the left, by less than 64 bits."""
    if _whole(value) and _whole(bits) and not 0 <= bits < 64:
        raise BadValue("a shift is by 0 to 63 bits")
    return value << bits


_INSIDE = {"_member": _member, "_power": _power, "_times": _times, "_shifted": _shifted}
_GUARDED = {ast.Pow: "_power", ast.Mult: "_times", ast.LShift: "_shifted"}


class _Guarded(ast.NodeTransformer):
    """Operations that can take any amount of time or memory, and dots, become calls that look first."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        guard = _GUARDED.get(type(node.op))
        return node if guard is None else self._call(guard, node.left, node.right)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self._call("_member", node.value, ast.Constant(node.attr))

    def _call(self, name: str, *given: ast.expr) -> ast.Call:
        return ast.Call(ast.Name(name, ast.Load()), list(given), [])


def calculate(
    text: str, names: Mapping[str, Any], where: str, functions: Mapping[str, Any] = MappingProxyType({})
) -> Any:
    """The value of an expression, told as `where` in errors; `functions` are legal beside the usual ones.

    >>> values = {"layers": [2, 4, 6], "rate": np.array([1.0, 3.0, 2.0])}
    >>> calculate("layers[argmax(rate)] if max(rate) > 1 else 0", values, "an example")
    4
    >>> calculate("n.__class__", {"n": 1.0}, "here")
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: here: an expression has numbers, names and functions, but got 'n.__class__'
    """
    known = {**FUNCTIONS, **functions, **names}
    if not isinstance(text, str):
        raise BadValue(f"{where}: an expression is text, but got {text!r}")
    code, used = _compiled(text, where, tuple(functions))
    for name in used:
        if name not in known:
            raise UnknownName(f"name in {where}", name, known, ", ".join(sorted(names)))
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            return _in_arrays(eval(code, {"__builtins__": {}, **_INSIDE}, known))
    except UnknownName:
        raise
    except (StrataError, ArithmeticError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise BadValue(f"{where}: '{text}' has no value: {error}") from None
    except (MemoryError, RecursionError):
        raise BadValue(f"{where}: '{text}' is too large") from None


def _in_arrays(value: Any) -> Any:
    """A value whose whole numbers fit arrays: longer ones are floats, where a float holds them.

    >>> _in_arrays([7, 10**30])
    [7, 1e+30]
    """
    if type(value) in (list, tuple):
        return type(value)(map(_in_arrays, value))
    return float(value) if isinstance(value, int) and not -(2**63) <= value < 2**63 else value


def holds_at(text: str, names: Mapping[str, Any], count: int, where: str) -> np.ndarray[Any, Any]:
    """At which of so many points a condition holds; names are numbers, or arrays of one for each point.

    >>> holds_at("a > 1", {"a": np.array([1.0, 2.0])}, 2, "here").tolist()
    [False, True]
    >>> holds_at("a == 1, 5", {"a": np.array([1.0, 2.0])}, 2, "here")
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: here: a condition is true or false at each point, but got 'a == 1, 5'
    """
    value = calculate(text, names, where)
    shape = np.shape(value) if isinstance(value, np.ndarray | np.generic | bool | int | float) else None
    if shape not in ((), (count,), (1,)):
        raise BadValue(f"{where}: a condition is true or false at each point, but got '{text}'")
    return np.broadcast_to(np.asarray(value, bool), (count,))


@lru_cache(maxsize=1024)
def _compiled(text: str, where: str, functions: tuple[str, ...] = ()) -> tuple[Any, tuple[str, ...]]:
    """An expression that has nothing but what is legal in it, compiled, and the names it uses."""
    if len(text) > LONGEST:
        raise BadValue(f"{where}: an expression has at most {LONGEST} characters, but got {len(text)}")
    try:
        with catch_warnings():
            simplefilter("ignore")  # that something is never true is seen in its value
            tree = ast.parse(text.strip(), mode="eval")
            parts = list(ast.walk(tree))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise BadValue(f"{where}: cannot read the expression '{text}'") from None
    if len(parts) > MOST_PARTS * 3:
        raise BadValue(f"{where}: an expression has at most {MOST_PARTS} parts, but got '{text}'")
    used, legal = [], (*FUNCTIONS, *functions)
    for node in parts:
        hidden = isinstance(node, ast.Attribute) and (
            node.attr.startswith("_") or not isinstance(node.value, ast.Name)
        )
        hidden |= isinstance(node, ast.Name) and node.id.startswith("_")
        strange = isinstance(node, ast.Constant) and not isinstance(
            node.value, int | float | str | bool | EllipsisType | None
        )
        called = isinstance(node, ast.Call) and (
            not (isinstance(node.func, ast.Name) and node.func.id in legal) or node.keywords
        )
        if not isinstance(node, _LEGAL) or hidden or strange:
            raise BadValue(f"{where}: an expression has numbers, names and functions, but got '{text}'")
        if called:
            raise BadValue(f"{where}: functions are {', '.join(legal)}, but got '{ast.unparse(node)}'")
        if isinstance(node, ast.Name):
            used.append(node.id)
    try:
        guarded = ast.fix_missing_locations(_Guarded().visit(tree))
        with catch_warnings():
            simplefilter("ignore")
            return compile(guarded, "an expression", "eval"), tuple(used)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise BadValue(f"{where}: cannot read the expression '{text}'") from None


def mentions(text: str, name: str, where: str = "an expression") -> bool:
    """Whether an expression has this name in it; `where` as of `calculate`."""
    return name in _compiled(text, where)[1]
