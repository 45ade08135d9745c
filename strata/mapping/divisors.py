"""Degrees of parallelism: of a mesh dimension; divisors of a count of devices; how many plans are sought."""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np

from strata.arrays import Number
from strata.errors import BadValue, require
from strata.units import finite_array

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
    strata.errors.BadValue: plans are sought of at most 16,777,216 devices, but got (devices=1000000000)
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
    strata.errors.BadValue: plan.tp must be at most 1,000,000,000, but got 1e+300
    """
    most = given.max() if hasattr(given, "max") else given
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
