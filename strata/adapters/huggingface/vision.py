"""Vision towers beside a text decoder: their parameters and the operations of an image, stated and not
timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strata.adapters.huggingface.keys import shortened
from strata.errors import BadFile

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


@dataclass(frozen=True, kw_only=True)
class VisionTower:
    """A tower's sizes as counted; 0 operations where the size of an image is not stated."""

    parameters: float
    flop: float  # of one image, forward
    patches: float


def read_tower(config: Mapping[str, Any], label: str) -> VisionTower | None:
    """The tower that a config's `vision_config` describes; None where there is none or its sizes are not
    said.
    """
    told = config.get("vision_config")
    if not isinstance(told, Mapping):
        return None
    sizes = {name: _size(told, keys, label) for name, keys in TOWER_KEYS.items()}
    hidden, layers, patch = sizes["hidden"], sizes["layers"], sizes["patch"]
    if not (hidden and layers and patch):
        return None
    positions = sizes["positions"] or (sizes["image"] // patch) ** 2
    return tower_cost(
        hidden,
        layers,
        sizes["ffn"] or WIDE_TOWER * hidden,
        patch**2 * (sizes["channels"] or 3.0) * (sizes["frames"] or 1.0),
        positions,
        matrices=3.0 if told.get("model_type") in GATED else 2.0,
    )


def tower_cost(
    hidden: float, layers: float, ffn: float, pixels: float, patches: float, matrices: float = 2.0
) -> VisionTower:
    r"""Parameters of a vision transformer and the operations of one image.

    .. math:: N = L (4 h^2 + m h f + 9 h + f) + h (p + 3 + T), \quad
        F = 2 T (L (4 h^2 + m h f) + p h) + 4 L T^2 h

    width h, layers L, feed-forward f of m matrices, values of a patch p, patches of an image T. Biases of
    all products, two norms of each layer and a last one are counted, the projector to the text is not.

    Dosovitskiy et al., An Image is Worth 16x16 Words, arXiv 2010.11929, sec. 3.1; SigLIP's 416,866,032 of
    Gemma 3 (arXiv 2503.19786, table 1: 417 M).

    >>> tower_cost(1152.0, 27.0, 4304.0, 14**2 * 3.0, 4096.0).parameters
    416866032.0
    """
    products = 4.0 * hidden**2 + matrices * hidden * ffn
    parameters = layers * (products + 9.0 * hidden + ffn) + hidden * (pixels + 3.0 + patches)
    flop = 2.0 * patches * (layers * products + pixels * hidden) + 4.0 * layers * patches**2 * hidden
    return VisionTower(parameters=parameters, flop=flop, patches=patches)


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
