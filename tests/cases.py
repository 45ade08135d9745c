"""What several test files share: shipped names, a chip with room for everything, random legal points."""

import os
from dataclasses import fields, replace
from functools import cache

import numpy as np
from hypothesis import HealthCheck, settings

import strata as st
from strata.batch import take
from strata.mapping.plan import Plan
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

MODELS = [name for name in names("models") if name != "README"]
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
def model(name):
    return st.model(name)


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
