"""Calls from Python, checked in one place: arguments are what their annotations say, lists become arrays, and
whatever is wrong is a `StrataError` of one line.
"""

from __future__ import annotations

import collections.abc
import inspect
import itertools
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from strata.base.errors import BadFile, BadValue, StrataError, Unforeseen, nearest
from strata.base.units import finite_array, finite_quantity, sensible

Function = TypeVar("Function", bound=Callable[..., Any])
Made = TypeVar("Made", bound=type)
# What a mistake can raise where no check foresaw it.
_MISTAKES = (
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    ArithmeticError,
    AssertionError,
    RecursionError,
    MemoryError,
)
_LISTS = (list, tuple, range)
_SEQUENCES = (list, tuple, collections.abc.Sequence, collections.abc.Iterable)
# What an argument of a kind is called where it is something else.
_SAID: dict[Any, str] = {str: "text", bool: "True or False", None: "None", type(None): "None"}
_SAID |= {dict: "a dictionary", collections.abc.Mapping: "a dictionary"}
_SAID |= {collections.abc.Callable: "a function"}
MOST_ITEMS = 10_000_000  # of what is gone through once, as a generator


def quiet() -> AbstractContextManager[Any]:
    """Infinities and NaN on the way to an answer are meant where they arise; NumPy says nothing of them."""
    return np.errstate(all="ignore")


def checked_call(function: Function, before: Callable[[dict[str, Any]], None] | None = None) -> Function:
    """A public function that checks its arguments first; `before` may change them once they are right.

    >>> def decode(batch: float) -> float:
    ...     return batch
    >>> checked_call(decode)(batch="many")
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: decode: batch is a number, but got 'many'
    >>> checked_call(decode)(bach=1)
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: decode has no argument 'bach'; nearest: batch
    """
    name = function.__name__ if function.__name__ != "__init__" else function.__qualname__.split(".")[0]

    @wraps(function)
    def calling(*given: Any, **named: Any) -> Any:
        bound = _bound(function, given, named, name)
        try:
            with quiet():
                if before is not None:
                    before(bound.arguments)
                return function(*bound.args, **bound.kwargs)
        except StrataError:
            raise
        except OSError as error:
            at = f"{error.filename}: {str(error.strerror).lower()}" if error.filename else str(error)
            raise BadFile(f"{name} cannot use {at}") from error
        except _MISTAKES as error:
            said = f"{type(error).__name__}: {error}"
            raise Unforeseen(f"{name} cannot use what it was given ({said})") from error

    return cast(Function, calling)


@lru_cache(maxsize=256)
def if_function(named: Any) -> Any:
    """A function as `checked_call`, everything else as it is."""
    return checked_call(named) if inspect.isfunction(named) and not hasattr(named, "__wrapped__") else named


def checked_class(made: Made) -> Made:
    """A public class that looks at what it is made from, as `checked_call` functions do."""
    made.__init__ = checked_call(made.__init__)  # type: ignore[misc]
    return made


def _bound(
    function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any], called: str
) -> inspect.BoundArguments:
    """Arguments in their places, each checked against its annotation."""
    signature, hints = _signature(function)
    given, named = _in_place(signature, given, named)
    try:
        bound = signature.bind(*given, **named)
    except TypeError as error:
        known = [key for key in signature.parameters if key != "self"]
        strange = next((k for k in named if k not in known), "")
        raise BadValue(f"{called}{_no_argument(strange, known) if strange else f': {error}'}") from None
    for key, value in bound.arguments.items():
        parameter = signature.parameters[key]
        if parameter.kind is parameter.VAR_KEYWORD:
            bound.arguments[key] = _others(value, hints[key], called)
        elif parameter.kind is parameter.VAR_POSITIONAL:
            bound.arguments[key] = tuple(_argument(v, hints[key], f"{called}: {key}") for v in value)
        elif value is not parameter.default:
            unlimited = isinstance(parameter.default, float) and parameter.default == np.inf
            bound.arguments[key] = _argument(value, hints[key], f"{called}: {key}", unlimited)
    return bound


def _in_place(
    signature: inspect.Signature, given: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments whose place alone tells them from changes of the same name, where they are named still.

    A function with ``**changes`` takes those, so that `chip("h200", name=...)` is a change that no chip has.
    """
    first = [p for p in signature.parameters.values() if p.kind is p.POSITIONAL_ONLY][len(given) :]
    last = max((i for i, p in enumerate(first) if p.name in named), default=-1)
    inside = first[: last + 1]
    if any(p.name not in named and p.default is p.empty for p in inside):
        return given, named
    moved = tuple(named.get(p.name, p.default) for p in inside)
    return (*given, *moved), {k: v for k, v in named.items() if k not in {p.name for p in inside}}


def _no_argument(name: str, known: list[str]) -> str:
    close = nearest(name, known)
    return f" has no argument '{name}'; " + (
        f"nearest: {', '.join(close)}" if close else f"it takes {', '.join(known)}"
    )


def _others(given: dict[str, Any], hint: Any, called: str) -> dict[str, Any]:
    """Keywords that a function does not name itself: quantities of a record, mostly."""
    return {k: _argument(_quantity(v, f"{called}: {k}"), hint, f"{called}: {k}") for k, v in given.items()}


@lru_cache(maxsize=256)
def _signature(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    """A function's parameters, and what each is annotated as: Any where the name is not known at run time."""
    signature, hints = inspect.signature(function), {}
    for key, parameter in signature.parameters.items():
        told = parameter.annotation
        if isinstance(told, str):
            try:
                told = eval(told, function.__globals__)  # the source's own text
            except (NameError, AttributeError, TypeError):
                told = Any
        hints[key] = Any if told is inspect.Parameter.empty else told
    return signature, hints


def _argument(value: Any, hint: Any, what: str, unlimited: bool = False) -> Any:
    """A value as its annotation wants it."""
    members = _members(hint)
    for member in members:
        fits, made = _as(value, member, members, unlimited)
        if fits:
            return made
    if isinstance(value, (*_LISTS, np.ndarray)) and any(_is_array(m) for m in members):
        return finite_array(value, what)  # says what is wrong with it
    shown = " ".join(repr(value).split())
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    raise BadValue(f"{what} is {_words(members)}, but got {shown}")


def _quantity(value: Any, what: str) -> Any:
    """What may be a quantity of a record: a list of numbers as an array, and no number that is not finite."""
    if isinstance(value, list) and value and all(isinstance(v, int | float) for v in value):
        return finite_array(value, what)
    return finite_quantity(value, what)


def _members(hint: Any) -> tuple[Any, ...]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return tuple(m for inner in typing.get_args(hint) for m in _members(inner))
    return (hint,)


def _is_array(member: Any) -> bool:
    return member is np.ndarray or typing.get_origin(member) is np.ndarray


def _as(value: Any, member: Any, members: tuple[Any, ...], unlimited: bool) -> tuple[bool, Any]:
    """Whether a value is what one part of an annotation says, and the value as the function wants it."""
    if member is Any or isinstance(member, typing.TypeVar | str):
        return True, value
    if member is None or member is type(None):
        return value is None, value
    if member in (float, int):
        return _number(value, member is int and float not in members, unlimited)
    if _is_array(member):
        return _array(value)
    if member is str:
        return isinstance(value, str | Path), str(value)
    origin, inner = typing.get_origin(member) or member, typing.get_args(member)
    if origin in _SEQUENCES:
        return _listed(value, origin, inner, unlimited)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and _held(value, inner, unlimited), value
    if origin is collections.abc.Callable:
        return callable(value), _theirs(value) if callable(value) else value
    if getattr(origin, "_is_protocol", False):
        return not isinstance(value, type) and all(hasattr(value, n) for n in _asked_of(origin)), value
    return isinstance(origin, type) and isinstance(value, origin), value


def _theirs(given: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a user's: a mistake in it is theirs, and said so."""

    def calling(*values: Any, **named: Any) -> Any:
        try:
            return given(*values, **named)
        except StrataError:
            raise
        except _MISTAKES as error:
            name = getattr(given, "__name__", type(given).__name__)
            fault = f"{type(error).__name__}: {error}"
            raise BadValue(f"the function {name} that was given failed ({fault})") from error

    return calling


def _held(value: Mapping[Any, Any], inner: tuple[Any, ...], unlimited: bool) -> bool:
    """Whether keys and values of a dictionary are what its annotation says."""
    for wanted, held in zip(inner, (list(value), list(value.values())), strict=False):
        members = _members(wanted)
        if not all(any(_as(one, m, members, unlimited)[0] for m in members) for one in held):
            return False
    return True


@lru_cache(maxsize=32)
def _asked_of(protocol: type) -> tuple[str, ...]:
    """Names that something of a protocol has."""
    # what else is there has defaults
    needed: frozenset[str] = getattr(protocol, "__abstractmethods__", frozenset())
    return tuple(n for n in needed or (*vars(protocol), *protocol.__annotations__) if not n.startswith("_"))


def _number(value: Any, whole: bool, unlimited: bool) -> tuple[bool, Any]:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        return False, value
    value = value.item() if isinstance(value, np.generic) else value
    good = bool(sensible(value)) or (unlimited and value == np.inf)
    if whole:
        return good and value == value // 1 and abs(value) < 2**63, int(value) if good else value
    return good, value


def _array(value: Any) -> tuple[bool, Any]:
    if isinstance(value, (*_LISTS, np.ndarray)):
        try:
            return True, finite_array(value)
        except StrataError:
            return False, value
    return hasattr(value, "__array_namespace__"), value


def _listed(value: Any, origin: Any, inner: tuple[Any, ...], unlimited: bool) -> tuple[bool, Any]:
    """A list, tuple or sequence, each item as the annotation says; one text is a list of it."""
    wanted = inner[0] if inner else Any
    if isinstance(value, str):
        return str in _members(wanted), (value,)
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        return False, value
    if not isinstance(value, (*_LISTS, set, frozenset)):  # a generator, or another sequence
        try:
            value = list(itertools.islice(value, MOST_ITEMS + 1))
        except TypeError:  # as of an array without an axis
            return False, value
        if len(value) > MOST_ITEMS:
            return False, "something without an end"
    made = []
    for item in value:
        found = [pair[1] for m in _members(wanted) if (pair := _as(item, m, _members(wanted), unlimited))[0]]
        if not found:
            return False, value
        made.append(found[0])
    return True, tuple(made) if origin is tuple else made


def _words(members: tuple[Any, ...]) -> str:
    """What an argument may be, in words."""
    words = []
    for member in members:
        origin, inner = typing.get_origin(member) or member, typing.get_args(member)
        if member in (float, int):
            words.append("a whole number" if member is int else "a number")
        elif _is_array(member):
            words.append("an array or list of numbers")
        elif origin in _SEQUENCES:
            some = inner and inner[0] is not Any
            of = f" of {_words(_members(inner[0])).removeprefix('a ')}" if some else ""
            words.append(f"a list{of}")
        elif origin in _SAID:
            words.append(_SAID[origin])
        else:
            called = getattr(origin, "__name__", str(origin))
            words.append(f"{'an' if called[0] in 'AEIOU' else 'a'} {called}")
    said = list(dict.fromkeys(words))
    return said[0] if len(said) == 1 else f"{', '.join(said[:-1])} or {said[-1]}"
