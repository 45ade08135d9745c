"""ONNX ops that only look at a tensor otherwise: they cost nothing, and keep the identity of its axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from strata.adapters.onnx.axes import (
    AxisProduct,
    OnnxAxis,
    Size,
    align,
    as_size,
    dimension,
    flat,
    product_size,
    regroup,
)
from strata.adapters.onnx.trace import DATA, NodeCall, OnnxValue, Rule
from strata.base.errors import BadValue


def _same(call: NodeCall, x: OnnxValue, *_: Any) -> list[OnnxValue]:
    return [x]


def reshaped(call: NodeCall, value: OnnxValue, sizes: Sequence[Any]) -> OnnxValue:
    """A view with other dimensions; a copy where their factors do not nest with the axes there are."""
    target = [as_size(s) for s in sizes]
    groups = regroup(value.axes, target)
    if groups is not None:
        return replace(value, dims=tuple(groups), data=None)
    return call.copied([value], call.trace.fresh(target))


def _reshape(call: NodeCall, value: OnnxValue, *_: Any) -> list[OnnxValue]:
    wanted = call.whole_numbers(1, "shape")
    if wanted is None:
        wanted = list(call.trace.infer(call.node.output[0]))
    zero = bool(call.get("allowzero", 0))
    sizes = [value.shape[i] if int(s) == 0 and not zero else as_size(s) for i, s in enumerate(wanted)]
    rest = product_size(value.axes)
    for s in sizes:
        if int(s) > 0 and int(rest) % int(s):
            raise BadValue(
                f"{call.node.output[0]}: {' x '.join(str(int(n)) for n in value.shape)} does not make "
                f"{[int(n) for n in sizes]}: an open dimension was fixed in the export; give its size"
            )
        rest = rest.over(s) if int(s) > 0 else rest
    return [reshaped(call, value, [rest if int(s) == -1 else s for s in sizes])]


def _flatten(call: NodeCall, value: OnnxValue) -> list[OnnxValue]:
    axis = call.get("axis", 1) % (len(value.dims) + 1)
    parts = (value.dims[:axis], value.dims[axis:])
    return [replace(value, dims=tuple(flat(a for d in part for a in d) for part in parts), data=None)]


def transposed(value: OnnxValue, order: Sequence[int] | None) -> OnnxValue:
    """A view with dimensions in another order; reversed where none is stated."""
    return replace(value, dims=tuple(value.dims[i] for i in order) if order else value.dims[::-1], data=None)


def _transpose(call: NodeCall, x: OnnxValue) -> list[OnnxValue]:
    return [transposed(x, call.get("perm"))]


def _squeeze(call: NodeCall, value: OnnxValue, *_: Any) -> list[OnnxValue]:
    axes = call.whole_numbers(1, "axes")
    rank = len(value.dims)
    gone = (
        {int(a) % rank for a in axes} if axes is not None else {i for i, d in enumerate(value.dims) if not d}
    )
    return [replace(value, dims=tuple(d for i, d in enumerate(value.dims) if i not in gone), data=None)]


def _unsqueeze(call: NodeCall, value: OnnxValue, *_: Any) -> list[OnnxValue]:
    axes = call.whole_numbers(1, "axes") or []
    dims, rank = list(value.dims), len(value.dims) + len(axes)
    for axis in sorted(int(a) % rank for a in axes):
        dims.insert(axis, ())
    return [replace(value, dims=tuple(dims), data=None)]


def _expand(call: NodeCall, value: OnnxValue, *_: Any) -> list[OnnxValue]:
    wanted = call.known(1)
    sizes = list(call.trace.infer(call.node.output[0])) if wanted is None else list(np.ravel(wanted))
    rank = max(len(sizes), len(value.dims))
    dims: list[AxisProduct] = [()] * (rank - len(value.dims)) + list(value.dims)
    sizes = [1] * (rank - len(sizes)) + sizes
    made = tuple(d or dimension(as_size(s)) for d, s in zip(dims, sizes, strict=True))
    return [replace(value, dims=made, data=None, table=value.stored)]


def _tile(call: NodeCall, value: OnnxValue, *_: Any) -> list[OnnxValue]:
    times = call.known(1)
    if times is None:
        return [call.copied([value], call.inferred())]
    pairs = zip(value.dims, np.ravel(times), strict=True)
    return [replace(value, dims=tuple((*dimension(as_size(n)), *d) for d, n in pairs), data=None)]


def part_of(call: NodeCall, value: OnnxValue, axis: int, size: Size, *, start: int = -1) -> OnnxValue:
    """A view of some entries of a dimension. Equal parts of it are its inner axis at one place of the outer;
    others have an axis of their own, read in place of the whole one.
    """
    dims = list(value.dims)
    here = dims[axis]
    whole = product_size(here)
    if int(size) == int(whole):
        return value
    if value.kind != DATA:
        dims[axis] = dimension(size)
        if not size.fixed:  # as many rows as there are tokens, of a table that is stored whole
            return OnnxValue(tuple(dims), value.kind, source=value.source, table=value.stored)
        return OnnxValue(tuple(dims), value.kind, source=call.node.output[0] + f"_{start}")
    aligned = start >= 0 and int(whole) % int(size) == 0 and start % int(size) == 0
    if size.fixed and (int(size) == 1 or (aligned and whole.fixed)):
        groups = regroup(here, [whole.over(size), size])
        if groups is not None:
            dims[axis] = groups[1]
            return replace(value, dims=tuple(dims), dropped=(*value.dropped, *groups[0]), data=None)
    dims[axis] = dimension(size)
    if len(flat(here)) == 1:
        pair = (flat(here)[0], dims[axis][0])
        return replace(value, dims=tuple(dims), renamed=(*value.renamed, pair), data=None)
    return call.copied([value], dims)


def _slice(call: NodeCall, value: OnnxValue, *_: Any) -> list[OnnxValue]:
    keys = ("starts", "ends", "axes", "steps")
    starts, ends, axes, steps = (call.whole_numbers(place, key) for place, key in enumerate(keys, 1))
    if starts is None or ends is None:
        return [call.copied([value], call.inferred())]
    places = [int(a) for a in axes] if axes is not None else range(len(starts))
    strides = steps if steps is not None else [1] * len(starts)
    for axis, start, end, step in zip(places, starts, ends, strides, strict=True):
        whole = value.shape[axis]
        first, last = (_clipped(as_size(x), whole, int(step)) for x in (start, end))
        if int(step) < 0:
            size = (first - last + (-int(step)) - 1) // -int(step)
        else:
            size = (last - first + int(step) - 1) // int(step)
        place = int(first) if int(step) == 1 else -1
        value = part_of(call, value, axis % len(value.dims), as_size(size), start=place)
    return [value]


def _clipped(place: Size, whole: Size, step: int) -> Size:
    if int(place) < -int(whole):
        return Size(-1) if step < 0 else Size(0)
    if int(place) < 0:
        return as_size(place + whole)
    return (as_size(whole - 1) if step < 0 else whole) if int(place) >= int(whole) else place


def _split(call: NodeCall, value: OnnxValue, *_: Any) -> list[OnnxValue]:
    axis = call.get("axis", 0) % len(value.dims)
    number = len(call.node.output)
    sizes = call.whole_numbers(1, "split")
    if sizes is None:
        each = (value.shape[axis] + number - 1) // number
        sizes = [each] * (number - 1) + [value.shape[axis] - each * (number - 1)]
    found, start = [], 0
    for size in sizes:
        found.append(part_of(call, value, axis, as_size(size), start=start))
        start += int(size)
    return found


def _concat(call: NodeCall, *inputs: Any) -> list[OnnxValue]:
    """Parts beside each other: equal ones are a new outer axis, so that a split finds it again."""
    values = [v for v in inputs if all(int(s) for s in v.shape)]
    first = next((v for v in values if v.kind == DATA), values[0])
    axis = call.attributes["axis"] % len(first.dims)
    sizes = [v.shape[axis] for v in values]
    for v in values:
        for place, d in enumerate(v.dims):
            if v is not first and place != axis:
                align(first.dims[place], d, [])
    dims = list(first.dims)
    if len({s.text for s in sizes}) == 1 and sizes[0].fixed:
        for v in values:
            if v is not first:
                align(first.dims[axis], v.dims[axis], [])
        dims[axis] = (OnnxAxis(Size(len(values))), *first.dims[axis])
    else:
        dims[axis] = dimension(sum(sizes, Size(0)))
    if len(values) == 1:
        return [first]
    return [replace(call, inputs=values).stored("simd", dims, settings={"flop": 0.0})]


def _blocks(call: NodeCall, x: OnnxValue) -> list[OnnxValue]:
    """Between channels and pixels: a reshape, a transpose, a reshape, as one copy."""
    b, c, h, w = x.shape
    n = call.attributes["blocksize"]
    deep = call.op == "SpaceToDepth"
    sizes = (b, c * n * n, h // n, w // n) if deep else (b, c // (n * n), h * n, w * n)
    dims = list(call.trace.fresh(sizes))
    dims[0] = x.dims[0]
    return [call.copied([x], dims)]


VIEWS: dict[str, Rule] = {
    "Identity": _same,
    "Dropout": _same,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Transpose": _transpose,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Expand": _expand,
    "Tile": _tile,
    "Slice": _slice,
    "Split": _split,
    "Concat": _concat,
    "DepthToSpace": _blocks,
    "SpaceToDepth": _blocks,
}
