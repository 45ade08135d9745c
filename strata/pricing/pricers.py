"""What a step is priced with: the graph of one rank, its division, its place on a system, the engine; and one
table of pricers: the kind of an op to its price on one rank. A new kind is one line there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from strata.base.arrays import Number, field_names, namespace
from strata.base.errors import BadValue
from strata.base.memo import Memo, is_settled, settled_record, value_key
from strata.hardware.chip import Chip
from strata.hardware.fabric import Fabric
from strata.hardware.system import System
from strata.mapping.layout import Sharding
from strata.mapping.place import Placement
from strata.pricing.kernels.attention import (
    BACKWARD_KERNELS,
    price_attention,
    unfused_attention,
    unfused_kernels,
)
from strata.pricing.kernels.attention_shape import attention_shape
from strata.pricing.kernels.device import Device, device, shared_device, software_of, training_software
from strata.pricing.kernels.experts import price_gather
from strata.pricing.kernels.graph_product import price_matmul, price_routed
from strata.pricing.kernels.numerical import price_fft, price_lu, price_scan, price_sort, price_state_scan
from strata.pricing.kernels.traffic import TILE_ROWS, tile_waves
from strata.pricing.kernels.vector import price_custom, price_loss, price_vector, vector_kernels
from strata.pricing.network.collectives import device_fabric, price_collective
from strata.pricing.network.expert_exchange import price_exchange
from strata.pricing.price import Price
from strata.software.engine import Engine, KernelLibrary, kernel_library
from strata.workload.expert_ops import ExpertMatMul
from strata.workload.graph import Collective, Graph, Op, total
from strata.workload.ops import Attention, MatMul
from strata.workload.tasks import Workload

PricedOp = tuple[Op, Price]


@dataclass(frozen=True, eq=False, kw_only=True)
class Rank:
    """What one rank prices ops with: its device, and where its groups lie on the fabric."""

    device: Device
    placement: Placement
    fabric: Fabric
    sent: dict[Any, Price] = field(default_factory=dict)  # prices of its collectives, as far as known


@dataclass(frozen=True, eq=False)
class KernelPrices:
    """Prices of kernels, and what a rank's blocks hold, whatever collectives run on: once for two engines."""

    devices: list[Device] = field(default_factory=list)  # one at most
    prices: dict[int, tuple[Op, Price]] = field(default_factory=dict)  # by identity of the op, which is held
    held: dict[Any, Any] = field(default_factory=dict)

    def same(self, device: Device) -> bool:
        """Whether kernels cost on a device what they cost here; the first one that asks is taken."""
        if not self.devices:
            self.devices.append(device)
        return same_numbers(self.devices[0], device)

    def of(self, op: Op, rank: Rank) -> Price:
        """The price of an op on the device, worked out where it is not known."""
        if op.kind == "collective":
            return price_op(op, rank)
        if id(op) not in self.prices:
            self.prices[id(op)] = (op, price_op(op, rank))
        return self.prices[id(op)][1]


_UNPRICED = ("name", "module", "inputs", "output")  # fields of an op that no price looks at
_PRICED: dict[type, tuple[str, ...]] = {}


def _sizes_of(op: Op) -> Any:
    """What an op is priced by, as a key: ops of one kind and of the same sizes cost the same."""
    kind = op.__class__
    names = _PRICED.get(kind)
    if names is None:
        names = _PRICED[kind] = tuple(name for name in field_names(kind) if name not in _UNPRICED)
    return value_key(kind.kind, *[getattr(op, name) for name in names])


def same_numbers(one: Any, other: Any) -> bool:
    """Whether two records hold the same numbers, as far as is seen without arrays being compared.

    >>> from strata.hardware.chip import chip
    >>> same_numbers(chip("h200"), replace(chip("h200"))), same_numbers(chip("h200"), chip("h100"))
    (True, False)
    """
    if one is other:
        return True
    if one.__class__ is not other.__class__:
        return False
    if is_dataclass(one):
        return all(
            same_numbers(getattr(one, f.name), getattr(other, f.name))
            for f in fields(one)
            if f.name not in MEMOS
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_numbers(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same_numbers, one, other))
    return isinstance(one, float | str | bool) and one == other


MEMOS = ("rates", "loads", "prices")  # of a device: worked out from the rest
NO_LIMIT = 1e30  # B/s of a DRAM that is out of the way


def on_chip(device: Device) -> Device:
    """The same device with DRAM out of the way: what a fused kernel's own time is priced on.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> on_chip(device(chip("sn40l"))).chip.memory.bandwidth == NO_LIMIT
    True
    """
    memory = replace(device.chip.memory, bandwidth=NO_LIMIT)
    return replace(device, chip=replace(device.chip, memory=memory), bandwidth=NO_LIMIT, banks=None)


@dataclass(frozen=True)
class Pricer:
    """How a kind of op is priced, and what collectives and the host see of its kernels."""

    price: Callable[[Any, Rank], Price]
    # of an op, a device, and ranks of the collective
    pieces: Callable[[Any, Device, Number], Number] | None = None
    # kernels of an op of a training step that the host launches; one where there is none
    kernels: Callable[[Any, Device], Number] | None = None


PRICERS: dict[str, Pricer] = {}


def register_pricer(
    kind: str,
    price: Callable[[Any, Rank], Price],
    pieces: Callable[[Any, Device, Number], Number] | None = None,
    kernels: Callable[[Any, Device], Number] | None = None,
) -> None:
    """Add the pricer of a kind of op; a second one for a kind is refused."""
    if kind in PRICERS:
        raise BadValue(f"ops of kind '{kind}' have a pricer already; give the new kind a name of its own")
    PRICERS[kind] = Pricer(price, pieces, kernels)


def price_op(op: Op, rank: Rank) -> Price:
    """The price of any op of a rank's graph."""
    found = PRICERS.get(op.kind)
    if found is None:
        raise BadValue(f"no pricer for ops of kind '{op.kind}'; there: {', '.join(PRICERS)}")
    pricer, known = found.price, rank.device.prices
    if known is None or op.kind == Collective.kind:
        return pricer(op, rank)
    return known.of(_sizes_of(op), lambda: pricer(op, rank))


def tile_pieces(op: Op, device: Device, ranks: Number) -> Number:
    """Pieces a kernel makes or takes in turn: waves of tiles; blocks of keys and values that go round."""
    found = PRICERS[op.kind].pieces
    return 1.0 if found is None else found(op, device, ranks)


def launched_kernels(op: Op, device: Device) -> Number:
    """Kernels that the host launches for an op of a training step."""
    found = PRICERS[op.kind].kernels
    return 1.0 if found is None else found(op, device)


def takes_tiles(op: Op) -> bool:
    """Whether a kernel may run beside the collective that feeds it, or that it feeds, tile by tile."""
    return PRICERS[op.kind].pieces is not None


def _product_pieces(op: MatMul, device: Device, ranks: Number) -> Number:
    return tile_waves(op.m.size, total(op.n), op.batch.size, device.cores)


def _expert_pieces(op: ExpertMatMul, device: Device, ranks: Number) -> Number:
    rows = op.tokens.size * op.top_k * op.experts.size / op.slots
    xp = namespace(rows, op.experts.size)
    # Each expert that is asked has a tile of its own, however short.
    filled = TILE_ROWS * xp.maximum(rows / TILE_ROWS, xp.minimum(rows, op.experts.size))
    return tile_waves(filled, total(op.n), 1.0, device.cores)


def _attention_pieces(op: Attention, device: Device, ranks: Number) -> Number:
    return ranks


def _price_attention(op: Attention, rank: Rank) -> Price:
    """One fused kernel, or kernels one by one where the software has no other."""
    if rank.device.software.unfused_attention:
        return unfused_attention(attention_shape(op), rank.device)
    return price_attention(op, rank.device)


def _attention_kernels(op: Attention, device: Device) -> Number:
    if device.software.unfused_attention:
        return unfused_kernels(op.backward)
    return BACKWARD_KERNELS if op.backward else 1.0


def _price_collective(op: Collective, rank: Rank) -> Price:
    """Collectives of one group and of the same bytes cost the same: priced once for a rank."""
    key = value_key(op.pattern, op.group, op.payload, op.steps, bool(op.overlaps), op.exchange)
    found = rank.sent.get(key)
    if found is None or key is None:
        price = price_collective if op.exchange is None else price_exchange
        found = price(op, rank.placement.groups[op.group], rank.fabric)
        if op.overlaps:  # a batch holds steps that some of its points do not take
            found = found.times(namespace(op.payload, op.steps).where(op.payload > 0, op.steps, 0.0))
        rank.sent[key] = found
    return found


register_pricer("matmul", lambda op, rank: price_matmul(op, rank.device), _product_pieces)
register_pricer("experts", lambda op, rank: price_routed(op, rank.device), _expert_pieces)
register_pricer("attention", _price_attention, _attention_pieces, _attention_kernels)
register_pricer(
    "vector",
    lambda op, rank: price_vector(op, rank.device),
    kernels=lambda op, device: vector_kernels(op, device.software.fused),
)
register_pricer(
    "loss",
    lambda op, rank: price_loss(op, rank.device),
    kernels=lambda op, device: vector_kernels(op, device.software.fused_loss),
)
register_pricer("gather", lambda op, rank: price_gather(op, rank.device))
register_pricer("fft", lambda op, rank: price_fft(op, rank.device))
register_pricer("lu", lambda op, rank: price_lu(op, rank.device))
register_pricer("scan", lambda op, rank: price_scan(op, rank.device))
register_pricer("state_scan", lambda op, rank: price_state_scan(op, rank.device))
register_pricer("sort", lambda op, rank: price_sort(op, rank.device))
register_pricer("custom", lambda op, rank: price_custom(op, rank.device))
register_pricer("collective", _price_collective)


@dataclass(frozen=True, eq=False)
class Structure:
    """What is fixed for a batch and hashed by a compiler."""

    active: frozenset[str]
    rank: int = 0
    for_bounds: bool = False  # prices below which no design of a box can be (search/bounds.py)
    time_alone: bool = False  # of a step only its time is asked for, and no memory is counted
    slowest: bool = False  # of several ways to run a step the slowest, above which no design of a box can be

    @property
    def pipelined(self) -> bool:
        return "pp" in self.active


@dataclass(frozen=True, eq=False, kw_only=True)
class Pricing:
    """What the step of a rank's graph is priced with."""

    graph: Graph  # of one rank
    unsharded_graph: Graph
    sharding: Sharding
    placement: Placement
    system: System
    engine: Engine
    work: Workload
    structure: Structure
    halves: Graph | None = None  # of one rank at half the batch, where two halves may run beside each other
    held: dict[Any, Any] = field(default_factory=dict)  # what its blocks hold, as far as known

    @property
    def training(self) -> bool:
        return any(block.direction == "backward" for block in self.graph.blocks)


def rank_in_step(given: Pricing) -> Rank:
    """One rank as an engine's kernels find it in a step of this kind."""
    engine = given.engine
    library = kernel_library(engine.kernels, given.system.chip.platform)
    chip = chip_under_library(given.system.chip, library, engine)
    software = software_of(
        library,
        weight_only=given.graph.weight_only,
        for_bounds=given.structure.for_bounds,
        **(training_software(engine) if given.training else {}),
    )
    dev = (device if given.structure.rank else shared_device)(chip, software)
    return Rank(device=dev, placement=given.placement, fabric=device_fabric(given.system.fabric, dev))


def chip_under_library(chip: Chip, library: KernelLibrary, engine: Engine) -> Chip:
    r"""A chip whose products run as a library has them: at its share of the best kernels' rate, with least
    loop times :math:`q t (1 - p)`, q times those of the best kernels.

    Kernels were timed one by one. In a captured graph the weights of the next are fetched while one ends
    (programmatic dependent launch), which hides the share p of the time a loop takes however few its tokens.

    >>> from strata.hardware.chip import chip
    >>> from strata.software.engine import engine
    >>> from strata.software.engine import kernel_library
    >>> half = replace(kernel_library("bare"), pdl_overlap=0.5)
    >>> under = chip_under_library(chip("b200"), half, engine("ideal"))
    >>> round(float(under.overhead.step["bf16"] / chip("b200").overhead.step["bf16"]), 3)
    0.5
    """
    xp = namespace(engine.cuda_graphs, library.pdl_overlap)
    left = 1.0 - xp.where(engine.cuda_graphs > 0, library.pdl_overlap, 0.0)
    loop = left * library.product_loop
    key = value_key(loop, library.product_rate) if is_settled(chip) else None
    if key is None:
        return _with_rates(chip, loop, library.product_rate)
    return _CHIPS.of((chip, key), lambda: settled_record(_with_rates(chip, loop, library.product_rate)))


_CHIPS = Memo(128)


def _with_rates(chip: Chip, loop: Number, rate: Number) -> Chip:
    """A chip with `loop` times its least loop times, and a share of its rate of products, scaled sums too."""
    overhead = replace(chip.overhead, step={name: time * loop for name, time in chip.overhead.step.items()})
    shares = {name: share * rate for name, share in chip.compute.matrix_efficiency.items()}
    scaling = chip.compute.rescale
    slower = None if scaling is None else {name: q / rate for name, q in scaling.items()}
    compute = replace(chip.compute, matrix_efficiency=shares, rescale=slower)
    return replace(chip, overhead=overhead, compute=compute)
