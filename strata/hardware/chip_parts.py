"""The parts of a chip: compute, cache, memory, fixed times, kernels of frameworks, energy and package.

Peaks are datasheet figures; what is delivered is peak times an efficiency, and the two are two numbers.
"""

from __future__ import annotations

from strata.base.arrays import Number
from strata.params import by_name, positive, quantity, record, text, texts

DATAFLOWS = ("ws", "os", "as", "best")  # what stays: weights, outputs, activations, or the best of them


@record
class Compute:
    """Cores with matrix units, vector lanes and a local memory each."""

    cores: Number = quantity(
        "1",
        "cores that take one tile at a time: SMs, compute units, matrix arrays; left out where a floorplan "
        "gives them",
        optional=True,
        minimum=1,
    )
    peak_cores: Number | None = quantity(
        "1", "cores the peaks are quoted for, where a floorplan gives the cores", minimum=1
    )
    clock: Number = positive("Hz", "clock at which the peaks are quoted")
    max_clock: Number = positive("Hz", "highest clock the cores run at while power allows it")
    matrix_rate: dict[str, Number] = by_name(
        "FLOP/s", "dense matrix peak of the whole chip for each precision", more="faster at equal cores"
    )
    matrix_efficiency: dict[str, Number] = by_name(
        "1", "fraction of the matrix peak a large matmul sustains, for each precision"
    )
    attention_efficiency: Number = positive(
        "1", "fraction of the matrix peak the products inside attention sustain"
    )
    grouped_efficiency: Number = positive(
        "1", "share of a plain product's rate that grouped products of experts reach"
    )
    softmax_exposed: Number = quantity("1", "share of attention's exponentials that its products do not hide")
    attention_backward: Number | None = positive(
        "1",
        "rate of the products inside attention's backward pass over those of its forward pass; left out: the "
        "same, and no passes beside them",
    )
    attention_backward_narrow: Number | None = positive(
        "1", "the same of products in a narrower format than the activations'; left out: attention_backward"
    )
    softmax_backward: Number | None = quantity(
        "1",
        "vector work that shows for a pair of query and key in attention's backward pass, over that of its "
        "forward pass; left out: the same",
    )
    fft_efficiency: Number = positive(
        "1",
        "fraction of the vector peak that Fourier transforms sustain in several passes, or of lines whose "
        "length is no power of two",
    )
    scan_efficiency: Number = positive(
        "1",
        "fraction of the matrix peak that products inside one chunk and head of a scan of states sustain (64 "
        "to 256 tokens by 64 to 128 columns)",
    )
    vector_rate: Number = positive(
        "FLOP/s", "fp32 vector peak of the whole chip", more="faster at equal cores"
    )
    special_rate: Number = positive(
        "FLOP/s",
        "exponentials and other special functions a second of the whole chip",
        more="faster at equal cores",
    )
    tile_m: Number = quantity("1", "smallest output rows the matrix unit fills", minimum=1)
    tile_n: Number = quantity("1", "smallest output columns the matrix unit fills", minimum=1)
    tile_results: Number | None = quantity(
        "1",
        "results of the largest tile whose sums half of a core's registers hold; left out: 128 x 256",
        minimum=1,
    )
    sram_capacity: Number = quantity("B", "local memory of one core", more="faster at equal cores")
    sram_bandwidth: Number = positive("B/s", "local memory bandwidth of one core", more="faster")
    units: Number | None = quantity(
        "1",
        "matrix units of one core, each with an array of its own: tensor cores; left out where a core is one",
        minimum=1,
    )
    array_rows: Number | None = quantity(
        "1",
        "rows of the array of multiply-add cells in a matrix unit; systolic and dataflow chips need them",
        minimum=1,
    )
    array_columns: Number | None = quantity("1", "columns of that array", minimum=1)
    rescale: dict[str, Number] | None = by_name(
        "1",
        "vector operations for each result and block of depth with which sums of blocks are scaled and added "
        "up, for formats whose matrix units do not; left out: part of matrix_efficiency",
    )
    dataflow: str = text(
        "what arrays and memories held by software keep in place", choices=DATAFLOWS, default="best"
    )


@record
class Cache:
    """The memory all cores share on the die: L2, or the chip's whole SRAM where it is one pool."""

    capacity: Number = quantity("B", "capacity", more="faster at equal cores")
    bandwidth: Number = positive(
        "B/s", "peak bandwidth, reads; left out where it follows DRAM's", optional=True
    )
    over_memory: Number | None = positive(
        "1", "its peak as a multiple of DRAM's, where it follows that", more="faster at equal cores"
    )
    efficiency: Number = positive("1", "sustained fraction of the peak")
    core_bandwidth: Number = positive(
        "B/s", "what one core draws from it at most", more="faster at equal cores"
    )
    latency: Number = quantity("s", "load to use, and the work between two dependent loads of a kernel")
    dies: Number | None = quantity(
        "1",
        "compute dies that each have an equal part of it and fetch into that what their own cores need; left "
        "out: one cache for all cores",
        minimum=1,
    )


@record
class Memory:
    """The DRAM of a chip."""

    kind: str = text("kind of DRAM, like HBM3e")
    bandwidth: Number = positive(
        "B/s", "peak bandwidth; left out where a stack gives it", optional=True, more="faster"
    )
    capacity: Number = positive(
        "B", "capacity; left out where a stack gives it", optional=True, more="faster"
    )
    efficiency: Number = positive("1", "sustained fraction of the peak for long streams")
    stream_efficiency: Number = positive(
        "1", "sustained fraction of the peak when kernels read and write tensors from end to end"
    )
    attention_efficiency: Number = positive(
        "1", "sustained fraction of the peak when attention reads keys and values"
    )
    grouped_efficiency: Number = positive(
        "1", "sustained fraction of the peak when grouped products read the weights of many experts"
    )
    latency: Number = quantity("s", "load to use, unloaded")
    exposed: Number = quantity(
        "1", "share of a product's DRAM time that shows although its cores are busy, or the reverse"
    )


SCOPES = ("unit", "bundle", "global")


@record
class MemoryLevel:
    """One level of memory on the way to the arithmetic; its numbers are those of the whole chip."""

    name: str = text("what it is called: registers, tensor memory, L3")
    scope: str = text(
        "who shares one of it: a matrix unit, a bundle of them (a core), all of the chip", choices=SCOPES
    )
    capacity: Number = positive("B", "capacity of all of it together")
    bandwidth: Number = positive("B/s", "peak bandwidth of all of it together", more="faster")
    efficiency: Number = positive("1", "sustained fraction of the peak")
    latency: Number = quantity("s", "load to use")
    energy: Number = quantity("J/B", "byte through it")


@record
class Overhead:
    """Fixed times of a kernel."""

    kernel: Number = quantity(
        "s", "floor of one matrix product inside a captured graph: start, fill and drain"
    )
    stream: Number = quantity("s", "floor of one streaming kernel inside a captured graph")
    cold: Number = quantity(
        "s",
        "what a streaming kernel or a product adds to its floor where data is not in the cache: addresses "
        "looked up, first rows opened",
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
    column: Number = quantity(
        "s",
        "one column of a factorisation's panel, held by one group of threads: the search for its pivot, a "
        "swap, an update",
    )
    pivot: Number = quantity(
        "s", "what every doubling of a column beyond one group adds to that: a level of the search"
    )
    launch: Number = quantity("s", "host time to launch one kernel without a graph")


@record
class ServedAttention:
    """Attention as a serving framework calls it, over a cache in pages: its own kernels and what it does
    around them.
    """

    efficiency: Number = positive("1", "fraction of the matrix peak the products of a prompt sustain")
    step_efficiency: dict[str, Number] = by_name(
        "1", "fraction of the matrix peak the products of one step sustain, for each format of the cache"
    )
    softmax_exposed: Number = quantity("1", "share of the exponentials that the products do not hide")
    query_block: Number = quantity("s", "start and end of one block of queries of a prompt on a core")
    memory_efficiency: Number = positive(
        "1", "sustained fraction of the DRAM peak when keys and values are read"
    )
    cache_efficiency: Number = positive(
        "1", "sustained fraction of the shared cache's peak when keys and values are read from there"
    )
    ramp: Number = quantity(
        "s", "most time a step loses until its reads of keys and values fill DRAM's queues"
    )
    merge: Number = quantity("s", "merging the parts of a step whose cache was cut to fill the cores")
    prompt: Number = quantity("s", "floor of a call for prompts: kernels, page tables, bookkeeping")
    floor: dict[str, Number] = by_name("s", "floor of a call for one step, for each format of the cache")


@record
class ServedExperts:
    """Layers of routed experts as a serving framework runs them: grouped products, and sorting tokens around
    them.
    """

    efficiency: dict[str, Number] = by_name(
        "1", "fraction of the matrix peak grouped products sustain, for each format of weights"
    )
    memory_efficiency: Number = positive(
        "1", "sustained fraction of the DRAM peak when the weights of many experts are read"
    )
    gather_efficiency: Number = positive(
        "1", "sustained fraction of the DRAM peak when rows are gathered by expert and added up again"
    )
    tile: Number = quantity(
        "s", "start and end of one tile on a core: pointers of its expert, first operands, writing the result"
    )
    tile_rows: str = text(
        "token rows of the tiles a library chooses from, shortest first, separated by spaces",
        default="32 128",
    )
    core_bandwidth: Number | None = positive(
        "B/s", "what one core draws of an expert's weights at most; left out: never the limit"
    )
    sort: Number = quantity("s", "sorting a full block of tokens by expert")
    passes: dict[str, Number] = by_name(
        "1",
        "16-bit passes over the inputs of both products for each format of weights: rounding, scales, "
        "padding",
    )
    floor: dict[str, Number] = by_name(
        "s",
        "floor of the two products of a layer for each format of weights: starts, scales, pointers of "
        "experts",
    )


@record
class Energy:
    """Energy by level, and the limits on power."""

    matrix: dict[str, Number] = by_name("J/FLOP", "matrix operation, operands in registers")
    vector: Number = quantity("J/FLOP", "vector operation")
    score: Number | None = quantity("J", "score of attention beside its products; left out: none")
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
    static_power: Number = quantity("W", "power when idle and hot; of stacked DRAM what its layers share")
    layer_power: Number | None = quantity("W", "power of one stacked DRAM layer at rest: refresh and standby")
    power_limit: Number = quantity("W", "sustained power limit of the package or board", more="faster")
    held: Number = positive(
        "1",
        "share of the power limit that a long load draws where the limit binds: a controller stays a little "
        "below it",
    )
    burst: Number = quantity(
        "1",
        "power over the limit that passes for some ten milliseconds, before the chip's controller answers",
        minimum=1,
    )
    window: Number = positive(
        "s",
        "time over which the chip's controller holds its mean power: longer waits leave no room for more "
        "afterwards",
    )
    voltage_slope: Number = quantity(
        "1", "part of the supply voltage that follows the clock: V/V_max = 1 - slope (1 - f/f_max)"
    )


@record
class Package:
    """What is built and what it costs."""

    process: str = text("process node of the compute die")
    die_area: Number = quantity("m2", "compute silicon of one chip, all dies")
    price: Number | None = quantity("USD", "price of one chip or module as bought")


@record
class Generated:
    """Files that a chip is generated from, each by its name or TOML path."""

    technology: str = text("a file of technology/")
    budget: str = text("a file of budgets/")
    template: str = text("a file of templates/")
    device: str = text("memory off the die, a file of devices/; left out: the template's", default="")
    links: dict[str, str] = texts(
        "links of a network, a file of links/, by network; left out: the template's"
    )
    networks: str = text(
        "the template's networks that join its systems, innermost first, separated by spaces; left out: "
        "systems are built into the chip's fabric",
        default="",
    )
