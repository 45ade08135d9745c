"""What must be computed: ops joined by tensors with named axes, in blocks that follow one another.

An `Extent` knows which logical axis it lies on; a layout divides axes, never ops. Structure (which ops, which
tensors) is fixed by program family and phase; every size is a number or an array.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self, TypeGuard

from strata.base.arrays import SCALARS, Number, floor_div, has_axes, lead, namespace, rank_of
from strata.base.precision import bytes_of


@dataclass(frozen=True, eq=False, slots=True)
class Extent:
    """`count` indivisible units of `unit` elements along a logical axis; more than is useful with padding."""

    count: Number
    unit: Number = 1.0
    axis: str = ""  # an extent without an axis is never divided

    @property
    def size(self) -> Number:
        return self.count * self.unit


ONE = Extent(1.0)


def total(extents: tuple[Extent, ...]) -> Number:
    """Elements along a dimension made of several extents side by side, as in a fused q, k, v projection."""
    size = extents[0].size
    for extent in extents[1:]:
        size = size + extent.size
    return size


def volume(extents: tuple[Extent, ...]) -> Number:
    """Elements along all of several dimensions."""
    size: Number = 1.0
    for extent in extents:
        size = size * extent.size
    return size


def axes_of(*extents: Extent) -> tuple[str, ...]:
    """The named axes among extents, each once."""
    return tuple(dict.fromkeys(e.axis for e in extents if e.axis))


@dataclass(frozen=True, eq=False, slots=True)
class Tensor:
    """What flows between ops: a product of extents along named axes, in a storage format."""

    name: str
    extents: tuple[Extent, ...]
    format: str

    @property
    def axes(self) -> tuple[str, ...]:
        return axes_of(*self.extents)

    def elements(self) -> Number:
        return volume(self.extents)

    def bytes(self) -> Number:
        return self.elements() * bytes_of(self.format)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Op:
    """One kernel, and the protocol every kind of op answers.

    `kind` names its pricer (`pricing/pricers.py`), `category` the line of a breakdown it counts in. An op
    says which axes its operands and its result have and which of them it sums over; collectives follow from
    that and a layout.
    """

    kind: ClassVar[str] = "op"
    category: ClassVar[str] = "vector"
    route: ClassVar[str] = ""  # "dispatch" or "combine": it moves rows between ranks of tokens and of experts
    multiplies: ClassVar[bool] = False  # it multiplies matrices
    routed: ClassVar[bool] = False  # its rows go to experts
    linear: ClassVar[bool] = False  # it takes partial sums of its operand as they are: they may meet after it

    name: str
    module: str  # whose layout rules it
    inputs: tuple[str, ...]
    output: str
    role: str = ""  # what it is for where a pass must know, such as shared_expert
    backward: bool = False  # it carries a gradient
    weight_gradient: bool = False  # to a weight
    gradients: int = 99  # operands, from the first on, that its gradient flows back to
    frozen: bool = False  # its weights are not trained: no gradient of them, no optimiser state

    def flop(self) -> Number:
        """Useful operations; those beside matrix products and attention do not count as useful."""
        return 0.0

    def vector_flop(self) -> Number:
        """Operations of the vector units; they are not counted as useful."""
        return 0.0

    def weight_elements(self) -> Number:
        """Elements of weights of its own."""
        return 0.0

    def trained_elements(self) -> Number:
        """Of these, those that have gradients and optimiser state in training."""
        return 0.0 if self.frozen else self.weight_elements()

    def weight_bytes(self) -> Number:
        return 0.0

    def tied_bytes(self) -> Number:
        """Bytes of weights that another op stores: a pipeline may put that one on another device."""
        return 0.0

    def cache_bytes(self, page: Number) -> Number:
        """Bytes it keeps between steps for each token, in blocks of `page` tokens."""
        return 0.0

    def state_bytes(self) -> Number | None:
        """Bytes it keeps between steps whatever the length of sequences; None where it keeps no state."""
        return None

    def output_bytes(self) -> Number:
        """Bytes it writes for the ops after it."""
        return 0.0

    def result_bytes(self) -> Number:
        """Bytes of its result alone, without what it writes beside."""
        return self.output_bytes()

    def operand_axes(self, place: int) -> tuple[str, ...]:
        """Axes of the operand at a place of `inputs`: those of its result, where nothing else is said."""
        return self.result_axes()

    def stored_axes(self, place: int) -> tuple[str, ...]:
        """Axes of an operand that lies in memory between steps, as it lies there; () where an op made it."""
        return ()

    def operand_bytes(self, place: int) -> Number | None:
        """Bytes of one rank's part of that operand, where it is not simply what another op wrote."""
        return None

    def whole_axes(self) -> tuple[str, ...]:
        """Axes that must lie whole on a rank before it runs, although its own work on them is divided."""
        return ()

    def indivisible_axes(self) -> tuple[str, ...]:
        """Axes that its work cannot be divided along at all: each result needs all of them."""
        return ()

    def result_axes(self) -> tuple[str, ...]:
        return ()

    def contracted_axes(self) -> tuple[str, ...]:
        """Axes it sums over: where one is divided, its result is partial sums."""
        return ()

    def partial_bytes(self) -> Number:
        """Bytes of a partial result, as it is added up between ranks."""
        return self.output_bytes()

    def read_weight(self) -> Tensor | None:
        """The weight it reads of those that other ops store, as axes and bytes of one rank."""
        return None

    def kept_operand(self, place: int) -> Tensor | None:
        """An operand that the forward pass left, as axes and bytes of one rank."""
        return None

    def gradient(self) -> tuple[Op, ...]:
        """Ops that carry the gradient of its result back to its operands and weights."""
        return ()

    def turned(self, *, reads_forward: bool = False, **changes: Any) -> Self:
        """The op with changes as the gradient of its first operand: it reads that of its result, and what it
        read forward.
        """
        forward = tuple(f"forward:{name}" for name in self.inputs) if reads_forward else ()
        inputs, output = (f"d_{self.output}", *forward), f"d_{self.inputs[0]}@{self.name}"
        usual: dict[str, Any] = {"name": f"{self.name}_backward", "inputs": inputs, "output": output}
        return replace(self, **(usual | changes), backward=True)

    def gradient_place(self, place: int, gradients: tuple[Op, ...]) -> Op:
        """Of those ops, the one whose result is the gradient of the operand at a place."""
        return gradients[0]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Exchange:
    """Tokens on their way to experts or back: what kernels made for that send, and how uneven it is."""

    direction: str  # dispatch, combine, or "" where such kernels do not run (a library's all-to-all)
    tokens: Number  # of one rank
    top_k: Number
    experts: Number  # of the layer
    width: Number  # elements of a token
    element: Number  # bytes of one element as sent
    busiest: Number = 1.0  # picks that fall on the busiest rank, over the mean
    received: Number = 1.0  # tokens it gets, over the mean: one copy serves all of a token's picks on a rank
    groups: Number = 1.0  # equal parts of the experts, of which a token's router picks from some
    top_groups: Number = 1.0  # that many of them
    generates: bool = False  # of a step that only generates: no kernels for which the host must wait
    trains: bool = False  # of a training step: the trainer says what carries it


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Collective(Op):
    """Communication inside one group of ranks; `payload` is the whole buffer of one rank, in bytes."""

    kind: ClassVar[str] = "collective"
    category: ClassVar[str] = "collective"

    pattern: str  # all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send
    group: str
    payload: Number
    name: str = ""
    module: str = ""
    inputs: tuple[str, ...] = ()
    output: str = ""
    prefetch: bool = False  # it may run beside the block's own work
    steps: Number = 1.0  # one after the other, each with this payload
    overlaps: str = ""  # the op of the block whose equal parts run beside these steps
    exchange: Exchange | None = None  # of an all-to-all between experts


def is_collective(op: Op) -> TypeGuard[Collective]:
    return op.kind == Collective.kind


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Block:
    """Ops in order, as often as they stand in the program.

    `count` copies have weights of their own; each runs `repeats` times with the same weights (time steps of a
    recurrence). Sizes that change over iterations are `nodes`: weights with the ops at each node (a trailing
    matrix that shrinks), `ops` then being those of the first; weights add up to the number of iterations.
    """

    name: str
    ops: tuple[Op, ...]
    count: Number = 1.0
    repeats: Number = 1.0
    nodes: tuple[tuple[Number, tuple[Op, ...]], ...] = ()
    role: str = ""  # what it is in the program: embedding, attention, ffn, head
    direction: str = "forward"  # or backward
    entry: Tensor | None = None  # what it takes in: what a pipeline sends, what recomputation keeps
    output: Tensor | None = None  # what it hands on
    leaves: tuple[str, ...] = ()  # tensors whose sum that is; the last op's result where none is named
    gradient_of: str = ""  # the forward block of a backward one
    ahead: bool = False  # its collectives run an iteration ahead, beside its own work
    keeps: bool = True  # of training: a backward pass reads what it leaves; not below all that is trained

    @property
    def times(self) -> Number:
        """How often it runs in a pass over the program."""
        one = isinstance(self.repeats, float) and self.repeats == 1.0
        return self.count if one else self.count * self.repeats

    def at_nodes(self) -> tuple[tuple[Number, tuple[Op, ...]], ...]:
        return self.nodes or ((1.0, self.ops),)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class BlockSequence:
    """The order of blocks: some first, then layers (a prefix of one kind, then a period of kinds to the end),
    some last.

    A layer is the names of its blocks; names are structure, counts are quantities.
    """

    first: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    prefix_layers: Number = 0.0
    period: tuple[tuple[str, ...], ...] = ()
    layers: Number = 0.0
    last: tuple[str, ...] = ()

    def within(self, layers: Number, block: str) -> Number:
        """How often a block stands in the first so many layers.

        >>> moe = BlockSequence(prefix=("a", "f"), prefix_layers=3.0, period=(("a", "m"),), layers=61.0)
        >>> [float(moe.within(n, "m")) for n in (2.0, 10.0, 61.0)], float(moe.within(10.0, "f"))
        ([0.0, 7.0, 58.0], 3.0)
        """
        places = tuple(i for i, names in enumerate(self.period) if block in names)
        return layers_within(layers, self.prefix_layers, block in self.prefix, places, len(self.period))

    def in_layers(self, block: str) -> bool:
        return block in self.prefix or any(block in names for names in self.period)

    def starts_layer(self, block: str) -> bool:
        """Whether it is the first block of its layer."""
        return any(names[:1] == (block,) for names in (self.prefix, *self.period))

    def layer_blocks(self, index: int) -> tuple[str, ...]:
        """Blocks of one layer, counted from 0."""
        prefix = int(float(self.prefix_layers)) if self.prefix else 0
        return self.prefix if index < prefix else self.period[(index - prefix) % len(self.period)]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Graph:
    """Blocks and their order, with what the program counts: its items, the formats of its products, its
    indivisible units.
    """

    blocks: tuple[Block, ...]
    sequence: BlockSequence
    items: Number = 1.0  # what one pass yields
    item: str = "item"  # what one is called: token, sample, transform
    inputs: tuple[str, ...] = ()  # tensors that come from outside
    formats: tuple[tuple[str, str], ...] = ()  # weight and activation formats of its products
    weight_only: bool = False  # narrow weights are widened before each product
    units: dict[str, Number] = field(default_factory=dict)  # indivisible units of axes that layouts divide
    # axes that are one coordinate under two names: columns that a product makes, its reader's depth
    coordinates: dict[str, str] = field(default_factory=dict)
    resident: dict[str, Number] = field(default_factory=dict)  # bytes that no op reads, by purpose
    stream: str = ""  # the axis along which fused kernels pass tiles on to each other

    def ops(self) -> Iterator[tuple[Block, Op]]:
        for block in self.blocks:
            for op in block.ops:
                yield block, op

    def parameters(self) -> Number:
        """Stored weights, each counted once."""
        forward = (pair for pair in self.ops() if pair[0].direction == "forward")
        return sum((block.count * op.weight_elements() for block, op in forward), 0.0)

    def flop(self) -> Number:
        """Useful operations of one pass over the graph: matrix products and attention."""
        every = (
            block.times * weight * op.flop()
            for block in self.blocks
            for weight, ops in block.at_nodes()
            for op in ops
        )
        return sum(every, 0.0)


def checked(graph: Graph) -> Graph:
    """`check_graph` where it is asked for by STRATA_CHECK=1, as in the tests: after every pass."""
    if os.environ.get("STRATA_CHECK") != "1":
        return graph
    from strata.workload.graph_walks import check_graph  # laws of graphs, which this module describes

    return check_graph(graph)


def layers_within(
    layers: Number, prefix: Number, in_prefix: bool, places: tuple[int, ...], length: int
) -> Number:
    """How many of the first layers are of a kind: all of a prefix or none, then some places of a period."""
    xp = namespace(layers, prefix)
    inside = xp.minimum(layers, prefix) if in_prefix else 0.0 * layers
    return inside + places_within(xp.maximum(layers - prefix, 0.0), places, length)


def places_within(layers: Number, places: tuple[int, ...], length: int) -> Number:
    r"""How many of the first layers stand at some places of a period.

    .. math:: n = \sum_p \left\lfloor \frac{L + \ell - 1 - p}{\ell} \right\rfloor

    L layers, a period of ℓ layers, places p in it counted from 0.

    >>> float(places_within(10.0, (3,), 4)), float(places_within(10.0, (0, 1, 2, 3), 4))
    (2.0, 10.0)
    """
    if len(places) == length:
        return layers
    if not places:
        return 0.0 * layers
    if not has_axes(layers) and namespace(layers) is SCALARS:
        return sum((floor_div(layers + (length - 1 - place), length) for place in places), 0.0)
    # all places at once: a long list of layers stays one operation
    xp = namespace(layers)
    before = lead([float(length - 1 - place) for place in places], rank_of(layers), xp)
    return xp.sum(floor_div(layers + before, length), axis=0)
