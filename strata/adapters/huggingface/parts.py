"""Sizes of what a config has beside attention and feed-forwards: mixers of layers that keep a state in place
of a cache; vision towers, stated and not timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strata.adapters.huggingface.keys import ConfigKeys, shortened
from strata.adapters.huggingface.names import ConfigFamily
from strata.base.errors import BadFile
from strata.workload.mixer import Mixer

CHANNELS_OF_A_STEP = 16  # a Mamba's step has a rank of one in so many channels of the model, unless stated
STATE_FORMATS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
# What families call the sizes of a tower.
TOWER_KEYS = {
    "hidden": ("hidden_size", "vt_hidden_size", "embed_dim", "width"),
    "layers": ("num_hidden_layers", "depth", "vt_num_hidden_layers", "layers"),
    "ffn": ("intermediate_size", "vt_intermediate_size"),
    "patch": ("patch_size",),
    "image": ("image_size",),
    "positions": ("num_position_embeddings",),
    "channels": ("num_channels", "in_channels", "in_chans"),
    "frames": ("temporal_patch_size",),
}
GATED = ("pixtral", "qwen2_5_vl")  # three matrices in a feed-forward, not two
LARGEST = 2**24
WIDE_TOWER = 4.0  # a feed-forward over the width of its tower, where not stated


def read_mixer(keys: ConfigKeys, family: ConfigFamily) -> Mixer | None:
    """The sizes of the layers that keep a state."""
    if not family.mixer:
        return None
    read = {"gated_delta": _delta, "kda": _kda, "mamba1": _mamba1, "mamba2": _mamba2, "lightning": _lightning}
    return Mixer(kind=family.mixer, **read[family.mixer](keys, family), state=_state(keys))


def _delta(keys: ConfigKeys, family: ConfigFamily) -> dict[str, Any]:
    heads, shared = keys.size("linear_num_value_heads"), keys.size("linear_num_key_heads")
    if heads % shared:
        raise keys.refuse(
            "linear_num_key_heads must divide linear_num_value_heads", key_heads=shared, value_heads=heads
        )
    return dict(
        heads=heads,
        key_heads=shared,
        key_dim=keys.size("linear_key_head_dim"),
        value_dim=keys.size("linear_value_head_dim"),
        conv=keys.size("linear_conv_kernel_dim", 4.0),
    )


def _kda(keys: ConfigKeys, family: ConfigFamily) -> dict[str, Any]:
    told = keys.table("linear_attn_config")
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
    alike = {"heads": heads, "key_heads": heads, "key_dim": dim, "value_dim": dim, "conv": conv, "rank": dim}
    return alike | {"full_rank_gate": told.get("use_full_rank_gate") is True}


def _mamba1(keys: ConfigKeys, family: ConfigFamily) -> dict[str, Any]:
    hidden = keys.size("hidden_size")
    inner = keys.size("mamba_expand", 2.0) * hidden
    return dict(
        heads=inner,
        key_dim=keys.size("mamba_d_state"),
        conv=keys.size("mamba_d_conv", 4.0),
        rank=keys.size("mamba_dt_rank", -(-hidden // CHANNELS_OF_A_STEP)),
        bias=keys.flag("mamba_proj_bias", keys.flag("use_bias")),
        conv_bias=keys.flag("mamba_conv_bias", keys.flag("use_conv_bias", True)),
        norm=False,
        inner_norms=family.inner_norms,
    )


def _mamba2(keys: ConfigKeys, family: ConfigFamily) -> dict[str, Any]:
    pure = family.layers == "linear"  # whose heads are the only ones
    heads = keys.size("num_attention_heads" if pure else "mamba_n_heads")
    inner = keys.size("mamba_d_ssm", keys.size("mamba_expand", 2.0) * keys.size("hidden_size"))
    dim = keys.size("head_dim" if pure else "mamba_d_head", inner / heads)
    groups = keys.size("mamba_n_groups", 1.0)
    if heads % groups or dim != int(dim):
        raise keys.refuse(
            "mamba_n_groups must divide mamba_n_heads", groups=groups, heads=heads, head_dim=dim
        )
    return dict(
        heads=heads,
        key_heads=groups,
        key_dim=keys.size("mamba_d_state"),
        value_dim=dim,
        conv=keys.size("mamba_d_conv", 4.0),
        chunk=keys.size("mamba_chunk_size", 256.0),
        bias=keys.flag("mamba_proj_bias", keys.flag("use_bias")),
        conv_bias=keys.flag("mamba_conv_bias", keys.flag("use_conv_bias", True)),
        norm=keys.flag("mamba_rms_norm", family.layers != "parallel"),
    )


def _lightning(keys: ConfigKeys, family: ConfigFamily) -> dict[str, Any]:
    heads = keys.size("num_attention_heads")
    dim = keys.size("head_dim", keys.size("hidden_size") / heads)
    chunk = keys.size("mamba_chunk_size", 256.0)
    return {"heads": heads, "key_heads": heads, "key_dim": dim, "value_dim": dim, "chunk": chunk}


def _state(keys: ConfigKeys) -> str:
    """Format of the state between steps."""
    told = keys.told.get("mamba_ssm_cache_dtype", keys.told.get("mamba_ssm_dtype", "float32"))
    if told not in STATE_FORMATS:
        raise keys.refuse("the format of states must be of " + ", ".join(STATE_FORMATS), dtype=told)
    return STATE_FORMATS[told]


def read_tower(config: Mapping[str, Any], label: str) -> dict[str, Any]:
    """What a model has of the tower that its config's `vision_config` describes; nothing where there is none
    or its sizes are not said.
    """
    told = config.get("vision_config")
    if not isinstance(told, Mapping):
        return {}
    sizes = {name: _size(told, keys, label) for name, keys in TOWER_KEYS.items()}
    hidden, layers, patch = sizes["hidden"], sizes["layers"], sizes["patch"]
    if not (hidden and layers and patch):
        return {}
    positions = sizes["positions"] or (sizes["image"] // patch) ** 2
    parameters, flop = tower_cost(
        hidden,
        layers,
        sizes["ffn"] or WIDE_TOWER * hidden,
        patch**2 * (sizes["channels"] or 3.0) * (sizes["frames"] or 1.0),
        positions,
        matrices=3.0 if told.get("model_type") in GATED else 2.0,
    )
    return {"vision_tower": True, "tower_parameters": parameters, "tower_flop": flop}


def tower_cost(
    hidden: float, layers: float, ffn: float, pixels: float, patches: float, matrices: float = 2.0
) -> tuple[float, float]:
    r"""Parameters of a vision transformer and the operations of one image, forward; 0 of these where the
    size of an image is not stated.

    .. math:: N = L (4 h^2 + m h f + 9 h + f) + h (p + 3 + T), \quad
        F = 2 T (L (4 h^2 + m h f) + p h) + 4 L T^2 h

    width h, layers L, feed-forward f of m matrices, values of a patch p, patches of an image T. Biases of
    all products, two norms of each layer and a last one are counted, the projector to the text is not.

    Dosovitskiy et al., An Image is Worth 16x16 Words, arXiv 2010.11929, sec. 3.1; SigLIP's 416,866,032 of
    Gemma 3 (arXiv 2503.19786, table 1: 417 M).

    >>> tower_cost(1152.0, 27.0, 4304.0, 14**2 * 3.0, 4096.0)[0]
    416866032.0
    """
    products = 4.0 * hidden**2 + matrices * hidden * ffn
    parameters = layers * (products + 9.0 * hidden + ffn) + hidden * (pixels + 3.0 + patches)
    flop = 2.0 * patches * (layers * products + pixels * hidden) + 4.0 * layers * patches**2 * hidden
    return parameters, flop


def _size(told: Mapping[str, Any], keys: tuple[str, ...], label: str) -> float:
    for key in keys:
        value = told.get(key)
        if value is None:
            continue
        if isinstance(value, list | tuple) and value and all(v == value[0] for v in value):
            value = value[0]
        whole = isinstance(value, int | float) and not isinstance(value, bool)
        if not whole or not 0 <= value <= LARGEST or value != int(value):
            raise BadFile(
                f"{label}: 'vision_config.{key}' must be a whole number to {LARGEST:,}, "
                f"but got {shortened(value)}"
            )
        return float(value)
    return 0.0
