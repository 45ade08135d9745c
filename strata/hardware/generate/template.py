"""What is built, before its sizes are known: units, bundles, levels of memory, networks, and the rules of
counting. A file of `templates`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from strata.base.arrays import Number
from strata.base.errors import require
from strata.hardware.chip import KERNEL_MODELS, KINDS, Chip
from strata.hardware.chip_parts import DATAFLOWS, SCOPES
from strata.hardware.fabric import COLLECTIVES, ONE_RING, GroupDivisor
from strata.hardware.fabric import KINDS as TOPOLOGIES
from strata.params import (
    Named,
    Sources,
    build,
    by_name,
    check_shipped,
    choice,
    data_folder,
    find,
    load_table,
    merged,
    part,
    positive,
    quantity,
    read_toml,
    record,
    remembered,
    text,
)

REMOVE, THROTTLE = "remove units", "throttle clock"
UNITS, LANES = "matrix units", "vector lanes"
CORE, MEMORY = "core", "memory"  # what shares of budgets call the units and DRAM, beside levels and networks


def or_zero(stated: Number | None) -> Number:
    """A number that a template may leave out, an array too: 0 where it does.

    >>> or_zero(None), or_zero(0.1)
    (0.0, 0.1)
    """
    return 0.0 if stated is None else stated


@record
class TemplateLevel:
    """A level of memory on the die."""

    name: str = text("what it is called, in budgets too: registers, l1, l2")
    component: str = text("the technology's memory it is made of")
    scope: str = text("who shares one of it: a unit, a bundle of them, the whole chip", choices=SCOPES)
    efficiency: Number = positive("1", "sustained fraction of its peak bandwidth")
    bytes_per_flop: Number | None = quantity(
        "B/FLOP",
        "bytes it carries for an operation of a well tiled product: its part of the power where a budget "
        "does not state it",
    )
    bytes_per_lane: Number | None = positive(
        "B",
        "capacity for each vector lane of the units: its area where a budget does not state it; left out: by "
        "the template's share of the die",
    )


@record
class TemplateNetwork:
    """A network the chip takes part in: inside its package, or between packages."""

    name: str = text("what it is called, in budgets too: intra, inter")
    link: str = text("the links it is made of: a file of links/")
    topology: str = text("how they join", choices=TOPOLOGIES)
    degree: Number = quantity("1", "neighbours that share the lanes of a chip", minimum=1)
    efficiency: Number = positive("1", "sustained fraction of the peak for long messages")
    collectives: str = choice(
        "as in a fabric's dimension: memory-ring, or as is usual when left out", *COLLECTIVES
    )
    crossing: str = choice("as in a fabric's dimension", "", ONE_RING)
    divisors: tuple[GroupDivisor, ...] | None = part(
        GroupDivisor, "as in a fabric's dimension; none when left out", many=True
    )


@record
class GeneratorRules:
    """How counting and clocking is done; the defaults are ours, the others are those of the 2021 program."""

    at_min_voltage: str = choice(
        "where power is short at the lowest voltage: units are left out, or all run slower", REMOVE, THROTTLE
    )
    voltage_caps: str = choice("what keeps its highest voltage", "all", "memory only")
    power: str = choice(
        "whether units may clock higher while other parts leave of their power, or keep their own share",
        "one limit",
        "by share",
    )
    ports: str = choice("whether the ports of its banks bound a memory, or power alone", "bound", "unbounded")
    edge: str = choice(
        "whether die edge bounds the number of memory devices, or only their pins", "devices", "pins"
    )
    crossbar: str = choice(
        "who a bank is joined to: those that share it, or every bundle of the chip", "sharers", "all bundles"
    )
    count: str = choice("whether only whole bundles count, or units beside them too", "bundles", "units")
    fp32: str = choice(
        "where products of fp32 run: on the matrix units, by their area, or on the vector lanes beside them",
        "units",
        "lanes",
    )
    leakage: str = choice("whether logic leaks", "counted", "ignored")
    sums: str = choice("whether shares of a budget may add up to more than it", "at most 1", "any")


@record
class Template(Named):
    """An architecture without sizes: what a unit is, what shares what, and how a budget is split."""

    note: str = text("what a reader of these numbers should know", default="")
    kind: str = text("how it computes: its defaults lie in kinds/", choices=KINDS)
    kernel_model: str = text("how matrix products are priced", choices=KERNEL_MODELS, default="hierarchical")
    format: str = text("the format a matrix unit is sized for; the others follow by area")
    dataflow: str = text(
        "what an array keeps in place: weights, outputs, activations, or what is best",
        choices=DATAFLOWS,
        default="best",
    )
    arithmetic: str = choice(
        "where multiply-adds run: on matrix units beside the vector lanes, or on the lanes themselves, as "
        "many of a format as fit 32 bits",
        UNITS,
        LANES,
    )
    array_rows: Number = quantity("1", "rows of a matrix unit's array", minimum=1)
    array_columns: Number = quantity("1", "columns of that array", minimum=1)
    macs: Number = quantity("1", "multiply-adds of a matrix unit a clock", minimum=1)
    unit_area: Number | None = positive(
        "m2",
        "silicon of a unit on every node: its multiply-adds are those that fit, and lanes and array, stated "
        "for `macs`, grow with the side of the array; left out: `macs` on every node",
    )
    units_per_bundle: Number = quantity("1", "matrix units of a bundle (an SM, a core)", minimum=1)
    vector_lanes: Number = positive("1", "fp32 vector lanes beside a matrix unit")
    special_lanes: Number = positive("1", "special functions beside a matrix unit, a clock")
    lane_activity: Number | None = quantity(
        "1",
        "energy of a vector lane a clock while its matrix unit works, over that of its multiply-add: "
        "instructions and addresses; left out: none",
    )
    delivery: Number | None = positive(
        "1",
        "share of the power that reaches die and memory, the rest being lost in regulators; left out: all",
    )
    max_clock: Number | None = positive(
        "1", "highest clock the design closes timing at, over the nominal one; left out: by the voltage alone"
    )
    spare: Number = quantity("1", "share of bundles built and switched off, so that some may be bad")
    matrix_efficiency: Number = quantity("1", "fraction of the matrix peak a large product sustains")
    memory_efficiency: Number = quantity("1", "sustained fraction of DRAM's peak")
    memory_bytes_per_flop: Number | None = quantity(
        "B/FLOP", "bytes of DRAM for an operation of a large product, where a budget states no power shares"
    )
    levels: tuple[TemplateLevel, ...] = part(TemplateLevel, "memories on the die, innermost first", many=True)
    device: str = text(
        "memory off the die, a file of devices/; or the outermost level, where it is all there is"
    )
    networks: tuple[TemplateNetwork, ...] = part(
        TemplateNetwork, "networks, innermost first", optional=True, many=True
    )
    fabric: str = text("what joins its systems where its own networks are not used: a file of fabrics/")
    bonding: str = text("how dies are joined: a file of bonding/", default="interposer")
    packaging: str = text("what they are put into: a file of packaging/", default="cowos")
    repairable: Number = quantity("1", "share of the die in which a defect is repaired or switched off")
    area: dict[str, Number] | None = by_name(
        "1", "share of the die for core, levels and networks where a budget states none"
    )
    power: dict[str, Number] | None = by_name(
        "1", "most of the power for memory and networks where a budget states none"
    )
    perimeter: dict[str, Number] | None = by_name(
        "1", "share of the edge for memory and networks where a budget states none"
    )
    rules: GeneratorRules = part(GeneratorRules, "rules of counting", default=GeneratorRules)
    # a chip of this kind with the template's own efficiencies and floors; generated numbers replace the rest
    chip: Chip | None = None


@remembered
def template(name: str) -> Template:
    """A template by name or TOML path: a file of `templates`.

    >>> gpu = template("gpu")
    >>> gpu.kind, [level.scope for level in gpu.levels]
    ('gpu', ['unit', 'bundle', 'global'])
    """
    check_shipped("template", str(name), more="strata list templates")
    file = find("template", name).name
    table = load_table("template", name)
    chip = table.pop("chip", {})
    read, params = build(Template, table, file)
    check_template(read)
    named = [level.name for level in read.levels] + [net.name for net in read.networks or ()]
    require(
        len(set(named)) == len(named), f"{file}: levels and networks have names of their own", names=named
    )
    scopes = {level.scope for level in read.levels}
    require(
        "bundle" in scopes and ("global" in scopes or read.device == read.levels[-1].name),
        f"{file}: a template has a level of a bundle, and a global one or its outermost level as memory",
        levels=named,
    )
    return replace(read, chip=skeleton(read, chip, file), sources=Sources(params))


def check_template(read: Template) -> None:
    """Refuse shares above 1."""
    for key in ("spare", "matrix_efficiency", "memory_efficiency", "repairable", "delivery"):
        most = np.max(np.asarray(or_zero(getattr(read, key))))
        require(
            bool(most <= 1), f"template {read.name}: {key} is a share and at most 1", **{key: float(most)}
        )


# Numbers of a chip that are generated, as a file would hold them: the record is built with ones there.
_LATER = "generated later"
_GENERATED = {
    "compute": "cores units clock max_clock vector_rate special_rate sram_capacity sram_bandwidth "
    "array_rows array_columns",
    "cache": "capacity bandwidth efficiency core_bandwidth latency",
    "memory": "bandwidth capacity efficiency latency",
    "energy": "vector sram cache memory static_power power_limit voltage_slope",
    "package": "die_area",
}


def skeleton(read: Template, own: Mapping[str, Any], file: str, over: Mapping[str, Any] = {}) -> Chip:
    """A chip of the template's kind: what is assumed of the kind, the template's own tables over it, and ones
    where numbers are generated; `over` all of them what a chip's file says itself.
    """
    under = read_toml(data_folder("kinds") / f"{read.kind}.toml")
    ones: dict[str, Any] = {name: _ones(name, keys.split()) for name, keys in _GENERATED.items()}
    ones["compute"] |= {"matrix_rate": {}, "matrix_efficiency": {}}
    ones["energy"] |= {"matrix": {}}
    ones["memory"] |= {"kind": "generated"}
    ones["package"] |= {"process": "generated"}
    words = {"name": read.name, "title": read.title, "kind": read.kind, "fabric": read.fabric}
    words |= {"kernel_model": read.kernel_model}
    table = merged(merged(merged(merged(under, dict(own)), ones), words), dict(over))
    chip, params = build(Chip, table, f"{file}: chip")
    return replace(chip, sources=Sources(_not_generated(params)))


def _ones(name: str, keys: list[str]) -> dict[str, Any]:
    """A part's table with one of each quantity."""
    inside = next(f.metadata["part"] for f in fields(Chip) if f.name == name)
    units = {f.name: f.metadata.get("unit") for f in fields(inside)}
    return {key: {"value": f"1 {units[key]}", "source": _LATER} for key in keys}


def _not_generated(params: Mapping[str, Any]) -> dict[str, Any]:
    return {path: param for path, param in params.items() if param.source != _LATER}
