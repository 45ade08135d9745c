"""Kernels of other programs than transformers, launched one by one from the host; streams and
optimisers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.hardware.chip import Chip
from strata.pricing.kernels.device import device
from strata.pricing.kernels.eager import bag_kernel, eager_kernel
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.recurrent import RecurrentLayer, recurrent_backward, recurrent_forward
from strata.pricing.kernels.vector import vector_kernel
from strata.pricing.optimiser import adam_kernel
from strata.pricing.price import Price
from strata.validation.readers.bare_kernels import (
    benchmark_time,
    cumsum_price,
    fft_price,
    lu_price,
    repeated_gemm,
)
from strata.validation.readers.benchmark_conditions import (
    HostLaunchedConditions,
    OptimiserConditions,
    read_conditions,
)
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints, compare_metric, forecast, group_names
from strata.validation.readers.tables import Table

Sizes = tuple[Array, Array, Array, Array]  # columns a, b, c and d
Kernel = Callable[[Sizes, str, Chip, HostLaunchedConditions], Price]


def other_kernels(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Products of wide formats and of batches, recurrent layers, transforms; what is not priced yet is named,
    not counted.
    """
    priced = np.isin(table.text("kernel").astype(str), list(KERNELS))
    rest, table = table.keep(~priced), table.keep(priced)
    later = group_names(rest.text("kernel"), rest.text("precision"), count=len(rest))
    names, formats = table.text("kernel"), table.text("precision")
    sizes = [table.number(c) for c in "abcd"]
    known = read_conditions(HostLaunchedConditions, table, "h200/other.toml")
    chip = catalogue.chip(table.chip)

    def price(key: tuple[str, str], rows: Array) -> Any:
        a, b, c, d = (column[rows] for column in sizes)
        time = benchmark_time(KERNELS[key[0]]((a, b, c, d), key[1], chip, known), chip)
        launched = LAUNCHED.get(key[0], 1.0)
        last = (
            launched - 1.0
        ) * chip.overhead.launch + time / launched  # its last kernel, after all launches
        return np.maximum(known.least.get(key[0], 0.0), known.host + np.maximum(time, last))

    forecasts = forecast(table, [names, formats], price)
    groups = group_names(names, formats, count=len(table))
    points = compare_metric(table, table.number("median_s"), forecasts, groups)
    return replace(points, later=tuple(sorted(set(later))))


def _gemm(sizes: Sizes, precision: str, chip: Chip, known: HostLaunchedConditions) -> Price:
    m, n, k, _ = sizes
    return repeated_gemm(m, n, k, device(chip), precision)


def _bmm(sizes: Sizes, precision: str, chip: Chip, known: HostLaunchedConditions) -> Price:
    batch, m, n, k = sizes
    warm = 2.0 - known.operands
    return matmul(m, n, k, device(chip), precision, precision, batch=batch, resident=True, warm=warm)


def _embedding_bag(sizes: Sizes, precision: str, chip: Chip, known: HostLaunchedConditions) -> Price:
    _, width, bags, per_bag = sizes
    return bag_kernel(bags, per_bag, width, precision, device(chip))


def _layers(sizes: Sizes, precision: str) -> tuple[RecurrentLayer, Array, Array]:
    """One layer of an LSTM as wide as its input, how many there are, and bytes of all weights."""
    hidden, batch, steps, layers = sizes
    layer = RecurrentLayer(hidden=hidden, batch=batch, steps=steps, cell="lstm", precision=precision)
    return layer, layers, 2.0 * layers * layer.matrix_bytes()


def _lstm_forward(sizes: Sizes, precision: str, chip: Chip, known: HostLaunchedConditions) -> Price:
    """Weights copied into one buffer, inputs of all steps in one product a layer, then the steps."""
    layer, layers, weights = _layers(sizes, precision)
    dev, rows, wide = device(chip), layer.batch * layer.steps, layer.wide
    packed = vector_kernel(weights, weights, 0.0, 0.0, dev)
    inputs = matmul(rows, wide, layer.hidden, dev, precision, precision, resident=True)
    steps = recurrent_forward(layer, dev, replace(known.forward, call=known.forward.call / layers))
    return packed + (inputs + steps).times(layers)


def _lstm_train(sizes: Sizes, precision: str, chip: Chip, known: HostLaunchedConditions) -> Price:
    """Forward, then backward: gradients of states, of both kinds of weights and of each layer's input; those
    of weights are copied out of one buffer.
    """
    layer, layers, weights = _layers(sizes, precision)
    dev, rows, wide = device(chip), layer.batch * layer.steps, layer.wide
    unpacked = vector_kernel(weights, weights, 0.0, 0.0, dev)
    gradients = matmul(rows, layer.hidden, wide, dev, precision, precision) + matmul(
        layer.hidden, wide, rows, dev, precision, precision
    )
    steps = recurrent_backward(layer, dev, replace(known.backward, call=known.backward.call / layers))
    forward = _lstm_forward(sizes, precision, chip, known)
    return forward + unpacked + (gradients + steps).times(layers)


def _fft1d(sizes: Sizes, precision: str, chip: Chip, known: HostLaunchedConditions) -> Price:
    points, batch, _, _ = sizes
    return fft_price(points, batch, precision, device(chip))


def _fft3d(sizes: Sizes, precision: str, chip: Chip, known: HostLaunchedConditions) -> Price:
    side = sizes[0]
    return fft_price(side, side * side, precision, device(chip)).times(LAUNCHED["fft3d"])


def _lu(sizes: Sizes, precision: str, chip: Chip, known: HostLaunchedConditions) -> Price:
    return lu_price(sizes[0], precision, device(chip))


def _cumsum(sizes: Sizes, precision: str, chip: Chip, known: HostLaunchedConditions) -> Price:
    steps, channels, _, _ = sizes
    return cumsum_price(steps, channels, precision, device(chip))


KERNELS: dict[str, Kernel] = {
    "gemm": _gemm,
    "bmm": _bmm,
    "embedding_bag": _embedding_bag,
    "lstm_forward": _lstm_forward,
    "lstm_train": _lstm_train,
    "fft1d": _fft1d,
    "fft3d": _fft3d,
    "lu": _lu,
    "cumsum": _cumsum,
}
LAUNCHED = {"fft3d": 3.0}  # kernels of a call: an axis each
FULL = 4.0  # bytes of gradients, weights and moments in fp32


def fused_adamw(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """One fused AdamW step over fp32 parameters, gradients and moments, called from the host."""
    s = table.numbers("parameters")
    known = read_conditions(OptimiserConditions, table, "h200/optimiser.toml")
    chip = catalogue.chip(table.chip)

    def price(key: tuple[()], rows: Array) -> Any:
        count = s["parameters"][rows]
        update = adam_kernel(count, FULL, 3.0 * FULL, 0.0, device(chip), known.rate)
        return known.host + benchmark_time(update, chip)

    forecasts = forecast(table, [], price, tuple(s))
    names = group_names("adamw", "fused", count=len(table))
    return compare_metric(table, table.number("median_s"), forecasts, names)


TURNS = 32.0  # sets of buffers that take turns at most: small ones stay in the cache
OWN_RESULTS = ("copy", "add")  # their results have buffers of their own


def bare_stream(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Streaming kernels on buffers that take turns."""
    s = table.numbers("rows", "cols", "bytes_read", "bytes_written")
    chip = catalogue.chip(table.chip)
    dev = device(chip)

    def price(key: tuple[str], rows: Array) -> Any:
        count, columns, read, written = (column[rows] for column in s.values())
        # Results of other kernels fall into the memory the last one left.
        turned = TURNS * (read + written if key[0] in OWN_RESULTS else read)
        footprint = np.maximum(turned, read + written)
        price = eager_kernel(
            key[0],
            count,
            columns,
            bytes_read=read,
            bytes_written=written,
            device=dev,
            footprint=footprint,
        )
        return benchmark_time(price, chip)

    forecasts = forecast(table, [table.text("op")], price, tuple(s))
    return compare_metric(table, table.number("median_s"), forecasts, table.text("op"))
