"""What follows from a chip's other numbers: a table of derivations, and the order they are worked out in.

A file states what is known of a chip; the rest follows. Each row of `DERIVATIONS` names what it gives, what
it needs, and how the number's source tells where it comes from. The order follows from what rows need. A row
marked `later` is worked out on first use: the heat equation of a stack takes longer than reading its file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from strata.base.arrays import Number, namespace
from strata.base.errors import MissingQuantity, require
from strata.hardware.dram.stack import connected_layers, stack_bandwidth, stack_capacity
from strata.hardware.silicon.energy import vertical_energy
from strata.hardware.silicon.floorplan import area_of, made_of, usable_cores
from strata.hardware.technology import bonding
from strata.hardware.thermal.compact import UnsolvedHeat, unsolved_heat
from strata.params import Param, Sources, unit_at, with_value

if TYPE_CHECKING:
    from strata.hardware.chip import Chip

Value = TypeVar("Value")


class OnFirstUse(Generic[Value]):
    """A field of a record that may hold what is still to be solved: it is solved when it is first read."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, record: None, owner: type) -> None: ...
    @overload
    def __get__(self, record: object, owner: type) -> Value | None: ...
    def __get__(self, record: object | None, owner: type) -> Value | None:
        if record is None:
            return None  # the field's default
        held = record.__dict__[self.name]
        if isinstance(held, UnsolvedHeat):
            held = record.__dict__[self.name] = held.solve()
        return held

    def __set__(self, record: object, value: Value | UnsolvedHeat | None) -> None:
        record.__dict__[self.name] = value


# ------------------------------------------------------------------------------------------ the equations


def stacked_energy(chip: Chip) -> Number:
    r"""Energy of a byte of stacked DRAM [J/B]: what its array takes, and the joints on the way to it.

    .. math:: e = e_{array} + \bar e(n)

    n connected layers (`vertical_energy`): the deeper they go, the more a byte costs.

    >>> from strata.hardware.chip import chip
    >>> [round(float(chip("stack-ref", layers=n).energy.memory) * 1e12, 1) for n in (1, 4, 12)]  # pJ/B
    [15.4, 16.0, 17.6]
    """
    assert chip.stack is not None
    joints = vertical_energy(bonding(made_of(chip).bonding), connected_layers(chip.stack))
    return chip.energy.memory_array + joints


def _cores_fit(chip: Chip) -> Number:
    silicon = made_of(chip)
    return usable_cores(area_of(chip, silicon), silicon)


def _cores(chip: Chip) -> Number:
    """The cores that fit, at least one: that a chip cannot be built is said where it is evaluated."""
    assert chip.cores_fit is not None
    return namespace(chip.cores_fit).maximum(chip.cores_fit, 1.0)


def _over_peak(chip: Chip, rate: str) -> Any:
    """A rate, or one of each format, stated for `peak_cores`: that of the cores there are."""
    assert chip.compute.peak_cores is not None
    cores, stated = chip.compute.cores / chip.compute.peak_cores, getattr(chip.compute, rate)
    return {k: v * cores for k, v in stated.items()} if isinstance(stated, dict) else stated * cores


def _cache_bandwidth(chip: Chip) -> Number:
    assert chip.cache.over_memory is not None
    return chip.cache.over_memory * chip.memory.bandwidth


def _heat(chip: Chip) -> UnsolvedHeat:
    return unsolved_heat(chip.stack, chip.cooling, chip.package.die_area)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------ the table

# What becomes of a number that a file or a caller states.
REPLACED, REFUSED, KEPT, SCALED = "replaced", "refused", "kept", "scaled"
DERIVED = "derived: "  # how the source of a derived number begins


@dataclass(frozen=True, kw_only=True)
class Derivation:
    """How one quantity of a chip follows from others."""

    path: str  # what it gives
    inputs: tuple[str, ...]  # what it needs; where a chip has the first of them, the quantity is derived
    uses: tuple[str, ...] = ()  # what it looks at, where that is there
    function: Callable[[Chip], Any]
    source: str  # where the number comes from, after "derived: "
    stated: str = REPLACED
    refusal: str = ""  # why it may not be stated too
    missing: str = ""  # what to say where it is neither stated nor derived; "" where a chip may lack it
    incomplete: str = ""  # what to say where some of its inputs are missing
    later: bool = False  # worked out on first use
    instead: str = ""  # the stated quantity that moves it, one for one


DERIVATIONS = (
    Derivation(
        path="memory.bandwidth",
        inputs=("stack",),
        function=lambda chip: stack_bandwidth(chip.stack),  # type: ignore[arg-type]
        source="connected layers x channels x width x rate of the stack",
        stated=REFUSED,
        refusal="follows from the stack",
        missing="is missing and there is no stack to give it",
        instead="stack.transfer_rate",
    ),
    Derivation(
        path="memory.capacity",
        inputs=("stack",),
        function=lambda chip: stack_capacity(chip.stack),  # type: ignore[arg-type]
        source="layers x capacity of one layer of the stack",
        stated=REFUSED,
        refusal="follows from the stack",
        missing="is missing and there is no stack to give it",
        instead="stack.capacity_per_layer",
    ),
    Derivation(
        path="cache.bandwidth",
        inputs=("cache.over_memory", "memory.bandwidth"),
        function=_cache_bandwidth,
        source="cache.over_memory x memory.bandwidth",
        stated=REFUSED,
        refusal="follows DRAM's by cache.over_memory",
        missing="is missing",
        instead="cache.over_memory",
    ),
    Derivation(
        path="energy.memory",
        inputs=("energy.memory_array", "stack", "silicon"),
        function=stacked_energy,
        source="energy.memory_array and the joints up to the connected layers of the stack",
        stated=REFUSED,
        refusal="follows from energy.memory_array and the stack",
        missing="is missing and there is no energy.memory_array to give it",
        instead="energy.memory_array",
        incomplete="energy.memory_array needs a [stack] and floorplan_file, which say what lies between it "
        "and the logic; or give energy.memory",
    ),
    Derivation(
        path="cores_fit",
        inputs=("silicon.floorplan", "silicon"),
        uses=(
            "stack",
            "compute.sram_capacity",
            "compute.sram_bandwidth",
            "compute.clock",
            "cache.capacity",
            "package.die_area",
        ),
        function=_cores_fit,
        source="cores that fit the die by its floorplan, less spare ones",
    ),
    Derivation(
        path="compute.cores",
        inputs=("cores_fit",),
        function=_cores,
        source="cores that fit the die by its floorplan, less spare ones",
        stated=KEPT,
        missing="is missing and there is no floorplan to give it",
    ),
    *(
        Derivation(
            path=f"compute.{rate}",
            inputs=("compute.peak_cores", "compute.cores"),
            function=partial(_over_peak, rate=rate),
            source="x compute.cores / compute.peak_cores",
            stated=SCALED,
        )
        for rate in ("matrix_rate", "vector_rate", "special_rate")
    ),
    Derivation(
        path="heat",
        inputs=("cooling", "stack", "package.die_area"),
        function=_heat,
        source="the heat equation of the stack under its cooling",
        later=True,
    ),
)


def derivation_order(table: tuple[Derivation, ...] = DERIVATIONS) -> tuple[Derivation, ...]:
    """The rows of a table, each after those that give what it needs.

    >>> [row.path for row in derivation_order()].index("cores_fit") < len(DERIVATIONS) - 1
    True
    """
    rows = {row.path: row for row in table}
    needs = {
        path: [other for other in rows if any(_within(other, needed) for needed in (*row.inputs, *row.uses))]
        for path, row in rows.items()
    }
    return tuple(rows[path] for path in TopologicalSorter(needs).static_order())


def _within(path: str, other: str) -> bool:
    """Whether one path is the other, or lies inside it."""
    return path == other or path.startswith(other + ".")


ORDER = derivation_order()


# ------------------------------------------------------------------------------------------ working it out


def derived(chip: Chip, sources: Sources, file: str) -> Chip:
    """A chip with everything that follows from what is stated of it, and where each number comes from."""
    noted: dict[str, Param] = {}
    _check_missing(chip, file)
    for row in ORDER:
        if not row.later and _applies(row, chip, file):
            value = row.function(chip)
            chip = with_value(chip, row.path, value)
            noted.update(_sources(row, chip, value, sources))
    later = {row.path: row.function(chip) for row in ORDER if row.later and _applies(row, chip, file)}
    return replace(chip, sources=sources.updated(noted), **later)


def restated(chip: Chip) -> Chip:
    """A chip as it was stated, before anything was derived: what follows from other numbers is left out, what
    is scaled is as quoted. `derived` makes the same chip of it again.

    >>> from strata.hardware.chip import chip
    >>> bare = restated(chip("stack-ref"))
    >>> bare.memory.bandwidth, bare.compute.cores, restated(chip("h200")).memory.bandwidth / 1e12
    (None, None, 4.8)
    """
    for row in reversed(ORDER):
        if row.later or any(_held(chip, path) is None for path in row.inputs):
            continue
        now = _held(chip, row.path)
        if row.stated == SCALED:
            again = row.function(chip)
            quoted = {k: now[k] * now[k] / v for k, v in again.items()} if isinstance(now, dict) else None
            chip = with_value(chip, row.path, now * now / again if quoted is None else quoted)
        elif row.stated != KEPT or is_derived(chip, row.path):
            chip = with_value(chip, row.path, None)
    return chip


def set_by_hand(chip: Chip, again: Chip) -> list[str]:
    """Quantities that a file may not state and that differ from what follows when a chip is derived again."""
    found = []
    for row in DERIVATIONS:
        held, follows = _held(chip, row.path), _held(again, row.path)
        if row.stated == REFUSED and held is not None and follows is not None:
            same = abs(held - follows) <= 1e-9 * abs(follows)
            found += [] if namespace(same).all(same) else [row.path]
    return found


def is_derived(chip: Chip, path: str) -> bool:
    """Whether the whole of a chip's quantity follows from others by the table."""
    known = chip.sources.get(path)
    return known is not None and known.source.startswith(DERIVED)


def derivation_of(chip: Chip, path: str) -> Derivation | None:
    """How a quantity of this chip follows from others; None where it is stated.

    >>> from strata.hardware.chip import chip
    >>> derivation_of(chip("stack-ref"), "memory.bandwidth").instead, derivation_of(chip("h200"), "memory")
    ('stack.transfer_rate', None)
    """
    row = next((row for row in DERIVATIONS if row.path == path and is_derived(chip, path)), None)
    return None if row is None or any(_held(chip, needed) is None for needed in row.inputs) else row


def _check_missing(chip: Chip, file: str) -> None:
    """Refuse a chip with several quantities that are neither stated nor derived, and name all of them."""
    lacking = lacking_rows(ORDER, lambda path: _held(chip, path) is not None)
    require(len(lacking) < 2, f"{file}: " + "; ".join(f"{row.path} {row.missing}" for row in lacking))


def lacking_rows(table: tuple[Derivation, ...], is_known: Callable[[str], bool]) -> list[Derivation]:
    """Rows of a table whose quantity a chip needs, that is neither known nor follows from what is."""
    gives = {row.path: row.inputs[0] for row in table}

    def known_or_given(path: str) -> bool:
        return is_known(path) or (path in gives and known_or_given(gives[path]))

    return [row for row in table if row.missing and not known_or_given(row.path)]


def _applies(row: Derivation, chip: Chip, file: str) -> bool:
    """Whether a chip's quantity is derived; refuses one that is stated as well, or missing."""
    stated = _held(chip, row.path)
    there = [_held(chip, path) is not None for path in row.inputs]
    if there[0]:
        if row.stated == REFUSED:
            told = {row.path.rsplit(".", 1)[-1]: stated}
            require(stated is None, f"{file}: {row.path} {row.refusal}; set {row.instead} instead", **told)
        if not all(there) and row.incomplete:
            raise MissingQuantity(f"{file}: {row.incomplete}")
    if not all(there):
        require(stated is not None or not row.missing, f"{file}: {row.path} {row.missing}")
    return all(there) and (row.stated != KEPT or stated is None)


def _held(chip: Chip, path: str) -> Any:
    """What stands at a path, None where a part on the way to it is missing."""
    node: Any = chip
    for name in path.split("."):
        node = None if node is None else getattr(node, name)
    return node


def _sources(row: Derivation, chip: Chip, value: Any, sources: Sources) -> Iterator[tuple[str, Param]]:
    """Where derived numbers come from; those that were scaled come from where they were stated, too."""
    record: Any = type(chip)
    unit = unit_at(record, row.path)
    if unit is None:
        return
    numbers = {row.path: value}
    if isinstance(value, dict):
        numbers = {f"{row.path}.{name}": number for name, number in value.items()}
    for path, number in numbers.items():
        before = f"{sources[path].source}; " if row.stated == SCALED and path in sources else ""
        yield path, Param(number, unit, f"{before}{DERIVED}{row.source}")
