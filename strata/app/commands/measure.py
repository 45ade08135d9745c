"""`strata measure`, `strata calibrate`: kernels, power and collectives timed on the GPUs at hand; a chip
fitted to its measured kernels, transports to logs of collectives.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strata.app.commands.options import FORM, AnswerForm, JsonFlag, MeasuredFolder, command, flag, option
from strata.app.terminal import names_of, progress_bar, wrote
from strata.base.errors import BadValue, StrataError, require

if TYPE_CHECKING:
    from strata.measure.collectives import MeasuredCollective
    from strata.measure.measure import MeasuredKernel
    from strata.measure.nccl_logs import ToldRun
    from strata.validation.readers.collective_files import LoggedRun

COLLECTIVES_KIND = "collectives"
ChipOrGpu = Annotated[
    str, typer.Argument(help="the chip to fit: its name, or a TOML path; with --log the GPU of the logs")
]
OUTPUT = option(
    None,
    "--output -o PATH",
    "write the fitted chip as a TOML that starts from the shipped one; with --log a folder for the "
    "rows, the fitted transports and the fabric that uses them",
)
LOG = option(
    None,
    "FILE",
    "a log of nccl-tests or rccl-tests as it was printed, or a CSV of `strata measure --what "
    "collectives`; several times for several",
)


@command(
    "measure", "Time kernels, power and collectives on the GPUs at hand.", "strata measure --out mine --quick"
)
def measure_command(
    out: Path = option(..., "DIR", "folder to write to; rows that are there already are kept"),
    only: list[str] | None = option(
        None,
        "--only --what KIND",
        "gemm, stream, attention, grouped_gemm or power; several as gemm,stream; or collectives, under "
        "torchrun",
    ),
    quick: bool = flag("--quick", "few shapes and short readings: about a minute instead of ten"),
    chip: str = option(
        "",
        "NAME",
        "the chip this is, or its TOML; it names the folder  [default: from the GPU's name]",
        names_of("chip"),
    ),
    op: list[str] | None = option(
        None, "OP", "collectives: all_reduce, all_gather, reduce_scatter, all_to_all  [default: all]"
    ),
    sizes: str = option(
        "", "BYTES", "collectives: whole buffers, 1M,4M or powers of two as 1K:1G  [default: 1K:1G]"
    ),
    dtype: str = option("bfloat16", "FORMAT", "collectives: bfloat16, half or float"),
    fabric: str = option("", "NAME", "collectives: what joins the nodes: infiniband, roce, efa ..."),
    links: str = option("", "TEXT", "collectives: adapters of a node, as '8x400G'"),
    json: JsonFlag = False,
) -> None:
    """Time kernels on the GPU at hand (PyTorch, CUDA graphs), or collectives of all ranks of torchrun, and
    write the files that calibrate and validate read.
    """
    from strata.app.render.accuracy import measured_dict, measured_tables
    from strata.measure.measure import chosen_kinds

    words = [word.strip() for text in only or [] for word in text.split(",") if word.strip()]
    if COLLECTIVES_KIND in words:
        require(set(words) == {COLLECTIVES_KIND}, "collectives are measured by themselves, under torchrun")
        asked = {"dtype": dtype, "fabric": fabric, "links": links, "quick": quick}
        _on_rank_0(lambda: _collectives(out, op or [], sizes, chip, json, asked))
        return
    said = {"--op": op, "--sizes": sizes, "--fabric": fabric, "--links": links}
    told = [name for name, value in said.items() if value]
    require(not told, f"{', '.join(told)} says something of collectives: --what collectives")
    kinds = chosen_kinds(words)
    folder, done = _measured(out, kinds, quick, chip)
    AnswerForm(json=json).answer(measured_dict, measured_tables, of=[folder, done])
    wrote("measurements", folder, f" (next: strata calibrate {chip or folder.name} --data {out})")


def _measured(out: Path, kinds: list[str], quick: bool, chip: str = "") -> tuple[Path, list[MeasuredKernel]]:
    """Measure the GPU at hand with a bar that says how far it is; the folder of its files, and what became of
    each kernel.
    """
    from strata.hardware.chip import chip as read_chip
    from strata.measure.gpu import torch_gpu
    from strata.measure.measure import folder_name, measure

    gpu = torch_gpu()
    folder = out / (read_chip(chip).name if chip else folder_name(gpu.name, gpu.cores))
    done: list[MeasuredKernel] = []
    with _bar() as bar:
        tasks = {kind: bar.add_task(kind, total=None) for kind in kinds}
        for one in measure(gpu, folder, kinds=kinds, quick=quick):
            bar.update(tasks[one.kind], completed=one.place, total=one.total)
            done.append(one)
    return folder, done


def _bar() -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    counted = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return progress_bar(TextColumn("{task.description}"), *counted)


def _on_rank_0(work: Any) -> None:
    """Every rank works; what is wrong on all of them is said once."""
    try:
        work()
    except StrataError:
        if os.environ.get("RANK", "0") != "0":
            raise typer.Exit(2) from None
        raise


def _collectives(out: Path, op: list[str], sizes: str, chip: str, json: bool, asked: dict[str, Any]) -> None:
    from dataclasses import replace

    from strata.app.render.accuracy import measured_collectives
    from strata.hardware.chip import chip as read_chip
    from strata.measure import collectives
    from strata.validation.readers.collective_files import BETWEEN_NODES, IN_NODE

    wanted, buffers = collectives.chosen_ops(op), collectives.collective_sizes(sizes, asked["quick"])
    named = read_chip(chip).name if chip else ""
    if out.exists() and not out.is_dir():
        raise BadValue(f"--out is a folder, but got '{out}'")
    group = collectives.torch_group()
    try:
        if named:
            group.facts = replace(group.facts, gpu=named)
        found = collectives.measure_collectives(group, out, ops=wanted, sizes=buffers, **asked)
        first = group.facts.rank == 0
        done = _watched(found) if first else list(found)
    finally:
        group.close()
    if first:
        path = out / (IN_NODE if group.facts.nodes == 1 else BETWEEN_NODES)
        AnswerForm(json=json).answer(*measured_collectives(group.facts, done))
        wrote("measurements", path, f" (next: strata calibrate --log {path} -o fitted)")


def _watched(found: Iterable[MeasuredCollective]) -> list[MeasuredCollective]:
    done: list[MeasuredCollective] = []
    with _bar() as bar:
        task = bar.add_task(COLLECTIVES_KIND, total=None)
        for one in found:
            bar.update(task, description=one.op, completed=one.place, total=one.total)
            done.append(one)
    return done


@command(
    "calibrate",
    "Fit a chip to its measured kernels, or links to logs of collectives.",
    "strata calibrate h200 --only attention --output my-h200.toml",
)
def calibrate_command(
    chip: ChipOrGpu = "",
    data: MeasuredFolder = None,
    only: list[str] | None = option(
        None, "FAMILY", "one family of kernels: products, streams, experts, attention ..."
    ),
    log: list[Path] | None = LOG,
    op: str = option("", "OP", "the collective of the logs, where they do not say it"),
    fabric: str = option("", "NAME", "what joins the nodes of the logs: infiniband, roce, efa ..."),
    links: str = option("", "TEXT", "adapters of a node of the logs, as '8x400G'"),
    nodes: int = option(0, "N", "nodes of the logs, where they list no ranks", min=0),
    gpus: int = option(0, "N", "GPUs of the logs, where they list no ranks", min=0),
    units: str = option("", "UNIT", "unit of times of logs without their line of units: us, ms, s"),
    partial: bool = flag("--partial", "take the whole rows of logs that were cut off"),
    every: bool = flag(
        "--all",
        "make every shipped fitted number anew, or those of --only: a chip, a transport; slow: minutes",
    ),
    check: bool = flag("--check", "with --all: write nothing, say where the fit and what is shipped differ"),
    worth: bool = flag(
        "--worth", "with --all: every fitted number, with the errors on families left out with it and without"
    ),
    output: Path | None = OUTPUT,
    form: AnswerForm = FORM,
) -> None:
    """Fit a few quantities to measurements; every third point is held out and reported."""
    require(every or not (check or worth), "--check and --worth go with --all")
    if every:
        require(
            not (chip or log or output), "--all fits what is shipped: no chip, --log or --output beside it"
        )
        _fit_all(data, only or [], (check, worth), form)
        return
    told: dict[str, Any] = {"op": op, "fabric": fabric, "links": links}
    told |= {"nodes": nodes, "gpus": gpus, "units": units}
    if not log:
        said = [f"--{name}" for name, value in {**told, "partial": partial}.items() if value]
        require(not said, f"{', '.join(said)} says something of logs, but there is no --log FILE")
        require(bool(chip), "calibrate needs the chip to fit, as `strata calibrate h200`, or --log FILE")
        _fit_chip(chip, data, only or [], output, form)
        return
    from strata.measure.nccl_logs import ToldRun

    require(data is None and not only, "--log takes neither --data nor --only: its rows are what is fitted")
    if output and (output.suffix in (".toml", ".csv") or output.is_file()):
        raise BadValue(f"with --log, --output is a folder, but got '{output}'")
    facts = ToldRun(gpu=_shipped_name(chip) if chip else "", partial=partial, **told)
    _fit_logs(log, facts, output, form)


def _fit_chip(chip: str, data: Path | None, only: list[str], output: Path | None, form: AnswerForm) -> None:
    import datetime

    import tomlkit

    from strata.app.render.accuracy import fitted_dict, fitted_table
    from strata.base.shipped import shipped_folder
    from strata.validation.fit.calibrate import calibrate, fitted_entries, overlay_toml

    fitted_chip, outcomes = calibrate(
        chip, data or shipped_folder("validation"), only=tuple(only), date=datetime.date.today().isoformat()
    )
    fitted = (fitted_chip, outcomes)
    form.answer(fitted_dict, lambda *of: [fitted_table(*of)], "families", of=fitted)
    if output:
        base = Path(chip).resolve().as_posix() if chip.endswith(".toml") else fitted_chip.name
        document = tomlkit.document()
        document.update({"base": base, "name": output.stem})
        document.update(tomlkit.parse(overlay_toml(fitted_entries(fitted_chip, outcomes))))
        output.write_text(tomlkit.dumps(document), encoding="utf-8")
        wrote("chip", output)


def _fit_all(data: Path | None, only: list[str], asked: tuple[bool, bool], form: AnswerForm) -> None:
    from strata.app.render.accuracy import all_dict, all_table, worth_dict, worth_tables
    from strata.base.errors import UnknownName
    from strata.base.shipped import shipped_folder
    from strata.validation.fit.shipped import calibrate_all, stale_files, stale_numbers, write_all
    from strata.validation.fit.table import fit_table
    from strata.validation.fit.worth import quantities_worth

    folder, (check, worth) = data or shipped_folder("validation"), asked
    known = fit_table().fitted_records
    for name in only:
        if name not in known:
            raise UnknownName("fitted chip or transport", name, known, ", ".join(known))
    if worth:
        numbers = quantities_worth(folder, only=only)
        form.answer(worth_dict, worth_tables, "quantities", of=[numbers])
        return
    made = calibrate_all(folder, only)
    form.answer(lambda: all_dict(made), lambda: [all_table(made)], "fits")
    if not check:
        for path in write_all(made, whole=not only):
            wrote("fitted numbers", path)
        return
    apart = [line for one in made for line in stale_numbers(one)]
    apart += [f"{path.name} is shipped, no fit gives it" for path in stale_files(made) if not only]
    if apart:
        more = f" (and {len(apart) - 1} more numbers)" if len(apart) > 1 else ""
        raise BadValue(f"{apart[0]}{more}; `strata calibrate --all` writes what the fit gives")


def _shipped_name(chip: str) -> str:
    """The shipped chip that is meant by a name."""
    from strata.hardware.chip import chip as read_chip
    from strata.params import names

    name = read_chip(chip).name
    if name not in names("chip"):
        raise BadValue(f"logs are fitted for shipped chips, which '{name}' is not: strata list chips")
    return name


def _fit_logs(logs: list[Path], told: ToldRun, output: Path | None, form: AnswerForm) -> None:
    import datetime

    from strata.app.render.accuracy import logged_dict, logged_tables
    from strata.base.errors import BadFile
    from strata.measure.logged import calibrate_logs, write_fit

    fit = calibrate_logs(_runs(logs, told), date=datetime.date.today().isoformat())
    if not fit.fitted and not output:
        raise BadFile(f"nothing to fit: {'; '.join(fit.notes)}; -o FOLDER keeps the rows")
    made = write_fit(fit, output) if output else []
    form.answer(logged_dict, logged_tables, "runs", of=[fit])
    for path in made:
        fabric = path.suffix == ".toml" and path.stem not in [record.name for record, _ in fit.fitted]
        hint = f" (next: strata predict --fabric {path} ...)" if fabric else ""
        wrote("rows" if path.suffix == ".csv" else "fabric" if fabric else "transport", path, hint)


def _runs(logs: list[Path], told: ToldRun) -> list[LoggedRun]:
    from strata.measure.nccl_logs import read_logs
    from strata.validation.readers.collective_files import runs_of_csv

    every = (runs_of_csv(path) if path.suffix == ".csv" else read_logs([path], told) for path in logs)
    return [run for runs in every for run in runs]
