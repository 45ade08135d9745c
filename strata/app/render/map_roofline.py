"""Mappings under two roofs: operations for every byte of DRAM and of network, at the rate each reaches.

After DFModel (2024), figure 18: a mapping is two points at one height.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from strata.app.render.mapping_roofline import draw_mapping_roofline
from strata.drawing import check_picture
from strata.hardware.system import System
from strata.optimise.joint import ProgramMapping
from strata.optimise.mappings.joint_compare import ComparedMapping, links_bandwidth, mapping_points


def svg_name(path: Path | None) -> None:
    """Refuse a name that is not a picture's, before anything is searched."""
    if path is not None:
        check_picture(path, "--roofline")


def draw_map_roofline(
    found: ProgramMapping, others: Sequence[ComparedMapping], system: System, name: str, path: Path
) -> Path:
    """Write the picture."""
    svg_name(path)
    assert found.best is not None
    shown = [each for each in others if not each.name.startswith("number")]
    points = mapping_points(found.best, shown, system)
    chip = found.best.layer.blocks[0].problem.problem.chip
    memory, network = ("DRAM", chip.dram_bandwidth), ("network", links_bandwidth(system))
    return draw_mapping_roofline(
        points, memory, network, chip.peak, f"Mappings of {name} on {system.name}", path
    )
