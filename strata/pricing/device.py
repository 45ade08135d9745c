"""The quantities of a chip that kernels are priced with, gathered once for an evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from strata.arrays import Number, namespace
from strata.hardware.chip import Chip, sustained_cache, sustained_memory
from strata.precision import bytes_of, rate_of, supports


@dataclass(frozen=True, eq=False, slots=True)
class MatrixRate:
    """Sustained and peak rate of a product [FLOP/s], its energy [J/FLOP], and the bytes of an activation as it enters."""

    sustained: Number
    peak: Number
    energy: Number
    activation: Number


@dataclass(frozen=True, eq=False)
class Device:
    """Sustained rates of one chip.

    `grain`: the finer side of a matrix instruction, to which short extents are padded. `resident`: activations between kernels may stay in the cache. `weight_only`: narrow weights are widened before use.
    """

    chip: Chip
    cores: Number
    bandwidth: Number
    cache_bandwidth: Number
    cache_capacity: Number
    core_bandwidth: Number
    floor: Number
    tile: Number
    split: Number
    launch: Number
    grain: Number
    resident: bool
    weight_only: bool
    rates: dict[tuple[str, str], MatrixRate] = field(default_factory=dict)
    loads: dict[tuple[int, int, int], Any] = field(default_factory=dict)  # of expert ranks, shared by the products of a layer

    def matrix(self, weight: str, activation: str) -> MatrixRate:
        """Rates of a product of these storage formats.

        A product runs in the weight's format where the chip has that arithmetic, else weights are widened to the
        activations' format (weight-only quantisation).
        """
        key = (weight, activation)
        if key not in self.rates:
            used = activation if self.weight_only else arithmetic(self.chip, weight, activation)
            peak = rate_of(self.chip.compute.matrix_rate, used, f"chip {self.chip.name}")
            joule = rate_of(self.chip.energy.matrix, used, f"chip {self.chip.name} energy")
            self.rates[key] = MatrixRate(peak * rate_of(self.chip.compute.matrix_efficiency, used), peak, joule, bytes_of(used))
        return self.rates[key]


def arithmetic(chip: Chip, weight: str, activation: str) -> str:
    """The format a product of stored weights and activations is computed in on a chip."""
    narrow = bytes_of(weight) < bytes_of(activation)
    return weight if narrow and supports(chip.compute.matrix_rate, weight) else activation


def on_chip(chip: Chip) -> Number:
    """Energy of a byte from the shared cache to a core [J/B]: through the cache, into local memory and out of it again."""
    return chip.energy.cache + 2.0 * chip.energy.sram


def device(chip: Chip, *, resident: bool = True, weight_only: bool = False, launch: Number = 0.0) -> Device:
    """What kernels need of a chip; `launch` is the host's time for each kernel where no graph replays them."""
    return Device(
        chip,
        chip.compute.cores,
        sustained_memory(chip),
        sustained_cache(chip),
        chip.cache.capacity,
        chip.cache.core_bandwidth,
        chip.overhead.kernel,
        chip.overhead.tile,
        chip.overhead.split,
        launch,
        namespace(chip.compute.tile_m, chip.compute.tile_n).minimum(chip.compute.tile_m, chip.compute.tile_n),
        resident,
        weight_only,
    )
