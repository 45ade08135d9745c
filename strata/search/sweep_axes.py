"""Axes of a sweep: numbers in a list or a range, even or by equal factors, and words that name inputs."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from strata.base.errors import BadValue, StrataError, UnknownName, require
from strata.base.units import finite_number, parse, show
from strata.mapping.plan import layout_degrees
from strata.search.fields import SIZES, FieldOwners, split_field, twice_named

DEGREES = ("tp", "cp", "dp", "pp", "ep", "moe_tp", "zero", "microbatches", "virtual_stages")
MOST_POINTS = 250_000  # of a sweep, each of which is shown
MOST_GROUPS = 256  # combinations of words of a sweep, each a box of its own
MOST_AXES, MOST_NUMBERS = 6, 3  # of a sweep, and those of them that are numbers
NAMED = ("system", "model", "engine", "fabric", "weights", "kv", "plan", "phase")  # inputs that words name
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_LISTED = re.compile(rf"\s*(log\s*:\s*)?({_NUMBER}(?:\s*[:,]\s*{_NUMBER})*)\s*([A-Za-zµ°%$/].*)?$")
EXAMPLE = (
    "batch=1,8,64 or chip.memory.bandwidth='2:8:7 TB/s' (from:to:count) or batch=log:1:1024:11 (equal "
    "factors) or system=8xh200,8xb200"
)


@dataclass(frozen=True, kw_only=True)
class SweepAxis:
    """One thing that varies: its name, its values in SI and as they are shown. What words name, and fields of
    a language model, make groups (`grouped`): a box for each of its values.
    """

    name: str
    values: np.ndarray
    labels: list[str]
    unit: str = "1"
    grouped: bool = False

    @property
    def numeric(self) -> bool:
        return self.values.dtype.kind == "f"


def parse_axis(text: str, units: dict[str, str], full: dict[str, str]) -> SweepAxis:
    """`batch=1,8,64`, `chip.memory.bandwidth='2:8:7 TB/s'` (from, to, how many), `batch=log:1:1024:11` (the
    same, by equal factors) or a list with one unit at its end.

    >>> parse_axis("batch=log:1:1024:6", {"batch": "1"}, {}).values.tolist()
    [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0]
    """
    name, values = split_axis(text)
    name = full.get(name, name)
    if name not in units:
        plain = ", ".join((*SIZES, *NAMED))
        known = f"{plain}, plan.tp ..., model.FIELD, strata schema chip, strata schema fabric"
        raise UnknownName("quantity to vary", name, [*units, *NAMED], known)
    match = _LISTED.match(values)
    try:
        assert match is not None
        typed = [finite_number(x, name) for x in re.split("[:,]", match.group(2))]
        ranged = ":" in match.group(2)
        assert ranged or not match.group(1)
        assert not ranged or ("," not in match.group(2) and len(typed) == 3)
        assert not ranged or (typed[2] >= 1 and typed[2] == typed[2] // 1)
    except (ValueError, AssertionError):
        raise BadValue(f"an axis lists numbers, like {EXAMPLE}, but got '{text}'") from None
    listed = _in_range(typed, bool(match.group(1)), name) if ranged else typed
    unit, si = (match.group(3) or "").strip(), units[name]
    if not unit and si != "1":
        raise BadValue(f"{name} is measured in {si}, but got '{values}' without a unit")
    numbers = np.array([parse(f"{x!r} {unit}" if unit else x, si, name) for x in listed])
    counted = name in SIZES
    if counted and match.group(1):
        numbers = np.unique(np.round(numbers))
    if counted and not np.all((numbers >= 1) & (numbers == np.floor(numbers))):
        raise BadValue(f"{name} must be positive whole numbers, but got '{text}'")
    return SweepAxis(name=name, values=numbers, labels=[show(v, si) for v in numbers], unit=si)


def split_axis(text: str) -> tuple[str, str]:
    """The name of what varies, and its values as typed."""
    require(isinstance(text, str), f"an axis is written like {EXAMPLE}", vary=text)
    name, equals, values = text.partition("=")
    require(bool(equals and name.strip() and values.strip()), f"an axis is written like {EXAMPLE}", vary=text)
    return name.strip(), values.strip()


def _in_range(typed: list[float], factors: bool, name: str) -> list[float]:
    """So many numbers from one to another, by equal steps or equal factors."""
    start, stop, count = typed
    check_points([count], name)
    if not factors:
        return [float(x) for x in np.linspace(start, stop, int(count))]
    require(start > 0 and stop > 0, f"axis {name}: log: goes between positive numbers", ends=(start, stop))
    # what is a round number stays one: 8, not 7.999999999999998
    return [float(f"{x:.13g}") for x in np.geomspace(start, stop, int(count))]


def word_axis(text: str, numbers: bool = False) -> SweepAxis:
    """An axis of words, with commas between them, or semicolons where a word has commas of its own; `numbers`
    may be a range.

    >>> word_axis("plan=tp=8;tp=4,dp=2").labels, word_axis("model.layers=8:16:2", numbers=True).labels
    (['tp=8', 'tp=4,dp=2'], ['8', '16'])
    """
    name, typed = split_axis(text)
    if numbers:
        try:
            found = parse_axis(text, {name: "1"}, {})
        except StrataError:
            pass
        else:
            labels = [f"{v:.12g}" for v in found.values]
            return SweepAxis(name=name, values=found.values, labels=labels, grouped=True)
    apart = ";" if ";" in typed or (name == "plan" and "=" in typed) else ","
    words = [w.strip() for w in typed.split(apart) if w.strip()]
    require(
        bool(words) and not twice_named(words), f"an axis names each choice once, like {EXAMPLE}", vary=text
    )
    return SweepAxis(name=name, values=np.array(words), labels=words, grouped=True)


def is_grouped(name: str, owners: FieldOwners | None = None) -> bool:
    """Whether an axis makes groups: it names inputs, or chooses among words."""
    owner, path = split_field(name)
    if not path or owners is None:
        return name in NAMED
    return owner in ("chip", "fabric", "engine") and path in owners.words(owner) and not owners.metadata(name)


def check_points(sizes: Sequence[float], name: str = "") -> None:
    """Refuse an axis, or a box of axes, with more points than are worth a look one by one."""
    points = math.prod(sizes)
    said = f"axis {name} has" if name else f"axes of {' x '.join(f'{n:g}' for n in sizes)} values have"
    require(points <= MOST_POINTS, f"a sweep has at most {MOST_POINTS} points, but {said} {points:.6g}")


def check_axes(axes: Sequence[SweepAxis]) -> None:
    """Each thing once, and no more of them than can be shown and priced."""
    names = [a.name for a in axes]
    require(not twice_named(names), "each axis varies something else", vary=twice_named(names))
    numbers = sum(not a.grouped for a in axes)
    require(
        numbers <= MOST_NUMBERS,
        f"at most {MOST_NUMBERS} quantities vary at once, besides words",
        vary=numbers,
    )
    groups = math.prod(len(a.values) for a in axes if a.grouped)
    require(groups <= MOST_GROUPS, f"words of a sweep make at most {MOST_GROUPS} groups", groups=groups)
    check_points([len(a.values) for a in axes])


def vary_names(owners: FieldOwners) -> tuple[dict[str, str], dict[str, str]]:
    """Units of everything that can vary, and the whole name of each short one."""
    degrees = layout_degrees(owners.model) or DEGREES
    units = {k: "1" for k in SIZES} | {f"plan.{k}": "1" for k in degrees} | owners.units()
    return units, owners.short_names()


def words_in_order(axes: Sequence[SweepAxis]) -> list[Mapping[str, str]]:
    """The words of each group, in the order of the axes, the last one fastest."""
    grouped = [a for a in axes if a.grouped]
    places = np.ndindex(*(len(a.values) for a in grouped))
    return [{a.name: a.labels[i] for a, i in zip(grouped, place, strict=True)} for place in places]
