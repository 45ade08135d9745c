"""Kernels of other programs than transformers, asked for by name: the op behind each, from its sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from strata.arrays import Number
from strata.pricing.kernels.device import Device
from strata.pricing.kernels.eager import bag_kernel
from strata.pricing.kernels.fft import price_fft
from strata.pricing.kernels.lu import price_lu
from strata.pricing.kernels.scan import price_scan, price_sort
from strata.pricing.price import Price
from strata.workload.fft import FftLines
from strata.workload.graph import Extent
from strata.workload.scan_ops import LuFactor, Scan, Sort

Sizes = dict[str, Number]


@dataclass(frozen=True)
class NamedKernel:
    """Sizes that a kernel needs, those it has a value for, its price, and whether it multiplies matrices."""

    needed: tuple[str, ...]
    price: Callable[[Sizes, Device, str], Price]
    usual: dict[str, Number] = field(default_factory=dict)
    products: bool = False


def _alone(name: str) -> dict[str, Any]:
    """The fields of an op that stands by itself."""
    return {"name": name, "module": "", "inputs": ("in",), "output": "out"}


def _lu(sizes: Sizes, dev: Device, precision: str) -> Price:
    op = LuFactor(
        **_alone("lu"), order=Extent(sizes["order"]), batch=Extent(sizes["batch"]), precision=precision
    )
    return price_lu(op, dev)


def _scan(sizes: Sizes, dev: Device, precision: str) -> Price:
    outer, inner = Extent(sizes["outer"]), Extent(sizes["inner"])
    op = Scan(**_alone("scan"), length=Extent(sizes["length"]), outer=outer, inner=inner, precision=precision)
    return price_scan(op, dev)


def _sort(sizes: Sizes, dev: Device, precision: str) -> Price:
    op = Sort(
        **_alone("sort"), length=Extent(sizes["length"]), lines=Extent(sizes["lines"]), precision=precision
    )
    return price_sort(op, dev)


def _fft(sizes: Sizes, dev: Device, precision: str) -> Price:
    op = FftLines(
        **_alone("fft"), points=Extent(sizes["points"]), lines=(Extent(sizes["lines"]),), precision=precision
    )
    return price_fft(op, dev)


def _bags(sizes: Sizes, dev: Device, precision: str) -> Price:
    return bag_kernel(sizes["bags"], sizes["per_bag"], sizes["width"], precision, dev)


NAMED_KERNELS = {
    "lu": NamedKernel(("order",), _lu, {"batch": 1.0}, products=True),
    "fft": NamedKernel(("points",), _fft, {"lines": 1.0}),
    "scan": NamedKernel(("length",), _scan, {"outer": 1.0, "inner": 1.0}),
    "sort": NamedKernel(("length",), _sort, {"lines": 1.0}),
    "embedding_bag": NamedKernel(("bags", "per_bag", "width"), _bags),
}
