"""Whole steps of a model without the mask of what fits: a measured run existed, so its time is wanted even
where our footprint says no.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from strata.arrays import Number
from strata.batch import as_float64_box
from strata.evaluate import GENERATION, summary
from strata.hardware.chip import Chip, chip
from strata.hardware.fabric import fabric, sized
from strata.hardware.system import System, economics, system
from strata.mapping.engine import Engine
from strata.mapping.plan import Plan
from strata.mapping.shard import active_groups
from strata.pricing.step import Step, Structure, price_step
from strata.workload.model import Model, model
from strata.workload.tasks import Workload, serve


@lru_cache(maxsize=64)
def _read_chip(name: str) -> Chip:
    return chip(name.strip().lower())


_IN_PLACE: ContextVar[Chip | None] = ContextVar(
    "chip priced in place of the shipped one of its name", default=None
)


def named_chip(name: str) -> Chip:
    """A chip by any of its names, read once; while one is `substituted`, that one, which need not be shipped."""
    other = _IN_PLACE.get()
    if other is not None and other.name.lower() == name.strip().lower():
        return other
    made = _read_chip(name)
    return other if other is not None and other.name == made.name else made


@contextmanager
def substituted(made: Chip) -> Iterator[None]:
    """Price rows of a chip with another version of it: how a fit asks what its quantities would do."""
    token = _IN_PLACE.set(made)
    try:
        yield
    finally:
        _IN_PLACE.reset(token)


@lru_cache(maxsize=256)
def named_system(name: str) -> System:
    """A system by name, read once."""
    return system(name.strip().lower())


def forget() -> None:
    """Read chips and systems anew: a fit has written their files."""
    _read_chip.cache_clear()
    named_system.cache_clear()


@lru_cache(maxsize=256)
def named_model(name: str, **changes: Any) -> Model:
    """A model by the name a data set gives it, read once."""
    return model(name.strip().lower(), **changes)


def machines(chip_name: str, devices: Iterable[float]) -> System:
    """Systems of one chip whose device counts are an array: the fabric's sizes become arrays."""
    counts = np.asarray(devices, float)
    distinct, place = np.unique(counts, return_inverse=True)
    made = [_machine(chip_name, int(n)) for n in distinct]
    sizes = np.array([[float(d.size) for d in s.fabric.dimension] for s in made])
    first = made[0]
    return System(
        f"{chip_name} systems",
        first.chip,
        sized(first.fabric, tuple(sizes[place, i] for i in range(sizes.shape[1]))),
    )


def _machine(chip_name: str, count: int) -> System:
    """So many chips: whole nodes where they fill nodes, else equal parts of nodes (256 of NVL72 racks are 4 x
    64).
    """
    usual = 1
    for dimension in fabric(named_chip(chip_name).fabric).dimension:
        usual *= int(dimension.size or 1)
    if count <= usual or count % usual == 0:
        return named_system(f"{count}x{chip_name}")
    inside = max(d for d in range(1, usual + 1) if count % d == 0)
    return named_system(f"{count // inside}x{inside}x{chip_name}")


def priced(where: System, what: Model, work: Workload, how: Plan, by: Engine) -> Step:
    """One step, whether or not it fits."""
    (where, what, work, how, by), shape = as_float64_box((where, what, work, how, by))
    return price_step(where, what, work, how, by, Structure(active_groups(how), len(shape)))


@dataclass(frozen=True, eq=False)
class Served:
    """A batch served: time to read all prompts, mean time of a decode step over the generation."""

    prefill: Number
    step: Number


def served(
    where: System,
    what: Model,
    batch: Number,
    length: Number,
    output: Number,
    how: Plan,
    by: Engine,
    skew: Number = 0.0,
) -> Served:
    """Prefill and mean decode step of a batch, whether or not it fits."""
    work = serve(batch, length, output, skew=skew)
    (where, what, work, how, by), shape = as_float64_box((where, what, work, how, by))
    _, steps = summary(Structure(active_groups(how), len(shape)), where, what, work, how, by, economics())
    return Served(steps[0].time, _weighted(steps[1:]))


def _weighted(steps: list[Step]) -> Number:
    return sum((weight * step.time for (_, weight), step in zip(GENERATION, steps, strict=True)), 0.0)


def used_bytes(step: Step, *, reserve: bool = True) -> Number:
    """Bytes of the fullest device; without the reserve it is what the framework's allocator sees."""
    return sum((v for k, v in step.memory.items() if reserve or k != "reserve"), 0.0)


def with_layers(made: Model, layers: Number) -> Model:
    """The model with another number of layers."""
    return replace(made, pattern=replace(made.pattern, layers=layers))


def kind_of(made: Model) -> str:
    return "moe" if made.has_experts else "dense"


def case_of(phase: str, chip_name: str, kind: str, family: str) -> str:
    """The key under which a whole-model point is counted for `strata predict`'s intervals; chips by their own
    names.
    """
    return "|".join((phase, named_chip(chip_name).name, kind, family))


def family_of(name: str) -> str:
    """The family of a model's name: its letters before the first digit.

    >>> family_of("llama-3.1-70b"), family_of("DeepSeek-V3"), family_of("gpt-oss-120b"), family_of("Qwen3-30B")
    ('llama', 'deepseek', 'gpt-oss', 'qwen')
    """
    lower = name.strip().lower().replace("_", "-").replace(" ", "-").replace("meta-llama/", "")
    known = ("llama", "deepseek", "gpt-oss", "qwen", "mixtral", "kimi", "gpt")
    return next((k for k in known if k in lower), lower.split("-")[0])
