"""`strata list`, `strata show`, `strata schema`, `strata diff`: what there is, and two of it side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strata.app import LISTED
from strata.app.commands.options import FORM, AnswerForm, argument, command, drawing, flag, option
from strata.app.terminal import item_names, one_of, print_json, wrote
from strata.base.errors import BadValue

KINDS = (
    "chip, model, program, fabric, system, transport, packets, memory, engine, economics, reliability, "
    "technology, device, link, bonding, packaging, template, budget, recipe"
)
DRAWN_KINDS = {"technologies", "devices", "links"}


@command("list", "Names of chips, models, fabrics, engines ...", "strata list chips")
def list_command(
    kind: str = argument(
        "", "[KIND]", f"{', '.join(LISTED[:-1])} or {LISTED[-1]}; left out: all", one_of(*LISTED)
    ),
    papers: bool = flag("--papers", "with data of papers: what only their studies use"),
    svg: Path | None = drawing("write a picture of technologies, or of devices and links"),
    form: AnswerForm = FORM,
) -> None:
    """What there is: chips, models, programs, systems, fabrics, transports, packet networks, memories,
    technologies, memory devices, links, bonds, packages, templates and budgets of generated chips, engines,
    precisions.
    """
    from strata.app.render.catalogue import catalogue, catalogue_table

    listed = catalogue(kind, papers)
    if svg and (len(listed) > 1 or not set(listed) & DRAWN_KINDS):  # before anything is written
        raise BadValue(f"--svg draws technologies, devices or links, but got '{kind or 'everything'}'")
    rows = [{"kind": kind, **one} for kind, entries in listed.items() for one in entries]
    form.answer(listed, lambda: [catalogue_table(listed)], lambda _: rows)
    if svg:
        from strata.app.render.technology import draw_nodes, draw_reach

        draw = draw_nodes if "technologies" in listed else draw_reach
        wrote("picture", draw(svg))


@command("show", "Every number of a thing, with its source.", "strata show chip h200")
def show_command(
    kind: str = argument(..., "KIND", KINDS, one_of(*KINDS.split(", "))),
    name: str = argument(..., "NAME", "its name or path", item_names),
    batch: str = option("1", "N", "of a program: items of one pass"),
    phase: str = option("", "PHASE", "of a program: forward or train; of a model: prefill ..."),
    svg: Path | None = drawing("draw the graph of a program or a model"),
    dot: Path | None = option(
        None, "FILE", "write its graph for graphviz; other endings than .dot are drawn"
    ),
    form: AnswerForm = FORM,
) -> None:
    """Every number of a thing, with its source and a mark: own, inherited (from whom), fitted, derived or
    assumed. Of a program also its kernels with their operations and bytes, and its graph as a picture.
    """
    from strata.app.render.catalogue import describe, description_table, shown_kind
    from strata.app.render.program_graph import graph_of_program, kernel_rows, kernel_table, write_graph

    kind = shown_kind(kind)
    described = describe(kind, name)
    graph: Any = None
    if kind == "program" or ((svg or dot) and kind == "model"):
        graph = graph_of_program(name, batch, phase)
        described["kernels"] = kernel_rows(graph)
    elif svg or dot:
        raise BadValue(f"--svg and --dot draw a program or a model, but got '{kind}'")
    rows = "numbers" if graph is None else "kernels"
    kernels = [] if graph is None else ["", kernel_table(described["kernels"])]
    form.answer(described, lambda: [description_table(described), *kernels], rows)
    for path in filter(None, (svg, dot) if graph is not None else ()):
        wrote("graph", write_graph(graph, name, path, by_graphviz=path is dot))


@command("schema", "The JSON schema of a data file.", "strata schema chip > chip.schema.json")
def schema_command(kind: str = argument(..., "KIND", KINDS, one_of(*KINDS.split(", ")))) -> None:
    """The JSON schema of a data file, for editors and for writing your own."""
    from strata.app.render.catalogue import file_schema

    print_json(file_schema(kind), units=False)


@command(
    "diff",
    "Two saved results, or two technologies, line by line.",
    "strata diff a.json b.json (each saved with strata predict ... --json), or strata diff n7 n5",
)
def diff_command(
    first: str = argument(
        ...,
        "FILE|NAME",
        "a result saved with --json; or a technology, device, link, bonding or packaging, by name or "
        "TOML path",
    ),
    second: str = argument(..., "FILE|NAME", "another one"),
    form: AnswerForm = FORM,
) -> None:
    """Two saved results, line by line: what was asked differently and what came out differently. Or two
    technologies, memory devices, links, bonds or packages: every number side by side.
    """
    names = (first, second)  # a result is JSON, or any file or folder but TOML
    if not any(n.endswith(".json") or (not n.endswith(".toml") and Path(n).exists()) for n in names):
        from strata.app.render.technology import part_differences, parts_table

        kind, parts = part_differences(first, second)
        form.answer(parts, lambda: [parts_table(kind, parts, first, second)])
        return
    from strata.app.render.explanation import differences, differences_table

    rows = differences(Path(first), Path(second))
    form.answer(rows, lambda: [differences_table(rows, Path(first).name, Path(second).name)])
