"""Axes of tensors whose identity is found out: sizes with their formula, arithmetic on
small constants, and axes that are merged and split.

An ONNX tensor has dimensions without names. Every op says which of its dimensions are the same; a reshape
says that one is the product of others. `AxisTable` keeps both, so that in the end each dimension is a product
of axes that have one name in the whole graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

Folded = Callable[[list[Any], dict[str, Any]], Any]


class Size(int):
    """A whole number that knows how it follows from the sizes a user may vary.

    >>> tokens = Size(128, "tokens")
    >>> (tokens * 4 // 3).text, int(tokens * 4 // 3), (Size(3) + 4).text
    ('floor(((tokens * 4))/(3))', 170, '7')
    """

    text: str

    def __new__(cls, value: int, text: str = "") -> Size:
        made = super().__new__(cls, value)
        made.text = text or str(int(value))
        return made

    @property
    def fixed(self) -> bool:
        return self.text == str(int(self))

    def _with(self, other: Any, value: Any, text: str) -> Any:
        if not isinstance(other, int):
            return NotImplemented
        said = as_size(other)
        if self.fixed and said.fixed:
            return Size(value(int(self), int(other)))
        return Size(value(int(self), int(other)), text.format(self.text, said.text))

    def __add__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a + b, "({} + {})")

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b, "({} - {})")

    def __rsub__(self, other: Any) -> Any:
        return as_size(other) - self

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, int) and int(other) == 1:
            return self
        if int(self) == 1 and self.fixed and isinstance(other, int):
            return as_size(other)
        return self._with(other, lambda a, b: a * b, "({} * {})")

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        if isinstance(other, int) and int(other) == 1:
            return self
        if isinstance(other, Size) and other.text == self.text:
            return Size(1)
        return self._with(other, lambda a, b: a // b, "floor(({})/({}))")

    def __rfloordiv__(self, other: Any) -> Any:
        return as_size(other) // self

    def __neg__(self) -> Any:
        return Size(-int(self), "" if self.fixed else f"(-{self.text})")

    def over(self, other: Size) -> Size:
        """A quotient that is known to be whole."""
        if self.text == other.text:
            return Size(1)
        if self.fixed and other.fixed:
            return Size(int(self) // int(other))
        return Size(int(self) // int(other), f"({self.text})/({other.text})")


def as_size(value: int) -> Size:
    return value if isinstance(value, Size) else Size(int(value))


class OnnxAxis:
    """One axis: another one that it is the same as, or the parts it is the product of, or itself."""

    __slots__ = ("apart", "hint", "parts", "same", "size")

    def __init__(self, size: Size, hint: str = "") -> None:
        self.size, self.hint = size, hint
        self.same: OnnxAxis | None = None
        self.parts: tuple[OnnxAxis, ...] = ()
        self.apart: list[OnnxAxis] = []  # axes that stand beside it somewhere: never the same as it


AxisProduct = tuple[OnnxAxis, ...]  # one dimension; of size 1 where it is empty


def root(axis: OnnxAxis) -> OnnxAxis:
    while axis.same is not None:
        axis = axis.same
    return axis


def flat(axes: Iterable[OnnxAxis]) -> AxisProduct:
    """Axes as they stand now: merged ones by their root, split ones by their parts."""
    found: list[OnnxAxis] = []
    for axis in axes:
        one = root(axis)
        found += flat(one.parts) if one.parts else (one,)
    return tuple(found)


def product_size(axes: Iterable[OnnxAxis]) -> Size:
    size = Size(1)
    for axis in flat(axes):
        size = size * axis.size
    return size


def dimension(size: Size | int, hint: str = "") -> AxisProduct:
    """A dimension that nothing is known of yet."""
    made = as_size(size)
    return () if int(made) == 1 and made.fixed else (OnnxAxis(made, hint),)


def keep_apart(axes: Iterable[OnnxAxis]) -> None:
    """Axes of one tensor or kernel are different ones, whatever later ops may say."""
    every = tuple(dict.fromkeys(flat(axes)))
    for axis in every:
        axis.apart += [other for other in every if other is not axis]


def are_apart(a: OnnxAxis, b: OnnxAxis) -> bool:
    if any(b in flat((other,)) for other in a.apart):
        return True
    return any(a in flat((other,)) for other in b.apart)


def split(axis: OnnxAxis, outer: Size) -> bool:
    """Split an axis into `outer` times what is left, if it divides; parts stay apart from what it was apart
    from.
    """
    if int(axis.size) % int(outer):
        return False
    parts = OnnxAxis(outer), OnnxAxis(axis.size.over(outer))
    for part in parts:
        part.apart = list(axis.apart)
    axis.parts = parts
    keep_apart(parts)
    return True


def merge(kept: OnnxAxis, other: OnnxAxis) -> bool:
    """Make two axes one, unless they stand beside each other somewhere."""
    if kept is other:
        return True
    if are_apart(kept, other):
        return False
    if not other.size.fixed and kept.size.fixed:  # the one with a formula says more
        kept, other = other, kept
    kept.apart += other.apart
    kept.hint = kept.hint or other.hint
    other.same = kept
    return True


Renaming = list[tuple[OnnxAxis, OnnxAxis]]  # an axis of a tensor, and what a reader takes it for


def align(wanted: Iterable[OnnxAxis], given: Iterable[OnnxAxis], renamed: Renaming) -> bool:
    """Make two dimensions of one size the same, axis by axis, splitting where one is finer.

    Where two axes must not be the same (queries and keys of one sequence) the given one is read under the
    name of the wanted one. False where their factors do not nest.

    >>> width, heads, head = OnnxAxis(Size(64)), OnnxAxis(Size(4)), OnnxAxis(Size(16))
    >>> align((width,), (heads, head), [])
    True
    >>> flat((width,)) == flat((heads, head))
    True
    """
    left, right = list(flat(wanted)), list(flat(given))
    while left and right:
        a, b = left[0], right[0]
        if int(a.size) == int(b.size):
            if not merge(a, b):
                renamed.append((b, a))
            left, right = left[1:], right[1:]
        elif int(a.size) > int(b.size):
            if not split(a, b.size):
                return False
            left = list(flat(left))
        else:
            if not split(b, a.size):
                return False
            right = list(flat(right))
    return not left and not right


def regroup(axes: Iterable[OnnxAxis], sizes: Sequence[Size]) -> list[AxisProduct] | None:
    """Axes in order as dimensions of other sizes, splitting where needed; None where factors do not nest.

    >>> rows, width = OnnxAxis(Size(6)), OnnxAxis(Size(64))
    >>> made = regroup((rows, width), [Size(6), Size(4), Size(16)])
    >>> [int(product_size(d)) for d in made], regroup((rows, width), [Size(5), Size(77)]) is None
    ([6, 4, 16], True)
    """
    left = [axis for axis in flat(axes) if int(axis.size) != 1 or not axis.size.fixed]
    found: list[AxisProduct] = []
    for size in sizes:
        have, group = 1, list[OnnxAxis]()
        while have < int(size):
            if not left:
                return None
            need, axis = int(size) // have, left[0]
            if int(size) % have:
                return None
            if need % int(axis.size):
                if not split(axis, Size(need)):
                    return None
                left = list(flat(left))
                axis = left[0]
            group.append(axis)
            have, left = have * int(axis.size), left[1:]
        found.append(tuple(group))
    return found if not left else None


def settle(renamed: Renaming) -> None:
    """Split both sides of each renaming alike, from the inner end: a part has the inner factors of it."""
    for old, new in renamed:
        a, b = list(flat((old,))), list(flat((new,)))
        while a and b and len(a) != len(b):
            x, y = a[-1], b[-1]
            if int(x.size) == int(y.size):
                a, b = a[:-1], b[:-1]
                continue
            finer, coarser = (b, a) if len(b) > len(a) else (a, b)
            inner, axis = finer[-1].size, coarser[-1]
            if int(axis.size) % int(inner) or not split(axis, axis.size.over(inner)):
                break
            a, b = list(flat(a)), list(flat(b))


# ---------------------------------------- small constants, through the ops that exporters compute shapes with


def as_sizes(values: Any) -> np.ndarray:
    """Whole numbers as sizes that keep their formulas."""
    found = np.asarray(values, dtype=object)
    made = np.empty(found.shape, dtype=object)
    for place in np.ndindex(found.shape):
        one = found[place]
        whole = isinstance(one, int | np.integer) and not isinstance(one, bool | np.bool_)
        made[place] = as_size(int(one) if not isinstance(one, Size) else one) if whole else one
    return made


def _slice(x: list[Any], attributes: dict[str, Any]) -> np.ndarray:
    data = x[0]
    starts = x[1] if len(x) > 1 else np.array(attributes["starts"])
    ends = x[2] if len(x) > 2 else np.array(attributes["ends"])
    axes = x[3] if len(x) > 3 and x[3] is not None else range(len(starts))
    steps = x[4] if len(x) > 4 and x[4] is not None else [1] * len(starts)
    cut = [slice(None)] * data.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        first, last, by = int(start), int(end), int(step)
        last_or_none = None if by < 0 and last < -data.shape[int(axis)] else last
        cut[int(axis)] = slice(first, last_or_none, by)
    return data[tuple(cut)]


def _squeeze(x: list[Any], attributes: dict[str, Any]) -> np.ndarray:
    axes = x[1] if len(x) > 1 and x[1] is not None else attributes.get("axes")
    return np.squeeze(x[0], None if axes is None else tuple(int(a) for a in axes))


def _unsqueeze(x: list[Any], attributes: dict[str, Any]) -> np.ndarray:
    axes = x[1] if len(x) > 1 and x[1] is not None else attributes["axes"]
    made = x[0]
    rank = made.ndim + len(axes)
    for axis in sorted(int(a) % rank for a in axes):
        made = np.expand_dims(made, axis)
    return made


def _reduced(function: Any) -> Folded:
    def fold(x: list[Any], attributes: dict[str, Any]) -> np.ndarray:
        axes = x[1] if len(x) > 1 and x[1] is not None else attributes.get("axes")
        kept = bool(attributes.get("keepdims", 1))
        along = None if axes is None else tuple(int(a) for a in axes)
        return np.asarray(function(x[0], axis=along, keepdims=kept), dtype=object)

    return fold


def _divided(a: Any, b: Any) -> Any:
    whole = isinstance(a, int) and isinstance(b, int)
    return as_size(a) // b if whole else a / b


def _filled(x: list[Any], attributes: dict[str, Any]) -> np.ndarray:
    value = attributes.get("value")
    return np.full([int(n) for n in x[0]], 0.0 if value is None else value.ravel()[0], dtype=object)


def _elements(function: Any) -> Folded:
    made = np.frompyfunc(function, 2, 1)
    return lambda x, _: np.asarray(made(x[0], x[1]), dtype=object)


def _cast(x: list[Any], attributes: dict[str, Any]) -> np.ndarray:
    to_whole = attributes.get("to") in (2, 3, 4, 5, 6, 7, 12, 13)
    whole = np.frompyfunc(lambda v: v if isinstance(v, int) else int(v), 1, 1)
    return as_sizes(whole(x[0])) if to_whole else x[0]


FOLDS: dict[str, Folded] = {
    "Identity": lambda x, _: x[0],
    "Cast": _cast,
    "Gather": lambda x, a: np.take(x[0], x[1].astype(int), axis=a.get("axis", 0)),
    "Concat": lambda x, a: np.concatenate(x, axis=a["axis"]),
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": lambda x, _: x[0].reshape([int(n) for n in x[1]]),
    "Transpose": lambda x, a: np.transpose(x[0], a.get("perm")),
    "Expand": lambda x, _: x[0] * np.ones([int(n) for n in x[1]], dtype=int).astype(object),
    "ConstantOfShape": _filled,
    "Range": lambda x, _: as_sizes(list(range(*(int(v.item()) for v in x)))),
    "Add": _elements(lambda a, b: a + b),
    "Sub": _elements(lambda a, b: a - b),
    "Mul": _elements(lambda a, b: a * b),
    "Div": _elements(_divided),
    "Mod": _elements(lambda a, b: a % b),
    "Equal": _elements(lambda a, b: bool(a == b)),
    "Greater": _elements(lambda a, b: bool(a > b)),
    "Less": _elements(lambda a, b: bool(a < b)),
    "GreaterOrEqual": _elements(lambda a, b: bool(a >= b)),
    "LessOrEqual": _elements(lambda a, b: bool(a <= b)),
    "And": _elements(lambda a, b: a and b),
    "Or": _elements(lambda a, b: a or b),
    "Max": _elements(lambda a, b: b if b > a else a),
    "Min": _elements(lambda a, b: b if b < a else a),
    "Neg": lambda x, _: -x[0],
    "Not": lambda x, _: np.frompyfunc(lambda v: not v, 1, 1)(x[0]),
    "Sqrt": lambda x, _: np.frompyfunc(lambda v: float(v) ** 0.5, 1, 1)(x[0]),
    "Floor": lambda x, _: np.frompyfunc(np.floor, 1, 1)(x[0]),
    "Ceil": lambda x, _: np.frompyfunc(np.ceil, 1, 1)(x[0]),
    "Where": lambda x, _: np.frompyfunc(lambda c, a, b: a if c else b, 3, 1)(*x),
    **{f"Reduce{name}": _reduced(getattr(np, name.lower())) for name in ("Prod", "Sum", "Max", "Min")},
}


def folded(
    op: str, inputs: list[np.ndarray | None], attributes: dict[str, Any], needed: int
) -> np.ndarray | None:
    """What an op makes of known constants; None where one is not known, or the op is not for shapes.

    >>> shape = as_sizes([Size(8, "batch"), 64])
    >>> made = folded("Mul", [shape, as_sizes([2, 1])], {}, 2)
    >>> [(int(size), size.text) for size in made]
    [(16, '(batch * 2)'), (64, '64')]
    """
    if op not in FOLDS or len(inputs) < needed or any(x is None for x in inputs[:needed]):
        return None
    return as_sizes(np.asarray(FOLDS[op](inputs, attributes), dtype=object))
