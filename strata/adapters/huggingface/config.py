"""A Hugging Face `config.json`, checked, becomes a Model; what was not read is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from strata.adapters.huggingface.keys import (
    WHOLE,
    ConfigKeys,
    checked_keys,
    one_line,
    shortened,
    size_like,
    unread_keys,
)
from strata.adapters.huggingface.layers import layer_pattern, sparse_sizes, stream_sizes, with_blocks
from strata.adapters.huggingface.names import ConfigFamily, family_of, find_config
from strata.adapters.huggingface.parts import read_mixer, read_tower
from strata.base.errors import BadFile, BadValue
from strata.base.precision import check
from strata.workload.model import Model

# Formats by what quantisers call them; int4 is widened before a product.
PLAIN = {"fbgemm_fp8": "fp8", "mxfp8": "mxfp8", "awq": "int4", "bitsandbytes": "int4", "int8": "int8"}
MODELOPT = {
    "FP8": "fp8",
    "FP8_PB_WO": "fp8_block",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A8_NVFP4_FP8": "nvfp4",
    "MXFP4": "mxfp4",
    "W4A8_MXFP4_FP8": "mxfp4",
    "MXFP8": "mxfp8",
    "W4A16_AWQ": "int4",
    "INT4_AWQ": "int4",
}
QUARK = {
    "fp4": "mxfp4",
    "fp6_e2m3": "mxfp6",
    "fp6_e3m2": "mxfp6",
    "fp8_e4m3": "fp8",
    "int8": "int8",
    "int4": "int4",
}
BLOCK_OF_MX = 32  # values that share a scale in OCP's formats; nvfp4 has 16


def weight_formats(config: Mapping[str, Any], label: str) -> tuple[str, str, bool]:
    """Formats of the linear layers and of the experts in a checkpoint, and whether they are widened before
    products.
    """
    quant = config.get("quantization_config") or config.get("compression_config") or {}
    if not isinstance(quant, Mapping):
        raise BadFile(f"{label}: 'quantization_config' must be an object, but got {shortened(quant)}")
    method = quant.get("quant_method", quant.get("quant_algo", ""))
    if "expert_dtype" in config and "expert_dtype" not in quant:
        quant = {**quant, "expert_dtype": config["expert_dtype"]}  # DeepSeek-V4 says it beside
    found = _read_method(str(method), quant)
    if found is not None:
        return found
    facts = _table(config.get("_strata"))
    stated = check(one_line(facts.get("weights", "bf16")))
    if method and stated == "bf16":
        raise BadValue(
            "quantization_config.quant_method must be fp8, mxfp4, awq, gptq, compressed-tensors, modelopt or "
            f"quark, but got (quant_method={shortened(method)}); say weights=... yourself"
        )
    return stated, stated, facts.get("weight_only") is True


def _read_method(method: str, quant: Mapping[str, Any]) -> tuple[str, str, bool] | None:
    if method == "mxfp4":
        return "bf16", "mxfp4", False
    if method == "fp8":
        kind = "fp8_block" if quant.get("weight_block_size") else "fp8"
        return kind, "mxfp4" if quant.get("expert_dtype") == "fp4" else kind, False
    if method in ("gptq", "auto-round", "autoround"):
        bits = {"4": "int4", "8": "int8"}.get(str(quant.get("bits", 4)))
        return (bits, bits, True) if bits else None
    if method == "compressed-tensors":
        return _compressed(quant)
    word, known = method, PLAIN
    if method in ("modelopt", "modelopt_fp4", "modelopt_fp8", *MODELOPT):
        algo = quant.get("quant_algo") or _table(quant.get("quantization")).get("quant_algo")
        word, known = str(algo if algo is not None else method), MODELOPT
    elif method == "quark":
        word, known = str(_table(_table(quant.get("global_quant_config")).get("weight")).get("dtype")), QUARK
    named = known.get(word)
    return (named, named, named == "int4") if named else None


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _compressed(quant: Mapping[str, Any]) -> tuple[str, str, bool] | None:
    """Groups of layers with bits and type of their weights; activations that stay wide widen the weights."""
    left_out = quant.get("ignore") or []
    only_experts = isinstance(left_out, list) and any("self_attn" in str(name) for name in left_out)
    first = _table(next(iter(_table(quant.get("config_groups")).values()), None))
    weights = _table(first.get("weights"))
    bits, kind = weights.get("num_bits", 4), weights.get("type", "int")
    read = {(4, "int"): "int4", (8, "int"): "int8", (8, "float"): "fp8", (4, "float"): "nvfp4"}
    named = read.get((bits, kind)) if isinstance(bits, int) and isinstance(kind, str) else None
    if named is None:
        return None
    if named == "fp8" and weights.get("strategy") == "block":
        named = "fp8_block"
    elif weights.get("group_size") == BLOCK_OF_MX:
        named = {"nvfp4": "mxfp4", "fp8": "mxfp8"}.get(named, named)
    if only_experts:
        return "bf16", named, False  # only the routed experts are quantised
    return named, named, named.startswith("int") and not first.get("input_activations")


FLAGS_OF_A_MODEL = (
    "qkv_bias", "output_bias", "ffn_bias", "expert_bias", "router_bias", "qk_norm", "norm_bias",
    "learned_positions", "output_gate", "post_norms", "parallel_residual", "shared_norm", "shared_gate",
    "latent_experts", "chunked_attention", "hyper_connections",
)  # fmt: skip
WIDE = 4.0  # a feed-forward over the width of its model, where a family does not say


@dataclass(frozen=True, kw_only=True)
class ConfigReading:
    """A model and how it was read: the family, the keys that were not read, and what is simplified."""

    model: Model
    family: str
    unread: tuple[str, ...]
    size_like: tuple[str, ...]  # of the unread keys
    note: str

    @property
    def warning(self) -> str:
        """One line where keys that look like sizes were not read."""
        if not self.size_like:
            return ""
        named = ", ".join(self.size_like[:6]) + (" ..." if len(self.size_like) > 6 else "")
        return f"not read from the config of {self.model.name}: {named}"


def named_model(name: str | Path | dict[str, Any]) -> Model:
    """The model that a name, a path of a config or such a dict means."""
    return reading(*find_config(name)).model


def reading(config: Mapping[str, Any], label: str) -> ConfigReading:
    """A config read and checked: one line for each thing that is wrong, or an architecture that is not
    modelled.

    >>> told = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    ...         "vocab_size": 100, "intermediate_size": 128, "extra_layers": 3}
    >>> read = reading(told, "tiny")
    >>> read.model.head_dim, read.unread, read.warning
    (16.0, ('extra_layers',), 'not read from the config of tiny: extra_layers')
    """
    keys = with_blocks(checked_keys(config, label))
    family = family_of(keys)
    keys = _with_defaults(keys, family)
    made, unread = _model(keys, family), unread_keys(keys)
    return ConfigReading(
        model=made, family=family.name, unread=unread, size_like=size_like(keys, unread), note=family.note
    )


def _with_defaults(keys: ConfigKeys, family: ConfigFamily) -> ConfigKeys:
    """A nested text_config leaves out what its class has by default; a list of layers says how many."""
    told = {**(family.defaults if keys.nested else {}), **keys.told}
    listed = keys.told.get("hybrid_override_pattern") or keys.told.get("layers_block_type")
    if family.layers == "single" and isinstance(listed, str | list):
        told.setdefault("num_hidden_layers", min(len(listed), WHOLE["num_hidden_layers"][1]))
    return replace(keys, told=told)


def _model(keys: ConfigKeys, family: ConfigFamily) -> Model:
    alone = family.layers == "linear"  # no layer attends
    heads, hidden = 1.0 if alone else keys.size("num_attention_heads"), keys.size("hidden_size")
    mla = keys.has("kv_lora_rank")
    experts = keys.size("num_experts", 0.0)
    experts = experts if experts > 1 else 0.0
    weights, expert_weights, widened = weight_formats(keys.raw, keys.label)
    for key in family.same_width:
        if keys.size(key, hidden) != hidden:
            raise keys.refuse(f"{key} other than hidden_size is not modelled", **{key: keys.told[key]})
    sizes: dict[str, Any] = (
        {"head_dim": hidden, "v_head_dim": hidden} if alone else _head_sizes(keys, family, heads, hidden, mla)
    )
    flags = _flags(keys, family)
    return Model(
        name=keys.label,
        pattern=layer_pattern(keys, family, bool(experts)),
        hidden=hidden,
        heads=heads,
        kv_heads=1.0 if alone else _kv_heads(keys, family, heads, mla),
        **sizes,
        vocab=keys.size("vocab_size"),
        attention=family.attention or ("mla" if mla else "gqa"),
        window=keys.size("sliding_window", 0.0) or keys.size("attention_chunk_size", 0.0),
        **sparse_sizes(keys, family),
        **stream_sizes(keys, family),
        **({} if alone else _ffn_sizes(keys, family, hidden, experts)),
        direct_queries=mla and not keys.size("q_lora_rank", 0.0),
        mixer=read_mixer(keys, family),
        gated=family.gated,
        tied=keys.flag("tie_word_embeddings", family.tied),
        positions=keys.size("max_position_embeddings", 0.0) if flags["learned_positions"] else 0.0,
        **flags,
        **read_tower(keys.raw, keys.label),
        weights=weights,
        expert_weights=expert_weights,
        weight_only=widened,
        published=_published(keys),
    )


def _head_sizes(
    keys: ConfigKeys, family: ConfigFamily, heads: float, hidden: float, mla: bool
) -> dict[str, Any]:
    if mla:
        rope = keys.size("qk_rope_head_dim")
        dim = keys.size("qk_nope_head_dim") + rope
        return {
            "head_dim": dim,
            "v_head_dim": keys.size("v_head_dim", dim),
            "q_rank": keys.size("q_lora_rank", 0.0),
            "kv_rank": keys.size("kv_lora_rank"),
            "rope_dim": rope,
        }
    dim = keys.size("head_dim", hidden / heads)
    if family.attention == "compressed":
        rope = keys.size("qk_rope_head_dim")
        if rope > dim:
            raise keys.refuse("qk_rope_head_dim is at most head_dim", rope=int(rope), head_dim=int(dim))
        return {"head_dim": dim, "v_head_dim": dim, "q_rank": keys.size("q_lora_rank"), "rope_dim": rope}
    if not keys.has("head_dim") and hidden % heads:
        raise keys.refuse(
            "num_attention_heads must divide hidden_size where head_dim is not stated",
            heads=int(heads),
            hidden=int(hidden),
        )
    return {"head_dim": dim, "v_head_dim": dim}


def _kv_heads(keys: ConfigKeys, family: ConfigFamily, heads: float, mla: bool) -> float:
    if mla:
        return heads
    shared = keys.flag("multi_query", "multi_query" in family.true)
    if shared and not keys.flag("new_decoder_architecture"):
        return 1.0
    grouped = keys.flag("multi_query_attention", True)
    held = keys.size("num_key_value_heads", heads) if grouped else heads
    if heads % held:
        raise keys.refuse(
            "num_key_value_heads must divide num_attention_heads", kv_heads=int(held), heads=int(heads)
        )
    return held


def _ffn_sizes(keys: ConfigKeys, family: ConfigFamily, hidden: float, experts: float) -> dict[str, Any]:
    wide = keys.size("expansion_ratio", WIDE) * hidden if family.wide_ffn else None
    stated = "intermediate_size_mlp" if keys.has("intermediate_size_mlp") else "intermediate_size"
    if not experts and family.shared_is_dense:
        return {"ffn": keys.size("shared_expert_intermediate_size")}
    if not experts:
        return {"ffn": keys.size(stated, wide)}
    top_k = keys.size("num_experts_per_tok")
    if not 1 <= top_k <= experts:
        raise keys.refuse(
            "num_experts_per_tok must be from 1 to the experts", top_k=int(top_k), experts=int(experts)
        )
    groups, chosen = keys.size("n_group", 1.0), keys.size("topk_group", 1.0)
    if experts % groups or chosen > groups:
        raise keys.refuse(
            "n_group must divide the experts and topk_group be at most n_group",
            n_group=int(groups),
            topk_group=int(chosen),
            experts=int(experts),
        )
    each = keys.size("moe_intermediate_size", keys.told.get("intermediate_size"))
    shared = each if family.same_expert else keys.size("n_shared_experts", 0.0) * each
    shared = keys.size("shared_expert_intermediate_size", 0.0) or shared
    return {
        "ffn": keys.size(stated, each),
        "experts": experts,
        "top_k": top_k,
        "expert_groups": groups,
        "top_groups": chosen if keys.has("topk_group") else groups,
        "expert_ffn": each,
        "shared_ffn": shared,
        "shared_experts": bool(shared),
        "expert_rank": keys.size("moe_latent_size", 0.0),
    }


def _flags(keys: ConfigKeys, family: ConfigFamily) -> dict[str, Any]:
    """Biases and norms that a family has beside its sizes."""
    found = set(family.has)
    for key, flags in family.by_key.items():
        if keys.flag(key, key in family.true):
            found |= set(flags)
    if keys.told.get("topk_method") == "noaux_tc":
        found.add("router_bias")
    if keys.has("attention_chunk_size") and not keys.size("sliding_window", 0.0):
        found.add("chunked_attention")
    if keys.has("moe_latent_size"):
        found.add("latent_experts")
    if keys.flag("learned_pos_emb") and not keys.table("attn_config").get("alibi", False):
        found.add("learned_positions")
    return {flag: flag in found and flag not in family.no_flags for flag in FLAGS_OF_A_MODEL}


def _published(keys: ConfigKeys) -> tuple[float, str] | None:
    facts = keys.raw.get("_strata", {})
    if not isinstance(facts, Mapping):
        raise BadFile(f"{keys.label}: '_strata' must be an object, but got {shortened(facts)}")
    count = facts.get("parameters")
    if count is None:
        return None
    if isinstance(count, bool) or not isinstance(count, int | float) or not 0 < count < 1e18:
        raise BadFile(
            f"{keys.label}: '_strata.parameters' must be a positive count, but got {shortened(count)}"
        )
    return float(count), str(facts.get("parameters_source", ""))
