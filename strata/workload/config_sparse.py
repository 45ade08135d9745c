"""Sparse and compressed attention of a config: its layers and its sizes; streams of the residual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from strata.workload.config_families import ConfigFamily
from strata.workload.config_keys import WHOLE, ConfigKeys

CSA_RATIO, HCA_RATIO = 4, 128  # tokens of a compressed entry that is chosen among, and of one that is read
RATIOS = {0: "window", CSA_RATIO: "csa", HCA_RATIO: "hca"}
RATE_WORDS = {"compressed_sparse_attention": "csa", "heavily_compressed_attention": "hca"}
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
        if word not in RATE_WORDS or isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise keys.refuse(
                "'compress_rates' must be tokens of an entry, by kind of layer", **{str(word): value}
            )
        ratios[RATE_WORDS[word]] = float(value)
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


def _is_ratio(told: Any) -> bool:
    return isinstance(told, int | float) and not isinstance(told, bool) and told in RATIOS


def compressed_layers(keys: ConfigKeys, family: ConfigFamily, layers: int) -> list[str] | None:
    """Kinds of attention by the ratio of each layer; entries after the last layer are of drafts."""
    told = keys.told.get("compress_ratios")
    if family.attention != "compressed" or told is None:
        return None
    if not isinstance(told, list | tuple) or len(told) < layers:
        raise keys.refuse("'compress_ratios' must have an entry for each layer", layers=layers, ratios=told)
    strange = [t for t in told[:layers] if not _is_ratio(t)]
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
    needed = {"csa": ("index_topk", "index_n_heads", "index_head_dim"), "window": (), "hca": ()}
    scored = ("index_n_heads", "index_head_dim")
    for kind in sorted(has & {"csa", "sparse"}):
        for key in needed.get(kind, scored):
            if not keys.size(key, 0.0):
                raise keys.refuse(
                    f"'{key}' must be said for layers of sparse attention", **{key: keys.told.get(key)}
                )
    if family.attention == "compressed" and not keys.size("sliding_window", 0.0):
        raise keys.refuse("'sliding_window' must be said for layers with compressed keys", sliding_window=0)
