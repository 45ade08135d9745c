"""Rules a point must keep: each with its bit, its words, and what to change where it is broken; bounds of
degrees and of how many plans are sought.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import Any, NamedTuple

import numpy as np

from strata.base.arrays import Number, floor_div, highest, namespace
from strata.base.errors import BadValue, require
from strata.base.units import finite_array

MOST_DEVICES = 2**24
MOST_PLANS = 50_000  # that are looked at
MOST_RANKS = 10**9  # of one degree: no system has them, and what is worked out from a few is a number still


def divisors(number: int) -> list[int]:
    """Whole numbers that divide one, ascending.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]


def bounded_devices(devices: int) -> None:
    """Refuse a count of devices that is none, or whose divisors alone would take long to find.

    >>> bounded_devices(10**9)
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: plans are sought of at most 16,777,216 devices, but got (devices=1000000000)
    """
    require(devices >= 1, "devices must be at least 1", devices=devices)
    relation = f"plans are sought of at most {MOST_DEVICES:,} devices"
    require(devices <= MOST_DEVICES, relation, devices=devices)


def bounded_plans(found: int, devices: int) -> None:
    """Refuse more plans than are looked at."""
    require(
        found <= MOST_PLANS,
        f"so many devices have over {MOST_PLANS:,} plans; say one with --plan, or take a rounder count",
        devices=devices,
    )


def bounded_degree(given: Number, name: str) -> Number:
    """A degree, or many; refused where far beyond any system, before anything is priced with it.

    >>> bounded_degree(1e300, "plan.tp")
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: plan.tp must be at most 1,000,000,000, but got 1e+300
    """
    most = highest(given)
    if not most <= MOST_RANKS:
        raise BadValue(f"{name} must be at most {MOST_RANKS:,}, but got {most:g}")
    return given


def mesh_degree(given: Any, name: str) -> Number:
    """Ranks of a mesh dimension: a number or an array; traced arrays are taken as they are."""
    if not isinstance(given, (int, float, np.number)):
        if hasattr(given, "__array_namespace__") and not isinstance(given, np.ndarray):
            return given * 1.0
        given = finite_array(given, f"layout: {name}")
    require(
        bool(np.all(np.asarray(given) >= 1)), f"layout: {name} must have at least one rank", **{name: given}
    )
    return bounded_degree(given, f"layout: {name}") * 1.0


@dataclass(frozen=True)
class Rule:
    """One relation a legal point obeys: its bit in `Result.reason`, its words, and what to change."""

    bit: int
    relation: str
    levers: tuple[str, ...]


class Violation(NamedTuple):
    """A rule, where it is broken, what is asked for and what there is."""

    rule: Rule
    broken: Number
    demand: Number
    limit: Number
    # the degree that breaks it and its legal values below and above, where some are near (0: none)
    degree: str = ""
    below: Number = 0.0
    above: Number = 0.0

    def neighbours(self) -> tuple[str, ...]:
        """In words what a single plan may have instead.

        >>> Violation(INTERLEAVED, True, 6.0, 4.0, "microbatches", 4.0, 8.0).neighbours()
        ('microbatches=4 or 8',)
        >>> Violation(WHOLE_BATCH, True, 64.0, 10.0, "dp x microbatches").neighbours()
        ('dp x microbatches=8 or 16',)
        """
        near: list[Number] = [self.below, self.above]
        if self.rule in (WHOLE_BATCH, SHARDS):
            near = list(near_divisors(float(self.demand), float(self.limit)))
        told = dict.fromkeys(f"{float(value):g}" for value in near if float(value) > 0.0)
        return (f"{self.degree}={' or '.join(told)}",) if self.degree and told else ()


MEMORY = Rule(
    1,
    "what a device holds must fit its memory",
    (
        "raise tp, pp or ep",
        "lower batch or context",
        "store weights or kv in fewer bits",
        "use more devices",
        "zero=3",
    ),
)
DEVICES = Rule(
    2, "plan.tp x cp x dp x pp must be the system's devices", ("change dp", "name a system of that size")
)
HEADS = Rule(
    4, "plan.tp must divide heads or be a multiple of them", ("choose tp among the divisors of heads",)
)
KV_HEADS = Rule(
    8,
    "plan.tp must divide kv_heads or be a multiple of it",
    ("choose tp among the divisors or multiples of kv_heads",),
)
EXPERTS = Rule(
    16,
    "plan.ep must divide experts and their redundant copies",
    ("choose ep among the divisors of experts; a dense model has ep=1",),
)
MOE_GRID = Rule(
    32, "plan.ep x moe_tp must divide tp x cp x dp", ("choose ep among the divisors of tp x cp x dp",)
)
LAYERS = Rule(64, "plan.pp x virtual_stages must not exceed layers", ("lower pp or virtual_stages",))
BATCH = Rule(
    128,
    "plan.dp must not exceed the batch, but for ranks that share one set of experts",
    ("lower dp", "raise batch"),
)
MICRO = Rule(
    256, "plan.microbatches must not exceed the sequences of a rank", ("lower microbatches", "raise batch")
)
LIMITS = Rule(
    512,
    "power and temperatures of a device must keep their limits at its lowest clock",
    ("a better cooling", "fewer layers", "a higher power limit", "fewer accesses: larger batch or tiles"),
)
CORES = Rule(
    1024,
    "the cores of a chip must fit its die",
    ("a larger die", "fewer connected layers", "less local memory", "fewer cores"),
)
SWAP = Rule(
    2048,
    "plan.tp x cp must divide heads where context ranks swap tokens for heads (cp_mode=ulysses)",
    ("lower cp", "cp_mode=ring"),
)
RINGS = Rule(
    2**25,
    "plan.cp must be a multiple of cp_a2a, the ranks that swap tokens for heads, with cp_mode=a2a+p2p",
    ("another cp_a2a", "cp_mode=ring", "cp_mode=ulysses"),
)
COPIES = Rule(
    4096,
    "plan.redundant_experts must not exceed the experts",
    ("lower redundant_experts; a dense model has none",),
)
AXIS_UNITS = Rule(
    8192,
    "an axis must not be divided into more parts than it has units",
    ("lower the degree", "another axis"),
)
MESH = Rule(
    16384,
    "the ranks of a layout's mesh must be the system's devices",
    ("change a degree of the mesh", "name a system of that size"),
)
PARTS = Rule(
    131072,
    "the parts of a chip must go together as its file demands",
    ("a constraint of the space that keeps the relation", "strata show chip NAME names what is stated"),
)
STATE_HEADS = Rule(
    32768,
    "plan.tp must divide the heads of a state or be a multiple of them",
    ("choose tp among the divisors of the state's heads",),
)
STATE_GROUPS = Rule(
    65536,
    "plan.tp must divide the key heads (groups) of a state or be a multiple of them",
    ("choose tp among the divisors or multiples of the state's key heads",),
)
WHOLE_BATCH = Rule(
    2**18, "a training batch must be a multiple of dp x microbatches", ("another dp, microbatches or batch",)
)
INTERLEAVED = Rule(
    2**19,
    "microbatches must be a multiple of pp where stages hold several chunks (virtual_stages)",
    ("virtual_stages=1",),
)
ONE_CHUNK = Rule(
    2**20,
    "only schedule=1f1b takes several chunks a stage (virtual_stages)",
    ("virtual_stages=1", "schedule=1f1b"),
)
EVEN_STAGES = Rule(
    2**21, "schedule=dualpipe needs an even number of stages", ("an even pp", "another schedule")
)
DUAL_PIECES = Rule(
    2**22,
    "schedule=dualpipe needs an even number of microbatches, at least 2 x pp",
    ("more microbatches", "lower pp", "another schedule"),
)
RECOMPUTED = Rule(
    2**23,
    "recompute_layers goes with recompute=full, recompute_modules with recompute=selective",
    ("recompute=full for recompute_layers", "recompute=selective for recompute_modules"),
)
SHARDS = Rule(
    2**24,
    "plan.dp_shard must divide dp x cp, the ranks that hold the same weights",
    ("dp_shard=0 for all of them",),
)
RULES = (
    MEMORY, DEVICES, HEADS, KV_HEADS, EXPERTS, MOE_GRID, LAYERS, BATCH, MICRO, LIMITS, CORES, SWAP, COPIES,
    AXIS_UNITS, MESH, STATE_HEADS, STATE_GROUPS, PARTS, WHOLE_BATCH, INTERLEAVED, ONE_CHUNK, EVEN_STAGES,
    DUAL_PIECES, RECOMPUTED, SHARDS, RINGS,
)  # fmt: skip


def near_divisors(number: float, wanted: float, most: float = float("inf")) -> list[int]:
    """The divisors of a number on both sides of one that is none, at most so large.

    >>> near_divisors(80, 64), near_divisors(64, 3), near_divisors(512, 128, 80)
    ([40, 80], [2, 4], [64])
    """
    whole = [d for d in divisors(int(number)) if d <= most]
    below, above = [d for d in whole if d < wanted], [d for d in whole if d > wanted]
    return [*below[-1:], *above[:1]]


def remainder(a: Number, b: Number) -> Number:
    """What is left of a when parts of b are taken; nothing where a is endless, as a batch nobody stated.

    >>> float(remainder(7.0, 3.0)), float(remainder(float("inf"), 3.0))
    (1.0, 0.0)
    """
    xp = namespace(a, b)
    stated = xp.where(xp.isfinite(a), a, 0.0)
    return stated - b * floor_div(stated, b)


def unequal(parts: Number, units: Number) -> Number:
    """Whether units cannot be shared out: parts neither divides them nor is a multiple of them."""
    return (remainder(units, parts) > 0) & (remainder(parts, units) > 0)
