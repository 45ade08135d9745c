"""Serving as runs of a study: points and guesses by DFModel's closed form, drafts by `evaluate`."""

from __future__ import annotations

from typing import Any

import numpy as np

from dfmodel.serving import (
    ServedLayer,
    ServingChips,
    ServingStage,
    dfmodel_tokens_per_s,
    draft_passes,
    serving_stage,
)
from strata.base.arrays import Array
from strata.base.errors import UnknownName, require
from strata.base.reading import known_keys
from strata.search.inputs import named_inputs
from strata.serving.drafts import compare_drafts
from strata.serving.speculation import COUNTINGS

SERVED_KEYS = ("served_layers", "chips", "tp", "pp", "tokens", "context", "cached", "factor")
GUESSED_KEYS = ("target", "window", "acceptance", "tree", "counting", "verified")
DRAFT_KEYS = (
    "drafts", "target", "system", "plan", "draft_plan", "engine", "set", "batch", "context", "window",
    "acceptance", "branches", "counting",
)  # fmt: skip
LAYER = ("hidden", "inner", "heads", "layers", "read")
CHIPS = ("peak", "efficiency", "memory", "link", "latency")
TIMES = ("compute", "memory", "serialisation", "link_latency", "hop", "interval", "latency", "throughput")


def _numbers(table: dict[str, Any], keys: tuple[str, ...], where: str) -> dict[str, float]:
    for key in keys:
        require(key in table, f"{where} needs {', '.join(keys)}", missing=key)
    return {key: float(table[key]) for key in keys}


def run_served(entry: dict[str, Any], where: str, *_: Any) -> dict[str, Any]:
    """Serving by DFModel's closed form: times of a stage [s], `latency` (TTFT or TPOT) and `throughput` by
    `model` and by `place`, a pair of `tp` and `pp`.

    With `target`, one of the layers, the others are its drafts: `tokens_per_s` by `draft`, window and
    acceptance. The target verifies K + 1 tokens, or 2^K + 1 of a tree, unless `verified` says how many.
    """
    keys = (*SERVED_KEYS, *(GUESSED_KEYS if "target" in entry else ()))
    known_keys(entry, ("name", *keys), where)
    layers = {n: _numbers(t, LAYER, f"{where}: layer {n}") for n, t in entry["served_layers"].items()}
    chips = ServingChips(**_numbers(entry.get("chips", {}), CHIPS, f"{where}: chips"))
    if "target" in entry:
        return _guessed(entry, where, layers, chips)
    tp, pp = np.array(entry["tp"], float), np.array(entry.get("pp", [1.0] * len(entry["tp"])), float)
    require(len(tp) == len(pp), f"{where}: tp and pp go in pairs", tp=len(tp), pp=len(pp))
    stages = [_stage(layer, chips, entry, tp, pp) for layer in layers.values()]
    found: dict[str, Any] = {
        name: np.array([np.broadcast_to(np.asarray(getattr(s, name), float), tp.shape) for s in stages])
        for name in TIMES
    }
    places = np.array([f"TP{t:g} PP{p:g}" for t, p in zip(tp, pp, strict=True)])
    found |= {"model": np.array(list(layers)), "place": places, "tp": tp, "pp": pp}
    return found | {"axes": ["model", "place"]}


def _stage(
    layer: dict[str, float], chips: ServingChips, entry: dict[str, Any], tp: Any, pp: Any, **other: Any
) -> ServingStage:
    shape = {key: layer[key] for key in LAYER if key != "layers"}
    told = {key: float(entry[key]) for key in ("tokens", "context", "cached", "factor") if key in entry}
    return serving_stage(ServedLayer(**shape), chips, layers=layer["layers"], tp=tp, pp=pp, **told | other)


def _guessed(
    entry: dict[str, Any], where: str, layers: dict[str, dict[str, float]], chips: ServingChips
) -> dict[str, Any]:
    name = entry["target"]
    require(name in layers and len(layers) > 1, f"{where}: target is one of several layers", target=name)
    counting = entry.get("counting", "proportional")
    if counting not in COUNTINGS:
        raise UnknownName(f"counting of {where}", counting, COUNTINGS, ", ".join(COUNTINGS))
    window, share = np.array(entry["window"], float)[:, None], np.array(entry["acceptance"], float)
    passes: Array = np.asarray(draft_passes(window, bool(entry.get("tree", False))), float)
    verified = np.asarray(entry.get("verified", passes + 1.0), float)
    tp, pp = float(entry["tp"]), float(entry.get("pp", 1.0))
    verify = _stage(layers[name], chips, entry, tp, pp, tokens=verified).latency
    tokens = np.asarray(COUNTINGS[counting](window, share), float)
    drafts = [n for n in layers if n != name]
    steps = np.array([float(_stage(layers[n], chips, entry, tp, pp).latency) for n in drafts])
    rate = dfmodel_tokens_per_s(passes[None], steps[:, None, None], verify, tokens[None])
    return {
        "tokens_per_s": rate,
        "plain": 1.0 / float(_stage(layers[name], chips, entry, tp, pp).latency),
        "guess": passes[None, :, 0] * steps[:, None],
        "verify": np.broadcast_to(verify, window.shape)[:, 0],
        "draft": np.array(drafts),
        "window": window[:, 0],
        "acceptance": share,
        "axes": ["draft", "window", "acceptance"],
    }


def run_drafts(entry: dict[str, Any], where: str, *_: Any) -> dict[str, Any]:
    """Drafts by `evaluate`: `tokens_per_s` and `speedup` by draft, window and acceptance, `best_window` by
    draft and acceptance, `guess` and `verify` [s] by draft and window, `plain` [tokens/s].
    """
    known_keys(entry, ("name", *DRAFT_KEYS), where)
    for key in ("target", "system"):
        require(key in entry, f"{where} needs target and system", missing=key)
    engine = entry.get("engine", "ideal")
    system, target, software = named_inputs(
        entry["target"], entry["system"], engine, "", "", entry.get("set", [])
    )
    asked: dict[str, Any] = {
        k: entry[k] for k in ("plan", "draft_plan", "window", "acceptance", "counting") if k in entry
    }
    asked |= {k: float(entry[k]) for k in ("batch", "context", "branches") if k in entry}
    found = compare_drafts(target, entry["drafts"], system, engine=software, **asked)
    names, windows = list(found.drafts), (len(found.windows), 1)

    def by_window(value: Any) -> Array:
        return np.broadcast_to(np.asarray(value, float), windows)[:, 0]

    return {
        "tokens_per_s": np.array([found.tokens_per_s(n) for n in names]),
        "speedup": np.array([found.speedup(n) for n in names]),
        "best_window": np.array([found.best_windows(n) for n in names]),
        **{k: np.array([by_window(getattr(found.drafts[n], k)) for n in names]) for k in ("guess", "verify")},
        "fits": np.array([by_window(found.drafts[n].fits) for n in names]) > 0,
        "plain": found.plain,
        "draft": np.array(names),
        "window": found.windows,
        "acceptance": found.acceptances,
        "axes": ["draft", "window", "acceptance"],
    }
