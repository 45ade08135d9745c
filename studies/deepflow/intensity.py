"""Operations for each byte of DRAM of a product, in every tiling that its kernel model tries."""

from __future__ import annotations

from typing import Any

import numpy as np

from deepflow.hierarchical import RooflineRules, memories, tiling_times
from deepflow.products import chained_bytes, loop_orders, placed_tile, tile_family
from deepflow.tilings import core_tiles
from strata.arrays import Array, rank_of
from strata.hardware.chip import Chip
from strata.hardware.hierarchy import memory_levels, scope_capacity
from strata.pricing.kernels.device import Device, device
from strata.pricing.kernels.traffic import Product


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
