"""Keys of a Hugging Face `config.json` that say sizes: their names in each family, their types and limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from strata.base.errors import BadFile
from strata.params import data_folder, read_toml

# Keys with a whole number: the least and the most it may be, and what other families call it.
WHOLE: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "hidden_size": (1, 2**20, ("n_embd", "d_model")),
    "num_hidden_layers": (1, 10_000, ("n_layer", "n_layers", "num_layers")),
    "num_attention_heads": (1, 2**16, ("n_head", "n_heads", "num_heads")),
    "num_key_value_heads": (1, 2**16, ("num_kv_heads", "kv_n_heads", "multi_query_group_num")),
    "head_dim": (1, 2**16, ("kv_channels",)),
    "vocab_size": (1, 2**26, ("padded_vocab_size",)),
    "intermediate_size": (1, 2**24, ("n_inner", "ffn_dim", "ffn_hidden_size")),
    "intermediate_size_mlp": (1, 2**24, ("dense_intermediate_size",)),
    "expansion_ratio": (1, 1024, ()),
    "v_head_dim": (1, 2**16, ()),
    "qk_nope_head_dim": (1, 2**16, ()),
    "qk_rope_head_dim": (1, 2**16, ()),
    "q_lora_rank": (0, 2**20, ()),
    "kv_lora_rank": (1, 2**20, ()),
    "index_topk": (0, 2**30, ()),
    "index_n_heads": (0, 2**16, ()),
    "index_head_dim": (0, 2**16, ()),
    "index_block_size": (1, 2**20, ()),
    "index_topk_blocks": (1, 2**20, ()),
    "o_lora_rank": (1, 2**20, ()),
    "o_groups": (1, 2**16, ()),
    "hc_mult": (1, 64, ()),
    "hc_sinkhorn_iters": (0, 1000, ()),
    "num_hash_layers": (0, 10_000, ()),
    "moe_latent_size": (1, 2**20, ()),
    "num_experts": (0, 2**16, ("num_local_experts", "n_routed_experts", "moe_num_experts")),
    "num_experts_per_tok": (
        0, 2**16, ("moe_topk", "moe_top_k", "moe_k", "experts_per_token", "num_experts_per_token"),
    ),
    "moe_intermediate_size": (1, 2**24, ()),
    "n_shared_experts": (0, 2**16, ("num_shared_experts", "num_shared_expert", "moe_num_shared_experts")),
    "shared_expert_intermediate_size": (
        0, 2**24, ("shared_intermediate_size", "moe_shared_expert_intermediate_size"),
    ),
    "first_k_dense_replace": (0, 10_000, ("num_dense_layers", "moe_layer_start_index")),
    "moe_layer_end_index": (0, 10_000, ()),
    "moe_layer_interval": (1, 10_000, ()),
    "decoder_sparse_step": (1, 10_000, ("interleave_moe_layer_step",)),
    "expert_layer_period": (1, 10_000, ()),
    "expert_layer_offset": (0, 10_000, ()),
    "attn_layer_period": (1, 10_000, ()),
    "attn_layer_offset": (0, 10_000, ()),
    "n_group": (1, 2**16, ("num_expert_group",)),
    "topk_group": (1, 2**16, ()),
    "sliding_window": (0, 2**30, ("window_size",)),
    "attention_chunk_size": (1, 2**30, ()),
    "max_window_layers": (0, 2**20, ()),
    "max_position_embeddings": (1, 2**40, ("n_positions", "max_seq_len", "seq_length")),
    "word_embed_proj_dim": (1, 2**20, ()),
    "full_attention_interval": (1, 10_000, ()),
    "linear_num_value_heads": (1, 2**16, ("linear_num_heads",)),
    "linear_num_key_heads": (1, 2**16, ()),
    "linear_key_head_dim": (1, 2**16, ("linear_head_dim",)),
    "linear_value_head_dim": (1, 2**16, ()),
    "linear_conv_kernel_dim": (1, 1024, ()),
    "mamba_d_state": (1, 2**16, ("ssm_state_size", "state_size")),
    "mamba_d_conv": (1, 1024, ("conv_kernel",)),
    "mamba_expand": (1, 1024, ("expand",)),
    "mamba_n_heads": (1, 2**16, ("mamba_num_heads",)),
    "mamba_d_head": (1, 2**16, ("mamba_head_dim",)),
    "mamba_n_groups": (1, 2**16, ("n_groups",)),
    "mamba_d_ssm": (1, 2**24, ()),
    "mamba_dt_rank": (1, 2**20, ("time_step_rank",)),
    "mamba_chunk_size": (1, 2**20, ("chunk_size", "block_size")),
}  # fmt: skip
# Keys with true or false.
FLAGS = (
    "use_sliding_window", "tie_word_embeddings", "multi_query", "multi_query_attention",
    "new_decoder_architecture", "learned_pos_emb", "attention_bias", "attention_out_bias", "mlp_bias", "bias",
    "use_bias", "use_qkv_bias", "qkv_bias", "add_qkv_bias", "add_bias_linear", "qkv_proj_bias",
    "use_qk_norm", "qk_layernorm", "use_routing_bias", "no_bias", "enable_bias", "lm_head_bias",
    "use_parallel_residual", "parallel_attn", "attn_output_gate", "mamba_conv_bias", "use_conv_bias",
    "mamba_proj_bias", "mamba_rms_norm",
)  # fmt: skip
WORDS = ("model_type", "topk_method", "mamba_ssm_cache_dtype", "mamba_ssm_dtype")
# Keys with one entry for each layer, or with a rule in its place.
LISTS = (
    "layer_types", "mlp_layer_types", "attention_layers", "attention_types", "no_rope_layers",
    "mlp_only_layers", "moe_layers", "moe_layer_freq", "sliding_window_pattern", "_sliding_window_pattern",
    "global_attn_every_n_layers", "architectures", "hybrid_override_pattern", "layers_block_type",
    "attn_layer_indices", "attn_type_list", "linear_attn_config", "compress_ratios", "compress_rates",
    "sparse_attention_config",
)  # fmt: skip
NESTED = ("text_config", "llm_config", "language_config")  # a text decoder beside other parts
PARTS = ("attn_config", "ffn_config")  # tables of a decoder's own
SAID = ("quantization_config", "compression_config", "_strata", "model_type", *NESTED, *PARTS)
SIZE_LIKE = ("dim", "size", "heads", "layers", "rank", "experts", "window", "num_", "n_", "groups", "width")


@dataclass(frozen=True, kw_only=True)
class ConfigKeys:
    """What a config says under the names of the first column; absent is None."""

    label: str
    nested: bool  # sizes come from a text_config, which leaves out what its class has by default
    told: Mapping[str, Any]
    raw: Mapping[str, Any]
    outer: str = ""  # model_type of what the text decoder is part of
    also_read: list[str] = field(default_factory=list)

    def size(self, key: str, default: float | None = None) -> float:
        """A whole number, as the float that equations take; one that is needed and missing is named."""
        value = self.told.get(key, default)
        if value is None:
            raise BadFile(f"{self.label}: config.json has no '{key}', which a transformer needs")
        return float(value)

    def has(self, key: str) -> bool:
        return self.told.get(key) is not None

    def flag(self, key: str, default: bool = False) -> bool:
        return bool(self.told.get(key, default))

    def table(self, name: str) -> Mapping[str, Any]:
        """A table of a config's own, empty where there is none."""
        inner = self.raw.get(name)
        return inner if isinstance(inner, Mapping) else {}

    def layer_words(self, key: str, layers: int, words: Mapping[str, str]) -> list[str] | None:
        """A key with one word for each layer, in our words; None where it is not said."""
        told = self.told.get(key)
        if told is None or told == []:
            return None
        if not isinstance(told, list | tuple) or not all(isinstance(t, str) for t in told):
            raise self.refuse(f"'{key}' must be a list of words, one for each layer", **{key: told})
        if len(told) != layers:
            raise self.refuse(f"'{key}' must have one entry for each layer", entries=len(told), layers=layers)
        strange = next((t for t in told if t not in words), None)
        if strange is not None:
            raise self.refuse(f"'{key}' must be of {', '.join(words)}", **{key: strange})
        return [words[t] for t in told]

    def layer_choices(self, key: str, layers: int, no: str, yes: str) -> list[str]:
        """A key with 0 or 1 for each layer, as words for the two."""
        told = self.told[key]
        whole = isinstance(told, list | tuple) and len(told) == layers
        if not whole or not all(isinstance(t, int) and t in (0, 1) for t in told):
            raise self.refuse(f"'{key}' must be 0 or 1 for each layer", layers=layers, **{key: told})
        return [yes if t else no for t in told]

    def layer_places(self, key: str, told: Any, layers: int, first: int = 0) -> set[int]:
        """Places of layers, counted from `first`."""
        last = layers + first - 1
        whole = isinstance(told, list | tuple) and all(
            isinstance(t, int) and first <= t <= last for t in told
        )
        if not whole:
            raise self.refuse(f"'{key}' must be places of layers from {first} to {last}", places=told)
        return set(told)

    def refuse(self, relation: str, **values: object) -> BadFile:
        """One line: the relation that is broken and what breaks it."""
        shown = ", ".join(f"{k}={shortened(v)}" for k, v in values.items())
        return BadFile(f"{self.label}: {relation}, but got ({shown})")


def shortened(value: object) -> str:
    """A value on one line of at most 60 characters.

    >>> shortened("a" * 100)[-4:]
    "...'"
    """
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**15:
        return f"a number of {len(bin(value)) - 2} bits"
    said = " ".join(repr(value).split())
    return said if len(said) <= 60 else said[:56] + "..." + said[-1]


def one_line(value: object) -> str:
    """A word of a config as it may stand in a message.

    >>> one_line("llama\\n2 ")
    'llama 2'
    """
    return " ".join(str(value).split())[:80]


def checked_keys(config: Mapping[str, Any], label: str) -> ConfigKeys:
    """The sizes of a config, checked; wrong types, signs and fractions are refused by key."""
    flat, nested, outer = _flattened(config, label)
    told: dict[str, Any] = {}
    renamed: dict[str, str] = {}
    for key, (_, _, others) in WHOLE.items():
        for name in (key, *others):
            if flat.get(name) is not None and flat[name] != "auto":
                told[key], renamed[key] = _uniform(flat[name], name, label), name
                break
    told |= {key: flat[key] for key in (*FLAGS, *WORDS) if flat.get(key) is not None}
    for key, value in told.items():
        if not _is_right(key, value):
            name, got = renamed.get(key, key), shortened(value)
            raise BadFile(f"{label}: '{name}' must be {_must_be(key)}, but got {got}")
    told |= {key: flat[key] for key in LISTS if flat.get(key) is not None}
    for key, value in flat.items():
        if not all_finite(value) and not _ignored(key):
            raise BadFile(f"{label}: '{key}' must be finite, but got {shortened(value)}")
    whole = {key: int(told[key]) for key in WHOLE if key in told}
    return ConfigKeys(label=label, nested=nested, told=told | whole, raw=flat, outer=outer)


def _flattened(config: Mapping[str, Any], label: str) -> tuple[dict[str, Any], bool, str]:
    """Keys of a text decoder and of its own tables at one level."""
    flat = {str(k): v for k, v in config.items()}
    outer, nested = "", False
    for key in NESTED:
        inner = flat.get(key)
        if inner is None:
            continue
        if not isinstance(inner, Mapping):
            raise BadFile(f"{label}: '{key}' must be an object, but got {shortened(inner)}")
        outer, nested = one_line(flat.get("model_type", "")), True
        flat = {**{k: v for k, v in flat.items() if k != "model_type"}, **inner}
    for key in PARTS:
        if isinstance(flat.get(key), Mapping):
            flat = {**{k: v for k, v in flat[key].items() if k not in ("model_type", "hidden_size")}, **flat}
    return flat, nested, outer


def _uniform(value: Any, name: str, label: str) -> Any:
    """A size said once for each layer, where all agree."""
    if not isinstance(value, list | tuple) or not value:
        return value
    if any(v != value[0] for v in value):
        raise BadFile(f"{label}: '{name}' differs from layer to layer ({shortened(value)}); not modelled")
    return value[0]


def _must_be(key: str) -> str:
    """What a key holds, in words."""
    if key in WHOLE:
        low, high, _ = WHOLE[key]
        return f"a whole number from {low} to {high:,}"
    return "true or false" if key in FLAGS else "a word"


def _is_right(key: str, value: Any) -> bool:
    """Whether a value is what its key holds: a size within its limits, a flag, a word."""
    if key not in WHOLE:
        return isinstance(value, bool if key in FLAGS else str)
    low, high, _ = WHOLE[key]
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole and not isinstance(value, bool) and low <= value <= high


def all_finite(value: Any) -> bool:
    """Whether no number in a value is infinite or NaN."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, Mapping):
        return all(all_finite(v) for v in value.values())
    return all(all_finite(v) for v in value) if isinstance(value, list | tuple) else True


@lru_cache(maxsize=1)
def _patterns() -> tuple[frozenset[str], tuple[str, ...]]:
    """Keys that say nothing of sizes: those named whole, and patterns of others."""
    table = read_toml(data_folder("configs") / "keys.toml")["ignored"]
    listed = {pattern for patterns in table.values() for pattern in patterns}
    loose = {pattern for pattern in listed if "*" in pattern}
    return frozenset(listed - loose), tuple(sorted(loose))


def _matches(key: str, pattern: str) -> bool:
    """Whether a key is as a pattern has it, in which * stands for anything (no regular expressions: to make
    those of all patterns takes longer than all else that reads a config).

    >>> [_matches(key, "rope_*_x") for key in ("rope_a_x", "rope__x", "rope_x", "a_rope_a_x")]
    [True, True, False, False]
    """
    first, *middle, last = pattern.split("*")
    if not key.startswith(first):
        return False
    at = len(first)
    for piece in middle:
        found = key.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return key.endswith(last) and len(key) - len(last) >= at


def _ignored(key: str) -> bool:
    whole, loose = _patterns()
    return key in whole or any(_matches(key, pattern) for pattern in loose)


def unread_keys(keys: ConfigKeys) -> tuple[str, ...]:
    """Keys of a config that were neither read nor are known to say nothing of sizes."""
    known = {name for key, (_, _, others) in WHOLE.items() for name in (key, *others)}
    known |= {*FLAGS, *WORDS, *LISTS, *SAID, *keys.also_read}
    off: tuple[Any, ...] = (None, False, 0, [], {}, "")  # what is switched off changes nothing
    found = [k for k, v in keys.raw.items() if k not in known and not _ignored(k) and v not in off]
    return tuple(sorted(found))


def size_like(keys: ConfigKeys, unread: tuple[str, ...]) -> tuple[str, ...]:
    """Of the unread keys those that look like sizes."""
    return tuple(
        k
        for k in unread
        if any(part in k.lower() for part in SIZE_LIKE)
        and isinstance(keys.raw[k], int | float | list)
        and not isinstance(keys.raw[k], bool)
    )
