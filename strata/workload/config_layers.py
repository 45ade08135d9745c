"""How the layers of a config follow one another: which attend to a window, which hold experts."""

from __future__ import annotations

from typing import Any

from strata.workload.config_families import ConfigFamily
from strata.workload.config_keys import ConfigKeys
from strata.workload.config_mixers import mixed_layers
from strata.workload.config_sparse import check_kinds, compressed_layers
from strata.workload.model import Pattern, pattern_of

# What families call the kinds of attention.
ATTENTION_WORDS = {
    "full_attention": "full",
    "attention": "full",
    "global": "full",
    "full": "full",
    "deepseek_sparse_attention": "full",
    "sliding_attention": "window",
    "chunked_attention": "window",
    "compressed_sparse_attention": "csa",
    "heavily_compressed_attention": "hca",
    "minimax_m3_sparse": "sparse",
    "local": "window",
    "linear_attention": "linear",
    "mamba": "linear",
    "linear": "linear",
}
FFN_WORDS = {"dense": "dense", "sparse": "moe", "moe": "moe", "hash_moe": "hash"}
CHUNKED_PERIOD = 4  # of llama 4's layers the last of each four sees all tokens


def layer_pattern(keys: ConfigKeys, family: ConfigFamily, moe: bool) -> Pattern:
    """The sequence of layers of a config."""
    layers = int(keys.size("num_hidden_layers"))
    single = mixed_layers(keys, family, layers)
    if single is not None and single[1] is not None:
        return pattern_of(list(zip(single[0], single[1], strict=True)))
    attention = single[0] if single else compressed_layers(keys, family, layers)
    attention = attention or _attention_kinds(keys, family, layers)
    check_kinds(keys, family, attention)
    ffn = _ffn_kinds(keys, layers, moe)
    hashed = int(keys.size("num_hash_layers", 0.0))
    if hashed and keys.told.get("mlp_layer_types") is None:
        ffn = ["hash" if i < hashed and kind == "moe" else kind for i, kind in enumerate(ffn)]
    return pattern_of(list(zip(attention, ffn, strict=True)))


def _listed(keys: ConfigKeys, key: str, layers: int, words: dict[str, str]) -> list[str] | None:
    """A key with one word for each layer, in our words; its length and words are checked."""
    told = keys.told.get(key)
    if told is None or told == []:
        return None
    if not isinstance(told, list | tuple) or not all(isinstance(t, str) for t in told):
        raise keys.refuse(f"'{key}' must be a list of words, one for each layer", **{key: told})
    if len(told) != layers:
        raise keys.refuse(f"'{key}' must have one entry for each layer", entries=len(told), layers=layers)
    strange = next((t for t in told if t not in words), None)
    if strange is not None:
        raise keys.refuse(f"'{key}' must be of {', '.join(words)}", **{key: strange})
    return [words[t] for t in told]


def _attention_kinds(keys: ConfigKeys, family: ConfigFamily, layers: int) -> list[str]:
    full = "sparse" if keys.has("index_topk") and keys.size("index_topk") else "full"
    for key in ("layer_types", "attention_layers"):
        listed = _listed(keys, key, layers, ATTENTION_WORDS)
        if listed and "linear" in listed:
            raise keys.refuse(
                f"layers with a state are not known of '{family.name}'", **{key: "linear_attention"}
            )
        if listed:
            return [full if kind == "full" else kind for kind in listed]
    window = keys.told.get("sliding_window") or keys.told.get("attention_chunk_size")
    rule = family.window
    if rule == "chunked":
        return _chunked(keys, layers)
    if not window or rule == "none":
        return [full] * layers
    if rule == "all":
        return ["window"] * layers if keys.flag("use_sliding_window", True) else [full] * layers
    if rule == "even":
        return ["full" if i % 2 else "window" for i in range(layers)]
    if rule == "flag":
        first = int(keys.size("max_window_layers", 0.0)) if keys.flag("use_sliding_window") else layers
        return ["full" if i < first else "window" for i in range(layers)]
    return _by_pattern(keys, family, layers)


def _chunked(keys: ConfigKeys, layers: int) -> list[str]:
    """Layers with positions attend to chunks, the others to all tokens."""
    told = keys.told.get("no_rope_layers")
    if not told:
        return ["full" if i % CHUNKED_PERIOD == CHUNKED_PERIOD - 1 else "window" for i in range(layers)]
    if not isinstance(told, list | tuple) or not all(isinstance(t, int) and t in (0, 1) for t in told):
        raise keys.refuse("'no_rope_layers' must be a list of 0 and 1", no_rope_layers=told)
    if len(told) != layers:
        raise keys.refuse(
            "'no_rope_layers' must have one entry for each layer", entries=len(told), layers=layers
        )
    return ["window" if t else "full" for t in told]


def _by_pattern(keys: ConfigKeys, family: ConfigFamily, layers: int) -> list[str]:
    """All layers but the last of each so many, or a word such as LLLG (local, local, local, global)."""
    stated = ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")
    told: Any = next((keys.told[k] for k in stated if k in keys.told), None)
    told = family.defaults.get("sliding_window_pattern") if told is None else told
    if isinstance(told, str) and told and set(told) <= {"L", "G"}:
        return ["full" if told[i % len(told)] == "G" else "window" for i in range(layers)]
    if isinstance(told, bool) or not isinstance(told, int) or told < 1:
        raise keys.refuse(
            "'sliding_window_pattern' must be a whole number from 1, or letters L and G",
            sliding_window_pattern=told,
        )
    return ["full" if i % told == told - 1 else "window" for i in range(layers)]


def _ffn_kinds(keys: ConfigKeys, layers: int, moe: bool) -> list[str]:
    if not moe:
        return ["dense"] * layers
    listed = _listed(keys, "mlp_layer_types", layers, FFN_WORDS)
    if listed:
        return listed
    if isinstance(keys.told.get("moe_layer_freq"), list):
        return _by_frequency(keys, layers)
    first = int(keys.size("first_k_dense_replace", 0.0))
    if first > layers:
        raise keys.refuse("first_k_dense_replace must be at most the layers", k=first, layers=layers)
    last = int(keys.size("moe_layer_end_index", layers))
    step = int(keys.size("decoder_sparse_step", 1.0)) * int(keys.size("moe_layer_interval", 1.0))
    every, dense = _frequency(keys), _places(keys, "mlp_only_layers", layers)
    period, offset = int(keys.size("expert_layer_period", 1.0)), int(keys.size("expert_layer_offset", 0.0))
    chosen = _places(keys, "moe_layers", layers)

    def holds_experts(i: int) -> bool:
        if chosen:
            return i in chosen
        placed = (i + 1) % step == 0 and i % every == 0 and i % period == offset
        return placed and first <= i <= last and i not in dense

    return ["moe" if holds_experts(i) else "dense" for i in range(layers)]


def _frequency(keys: ConfigKeys) -> int:
    told = keys.told.get("moe_layer_freq", 1)
    if isinstance(told, bool) or not isinstance(told, int) or told < 1:
        raise keys.refuse("'moe_layer_freq' must be a whole number from 1", moe_layer_freq=told)
    return told


def _by_frequency(keys: ConfigKeys, layers: int) -> list[str]:
    told = keys.told["moe_layer_freq"]
    if len(told) != layers or not all(isinstance(t, int) and t in (0, 1) for t in told):
        raise keys.refuse("'moe_layer_freq' must be 0 or 1 for each layer", entries=len(told), layers=layers)
    return ["moe" if t else "dense" for t in told]


def _places(keys: ConfigKeys, key: str, layers: int) -> set[int]:
    """A key with places of layers."""
    told = keys.told.get(key) or []
    whole = isinstance(told, list | tuple) and all(isinstance(t, int) and 0 <= t < layers for t in told)
    if not whole:
        raise keys.refuse(f"'{key}' must be places of layers below {layers}", **{key: told})
    return set(told)
