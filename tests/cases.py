"""What several test files share: shipped names, a chip with room for everything, random legal points,
graphs of one rank.
"""

import os
from dataclasses import fields, replace
from functools import cache

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as hy

import strata as st
from strata.base.batch import take
from strata.mapping.plan import ORDERS, Plan
from strata.mapping.shard import shard
from strata.params import names
from strata.pricing.metrics import TokenMetrics

# The same examples on every machine, and no time limit for one example. (Not in a conftest.py: each folder of
# tests may have its own.)
settings.register_profile(
    "strata",
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("strata")
# The tests compile a lot and compute little: without the optimiser of machine code JAX compiles twice as
# fast.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)


@cache
def model(name):
    return st.model(name)


def structure(name):
    """What graphs of a model are made of, whatever its sizes."""
    made = model(name)
    flags = tuple(
        getattr(made, f.name) for f in fields(made) if isinstance(getattr(made, f.name), bool | str)
    )
    mixer = made.mixer and (made.mixer.kind, made.mixer.norm, made.mixer.bias, made.mixer.conv_bias)
    return made.pattern.prefix, made.pattern.pairs(), flags[1:], mixer  # without the name


# One model of each structure; what holds for one holds for the others of its kind.
MODELS = list({structure(name): name for name in reversed(names("models"))}.values())[::-1]
CHIPS = names("chip")
FABRICS = names("fabric")
# One of each kind of structure: plain attention, latent with experts, sparse, windows, alternating experts,
# no gate and biases.
FAMILIES = [
    "llama-3-8b",
    "deepseek-v3",
    "deepseek-v3.2",
    "gpt-oss-20b",
    "llama-4-maverick",
    "gpt3-175b",
    "mixtral-8x7b",
    "qwen3-30b-a3b",
]
# Chips with 16-bit and 8-bit matrix arithmetic, so that every shipped model runs on them; switch, full and
# ring fabrics.
WIDE_CHIPS = ["h100", "h200", "b200", "gb200", "mi325x", "rtx-4090", "rtx-pro-6000", "stack-ref"]
METRICS = [f.name for f in fields(TokenMetrics)]


@cache
def system(name):
    return st.system(name)


def roomy(what):
    """The system with memory for any model, so that times can be compared instead of being infinite."""
    made = system(what) if isinstance(what, str) else what
    return replace(made, chip=replace(made.chip, memory=replace(made.chip.memory, capacity=1e16)))


@cache
def legal_plans(devices, name):
    return st.plans(devices, model(name))


def count(plans):
    return len(plans.tp)


def pick(plans, index):
    """Plans of an array of plans: one for an index, several for an array of indices."""
    if isinstance(index, (int, np.integer)):
        return take(plans, (int(index),), 1)
    return replace(
        plans,
        **{
            f.name: getattr(plans, f.name)[index]
            for f in fields(Plan)
            if isinstance(getattr(plans, f.name), np.ndarray)
        },
    )


def workload(phase, batch, length):
    """A workload of any phase from two sizes."""
    return {
        "decode": lambda: st.decode(batch, length),
        "prefill": lambda: st.prefill(batch, length),
        "serve": lambda: st.serve(batch, length, 0.0 * length + 64.0),
        "train": lambda: st.train(batch, length),
    }[phase]()


PHASES = ["decode", "prefill", "serve", "train"]


class Point(tuple):
    """System, model, workload and plan, in one line when a law fails."""

    def __repr__(self):
        where, made, work, plan = self
        sizes = f"batch={work.batch:g}, sequence={work.sequence:g}, context={work.context:g}"
        return f"{where.name} {made.name} {work.phase}({sizes}) {shown(plan)}"


def shown(plan):
    """A plan for people: what differs from the identity."""
    values = {f.name: getattr(plan, f.name) for f in fields(plan)}
    return ",".join(f"{k}={float(v):g}" for k, v in values.items() if v != getattr(Plan, k))


@hy.composite
def points(draw, models=MODELS, chips=WIDE_CHIPS, phases=PHASES, sizes=(1, 2, 8, 16, 64)):
    """A system with room for the model, and a legal plan of it with its finer choices."""
    name, devices = draw(hy.sampled_from(models)), draw(hy.sampled_from(sizes))
    where = roomy(f"{devices}x{draw(hy.sampled_from(chips))}")
    phase = draw(hy.sampled_from(phases))
    options = legal_plans(devices, name)
    plan = pick(options, draw(hy.integers(0, count(options) - 1)))
    finer = {
        "sp": float(draw(hy.booleans())),
        "zero": float(draw(hy.integers(0, 3))),
        "order": float(draw(hy.integers(0, len(ORDERS) - 1))),
    }
    if phase == "train":
        finer["recompute"] = float(draw(hy.integers(0, 2)))
    batch = float(plan.dp) * draw(hy.sampled_from([1.0, 3.0, 8.0, 64.0]))
    work = workload(phase, batch, float(draw(hy.sampled_from([8, 130, 1024, 4096]))))
    return Point((where, model(name), work, replace(plan, **finer)))


def uncapped(where):
    """The system without limits on power."""
    return replace(where, chip=replace(where.chip, energy=replace(where.chip.energy, power_limit=1e12)))


def rank_graph(program, work, plan, active=None):
    """The graph of one rank of a program (a model, by its name) under a plan (as it is typed) or layout."""
    made = model(program) if isinstance(program, str) else program
    division = st.plan(plan) if isinstance(plan, str) else plan
    graph = made.trace(work)
    return shard(graph, division.sharding(graph, work, division.active() if active is None else active))


def kernels(ops):
    """Ops of a graph or a block that are no collectives."""
    return [op for op in ops if op.kind != "collective"]


def collectives(ops):
    return [op for op in ops if op.kind == "collective"]


def same(a, b, tolerance):
    """Whether two quantities agree relatively, infinities and NaN included."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    with np.errstate(invalid="ignore"):
        return bool(
            np.all(
                (a == b)
                | (np.isnan(a) & np.isnan(b))
                | (np.abs(a - b) <= tolerance * np.maximum(np.abs(a), np.abs(b)))
            )
        )
