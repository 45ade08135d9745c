"""Fused attention by its sizes: its shape, the blocks it is cut into, its cores' time and its energy."""

from __future__ import annotations

from dataclasses import dataclass

from strata.base.arrays import Number, ceil_div, floor_div, namespace
from strata.base.precision import bytes_of
from strata.hardware.chip import Chip
from strata.pricing.kernels.device import Device
from strata.workload.ops import Attention

QUERY_ROWS = 128.0  # query rows one core takes at a time in a long pass
KEY_ROWS = 128.0  # keys of a block: a causal pass computes it whole, and a cache is not cut finer
# new tokens of a sequence up to which latent attention runs its kernels for generated tokens: drafts that are
# verified
FEW_QUERIES = 16.0
# cores end evenly spread over the time of the last and longest block: half of it is waited for on average
TAIL = 0.5
# of an attention op: its extents, which may be arrays, and what else its price asks for
EXTENTS = ("sequences", "queries", "span", "cached", "heads", "kv_heads")
WIDTHS = ("key_dim", "value_dim", "kv_width", "activation", "kv", "products", "backward")


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class AttentionShape:
    """Softmax attention of `queries` new tokens of each sequence, over `span` of the `cached` ones each.

    `kv_width` elements are stored for one token and key head, in the format `kv`; `products` is the format of
    the products where it is narrower than the activations'.
    """

    sequences: Number
    queries: Number
    span: Number
    cached: Number
    heads: Number
    kv_heads: Number
    key_dim: Number
    value_dim: Number
    kv_width: Number
    activation: str
    kv: str
    products: str = ""
    backward: bool = False

    @property
    def sizes(self) -> tuple[Number, ...]:
        """What makes it an array of shapes."""
        return self.sequences, self.queries, self.span, self.cached, self.heads, self.kv_heads

    @property
    def formats(self) -> tuple[str, str]:
        """Formats of the products and of the activations."""
        return self.products or self.activation, self.activation

    @property
    def kv_bytes(self) -> Number:
        """Bytes of the keys and values that are read."""
        return self.sequences * self.cached * self.kv_heads * self.kv_width * bytes_of(self.kv)

    @property
    def query_bytes(self) -> Number:
        """Bytes of queries and results; gradients of both in a backward pass."""
        narrow, wide = bytes_of(self.products or self.activation), bytes_of(self.activation)
        width = self.key_dim * narrow + self.value_dim * wide
        return self.sequences * self.queries * self.heads * width * (2.0 if self.backward else 1.0)

    @property
    def flop_per_pair(self) -> Number:
        """Operations of a query and a key: backward does 2.5 times the products."""
        return (2.5 if self.backward else 1.0) * 2.0 * (self.key_dim + self.value_dim)

    @property
    def few_queries(self) -> Number:
        """New tokens up to which a pass counts as a step: more of latent attention, which verifies drafts."""
        xp = namespace(self.key_dim, self.kv_width)
        return xp.where(self.key_dim == self.kv_width, FEW_QUERIES, 1.0)


def attention_shape(op: Attention) -> AttentionShape:
    """The shape of an attention op of a graph."""
    sizes = {name: getattr(op, name).size for name in EXTENTS}
    return AttentionShape(**sizes, **{name: getattr(op, name) for name in WIDTHS})


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class AttentionBlocks:
    """How queries and keys are cut into blocks."""

    count: Number  # blocks of queries
    splits: Number  # parts of the cache for each (split-KV)
    rows: Number  # query rows of a block
    keys: Number  # that it walks on average


def worked_flop(shape: AttentionShape, cut: AttentionBlocks) -> Number:
    r"""Operations that the matrix units carry out for an attention, padding included: they spend energy on
    whole instructions, whatever part of their rows is used.

    .. math:: F = f \, w \, \hat r \, \hat s

    f operations a pair of query and key; w blocks of r̂ query rows, whole instructions, over ŝ keys each.

    Chosen over useful operations by leaving whole models of validation/h200/step_power.csv out.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> sizes = {"sequences": 2.0, "queries": 1.0, "span": 4096.0, "cached": 4096.0, "heads": 32.0}
    >>> widths = {"kv_heads": 8.0, "key_dim": 128.0, "value_dim": 128.0, "kv_width": 256.0}
    >>> step = AttentionShape(**sizes, **widths, activation="bf16", kv="bf16")
    >>> worked = worked_flop(step, attention_blocks(step, device(chip("h200"))))
    >>> worked / (step.flop_per_pair * 2.0 * 32.0 * 4096.0)  # four queries of a group in rows for 64
    16.0
    """
    return shape.flop_per_pair * cut.count * cut.rows * cut.keys


def attention_blocks(shape: AttentionShape, device: Device) -> AttentionBlocks:
    """Blocks of at most 128 query rows.

    Where all queries of the heads that share keys fit one block, or are few, they are packed, and the cache
    is cut into parts of at least 128 tokens until all cores have one; else each head has its own blocks. Rows
    are padded to the matrix unit. A causal block of 128 keys is computed whole, so that the diagonal costs
    half a block.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> sizes = {"sequences": 2.0, "queries": 1.0, "span": 4096.0, "cached": 4096.0, "heads": 32.0}
    >>> widths = {"kv_heads": 8.0, "key_dim": 128.0, "value_dim": 128.0, "kv_width": 256.0}
    >>> step = AttentionShape(**sizes, **widths, activation="bf16", kv="bf16")
    >>> cut = attention_blocks(step, device(chip("h200")))
    >>> float(cut.count), float(cut.splits), float(cut.rows)
    (16.0, 8.0, 64.0)
    """
    queries, heads, kv_heads, few = shape.queries, shape.heads, shape.kv_heads, shape.few_queries
    xp = namespace(*shape.sizes, device.cores)
    group = queries * (heads / kv_heads)
    packed = (group <= QUERY_ROWS) | (queries <= few)
    count = shape.sequences * xp.where(
        packed, kv_heads * ceil_div(group, QUERY_ROWS), heads * ceil_div(queries, QUERY_ROWS)
    )
    parts = xp.minimum(floor_div(device.cores, count), floor_div(shape.cached, KEY_ROWS))
    grain = device.chip.compute.tile_m
    rows = xp.minimum(xp.where(packed, group, queries), QUERY_ROWS)
    return AttentionBlocks(
        count=count,
        splits=xp.where(packed, xp.maximum(parts, 1.0), 1.0),
        rows=xp.minimum(ceil_div(rows, grain) * grain, xp.maximum(QUERY_ROWS, grain)),
        # A short pass over the cache (decode) has no diagonal to pad.
        keys=shape.span + xp.where(queries > few, 0.5 * KEY_ROWS, 0.0),
    )


def attention_core_time(
    cut: AttentionBlocks, *, per_key: Number, start: Number, cached: Number, port: Number, cores: Number
) -> Number:
    r"""Time the cores need for blocks of unequal length [s].

    .. math:: T_c = \max\left(\frac{w}{p} \left(\tau + \frac{t \hat s}{n}\right)
        + \frac{\ell}{2} [w > p], \; \ell\right), \quad
        \ell = \max\left(\tau + \frac{t}{n} \min(c, 2 \hat s), \; t_b\right)

    w blocks in n parts each on p cores; a block starts and ends in τ and takes t for each of ŝ keys on
    average. The longest, ℓ, sees the whole cache c, and draws its bytes in t_b. With more blocks than cores,
    half of the longest is waited for at the end: cores that take blocks in turn end up to ℓ apart (Graham,
    SIAM J. Appl. Math. 17 (1969): list scheduling).

    >>> one = AttentionBlocks(count=1.0, splits=1.0, rows=128.0, keys=512.0)
    >>> time = attention_core_time(one, per_key=1e-8, start=1e-6, cached=1024.0, port=0.0, cores=132.0)
    >>> round(time * 1e6, 2)
    11.24
    """
    xp = namespace(cut.count, cut.splits, cut.keys, per_key, start, cached, port, cores)
    work = cut.count * cut.splits
    each = per_key / cut.splits
    longest = xp.maximum(start + each * xp.minimum(cached, 2.0 * cut.keys), port)
    return xp.maximum(
        work * (start + each * cut.keys) / cores + xp.where(work > cores, TAIL * longest, 0.0), longest
    )


SUMMED_BYTES = 8.0  # an element of a sum in fp32, read and written where it is added to


def score_energy(scores: Number, chip: Chip, *, backward: bool) -> Number:
    r"""Energy between the products of attention [J].

    .. math:: E = e_s n \cdot (1 \text{ or } s_b)

    n scores, whole blocks of them, at e_s each (`energy.score`: exponential, sums, rounding, local memory);
    the backward pass has s_b times the vector work of a score (`compute.softmax_backward`). 0 where a chip
    says nothing of it.

    Measured on one H200: both passes run at the power limit, at 0.86 of the highest clock.

    >>> from strata.hardware.chip import chip
    >>> [round(score_energy(1e9, chip("h200"), backward=back), 3) for back in (False, True)]
    [0.155, 0.496]
    """
    each, more = chip.energy.score, chip.compute.softmax_backward
    if each is None:
        return 0.0
    return each * scores * (more if backward and more is not None else 1.0)


def gradient_sum_bytes(rows: Number, width: Number) -> Number:
    r"""Bytes through the shared cache that only a backward pass of attention moves [B].

    .. math:: b = 8 \, n \, d

    a core holds a block of keys while queries pass: queries and gradients of results are as many bytes as
    keys and values of a forward pass; but the gradient of each query, of `width` d, is added in fp32, read
    and written in the shared cache, for every block of keys, as long as one of queries: n = keys that all
    blocks of queries walk. It shows in power alone: cores are busy longer.

    Dao, FlashAttention-2, arXiv 2307.08691, sec. 3.1.2: atomic additions to dQ.

    >>> gradient_sum_bytes(32.0 * 2112.5, 128.0)  # a head of 4096 queries and keys
    69222400.0
    """
    return SUMMED_BYTES * rows * width
