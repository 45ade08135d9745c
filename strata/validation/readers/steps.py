"""Whole steps of a model without the mask of what fits: a measured run existed, so its time is wanted even
where our footprint says no.

Readers of whole models price through `priced_step`; what a step needs from the core is asked for here and
nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from strata.arrays import Number
from strata.batch import as_float64_box
from strata.case import Case
from strata.evaluate import pricing_of, step_of
from strata.hardware.fabric import sized
from strata.hardware.money import economics
from strata.hardware.system import System
from strata.mapping.engine import Engine
from strata.mapping.plan import Plan
from strata.pricing.given import Pricing, Structure
from strata.pricing.step import Step
from strata.pricing.training_memory import OUTSIDE
from strata.validation.readers.catalogue import Catalogue
from strata.workload.model import Model, Pattern
from strata.workload.tasks import Workload


def systems_of(catalogue: Catalogue, chip_name: str, devices: Iterable[float], joined: str = "") -> System:
    """Systems of one chip whose device counts are an array: the fabric's sizes become arrays; `joined` by
    another fabric of as many dimensions than the chip's usual one.
    """
    counts = np.asarray(devices, float)
    distinct, place = np.unique(counts, return_inverse=True)
    systems = [_system_of(catalogue, chip_name, int(n)) for n in distinct]
    sizes = np.array([[float(d.size) for d in s.fabric.dimension] for s in systems])
    first = systems[0]
    return System(
        f"{chip_name} systems",
        first.chip,
        sized(
            catalogue.fabric(joined) if joined else first.fabric,
            tuple(sizes[place, i] for i in range(sizes.shape[1])),
        ),
    )


def _system_of(catalogue: Catalogue, chip_name: str, count: int) -> System:
    """So many chips: whole nodes where they fill nodes, else equal parts of nodes (256 of NVL72 racks are 4 x
    64).
    """
    usual = 1
    for dimension in catalogue.usual_fabric(chip_name).dimension:
        usual *= int(dimension.size or 1)
    if count <= usual or count % usual == 0:
        return catalogue.system(f"{count}x{chip_name}")
    inside = max(d for d in range(1, usual + 1) if count % d == 0)
    return catalogue.system(f"{count // inside}x{inside}x{chip_name}")


def _boxed(
    system: System, model: Model, work: Workload, plan: Plan, engine: Engine
) -> tuple[Case, Structure]:
    """A case with arrays as the core takes them, and what is fixed for them."""
    given = Case(system=system, program=model, workload=work, plan=plan, engine=engine, economics=economics())
    case, shape = as_float64_box(given)
    return case, Structure(case.plan.active(), len(shape))


def priced_step(system: System, model: Model, work: Workload, plan: Plan, engine: Engine) -> Step:
    """One step, whether or not it fits."""
    case, structure = _boxed(system, model, work, plan, engine)
    return step_of(case, case.workload, structure)


def priced_with(system: System, model: Model, work: Workload, plan: Plan, engine: Engine) -> Pricing:
    """What one step is priced with, for what a step does not say."""
    case, structure = _boxed(system, model, work, plan, engine)
    return pricing_of(case, case.workload, structure)


def used_bytes(step: Step, *, reserve: bool = True) -> Number:
    """Bytes of the fullest device; without the reserve it is what a framework counts as allocated."""
    return sum((v for k, v in step.memory.items() if reserve or k not in OUTSIDE), 0.0)


# -------------------------------------------------------------------------------------- models


def dense_model(
    name: str,
    *,
    layers: Number,
    hidden: Number,
    heads: Number,
    kv_heads: Number,
    head_dim: Number,
    ffn: Number,
    vocab: Number,
    **more: Any,
) -> Model:
    """A model of equal dense layers, as Llama has them unless told otherwise, of such sizes."""
    pattern = Pattern((), 0.0, (("full", "dense"),), layers)
    return Model(
        name=name,
        pattern=pattern,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=vocab,
        ffn=ffn,
        v_head_dim=head_dim,
        **more,
    )


def with_layers(model: Model, layers: Number) -> Model:
    """The model with another number of layers."""
    return replace(model, pattern=replace(model.pattern, layers=layers))
