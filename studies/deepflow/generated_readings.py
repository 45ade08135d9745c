"""What a sweep of generated chips tells of each: readings of the chip and its networks, and the same system
with one part faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from strata.base.arrays import Number
from strata.hardware.generate.recipe import Generation
from strata.hardware.system import System
from strata.params import leaf_paths, override, value_at


def numbers_of(owner: str, numbers: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Those of some numbers by path that are of one record, by their paths inside it.

    >>> numbers_of("chip", {"chip.memory.bandwidth": 2.0, "budget.power": 3.0})
    {'memory.bandwidth': 2.0}
    """
    begins = f"{owner}."
    return {path.removeprefix(begins): v for path, v in dict(numbers).items() if path.startswith(begins)}


def with_chip_numbers(made: Generation, over: Mapping[str, Any]) -> Generation:
    """A generation with numbers of its chip replaced, such as a bandwidth that is stated.

    >>> from strata.hardware.generate.recipe import generation
    >>> made = generation("deepflow-v100", "deepflow-v100", "deepflow-2021")
    >>> float(with_chip_numbers(made, {"memory.bandwidth": "2 TB/s"}).chip.memory.bandwidth)
    2000000000000.0
    """
    if not over:
        return made
    chip, noted = override(made.chip, over, "chip")
    return replace(made, chip=replace(chip, sources=made.chip.sources.updated(noted)))


def generated_readings(made: Generation, joined: System) -> dict[str, Number]:
    """Numbers of a generated chip by name: each quantity by its path joined by `_` (`memory_bandwidth`), the
    peak, capacity and bandwidth of each level on the die, units, and the bandwidth of each network.

    >>> from strata.hardware.generate.recipe import generation
    >>> from strata.hardware.system import system
    >>> made = generation("deepflow-v100", "deepflow-v100", "deepflow-2021")
    >>> read = generated_readings(made, system(made.chip))
    >>> round(float(read["peak"]) / 1e12), round(float(read["l2_capacity"]) / 2**20)
    (125, 6)
    """
    chip = joined.chip
    found: dict[str, Any] = {path.replace(".", "_"): value_at(chip, path) for path in leaf_paths(chip)}
    made_of = made.made
    found["peak"] = chip.compute.matrix_rate[made_of.template.format]
    found["units"], found["bundles"] = made_of.running.core.units, made_of.running.core.bundles
    found["voltage"] = made_of.running.core.point.voltage
    found["memory_devices"] = made_of.built.memory.devices
    found["buildable"] = made.fits
    for level, built, running in zip(
        made_of.template.levels, made_of.built.levels, made_of.running.levels, strict=True
    ):
        found[f"{level.name}_capacity"], found[f"{level.name}_bandwidth"] = built.capacity, running.bandwidth
    found |= {f"{d.name}_bandwidth": d.bandwidth for d in joined.fabric.dimension}
    return {name: value for name, value in found.items() if value is not None}


def faster_parts(joined: System, by: float) -> dict[str, System]:
    """A system with one part so much faster, by part: the units, each memory level, the networks."""
    chip, fabric = joined.chip, joined.fabric
    compute, cache = chip.compute, chip.cache
    units = replace(
        compute,
        matrix_rate={name: rate * by for name, rate in compute.matrix_rate.items()},
        vector_rate=compute.vector_rate * by,
        special_rate=compute.special_rate * by,
    )
    chips = {
        "compute": replace(chip, compute=units),
        "l1": replace(chip, compute=replace(compute, sram_bandwidth=compute.sram_bandwidth * by)),
        "l2": replace(
            chip,
            cache=replace(cache, bandwidth=cache.bandwidth * by, core_bandwidth=cache.core_bandwidth * by),
        ),
        "memory": replace(chip, memory=replace(chip.memory, bandwidth=chip.memory.bandwidth * by)),
    }
    levels = chip.levels or ()
    for i, level in enumerate(levels):
        quicker = replace(level, bandwidth=level.bandwidth * by)
        chips[level.name] = replace(chip, levels=(*levels[:i], quicker, *levels[i + 1 :]))
    found = {name: replace(joined, chip=quicker) for name, quicker in chips.items()}
    wires = tuple(replace(d, bandwidth=d.bandwidth * by) for d in fabric.dimension)
    return found | {"network": replace(joined, fabric=replace(fabric, dimension=wires))}
