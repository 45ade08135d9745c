"""Power and clock of repeated kernels, the energies that explain them, and power of whole steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import BadValue
from strata.hardware.chip import Chip
from strata.mapping.plan import Plan
from strata.precision import bytes_of, rate_of
from strata.pricing.kernels.device import cache_byte_energy, device
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.vector import vector_kernel
from strata.pricing.power_cap import power_capped, voltage_energy
from strata.pricing.price import ZERO, Price
from strata.validation.readers.bare_kernels import cold_device, served_gemm_price
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import (
    ComparedPoints,
    compare_metric,
    forecast,
    group_names,
    join_metrics,
)
from strata.validation.readers.labels import kernel_format
from strata.validation.readers.steps import priced_step, with_layers
from strata.validation.readers.tables import Table
from strata.workload.tasks import decode, prefill

LONG_ENOUGH = 0.2  # ms: below it a board's power reading is noise (validation/README.md)
# calls that take so much longer than their kernel wait for the host, more than any error of ours
HOST_BOUND = 1.5
AT_THE_LIMIT = 0.95  # of the power limit: above it the clock has fallen, to what these files do not say


def gemm_power(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Board power of repeated products, and their time. Power is judged on rows that take long enough."""
    s = table.numbers("m", "n", "k")
    keys = [table.text("system"), table.text("gemm_dtype")]

    def price(key: tuple[str, str], rows: Array) -> Any:
        chip = catalogue.chip(key[0])
        capped = power_capped(served_gemm_price(chip, key[1], *(s[c][rows] for c in "mnk")), chip)
        return capped.power, capped.price.time

    forecasts = forecast(table, keys, price, tuple(s), metrics=2)
    took, count = table.number("latency_ms"), len(table)
    drawn = np.where(took >= LONG_ENOUGH, table.number("power_w"), np.nan)
    names = {metric: group_names(metric, *keys, count=count) for metric in ("power", "time")}
    power = compare_metric(table, drawn, forecasts, names["power"])
    time = compare_metric(table, took * 1e-3, forecasts, names["time"], metric=1, headline=False)
    return join_metrics([power, time])


def sustained_loads(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Sustained power and clock of kernels repeated for seconds."""
    work, load = table.number("work_per_call"), table.text("load")
    each = table.number("seconds") / np.maximum(table.number("calls"), 1.0)
    chip = catalogue.chip(table.chip)

    def price(key: tuple[str], rows: Array) -> Any:
        kernel = _kernel_of_load(key[0], work[rows], chip)
        capped = power_capped(kernel, chip, _pace(kernel, each[rows]))
        return capped.power + 0.0 * work[rows], capped.share * chip.compute.max_clock + 0.0 * work[rows]

    forecasts = forecast(table, [load], price, ("work_per_call",), metrics=2)
    names = {metric: group_names(metric, load, count=len(table)) for metric in ("power", "clock")}
    power = compare_metric(table, table.number("power_w"), forecasts, names["power"])
    clock = compare_metric(
        table, table.number("sm_mhz") * 1e6, forecasts, names["clock"], metric=1, headline=False
    )
    return join_metrics([power, clock])


def _pace(load: Price, seconds: Array) -> Array:
    """How much longer a call takes than its kernel: above 1 where the host, not the GPU, set the pace of the
    loop.
    """
    took = np.where(load.time > 0.0, seconds / np.maximum(load.time, 1e-12), 1.0)
    return np.where(took > HOST_BOUND, took, 1.0)


def _product_of_load(load: str) -> str:
    """The format of a load that is a square product; nothing for other loads."""
    product = re.fullmatch(r"gemm_(\w+?)_(\d+)", load)
    return product.group(1) if product else ""


def _kernel_of_load(load: str, work: Array, chip: Chip) -> Price:
    """The kernel behind the name of a load. Operands that fit the cache stay there between calls."""
    if load == "idle":
        return ZERO
    if dtype := _product_of_load(load):
        used, size = kernel_format(dtype), np.cbrt(work / 2.0)
        kept = 3.0 * size * size * bytes_of(used.activation) < chip.cache.capacity
        resident = bool(np.all(kept))
        dev = device(chip, resident=resident)
        return matmul(size, size, size, dev, used.weight, used.activation, resident=resident, warm=1.0 * kept)
    if load == "gemv_m1":  # [1, 8192] x [57344, 8192]^T (validation/README.md)
        depth = 8192.0 + 0.0 * work
        columns = work / (depth * bytes_of("bf16"))
        return matmul(1.0 + 0.0 * work, columns, depth, cold_device(chip), "bf16", "bf16")
    if load.startswith("copy"):
        return vector_kernel(work / 2.0, work / 2.0, 0.0, 0.0, cold_device(chip), resident="l2" in load)
    raise BadValue(f"a load must be idle, gemm_FORMAT_SIZE, gemv_m1 or copy_..., but got '{load}'")


@dataclass(frozen=True, kw_only=True)
class PowerDraw:
    """One measured load: its format, the work of a call, how long a call took [s], the power drawn [W] and
    the share of the clock.
    """

    format: str
    price: Price
    seconds: float
    power: float
    share: float


def measured_draws(table: Table, chip: Chip) -> list[PowerDraw]:
    """The loads of a file that tell energies: power, time and clock all known."""
    return _sustained_draws(table, chip) if "load" in table.columns else _gemm_draws(table, chip)


def _sustained_draws(table: Table, chip: Chip) -> list[PowerDraw]:
    columns = [table.number(c) for c in ("work_per_call", "seconds", "calls", "power_w", "sm_mhz")]
    draws = []
    for load, work, seconds, calls, power, clock in zip(table.text("load"), *columns, strict=True):
        if load != "idle":
            dtype = _product_of_load(load)
            draw = PowerDraw(
                format=kernel_format(dtype).weight if dtype else "",
                price=_single(_kernel_of_load(load, np.array([work]), chip)),
                seconds=seconds / calls,
                power=power,
                share=clock * 1e6 / float(chip.compute.max_clock),
            )
            draws.append(draw)
    return draws


def _gemm_draws(table: Table, chip: Chip) -> list[PowerDraw]:
    took, power = table.number("latency_ms"), table.number("power_w")
    known = ~((took < LONG_ENOUGH) | (power > AT_THE_LIMIT * table.number("power_limit_w")))
    sizes = [table.number(c) for c in "mnk"]
    draws = []
    for row in np.flatnonzero(known):
        dtype = str(table.text("gemm_dtype")[row])
        price = served_gemm_price(chip, dtype, *(size[[row]] for size in sizes))
        draw = PowerDraw(
            format=kernel_format(dtype).weight,
            price=_single(price),
            seconds=took[row] * 1e-3,
            power=power[row],
            share=1.0,
        )
        draws.append(draw)
    return draws


def predicted_draw(draw: PowerDraw, chip: Chip) -> float:
    """What a chip's energies make of a measured load, at its measured time and clock [W]."""
    used = float(rate_of(chip.energy.matrix, draw.format)) if draw.format else 0.0
    scale = float(voltage_energy(draw.share, chip.energy.voltage_slope))
    core = (draw.price.flop * used + draw.price.cache_bytes * float(cache_byte_energy(chip))) * scale
    return float(
        chip.energy.static_power + (core + draw.price.memory_bytes * float(chip.energy.memory)) / draw.seconds
    )


def _single(price: Price) -> Price:
    return Price(**{name: float(np.asarray(value).reshape(-1)[0]) for name, value in vars(price).items()})


def energies_of_draws(draws: Sequence[PowerDraw], chip: Chip) -> dict[str, float]:
    r"""Energies of a chip from measured loads [J/FLOP, J/B], none negative.

    .. math:: (P - P_0) \, t = (f e_f + b_l e_l) \, v(\phi)^2 + b_m e_m

    power P, static P_0, time t of a call; its operations f of a format, bytes through the cache b_l and of
    DRAM b_m; v^2 from `voltage_energy` at the measured clock. Least squares of what is relative to each
    load's energy.

    Lawson & Hanson, Solving Least Squares Problems (1974), ch. 23: least squares without negative values.
    """
    from scipy.optimize import nnls

    kinds = sorted({d.format for d in draws if d.format})
    above = [(d.power - float(chip.energy.static_power)) * d.seconds for d in draws]
    matrix = np.zeros((len(draws), len(kinds) + 2))
    for i, draw in enumerate(draws):
        scale = float(voltage_energy(draw.share, chip.energy.voltage_slope))
        if draw.format:
            matrix[i, kinds.index(draw.format)] = draw.price.flop * scale
        matrix[i, -2:] = draw.price.cache_bytes * scale, draw.price.memory_bytes
    size = np.maximum(np.max(matrix, axis=0), 1e-300)  # operations and bytes lie decades apart
    solved, _ = nnls(matrix / size / np.array(above)[:, None], np.ones(len(draws)))
    values = solved / size
    energies = {f"energy.matrix.{k}": float(v) for k, v in zip(kinds, values, strict=False)}
    energies["energy.cache"] = max(values[-2] - 2.0 * float(chip.energy.sram), 0.0)
    energies["energy.memory"] = float(values[-1])
    return {name: v for name, v in energies.items() if v > 0.0}


SIZES = ("layers", "batch", "q_len", "context")
# From this batch on the attention that ran was up to 1.6 times slower than the best one
# (validation/README.md): its steps take longer and spend more than those of the kernels we price.
OTHER_ATTENTION = 128


def step_power(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Sustained power, clock and energy of steps from one captured graph, nothing around it: the ideal
    engine, so many layers of each model. Power is the headline.
    """
    s = table.numbers(*SIZES)
    names, phases = table.text("model"), table.text("phase")
    system, engine = catalogue.system(f"1x{table.chip}"), catalogue.engine("ideal")

    def price(key: tuple[str, str], rows: Array) -> Any:
        v = {k: x[rows] for k, x in s.items()}
        if key[1] not in ("prefill", "decode"):
            raise BadValue(f"phase must be prefill or decode, but got '{key[1]}'")
        if key[1] == "prefill":
            work = prefill(v["batch"], v["q_len"], cached=v["context"] - v["q_len"])
        else:
            work = decode(v["batch"], v["context"], tokens=v["q_len"])
        model = with_layers(catalogue.model(key[0]), v["layers"])
        step = priced_step(system, model, work, Plan(), engine)
        power = step.static + step.price.energy / step.time
        return power, step.clock * system.chip.compute.max_clock, power * step.time

    forecasts = forecast(table, [names, phases], price, SIZES, metrics=3)
    judged = (phases != "decode") | (s["batch"] < OTHER_ATTENTION)
    measured = {
        "power": table.number("power_w"),
        "clock": table.number("sm_mhz") * 1e6,
        "energy": np.where(judged, table.number("joule_per_step"), np.nan),
    }
    parts = [
        compare_metric(
            table,
            values,
            forecasts,
            group_names(metric, phases, names, count=len(table)),
            metric=i,
            headline=metric == "power",
        )
        for i, (metric, values) in enumerate(measured.items())
    ]
    return join_metrics(parts)
