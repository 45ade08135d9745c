"""Ops whose elements depend on all those before them along an axis: prefix sums, sorts, states
that pass from token to token, factorisations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from strata.base.arrays import Number, namespace
from strata.base.precision import bytes_of
from strata.workload.graph import ONE, Extent, Op, axes_of, total
from strata.workload.mixer import CHANNEL, DELTA
from strata.workload.ops import Gather, Vector

STATE = "state"  # what layers keep of a sequence between steps, as an operand
# Gradients of a chunk: scores and states are made again, and each product has two gradients (Dao,
# FlashAttention-2, arXiv 2307.08691, sec. 3.1: five products for two).
BACKWARD_FLOP = 2.5


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Scan(Op):
    """Prefix sums along the middle axis of [outer, length, inner]; inner 1: the axis whose elements are
    neighbours in memory.
    """

    kind: ClassVar[str] = "scan"
    category: ClassVar[str] = "vector"

    length: Extent
    precision: str
    outer: Extent = ONE
    inner: Extent = ONE

    def elements(self) -> Number:
        return self.outer.size * self.length.size * self.inner.size

    def vector_flop(self) -> Number:
        """One addition an element; operations of the vector units are not counted as useful."""
        return self.elements()

    def output_bytes(self) -> Number:
        return self.elements() * bytes_of(self.precision)

    def result_axes(self) -> tuple[str, ...]:
        return axes_of(self.outer, self.length, self.inner)

    def whole_axes(self) -> tuple[str, ...]:
        return axes_of(self.length)

    def gradient(self) -> tuple[Op, ...]:
        """The gradient of prefix sums is the sums from the other end: the same work."""
        return (self.turned(),)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Sort(Op):
    """Lines of `length` keys brought into order, each key with a value (an index) that goes along."""

    kind: ClassVar[str] = "sort"
    category: ClassVar[str] = "vector"

    length: Extent
    precision: str  # of a key
    lines: Extent = ONE
    value_bytes: Number = 8.0  # that go along with a key

    def elements(self) -> Number:
        return self.lines.size * self.length.size

    def output_bytes(self) -> Number:
        return self.elements() * (bytes_of(self.precision) + self.value_bytes)

    def result_axes(self) -> tuple[str, ...]:
        return axes_of(self.lines, self.length)

    def whole_axes(self) -> tuple[str, ...]:
        return axes_of(self.length)

    def gradient(self) -> tuple[Op, ...]:
        """Gradients go back to where their keys came from: elements at addresses of their own."""
        back = Gather(
            name=f"{self.name}_backward",
            module=self.module,
            inputs=(f"d_{self.output}",),
            output=f"d_{self.inputs[0]}@{self.name}",
            backward=True,
            m=self.lines,
            n=(self.length,),
            precision=self.precision,
            row=1.0,
        )
        return (back,)


def chunk_span(sequence: Number, chunk: Number) -> Number:
    """Mean number of tokens of its own chunk that a token sees, itself included; the last chunk is as long as
    the others.

    >>> chunk_span(8192.0, 256.0), chunk_span(1.0, 256.0)
    (128.5, 1.0)
    """
    return 0.5 * (namespace(sequence, chunk).minimum(sequence, chunk) + 1.0)


def decay_flop(key_heads: Number, heads: Number, key_dim: Number, value_dim: Number, span: Number) -> Number:
    r"""Operations of a token in a chunked scan of states that decay.

    .. math:: F = 2 g s d_k + h (2 s d_v + 4 d_k d_v)

    Scores against s tokens of the chunk for each of g key heads, their sums of values for each of h heads;
    a token's part of its chunk's state, and what it reads of the state before the chunk. s = 0 is a step that
    goes token by token.

    Dao & Gu, Mamba-2, arXiv 2405.21060, sec. 6 (the four steps of the block decomposition); Qin et al.,
    Lightning Attention-2, arXiv 2401.04658, sec. 3: the same with a key head for each head.

    >>> decay_flop(1.0, 80.0, 128.0, 64.0, 128.5)  # Mamba-2 2.7B, chunks of 256
    3970176.0
    """
    return 2.0 * key_heads * span * key_dim + heads * (2.0 * span * value_dim + 4.0 * key_dim * value_dim)


def delta_flop(heads: Number, key_dim: Number, value_dim: Number, span: Number, chunk: Number) -> Number:
    r"""Operations of a token under the delta rule, in chunks.

    .. math:: F = h \left(6 d_k d_v + 2 s (3 d_k + 2 d_v) + \frac{C^2}{3}\right)

    Keys against keys, queries against keys, and the triangular inverse of a chunk of C times keys and values,
    over s tokens each; that inverse; what values lose to the state, what queries read of it, what it gains.
    s = C = 0 is a step that goes token by token.

    Yang et al., arXiv 2406.06484, sec. 3.2, and Gated DeltaNet, arXiv 2412.06464, sec. 3.3 (the same products
    with decays). The report of Kimi Linear (arXiv 2510.26692) counts 6 d^2 + 3 C d + C^2 for a head of d.

    >>> ours, report = delta_flop(1.0, 128.0, 128.0, 32.5, 64.0), 6 * 128**2 + 3 * 64 * 128 + 64**2
    >>> round(ours / report, 2)
    1.11
    """
    chunked = 2.0 * span * (3.0 * key_dim + 2.0 * value_dim) + chunk * chunk / 3.0
    return heads * (6.0 * key_dim * value_dim + chunked)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class StateScan(Op):
    """Tokens that pass a state: in chunks of a prompt, or one by one (`stepwise`) in a decode step.

    Its operands are the tokens' values, keys and queries with what decides how the state decays, and last the
    state. Where ranks share out the tokens of a sequence, each takes the states that those before it leave
    (Sun et al., LASP-2, arXiv 2502.07563): a gather of states, never of tokens.
    """

    kind: ClassVar[str] = "state_scan"
    category: ClassVar[str] = "attention"

    rule: str  # channel, decay or delta
    sequences: Extent
    queries: Extent  # tokens of each
    share: Extent  # of a sequence that one rank has
    heads: Extent
    key_heads: Extent
    key_dim: Number
    value_dim: Number
    chunk: Number
    activation: str
    state: str
    stepwise: bool = False
    fine: bool = False  # every row of a state decays by itself

    def rows(self) -> Number:
        return self.sequences.size * self.queries.size

    def chunk_length(self) -> Number:
        return namespace(self.queries.size, self.chunk).minimum(self.queries.size, self.chunk)

    def chunks(self) -> Number:
        """Chunks of all sequences."""
        return self.rows() / self.chunk_length()

    def state_elements(self) -> Number:
        """Elements of the states of one sequence."""
        return self.heads.size * self.key_dim * self.value_dim

    def flop(self) -> Number:
        """Products with states and inside chunks; channels that decay by themselves are no products."""
        if self.rule == CHANNEL:
            return 0.0
        span: Number = 0.0 if self.stepwise else chunk_span(self.queries.size, self.chunk)
        if self.rule == DELTA:
            length: Number = 0.0 if self.stepwise else self.chunk_length()
            each = delta_flop(self.heads.size, self.key_dim, self.value_dim, span, length)
        else:
            sizes = (self.key_heads.size, self.heads.size, self.key_dim, self.value_dim)
            each = decay_flop(*sizes, span)
        return each * self.rows() * (BACKWARD_FLOP if self.backward else 1.0)

    def vector_flop(self) -> Number:
        """Operations of the vector units: a state that is stepped through decays, gains and is read there; in
        chunks each score is weighed by its decay.
        """
        grown = BACKWARD_FLOP if self.backward else 1.0
        if self.stepwise or self.rule == CHANNEL:
            per_element = 7.0 if self.rule in (CHANNEL, DELTA) else 5.0
            return self.rows() * self.state_elements() * per_element * grown
        span = chunk_span(self.queries.size, self.chunk)
        fine = 4.0 * self.key_dim if self.fine else 0.0
        return self.rows() * self.heads.size * (2.0 * span + fine) * grown

    def special_flop(self) -> Number:
        """Exponentials: of every element of a state that decays by itself, else one a token and head, or a
        score.
        """
        grown = BACKWARD_FLOP if self.backward else 1.0
        if self.rule == CHANNEL:
            return self.rows() * self.state_elements() * grown
        each: Number = 2.0 * self.key_dim if self.fine else 1.0
        if not self.stepwise and not self.fine:
            each = chunk_span(self.queries.size, self.chunk)
        return self.rows() * self.heads.size * each * grown

    def token_bytes(self) -> Number:
        """Bytes of values, keys, queries and decays that it reads, and of results that it writes."""
        decays: Number = self.key_dim if self.fine else 1.0
        heads = self.heads.size * (2.0 * self.value_dim * bytes_of(self.activation) + decays * 4.0)
        keys = 2.0 * self.key_heads.size * self.key_dim * bytes_of(self.activation)
        return self.rows() * (heads + keys) * (2.0 if self.backward else 1.0)

    def kept_states(self) -> Number:
        """States kept of each sequence: one after each token that a step verifies, so that those of refused
        guesses can be dropped (vLLM, vllm/v1/attention/backends/gdn_attn.py: a slot for each guess and one).
        """
        return self.queries.size if self.stepwise else 1.0

    def state_bytes(self) -> Number:
        return 0.0 if self.backward else self.held_bytes() * self.kept_states()

    def held_bytes(self) -> Number:
        """Bytes of the states of all sequences."""
        return self.sequences.size * self.state_elements() * bytes_of(self.state)

    def output_bytes(self) -> Number:
        return self.rows() * self.heads.size * self.value_dim * bytes_of(self.activation)

    def operand_axes(self, place: int) -> tuple[str, ...]:
        if self.inputs[place] == STATE:
            return axes_of(self.sequences, self.heads)
        return axes_of(self.sequences, self.queries, self.heads, self.key_heads)

    def stored_axes(self, place: int) -> tuple[str, ...]:
        stored = self.inputs[place] == STATE
        return axes_of(self.sequences, self.share, self.heads) if stored else ()

    def operand_bytes(self, place: int) -> Number | None:
        if self.inputs[place] != STATE:
            return None
        # Under the delta rule what a rank does to the state it takes is a matrix of rows by rows beside.
        wider = (self.key_dim + self.value_dim) / self.value_dim if self.rule == DELTA else 1.0
        return self.held_bytes() / self.share.size * wider * (2.0 if self.backward else 1.0)

    def result_axes(self) -> tuple[str, ...]:
        return axes_of(self.sequences, self.queries, self.heads, self.key_heads)

    def gradient(self) -> tuple[Op, ...]:
        """The scan from the other end; what all channels share (B and C of Mamba-1, its last operand before
        the state) has a sum over them.
        """
        back = self.turned(reads_forward=True)
        if self.rule != CHANNEL:
            return (back,)
        shared = Vector(
            name=f"{self.name}_shared",
            module=self.module,
            inputs=(back.output,),
            output=f"{back.output}_shared",
            backward=True,
            m=Extent(self.sequences.count, self.queries.unit, "tokens"),
            n=(Extent(2.0 * self.key_dim),),
            flop_per_element=1.0,
            precision=self.activation,
            looked_up=axes_of(self.heads),
            beside=(self.heads,),
        )
        return back, shared

    def gradient_place(self, place: int, gradients: tuple[Op, ...]) -> Op:
        return gradients[1 if self.rule == CHANNEL and place == self.gradients - 1 else 0]


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ShortConvolution(Vector):
    """Each channel summed over its last `width` tokens by weights of its own; the last width - 1 inputs of
    each sequence are kept for the next step.
    """

    sequences: Extent
    width: Number
    taps: Number  # weights of a channel, with its bias

    def weight_elements(self) -> Number:
        return 0.0 if self.backward else total(self.n) * self.taps

    def state_bytes(self) -> Number:
        kept = self.sequences.size * (self.width - 1.0) * total(self.n)
        return 0.0 if self.backward else kept * bytes_of(self.precision)


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class LuFactor(Op):
    """P A = L U of square matrices in place, with partial pivoting, block of columns after block of columns.

    A block is factorised in panels, whose columns follow each other; what lies right of a block is updated by
    products as deep as it. Matrices of a batch follow each other.
    """

    kind: ClassVar[str] = "lu"
    category: ClassVar[str] = "matmul"
    multiplies: ClassVar[bool] = True

    order: Extent
    precision: str
    batch: Extent = ONE
    block: Number = 512.0  # columns whose updates of the rest are one product
    panel: Number = 64.0  # columns whose updates of the rest of the block are one product

    def flop(self) -> Number:
        r"""Useful operations.

        .. math:: F = \tfrac{2}{3} b n^3

        b matrices of order n. Golub & Van Loan, Matrix Computations (2013), sec. 3.2.

        >>> no = {"name": "", "module": "", "inputs": (), "output": ""}
        >>> float(LuFactor(order=Extent(300.0), precision="fp64", **no).flop())
        18000000.0
        """
        return 2.0 * self.batch.size * self.order.size**3 / 3.0

    def output_bytes(self) -> Number:
        return self.batch.size * self.order.size**2 * bytes_of(self.precision)

    def result_axes(self) -> tuple[str, ...]:
        return axes_of(self.batch, self.order)

    def whole_axes(self) -> tuple[str, ...]:
        return axes_of(self.order)
