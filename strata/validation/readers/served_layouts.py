"""Parts of rows of served models as texts: layouts, formats, versions of engines, workers apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from math import ceil, floor, log2
from typing import Any

import numpy as np

from strata.errors import BadFile, BadValue, UnknownName, require
from strata.mapping.engine import engine as make_engine
from strata.mapping.plan import plan as make_plan
from strata.precision import bytes_of, supports
from strata.serving.pools import pool
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.labels import multiplied_format, server_of, weight_format
from strata.validation.readers.served_rows import Cells, ServedConditions
from strata.workload.model import Model

OWN_RELEASE = re.compile(r"v?\d+(\.\d+)+(rc\d+)?(\.post\d+)?")  # not a router's version around an engine
BLOCK = 64  # tokens that scripts round a step up to
MOST_NODES = 128


def layout_text(model: Model, *, tp: int = 1, pp: int = 1, dp: int = 1, ep: int = 1, moe_tp: int = 0) -> str:
    """A plan as text; experts are cut further over the ranks that are left.

    >>> from strata.workload.model import model
    >>> layout_text(model("deepseek-v3"), dp=8, ep=4), layout_text(model("llama-3-70b"), tp=8)
    ('dp=8,ep=4,moe_tp=2', 'tp=8')
    """
    degrees = {"tp": tp, "pp": pp, "dp": dp}
    if model.has_experts:
        whole = moe_tp * ep == tp * dp
        degrees |= {"ep": ep, "moe_tp": moe_tp if whole else max(tp * dp // ep, 1)}
        degrees["redundant_experts"] = -int(model.experts) % ep  # as few as give each rank whole experts
    return ",".join(f"{k}={v}" for k, v in degrees.items() if v > 1 or k == "moe_tp") or "tp=1"


def format_options(catalogue: Catalogue, name: str, chip: str, weights: str, experts: str) -> dict[str, Any]:
    """Weights and cache as served: a model published in blocks of fp8 keeps them where it is said to be in
    fp8, one whose experts are mxfp4 keeps those; the cache is fp8 unless weights are bf16, or a chip widens
    4-bit weights.
    """
    model, hardware = catalogue.model(name), catalogue.chip(chip)
    linear, inner = (weight_format(multiplied_format(w, hardware)) for w in (weights, experts))
    linear, inner = (
        model.weights if (model.weights, f) == ("fp8_block", "fp8") else f for f in (linear, inner)
    )
    kv = "bf16" if (linear, inner) == ("bf16", "bf16") else "fp8"
    if model.expert_weights == "mxfp4":
        widened = not supports(hardware.compute.matrix_rate, "mxfp4")
        return {"kv": "bf16" if widened else kv}
    sets = {"set": (f"model.expert_weights={inner}",)} if model.has_experts else {}
    return {"weights": linear, "kv": kv, **sets}


def stored_format(catalogue: Catalogue, name: str, weights: str) -> dict[str, str]:
    """Weights of a width: those of the model itself where they are as wide; the cache is its own."""
    own, wanted = catalogue.model(name), weight_format(weights)
    width, *widths = (round(float(bytes_of(w)), 1) for w in (wanted, own.weights, own.expert_weights))
    return {} if width in widths else {"weights": wanted}


@lru_cache(maxsize=1024)
def engine_text(label: str, version: str = "", date: str = "") -> str:
    """An engine as of its version where its file knows that, else as of the last that was out on a day.

    >>> engine_text("trtllm", "1.2.0rc6.post2"), engine_text("trtllm", "0.8.1.post1", "2026-01-29")
    ('trtllm@1.2.0rc6.post2', 'trtllm@1.2.0rc6')
    """
    name = server_of(label)
    if OWN_RELEASE.fullmatch(version):
        try:
            make_engine(f"{name}@{version}")
            return f"{name}@{version}"
        except UnknownName:
            pass
    if not date:
        return name
    out = [release.version for release in make_engine(f"{name}@{date}").versions if release.date <= date]
    return f"{name}@{out[-1]}"


def whole_system(catalogue: Catalogue, chip: str, workers: dict[int, int]) -> str:
    """The smallest system that has so many workers of each size, in whole nodes where there are several."""
    total = sum(size * count for size, count in workers.items())
    for devices in range(total, total + MOST_NODES):
        try:
            system = catalogue.system(f"{devices}x{chip}")
            node = float(system.fabric.dimension[0].size or devices)
            for size in workers:
                require(size <= node or size % node == 0, "a worker fills whole nodes", size=size, node=node)
                pool(system, size)
        except BadValue:
            continue
        return f"{devices}x{chip}"
    raise BadValue(f"no system of {chip} has workers of {sorted(workers)} devices")


def with_stated(
    options: dict[str, Any], known: ServedConditions, model: Model, words: set[str], values: dict[str, Any]
) -> dict[str, Any]:
    """Options of a row with those that its conditions state; how experts are picked only where there are
    some.
    """
    stated = known.options(words, values)
    sets = (*options.pop("set", ()), *stated.pop("set", ()))
    every = options | stated | ({"set": sets} if sets else {})
    return every if model.has_experts else {k: v for k, v in every.items() if k != "skew"}


def worker_options(catalogue: Catalogue, chip: str, sizes: dict[str, tuple[int, int]]) -> dict[str, str]:
    """Options of workers apart: the system of all, and how many there are of each."""
    counts: dict[int, int] = {}
    for size, workers in sizes.values():
        counts[size] = counts.get(size, 0) + workers
    named = {f"{side}_workers": str(workers) for side, (_, workers) in sizes.items()}
    return {"system": whole_system(catalogue, chip, counts), **named}


def named_in_file(cells: Cells, pattern: str) -> list[str]:
    """Model and system from a file's name."""
    match = re.fullmatch(pattern, cells.table.name.rsplit("/", 1)[-1].lower())
    if not match:
        raise BadFile(
            f"{cells.table.name}: the name must say model and system, like llama33_70b_8xa100_nim.csv"
        )
    return [(group or "").replace("_", "-") for group in match.groups()]


def sweep_peak(cells: Cells, column: str, same: Sequence[str]) -> float:
    """The largest number of a column in rows with the same cells in others: of the runs of one recipe."""
    alike = np.ones(len(cells.table), bool)
    for name in (n for n in same if n in cells.table.columns):
        alike &= cells.table.text(name) == cells.table.text(name)[cells.place]
    return float(np.nanmax(cells.table.number(column)[alike]))


def rank_places(clients: float, decode: str, workers: int) -> int:
    """Sequences of a decode rank where so many clients fill all of them: the power of two below.

    >>> rank_places(563, "dp=32,ep=32,moe_tp=1", 1), rank_places(180, "tp=8,ep=8,moe_tp=1", 5)
    (16, 32)
    """
    ranks = float(make_plan(decode).dp) * workers
    return int(2 ** floor(log2(max(clients / ranks, 1.0))))


def loop_words(known: ServedConditions, clients: int, read: int, written: int) -> dict[str, Any]:
    """Words of a closed loop for the texts of conditions."""
    count = int(float(known.rounds or 1.0)) * clients
    batched = BLOCK * ceil((read + clients + BLOCK) / BLOCK)
    words = {"clients": clients, "input": read, "output": written, "count": count, "batched": batched}
    return words | {"tokens": read + written}


def server_label(label: str) -> str:
    """The engine that a label means; a label that nobody knows stays."""
    try:
        return server_of(label)
    except UnknownName:
        return label
