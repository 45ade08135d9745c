"""One kernel on one chip, asked for by name: the prices a model's step is made of, each by itself, with what
was asked checked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.arrays import Number, as_float
from strata.errors import BadValue, MissingQuantity, UnknownName, require
from strata.hardware.chip import Chip
from strata.hardware.chip import chip as make_chip
from strata.precision import bytes_of, check, rate_of, supports
from strata.pricing.kernel_ops import NAMED_KERNELS
from strata.pricing.kernels.attention import AttentionShape, attention_kernel
from strata.pricing.kernels.device import Device, device
from strata.pricing.kernels.dram_access import read_fraction
from strata.pricing.kernels.experts import price_experts
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.vector import vector_kernel
from strata.pricing.power_cap import power_capped
from strata.pricing.price import RESOURCES, Price
from strata.workload.attention_parts import attended
from strata.workload.expert_ops import ExpertMatMul
from strata.workload.graph import Extent
from strata.workload.moe import NORM_FLOP, SILU_FLOP, SILU_SPECIAL
from strata.workload.ops import OPERATIONS

# Sizes each kind needs, and those it has a value for when they are left out.
NEEDED: dict[str, tuple[str, ...]] = {
    "gemm": ("m", "n", "k"),
    "grouped": ("tokens", "experts", "n", "k"),
    "attention": ("sequences", "queries", "context", "heads", "head_dim"),
    "stream": ("rows", "columns"),
    **{name: known.needed for name, known in NAMED_KERNELS.items()},
}
USUAL: dict[str, dict[str, Number]] = {
    "gemm": {"batch": 1.0},
    "grouped": {"top_k": 1.0, "skew": 0.0},
    "attention": {"kv_heads": 0.0},
    "stream": {},
    **{name: known.usual for name, known in NAMED_KERNELS.items()},
}
# Elements read and written for each element of the result, arithmetic and special functions.
STREAMS = {
    "copy": (1.0, 1.0, 0.0, 0.0),
    "add": (2.0, 1.0, 1.0, 0.0),
    "rms_norm": (1.0, 1.0, NORM_FLOP, 0.0),
    "softmax": (1.0, 1.0, *OPERATIONS["row"]["Softmax"]),
    "gelu": (1.0, 1.0, *OPERATIONS["element"]["Gelu"]),
    "silu": (2.0, 1.0, SILU_FLOP, SILU_SPECIAL),
}
ALL = 1e18  # no window


@dataclass(frozen=True, eq=False, kw_only=True)
class Kernel:
    """A kernel with its price at the clock it holds [Hz] and the power drawn meanwhile [W]; arrays where a
    size was one.
    """

    chip: Chip
    kind: str
    sizes: dict[str, Number]
    precision: str
    price: Price
    clock: Number
    power: Number
    op: str = ""  # of a stream

    @property
    def time(self) -> Number:
        return self.price.time

    @property
    def bound_by(self) -> Any:
        """The resource the time is credited to; an array of names where sizes are arrays."""
        shares = np.stack(
            np.broadcast_arrays(*(np.asarray(getattr(self.price, r), float) for r in RESOURCES))
        )
        most = np.argmax(shares, axis=0)
        return np.array(RESOURCES)[most] if shares.ndim > 1 else RESOURCES[int(most)]

    @property
    def flop_per_s(self) -> Number:
        """Useful operations a second."""
        return self.price.flop / self.price.time

    @property
    def memory_bandwidth(self) -> Number:
        """Bytes a second to and from DRAM."""
        return self.price.memory_bytes / self.price.time


def kernel(
    chip: str | Chip,
    kind: str,
    *,
    precision: str = "bf16",
    activations: str = "",
    kv: str = "",
    op: str = "copy",
    weight_only: bool = False,
    causal: bool = True,
    resident: bool = False,
    repeated: bool = True,
    **sizes: Number,
) -> Kernel:
    """One kernel on one chip: a plain or grouped product, attention, a pass over memory, or a kernel of
    another program. Sizes may be arrays.

    gemm: m, n, k (batch=1). grouped: tokens, experts, n, k (top_k=1, skew=0). attention: sequences, queries,
    context, heads, head_dim (kv_heads as heads). stream: rows, columns, and `op`, one of `STREAMS`. lu: order
    (batch=1). fft: points (lines=1). scan: length (outer=1, inner=1). sort: length (lines=1). embedding_bag:
    bags, per_bag, width.
    `precision` is that of the arithmetic and of the weights; activations are stored as told, else in 16 bits
    or wider. `weight_only`: narrow weights are widened before use. Data come from DRAM, or with `resident`
    activations from the cache where they fit. `repeated`: at the clock the power limit allows when it is run
    without pause; else once, at the highest clock.

    >>> import numpy as np
    >>> both = kernel("h200", "gemm", m=np.array([1, 8192]), n=8192, k=8192)
    >>> [str(b) for b in both.bound_by], bool(both.time[0] < both.time[1])
    (['memory', 'compute'], True)
    """
    used = make_chip(chip) if isinstance(chip, str) else chip
    given = checked_sizes(kind, sizes)
    check(precision)
    if op not in STREAMS:
        raise UnknownName("streaming op", op, STREAMS, ", ".join(STREAMS))
    if kind != "stream" and (kind not in NAMED_KERNELS or NAMED_KERNELS[kind].products):
        _check_rate(used, precision, weight_only)
    wide = precision if bytes_of(precision) >= bytes_of("bf16") else "bf16"
    stored = check(activations) if activations else wide
    run = _Request(precision, stored, check(kv) if kv else stored, op, causal)
    dev = device(used, resident=resident, weight_only=weight_only)
    named = NAMED_KERNELS.get(kind)
    price = _PRICED[kind](given, dev, run) if named is None else named.price(given, dev, precision)
    highest = used.compute.max_clock
    if repeated:
        held = power_capped(price, used)
        price, clock, power = held.price, held.share * highest, held.power
    else:
        clock, power = highest, price.energy / price.time + used.energy.static_power
    return Kernel(
        chip=used,
        kind=kind,
        sizes=given,
        precision=precision,
        price=price,
        clock=clock,
        power=power,
        op=op if kind == "stream" else "",
    )


@dataclass(frozen=True)
class _Request:
    """Formats of the weights and the arithmetic, of stored activations, and of keys and values; the op of a
    stream; whether attention is causal.
    """

    weight: str
    activation: str
    kv: str
    op: str
    causal: bool


def checked_sizes(kind: str, sizes: dict[str, Number]) -> dict[str, Number]:
    """Every size of a kernel as floats, with the usual values of those left out; what is wrong is said in one
    line.

    >>> checked_sizes("gemm", {"m": 8, "n": 0, "k": 8})
    Traceback (most recent call last):
    ...
    strata.errors.BadValue: gemm n must be a positive whole number, but got 0
    """
    if kind not in NEEDED:
        raise UnknownName("kernel", kind, NEEDED, ", ".join(NEEDED))
    known = (*NEEDED[kind], *USUAL[kind])
    for name in sizes:
        if name not in known:
            raise UnknownName(f"size of {kind}", name, known, ", ".join(known))
    missing = [name for name in NEEDED[kind] if name not in sizes]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise BadValue(f"{kind} needs {', '.join(NEEDED[kind])}, but {', '.join(missing)} {are} missing")
    given = {
        name: _checked(kind, name, sizes[name]) if name in sizes else USUAL[kind][name] for name in known
    }
    shapes = {name: getattr(value, "shape", ()) for name, value in given.items()}
    try:
        np.broadcast_shapes(*shapes.values())
    except ValueError:
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items() if shape)
        raise BadValue(f"{kind} sizes must broadcast against each other, but got {told}") from None
    if kind == "attention":
        given["kv_heads"] = given["kv_heads"] if "kv_heads" in sizes else given["heads"]
        _relation(
            given,
            "heads",
            "kv_heads",
            "attention heads must be a multiple of kv_heads",
            lambda heads, kv: heads % kv == 0,
        )
        _relation(
            given,
            "context",
            "queries",
            "attention context counts the new tokens and must not be below queries",
            lambda c, q: c >= q,
        )
    if kind == "grouped":
        _relation(
            given,
            "top_k",
            "experts",
            "grouped top_k must not exceed experts",
            lambda chosen, held: chosen <= held,
        )
    return given


def _checked(kind: str, name: str, value: Number) -> Number:
    """A size as float, positive and whole (a skew: not negative); traced arrays are taken as they are."""
    try:
        seen = np.asarray(value, float)
    except (TypeError, ValueError) as error:
        if hasattr(value, "__array_namespace__"):
            return value
        raise BadValue(f"{kind} {name} must be a number, but got {value!r}") from error
    rule = "a number of at least 0" if name == "skew" else "a positive whole number"
    good = (
        (seen >= 0) & np.isfinite(seen)
        if name == "skew"
        else (seen >= 1) & (seen < 1e15) & (seen == np.floor(seen))
    )
    if not np.all(good):
        raise BadValue(f"{kind} {name} must be {rule}, but got {np.ravel(seen)[np.argmin(np.ravel(good))]:g}")
    return as_float(seen if isinstance(value, (list, tuple)) else value)


def _relation(given: dict[str, Number], first: str, second: str, relation: str, holds: Any) -> None:
    try:
        a, b = np.broadcast_arrays(np.asarray(given[first], float), np.asarray(given[second], float))
    except TypeError:  # traced
        return
    broken = ~np.ravel(holds(a, b))
    if broken.any():
        at = int(np.argmax(broken))
        require(False, relation, **{first: int(np.ravel(a)[at]), second: int(np.ravel(b)[at])})


def _check_rate(chip: Chip, precision: str, weight_only: bool) -> None:
    """The chip computes in this precision, or widens its weights to one it has."""
    if weight_only:
        return
    try:
        rate_of(chip.compute.matrix_rate, precision, f"chip {chip.name}")
    except MissingQuantity as error:
        narrow = bytes_of(precision) < bytes_of("bf16") and supports(chip.compute.matrix_rate, "bf16")
        raise MissingQuantity(
            f"{error}" + ("; weight-only use widens such weights to bf16" if narrow else "")
        ) from None


def _gemm(sizes: dict[str, Number], dev: Device, run: _Request) -> Price:
    return matmul(
        sizes["m"],
        sizes["n"],
        sizes["k"],
        dev,
        run.weight,
        run.activation,
        batch=sizes["batch"],
        resident=dev.software.resident,
    )


def _grouped(sizes: dict[str, Number], dev: Device, run: _Request) -> Price:
    op = ExpertMatMul(
        name="grouped",
        module="",
        inputs=(),
        output="out",
        tokens=Extent(sizes["tokens"]),
        top_k=sizes["top_k"],
        experts=Extent(sizes["experts"]),
        all_experts=sizes["experts"],
        n=(Extent(sizes["n"]),),
        k=Extent(sizes["k"]),
        skew=sizes["skew"] + 0.0 * sizes["tokens"],
        weight=run.weight,
        activation=run.activation,
    )
    return price_experts(op, dev)


def _attention(sizes: dict[str, Number], dev: Device, run: _Request) -> Price:
    context, width = sizes["context"], sizes["head_dim"]
    shape = AttentionShape(
        sequences=sizes["sequences"],
        queries=sizes["queries"],
        span=attended(context, sizes["queries"], ALL) if run.causal else context,
        cached=context,
        heads=sizes["heads"],
        kv_heads=sizes["kv_heads"],
        key_dim=width,
        value_dim=width,
        kv_width=2.0 * width,
        activation=run.activation,
        kv=run.kv,
        products=run.weight,
    )
    return attention_kernel(shape, dev)


def _stream(sizes: dict[str, Number], dev: Device, run: _Request) -> Price:
    elements = sizes["rows"] * sizes["columns"]
    size, (reads, writes, flop, special) = elements * bytes_of(run.weight), STREAMS[run.op]
    return vector_kernel(
        size * reads,
        size * writes,
        elements * flop,
        elements * special,
        dev,
        resident=dev.software.resident,
        read_share=read_fraction(reads, writes),
    )


_PRICED: dict[str, Callable[[dict[str, Number], Device, _Request], Price]] = {
    "gemm": _gemm,
    "grouped": _grouped,
    "attention": _attention,
    "stream": _stream,
}
