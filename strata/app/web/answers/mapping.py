"""Mapping: a program's graph with its kernels fused into partitions, and what that saves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field

from strata.app.commands.map import asked_mapping, asked_phase, asked_program, found_step, other_precisions
from strata.app.render.map import map_dict, map_notes
from strata.app.render.tables import picked
from strata.app.web.answers import Count, Name, Tell, Text, WebQuestion, answers
from strata.base.errors import BadValue
from strata.hardware.system import as_system
from strata.optimise.fusion.fusion_graph import TILES
from strata.optimise.joint import ProgramMapping
from strata.optimise.mappings.joint_compare import ComparedMapping, compared_mappings
from strata.params import names
from strata.pricing.fusion_rules import fusion_rules
from strata.search.inputs import make_workload
from strata.workload.graph_picture import graph_places

SHORT = 5.0  # s of a search that somebody waits for
MOST_BOXES = 400  # ops that are drawn
Progress = Callable[[float, float], None]


class FusedProgram(WebQuestion):
    """A program on a system under the layouts of a plan: partitions are searched."""

    program: Name = "gpt3-layer"
    system: Name = "8xsn10"
    plan: Text = "tp=8"
    phase: Literal["forward", "prefill", "decode"] = "forward"
    batch: Count = 1
    input: Count = 2048
    rules: Literal["strata", "dfmodel-2024"] = "strata"


class MappedProgram(FusedProgram):
    """The same with degrees and layouts searched, too, for so long."""

    phase: Literal["forward", "prefill", "decode", "train"] = "forward"  # type: ignore[assignment]
    plan: Text = ""
    seconds: Annotated[float, Field(ge=1, le=600)] = 60.0


@answers("mapping-names")
def program_names(_: dict[str, Any]) -> dict[str, Any]:
    """Programs and models that can be mapped."""
    return {kind: list(names(kind)) for kind in ("programs", "models", "chips")}


@answers("mapping", FusedProgram)
def fused(asked: dict[str, Any]) -> dict[str, Any]:
    """The best partitions of a program under a plan's layouts."""
    return mapped(asked, "given", SHORT, None)


@answers("mapping-search", MappedProgram, job=True)
def searched(asked: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """The best mapping of a program: degrees, layouts and partitions, with its proof."""
    last: list[tuple[float, float]] = []

    def progress(best: float, bound: float) -> None:
        if not last or last[-1] != (best, bound):
            last.append((best, bound))
            tell({"best": best, "bound": bound})

    return mapped(asked, "free", asked["seconds"], progress)


def mapped(asked: dict[str, Any], layouts: str, seconds: float, progress: Progress | None) -> dict[str, Any]:
    """A mapping as `strata map` tells it, with the graph to draw it on."""
    code = asked_program(asked["program"], "", "")
    work = make_workload(asked_phase(code, asked["phase"]), float(asked["batch"]), float(asked["input"]), 1.0)
    machine = as_system(asked["system"])
    told = {"rules": fusion_rules(asked["rules"]), "tiles": TILES, "together": 1.0, "engine": "ideal"}
    limits = {"microbatch": 0.0, "seconds": seconds, "progress": progress}
    with other_precisions(code):
        found = asked_mapping(code, machine, work, (asked["plan"], layouts), told, limits)
    title = f"{code.name} on {machine.name}"
    best = found_step(found, title)
    others = compared_mappings(best)
    graph = graph_places(code.trace(work))
    if sum(len(block["nodes"]) for block in graph) > MOST_BOXES:
        raise BadValue(f"{code.name} has more kernels than are drawn; strata map has them as a table")
    return map_dict(found, others, map_notes(found, machine, layouts)) | {
        "title": title,
        "given_layouts": layouts == "given" or bool(found.given),
        "graph": with_partitions(graph, found),
        "totals": [totals(each) for each in others],
        "sram_limit": float(machine.chip.cache.capacity),
    }


def with_partitions(graph: list[dict[str, Any]], found: ProgramMapping) -> list[dict[str, Any]]:
    """The graph with the number of the partition that each op is in."""
    assert found.best is not None
    number = 0
    for block in found.best.layer.blocks:
        drawn = next((b for b in graph if b["block"] == block.block.partition("/")[0]), None)
        for partition in block.fusion.partitions:
            for node in drawn["nodes"] if drawn else ():
                if node["name"] in partition.kernels and node["kind"]:
                    node["partition"] = number
            number += 1
    return graph


def totals(each: ComparedMapping) -> dict[str, Any]:
    """What all partitions of a mapping take on one rank."""
    every = [(times, p) for times, fusion in each.blocks for p in fusion.partitions]
    sums = {n: sum(times * getattr(p, n) for times, p in every) for n in ("compute", "memory", "network")}
    traffic, sram = sum(times * p.traffic for times, p in every), max((p.sram for _, p in every), default=0.0)
    return {**picked(each, "name reason time partitions"), "traffic": traffic, "sram": sram, **sums}
