"""Operations for each byte of DRAM of a product in every tiling that its kernel model tries, and how far they
spread over strategies as it is divided among ever more devices: runs of a study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepflow.hierarchical import RooflineRules, memories, tiling_times
from deepflow.products import chained_bytes, loop_orders, placed_tile, tile_family
from deepflow.tilings import core_tiles
from strata.base.arrays import Array, rank_of
from strata.base.errors import require
from strata.base.precision import bytes_of
from strata.base.reading import known_keys, number_of, table_of
from strata.hardware.chip import Chip, chip
from strata.hardware.hierarchy import memory_levels, scope_capacity
from strata.mapping.kernel_parallel import strategies, strategy_text
from strata.pricing.kernels.device import Device, device
from strata.pricing.kernels.traffic import Product
from strata.validation.accuracy.study_errors import generated_chip
from strata.workload.mlp import Gemm

SIDES = ("m", "n", "k")
TILING_KEYS = ("tilings", "gemm", "generate", "device", "set", "chip")


def tiling_intensities(product: Product, chip: Chip, precision: str = "fp16") -> Array:
    r"""Computation intensity of a product [FLOP/B], tilings on a leading axis; not a number where a tile does
    not fit.

    .. math:: I = \frac{2 b_p m n k}{b_{DRAM}}

    By the chip's kernel model: tiles of a core's results (`wave_traffic`), or the tiles of the outermost
    memory on the die in both orders of loops (`chained_bytes`) where it is `deepflow-2021`.

    DeepFlow (2023), section 2: operations over accesses to main memory.

    >>> from strata.hardware.generate.recipe import generate
    >>> v100 = generate("deepflow-v100", "deepflow-v100", "deepflow-2021")
    >>> cube = Product(m=4096.0, n=4096.0, k=4096.0, input_bytes=2.0, weight_bytes=2.0, output_bytes=2.0)
    >>> found = tiling_intensities(cube, v100)
    >>> found.shape, round(float(np.nanmax(found)))  # each matrix once
    ((32,), 1365)
    """
    nested = chip.kernel_model == "deepflow-2021"
    moved = _nested(product, chip) if nested else _waves(product, device(chip), precision)
    found: Array = product.flop / np.where(moved > 0.0, moved, np.nan)
    return found


def _nested(product: Product, chip: Chip) -> Array:
    """DRAM bytes in all tiles of the outermost memory on the die, in both orders."""
    size, level = product.input_bytes, memory_levels(chip)[-2]
    elements = scope_capacity(chip, level) / size
    found = []
    for order, _ in loop_orders(product.m * product.batch, product.k, product.n):
        rank = rank_of(*order, elements)
        tile: Any = placed_tile(tile_family(elements, True, rank, np), order, True)
        moved = chained_bytes(order, tile, 1.0, size, False)
        found.append(np.reshape(moved, (-1, *np.shape(moved)[2:])))
    return np.concatenate(found)


def _waves(product: Product, dev: Device, precision: str) -> Array:
    """DRAM bytes in every tile of a core, 0 where it does not fit."""
    unit, memory, found = dev.matrix(precision, precision), memories(dev), []
    rules = RooflineRules(blocks=dev.chip.kind != "gpu")
    for rows, columns in core_tiles():
        of = tiling_times(product, dev, unit, memory, (rows, columns), rules)
        found.append(np.where(np.isfinite(of.time), of.moved[-1], 0.0))
    return np.array(found)


@dataclass(frozen=True, eq=False, kw_only=True)
class TilingSpread:
    """Intensities [FLOP/B] by device count, strategy and tiling; not a number where there is no such strategy
    or its tile does not fit.
    """

    devices: Array
    names: tuple[tuple[str, ...], ...]  # strategies of each device count
    intensity: Array  # [device counts, strategies, tilings]

    @property
    def best(self) -> Array:
        """Of the best tiling [device counts, strategies]."""
        known = np.where(np.isnan(self.intensity), -np.inf, self.intensity).max(axis=-1)
        return np.where(np.isfinite(known), known, np.nan)


def tiling_spread(gemm: Gemm, hardware: Chip, devices: Sequence[int]) -> TilingSpread:
    """Intensities of one device's part of a product for every RC and CR strategy of each device count, in
    every tiling.

    >>> from strata.hardware.generate.recipe import generate
    >>> v100 = generate("deepflow-v100", "deepflow-v100", "deepflow-2021")
    >>> found = tiling_spread(Gemm(m=65536.0, k=65536.0, n=65536.0), v100, [1, 64])
    >>> found.names[1][-1], bool(np.nanmax(found.best[1]) < np.nanmax(found.best[0]))
    ('CR-64', True)
    """
    require(bool(devices), "a spread has device counts", devices=list(devices))
    each, names = [], []
    two = bytes_of(gemm.activations)
    for count in devices:
        many = strategies(int(count), gemm)
        many = many.at(np.flatnonzero(np.broadcast_to(many.dp == 1.0, np.shape(many.dp))))
        split = many.split
        m, n, k = gemm.m / split.rows, gemm.n / split.columns, gemm.k / split.depth
        local = Product(m=m, n=n, k=k, input_bytes=two, weight_bytes=bytes_of(gemm.weights), output_bytes=two)
        found = tiling_intensities(local, hardware, gemm.weights)
        fits = (m >= 1.0) & (n >= 1.0) & (k >= 1.0)
        each.append(np.where(fits, found, np.nan).T)
        names.append(tuple(strategy_text(many.at(i)) for i in range(np.size(m))))
    most = max(len(one) for one in each)
    padded = [np.concatenate([one, np.full((most - len(one), one.shape[1]), np.nan)]) for one in each]
    return TilingSpread(devices=np.asarray(devices, float), names=tuple(names), intensity=np.array(padded))


def run_tilings(entry: dict[str, Any], where: str, *_: Any) -> dict[str, Any]:
    """Computation intensity of a product's part for every strategy of each device count, in every tiling:
    `intensity` by device count and case, `tilings` and `best` by strategy of the last device count.
    """
    known_keys(entry, ("name", *TILING_KEYS), where)
    own = generated_chip(entry, where) if "generate" in entry else chip(entry.get("chip", ""))
    told = table_of(entry, "gemm", where)
    known_keys(told, SIDES, f"{where}: gemm")
    sizes: dict[str, Any] = {name: number_of(told, name, f"{where}: gemm") for name in told}
    found = tiling_spread(Gemm(**sizes), own, entry["tilings"])
    return {
        "devices": found.devices,
        "intensity": found.intensity.reshape(len(found.devices), -1),
        "most": np.fmax.reduce(found.best, axis=1),
        "least": np.fmin.reduce(found.best, axis=1),
        "tilings": found.intensity[-1],
        "best": found.best[-1],
        "strategies": list(found.names[-1]),
        "axes": ["devices"],
    }
