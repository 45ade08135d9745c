"""A model: the sizes of a transformer, and how its layers follow one another."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from strata.arrays import Number, floor_div, is_leaf, namespace, register_pytree
from strata.errors import UnknownName, require
from strata.precision import check
from strata.records import readable
from strata.workload.graph import Graph
from strata.workload.tasks import Workload


@register_pytree
@dataclass(frozen=True, eq=False)
class Pattern:
    """The sequence of layers: a prefix of one kind, then a period of kinds repeated to the end.

    A kind is (attention, ffn), such as ("full", "moe"); the kinds are structure, the counts are quantities.
    """

    prefix: tuple[str, ...]  # () where there is none
    prefix_layers: Number
    period: tuple[tuple[str, str], ...]
    layers: Number

    def kinds(self, part: int) -> tuple[str, ...]:
        """The distinct attention (part 0) or ffn (part 1) kinds, in order of appearance."""
        prefix = (self.prefix[part],) if self.prefix else ()
        return tuple(dict.fromkeys((*prefix, *(k[part] for k in self.period))))

    def first(self, count: Number, part: int, kind: str) -> Number:
        """How many of the first `count` layers have this kind of attention (part 0) or ffn (part 1)."""
        xp = namespace(count, self.prefix_layers)
        inside = (
            xp.minimum(count, self.prefix_layers)
            if self.prefix and self.prefix[part] == kind
            else 0.0 * count
        )
        rest = xp.maximum(count - self.prefix_layers, 0.0)
        length = len(self.period)
        for place, pair in enumerate(self.period):
            if pair[part] == kind:
                inside = inside + floor_div(rest + (length - 1 - place), length)
        return inside

    def total(self, part: int, kind: str) -> Number:
        return self.first(self.layers, part, kind)


@register_pytree
@readable("name", "layers", "hidden", "heads", "kv_heads", "experts", "weights")
@dataclass(frozen=True, eq=False)
class Model:
    """Sizes of a transformer. Fields that do not apply are 0; flags and names are structure."""

    name: str
    pattern: Pattern
    hidden: Number
    heads: Number
    kv_heads: Number
    head_dim: Number
    vocab: Number
    ffn: Number = 0.0
    v_head_dim: Number = 0.0
    attention: str = "gqa"  # or "mla"
    q_rank: Number = 0.0
    kv_rank: Number = 0.0
    rope_dim: Number = 0.0
    window: Number = 0.0
    sparse_top_k: Number = 0.0
    index_heads: Number = 0.0
    index_dim: Number = 0.0
    experts: Number = 0.0
    top_k: Number = 0.0
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
    weights: str = "bf16"
    expert_weights: str = "bf16"
    activations: str = "bf16"
    kv: str = "bf16"
    embedding_dtype: str = "bf16"  # embedding and head
    weight_only: bool = False  # narrow weights are widened before each product
    published: tuple[float, str] | None = None

    @property
    def layers(self) -> Number:
        return self.pattern.layers

    @property
    def has_experts(self) -> bool:
        return "moe" in self.pattern.kinds(1)

    @property
    def units(self) -> dict[str, Number]:
        """Indivisible units of the axes that layouts divide."""
        kv_heads = self.heads if self.attention == "mla" else self.kv_heads
        found = {"heads": self.heads, "kv_heads": kv_heads, "layers": self.layers}
        return found | ({"experts": self.experts} if self.has_experts else {})

    def trace(self, work: Workload) -> Graph:
        """The graph of one step of a phase, undivided."""
        from strata.workload.transformer import trace_transformer  # which reads this record

        return trace_transformer(self, work)


def model(name: str | Path | dict[str, Any], **changes: Any) -> Model:
    """A model by shipped name, by path of a `config.json` (or its folder), or from such a dict; keywords
    replace fields.

    >>> m = model("llama-3-70b", weights="fp8", kv="fp8")
    >>> m.layers, m.kv_heads, m.weights
    (80.0, 8.0, 'fp8')
    """
    from strata.workload.config import read_config  # which makes this record
    from strata.workload.hub_names import find_config

    config, label = find_config(name)
    made = read_config(config, label)
    if "weights" in changes and "expert_weights" not in changes:
        changes = {**changes, "expert_weights": changes["weights"]}
    known = [f.name for f in fields(Model) if f.name not in ("name", "pattern", "published")]
    for key, value in changes.items():
        if key not in known:
            raise UnknownName("field of a model", key, known, "strata schema model")
        _check_field(key, value)
    return replace(made, **changes)


def _check_field(key: str, value: Any) -> None:
    """A field of a model keeps the kind of thing it is: a flag, a precision, a size."""
    held = next(f.default for f in fields(Model) if f.name == key)
    if isinstance(held, bool):
        require(isinstance(value, bool), f"model.{key} is true or false", **{key: value})
    elif key == "attention":
        require(value in ("gqa", "mla"), "model.attention is gqa or mla", attention=value)
    elif isinstance(held, str):
        check(value)
    else:
        require(is_leaf(value), f"model.{key} is a number", **{key: value})
        low = value.min() if hasattr(value, "min") else value
        require(bool(low > 0 or (held == 0.0 and low == 0)), f"model.{key} must be positive", **{key: low})
