"""The energies behind measured power: what a load draws by them, and what many loads say of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strata.base.precision import rate_of
from strata.hardware.chip import Chip
from strata.pricing.kernels.device import cache_byte_energy
from strata.pricing.power_cap import voltage_energy


@dataclass(frozen=True, kw_only=True)
class PowerDraw:
    """One measured load, by what a call of it does."""

    format: str  # of its products
    flop: float
    cache_bytes: float
    memory_bytes: float
    dram_share: float  # of its time that it waits for DRAM
    seconds: float
    power: float  # drawn [W]
    share: float  # of the highest clock


def drawn_power(draw: PowerDraw, chip: Chip) -> float:
    """What a chip's energies make of a measured load, at its measured time and clock [W].

    >>> from strata.hardware.chip import chip
    >>> work = {"flop": 1e12, "cache_bytes": 0.0, "memory_bytes": 0.0, "dram_share": 0.0}
    >>> draw = PowerDraw(format="bf16", **work, seconds=1e-3, power=1.0, share=1.0)
    >>> h200 = chip("h200", **{"energy.matrix.bf16": 4e-13, "energy.static_power": 100.0})
    >>> round(drawn_power(draw, h200), 6)
    500.0
    """
    used = float(rate_of(chip.energy.matrix, draw.format)) if draw.format else 0.0
    scale = float(voltage_energy(draw.share, chip.energy.voltage_slope))
    core = (draw.flop * used + draw.cache_bytes * float(cache_byte_energy(chip))) * scale
    memory = draw.memory_bytes * float(chip.energy.memory)
    return float(chip.energy.static_power) + (core + memory) / draw.seconds


def energies_of_draws(draws: Sequence[PowerDraw], chip: Chip) -> dict[str, float]:
    r"""Energies of a chip from measured loads [J/FLOP, J/B], none negative.

    .. math:: (P - P_0) \, t = (f e_f + b_l e_l) \, v(\phi)^2 + b_m e_m

    power P, static P_0, time t of a call; its operations f of a format, bytes through the cache b_l and of
    DRAM b_m; v^2 from `voltage_energy` at the measured clock. Least squares of what is relative to each
    load's energy.

    Lawson & Hanson, Solving Least Squares Problems (1974), ch. 23: least squares without negative values.

    >>> from strata.hardware.chip import chip
    >>> h200 = chip("h200", **{"energy.static_power": 100.0, "energy.sram": 0.0})
    >>> work = {"cache_bytes": 0.0, "memory_bytes": 0.0, "dram_share": 0.0, "seconds": 1.0, "share": 1.0}
    >>> draws = [PowerDraw(format="bf16", flop=f, power=100.0 + 4e-13 * f, **work) for f in (1e14, 1e15)]
    >>> energies_of_draws(draws, h200)["energy.matrix.bf16"]
    4e-13
    """
    from scipy.optimize import nnls

    kinds = sorted({d.format for d in draws if d.format})
    above = [(d.power - float(chip.energy.static_power)) * d.seconds for d in draws]
    matrix = np.zeros((len(draws), len(kinds) + 2))
    for i, draw in enumerate(draws):
        scale = float(voltage_energy(draw.share, chip.energy.voltage_slope))
        if draw.format:
            matrix[i, kinds.index(draw.format)] = draw.flop * scale
        matrix[i, -2:] = draw.cache_bytes * scale, draw.memory_bytes
    size = np.maximum(np.max(matrix, axis=0), 1e-300)  # operations and bytes lie decades apart
    solved, _ = nnls(matrix / size / np.array(above)[:, None], np.ones(len(draws)))
    values = solved / size
    energies = {f"energy.matrix.{k}": float(v) for k, v in zip(kinds, values, strict=False)}
    energies["energy.cache"] = max(values[-2] - 2.0 * float(chip.energy.sram), 0.0)
    energies["energy.memory"] = float(values[-1])
    return {name: v for name, v in energies.items() if v > 0.0}
