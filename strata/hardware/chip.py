"""A chip: compute, on-chip memories, DRAM, energy and package, each number with its source.

What its file leaves out follows from the rest by the table of `strata.hardware.derive`; or all of it is
generated from the technology, the budget and the template that the file names (`strata.hardware.generate`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from strata.base.arrays import Number, highest, leaves
from strata.base.errors import require
from strata.base.precision import check
from strata.base.records import readable
from strata.base.shipped import paper_offers
from strata.hardware.chip_parts import (
    Cache,
    Compute,
    Energy,
    Generated,
    Memory,
    MemoryLevel,
    Overhead,
    Package,
    ServedAttention,
    ServedExperts,
)
from strata.hardware.derive import OnFirstUse, derived, restated, set_by_hand
from strata.hardware.dram.channel import check_dram
from strata.hardware.dram.stack import Stack, check_stack
from strata.hardware.short_chip import check_complete, chip_table
from strata.hardware.silicon.floorplan import Silicon, check_silicon
from strata.hardware.thermal.compact import ThermalModel
from strata.hardware.thermal.cooling import Cooling
from strata.params import (
    GIVEN,
    Param,
    Sources,
    build,
    choice,
    find,
    inherited,
    load_table,
    merged,
    of_other_files,
    override,
    part,
    positive,
    read_toml,
    record,
    remembered,
    table_named,
    text,
    value_at,
    with_value,
)

if TYPE_CHECKING:
    from strata.hardware.fabric import Fabric
    from strata.hardware.generate.recipe import Recipe

KINDS = ("gpu", "systolic", "dataflow")
# How matrix products are priced: tiles of a GPU's libraries, systolic arrays, or as a paper's package does it
# (DeepFlow's searches tiles at every level of memory). "" is by kind.
KERNEL_MODELS = ("", "tiled", "array", *paper_offers("product models"))


@readable("name", "title")
@record
class Chip:
    """One device of a system."""

    name: str = text("short name, as in the file's name")
    title: str = text("what the vendor calls it")
    kind: str = text("how it computes", choices=KINDS)
    fabric: str = text("the fabric it is usually built into: a file of fabrics/")
    link_bandwidth: Number | None = positive(
        "B/s",
        "peak of one device into the innermost dimension of its fabric, one direction; the fabric's own when "
        "left out",
        more="faster",
    )
    note: str = text("what a reader of these numbers should know", default="")
    platform: str = text(
        "software its kernels are written for, like rocm: engines may have others there; left out where they "
        "were measured on it",
        default="",
    )
    aliases: str = text("other names users and data sets give it, separated by spaces", default="")
    compute: Compute = part(Compute, "cores and their peaks")
    cache: Cache = part(Cache, "memory shared by the cores on the die")
    memory: Memory = part(Memory, "DRAM")
    levels: tuple[MemoryLevel, ...] | None = part(
        MemoryLevel,
        "further levels of memory beside a core's own, the cache and DRAM, innermost first",
        many=True,
    )
    kernel_model: str = choice(
        "how matrix products are priced, where not as usual for its kind", *KERNEL_MODELS
    )
    execution: str = choice(
        "kernels one after the other, or dataflow: fused partitions whose kernels share the cores and pass "
        "tiles on",
        "kernels",
        "dataflow",
    )
    stack: Stack | None = part(Stack, "geometry of DRAM stacked on the die")
    cooling_file: str = text(
        "how the stack is built up and cooled: a file of cooling/, or a TOML path", default=""
    )
    cooling: Cooling | None = part(Cooling, "its quantities, from that file")
    # resistances that follow from stack and cooling; solved when first read
    heat: OnFirstUse[ThermalModel] = OnFirstUse()
    floorplan_file: str = text("how it is made: a file of floorplans/, or a TOML path", default="")
    silicon: Silicon | None = part(Silicon, "its quantities, from that file")
    # cores that fit the die by the floorplan; below the cores it has, it cannot be built
    cores_fit: Number | None = None
    overhead: Overhead = part(Overhead, "fixed times")
    paged: ServedAttention = part(ServedAttention, "attention of serving frameworks, heads in groups")
    latent: ServedAttention = part(ServedAttention, "latent attention (MLA) of serving frameworks")
    experts: ServedExperts = part(ServedExperts, "layers of routed experts of serving frameworks")
    energy: Energy = part(Energy, "energy and power")
    package: Package = part(Package, "silicon and price")
    generated: Generated | None = part(Generated, "files that it is generated from")
    recipe: Recipe | None = of_other_files("what those files hold: it follows from these numbers")
    # its own, sizes open, where its file says that they join its systems
    networks: Fabric | None = None
    sources: Sources = field(default_factory=Sources)


class ChipMaker(Protocol):
    """How chips are made that a file says are generated."""

    def read(self, table: Mapping[str, Any], file: str) -> Chip:
        """The chip that the table of its file makes."""

    def changed(self, chip: Chip, changes: Mapping[str, Any]) -> tuple[Chip, dict[str, Any]]:
        """A generated chip made anew where changes touch what it is generated from; and the other changes."""


_MAKERS: list[ChipMaker] = []


def register_maker(maker: ChipMaker) -> None:
    """Say how generated chips are made: what makes them stands on chips, and is imported after them."""
    _MAKERS[:] = [maker]


def _maker() -> ChipMaker:
    """How generated chips are made, loaded where one is asked for."""
    if not _MAKERS:
        import_module("strata.hardware.generate.recipe")
    return _MAKERS[0]


def chip(name: str, /, **changes: Any) -> Chip:
    """A chip by name or TOML path, with some quantities replaced by numbers, arrays or text with units.

    >>> h200 = chip("h200", **{"memory.bandwidth": "6 TB/s"})
    >>> h200.memory.bandwidth / 1e12, h200.sources["memory.bandwidth"].source
    (6.0, 'given by the caller')

    A generated chip is made anew where a number that it is generated from is changed:

    >>> half = chip("deepflow-v100", **{"budget.power": "150 W"})
    >>> half.memory.bandwidth < chip("deepflow-v100").memory.bandwidth
    True
    """
    if not changes:
        return _as_stated(str(name))
    named = {key: changes.pop(key) for key in list(changes) if names_a_file(key)}
    return finished(*read_chip(name, named), changes)


def as_chip(given: Chip | str, /, **changes: Any) -> Chip:
    """The chip that is given, or the one of a name, with changes.

    >>> as_chip("h200").name, as_chip(chip("h200")).name
    ('h200', 'h200')
    """
    if isinstance(given, Chip):
        require(not changes, "change a chip's numbers where it is made: chip(name, field=value)")
        return given
    return chip(given, **changes)


@remembered
def _as_stated(name: str) -> Chip:
    return finished(*read_chip(name), {})


def read_chip(name: str, named: Mapping[str, str] = {}) -> tuple[Chip, dict[str, Param], str]:
    """A chip as its file has it, before what follows from its numbers is worked out; with the sources of its
    numbers and the file's name. `named` are files it names in place of those of its own.
    """
    for key, value in named.items():
        require(isinstance(value, str), f"{key} is a name or a TOML path", **{key: value})
    return _read(str(name), tuple(sorted(named.items())))


@remembered
def _read(name: str, named: tuple[tuple[str, str], ...]) -> tuple[Chip, dict[str, Param], str]:
    file, (table, like) = find("chip", name).name, chip_table(Chip, name)
    for key, value in named:
        inside = key.startswith(GENERATED) and "generated" not in table
        require(not inside, f"{file} is not generated: it has no [generated]", **{key: value})
        table = _with_word(table, key, value)
    own = {*read_toml(find("chip", name)), *dict(named)}
    taken = {key: like for key in NAMED if like and key not in own}
    if "generated" in table:
        made = _maker().read(_written_out(table, taken), file)
        stated, params = made, dict(made.sources)
    else:
        table = _written_out(table, taken)
        check_complete(Chip, table, file)
        stated, params = build(Chip, table, file)
    for precision in (*stated.compute.matrix_rate, *stated.energy.matrix):
        check(precision)
    return stated, params, file


def finished(
    stated: Chip, params: Mapping[str, Param], file: str, changes: Mapping[str, Any], checked: bool = True
) -> Chip:
    """A chip read from a file with some quantities replaced, and what follows from them.

    Unchecked it may have parts that contradict each other, as the corner of a box of chips has.
    """
    if stated.recipe is not None:
        stated, changes = _maker().changed(stated, changes)
        params = stated.sources
    changed, given = override(stated, changes, "chip")
    if checked:
        _check_parts(changed, file)
    known = derived(changed, Sources(params).updated(given), file)
    _check_whole(known, file)
    return known


def changed_chip(given: Chip, changes: Mapping[str, Any]) -> Chip:
    """A chip with some of the numbers replaced that it was described by, and all that follows from them anew:
    bandwidth of a stack, cores that fit, heat; a generated chip is made again. Where somebody replaced what
    follows by hand, it stays as it is.

    >>> faster = changed_chip(chip("stack-ref"), {"stack.transfer_rate": 1.6e9})
    >>> [round(float(getattr(faster, part).bandwidth) / 1e12, 2) for part in ("memory", "cache")]
    [3.28, 6.55]
    """
    kept: dict[str, Any] = {}
    if given.recipe is not None:  # what a caller gave it beside its recipe is not in there
        told = (p for p, param in given.sources.items() if param.source == GIVEN)
        kept = {p: value_at(given, p) for p in told if not p.startswith("recipe.")}
    bare = restated(given)
    changed = finished(bare, given.sources, given.name, {**kept, **changes})
    for path in set_by_hand(given, finished(bare, given.sources, given.name, kept)):
        changed = with_value(changed, path, value_at(given, path))
    return changed


# Files a chip names, by the field that names one: where it is written out, and its kind.
NAMED = {"cooling_file": ("cooling", "cooling"), "floorplan_file": ("silicon", "floorplans")}

GENERATED = "generated."


def names_a_file(path: str) -> bool:
    """Whether a field of a chip names a file: with another one, the chip is read anew.

    >>> names_a_file("generated.technology"), names_a_file("cooling_file"), names_a_file("memory.kind")
    (True, True, False)
    """
    return path in NAMED or path.startswith(GENERATED)


def _with_word(table: Mapping[str, Any], path: str, word: str) -> dict[str, Any]:
    """A table with the word at a dotted path replaced, or put there."""
    head, _, rest = path.partition(".")
    return {**table, head: _with_word(table.get(head, {}), rest, word) if rest else word}


def _written_out(table: dict[str, Any], taken: Mapping[str, str]) -> dict[str, Any]:
    """A chip's table with the files it names written out; what the chip says itself goes before. `taken` are
    names of files that it has from the chip it is like: that chip's name by the field.
    """
    for key, (part_of, kind) in NAMED.items():
        if table.get(key):
            named = load_table(kind, str(table[key]))
            named = inherited(named, taken[key]) if key in taken else named
            table = table | {part_of: merged(named, table.get(part_of, {}))}
    return with_memory(table)


def _check_parts(chip: Chip, file: str) -> None:
    """Refuse parts whose own numbers contradict each other."""
    if chip.stack is not None:
        check_stack(chip.stack, file)
        if chip.stack.dram is not None:
            check_dram(chip.stack.dram, file)
    if chip.silicon is not None:
        check_silicon(chip.silicon, file)


def _check_whole(chip: Chip, file: str) -> None:
    """Refuse a chip that lacks what its kind needs, or claims more than its peaks."""
    compute = chip.compute
    arrays = chip.kind != "gpu" or chip.kernel_model == "array"
    require(
        not arrays or (compute.array_rows is not None and compute.array_columns is not None),
        f"{file}: a chip of this kind needs compute.array_rows and compute.array_columns",
        kind=chip.kind,
    )
    fractions = {
        "matrix": compute.matrix_efficiency,
        "cache": chip.cache.efficiency,
        "memory": chip.memory.efficiency,
    } | {level.name: level.efficiency for level in chip.levels or ()}
    for name, value in fractions.items():
        high = max(float(highest(v)) for v in leaves(value))
        require(high <= 1, f"{file}: an efficiency is a fraction of the peak and at most 1", **{name: high})
    missing = [p for p in compute.matrix_rate if p not in compute.matrix_efficiency]
    require(not missing, f"{file}: every matrix_rate needs its matrix_efficiency", missing=", ".join(missing))


def sustained_memory(chip: Chip) -> Number:
    """DRAM bandwidth a long stream gets [B/s]: the peak times its efficiency."""
    return chip.memory.bandwidth * chip.memory.efficiency


def sustained_cache(chip: Chip) -> Number:
    """Shared-cache bandwidth a long stream gets [B/s]: the peak times its efficiency."""
    return chip.cache.bandwidth * chip.cache.efficiency


def with_memory(table: dict[str, Any]) -> dict[str, Any]:
    """A chip's table with the memory its stack names written out, under what the stack says itself of it."""
    stack = table.get("stack")
    if not isinstance(stack, dict) or not stack.get("memory"):
        return table
    dram = table_named("memory", str(stack["memory"]), stack.get("dram", {}))
    return table | {"stack": stack | {"dram": dram}}
