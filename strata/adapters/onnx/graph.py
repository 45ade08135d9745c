"""ONNX models as programs: the graph of an .onnx file as kernels that read and write tensors with named axes.

Only shapes and types are read, so that weights in other files need not be there. Dimensions that the model
leaves open (`dim_param`) are sizes of the program; the first of the first input is the workload's batch.
"""

from __future__ import annotations

import difflib
import lzma
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from strata.adapters.onnx.axes import FOLDS, OnnxAxis, Size, as_size, as_sizes, dimension, folded, keep_apart
from strata.adapters.onnx.names import written_out
from strata.adapters.onnx.ops import RULES
from strata.adapters.onnx.trace import (
    CONSTANT,
    KNOWN,
    WEIGHT,
    NodeCall,
    OnnxTrace,
    OnnxValue,
    constant,
    fresh,
    kept_dims,
)
from strata.base.errors import BadFile, BadValue, StrataError, UnknownName
from strata.workload.dataflow import Dataflow

DEFAULT_SIZE = 128  # of an open dimension that nothing is said about, beside the batch
PROBE = 3  # entries of the batch while shapes are found out: no size that a model is made with
SHAPED = ("Shape", "Size", "Constant", "ConstantOfShape", "Range")
FORMATS = {1: "fp32", 10: "fp16", 11: "fp32", 16: "bf16", 17: "fp8", 19: "fp8"}  # TensorProto.DataType


def onnx_program(
    source: str | Path | Any,
    *,
    batch: str = "",
    sizes: Mapping[str, float] | None = None,
    kinds: Mapping[str, Mapping[str, Any]] | None = None,
    names: Mapping[str, str] | None = None,
    precision: str = "",
    name: str = "",
) -> Dataflow:
    """An ONNX model, by file or as `onnx.ModelProto`, as a program.

    batch: the open dimension that takes the workload's batch (the first one of the first input). sizes:
    other open dimensions by name (128 where nothing is said). kinds: prices of ops that have none, by `flop`,
    `special`, `reads` and `writes` for each element written, as numbers or expressions over sizes. names:
    other names of axes. precision: format of activations and weights (that of the file).
    """
    model, called = _loaded(source)
    said = name or called
    own = dict(kinds or {})
    _check_prices(model.graph, own, said)
    symbols = _open_dimensions(model.graph)
    leading = batch or next(iter(symbols), "")
    for key in (*filter(None, [batch]), *(sizes or {})):
        if key not in symbols:
            raise UnknownName(f"open dimension of {said}", key, symbols, ", ".join(symbols) or "none")
    names_of = {s: _free(s) for s in symbols if s != leading}
    values = {n: float((sizes or {}).get(s, DEFAULT_SIZE)) for s, n in names_of.items()}
    axes = {leading: OnnxAxis(Size(PROBE, leading), leading)} if leading else {}
    axes |= {s: OnnxAxis(Size(max(int(values[n]), 2), n), n) for s, n in names_of.items()}
    trace = OnnxTrace(_inference(model, axes))
    trace.open = {axis.size.text: axis for axis in axes.values()}
    inputs = _enter(trace, model.graph, axes)
    for node in model.graph.node:
        _walk(trace, node, own, said)
    outputs = [trace.values[o.name] for o in model.graph.output if o.name in trace.values]
    return written_out(
        trace, inputs, outputs, {a.size.text: a for a in axes.values()}, values, leading,
        name=said, precision=precision or _format(model.graph), names=dict(names or {}),
    )  # fmt: skip


def onnx_file(path: str | Path, /, **changes: Any) -> Dataflow:
    """An ONNX model by file with changes as they are typed: `precision`, `batch`, sizes of open dimensions,
    and prices of ops as `flop=3,reads=2`.
    """
    told: dict[str, Any] = {"sizes": {}, "kinds": {}}
    for key, value in changes.items():
        if key in ("batch", "precision", "name", "names", "kinds") and not isinstance(value, int | float):
            told[key] = value
        elif key == "weights":
            told["precision"] = value
        elif key == "sizes":
            told["sizes"] |= value
        elif isinstance(value, str) and "=" in value:
            pairs = (part.partition("=") for part in value.split(","))
            told["kinds"][key] = {name.strip(): formula.strip() for name, _, formula in pairs}
        else:
            try:
                told["sizes"][key] = float(value)
            except (TypeError, ValueError):
                raise BadValue(f"size {key} of {Path(path).name} is a number, but got '{value}'") from None
    return onnx_program(path, **told)


def _onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise BadValue("an .onnx file needs the package onnx: pip install 'strata[onnx]'") from None
    return onnx


def _loaded(source: Any) -> tuple[Any, str]:
    """The model without the data of its weights, functions inlined, and a name for it."""
    onnx = _onnx()
    if isinstance(source, str | Path):
        path = Path(source)
        if not path.exists():
            raise BadFile(f"there is no file {path}")
        try:
            packed = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
            model = onnx.load_from_string(packed)
        except Exception as error:
            raise BadFile(f"{path.name} is not an ONNX model: {error}") from None
        called = path.name.removesuffix(".xz").removesuffix(".onnx")
    else:
        model, called = source, source.graph.name or "onnx"
    if model.functions:
        from onnx import inliner

        model = inliner.inline_local_functions(model)
    if not model.graph.node:
        raise BadFile(f"{called} is not an ONNX model: it has no ops")
    return model, called


def symbol(text: str) -> str:
    """A name of an open dimension that expressions may hold."""
    identifier = re.sub(r"\W+", "_", text).strip("_")
    return f"n_{identifier}" if not identifier or identifier[0].isdecimal() else identifier


def _free(name: str) -> str:
    """The name of a size that is not the workload's batch."""
    return "batches" if name == "batch" else name


def _open_dimensions(graph: Any) -> dict[str, None]:
    held = {tensor.name for tensor in graph.initializer}
    found: dict[str, None] = {}
    for value in graph.input:
        if value.name not in held:
            for place, d in enumerate(value.type.tensor_type.shape.dim):
                if not d.HasField("dim_value"):
                    found[symbol(d.dim_param or f"{value.name}_{place}")] = None
    return found


def _enter(trace: OnnxTrace, graph: Any, axes: dict[str, OnnxAxis]) -> list[tuple[str, OnnxValue]]:
    """Inputs and weights as values. A weight of some dimensions is a parameter; a number is a constant."""
    import onnx

    for tensor in graph.initializer:
        floating = tensor.data_type in FORMATS
        stored = tensor.data_location != onnx.TensorProto.EXTERNAL
        if stored and int(np.prod(tensor.dims)) <= KNOWN and (not floating or not tensor.dims):
            trace.values[tensor.name] = constant(as_sizes(onnx.numpy_helper.to_array(tensor)))
            continue
        data = None
        if stored and int(np.prod(tensor.dims)) <= 16:  # scales of a resize are numbers, too
            data = as_sizes(onnx.numpy_helper.to_array(tensor))
        kind = WEIGHT if floating or len(tensor.dims) > 1 else CONSTANT
        trace.values[tensor.name] = OnnxValue(
            fresh(int(d) for d in tensor.dims), kind, source=tensor.name, data=data
        )
        keep_apart(trace.values[tensor.name].axes)
    found = []
    for value in graph.input:
        if value.name in trace.values:
            continue
        dims, seen = [], set[OnnxAxis]()
        for place, d in enumerate(value.type.tensor_type.shape.dim):
            if d.HasField("dim_value"):
                dims.append(dimension(int(d.dim_value)))
                continue
            axis = axes[symbol(d.dim_param or f"{value.name}_{place}")]
            if axis in seen:  # a mask of tokens by tokens: the same size twice, two axes
                axis = OnnxAxis(axis.size, "keys")
            seen.add(axis)
            dims.append((axis,))
        source = re.sub(r"[^A-Za-z0-9_.]+", "_", value.name).strip("_")
        trace.names.add(source)
        flat_axes = tuple(a for d in dims for a in d)
        keep_apart(flat_axes)
        trace.values[value.name] = OnnxValue(tuple(dims), source=source, written=flat_axes)
        found.append((source, trace.values[value.name]))
    return found


def _inference(model: Any, axes: dict[str, OnnxAxis]) -> Callable[[str], tuple[Size, ...]]:
    """Shapes by ONNX's own inference, made once where a rule asks for one."""
    known: dict[str, tuple[Any, ...]] = {}

    def infer(name: str) -> tuple[Size, ...]:
        from onnx import shape_inference

        if not known:
            inferred = shape_inference.infer_shapes(model, data_prop=True).graph
            for value in (*inferred.value_info, *inferred.output, *inferred.input):
                dims = value.type.tensor_type.shape.dim
                known[value.name] = tuple(d.dim_value or d.dim_param for d in dims)
        if name not in known:
            raise BadValue(f"the shape of {name} is not known: shape inference finds none")
        found = []
        for place, size in enumerate(known[name]):
            key = symbol(size) if isinstance(size, str) else ""
            if key and key in axes:
                found.append(axes[key].size)
            elif isinstance(size, int) and size > 0:
                found.append(Size(size))
            else:
                raise BadValue(f"dimension {place} of {name} depends on data: its size is not known")
        return tuple(found)

    return infer


def _check_prices(graph: Any, kinds: Mapping[str, Any], name: str) -> None:
    """All ops without a price at once, with how often they stand there and what is nearest."""
    fixed = {tensor.name for tensor in graph.initializer} | {""}
    missing: Counter[str] = Counter()
    for node in graph.node:
        if node.op_type in ("Shape", "Size", "Constant") or all(i in fixed for i in node.input):
            fixed |= set(node.output)
        elif node.op_type not in RULES and node.op_type not in kinds and node.op_type not in SHAPED:
            missing[node.op_type] += 1
    if not missing:
        return
    told = ", ".join(f"{op} ({count}x)" for op, count in missing.items())
    near = (difflib.get_close_matches(op, RULES, 1, 0.5) for op in missing)
    found = ", ".join(dict.fromkeys(match for matches in near for match in matches))
    first = next(iter(missing))
    raise BadValue(
        f"{name}: no price for {told}; nearest: {found or 'an element-wise op'}; "
        f"give formulas for an element written: --set model.{first}='flop=1,reads=1', or kinds="
    )


def _walk(trace: OnnxTrace, node: Any, kinds: Mapping[str, Any], name: str) -> None:
    """One node: folded where all is known, a view, or a kernel."""
    inputs = [trace.values.get(i) if i else None for i in node.input]
    missing = [i for i, v in zip(node.input, inputs, strict=True) if i and v is None]
    if missing:
        raise BadFile(f"{name}: {node.op_type} reads {missing[0]}, which nothing makes")
    call = NodeCall(trace, node, inputs, _attributes(node))
    try:
        values = _folded(call)
        if values is None and call.op in kinds:
            values = _by_formula(call, kinds[call.op])
        if values is None:
            if node.op_type not in RULES:  # of constants alone: only its shape matters
                values = [
                    OnnxValue(trace.fresh(trace.infer(o)), CONSTANT, source=o) for o in node.output if o
                ]
            else:
                values = RULES[call.op](call, *call.inputs)
    except StrataError:
        raise
    except (IndexError, KeyError, ValueError, TypeError, AttributeError, AssertionError) as error:
        raise BadValue(f"{name}: cannot read {node.op_type} {node.name}: {error}") from error
    for output, value in zip(node.output, values, strict=False):
        if output:
            keep_apart(value.axes)
            trace.values[output] = value


def _attributes(node: Any) -> dict[str, Any]:
    import onnx

    found = {}
    for a in node.attribute:
        value = onnx.helper.get_attribute_value(a)
        if isinstance(value, onnx.TensorProto):
            value = onnx.numpy_helper.to_array(value)
        found[a.name] = value.decode() if isinstance(value, bytes) else value
    return found


def _folded(call: NodeCall) -> list[OnnxValue] | None:
    """Constants and shapes."""
    op, trace, inputs, attributes, first = call.op, call.trace, call.inputs, call.attributes, call.operand(0)
    data = [None if v is None else v.data for v in inputs]
    if op == "Constant":
        value = next(v for k, v in attributes.items() if k.startswith("value"))
        return [constant(as_sizes(value))]
    if op == "Shape" and first is not None:
        shape = first.shape[attributes.get("start", 0) : attributes.get("end")]
        return [constant(as_sizes(list(shape)))]
    if op == "Size" and first is not None:
        return [constant(as_sizes(int(np.prod([int(s) for s in first.shape]))))]
    if op == "Range" and all(d is not None for d in data):
        start, limit, step = (d.item() for d in data)  # type: ignore[union-attr]
        whole = isinstance(limit, int)
        count = (as_size(limit) - int(start)) // int(step) if whole else Size(round((limit - start) / step))
        if not as_size(count).fixed or int(count) > KNOWN:
            return [OnnxValue(trace.fresh([count]), CONSTANT)]
    if (
        op in ("ConstantOfShape", "Expand")
        and data[-1] is not None
        and all(v is not None and v.kind == CONSTANT for v in inputs)
    ):
        shape = tuple(as_size(s) for s in np.ravel(data[-1]))
        if not all(s.fixed for s in shape) or np.prod([int(s) for s in shape]) > KNOWN:
            return [OnnxValue(trace.fresh(shape), CONSTANT)] if op == "ConstantOfShape" else None
    if op not in FOLDS or any(v.kind == WEIGHT for v in call.given):
        return None
    value = folded(op, data, attributes, max(len(call.given), 1))
    return None if value is None else [constant(value)]


def _by_formula(call: NodeCall, formulas: Mapping[str, Any]) -> list[OnnxValue]:
    """A kernel of a kind that the user prices; its shape is inferred, or like that of what it reads."""
    legal = ("flop", "special", "reads", "writes")
    for key in formulas:
        if key not in legal:
            raise UnknownName(f"formula of kind {call.op}", key, legal, ", ".join(legal))
    first = call.given[0]
    try:
        shape = call.trace.infer(call.node.output[0])
        same = kept_dims(first, shape, strict=False)
        dims = [*same, *(dimension(s) for s in shape[len(same) :])]
    except BadValue:
        dims = list(first.dims)
    words = {"reads": "elements_read", "writes": "elements_written"}
    settings = {words.get(k, k): _number(v) for k, v in formulas.items()}
    return [call.stored("simd", dims, settings=settings)] * len(call.node.output)


def _number(value: Any) -> Any:
    try:
        return float(value)
    except ValueError:
        return value


def _format(graph: Any) -> str:
    types = Counter(
        FORMATS[t.data_type] for t in graph.initializer if t.data_type in FORMATS and len(t.dims) > 1
    )
    entered = [FORMATS.get(v.type.tensor_type.elem_type, "") for v in graph.input]
    return types.most_common(1)[0][0] if types else next(filter(None, entered), "fp32")
