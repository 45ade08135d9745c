"""Whole servers at the plug while they serve, their accelerators at lowered power limits."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.errors import BadValue
from strata.hardware.chip import Chip
from strata.hardware.money import economics, plug_power
from strata.mapping.plan import plan
from strata.params import part, quantity, text
from strata.search.power_caps import capped_system
from strata.validation.readers.benchmark_conditions import read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints, compare_metric, forecast, group_names
from strata.validation.readers.mlperf_prompts import mlperf_prompts
from strata.validation.readers.served_models import in_process, largest_running_batch, served_model
from strata.validation.readers.steps import Serving, used_bytes
from strata.validation.readers.tables import Table
from strata.workload.tasks import decode, mixed

WORDS = 3  # of a chip's name, at most


@dataclass(frozen=True, eq=False, kw_only=True)
class ServedBenchmark:
    """A benchmark's model and the mean length of its answers."""

    name: str = text("the benchmark's name in the file, without its accuracy")
    model: str = text("the model's name")
    output: Number = quantity("1", "mean tokens generated", positive=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class LoweredLimit:
    """The power limit that accelerators of a chip were set to for a benchmark."""

    chip: str = text("the chip's name")
    benchmark: str = text("the benchmark's name")
    power: Number = quantity("W", "limit of one accelerator", positive=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class ServerPowerConditions:
    """Servers under benchmarks whose plug is metered."""

    title: str = text("what was run")
    engine: str = text("the engine that served")
    weights: str = text("format of weights as served")
    skew: Number = quantity("1", "exponent of the power law by which experts are asked for")
    lowered: str = text("what the name of a system says whose limits were lowered")
    lowest_share: Number = quantity("1", "least a lowered limit is of the chip's own", positive=True)
    weights_share: Number = quantity("1", "of a device's memory that weights may take", positive=True)
    benchmark: tuple[ServedBenchmark, ...] = part(ServedBenchmark, "benchmarks by name", many=True)
    limit: tuple[LoweredLimit, ...] = part(LoweredLimit, "limits by chip and benchmark", many=True)

    def served(self, name: str) -> ServedBenchmark:
        """A benchmark by its name in the file, which may end in its accuracy ('llama2-70b-99.9')."""
        plain = re.sub(r"(-interactive)?(-99(\.9)?)?$", "", name.strip().lower())
        for one in self.benchmark:
            if one.name == plain:
                return one
        known = ", ".join(b.name for b in self.benchmark)
        raise BadValue(f"no lengths are known of the benchmark '{name}'; of these they are: {known}")

    def power_limits_of(self, chip: Chip, benchmark: str, name: str) -> tuple[float, float]:
        """The least and the most that accelerators of a system of this name were limited to [W]."""
        own = float(chip.energy.power_limit)
        if self.lowered.lower() not in name.lower():
            return own, own
        for one in self.limit:
            if (one.chip, one.benchmark) == (chip.name, benchmark):
                return float(one.power), float(one.power)
        return float(self.lowest_share) * own, own


def machine_named(name: str, catalogue: Catalogue) -> tuple[str, int]:
    """The chip and how many of them the name of a submitted system says.

    >>> machine_named("DGX-H100_H100-SXM-80GBx8_TRT_MaxQ", Catalogue())
    ('h100', 8)
    >>> machine_named("8xMI300X_2xEPYC", Catalogue())
    ('mi300x', 8)
    """
    words = [word for word in re.split(r"[-_\s]+", name.lower()) if word]
    for length in range(WORDS, 0, -1):
        for start in reversed(range(len(words) - length + 1)):
            said = re.fullmatch(r"(?:(\d+)x)?(.+?)(?:x(\d+))?", "-".join(words[start : start + length]))
            if said is None or not catalogue.has_chip(said[2]):
                continue
            after = re.search(r"x(\d+)(?:-|$)", "-".join(words[start + length :]))
            count = said[1] or said[3] or (after and after[1])
            if count and int(count) > 0:
                return catalogue.chip(said[2]).name, int(count)
    raise BadValue(f"the system '{name}' names no chip that is known, with how many of them it has")


def in_flight_power(serving: Serving, length: Array, output: Number) -> Any:
    """Mean power of a device that serves as many requests as fit, without end: each step generates a token of
    all of them and reads the prompts that take the place of those that end [W].
    """
    running = largest_running_batch(serving, length + output, 1.0)
    work = mixed(running, length + output / 2.0, prompts=running / output, chunk=length, skew=serving.skew)
    step = serving.step(work)
    return step.static + step.price.energy / step.time


def server_power(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Power of whole servers at the plug: the middle of the range that unknown prompts and limits leave."""
    systems, benchmarks = table.text("system"), table.text("benchmark")
    known = read_conditions(ServerPowerConditions, table, "serving/mlperf_power.toml")

    def price(key: tuple[str, str], rows: Array) -> Any:
        return np.mean(server_power_range(*key, known, catalogue))

    forecasts = forecast(table, [systems, benchmarks], price)
    names = group_names("power", systems, benchmarks, count=len(table))
    return compare_metric(table, table.number("watts_in_window"), forecasts, names)


def server_power_range(
    system_name: str, benchmark: str, known: ServerPowerConditions, catalogue: Catalogue
) -> tuple[float, float]:
    """The least and the most power of a server at the plug that its unknown prompts and limits allow [W]."""
    served = known.served(benchmark)
    name, count = machine_named(system_name, catalogue)
    whole = catalogue.system(f"{count}x{name}")
    limits = known.power_limits_of(whole.chip, served.name, system_name)
    lengths = mlperf_prompts().interval(served.model)
    cap, length = (v.ravel() for v in np.meshgrid(limits, lengths))
    shared = _smallest_replica(served, name, count, known, catalogue)
    serving = replace(shared, system=capped_system(shared.system, cap))
    device = in_flight_power(serving, length, float(served.output))
    power = count * plug_power(whole.fabric, economics(), device)
    return float(np.min(power)), float(np.max(power))


def _smallest_replica(
    served: ServedBenchmark, chip: str, count: int, known: ServerPowerConditions, catalogue: Catalogue
) -> Serving:
    """A model on as few of a server's devices as leave room beside its weights, tensor parallel."""
    weights = known.weights if known.weights in catalogue.chip(chip).compute.matrix_rate else "bf16"
    model = served_model(catalogue, served.model, weights, weights)
    engine = in_process(catalogue.engine(known.engine))
    for tp in (n for n in range(1, count + 1) if count % n == 0):
        system = catalogue.system(f"{tp}x{chip}")
        serving = Serving(system, model, plan(tp=tp), engine, known.skew)
        used = float(used_bytes(serving.step(decode(1.0, float(served.output)))))
        if used <= float(known.weights_share * engine.memory_share * system.chip.memory.capacity):
            break
    return serving
