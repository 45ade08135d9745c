"""Arithmetic on shapes, carried out: small constants through the ops that exporters compute shapes with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from strata.adapters.onnx.axes import Size, as_size

Folded = Callable[[list[Any], dict[str, Any]], Any]


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
    return (
        as_sizes(np.frompyfunc(lambda v: v if isinstance(v, int) else int(v), 1, 1)(x[0]))
        if to_whole
        else x[0]
    )


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
    "ReduceProd": _reduced(np.prod),
    "ReduceSum": _reduced(np.sum),
    "ReduceMax": _reduced(np.max),
    "ReduceMin": _reduced(np.min),
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
