"""Graphs of programs on the command line: kernels as a table, and as pictures."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from strata.app.terminal import plain_table
from strata.drawing import keep
from strata.errors import BadValue
from strata.search.inputs import make_workload, phase_of
from strata.units import show
from strata.workload.graph import Graph
from strata.workload.graph_picture import graph_dot, graph_svg, held_weight, op_work
from strata.workload.model import Model
from strata.workload.program import program

TOKENS = 1024.0  # of a sequence of a language model whose graph is shown


def traced(name: str, batch: str, phase: str) -> Graph:
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
    return [
        {
            "block": block.name,
            "times": float(block.times),
            "name": op.name,
            "kind": op.kind,
            "reads": list(op.inputs),
            "flop": op_work(op),
            "weight_bytes": held_weight(op),
            "output_bytes": float(op.output_bytes()),
        }
        for block, op in graph.ops()
    ]


def kernel_table(rows: list[dict[str, Any]]) -> Any:
    table = plain_table()
    for heading in ("block", "kernel", "kind", "reads"):
        table.add_column(heading, overflow="fold" if heading == "reads" else "ellipsis")
    for heading in ("FLOP", "weights", "writes"):
        table.add_column(heading, justify="right", no_wrap=True)
    last = ""
    for row in rows:
        times = f" x {row['times']:g}" if row["times"] != 1.0 else ""
        block = "" if row["block"] == last else row["block"] + times
        last = row["block"]
        sizes = (show(row[key], "B") if row[key] else "" for key in ("weight_bytes", "output_bytes"))
        work = show(row["flop"], "FLOP") if row["flop"] else ""
        table.add_row(block, row["name"], row["kind"], ", ".join(row["reads"]), work, *sizes)
    return table


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
    if shutil.which("dot") is None:
        raise BadValue(
            f"graphviz is not installed: --dot {path.stem}.dot writes its text, --svg draws without"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["dot", f"-T{path.suffix[1:]}", "-o", str(path)],
        input=text,
        text=True,
        check=True,
        capture_output=True,
    )
    return path
