"""How many mappings of a program there are: the exact number, as an integer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from strata.optimise.fusion.fuse_space import mapping_space
from strata.optimise.layouts.layout_degrees import DegreeCandidate
from strata.optimise.layouts.layout_options import module_options
from strata.optimise.mappings.joint_search import CandidateSearch


@dataclass(frozen=True, kw_only=True)
class MapSpace:
    """How many mappings there are, as integers: of degrees and placements, layouts over all of these, and
    fused mappings of one rank's blocks; `mappings` is their sum over candidates, `counts` says of what.
    """

    candidates: int
    layouts: int
    fusions: int
    mappings: int
    counts: str


def map_space(outer: CandidateSearch, every: list[DegreeCandidate]) -> MapSpace | None:
    """The exact size of the space; None where a block has too many order ideals to count."""
    first = next(iter(outer.searches.values()), None)
    if first is None:
        return None
    fusions, words = 1, ""
    for block in first.layer.blocks:
        found = mapping_space(replace(block.base, pinned=(), max_partitions=0))
        if found is None:
            return None
        fusions, words = fusions * found.mappings, found.counts
    layouts, known = 0, dict[Any, int]()
    for candidate in every:
        key = tuple(sorted(candidate.inner.items()))
        if key not in known:
            setting = outer.search.setting(candidate)
            options = module_options(setting.graph, setting.mesh, outer.search.rules, {})
            count = 1
            for own in options.values():
                count *= len(own)
            known[key] = count
        layouts += known[key]
    return MapSpace(
        candidates=len(every),
        layouts=layouts,
        fusions=fusions,
        mappings=layouts * fusions,
        counts=f"degrees and placements x a layout for every module x {words}, for every block",
    )
