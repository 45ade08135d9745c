"""How far computation intensity spreads over strategies and tilings of a product that is divided among ever
more devices: runs of a study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepflow.intensity import tiling_intensities
from strata.arrays import Array
from strata.errors import UnknownName, require
from strata.hardware.chip import Chip, chip
from strata.mapping.kernel_parallel import strategies, strategy_text
from strata.precision import bytes_of
from strata.pricing.kernels.product import Product
from strata.reading import known_keys, number_of, table_of
from strata.validation.accuracy.study_errors import generated_chip
from strata.workload.mlp import Gemm

SIDES = ("m", "n", "k")
TILING_KEYS = ("tilings", "gemm", "generate", "device", "set", "chip")


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
    for key in entry:
        if key not in ("name", *TILING_KEYS):
            raise UnknownName(f"key of {where}", key, TILING_KEYS, ", ".join(TILING_KEYS))
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
