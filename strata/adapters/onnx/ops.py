"""ONNX ops beside products and views: element-wise and row-wise work, reductions, gathers; operations an
element from `data/onnx/operations.toml`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from strata.adapters.onnx.axes import (
    AxisProduct,
    Size,
    align,
    as_size,
    dimension,
    flat,
    product_size,
    regroup,
)
from strata.adapters.onnx.products import PRODUCTS, attention_kernels, places, window_sizes
from strata.adapters.onnx.trace import (
    CONSTANT,
    DATA,
    WEIGHT,
    KernelRead,
    NodeCall,
    OnnxValue,
    Rule,
    kept_dims,
)
from strata.adapters.onnx.views import VIEWS, part_of, reshaped, transposed
from strata.workload.ops import OPERATIONS


def _costs(kind: str, op: str) -> dict[str, Any]:
    flop, special = OPERATIONS[kind][op]
    return {"flop": flop, "special": special}


def together(call: NodeCall, settings: dict[str, Any]) -> OnnxValue:
    """Element-wise work on operands that broadcast to one shape."""
    values = call.given
    rank = max(len(v.dims) for v in values)
    reads = [KernelRead(v) for v in values]
    dims: list[AxisProduct] = []
    for place in range(-rank, 0):
        here = [
            (r, r.value.dims[place]) for r in reads if -place <= len(r.value.dims) and r.value.dims[place]
        ]
        here.sort(key=lambda pair: pair[0].value.kind != DATA)
        for read, d in here[1:]:
            align(here[0][1], d, read.renamed)
        dims.append(here[0][1] if here else ())
    stores = [v for v in values if v.kind == WEIGHT and v.axes]  # a single number is no weight
    kept = [r for r in reads if r.value not in stores] if len(stores) < len(values) else reads
    return call.draft("simd", kept, dims, stores=stores, settings=settings)


def _elementwise(call: NodeCall, *_: Any) -> list[OnnxValue]:
    costs = _costs("element", call.op)
    power = call.known(1) if call.op == "Pow" else None
    if power is not None and power.size == 1 and float(power.item()) in (1.0, 2.0, 3.0):
        costs = {"flop": float(power.item()) - 1.0, "special": 0.0}  # products
    return [together(call, costs)]


def _layer_norm(call: NodeCall, x: OnnxValue, *_: Any) -> list[OnnxValue]:
    """Work that needs all entries along the dimensions from an axis on before it writes one."""
    whole = flat(a for d in x.dims[call.get("axis", -1) % len(x.dims) :] for a in d)
    skip = call.op.startswith("Skip")
    reads = call.inputs[: 2 if skip else 1]
    stores = [v for v in call.inputs[len(reads) :] if v is not None and v.kind == WEIGHT and v.dims]
    for v in stores:
        for mine, its in zip(reversed(x.dims), reversed(v.dims), strict=False):
            align(mine, its, [])
    made = call.draft("simd", reads, x.dims, stores=stores, settings=_costs("row", call.op), whole=whole)
    return [made] * max(len(call.node.output), 1)


def _axis(call: NodeCall, place: int, usual: int) -> int:
    """The axis that an operand (newer opsets) or an attribute names."""
    stated = call.known(place)
    return int(call.get("axis", usual) if stated is None else stated.ravel()[0])


def _along_axis(call: NodeCall, x: OnnxValue, *_: Any) -> list[OnnxValue]:
    axis = _axis(call, 1, -1) if call.op == "CumSum" else call.get("axis", -1)
    costs = _costs("row", call.op)
    return [call.draft("simd", [x], x.dims, settings=costs, whole=flat(x.dims[axis]))]


def _channel_norm(call: NodeCall, x: OnnxValue, *_: Any) -> list[OnnxValue]:
    """Norms with weights by channel: of a batch, whose statistics are fixed, of pixels, of groups."""
    stores = call.given[1:]
    for v in stores:
        align(x.dims[1], v.dims[0], [])
    whole = flat(a for d in x.dims[2:] for a in d)
    if call.op == "GroupNormalization":
        number = Size(call.attributes["num_groups"])
        groups = regroup(x.dims[1], [number, x.shape[1] // number])
        whole = (*groups[1], *whole) if groups else whole
    if call.op == "BatchNormalization":
        whole = ()
    costs = _costs("row", call.op)
    return [call.draft("simd", [x], x.dims, stores=stores, settings=costs, whole=whole)]


def _reduce(call: NodeCall, x: OnnxValue, *_: Any) -> list[OnnxValue]:
    rank, axes = len(x.dims), call.whole_numbers(1, "axes")
    if call.op in ("ArgMax", "ArgMin"):
        axes = [call.get("axis", 0)]
    if call.op.startswith("Global"):
        axes = list(range(2, rank))
    gone = set(range(rank)) if not axes else {int(a) % rank for a in axes}
    kept = bool(call.get("keepdims", 1))
    dims = [() if i in gone else d for i, d in enumerate(x.dims) if kept or i not in gone]
    settings = {"per_read": OPERATIONS["reduce"][call.op]}
    return [call.draft("simd", [x], dims, settings=settings)]


def _pool(call: NodeCall, x: OnnxValue) -> list[OnnxValue]:
    window = call.attributes["kernel_shape"]
    made = places(KernelRead(x), x.dims[2:], window_sizes(x.shape[2:], window, call))
    flop, _ = OPERATIONS["reduce"][call.op]
    settings = {"flop": flop * math.prod(window)}
    pooled = call.draft("simd", [x], (*x.dims[:2], *made), settings=settings)
    return [pooled] * len(call.node.output)


def _gather(call: NodeCall, table: OnnxValue, index: OnnxValue) -> list[OnnxValue]:
    """One entry of an axis is a view; rows of a table by their numbers are gathered."""
    axis = call.get("axis", 0) % len(table.dims)
    if table.kind == DATA and index.kind == CONSTANT and not any(index.dims):
        value = part_of(call, table, axis, Size(1))
        dims = (*value.dims[:axis], *index.dims, *value.dims[axis + 1 :])
        return [OnnxValue(dims, DATA, value.source, value.written, value.renamed, value.dropped)]
    dims = (*table.dims[:axis], *index.dims, *table.dims[axis + 1 :])
    row = flat(a for d in table.dims[axis + 1 :] for a in d)
    if table.kind == DATA:
        made = call.draft("gather", [table, index], dims, row=row,
            settings={"flop": 0.0, "gathered": True},
        )  # fmt: skip
        return [made]
    if index.kind != DATA:  # rows of a table by numbers that are known: a smaller table
        shape = call.trace.fresh(map(product_size, dims))
        return [OnnxValue(shape, table.kind, source=table.source, table=table.stored)]
    stores = [table] if table.kind == WEIGHT else []
    settings = {"flop": 0.0, "gathered": True}
    looked_up = flat(table.dims[axis])
    reads = [index]
    return [call.draft("gather", reads, dims, stores=stores, row=row, looked_up=looked_up, settings=settings)]


def _moved(call: NodeCall, x: OnnxValue, index: OnnxValue, *_: Any) -> list[OnnxValue]:
    """Elements to or from addresses of their own; a scatter's result is like what it changes."""
    op = call.op
    if op.startswith("Scatter"):
        dims: Sequence[AxisProduct] = x.dims
        axis = call.get("axis", 0) % len(dims)
        for place, (d, its) in enumerate(zip(dims, index.dims, strict=False)):
            if op == "ScatterElements" and place != axis:
                align(its, d, [])
    elif op == "GatherElements":
        dims = index.dims
    elif op == "GatherND" and not call.get("batch_dims", 0) and index.shape[-1].fixed:
        depth = int(index.shape[-1])
        dims = (*index.dims[:-1], *x.dims[depth:])
        dims = tuple(
            d if i >= len(index.dims) - 1 else dimension(product_size(d)) for i, d in enumerate(dims)
        )
    else:
        dims = call.inferred()
    row = flat(dims[-1]) if op.endswith("ND") and dims else ()
    return [call.stored("gather", dims, row=row, settings={"flop": 0.0})]


def _top_k(call: NodeCall, x: OnnxValue, *_: Any) -> list[OnnxValue]:
    """Values and places of the largest: each entry is compared with a heap of k."""
    axis, number = call.get("axis", -1), call.whole_numbers(1, "k")
    if not number:
        raise call.refuse("k must be known beforehand")
    k = as_size(number[0])
    dims = list(x.dims)
    dims[axis] = dimension(k)
    settings = {"per_read": (1.0 + math.ceil(math.log2(max(int(k), 1))), 0.0), "elements_written": 2.0}
    made = call.draft("simd", [x], dims, settings=settings)
    return [made, made]


def _resize(call: NodeCall, x: OnnxValue, *_: Any) -> list[OnnxValue]:
    scales, sizes = call.known(1 if call.op == "Upsample" else 2), call.known(3)
    if sizes is not None and sizes.size:
        shape = [as_size(s) for s in sizes.ravel()]
    elif scales is not None and scales.size:
        shape = [_scaled(s, float(f)) for s, f in zip(x.shape, scales.ravel(), strict=True)]
    else:
        shape = list(call.trace.infer(call.node.output[0]))
    dims = kept_dims(x, shape)
    changed = sum(int(a) != int(b) for a, b in zip(x.shape, shape, strict=True))
    taps = {"linear": 2, "cubic": 4}.get(call.get("mode", "nearest"), 0) ** max(changed, 1)
    return [call.draft("simd", [x], dims, settings={"flop": 2.0 * taps})]


def _scaled(size: Size, factor: float) -> Size:
    if factor == int(factor):
        return as_size(size * int(factor))
    return Size(math.floor(int(size) * factor), "" if size.fixed else f"floor({size.text}*{factor})")


def _pad(call: NodeCall, x: OnnxValue, *_: Any) -> list[OnnxValue]:
    pads = call.whole_numbers(1, "pads")
    if pads is None:
        return [call.copied([x], call.inferred())]
    axes = call.whole_numbers(3, "axes") or list(range(len(x.dims)))
    dims, number = list(x.dims), len(axes)
    for i, axis in enumerate(axes):
        more = as_size(pads[i]) + pads[i + number]
        if int(more):
            dims[int(axis)] = dimension(as_size(x.shape[int(axis)] + more))
    return [call.copied([x], dims)]


def _transform(call: NodeCall, x: OnnxValue, *_: Any) -> list[OnnxValue]:
    """A discrete Fourier transform: 5 n log2 n real operations a line of n complex points."""
    axis = _axis(call, 2, 1)
    dims = kept_dims(x, call.trace.infer(call.node.output[0]))
    flop = 2.5 * math.log2(max(int(x.shape[axis]), 2))
    whole = flat(dims[axis])
    return [call.draft("simd", [x], dims, settings={"flop": flop}, whole=whole)]


def _inferred(call: NodeCall, *_: Any) -> list[OnnxValue]:
    """One pass over what it reads, into a shape that shape inference knows."""
    return [call.copied(call.given, call.inferred())]


def _attention(call: NodeCall, q: OnnxValue, k: OnnxValue, v: OnnxValue, *_: Any) -> list[OnnxValue]:
    """Attention with queries, keys and values apart, with heads as a dimension or folded into the width."""
    heads = call.get("q_num_heads") or call.get("num_heads") or 1
    kv_heads = call.get("kv_num_heads") or heads
    packed = len(q.dims) == 3
    if packed:
        split = []
        for t, n in ((q, heads), (k, kv_heads), (v, kv_heads)):
            b, s, width = t.shape
            four = reshaped(call, t, [b, s, Size(n), width // n])
            split.append(transposed(four, (0, 2, 1, 3)))
        q, k, v = split
    made = attention_kernels(call, q, k, v, OPERATIONS["row"]["Softmax"])
    if packed:
        batch, h, tokens, d = made.dims
        made = OnnxValue((batch, tokens, (*h, *d)), made.kind, made.source, made.written)
    return [made, k, v][: len(call.node.output)]


_OTHERS: dict[str, Rule] = {
    "MaxPool": _pool, "AveragePool": _pool, "LpPool": _pool,
    "Gather": _gather, "GatherElements": _moved, "GatherND": _moved,
    "ScatterElements": _moved, "ScatterND": _moved, "Scatter": _moved,
    "TopK": _top_k, "Resize": _resize, "Upsample": _resize, "Pad": _pad, "DFT": _transform,
    "NonZero": _inferred, "OneHot": _inferred, "ReverseSequence": _inferred, "EyeLike": _inferred,
    "Attention": _attention, "MultiHeadAttention": _attention, "GroupQueryAttention": _attention,
}  # fmt: skip
_ROWS: dict[str, Rule] = {
    "Softmax": _along_axis, "LogSoftmax": _along_axis, "Hardmax": _along_axis, "CumSum": _along_axis,
    "LpNormalization": _along_axis, "BatchNormalization": _channel_norm, "GroupNormalization": _channel_norm,
    "InstanceNormalization": _channel_norm,
}  # fmt: skip
RULES: dict[str, Rule] = {
    **dict.fromkeys(OPERATIONS["element"], _elementwise),
    **dict.fromkeys(OPERATIONS["row"], _layer_norm),
    **dict.fromkeys(OPERATIONS["reduce"], _reduce),
    **_ROWS,
    **_OTHERS,
    **PRODUCTS,
    **VIEWS,
}
