"""Programs on the command line: kernels as a table and pictures; facts of a config that are not timed."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import fields
from itertools import groupby
from pathlib import Path
from typing import Any

from strata.adapters.huggingface.config import reading
from strata.adapters.huggingface.names import find_config
from strata.app.render.tables import rows_table
from strata.base.drawing import keep
from strata.base.errors import BadValue, StrataError
from strata.base.units import show
from strata.result import Result
from strata.search.inputs import make_workload, phase_of
from strata.workload.graph import Graph
from strata.workload.graph_picture import graph_dot, graph_svg, held_weight, op_work
from strata.workload.model import Model
from strata.workload.program import program

TOKENS = 1024.0  # of a sequence of a language model whose graph is shown
NOT_TIMED = "counted from vision_config; in memory, not timed"


def graph_of_program(name: str, batch: str, phase: str) -> Graph:
    """The graph of a program or a model for a workload as it is typed."""
    made = program(name)
    try:
        items = float(batch)
    except ValueError:
        raise BadValue(f"--batch is a number, but got '{batch}'") from None
    usual = "prefill" if isinstance(made, Model) else "forward"
    work = make_workload(phase_of(made, phase or usual), items, TOKENS, TOKENS)
    graph: Graph = made.trace(work)
    return graph


def kernel_rows(graph: Graph) -> list[dict[str, Any]]:
    """Every kernel with what it reads, its operations [FLOP], weights and what it writes [B], once."""
    rows = []
    for block, op in graph.ops():
        sizes = {"flop": op_work(op), "weight_bytes": held_weight(op)}
        sizes |= {"output_bytes": float(op.output_bytes())}
        place = {"block": block.name, "times": float(block.times)}
        rows.append({**place, "name": op.name, "kind": op.kind, "reads": list(op.inputs), **sizes})
    return rows


def kernel_table(rows: list[dict[str, Any]]) -> Any:
    cells, last = [], ""
    for row in rows:
        times = f" x {row['times']:g}" if row["times"] != 1.0 else ""
        block = "" if row["block"] == last else row["block"] + times
        last = row["block"]
        units = {"flop": "FLOP", "weight_bytes": "B", "output_bytes": "B"}
        sizes = (show(row[key], unit) if row[key] else "" for key, unit in units.items())
        cells.append((block, row["name"], row["kind"], ", ".join(row["reads"]), *sizes))
    return rows_table("block|kernel|kind|reads~|>FLOP|>weights|>writes", cells)


def write_graph(graph: Graph, name: str, path: Path, *, by_graphviz: bool) -> Path:
    """A picture of the graph: our own SVG; or text for graphviz, which draws other endings where it is
    installed.
    """
    title = Path(name).stem if name.endswith((".toml", ".json")) else name
    if not by_graphviz:
        return keep(path, graph_svg(graph, title=title))
    text = graph_dot(graph, title=title)
    if path.suffix in (".dot", ".gv"):
        return keep(path, text)
    hint = f"--dot {path.stem}.dot writes its text, --svg draws without"
    if shutil.which("dot") is None:
        raise BadValue(f"graphviz is not installed: {hint}")
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = ["dot", f"-T{path.suffix[1:]}", "-o", str(path)]
    subprocess.run(drawn, input=text, text=True, check=True, capture_output=True)
    return path


def mixer_numbers(record: Model, config: str) -> dict[str, tuple[Any, str, str]]:
    """Sizes of the layers that keep a state, and the bytes of one sequence's states in all of them."""
    mixer = record.mixer
    if mixer is None:
        return {}
    layers = sum((record.pattern.total(0, kind) for kind in ("linear", "parallel")), 0.0)
    held = float(layers * mixer.state_bytes(record.activations))
    found: dict[str, tuple[Any, str, str]] = {
        "state of a sequence": (held, show(held, "B"), "counted: Mixer.state_bytes of all layers")
    }
    for f in fields(mixer):
        value = getattr(mixer, f.name)
        if value not in (0.0, False, ""):
            shown = f"{value:g}" if isinstance(value, float) else str(value).lower()
            found[f"mixer.{f.name}"] = (value, shown, config)
    return found


def layer_kinds(period: tuple[tuple[str, str], ...]) -> str:
    """Kinds of layers in order, those of one kind in a row counted.

    >>> layer_kinds((("linear", "moe"),) * 3 + (("full", "moe"),))
    '3 x linear/moe full/moe'
    """
    runs = ((len(list(run)), "/".join(kind)) for kind, run in groupby(period))
    return " ".join(f"{count} x {kind}" if count > 1 else kind for count, kind in runs)


def config_facts(name: str) -> tuple[dict[str, Any], dict[str, tuple[float, str, str]]]:
    """Family, unread keys and simplifications of a model's config; and the numbers of its vision tower."""
    config, label = find_config(name)
    read = reading(config, label)
    numbers = {}
    if read.model.vision_tower:
        count, work = float(read.model.tower_parameters), float(read.model.tower_flop)
        numbers["tower_parameters"] = (count, f"{count:,.0f}", NOT_TIMED)
        if work:
            numbers["tower_flop"] = (work, f"{show(work, 'FLOP')} an image", NOT_TIMED)
    facts = {"family": read.family, "unread": list(read.unread), "simplified": read.note}
    return facts, numbers


def _tower_note(model: Any) -> list[str]:
    """One line where a vision tower lies in memory and its images are not timed."""
    if not getattr(model, "vision_tower", False):
        return []
    work = float(model.tower_flop)
    each = f"; {show(work, 'FLOP')} an image" if work else ""
    return [f"images are not timed{each}; text alone: --set model.vision_tower=false"]


def unread_text(described: dict[str, Any]) -> str:
    """The line on keys that were not read, where there are any."""
    unread = described.get("unread") or []
    return "not read from the config: " + ", ".join(unread) if unread else ""


def config_notes(name: str, result: Result) -> list[str]:
    """Lines where keys of a model's config that look like sizes were not read, and of its vision tower."""
    try:
        said = reading(*find_config(name)).warning
    except StrataError:  # a program that is no model
        said = ""
    return [*([said] if said else []), *_tower_note(result.program)]
