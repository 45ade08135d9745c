"""Power and clock of repeated kernels, and the energies that explain them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.errors import BadValue
from strata.hardware.chip import Chip
from strata.precision import bytes_of, rate_of
from strata.pricing.kernels.device import device, on_chip
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.vector import vector
from strata.pricing.power_cap import power_capped, voltage_energy
from strata.pricing.price import ZERO, Price
from strata.validation.datasets import Array, Points, Table, forecast, joined, labels, points
from strata.validation.kernels import formats, served_product
from strata.validation.steps import named_chip

LONG_ENOUGH = 0.2  # ms: below it a board's power reading is noise (validation/README.md)
# calls that take so much longer than their kernel wait for the host, more than any error of ours
HOST_BOUND = 1.5
AT_THE_LIMIT = 0.95  # of the power limit: above it the clock has fallen, to what these files do not say


def gemm_power(table: Table) -> Points:
    """Board power of repeated products, and their time. Power is judged on rows long enough to be measured."""
    s = table.numbers("m", "n", "k")
    keys = [table.text("system"), table.text("gemm_dtype")]

    def price(key: tuple[str, str], rows: Array) -> Any:
        chip = named_chip(key[0])
        held = power_capped(served_product(chip, key[1], *(s[c][rows] for c in "mnk")), chip)
        return held.power, held.price.time

    made = forecast(table, keys, price, tuple(s), metrics=2)
    took, count = table.number("latency_ms"), len(table)
    drawn = np.where(took >= LONG_ENOUGH, table.number("power_w"), np.nan)
    power = points(table, drawn, made, labels("power", *keys, count=count))
    return joined(
        [
            power,
            points(table, took * 1e-3, made, labels("time", *keys, count=count), metric=1, headline=False),
        ]
    )


def loads(table: Table) -> Points:
    """Sustained power and clock of kernels repeated for seconds."""
    work = table.number("work_per_call")
    each = table.number("seconds") / np.maximum(table.number("calls"), 1.0)
    chip = named_chip(table.chip)

    def price(key: tuple[str], rows: Array) -> Any:
        load = _load(key[0], work[rows], chip)
        held = power_capped(load, chip, _pace(load, each[rows]))
        return held.power + 0.0 * work[rows], held.share * chip.compute.max_clock + 0.0 * work[rows]

    made = forecast(table, [table.text("load")], price, ("work_per_call",), metrics=2)
    power = points(
        table, table.number("power_w"), made, labels("power", table.text("load"), count=len(table))
    )
    clock = points(
        table,
        table.number("sm_mhz") * 1e6,
        made,
        labels("clock", table.text("load"), count=len(table)),
        metric=1,
        headline=False,
    )
    return joined([power, clock])


def _pace(load: Price, seconds: Array) -> Array:
    """How much longer a call takes than its kernel: above 1 where the host, not the GPU, set the pace of the
    loop.
    """
    took = np.where(load.time > 0.0, seconds / np.maximum(load.time, 1e-12), 1.0)
    return np.where(took > HOST_BOUND, took, 1.0)


def _load(load: str, work: Array, chip: Chip) -> Price:
    """The kernel behind the name of a load. Operands that fit the cache stay there from one call to the next."""
    product = re.fullmatch(r"gemm_(\w+?)_(\d+)", load)
    if load == "idle":
        return ZERO
    if product:
        weight, activation, _ = formats(product.group(1))
        size = np.cbrt(work / 2.0)
        held = 3.0 * size * size * bytes_of(activation) < chip.cache.capacity
        return matmul(
            size,
            size,
            size,
            device(chip, resident=bool(np.all(held))),
            weight,
            activation,
            resident=bool(np.all(held)),
            warm=1.0 * held,
        )
    if load == "gemv_m1":  # [1, 8192] x [57344, 8192]^T (validation/README.md)
        depth = 8192.0 + 0.0 * work
        return matmul(
            1.0 + 0.0 * work,
            work / (depth * bytes_of("bf16")),
            depth,
            device(chip, resident=False),
            "bf16",
            "bf16",
        )
    if load.startswith("copy"):
        return vector(work / 2.0, work / 2.0, 0.0, 0.0, device(chip, resident=False), resident="l2" in load)
    raise BadValue(f"a load must be idle, gemm_FORMAT_SIZE, gemv_m1 or copy_..., but got '{load}'")


@dataclass(frozen=True)
class Draw:
    """One measured load: its format, the work of a call, how long a call took [s], the power drawn [W] and
    the share of the clock.
    """

    format: str
    price: Price
    seconds: float
    power: float
    share: float


def draws(table: Table, chip: Chip) -> list[Draw]:
    """The loads of a file that tell energies: power, time and clock all known."""
    found = []
    if "load" in table.columns:
        columns = [
            table.text("load"),
            table.number("work_per_call"),
            table.number("seconds"),
            table.number("calls"),
            table.number("power_w"),
            table.number("sm_mhz"),
        ]
        for load, work, seconds, calls, power, clock in zip(*columns, strict=True):
            if load != "idle":
                matched = re.fullmatch(r"gemm_(\w+?)_(\d+)", load)
                used = formats(matched.group(1))[0] if matched else ""
                price = _single(_load(load, np.array([work]), chip))
                found.append(
                    Draw(used, price, seconds / calls, power, clock * 1e6 / float(chip.compute.max_clock))
                )
        return found
    for row in range(len(table)):
        took, power = table.number("latency_ms")[row], table.number("power_w")[row]
        if took < LONG_ENOUGH or power > AT_THE_LIMIT * table.number("power_limit_w")[row]:
            continue
        m, n, k = (np.array([table.number(c)[row]]) for c in "mnk")
        dtype = str(table.text("gemm_dtype")[row])
        found.append(
            Draw(formats(dtype)[0], _single(served_product(chip, dtype, m, n, k)), took * 1e-3, power, 1.0)
        )
    return found


def power_of(draw: Draw, chip: Chip) -> float:
    """What a chip's energies make of a measured load, at its measured time and clock [W]."""
    used = float(rate_of(chip.energy.matrix, draw.format)) if draw.format else 0.0
    scale = float(voltage_energy(draw.share, chip.energy.voltage_slope))
    core = (draw.price.flop * used + draw.price.cache_bytes * float(on_chip(chip))) * scale
    return (
        float(chip.energy.static_power)
        + (core + draw.price.memory_bytes * float(chip.energy.memory)) / draw.seconds
    )


def _single(price: Price) -> Price:
    return Price(*(float(np.asarray(getattr(price, f)).reshape(-1)[0]) for f in Price.__slots__))


def energies(rows: Sequence[Draw], chip: Chip) -> dict[str, float]:
    r"""Energies of a chip from measured loads [J/FLOP, J/B], none negative.

    .. math:: (P - P_0) \, t = (f e_f + b_l e_l) \, v(\phi)^2 + b_m e_m

    power P, static P_0, time t of a call; its operations f of a format, bytes through the cache b_l and of
    DRAM b_m; v^2 from `voltage_energy` at the measured clock. Least squares of what is relative to each
    load's energy.

    Lawson & Hanson, Solving Least Squares Problems (1974), ch. 23: least squares without negative values.
    """
    from scipy.optimize import nnls

    kinds = sorted({r.format for r in rows if r.format})
    above = [(r.power - float(chip.energy.static_power)) * r.seconds for r in rows]
    matrix = np.zeros((len(rows), len(kinds) + 2))
    for i, r in enumerate(rows):
        scale = float(voltage_energy(r.share, chip.energy.voltage_slope))
        if r.format:
            matrix[i, kinds.index(r.format)] = r.price.flop * scale
        matrix[i, -2:] = r.price.cache_bytes * scale, r.price.memory_bytes
    size = np.maximum(np.max(matrix, axis=0), 1e-300)  # operations and bytes lie decades apart
    found, _ = nnls(matrix / size / np.array(above)[:, None], np.ones(len(rows)))
    values = found / size
    cache = max(values[-2] - 2.0 * float(chip.energy.sram), 0.0)
    made = {f"energy.matrix.{k}": float(v) for k, v in zip(kinds, values, strict=False)}
    return {
        name: v
        for name, v in {**made, "energy.cache": cache, "energy.memory": float(values[-1])}.items()
        if v > 0.0
    }
