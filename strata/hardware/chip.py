"""A chip: compute, on-chip memories, DRAM, energy and package, each number with its source.

Peaks are datasheet figures; what is delivered is peak times an efficiency, and the two are two numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from strata.arrays import Number, leaves, namespace, register_pytree
from strata.errors import MissingQuantity, require
from strata.hardware.dram.channel import check_dram
from strata.hardware.dram.stack import (
    Stack,
    check_stack,
    connected,
    stack_bandwidth,
    stack_capacity,
    with_memory,
)
from strata.hardware.silicon.energy import vertical_energy
from strata.hardware.silicon.silicon import Silicon, area_of, check_silicon, usable_cores
from strata.hardware.technology import bonding
from strata.hardware.thermal.compact import Heat, heat_of
from strata.hardware.thermal.cooling import Cooling
from strata.params import (
    Param,
    Sources,
    build,
    by_name,
    find,
    load_table,
    merged,
    override,
    part,
    quantity,
    text,
)
from strata.precision import check


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class Compute:
    """Cores with matrix units, vector lanes and a local memory each."""

    cores: Number = quantity(
        "1",
        "cores that take one tile at a time: SMs, compute units, matrix arrays; left out where a floorplan gives them",
        optional=True,
        minimum=1,
    )
    peak_cores: Number = quantity(
        "1", "cores the peaks are quoted for, where a floorplan gives the cores", optional=True, minimum=1
    )
    clock: Number = quantity("Hz", "clock at which the peaks are quoted", positive=True)
    max_clock: Number = quantity("Hz", "highest clock the cores run at while power allows it", positive=True)
    matrix_rate: dict[str, Number] = by_name(
        "FLOP/s", "dense matrix peak of the whole chip for each precision"
    )
    matrix_efficiency: dict[str, Number] = by_name(
        "1", "fraction of the matrix peak a large matmul sustains, for each precision"
    )
    attention_efficiency: Number = quantity(
        "1", "fraction of the matrix peak the products inside attention sustain", positive=True
    )
    grouped_efficiency: Number = quantity(
        "1", "share of a plain product's rate that grouped products of experts reach", positive=True
    )
    softmax_exposed: Number = quantity("1", "share of attention's exponentials that its products do not hide")
    vector_rate: Number = quantity("FLOP/s", "fp32 vector peak of the whole chip", positive=True)
    special_rate: Number = quantity(
        "FLOP/s", "exponentials and other special functions a second of the whole chip", positive=True
    )
    tile_m: Number = quantity("1", "smallest output rows the matrix unit fills", minimum=1)
    tile_n: Number = quantity("1", "smallest output columns the matrix unit fills", minimum=1)
    sram_capacity: Number = quantity("B", "local memory of one core")
    sram_bandwidth: Number = quantity("B/s", "local memory bandwidth of one core")
    array_rows: Number = quantity(
        "1",
        "rows of the array of multiply-add cells in a core: systolic and dataflow chips",
        optional=True,
        minimum=1,
    )
    array_columns: Number = quantity("1", "columns of that array", optional=True, minimum=1)


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class Cache:
    """The memory all cores share on the die: L2, or the chip's whole SRAM where it is one pool."""

    capacity: Number = quantity("B", "capacity")
    bandwidth: Number = quantity(
        "B/s", "peak bandwidth, reads; left out where it follows DRAM's", optional=True, positive=True
    )
    over_memory: Number = quantity(
        "1", "its peak as a multiple of DRAM's, where it follows that", optional=True, positive=True
    )
    efficiency: Number = quantity("1", "sustained fraction of the peak", positive=True)
    core_bandwidth: Number = quantity("B/s", "what one core draws from it at most", positive=True)
    latency: Number = quantity("s", "load to use, and the work between two dependent loads of a kernel")


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class Memory:
    """The DRAM of a chip."""

    kind: str = text("kind of DRAM, like HBM3e")
    bandwidth: Number = quantity(
        "B/s", "peak bandwidth; left out where a stack gives it", optional=True, positive=True
    )
    capacity: Number = quantity(
        "B", "capacity; left out where a stack gives it", optional=True, positive=True
    )
    efficiency: Number = quantity("1", "sustained fraction of the peak for long streams", positive=True)
    stream_efficiency: Number = quantity(
        "1",
        "sustained fraction of the peak when kernels read and write tensors from end to end",
        positive=True,
    )
    attention_efficiency: Number = quantity(
        "1", "sustained fraction of the peak when attention reads keys and values", positive=True
    )
    grouped_efficiency: Number = quantity(
        "1",
        "sustained fraction of the peak when grouped products read the weights of many experts",
        positive=True,
    )
    latency: Number = quantity("s", "load to use, unloaded")
    exposed: Number = quantity(
        "1", "share of a product's DRAM time that shows although its cores are busy, or the reverse"
    )


@register_pytree
@dataclass(frozen=True, eq=False)
class Overhead:
    """Fixed times of a kernel."""

    kernel: Number = quantity(
        "s", "floor of one matrix product inside a captured graph: start, fill and drain"
    )
    stream: Number = quantity("s", "floor of one streaming kernel inside a captured graph")
    cold: Number = quantity(
        "s",
        "what a streaming kernel or a product adds to its floor where data is not in the cache: addresses looked up, first rows opened",
    )
    grouped: Number = quantity("s", "floor of one grouped product of experts inside a captured graph")
    attention: Number = quantity("s", "floor of one attention kernel inside a captured graph")
    tile: Number = quantity(
        "s", "start and end of one tile of a product on a core, which its main loop does not hide"
    )
    query_block: Number = quantity(
        "s", "start and end of one further block of queries on a core, in attention"
    )
    quantise: dict[str, Number] = by_name(
        "s", "bringing activations to a narrower format before a product, as serving frameworks do it"
    )
    quantise_bytes: dict[str, Number] = by_name(
        "B", "traffic of that for each activation: passes over it, and what they waste"
    )
    step: dict[str, Number] = by_name(
        "s", "least time of a tile's main loop for each unit of depth, by format of the product"
    )
    split: dict[str, Number] = by_name(
        "s", "adding up the parts of a product that was cut to fill the cores, by format of the product"
    )
    merge: Number = quantity("s", "merging the parts of an attention whose cache was cut to fill the cores")
    launch: Number = quantity("s", "host time to launch one kernel without a graph")


@register_pytree
@dataclass(frozen=True, eq=False)
class Served:
    """Attention as a serving framework calls it, over a cache in pages: its own kernels and what it does
    around them.
    """

    efficiency: Number = quantity(
        "1", "fraction of the matrix peak the products of a prompt sustain", positive=True
    )
    step_efficiency: dict[str, Number] = by_name(
        "1", "fraction of the matrix peak the products of one step sustain, for each format of the cache"
    )
    softmax_exposed: Number = quantity("1", "share of the exponentials that the products do not hide")
    query_block: Number = quantity("s", "start and end of one block of queries of a prompt on a core")
    memory_efficiency: Number = quantity(
        "1", "sustained fraction of the DRAM peak when keys and values are read", positive=True
    )
    cache_efficiency: Number = quantity(
        "1",
        "sustained fraction of the shared cache's peak when keys and values are read from there",
        positive=True,
    )
    ramp: Number = quantity(
        "s", "most time a step loses until its reads of keys and values fill DRAM's queues"
    )
    merge: Number = quantity("s", "merging the parts of a step whose cache was cut to fill the cores")
    prompt: Number = quantity("s", "floor of a call for prompts: kernels, page tables, bookkeeping")
    floor: dict[str, Number] = by_name("s", "floor of a call for one step, for each format of the cache")


@register_pytree
@dataclass(frozen=True, eq=False)
class Experts:
    """Layers of routed experts as a serving framework runs them: grouped products, and sorting tokens around
    them.
    """

    efficiency: dict[str, Number] = by_name(
        "1", "fraction of the matrix peak grouped products sustain, for each format of weights"
    )
    memory_efficiency: Number = quantity(
        "1", "sustained fraction of the DRAM peak when the weights of many experts are read", positive=True
    )
    gather_efficiency: Number = quantity(
        "1",
        "sustained fraction of the DRAM peak when rows are gathered by expert and added up again",
        positive=True,
    )
    tile: Number = quantity(
        "s", "start and end of one tile on a core: pointers of its expert, first operands, writing the result"
    )
    sort: Number = quantity("s", "sorting a full block of tokens by expert")
    passes: dict[str, Number] = by_name(
        "1",
        "16-bit passes over the inputs of both products for each format of weights: rounding, scales, padding",
    )
    floor: dict[str, Number] = by_name(
        "s",
        "floor of the two products of a layer for each format of weights: starts, scales, pointers of experts",
    )


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class Energy:
    """Energy by level, and the limits on power."""

    matrix: dict[str, Number] = by_name("J/FLOP", "matrix operation, operands in registers")
    vector: Number = quantity("J/FLOP", "vector operation")
    sram: Number = quantity("J/B", "byte through a core's local memory")
    cache: Number = quantity("J/B", "byte through the shared cache")
    memory: Number = quantity(
        "J/B", "byte to or from DRAM, interface and array; left out where a stack gives it", optional=True
    )
    memory_array: Number = quantity(
        "J/B",
        "byte in the array and over the die of a stacked layer, without the joints to the logic",
        optional=True,
    )
    static_power: Number = quantity(
        "W", "power when idle and hot: leakage, clocks, board; of stacked DRAM only what its layers share"
    )
    layer_power: Number = quantity(
        "W", "power of one stacked DRAM layer at rest: refresh and standby", optional=True
    )
    power_limit: Number = quantity("W", "sustained power limit of the package or board")
    burst: Number = quantity(
        "1",
        "power over the limit that passes for some ten milliseconds, before the chip's controller answers",
        minimum=1,
    )
    voltage_slope: Number = quantity(
        "1", "part of the supply voltage that follows the clock: V/V_max = 1 - slope (1 - f/f_max)"
    )


@register_pytree
@dataclass(frozen=True, eq=False)
class Package:
    """What is built and what it costs."""

    process: str = text("process node of the compute die")
    die_area: Number = quantity("m2", "compute silicon of one chip, all dies")
    price: Number = quantity("USD", "price of one chip or module as bought", optional=True)


KINDS = ("gpu", "systolic", "dataflow")


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class Chip:
    """One device of a system."""

    name: str = text("short name, as in the file's name")
    title: str = text("what the vendor calls it")
    kind: str = text("how it computes", choices=KINDS)
    fabric: str = text("the fabric it is usually built into: a file of fabrics/")
    note: str = text("what a reader of these numbers should know", default="")
    aliases: str = text("other names users and data sets give it, separated by spaces", default="")
    compute: Compute = part(Compute, "cores and their peaks")
    cache: Cache = part(Cache, "memory shared by the cores on the die")
    memory: Memory = part(Memory, "DRAM")
    stack: Stack | None = part(Stack, "geometry of DRAM stacked on the die", optional=True)
    cooling_file: str = text(
        "how the stack is built up and cooled: a file of cooling/, or a TOML path", default=""
    )
    cooling: Cooling | None = part(Cooling, "its quantities, from that file", optional=True)
    heat: Heat | None = None  # resistances that follow from stack and cooling, solved once for each geometry
    floorplan_file: str = text("how it is made: a file of floorplans/, or a TOML path", default="")
    silicon: Silicon | None = part(Silicon, "its quantities, from that file", optional=True)
    # cores that fit the die by the floorplan; below the cores it has, it cannot be built
    cores_fit: Number | None = None
    overhead: Overhead = part(Overhead, "fixed times")
    paged: Served = part(Served, "attention of serving frameworks, heads in groups")
    latent: Served = part(Served, "latent attention (MLA) of serving frameworks")
    experts: Experts = part(Experts, "layers of routed experts of serving frameworks")
    energy: Energy = part(Energy, "energy and power")
    package: Package = part(Package, "silicon and price")
    sources: Sources = field(default_factory=Sources)


def chip(name: str, **changes: Any) -> Chip:
    """A chip by name or TOML path, with some quantities replaced by numbers, arrays or text with units.

    >>> h200 = chip("h200", **{"memory.bandwidth": "6 TB/s"})
    >>> h200.memory.bandwidth / 1e12, h200.sources["memory.bandwidth"].source
    (6.0, 'given by the caller')
    """
    named = {key: changes.pop(key) for key in NAMED if key in changes}
    return finished(*read_chip(name, named), changes)


def read_chip(name: str, named: dict[str, Any] = {}) -> tuple[Chip, dict[str, Param], str]:
    """A chip as its file has it, before what follows from its numbers is worked out; with the sources of its
    numbers and the file's name.
    """
    where = find("chip", name).name
    made, params = build(Chip, _written_out(load_table("chip", name) | named), where)
    for precision in (*made.compute.matrix_rate, *made.energy.matrix):
        check(precision)
    return made, params, where


def finished(made: Chip, params: dict[str, Param], where: str, changes: Mapping[str, Any]) -> Chip:
    """A chip read from a file with some quantities replaced, and what follows from them."""
    made, given = override(made, changes, "chip")
    made = _finish(made, where)
    return replace(made, sources=Sources(params).updated(given))


NAMED = {"cooling_file": ("cooling", "cooling"), "floorplan_file": ("silicon", "floorplans")}


def _written_out(table: dict[str, Any]) -> dict[str, Any]:
    """A chip's table with the files it names written out; what the chip says itself goes before."""
    for key, (where, kind) in NAMED.items():
        if table.get(key):
            table = table | {where: merged(load_table(kind, str(table[key])), table.get(where, {}))}
    return with_memory(table)


def _with_cores(made: Chip, where: str) -> Chip:
    """A chip with the cores that fit its die (at least one) unless they are given, and its peaks in
    proportion to them.
    """
    compute = made.compute
    if made.silicon is not None:
        check_silicon(made.silicon, where)
    if made.silicon is not None and made.silicon.floorplan is not None:
        fit = usable_cores(area_of(made, made.silicon), made.silicon)
        cores = namespace(fit).maximum(fit, 1.0) if compute.cores is None else compute.cores
        compute, made = replace(compute, cores=cores), replace(made, cores_fit=fit)
    require(
        compute.cores is not None, f"{where}: compute.cores is missing and there is no floorplan to give it"
    )
    if compute.peak_cores is None:
        return replace(made, compute=compute)
    share = compute.cores / compute.peak_cores
    rates = {name: rate * share for name, rate in compute.matrix_rate.items()}
    compute = replace(
        compute,
        matrix_rate=rates,
        vector_rate=compute.vector_rate * share,
        special_rate=compute.special_rate * share,
    )
    return replace(made, compute=compute)


def _with_energy(made: Chip, where: str) -> Chip:
    r"""A chip with the energy of a byte of DRAM: as stated, or what its array takes and the joints on the way
    to it.

    .. math:: e = e_{array} + \bar e(n)

    n connected layers (`vertical_energy`): the deeper they go, the more a byte costs.

    >>> [round(float(chip("stack-ref", layers=n).energy.memory) * 1e12, 1) for n in (1, 4, 12)]  # pJ/B
    [15.4, 16.0, 17.6]
    """
    energy = made.energy
    if energy.memory_array is None:
        require(
            energy.memory is not None,
            f"{where}: energy.memory is missing and there is no energy.memory_array to give it",
        )
        return made
    told = energy.memory is not None
    require(
        not told,
        f"{where}: energy.memory follows from energy.memory_array and the stack; change that instead",
        memory=energy.memory,
    )
    if made.stack is None or made.silicon is None:
        raise MissingQuantity(
            f"{where}: energy.memory_array needs a [stack] and floorplan_file, which say what lies between it and the logic; or give energy.memory"
        )
    joints = vertical_energy(bonding(made.silicon.bonding), connected(made.stack))
    return replace(made, energy=replace(energy, memory=energy.memory_array + joints))


def _finish(made: Chip, where: str) -> Chip:
    if made.stack is not None:
        check_stack(made.stack, where)
        if made.stack.dram is not None:
            check_dram(made.stack.dram, where)
        for name in ("bandwidth", "capacity"):
            told = getattr(made.memory, name) is not None
            require(
                not told,
                f"{where}: memory.{name} follows from the stack; change a quantity of stack instead",
                **{name: getattr(made.memory, name)},
            )
        memory = replace(
            made.memory, bandwidth=stack_bandwidth(made.stack), capacity=stack_capacity(made.stack)
        )
        made = replace(made, memory=memory)
        if made.cooling is not None and made.stack is not None:
            made = replace(made, heat=heat_of(made.stack, made.cooling, made.package.die_area))
    if made.cache.over_memory is not None:
        require(
            made.cache.bandwidth is None,
            f"{where}: cache.bandwidth follows DRAM's by cache.over_memory",
            bandwidth=made.cache.bandwidth,
        )
        made = replace(
            made, cache=replace(made.cache, bandwidth=made.cache.over_memory * made.memory.bandwidth)
        )
    require(made.cache.bandwidth is not None, f"{where}: cache.bandwidth is missing")
    made = _with_cores(_with_energy(made, where), where)
    require(
        made.memory.bandwidth is not None,
        f"{where}: memory.bandwidth is missing and there is no stack to give it",
    )
    require(
        made.memory.capacity is not None,
        f"{where}: memory.capacity is missing and there is no stack to give it",
    )
    whole = made.compute.array_rows is not None and made.compute.array_columns is not None
    require(
        whole or made.kind == "gpu",
        f"{where}: a chip of this kind needs compute.array_rows and compute.array_columns",
        kind=made.kind,
    )
    fractions = {
        "matrix": made.compute.matrix_efficiency,
        "cache": made.cache.efficiency,
        "memory": made.memory.efficiency,
    }
    for name, value in fractions.items():
        high = max(float(v.max()) if hasattr(v, "max") else float(v) for v in leaves(value))
        require(high <= 1, f"{where}: an efficiency is a fraction of the peak and at most 1", **{name: high})
    missing = [p for p in made.compute.matrix_rate if p not in made.compute.matrix_efficiency]
    require(
        not missing, f"{where}: every matrix_rate needs its matrix_efficiency", missing=", ".join(missing)
    )
    return made


def sustained_memory(made: Chip) -> Number:
    """DRAM bandwidth a long stream gets [B/s]: the peak times its efficiency."""
    return made.memory.bandwidth * made.memory.efficiency


def sustained_cache(made: Chip) -> Number:
    """Shared-cache bandwidth a long stream gets [B/s]: the peak times its efficiency."""
    return made.cache.bandwidth * made.cache.efficiency
