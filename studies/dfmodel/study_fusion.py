"""Fusion inside a chip as a run of a study: mappings of a layer over chips, links, rules and degrees."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dfmodel.layer import LayerRank, layer_rank, mapping_intensity, tile_counts
from dfmodel.published_table import published_columns, published_rows
from dfmodel.training import given_fusion, partition_numbers
from strata.base.arrays import Array
from strata.base.errors import BadValue, require
from strata.base.expression import calculate
from strata.base.reading import known_keys
from strata.base.units import parse
from strata.optimise.fuse import Fusion, fuse_kernels, kernel_by_kernel, price_mapping
from strata.pricing.fusion_rules import FusionRules, fusion_rules

FUSION_KEYS = ("fusion", "mappings", "vary", "points", "let", "keep")
UNITS = {"sram": "B", "dram_bandwidth": "B/s", "dram_capacity": "B", "clock": "Hz", "link": "B/s"}
CHIP_FIELDS = ("sram", "dram_bandwidth", "dram_capacity", "clock", "cores")
PROBLEM_FIELDS = ("micro_batches", "max_partitions")
NUMBERS = (*CHIP_FIELDS, *PROBLEM_FIELDS, "tp", "pp", "dp", "link", "passes", "layers", "batch")
SWITCHES = tuple(f.name for f in fields(FusionRules) if f.name not in ("name", "title", "sources", "tiles"))
WORDS = ("program", "chip", "part", "links", "rules", *SWITCHES)
SETTINGS = (*NUMBERS, *WORDS, "sizes", "tiles", "pinned", "partitions")
TILES = {"powers": tuple(2**i for i in range(12))}
SUMS = ("compute", "memory", "network", "traffic")


def run_fusion(
    entry: dict[str, Any], where: str, folder: Path, runs: Any = None, known: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Mappings of a program's layer, by mapping and what varies.

    `fusion` states a setting; each of `mappings` changes some of it, and its `partitions` are "kernels" (one
    by one), "one", lists of names in order, or not told: the best is searched for, with groups `pinned` if
    any. `vary` has lists of values of settings or of names of its own; with `points` the columns of a CSV
    beside the study vary together, along `line`. `let` are settings as expressions over these; what is not a
    number there (an empty cell) leaves the setting as it is. With `keep` what was searched for is written
    down, and priced anew where it is `known` instead of searched for again.

    Found, beside the axes: `interval` (s of a layer and sequence on a rank), `time` (over all copies and the
    fill of a pipeline), `speedup` over the first mapping, `utilisation`, `rate` (FLOP/s of one chip), `peak`,
    sums over partitions of compute, memory and network time and DRAM traffic, `memory_intensity`,
    `network_intensity`, `partitions`, `tiles`, `optimal`, `fits`, `seconds`; by partition `part_time`, and in
    words `binds` and `kernels`. Rates of what does not fit are NaN.
    """
    known_keys(entry, ("name", *FUSION_KEYS), where)
    base = dict(entry["fusion"])
    mappings = entry.get("mappings", {"best": {}})
    for told in (base, *mappings.values(), entry.get("let", {})):
        known_keys(told, SETTINGS, where)
    axes, places, columns = _places(entry, where, folder)
    stated = [{k: v for k, v in p.items() if k in SETTINGS and not columns} for p in places]
    follow = [_followed(p, entry.get("let", {}), where) for p in places]
    own = {
        n: [base | told | s | f for s, f in zip(stated, follow, strict=True)] for n, told in mappings.items()
    }
    shape = (len(mappings), *(len(v) for v in axes.values()))
    asked = [(name, settings) for name, given in own.items() for settings in given]
    kept = known["mappings"] if known else [""] * len(asked)
    require(len(kept) == len(asked), f"{where}: what is written down has another number of mappings")
    points = [_point(*ask, where, told) for ask, told in zip(asked, kept, strict=True)]
    found: dict[str, Any] = {
        name: np.array([p.numbers[name] for p in points]).reshape(shape) for name in points[0].numbers
    }
    with np.errstate(invalid="ignore"):
        found["speedup"] = np.where(found["fits"], found["time"][:1] / found["time"], 0.0)
    most = max(len(p.parts) for p in points)
    parts = [p.parts + [float("nan")] * (most - len(p.parts)) for p in points]
    found["part_time"] = np.array(parts).reshape(*shape, most)
    for name in ("binds", "kernels"):
        found[name] = np.array([getattr(p, name) for p in points]).reshape(shape)
    if entry.get("keep"):
        found["kept"] = {"mappings": [p.kept for p in points], "bound": None}
    return found | columns | axes | {"mapping": np.array(list(mappings)), "axes": ["mapping", *axes]}


def _places(
    entry: dict[str, Any], where: str, folder: Path
) -> tuple[dict[str, Array], list[dict[str, Any]], dict[str, Array]]:
    """Axes, what each point of their box has, and columns of a table of points."""
    varied = entry.get("vary", {})
    if "points" not in entry:
        axes = {name: _axis(name, values) for name, values in varied.items()}
        every = product(*(values.tolist() for values in axes.values()))
        return axes, [dict(zip(axes, values, strict=True)) for values in every], {}
    require(not varied, f"{where}: points or vary, not both")
    columns = published_columns(published_rows(folder / entry["points"]))
    require(bool(columns), f"{where}: the table of points is empty", file=entry["points"])
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    return {"line": np.arange(len(rows), dtype=float)}, rows, columns


def _axis(name: str, values: list[Any]) -> Array:
    if name in WORDS:
        return np.array([str(v) for v in values])
    return np.array([_number(name, v) for v in values])


def _number(name: str, value: Any) -> float:
    return parse(value, UNITS.get(name, "1"), name) if isinstance(value, str) else float(value)


def _followed(place: dict[str, Any], let: dict[str, str], where: str) -> dict[str, float]:
    """Settings that follow from what a place has."""
    found = {name: float(calculate(text, place, f"{where}: {name}")) for name, text in let.items()}
    return {name: value for name, value in found.items() if not np.isnan(value)}


@dataclass(frozen=True, eq=False, kw_only=True)
class _Point:
    numbers: dict[str, Any]
    parts: list[float]
    binds: str
    kernels: str
    kept: str  # tiles of partitions and, after a colon, the partition of each kernel


def _rank(settings: dict[str, Any], where: str) -> LayerRank:
    for key in ("program", "chip"):
        require(key in settings, f"{where}: fusion needs a program and a chip", missing=key)
    number = {k: _number(k, settings[k]) for k in NUMBERS if k in settings}
    changes: dict[str, Any] = {k: number[k] for k in CHIP_FIELDS if k in number}
    if "cores" in changes:
        changes["cores"] = round(changes["cores"])
    more: dict[str, Any] = {k: number[k] for k in PROBLEM_FIELDS if k in number}
    if "max_partitions" in more:
        more["max_partitions"] = int(more["max_partitions"])
    switches = {k: settings[k] for k in SWITCHES if k in settings}
    return layer_rank(
        settings["program"],
        settings["chip"],
        sizes={k: float(v) for k, v in settings.get("sizes", {}).items()},
        part=settings.get("part", "forward"),
        degrees=(number.get("tp", 1.0), number.get("pp", 1.0), number.get("dp", 1.0)),
        links=(settings.get("links", "ring"), number.get("link", 25e9), number.get("passes", 1.0)),
        layers=number.get("layers", 1.0),
        batch=number.get("batch", 1.0),
        chip_changes=changes,
        rules=fusion_rules(settings.get("rules", "dfmodel-2024"), **switches),
        pinned=tuple(tuple(group) for group in settings.get("pinned", ())),
        **more,
    )


def _tiles(told: Any, rank: LayerRank, where: str) -> tuple[int, ...]:
    """Numbers of tiles: one, several, "powers" of two, or "lengths", all that the streamed axis allows."""
    if isinstance(told, str):
        if told == "lengths":
            return tile_counts(int(max(k.columns for k in rank.problem.kernels)))
        if told not in TILES:
            raise BadValue(f"{where}: tiles are powers, lengths, a number or several, but got '{told}'")
        return TILES[told]
    return tuple(int(n) for n in told) if isinstance(told, list) else (int(told),)


def _point(name: str, settings: dict[str, Any], where: str, known: str) -> _Point:
    """One mapping at one place; one that is `known` was proved before."""
    rank = _rank(settings, where)
    problem = replace(rank.problem, tiles=_tiles(settings.get("tiles", "powers"), rank, where))
    rank = replace(rank, problem=problem)
    groups = settings.get("partitions")
    if known:
        tiles, numbers = ([int(n) for n in part.split()] for part in known.split(":"))
        fusion = given_fusion(problem, numbers, tiles)
        fusion = replace(fusion, lower_bound=fusion.time if groups is None else 0.0)
    elif groups is None:
        fusion = fuse_kernels(problem)
    elif groups == "kernels":
        fusion = kernel_by_kernel(problem)
    else:
        every = [[k.name for k in problem.kernels]]
        fusion = price_mapping(problem, every if groups == "one" else groups)
    return _told(name, rank, fusion, _number("link", settings.get("link", 25e9)))


def _told(name: str, rank: LayerRank, fusion: Fusion, link: float) -> _Point:
    plan, parts = rank.plan, fusion.partitions
    fits = fusion.feasible
    total = rank.batch_time(fusion) if fits else float("inf")
    useful = float(rank.layer.useful) / float(plan.tp)
    told = mapping_intensity(name, useful, fusion, link) if fits else None
    used = rank.utilisation(fusion) if fits else float("nan")
    numbers: dict[str, Any] = {n: float(sum(getattr(p, n) for p in parts)) for n in SUMS}
    numbers |= {
        "interval": fusion.time,
        "time": total / float(plan.layers) / float(plan.batch),
        "batch_time": total,
        "utilisation": used,
        "peak": rank.peak,
        "rate": used * rank.peak,
        "memory_intensity": told.memory if told else 0.0,
        "network_intensity": told.network if told else 0.0,
        "weights": float(np.sum(rank.layer.weights)),
        "sram_used": max((p.sram for p in parts), default=0.0),
        "dram_used": max((p.dram for p in parts), default=0.0),
        "partitions": float(len(parts)),
        "passes_most": max((p.passes for p in parts), default=0.0),
        "tiles": float(parts[0].tiles) if parts else 0.0,
        "optimal": fusion.optimal,
        "fits": fits,
        "seconds": fusion.seconds,
    }
    return _Point(
        numbers=numbers,
        parts=[p.time for p in parts],
        binds=" ".join(p.binds for p in parts),
        kernels=" | ".join(" ".join(p.kernels) for p in parts) or fusion.reason,
        kept=f"{_words(p.tiles for p in parts)}: {_words(partition_numbers(rank.problem, fusion))}"
        if fits
        else "",
    )


def _words(numbers: Iterable[int]) -> str:
    return " ".join(str(n) for n in numbers)
