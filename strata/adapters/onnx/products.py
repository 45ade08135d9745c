"""ONNX ops that are matrix products: MatMul, Gemm, Einsum, convolutions, recurrent layers, attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from strata.adapters.onnx.axes import (
    AxisProduct,
    OnnxAxis,
    Renaming,
    Size,
    align,
    as_size,
    dimension,
    flat,
    product_size,
    regroup,
)
from strata.adapters.onnx.trace import DATA, KernelRead, NodeCall, OnnxValue, Rule, renamed_axis
from strata.workload.lstm import CELLS


def product(
    call: NodeCall,
    left: KernelRead,
    right: KernelRead,
    dims: Sequence[AxisProduct],
    *,
    bias: OnnxValue | None = None,
    suffix: str = "",
) -> OnnxValue:
    """A product of two values whose common axes are found: one may be a weight. Without an axis to sum over
    it is a product of elements.
    """
    if left.value.kind != DATA:
        left, right = right, left
    out = set(flat(a for d in dims for a in d))
    a, b = left.seen(), right.seen()
    stores = [] if right.value.kind == DATA else [_as_read(right)]
    if bias is not None and stores:
        stores.append(bias)
    reads = [left] if stores else [left, right]
    kind = "gemm" if any(axis not in out for axis in a & b) else "simd"
    return call.draft(kind, reads, dims, stores=stores, suffix=suffix)


def _as_read(read: KernelRead) -> OnnxValue:
    """A weight under the names it is read by."""
    dims = tuple(tuple(renamed_axis(a, read.renamed) for a in flat(d)) for d in read.value.dims)
    return replace(read.value, dims=dims)


def apart_from(axes: AxisProduct, taken: set[OnnxAxis], renamed: Renaming, hint: str = "") -> AxisProduct:
    """Axes of a second operand under new names where the first has them too: keys beside queries."""
    found = []
    for axis in flat(axes):
        if axis in taken:
            new = OnnxAxis(axis.size, hint)
            renamed.append((axis, new))
            axis = new
        found.append(axis)
    return tuple(found)


def multiplied(call: NodeCall, a: OnnxValue, b: OnnxValue, suffix: str = "") -> OnnxValue:
    """numpy's matmul: last axis of one with the last but one of the other, the rest broadcast."""
    left = list(a.dims) if len(a.dims) > 1 else [(), *a.dims]
    right = list(b.dims) if len(b.dims) > 1 else [*b.dims, ()]
    renamed: Renaming = []
    align(left[-1], right[-2], renamed)
    rank = max(len(left), len(right))
    batch_a = [()] * (rank - len(left)) + left[:-2]
    batch_b = [()] * (rank - len(right)) + right[:-2]
    batch: list[AxisProduct] = []
    for x, y in zip(batch_a, batch_b, strict=True):
        if x and y:
            align(x, y, renamed)
        batch.append(x or y)
    columns = apart_from(right[-1], set(a.axes), renamed, "keys" if b.kind == DATA else "")
    dims = [*batch, *([left[-2]] if len(a.dims) > 1 else []), *([columns] if len(b.dims) > 1 else [])]
    return product(call, KernelRead(a), KernelRead(b, renamed), dims, suffix=suffix)


def _matmul(call: NodeCall, a: OnnxValue, b: OnnxValue) -> list[OnnxValue]:
    return [multiplied(call, a, b)]


def _gemm(call: NodeCall, a: OnnxValue, b: OnnxValue, bias: OnnxValue | None = None) -> list[OnnxValue]:
    rows, deep = a.dims[::-1] if call.get("transA") else a.dims
    depth, columns = b.dims[::-1] if call.get("transB") else b.dims
    renamed: Renaming = []
    align(deep, depth, renamed)
    columns = apart_from(columns, set(a.axes), renamed)
    if bias is not None:
        align(columns, bias.dims[-1], [])
    reads = KernelRead(a), KernelRead(b, renamed)
    return [product(call, *reads, (rows, columns), bias=bias)]


def _einsum(call: NodeCall, *inputs: OnnxValue) -> list[OnnxValue]:
    terms, arrow, made = call.attributes["equation"].replace(" ", "").partition("->")
    labels = terms.split(",")
    if len(labels) > 2 or "." in terms:
        raise call.refuse(
            f"an einsum of one or two operands with named axes has a price, but got "
            f"'{call.attributes['equation']}'; write it as products of two"
        )
    if not arrow:
        made = "".join(sorted(c for c in set(terms) - {","} if terms.count(c) == 1))
    axes: dict[str, AxisProduct] = {}
    reads: list[KernelRead] = []
    for term, value in zip(labels, inputs, strict=True):
        read = KernelRead(value)
        for letter, d in zip(term, value.dims, strict=True):
            if letter in axes:
                align(axes[letter], d, read.renamed)
            elif reads:
                axes[letter] = apart_from(d, set(inputs[0].axes), read.renamed, "keys")
            else:
                axes[letter] = d
        reads.append(read)
    dims = [axes[letter] for letter in made]
    if len(reads) == 1:
        return [call.draft("simd", reads, dims)]
    return [product(call, reads[0], reads[1], dims)]


def window_sizes(
    shape: Sequence[Size], window: Sequence[int], call: NodeCall, transposed: bool = False
) -> list[Size]:
    """Places that a window takes along each dimension: ONNX Conv and pooling operators, output shape."""
    number = len(window)
    strides = call.get("strides") or [1] * number
    dilations = call.get("dilations") or [1] * number
    pads = call.get("pads") or [0] * (2 * number)
    more = call.get("output_padding") or [0] * number
    same = str(call.get("auto_pad", "NOTSET")).startswith("SAME")
    found = []
    for i, size in enumerate(shape):
        span, padded = dilations[i] * (window[i] - 1) + 1, pads[i] + pads[i + number]
        if transposed:
            found.append((size - 1) * strides[i] + span - padded + more[i])
        elif same:
            found.append((size + strides[i] - 1) // strides[i])
        else:
            up = strides[i] - 1 if call.get("ceil_mode") else 0
            found.append((size + (padded - span + up)) // strides[i] + 1)
    return [as_size(s) for s in found]


def places(read: KernelRead, dims: Sequence[AxisProduct], sizes: Sequence[Size]) -> list[AxisProduct]:
    """Dimensions of what a window makes: the same where their size is, else new ones read in their place."""
    found: list[AxisProduct] = []
    for d, size in zip(dims, sizes, strict=True):
        old = flat(d)
        if int(size) == int(product_size(old)):
            found.append(old)
            continue
        new = dimension(size)
        if old and new:
            read.renamed.append((old[0], new[0]))
            read.renamed += [(extra, OnnxAxis(Size(1))) for extra in old[1:]]
        found.append(new)
    return found


def _conv(call: NodeCall, x: OnnxValue, weight: OnnxValue, bias: OnnxValue | None = None) -> list[OnnxValue]:
    """A convolution as a product: it sums over input channels and the places of its window.

    FLOP: 2 x outputs x channels of a group x window; the window's places are axes that the reader adds.
    """
    groups = call.get("group", 1)
    window = [int(s) for s in weight.shape[2:]]
    read, renamed = KernelRead(x), Renaming()
    made = places(read, x.dims[2:], window_sizes(x.shape[2:], window, call))
    read.added = flat(a for d in weight.dims[2:] for a in d)
    outer, inner = weight.dims[0], weight.dims[1]
    split_in = regroup(x.dims[1], [Size(groups), as_size(x.shape[1] // groups)])
    split_out = regroup(outer, [Size(groups), as_size(weight.shape[0] // groups)])
    if split_in is None or split_out is None:
        raise call.refuse(f"its channels do not divide into {groups} groups")
    align(split_in[1], inner, renamed)
    align(split_in[0], split_out[0], renamed)
    columns = apart_from(flat(outer), set(x.axes) - set(flat(split_in[0])), renamed)
    channels = tuple(renamed_axis(a, renamed) for a in columns)
    if bias is not None:
        align(channels, bias.dims[0], [])
    dims = (x.dims[0], channels, *made)
    return [product(call, read, KernelRead(weight, renamed), dims, bias=bias)]


def _conv_transpose(
    call: NodeCall, x: OnnxValue, weight: OnnxValue, bias: OnnxValue | None = None
) -> list[OnnxValue]:
    """A product that makes a window for every pixel, and the sum of windows that overlap."""
    if call.get("group", 1) != 1:
        raise call.refuse("with groups it has no price; nearest: group=1")
    renamed: Renaming = []
    align(x.dims[1], weight.dims[0], renamed)
    columns = apart_from(weight.dims[1], set(x.axes), renamed)
    spread = (x.dims[0], *x.dims[2:], columns, *weight.dims[2:])
    windows = product(call, KernelRead(x), KernelRead(weight, renamed), spread, suffix="_windows")
    sizes = window_sizes(x.shape[2:], [int(s) for s in weight.shape[2:]], call, transposed=True)
    dims = (x.dims[0], columns, *(dimension(s) for s in sizes))
    stores = [] if bias is None else [bias]
    settings = {"per_read": (1.0, 0.0)}
    return [call.draft("simd", [windows], dims, stores=stores, settings=settings)]


def _recurrent(
    call: NodeCall, x: OnnxValue, weight: OnnxValue, recurrent: OnnxValue, *_: Any
) -> list[OnnxValue]:
    """All time steps at once: a product with the inputs, one with the states before, and the cell.

    Operations and weights are exact; that steps wait for each other is not said here (the program `lstm`
    does).
    """
    cell = CELLS[{"LSTM": "lstm", "GRU": "gru"}.get(call.op, "vanilla")]
    bias = call.operand(3)
    batch_first = bool(call.get("layout", 0))
    steps, rows = (x.dims[1], x.dims[0]) if batch_first else (x.dims[0], x.dims[1])
    gates = Size(int(cell.gates))
    directions = weight.dims[0]
    parts = regroup(weight.dims[1], [gates, as_size(weight.shape[1] // int(gates))])
    if parts is None:
        raise call.refuse(f"its weight has no {int(gates)} gates")
    deep: Renaming = []
    align(x.dims[-1], weight.dims[2], deep)
    made = (steps, directions, rows, *parts)
    reads = KernelRead(x), KernelRead(weight, deep)
    entered = product(call, *reads, made, suffix="_input")
    align(directions, recurrent.dims[0], [])
    align(weight.dims[1], recurrent.dims[1], [])
    before = replace(entered, dims=(steps, directions, rows, parts[1]), dropped=parts[0])
    renamed: Renaming = []
    previous = OnnxAxis(weight.shape[1].over(gates), "state")
    renamed.append((flat(parts[1])[0], previous))
    align((previous,), recurrent.dims[2], [])
    states = product(call, KernelRead(before, renamed), KernelRead(recurrent), made, suffix="_recurrent")
    dims = (rows, steps, directions, parts[1]) if batch_first else (steps, directions, rows, parts[1])
    settings = {"flop": float(cell.flop), "special": float(cell.special), "elements_read": float(cell.reads),
                "elements_written": float(cell.writes)}  # fmt: skip
    stores = [] if bias is None else [bias]
    reading = [KernelRead(entered), KernelRead(states)]
    y = call.draft("simd", reading, dims, stores=stores, settings=settings)
    last = replace(y, dims=(directions, rows, parts[1]), dropped=flat(steps))
    return [y, last, last]


def attention_kernels(
    call: NodeCall, q: OnnxValue, k: OnnxValue, v: OnnxValue, softmax: tuple[float, float]
) -> OnnxValue:
    """Attention of [batch, heads, tokens, head] by two products and a softmax; heads of keys may be fewer."""
    groups = regroup(q.dims[1], [k.shape[1], q.shape[1].over(k.shape[1])])
    if groups is None:
        raise call.refuse("heads of queries are no multiple of those of keys")
    kv, rest = groups
    five = (q.dims[0], kv, rest, q.dims[2], q.dims[3])
    queries = replace(q, dims=five)
    keys, values = (replace(t, dims=(t.dims[0], t.dims[1], (), *t.dims[2:])) for t in (k, v))
    turned = replace(keys, dims=(*keys.dims[:3], keys.dims[4], keys.dims[3]))
    scores = multiplied(call, queries, turned, suffix="_scores")
    flop, special = softmax
    weights = call.draft("simd", [scores], scores.dims, suffix="_softmax", whole=flat(scores.dims[-1]),
        settings={"flop": flop + 1.0, "special": special},
    )  # fmt: skip
    made = multiplied(call, weights, values)
    return replace(made, dims=(made.dims[0], (*kv, *rest), *made.dims[3:]))


PRODUCTS: dict[str, Rule] = {
    "MatMul": _matmul,
    "FusedMatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
}
