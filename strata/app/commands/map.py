"""`strata map`: the best mapping of a program's kernels on a system, with its proof."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strata.app.commands import options
from strata.app.commands.options import command, drawing, option, typed
from strata.app.terminal import names_of, one_of, precision_names, status_line, typed_pairs, wrote
from strata.base.errors import BadFile, BadValue, MissingQuantity, StrataError
from strata.base.units import show, whole

if TYPE_CHECKING:
    from strata.hardware.system import System
    from strata.optimise.joint import ProgramMapping
    from strata.optimise.mappings.joint_search import MappedStep
    from strata.workload.protocol import Program
    from strata.workload.tasks import Workload

MapProgram = Annotated[
    str,
    typed(
        "--program --model -m NAME",
        "program or model, or the path of its file",
        names_of("programs", "models"),
    ),
]

PHASE = option(
    "forward", "PHASE", "forward, train, prefill or decode", one_of("forward", "train", "prefill", "decode")
)
PRECISION = option(
    "",
    "FORMAT",
    "precision of all tensors of a program, like bf16  [default: the program's]",
    precision_names,
)
PLAN = option("", "--plan -p DEGREES", "fixed degrees, like tp=8,dp=2  [default: all are searched]")
RULES = option("strata", "NAME", "whose rules of fusion and layouts: strata, dfmodel-2024, or a TOML path")


@command(
    "map",
    "Kernels of a program on chips: layouts and fused partitions, proved best.",
    "strata map --program gpt3-layer --system 8xsn10 --plan tp=8 --svg map.svg. "
    "(`strata mapping` is about devices of a mesh on links.)",
)
def map_command(
    program: MapProgram,
    system: options.SystemName,
    batch: options.BatchSize = "1",
    input: options.InputTokens = "2048",
    phase: str = PHASE,
    plan: str = PLAN,
    layouts: str = option("free", "free|given", "layouts are searched, or those of the --plan"),
    precision: str = PRECISION,
    rules: str = RULES,
    rule: list[str] | None = option(None, "SWITCH=WORD", "change a switch of fusion, like overlap=none"),
    pin: Path | None = option(
        None, "FILE.toml", "groups of kernels to compare with: [[partition]] kernels = [...]"
    ),
    tiles: str = option("", "N,N,...", "numbers of tiles allowed  [default: powers of two to 1024]"),
    layers: str = option("", "N", "layers of the program, one after the other"),
    microbatch: str = option("", "N", "sequences of a micro-batch  [default: 1 in training, else all]"),
    together: str = option("1", "N", "micro-batches that stream through a partition before the next"),
    engine: options.EngineName = "ideal",
    seconds: float = option(60.0, "S", "time for the search"),
    next: int = option(0, "N", "next best mappings to show"),
    form: options.AnswerForm = options.FORM,
    svg: Path | None = drawing("draw the mapping"),
    roofline: Path | None = option(None, "FILE", "mappings under the roofs of DRAM and network"),
) -> None:
    """The best mapping of a program's kernels: degrees, places on the fabric, layouts, fused partitions with
    tiles; with the proof that none is quicker, or the gap.
    """
    from strata.app.render.map import draw_map, draw_map_roofline, map_dict, map_notes, map_tables, svg_name
    from strata.hardware.system import as_system
    from strata.optimise.fusion.fusion_graph import TILES
    from strata.optimise.mappings.joint_compare import compared_mappings
    from strata.pricing.fusion_rules import fusion_rules
    from strata.search.inputs import make_workload

    positive_options(seconds, next)
    svg_name(roofline)
    code = asked_program(program, layers, precision)
    work = make_workload(asked_phase(code, phase), whole(batch, "--batch"), whole(input, "--input"), 1.0)
    groups, machine = pinned_groups(pin), as_system(system)
    told = {"rules": fusion_rules(rules, **rule_changes(rule)), "engine": engine}
    told |= {"tiles": tuple(int(whole(n, "--tiles")) for n in tiles.split(",")) if tiles else TILES}
    told |= {"together": whole(together, "--together")}
    searched = {"microbatch": whole(microbatch, "--microbatch") if microbatch else 0.0, "seconds": seconds}
    with gap_line(not form.json) as tell, other_precisions(code):
        found = asked_mapping(code, machine, work, (plan, layouts), told, searched | {"progress": tell})
    others = compared_mappings(found_step(found, title := f"{code.name} on {machine.name}"), groups, next)
    notes = map_notes(found, machine, layouts)
    named = {"program": code.name, "system": machine.name}
    form.answer(
        lambda: named | map_dict(found, others, notes),
        lambda: map_tables(found, others, title, notes),
        "partitions",
    )
    if svg:
        wrote("picture", draw_map(found, code.trace(work), title, svg))
    options.write("roofline", roofline, draw_map_roofline, found, others, machine, code.name)
    leave(found)


def leave(found: ProgramMapping) -> None:
    """After Ctrl-C the exit code says so, as that of other searches."""
    if found.interrupted:
        raise typer.Exit(130)


def asked_mapping(
    code: Program,
    machine: System,
    work: Workload,
    fixed: tuple[str, str],
    told: dict[str, Any],
    searched: dict[str, Any],
) -> ProgramMapping:
    """The mapping with layouts searched; with those of the plan where they are given, or where tokens go to
    experts.
    """
    from strata.mapping.plan import divides_itself
    from strata.optimise.joint import map_program, usual_layout
    from strata.optimise.mappings.planned_mapping import map_planned, routes_tokens
    from strata.workload.dataflow import Dataflow

    plan, layouts = fixed
    if layouts not in ("free", "given"):
        raise BadValue(f"--layouts is free or given, but got '{layouts}'")
    if layouts == "free" and not routes_tokens(code, work):
        found = map_program(code, machine, work, plan=plan or None, **told, **searched)
        return quicker_plan(found, code, machine, work, told)
    if not plan and divides_itself(code):
        raise BadValue("--layouts given needs a --plan, like tp=8")
    if isinstance(code, Dataflow):
        return map_program(code, machine, work, plan=usual_layout(code, plan), **told, **searched)
    if searched["microbatch"]:
        raise BadValue("--microbatch needs layouts that are searched; a plan says microbatches=N itself")
    return map_planned(code, machine, work, plan=plan, **told)


def quicker_plan(
    found: ProgramMapping, code: Program, machine: System, work: Workload, told: dict[str, Any]
) -> ProgramMapping:
    """The mapping under a language model's plan of the same degrees, where it is quicker: a plan may divide
    unevenly (fewer heads of keys than ranks), which layouts that are searched do not.
    """
    from strata.optimise.mappings.planned_mapping import map_planned
    from strata.workload.model import Model

    if found.best is None or found.interrupted or not isinstance(code, Model) or work.phase == "train":
        return found
    degrees = ",".join(f"{d}={n:g}" for d, n in found.best.candidate.mesh.items() if n > 1)
    try:
        given = map_planned(code, machine, work, plan=degrees or "tp=1", **told)
    except StrataError:
        return found
    return given if given.best and given.best.step < found.best.step * (1 - 1e-9) else found


def found_step(found: ProgramMapping, title: str) -> MappedStep:
    """The best step; where nothing fits, one line with what binds."""
    if found.best is None:
        leave(found)
    if found.best is None and found.stopped:
        raise BadValue(f"no mapping of {title} was found in {found.seconds:.1f} s; give it more --seconds")
    if found.best is None:
        raise BadValue(f"no mapping of {title} fits: {found.reason or found.proof}")
    return found.best


@contextmanager
def other_precisions(code: Program) -> Iterator[None]:
    """What to do about a chip without arithmetic of a program's format."""
    try:
        yield
    except MissingQuantity as error:
        hint = "; --precision computes in another" if hasattr(code, "precision") else ""
        raise BadValue(f"{error}{hint}") from None


def positive_options(seconds: float, next: int) -> None:
    """Refuse what no search can use."""
    if not 0 < seconds < float("inf"):
        raise BadValue(f"--seconds must be positive, but got {seconds:g}")
    if next < 0:
        raise BadValue(f"--next must not be negative, but got {next}")


def asked_phase(code: Program, phase: str) -> str:
    """The phase; going forward through a language model is reading prompts."""
    from strata.search.inputs import phase_of
    from strata.workload.model import Model

    return phase_of(code, "prefill" if isinstance(code, Model) and phase == "forward" else phase)


def asked_program(name: str, layers: str, precision: str) -> Program:
    """The program with so many layers, in a format."""
    from dataclasses import replace

    from strata.base.precision import bytes_of
    from strata.workload.dataflow import Dataflow
    from strata.workload.model import Model
    from strata.workload.program import program as make_program

    code = make_program(name)
    if layers:
        if not isinstance(code, Dataflow):
            raise BadValue("--layers changes a dataflow program; a model has its own layers")
        code = code.with_changes(layers=whole(layers, "--layers"))
    if precision:
        bytes_of(precision)  # one line where there is none of this name
        parts = [p for p in ("precision", "weights", "activations") if hasattr(code, p)]
        if isinstance(code, Model) or not parts:
            raise BadValue(f"--precision is for dataflow programs and kernels; {code.name} has its own")
        code = replace(code, **dict.fromkeys(parts, precision))
    return code


def rule_changes(items: list[str] | None) -> dict[str, str]:
    """Switches of fusion with their words, as typed; words with blanks may be typed with hyphens.

    >>> rule_changes(["overlap=network-apart"])
    {'overlap': 'network apart'}
    """
    from dataclasses import fields

    from strata.base.errors import UnknownName
    from strata.pricing.fusion_rules import FusionRules

    known = {f.name: f.metadata for f in fields(FusionRules) if f.name not in ("name", "title", "sources")}
    changes = typed_pairs(items, "--rule", "SWITCH=WORD, like overlap=none")
    for name in changes:
        if name not in known:
            raise UnknownName("switch of fusion", name, known, ", ".join(known))
    return {name: word.replace("-", " ") for name, word in changes.items()}


def pinned_groups(path: Path | None) -> list[list[str]]:
    """Groups of kernels from a file, in order."""
    from strata.base.reading import tables_of, toml_file

    if path is None:
        return []
    told = toml_file(path)
    groups: list[Any] = [entry.get("kernels") for entry in tables_of(told, "partition", str(path))]
    if not groups or not all(
        isinstance(g, list) and g and all(isinstance(k, str) for k in g) for g in groups
    ):
        raise BadFile(f'{path}: partitions are written as [[partition]] with kernels = ["a", "b"]')
    return groups


@contextmanager
def gap_line(wanted: bool) -> Iterator[Callable[[float, float], None] | None]:
    """A line on a terminal that shows the best step, the bound and the gap as it closes."""
    with status_line("looking for a mapping") as say_now:

        def tell(best: float, bound: float) -> None:
            gap = max(0.0, 1.0 - bound / best)
            near = "" if best == float("inf") else f"best step {show(best, 's')}, "
            say_now(f"{near}bound {show(bound, 's')}" + (f", gap {gap:.3%}" if near else ""))

        yield tell if wanted and sys.stderr.isatty() else None
