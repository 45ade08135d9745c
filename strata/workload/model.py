"""A model: the sizes of a transformer, and how its layers follow one another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from strata.base.arrays import Number, highest, is_leaf, lowest, register_pytree
from strata.base.errors import UnknownName, require
from strata.base.precision import check
from strata.base.records import readable
from strata.base.units import finite_quantity
from strata.workload.graph import Graph, layers_within
from strata.workload.mixer import Mixer
from strata.workload.protocol import Program
from strata.workload.tasks import Workload

ATTENTION_KINDS = ("full", "window", "sparse", "csa", "hca", "linear", "parallel", "none")
FFN_KINDS = ("dense", "moe", "hash", "none")
ROUTED = ("moe", "hash")  # feed-forwards of experts, by scores or by a table of tokens


LAYERS = "layers"  # of a model's pattern, changed as a field of the model
# What makes a program of another tool's file, by how its name ends: module and function.
ADAPTERS = {
    ".json": ("huggingface.config", "named_model"),
    ".onnx": ("onnx.graph", "onnx_file"),
    ".onnx.xz": ("onnx.graph", "onnx_file"),
    ".et": ("chakra.program", "chakra_program"),
    ".py": ("python", "python_program"),
}


def adapter(ending: str) -> Callable[..., Any]:
    """The function of `ADAPTERS` for files of an ending, loaded where one is asked for."""
    module, reader = ADAPTERS[ending]
    read: Callable[..., Any] = getattr(import_module(f"strata.adapters.{module}"), reader)
    return read


@register_pytree
@dataclass(frozen=True, eq=False)
class Pattern:
    """The sequence of layers: a prefix of one kind, then a period of kinds repeated to the end.

    A kind is (attention, ffn), such as ("full", "moe"); the kinds are structure, the counts are quantities.
    Attention may be full, window or sparse; csa or hca, over compressed keys (attention.py);
    linear, by the model's mixer; parallel, softmax attention and the mixer side by side; a layer may have
    none of one of the two. A feed-forward is dense, moe or hash, whose experts a table of tokens names. Any
    order of layers is a period as long as itself (`pattern_of`).
    """

    prefix: tuple[str, ...]  # () where there is none
    prefix_layers: Number
    period: tuple[tuple[str, str], ...]
    layers: Number

    def __post_init__(self) -> None:
        for attention, ffn in (*((self.prefix,) if self.prefix else ()), *self.period):
            told = (attention, ffn)
            require(
                attention in ATTENTION_KINDS,
                "a layer's attention is " + ", ".join(ATTENTION_KINDS),
                kind=told,
            )
            require(ffn in FFN_KINDS, "a layer's ffn is " + ", ".join(FFN_KINDS), kind=told)
            require(told != ("none", "none"), "a layer has attention or an ffn", kind=told)

    def kinds(self, part: int) -> tuple[str, ...]:
        """The distinct attention (part 0) or ffn (part 1) kinds that there are, in order of appearance."""
        prefix = (self.prefix[part],) if self.prefix else ()
        every = dict.fromkeys((*prefix, *(k[part] for k in self.period)))
        return tuple(kind for kind in every if kind != "none")

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The distinct kinds of layers, in order of appearance."""
        prefix = ((self.prefix[0], self.prefix[1]),) if self.prefix else ()
        return tuple(dict.fromkeys((*prefix, *self.period)))

    def first(self, count: Number, part: int, kind: str) -> Number:
        """How many of the first `count` layers have this kind of attention (part 0) or ffn (part 1)."""
        places = tuple(i for i, pair in enumerate(self.period) if pair[part] == kind)
        return self._first(count, bool(self.prefix) and self.prefix[part] == kind, places)

    def _first(self, count: Number, in_prefix: bool, places: tuple[int, ...]) -> Number:
        return layers_within(count, self.prefix_layers, in_prefix, places, len(self.period))

    def total(self, part: int, kind: str) -> Number:
        return self.first(self.layers, part, kind)

    def total_pair(self, pair: tuple[str, str]) -> Number:
        """How many layers have this kind of attention and this kind of ffn."""
        places = tuple(i for i, each in enumerate(self.period) if each == pair)
        return self._first(self.layers, tuple(self.prefix) == pair, places)


def pattern_of(kinds: Sequence[tuple[str, str]]) -> Pattern:
    """The pattern of a list of layers, as short as it can be told: with a prefix of one kind where what
    follows is a period, twice at least.

    >>> mixing, feeding = (["linear"] * 4 + ["full"] + ["linear"] * 3) * 4, ["dense", "moe"] * 16
    >>> jamba = pattern_of(list(zip(mixing, feeding)))
    >>> len(jamba.period), float(jamba.total(0, "full")), float(jamba.total(1, "moe"))
    (8, 4.0, 16.0)
    >>> deepseek = pattern_of([("full", "dense")] * 3 + [("full", "moe")] * 58)
    >>> deepseek.prefix, deepseek.prefix_layers, deepseek.period
    (('full', 'dense'), 3.0, (('full', 'moe'),))
    """
    every = [(attention, ffn) for attention, ffn in kinds]
    require(bool(every), "a model has at least one layer", layers=0)
    leading = next((i for i, kind in enumerate(every) if kind != every[0]), 0)
    whole, rest = _period_of(every), _period_of(every[leading:])
    if leading and len(rest) < len(whole) and 2 * len(rest) <= len(every) - leading:
        return Pattern(every[0], float(leading), rest, float(len(every)))
    return Pattern((), 0.0, whole, float(len(every)))


def _period_of(kinds: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The shortest list that, repeated, gives the sequence."""
    for length in range(1, len(kinds)):
        if all(k == kinds[i % length] for i, k in enumerate(kinds)):
            return tuple(kinds[:length])
    return tuple(kinds)


@register_pytree
@readable("name", "layers", "hidden", "heads", "kv_heads", "experts", "weights")
@dataclass(frozen=True, eq=False)
class Model(Program):
    """Sizes of a transformer. Fields that do not apply are 0; flags and names are structure."""

    takes_plans: ClassVar[bool] = True

    name: str
    pattern: Pattern
    hidden: Number
    heads: Number
    kv_heads: Number
    head_dim: Number
    vocab: Number
    ffn: Number = 0.0
    v_head_dim: Number = 0.0
    attention: str = "gqa"  # or "mla", "compressed"
    q_rank: Number = 0.0
    kv_rank: Number = 0.0
    rope_dim: Number = 0.0
    window: Number = 0.0
    sparse_top_k: Number = 0.0
    index_heads: Number = 0.0
    index_dim: Number = 0.0
    index_format: str = "fp8"  # of the keys that sparse attention scores, and of those products
    csa_ratio: Number = 0.0  # tokens of one compressed entry that is chosen among (csa)
    hca_ratio: Number = 0.0  # and of one where all are read (hca)
    o_groups: Number = 0.0  # groups of heads with an output projection of low rank each
    o_rank: Number = 0.0  # of one group
    streams: Number = 1.0  # of the residual, under hyper-connections
    stream_mixes: Number = 0.0  # iterations that balance the mixing of streams
    expert_rank: Number = 0.0  # width of the latent in which routed experts work
    experts: Number = 0.0
    top_k: Number = 0.0
    expert_groups: Number = 1.0  # equal parts of the experts that a router picks from
    top_groups: Number = 1.0  # parts that the picks of one token may lie in
    expert_ffn: Number = 0.0
    shared_ffn: Number = 0.0
    positions: Number = 0.0
    gated: bool = True
    tied: bool = False
    shared_experts: bool = False
    learned_positions: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    ffn_bias: bool = False
    expert_bias: bool = False
    router_bias: bool = False
    qk_norm: bool = False
    norm_bias: bool = False
    direct_queries: bool = False  # mla: queries come from the hidden state, without a latent (no q_rank)
    output_gate: bool = False  # results of heads are gated by what the projection of queries makes beside
    post_norms: bool = False  # what attention and ffn hand on is normed before it joins the residual
    parallel_residual: bool = False  # attention and ffn of a layer read the same residual
    shared_norm: bool = False  # in a parallel residual: the ffn reads the norm of attention
    shared_gate: bool = False  # shared experts are weighed by a gate of their own
    latent_experts: bool = False  # routed experts work in a latent of all tokens
    chunked_attention: bool = False  # windows are chunks: a token attends to those before it in its own
    hyper_connections: bool = False  # the residual has several streams that every block mixes
    mixer: Mixer | None = None  # of layers with a state in place of a cache
    vision_tower: bool = False  # loaded beside the decoder; its images are not timed
    tower_parameters: Number = 0.0
    tower_flop: Number = 0.0  # of one image, 0 where its size is not said
    weights: str = "bf16"
    expert_weights: str = "bf16"
    activations: str = "bf16"
    kv: str = "bf16"
    attention_products: str = ""  # format of attention's products where it is narrower than activations
    embedding_dtype: str = "bf16"  # embedding and head
    weight_only: bool = False  # narrow weights are widened before each product
    published: tuple[float, str] | None = None

    @property
    def layers(self) -> Number:
        return self.pattern.layers

    @property
    def has_experts(self) -> bool:
        return bool(set(ROUTED) & set(self.pattern.kinds(1)))

    @property
    def units(self) -> dict[str, Number]:
        """Indivisible units of the axes that layouts divide."""
        found: dict[str, Number] = {"layers": self.layers}
        if set(self.pattern.kinds(0)) - {"linear"}:
            # groups of heads that share an output projection stay together
            heads = self.o_groups if self.attention == "compressed" else self.heads
            found = {"heads": heads, "kv_heads": self.kv_heads if self.attention == "gqa" else heads} | found
        if self.mixer is not None:
            found |= {"state_heads": self.mixer.heads, "state_groups": self.mixer.key_heads}
        return found | ({"experts": self.experts} if self.has_experts else {})

    def trace(self, work: Workload) -> Graph:
        """The graph of one step of a phase, undivided."""
        from strata.workload.transformer import trace_transformer  # which reads this record

        return trace_transformer(self, work)


def model(name: str | Path | dict[str, Any], /, **changes: Any) -> Model:
    """A model by shipped name, by path of a `config.json` (or its folder), or from such a dict; keywords
    replace fields.

    >>> m = model("llama-3-70b", weights="fp8", kv="fp8")
    >>> m.layers, m.kv_heads, m.weights
    (80.0, 8.0, 'fp8')
    """
    before: Model = adapter(".json")(name)
    return changed_model(before, **changes)


def changed_model(before: Model, /, **changes: Any) -> Model:
    """A model with some fields replaced, its number of layers among them; sizes may be arrays.

    >>> wide = changed_model(model("llama-3-8b"), layers=4.0, ffn=16384.0)
    >>> wide.layers, wide.ffn
    (4.0, 16384.0)
    """
    if "weights" in changes and "expert_weights" not in changes:
        changes = {**changes, "expert_weights": changes["weights"]}
    known = [f.name for f in fields(Model) if f.name not in ("name", "pattern", "published", "mixer")]
    for key, value in changes.items():
        if key not in (*known, LAYERS):
            raise UnknownName("field of a model", key, [*known, LAYERS], "strata schema model")
        _check_field(key, value)
    if LAYERS in changes:  # as many, in the order that it has them
        changes = {**changes, "pattern": replace(before.pattern, layers=changes[LAYERS])}
    return replace(before, **{key: value for key, value in changes.items() if key != LAYERS})


def _check_field(key: str, value: Any) -> None:
    """A field of a model keeps the kind of thing it is: a flag, a precision, a size."""
    held = next((f.default for f in fields(Model) if f.name == key), None)
    if isinstance(held, bool):
        require(isinstance(value, bool), f"model.{key} is true or false", **{key: value})
    elif key == "attention":
        kinds = ("gqa", "mla", "compressed")
        require(value in kinds, "model.attention is " + ", ".join(kinds), attention=value)
    elif isinstance(held, str):
        check(value)
    else:
        require(is_leaf(value), f"model.{key} is a number", **{key: value})
        finite_quantity(value, f"model.{key}")
        low = lowest(value)
        require(bool(low > 0 or (held == 0.0 and low == 0)), f"model.{key} must be positive", **{key: low})
        require(key != LAYERS or _is_whole(value), "model.layers is a whole number", layers=value)


def _is_whole(value: Any) -> bool:
    return bool(highest(value % 1.0) == 0.0)
