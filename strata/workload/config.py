"""A Hugging Face `config.json` becomes a Model."""

from __future__ import annotations

from typing import Any

from strata.errors import BadFile, BadValue, require
from strata.workload.model import Model, Pattern


def read_config(config: dict[str, Any], label: str) -> Model:
    """A Model from the keys of a Hugging Face config, by architecture family."""
    config = {**config, **config.get("text_config", {})}
    if "n_embd" in config:
        return _gpt(config, label)

    def get(*keys: str, default: float | None = None) -> float:
        return _number(config, label, keys, default)

    heads, hidden, layers = get("num_attention_heads"), get("hidden_size"), get("num_hidden_layers")
    kind = str(config.get("model_type", ""))
    weights, experts_in = _weights(config)
    mla = "kv_lora_rank" in config
    experts = get("num_local_experts", "n_routed_experts", "num_experts", default=0.0)
    expert_ffn = get("moe_intermediate_size", "intermediate_size", default=0.0) if experts else 0.0
    head_dim = get("head_dim", default=hidden / heads)
    if mla:
        head_dim = get("qk_nope_head_dim") + get("qk_rope_head_dim")
    dense = get("intermediate_size_mlp", "intermediate_size", default=0.0)
    if kind == "llama4_text":
        shared = expert_ffn = get("intermediate_size")
    else:
        shared = get("n_shared_experts", default=0.0) * expert_ffn or get(
            "shared_expert_intermediate_size", default=0.0
        )
    return Model(
        name=label,
        pattern=_pattern(config, layers, bool(experts)),
        hidden=hidden,
        heads=heads,
        kv_heads=heads if mla else get("num_key_value_heads", default=heads),
        head_dim=head_dim,
        vocab=get("vocab_size"),
        ffn=dense,
        v_head_dim=get("v_head_dim", default=head_dim) if mla else head_dim,
        attention="mla" if mla else "gqa",
        q_rank=get("q_lora_rank", default=0.0) if mla else 0.0,
        kv_rank=get("kv_lora_rank", default=0.0),
        rope_dim=get("qk_rope_head_dim", default=0.0),
        window=get("sliding_window", "attention_chunk_size", default=0.0),
        sparse_top_k=get("index_topk", default=0.0),
        index_heads=get("index_n_heads", default=0.0),
        index_dim=get("index_head_dim", default=0.0),
        experts=experts,
        top_k=get("num_experts_per_tok", "moe_topk", default=0.0) if experts else 0.0,
        expert_ffn=expert_ffn,
        shared_ffn=shared if experts else 0.0,
        shared_experts=bool(experts and shared),
        gated=True,
        tied=bool(config.get("tie_word_embeddings", False)),
        **_flags(config, kind),
        weights=weights,
        expert_weights=experts_in,
        published=_published(config),
    )


def _flags(config: dict[str, Any], kind: str) -> dict[str, Any]:
    """Biases and norms that a family has beside its sizes."""
    biased = bool(config.get("attention_bias", False))
    routing_bias = config.get("topk_method") == "noaux_tc" or bool(config.get("use_routing_bias", False))
    normed = bool(config.get("use_qk_norm", False) and kind != "llama4_text")
    return {
        "qkv_bias": biased or kind == "qwen2",
        "output_bias": biased and kind == "gpt_oss",
        "expert_bias": kind == "gpt_oss",
        "router_bias": kind in ("gpt_oss", "glm4_moe") or routing_bias,
        "qk_norm": kind in ("qwen3", "qwen3_moe") or normed,
    }


def _number(config: dict[str, Any], label: str, keys: tuple[str, ...], default: float | None) -> float:
    """The first of several keys that holds a number; a size is positive, and a needed one that is missing is
    named.
    """
    for key in keys:
        if isinstance(config.get(key), (int, float)) and not isinstance(config[key], bool):
            require(
                config[key] > 0 or default == 0.0, f"{label}: {key} must be positive", **{key: config[key]}
            )
            return float(config[key])
    if default is None:
        raise BadFile(f"{label}: config.json has no '{keys[0]}', which a transformer needs")
    return float(default)


def _gpt(config: dict[str, Any], label: str) -> Model:
    for key in ("n_embd", "n_layer", "n_head", "vocab_size"):
        if not isinstance(config.get(key), (int, float)) or config[key] <= 0:
            raise BadFile(f"{label}: config.json has no positive '{key}', which a GPT needs")
    hidden, heads = float(config["n_embd"]), float(config["n_head"])
    return Model(
        name=label,
        pattern=Pattern((), 0.0, (("full", "dense"),), float(config["n_layer"])),
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden / heads,
        v_head_dim=hidden / heads,
        vocab=float(config["vocab_size"]),
        ffn=float(config.get("n_inner") or 4 * hidden),
        positions=float(config.get("n_positions", 0)),
        learned_positions=bool(config.get("n_positions", 0)),
        gated=False,
        tied=bool(config.get("tie_word_embeddings", True)),
        qkv_bias=True,
        output_bias=True,
        ffn_bias=True,
        norm_bias=True,
        published=_published(config),
    )


def _published(config: dict[str, Any]) -> tuple[float, str] | None:
    facts = config.get("_strata", {})
    return (float(facts["parameters"]), facts["parameters_source"]) if "parameters" in facts else None


def _weights(config: dict[str, Any]) -> tuple[str, str]:
    """Precision of the linear layers and of the experts in the official weights."""
    quant = config.get("quantization_config") or {}
    method = quant.get("quant_method", "")
    if method == "mxfp4":
        return "bf16", "mxfp4"
    if method == "compressed-tensors" and any("self_attn" in str(name) for name in quant.get("ignore", [])):
        return "bf16", "int4"  # only the routed experts are quantised
    if method == "fp8":
        kind = "fp8_block" if quant.get("weight_block_size") else "fp8"
        return kind, kind
    stated = config.get("_strata", {}).get("weights", "bf16")
    if method and stated == "bf16":
        raise BadValue(
            "quantization_config.quant_method must be fp8 or mxfp4 to be read from config.json, "
            f"but got (quant_method={method!r}); say weights=... yourself"
        )
    return stated, stated


def _pattern(config: dict[str, Any], layers: float, moe: bool) -> Pattern:
    """The layer sequence from whichever keys the family uses."""
    ffn = ["moe" if moe else "dense"]
    prefix = float(config.get("first_k_dense_replace", 0) or 0) if moe else 0.0
    step = int(config.get("interleave_moe_layer_step") or config.get("decoder_sparse_step") or 1)
    if moe and step > 1:
        ffn = ["dense"] * (step - 1) + ["moe"]
    attention = ["sparse" if config.get("index_topk") else "full"]
    types = config.get("layer_types")
    if types:
        attention = _period(["full" if t == "full_attention" else "window" for t in types])
    elif config.get("no_rope_layers") or config.get("model_type") == "llama4_text":
        attention = ["window", "window", "window", "full"]
    elif (
        config.get("sliding_window")
        and config.get("use_sliding_window", True)
        and config.get("model_type") in ("mistral", "mixtral")
    ):
        attention = ["window"]
    length = len(attention) * len(ffn) // _gcd(len(attention), len(ffn))
    period = tuple((attention[i % len(attention)], ffn[i % len(ffn)]) for i in range(length))
    return Pattern((attention[0], "dense") if prefix else (), prefix, period, layers)


def _period(kinds: list[str]) -> list[str]:
    """The shortest list that, repeated, gives the sequence."""
    for length in range(1, len(kinds)):
        if all(k == kinds[i % length] for i, k in enumerate(kinds)):
            return kinds[:length]
    return kinds


def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a
