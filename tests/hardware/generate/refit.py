"""The few free numbers of a template, refitted to some chips; and what it then says of another.

Numbers that a chip shows directly (share of bundles that are off, clock over its node's, area of a unit, lanes
for the side of its array) are geometric or plain means over the chips. Shares of the die and bytes a lane are
least squares in log space: each has one quantity that goes with it, and is scaled until the mean logarithm of
generated over real is 0.
"""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from strata.hardware.generate.onchip import unit_area
from strata.hardware.generate.recipe import generation
from strata.hardware.generate.report import product_rate
from strata.hardware.generate.template import template
from strata.hardware.technology import technology

REAL = json.loads((Path(__file__).parents[2] / "data/regenerated.json").read_text())
ROUNDS = 6


def generated(real, build):
    """Peak, DRAM, power of a large product, and memories on the die, of a chip's budget by a template."""
    found = generation(real["node"], real["budget"], build)
    assert found.infeasible == ()
    made = found.made
    power = sum(float(value) for name, value in found.use["power"].items() if name != "total")
    return {
        "peak": float(made.running.core.rate),
        "product": float(product_rate(made)),
        "memory": float(made.running.memory.bandwidth),
        "power": power,
        "sram": [float(level.capacity) for level in made.built.levels],
    }


def errors(real, build):
    """Generated over real, less 1."""
    there = generated(real, build)
    found = {key: there[key] / real[key] - 1.0 for key in ("peak", "memory", "power")}
    if "sram" in real:
        found["sram"] = sum(there["sram"]) / sum(real["sram"]) - 1.0
    return found


def _mean(values):
    return float(np.exp(np.mean(np.log(values))))


def _direct(chips, build):
    """A template with the numbers that chips show directly."""
    clocks = [c["clock"] / technology(c["node"]).logic.clock for c in chips if c["clock"]]
    build = replace(build, spare=float(np.mean([c["off"] for c in chips])), max_clock=_mean(clocks))
    if build.unit_area is None:
        return build
    lanes = _mean([c["lanes"] / c["macs"] ** 0.5 for c in chips]) * build.macs**0.5
    sizes = [
        unit_area(technology(c["node"]).logic, replace(build, macs=c["macs"], vector_lanes=c["lanes"]))
        for c in chips
    ]
    return replace(build, vector_lanes=lanes, unit_area=_mean(sizes))


def refitted(name, chips):
    """A template with its free numbers fitted to chips."""
    build = _direct(chips, template(name))
    for _ in range(ROUNDS):
        there = [generated(c, build) for c in chips]
        core = _mean([c["peak"] / t["peak"] for c, t in zip(chips, there, strict=True)])
        area = {**build.area, "core": build.area["core"] * core}
        levels = []
        for i, level in enumerate(build.levels):
            known = [(c, t) for c, t in zip(chips, there, strict=True) if len(c["sram"]) == len(build.levels)]
            step = _mean([c["sram"][i] / t["sram"][i] for c, t in known]) if known else 1.0
            if level.bytes_per_lane is not None:
                level = replace(level, bytes_per_lane=level.bytes_per_lane * step / core)
            else:
                area[level.name] = build.area[level.name] * step**0.7
            levels.append(level)
        build = replace(build, area=area, levels=tuple(levels))
    return build


@cache
def left_out(name, chip):
    """Errors of a chip by a template refitted to all others of its kind that are not its die."""
    chips = REAL[name]
    die = chips[chip].get("same_die", chip)
    others = [c for key, c in chips.items() if die not in (key, c.get("same_die"))]
    once = [c for c in others if "same_die" not in c]
    return errors(chips[chip], refitted(name, once))


def free_numbers(build):
    """The numbers that a fit sets, for people."""
    found = {"spare": build.spare, "max_clock": build.max_clock, **build.area}
    if build.unit_area is not None:
        found |= {"unit_area_mm2": build.unit_area * 1e6, "lanes": build.vector_lanes}
    found |= {level.name: level.bytes_per_lane for level in build.levels if level.bytes_per_lane}
    return {key: round(float(value), 4) for key, value in found.items()}


if __name__ == "__main__":
    for kind in ("gpu", "gpu-simt", "systolic"):
        chips = REAL[kind]
        print(kind, free_numbers(refitted(kind, [c for c in chips.values() if "same_die" not in c])))
        for chip in chips:
            own, out = errors(chips[chip], template(kind)), left_out(kind, chip)
            cells = (f"{key} {100 * own[key]:+.0f} ({100 * out[key]:+.0f})" for key in own)
            print(f"  {chip:8}", "  ".join(cells))
    for chip, real in REAL["unseen"].items():
        own = errors(real, template(real["template"]))
        print(chip, {key: f"{100 * value:+.0f}" for key, value in own.items()})
