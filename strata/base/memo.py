"""What was worked out once and is asked for again: bounded tables of answers of pure functions, by the
numbers they were asked with.

A key holds single numbers and words of small records, and large records (a chip, a model) by what they are,
from the second evaluation on that uses them: of designs that are drawn anew each time nothing is kept. Arrays
and numbers of a compiler have no key: what they ask for is worked out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np

from strata.base.arrays import field_names

Answer = TypeVar("Answer")
PLAIN_KINDS = frozenset((float, int, bool, str, type(None), frozenset))


class _NoKey(Exception):
    """A quantity over several points."""


def _value_key(tree: Any) -> Any:
    kind = tree.__class__
    if kind in PLAIN_KINDS:
        return tree
    if kind is tuple:
        return tuple([v if v.__class__ in PLAIN_KINDS else _value_key(v) for v in tree])
    if kind is np.float64:  # what is made of it stays NumPy's, which divides by zero
        return kind, float(tree)
    if kind is dict:
        return tuple([(name, _value_key(v)) for name, v in tree.items()])
    names = field_names(kind)
    if not names:
        raise _NoKey
    held = [getattr(tree, name) for name in names]
    return (kind, *[v if v.__class__ in PLAIN_KINDS else _value_key(v) for v in held])


def value_key(*values: Any) -> Any:
    """What records, dictionaries and tuples of single numbers and words hold, as a key; None where they hold
    arrays, or anything that is told apart by what it is.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, eq=False)
    ... class Size:
    ...     rows: object
    >>> value_key(Size(2.0)) == value_key(Size(2.0)), value_key(Size(2.0)) == value_key(Size(3.0))
    (True, False)
    >>> import numpy as np
    >>> value_key(Size(np.ones(2))) is None
    True
    """
    try:
        return _value_key(values)
    except _NoKey:
        return None


@lru_cache(maxsize=256)
def kept_by_identity(kind: type) -> bool:
    """Whether records of a class never change and are told apart by what they are, not by what they hold."""
    made = getattr(kind, "__dataclass_params__", None)
    return made is not None and bool(made.frozen) and kind.__hash__ is object.__hash__


_SETTLED: WeakSet[Any] = WeakSet()


def settled_record(record: Any) -> Any:
    """Mark a record of single numbers, and those in its fields, as used again: answers are kept for it."""
    if kept_by_identity(record.__class__) and record not in _SETTLED:
        inside = [getattr(record, name) for name in field_names(record.__class__)]
        for one in (record, *inside):
            if kept_by_identity(one.__class__) and hasattr(one, "__weakref__"):
                _SETTLED.add(one)
    return record


def is_settled(*records: Any) -> bool:
    """Whether records hold single numbers and were used before; for others nothing is kept.

    >>> from strata.hardware.chip import chip
    >>> other = chip("h200", **{"memory.bandwidth": 2e12})
    >>> is_settled(other), is_settled(settled_record(other))
    (False, True)
    """
    return all(kept_by_identity(record.__class__) and record in _SETTLED for record in records)


class Memo:
    """Answers by key, at most so many: a full table begins anew."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.known: dict[Any, Any] = {}
        _MEMOS.add(self)

    def of(self, key: Any, make: Callable[[], Answer]) -> Answer:
        """The answer of a key, made where it is not known; without a key it always is."""
        if key is None:
            return make()
        found: Answer | None = self.known.get(key)
        if found is None:
            found = make()
            if len(self.known) >= self.most:
                self.known.clear()
            self.known[key] = found
        return found


_MEMOS: WeakSet[Memo] = WeakSet()


def forget() -> None:
    """Empty every table: what is asked for next is worked out as in a new process.

    >>> few = Memo(2)
    >>> few.of(1, lambda: "one"), few.of(1, lambda: "other"), forget(), few.of(1, lambda: "other")
    ('one', 'one', None, 'other')
    """
    for memo in list(_MEMOS):
        memo.known.clear()
