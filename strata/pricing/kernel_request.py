"""What a kernel is asked for with, each declared once for the API, the command line and measured files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from strata.base.arrays import Number
from strata.hardware.fabric import Fabric
from strata.pricing.kernels.device import Device
from strata.pricing.price import Price

Sizes = dict[str, Number]


@dataclass(frozen=True)
class KernelSize:
    """What a size counts: a positive whole number, or where it has a unit any number within its range."""

    meaning: str
    unit: str = ""
    least: float = 0.0
    most: float = float("inf")


_BACK = "of the backward pass: "
_CALL = KernelSize("time of a call before its first step and after its last", "s")
_LAUNCHES = KernelSize("kernels of a step that the host launches", "1")
_GAP = KernelSize("time between the kernels of one step and those of the next", "s")
_TRIPS = KernelSize("trips to memory that the main loop of a step waits for, for 32 of depth", "1")
_LIBRARY = {"call": _CALL, "launches": _LAUNCHES, "gap": _GAP, "trips": _TRIPS}
SIZES: dict[str, KernelSize] = {
    "m": KernelSize("rows of the activations and the result"),
    "n": KernelSize("columns of the weights, or of one expert's, and of the result"),
    "k": KernelSize("depth: columns of the activations, rows of the weights"),
    "batch": KernelSize("products, matrices or sequences at once"),
    "operands": KernelSize("tensors behind both operands: 1 of a tensor and itself", "1", 1.0, 2.0),
    "tokens": KernelSize("tokens, each of which goes to some experts"),
    "experts": KernelSize("experts, each with weights of its own"),
    "top_k": KernelSize("experts of one token"),
    "skew": KernelSize("exponent of the experts' popularity: 0 is uniform", "1"),
    "ranks": KernelSize("devices that share the work"),
    "hidden": KernelSize("width of a token or of a state"),
    "inner": KernelSize("width inside an expert; of a scan, neighbours in memory along other axes"),
    "gated": KernelSize("1 where a gate stands beside the first product, else 0", "1", most=1.0),
    "context": KernelSize("tokens of a sequence, the new ones included"),
    "heads": KernelSize("query heads"),
    "head_dim": KernelSize("width of a head"),
    "kv_heads": KernelSize("heads of keys and values, as many as of queries where left out"),
    "sequences": KernelSize("sequences at once"),
    "queries": KernelSize("new tokens of a sequence: 1 is a decode step"),
    "v_head_dim": KernelSize("width of a head of values"),
    "kv_rank": KernelSize("width of the latent that keys and values share"),
    "rope_dim": KernelSize("width of the rotated part of keys"),
    "rows": KernelSize("rows of the result"),
    "columns": KernelSize("columns of the result"),
    "turns": KernelSize("sets of buffers of eager streams that take turns: 0 where data come from DRAM", "1"),
    "order": KernelSize("rows and columns of a matrix"),
    "turned": KernelSize("1 where rows lie side by side, so that it is copied first, else 0", "1", most=1.0),
    "points": KernelSize("complex points of a line"),
    "lines": KernelSize("lines at once"),
    "axes": KernelSize("axes that are transformed in turn, a kernel each"),
    "length": KernelSize("elements along the axis, or keys of a line"),
    "outer": KernelSize("lines whose elements follow those of other lines"),
    "bags": KernelSize("bags: rows of the result"),
    "per_bag": KernelSize("rows of the table added up for a bag"),
    "width": KernelSize("elements of a row"),
    "parameters": KernelSize("parameters that are updated"),
    "gradient": KernelSize("bytes of a gradient", "B"),
    "state": KernelSize("bytes of a parameter's copy and moments", "B"),
    "copy": KernelSize("bytes of the copy for the next forward pass", "B"),
    "rate": KernelSize("rate of its kernels over that of a stream", "1", 0.01),
    "steps": KernelSize("time steps, one after the other"),
    "layers": KernelSize("layers, one after the other"),
    "inputs": KernelSize(
        "1 with the products of inputs and weights copied into one buffer, else 0", "1", most=1.0
    ),
    **_LIBRARY,
    **{f"back_{name}": KernelSize(_BACK + one.meaning, one.unit) for name, one in _LIBRARY.items()},
    "sent": KernelSize("bytes that a rank sends, as the sizes say where 0", "B"),
}


@dataclass(frozen=True)
class KernelOption:
    """How a kernel runs: a word, a format, a number in a unit, or a flag, which `off` turns off."""

    meaning: str
    form: str = "flag"
    off: str = ""


OPTIONS: dict[str, KernelOption] = {
    "activations": KernelOption("how activations are stored: 16 bits or wider where left out", "format"),
    "kv": KernelOption("how keys and values are stored: as activations where left out", "format"),
    "weight_only": KernelOption("narrow weights are widened before use: their format needs no arithmetic"),
    "op": KernelOption("what it does", "word"),
    "phase": KernelOption("of what", "word"),
    "routing": KernelOption("uniform, balanced, zipf or power_law_EXPONENT: the mean of some draws", "word"),
    "fabric": KernelOption("fabric that joins the ranks: the chip's usual one where left out", "word"),
    "causal": KernelOption("each query attends to the whole context", off="full"),
    "resident": KernelOption("activations come from and go to the cache where they fit"),
    "kept": KernelOption("operands stay in the cache between calls as far as they fit"),
    "served": KernelOption("as a serving framework calls it"),
    "eager": KernelOption("as PyTorch runs it, one op a kernel"),
    "unaligned": KernelOption("copied element by element where rows of n weights are no whole 16 bytes"),
    "repeated": KernelOption("run once at the highest clock, not without pause", off="once"),
    "briefly": KernelOption("in a benchmark of some ten milliseconds, which may pass the power limit"),
    "every": KernelOption("time between the starts of two calls, where the host sets the pace", "s"),
    "start": KernelOption("time from a call by the host to the start of its kernel", "s"),
    "host": KernelOption("time in which the host prepares a call, which lasts at least as long", "s"),
    "clock": KernelOption("clock that is locked: the highest one where left out", "Hz"),
}
ALWAYS = ("repeated", "briefly", "every", "start", "host", "clock")  # options of every kernel
FLAGS = tuple(name for name, one in OPTIONS.items() if one.form == "flag")


@dataclass(frozen=True, kw_only=True)
class KernelRequest:
    """Formats of weights with the arithmetic, of activations, of keys and values; and what `OPTIONS` say."""

    weight: str
    activation: str
    kv: str
    op: str = ""
    phase: str = ""
    routing: str = "uniform"
    fabric: Fabric | None = None
    causal: bool = True
    kept: bool = False
    served: bool = False
    eager: bool = False
    unaligned: bool = False

    def is_prefill(self, queries: Number) -> bool:
        """Whether kernels for prompts run: as told, else where a sequence has more than one new token."""
        return self.phase == "prefill" or (not self.phase and bool(np.any(np.asarray(queries) > 1.0)))


@dataclass(frozen=True, kw_only=True)
class KernelKind:
    """A kind of kernel: what it is, the sizes it needs and those it has a value for, its price, and the
    options it has beside those of all.

    `ops` and `phases` are words it knows, the first one where none is told, as is its `precision`. `products`
    need arithmetic of the chip's matrix units in their format; `drawn` prices have draws of a routing on the
    leading axis; `warm` ones find activations in the cache; `launched` is the size that counts kernels of a
    call.
    """

    title: str
    needed: tuple[str, ...]
    price: Callable[[Sizes, Device, KernelRequest], Price]
    usual: Mapping[str, Number] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    example: str = ""
    precision: str = "bf16"
    products: bool = True
    drawn: bool = False
    warm: bool = False
    launched: str = ""

    @property
    def sizes(self) -> tuple[str, ...]:
        return (*self.needed, *self.usual)
