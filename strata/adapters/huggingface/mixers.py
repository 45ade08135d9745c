"""Layers of a config that keep a state in place of a cache: which they are, and the sizes of their mixer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strata.adapters.huggingface.keys import ConfigKeys
from strata.adapters.huggingface.names import ConfigFamily
from strata.workload.mixer import Mixer

STATE_WORDS = {
    "linear_attention": "linear", "mamba": "linear", "mamba2": "linear", "hybrid": "parallel",
    "full_attention": "full", "attention": "full",
}  # fmt: skip
# Layers that are a mixer or a feed-forward, not both, by the letters and words of a Nemotron-H.
SINGLE_LETTERS = {
    "M": ("linear", "none"),
    "*": ("full", "none"),
    "-": ("none", "dense"),
    "E": ("none", "moe"),
}
SINGLE_WORDS = {
    "mamba": "M", "mamba2": "M", "linear_attention": "M", "attention": "*", "full_attention": "*", "mlp": "-",
    "moe": "E",
}  # fmt: skip
CHANNELS_OF_A_STEP = 16  # a Mamba's step has a rank of one in so many channels of the model, unless stated
STATE_FORMATS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}

Kinds = tuple[list[str], list[str] | None]


def mixed_layers(keys: ConfigKeys, family: ConfigFamily, layers: int) -> Kinds | None:
    """Kinds of attention of a family with states, and of feed-forward where the same keys say them."""
    if not family.mixer:
        return None
    if family.layers == "single":
        return _single_layers(keys, layers)
    if family.layers in ("linear", "parallel"):  # all alike
        return [family.layers] * layers, ["none"] * layers if family.layers == "linear" else None
    told = keys.layer_words("layer_types", layers, STATE_WORDS)
    if told:
        return told, None
    if family.layers == "kda":
        return _kimi_layers(keys, layers), None
    if keys.has("attn_layer_period"):
        period, offset = int(keys.size("attn_layer_period")), int(keys.size("attn_layer_offset", 0.0))
        return ["full" if i % period == offset else "linear" for i in range(layers)], None
    if keys.told.get("attn_layer_indices") is not None:
        chosen = keys.layer_places("attn_layer_indices", keys.told["attn_layer_indices"], layers)
        return ["full" if i in chosen else "linear" for i in range(layers)], None
    if keys.told.get("attn_type_list"):
        # MiniMax: 1 for softmax attention, 0 for lightning attention
        return keys.layer_choices("attn_type_list", layers, "linear", "full"), None
    if keys.has("full_attention_interval"):
        every = int(keys.size("full_attention_interval"))
        return ["full" if (i + 1) % every == 0 else "linear" for i in range(layers)], None
    raise keys.refuse("which layers attend and which keep a state must be said", layer_types=None)


def _single_layers(keys: ConfigKeys, layers: int) -> Kinds:
    letters, words = keys.told.get("hybrid_override_pattern"), keys.told.get("layers_block_type")
    if letters is None and isinstance(words, list) and all(isinstance(w, str) for w in words):
        letters = "".join(SINGLE_WORDS.get(w, "?") for w in words)
    if not isinstance(letters, str) or not letters or set(letters) - set(SINGLE_LETTERS):
        raise keys.refuse(
            "'hybrid_override_pattern' must be of the letters " + " ".join(SINGLE_LETTERS), pattern=letters
        )
    if len(letters) != layers:
        raise keys.refuse(
            "'hybrid_override_pattern' must have one letter for each layer",
            letters=len(letters),
            layers=layers,
        )
    kinds = [SINGLE_LETTERS[letter] for letter in letters]
    return [k[0] for k in kinds], [k[1] for k in kinds]


def _kimi_layers(keys: ConfigKeys, layers: int) -> list[str]:
    told = _linear_config(keys).get("full_attn_layers")
    chosen = keys.layer_places("linear_attn_config.full_attn_layers", told, layers, first=1)
    return ["full" if i + 1 in chosen else "linear" for i in range(layers)]


def _linear_config(keys: ConfigKeys) -> Mapping[str, Any]:
    told = keys.told.get("linear_attn_config")
    return told if isinstance(told, Mapping) else {}


def read_mixer(keys: ConfigKeys, family: ConfigFamily) -> Mixer | None:
    """The sizes of the layers that keep a state."""
    if not family.mixer:
        return None
    make = {"gated_delta": _delta, "kda": _kda, "mamba1": _mamba1, "mamba2": _mamba2, "lightning": _lightning}
    return make[family.mixer](keys, family)


def _delta(keys: ConfigKeys, family: ConfigFamily) -> Mixer:
    heads, shared = keys.size("linear_num_value_heads"), keys.size("linear_num_key_heads")
    if heads % shared:
        raise keys.refuse(
            "linear_num_key_heads must divide linear_num_value_heads", key_heads=shared, value_heads=heads
        )
    return Mixer(
        kind="gated_delta",
        heads=heads,
        key_heads=shared,
        key_dim=keys.size("linear_key_head_dim"),
        value_dim=keys.size("linear_value_head_dim"),
        conv=keys.size("linear_conv_kernel_dim", 4.0),
        state=_state(keys),
    )


def _kda(keys: ConfigKeys, family: ConfigFamily) -> Mixer:
    told = _linear_config(keys)
    sizes: list[float] = []
    stated = ("linear_num_value_heads", "num_heads"), ("linear_key_head_dim", "head_dim"), (
        "linear_conv_kernel_dim", "short_conv_kernel_size",
    )  # fmt: skip
    for key, inner in stated:
        value = keys.told.get(key, told.get(inner))
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**16:
            raise keys.refuse(f"'linear_attn_config.{inner}' must be a whole number from 1", **{inner: value})
        sizes.append(float(value))
    heads, dim, conv = sizes
    return Mixer(
        kind="kda", heads=heads, key_heads=heads, key_dim=dim, value_dim=dim, conv=conv, rank=dim,
        full_rank_gate=told.get("use_full_rank_gate") is True, state=_state(keys),
    )  # fmt: skip


def _mamba1(keys: ConfigKeys, family: ConfigFamily) -> Mixer:
    hidden = keys.size("hidden_size")
    inner = keys.size("mamba_expand", 2.0) * hidden
    return Mixer(
        kind="mamba1",
        heads=inner,
        key_dim=keys.size("mamba_d_state"),
        conv=keys.size("mamba_d_conv", 4.0),
        rank=keys.size("mamba_dt_rank", -(-hidden // CHANNELS_OF_A_STEP)),
        bias=keys.flag("mamba_proj_bias", keys.flag("use_bias")),
        conv_bias=keys.flag("mamba_conv_bias", keys.flag("use_conv_bias", True)),
        norm=False,
        inner_norms=family.inner_norms,
        state=_state(keys),
    )


def _mamba2(keys: ConfigKeys, family: ConfigFamily) -> Mixer:
    pure = family.layers == "linear"  # whose heads are the only ones
    heads = keys.size("num_attention_heads" if pure else "mamba_n_heads")
    inner = keys.size("mamba_d_ssm", keys.size("mamba_expand", 2.0) * keys.size("hidden_size"))
    dim = keys.size("head_dim" if pure else "mamba_d_head", inner / heads)
    groups = keys.size("mamba_n_groups", 1.0)
    if heads % groups or dim != int(dim):
        raise keys.refuse(
            "mamba_n_groups must divide mamba_n_heads", groups=groups, heads=heads, head_dim=dim
        )
    return Mixer(
        kind="mamba2",
        heads=heads,
        key_heads=groups,
        key_dim=keys.size("mamba_d_state"),
        value_dim=dim,
        conv=keys.size("mamba_d_conv", 4.0),
        chunk=keys.size("mamba_chunk_size", 256.0),
        bias=keys.flag("mamba_proj_bias", keys.flag("use_bias")),
        conv_bias=keys.flag("mamba_conv_bias", keys.flag("use_conv_bias", True)),
        norm=keys.flag("mamba_rms_norm", family.layers != "parallel"),
        state=_state(keys),
    )


def _lightning(keys: ConfigKeys, family: ConfigFamily) -> Mixer:
    heads = keys.size("num_attention_heads")
    dim = keys.size("head_dim", keys.size("hidden_size") / heads)
    return Mixer(
        kind="lightning", heads=heads, key_heads=heads, key_dim=dim, value_dim=dim,
        chunk=keys.size("mamba_chunk_size", 256.0), state=_state(keys),
    )  # fmt: skip


def _state(keys: ConfigKeys) -> str:
    """Format of the state between steps."""
    told = keys.told.get("mamba_ssm_cache_dtype", keys.told.get("mamba_ssm_dtype", "float32"))
    if told not in STATE_FORMATS:
        raise keys.refuse("the format of states must be of " + ", ".join(STATE_FORMATS), dtype=told)
    return STATE_FORMATS[told]
