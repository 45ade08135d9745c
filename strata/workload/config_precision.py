"""The formats of a checkpoint's weights, from its `quantization_config`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strata.errors import BadFile, BadValue
from strata.precision import check
from strata.workload.config_keys import one_line, shortened

# Formats by what quantisers call them; the second says whether weights are widened before a product.
PLAIN = {
    "fbgemm_fp8": ("fp8", False),
    "mxfp8": ("mxfp8", False),
    "awq": ("int4", True),
    "bitsandbytes": ("int4", True),
    "int8": ("int8", False),
}
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
    facts = config.get("_strata")
    facts = facts if isinstance(facts, Mapping) else {}
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
    if method in ("modelopt", "modelopt_fp4", "modelopt_fp8", *MODELOPT):
        inner = quant.get("quantization")
        algo = quant.get("quant_algo") or (inner.get("quant_algo") if isinstance(inner, Mapping) else None)
        named = MODELOPT.get(str(algo if algo is not None else method))
        return (named, named, named == "int4") if named else None
    if method == "quark":
        told = _table(_table(quant.get("global_quant_config")).get("weight")).get("dtype")
        named = QUARK.get(str(told))
        return (named, named, named == "int4") if named else None
    kind, widened = PLAIN.get(method, ("", False))
    return (kind, kind, widened) if kind else None


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _compressed(quant: Mapping[str, Any]) -> tuple[str, str, bool] | None:
    """Groups of layers with bits and type of their weights; activations that stay wide widen the weights."""
    left_out = quant.get("ignore") or []
    only_experts = isinstance(left_out, list) and any("self_attn" in str(name) for name in left_out)
    groups = quant.get("config_groups")
    first = _table(next(iter(groups.values()), None) if isinstance(groups, Mapping) else None)
    weights = _table(first.get("weights"))
    bits, kind = weights.get("num_bits", 4), weights.get("type", "int")
    blocks = weights.get("strategy") == "block"
    read = {(4, "int"): "int4", (8, "int"): "int8", (8, "float"): "fp8", (4, "float"): "nvfp4"}
    found = read.get((bits, kind)) if isinstance(bits, int) and isinstance(kind, str) else None
    if found is None:
        return None
    found = "fp8_block" if found == "fp8" and blocks else found
    group = weights.get("group_size")
    if group == BLOCK_OF_MX and found in ("nvfp4", "fp8"):
        found = {"nvfp4": "mxfp4", "fp8": "mxfp8"}[found]
    if only_experts:
        return "bf16", found, False  # only the routed experts are quantised
    return found, found, found.startswith("int") and not first.get("input_activations")
