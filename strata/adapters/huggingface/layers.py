"""How the layers of a config follow one another: which attend to a window, sparsely or compressed,
which keep a state, which hold experts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from strata.adapters.huggingface.keys import WHOLE, ConfigKeys
from strata.adapters.huggingface.names import ConfigFamily
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

Kinds = tuple[list[str], list[str] | None]


def layer_pattern(keys: ConfigKeys, family: ConfigFamily, moe: bool) -> Pattern:
    """The sequence of layers of a config."""
    layers = int(keys.size("num_hidden_layers"))
    single = _mixed_layers(keys, family, layers)
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


def _attention_kinds(keys: ConfigKeys, family: ConfigFamily, layers: int) -> list[str]:
    full = "sparse" if keys.has("index_topk") and keys.size("index_topk") else "full"
    for key in ("layer_types", "attention_layers"):
        listed = keys.layer_words(key, layers, ATTENTION_WORDS)
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
    if not keys.told.get("no_rope_layers"):
        return ["full" if i % CHUNKED_PERIOD == CHUNKED_PERIOD - 1 else "window" for i in range(layers)]
    return keys.layer_choices("no_rope_layers", layers, "full", "window")


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
    listed = keys.layer_words("mlp_layer_types", layers, FFN_WORDS)
    if listed:
        return listed
    if isinstance(keys.told.get("moe_layer_freq"), list):
        return keys.layer_choices("moe_layer_freq", layers, "dense", "moe")
    first = int(keys.size("first_k_dense_replace", 0.0))
    if first > layers:
        raise keys.refuse("first_k_dense_replace must be at most the layers", k=first, layers=layers)
    last = int(keys.size("moe_layer_end_index", layers))
    step = int(keys.size("decoder_sparse_step", 1.0)) * int(keys.size("moe_layer_interval", 1.0))
    every = _frequency(keys)
    dense, chosen = (
        keys.layer_places(key, keys.told.get(key) or [], layers) for key in ("mlp_only_layers", "moe_layers")
    )
    period, offset = int(keys.size("expert_layer_period", 1.0)), int(keys.size("expert_layer_offset", 0.0))

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


# ----------------------------------------------------------------------------------- layers that keep a state


def _mixed_layers(keys: ConfigKeys, family: ConfigFamily, layers: int) -> Kinds | None:
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
    chosen: Collection[int]  # layers that attend
    if family.layers == "kda":
        places = keys.table("linear_attn_config").get("full_attn_layers")
        attending = keys.layer_places("linear_attn_config.full_attn_layers", places, layers, first=1)
        chosen = {place - 1 for place in attending}
    elif keys.has("attn_layer_period"):
        period, offset = int(keys.size("attn_layer_period")), int(keys.size("attn_layer_offset", 0.0))
        chosen = {i for i in range(layers) if i % period == offset}
    elif keys.told.get("attn_layer_indices") is not None:
        chosen = keys.layer_places("attn_layer_indices", keys.told["attn_layer_indices"], layers)
    elif keys.told.get("attn_type_list"):
        # MiniMax: 1 for softmax attention, 0 for lightning attention
        return keys.layer_choices("attn_type_list", layers, "linear", "full"), None
    elif keys.has("full_attention_interval"):
        every = int(keys.size("full_attention_interval"))
        chosen = range(every - 1, layers, every)
    else:
        raise keys.refuse("which layers attend and which keep a state must be said", layer_types=None)
    return ["full" if i in chosen else "linear" for i in range(layers)], None


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


# ---------------------------------------------------------------------------- compressed and sparse attention

CSA_RATIO, HCA_RATIO = 4, 128  # tokens of a compressed entry that is chosen among, and of one that is read
RATIOS = {0: "window", CSA_RATIO: "csa", HCA_RATIO: "hca"}
# What a table of blocks calls the sizes that stand alone elsewhere.
BLOCK_WORDS = {
    "sparse_num_index_heads": "index_n_heads",
    "sparse_index_dim": "index_head_dim",
    "sparse_block_size": "index_block_size",
    "sparse_topk_blocks": "index_topk_blocks",
}


def with_blocks(keys: ConfigKeys) -> ConfigKeys:
    """Sizes of a scorer of blocks and its layers, said in a table of their own, beside the others."""
    table = keys.told.get("sparse_attention_config")
    if table is None:
        return keys
    if not isinstance(table, Mapping):
        raise keys.refuse("'sparse_attention_config' must be an object", sparse_attention_config=table)
    found: dict[str, Any] = {}
    for word, key in BLOCK_WORDS.items():
        value, (low, high, _) = table.get(word), WHOLE[key]
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise keys.refuse(f"'{word}' must be a whole number from {low} to {high:,}", **{word: value})
        found[key] = value
    chosen = table.get("sparse_attention_freq")
    if chosen is not None and keys.told.get("layer_types") is None:
        if not isinstance(chosen, list | tuple) or not all(
            isinstance(c, int) and c in (0, 1) for c in chosen
        ):
            raise keys.refuse("'sparse_attention_freq' must be 0 or 1 for each layer", entries=chosen)
        found["layer_types"] = ["minimax_m3_sparse" if c else "full_attention" for c in chosen]
    return replace(keys, told={**keys.told, **found})


def sparse_sizes(keys: ConfigKeys, family: ConfigFamily) -> dict[str, Any]:
    """What a query of sparse attention reads, and the scorer that chooses it."""
    top = keys.size("index_topk", 0.0)
    if keys.has("index_topk_blocks"):
        top = keys.size("index_topk_blocks") * keys.size("index_block_size")
    ratios = {"csa": float(CSA_RATIO), "hca": float(HCA_RATIO)} if family.attention == "compressed" else {}
    rates = keys.told.get("compress_rates")
    for word, value in (rates if isinstance(rates, Mapping) else {}).items():
        kind = ATTENTION_WORDS.get(word)
        if kind not in ("csa", "hca") or isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise keys.refuse(
                "'compress_rates' must be tokens of an entry, by kind of layer", **{str(word): value}
            )
        ratios[kind] = float(value)
    return {
        "sparse_top_k": top,
        "index_heads": keys.size("index_n_heads", 0.0),
        "index_dim": keys.size("index_head_dim", 0.0),
        "index_format": family.index_format,
        **{f"{kind}_ratio": value for kind, value in ratios.items()},
    }


def stream_sizes(keys: ConfigKeys, family: ConfigFamily) -> dict[str, Any]:
    """Streams of the residual, and the output projection of groups of heads."""
    if family.attention != "compressed":
        return {}
    heads, groups = keys.size("num_attention_heads"), keys.size("o_groups")
    if heads % groups:
        raise keys.refuse("o_groups must divide num_attention_heads", o_groups=int(groups), heads=int(heads))
    return {
        "o_groups": groups,
        "o_rank": keys.size("o_lora_rank"),
        "streams": keys.size("hc_mult", 1.0),
        "stream_mixes": keys.size("hc_sinkhorn_iters", 20.0),
    }


def compressed_layers(keys: ConfigKeys, family: ConfigFamily, layers: int) -> list[str] | None:
    """Kinds of attention by the ratio of each layer; entries after the last layer are of drafts."""
    told = keys.told.get("compress_ratios")
    if family.attention != "compressed" or told is None:
        return None
    if not isinstance(told, list | tuple) or len(told) < layers:
        raise keys.refuse("'compress_ratios' must have an entry for each layer", layers=layers, ratios=told)
    strange = [t for t in told[:layers] if type(t) not in (int, float) or t not in RATIOS]
    if strange:
        raise keys.refuse(
            "compress_ratios other than " + ", ".join(map(str, RATIOS)) + " are not modelled",
            ratio=strange[0],
        )
    return [RATIOS[t] for t in told[:layers]]


def check_kinds(keys: ConfigKeys, family: ConfigFamily, kinds: list[str]) -> None:
    """Sizes that the kinds of attention need are there."""
    compressed, has = {"csa", "hca"} & set(kinds), set(kinds)
    if compressed and family.attention != "compressed":
        raise keys.refuse(
            f"layers with compressed keys are not known of '{family.name}'", layer_types=sorted(compressed)
        )
    if family.attention == "compressed" and has - {"csa", "hca", "window"}:
        raise keys.refuse(f"'{family.name}' has a window in every layer", kinds=sorted(has))
    scored = ("index_n_heads", "index_head_dim")
    for kind in sorted(has & {"csa", "sparse"}):
        for key in ("index_topk", *scored) if kind == "csa" else scored:
            if not keys.size(key, 0.0):
                raise keys.refuse(
                    f"'{key}' must be said for layers of sparse attention", **{key: keys.told.get(key)}
                )
    if family.attention == "compressed" and not keys.size("sliding_window", 0.0):
        raise keys.refuse("'sliding_window' must be said for layers with compressed keys", sliding_window=0)
