"""calibrate(): a few physically named quantities of chips and transports, fitted to measured rows and written
with what they rest on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tomlkit

from strata.base.errors import BadFile, UnknownName, require
from strata.base.units import show
from strata.hardware.chip import Chip
from strata.hardware.fabric import Fabric
from strata.params import Param, leaf_paths, override, value_at
from strata.pricing.load_power import PowerDraw, drawn_power, energies_of_draws
from strata.validation.fit.rows import READ, GroupRows, Versions, free_quantities, group_rows
from strata.validation.fit.runs import solve_runs
from strata.validation.fit.solver import LEAST_ROWS, FitSolution, solve_fit
from strata.validation.fit.table import fit_table
from strata.validation.measured.compared import row_answers, row_arguments
from strata.validation.measured.formulas import Columns
from strata.validation.measured.spec import spec_of
from strata.validation.questions.question import question
from strata.validation.readers.comparison import HELD_OUT
from strata.validation.readers.labels import Catalogue, kernel_format
from strata.validation.readers.tables import Table

CHIP, TRANSPORT, ENGINE = "chip", "transport", "engine"  # kinds of records that are fitted


@dataclass(frozen=True, kw_only=True)
class FitOutcome(FitSolution):
    """What the fit of a group gave (no values where the old ones were better), and what it rests on."""

    family: str
    files: tuple[str, ...]
    source: str


def calibrate(
    name: str,
    folder: Path | str,
    *,
    kind: str = CHIP,
    only: Sequence[str] = (),
    date: str = "",
    catalogue: Catalogue | None = None,
) -> tuple[Any, list[FitOutcome]]:
    """Fit a chip to the measured kernels of it below a folder, or a transport to the collectives of nodes
    that use it: the record with its new quantities, and what each group of them rests on.
    """
    groups = [group for group in fit_table().of_kind(kind) if not group.together]
    known = {group.name: group for group in groups}
    for word in only:
        if word not in known:
            raise UnknownName("family of kernels", word, known, ", ".join(known))
    fitted, names = READ[kind](name), catalogue or Catalogue()
    names = names.with_chip(fitted) if kind == CHIP else names  # a user's own is shipped nowhere
    belongs = partial(same_chip if kind == CHIP else joined_by, fitted.name, names)
    rows_of = fitted.name if kind == CHIP else f"nodes with {fitted.name}"
    outcomes: list[FitOutcome] = []
    skipped: list[str] = []
    for group in (g for g in groups if not only or g.name in only):
        rows = group_rows(group, Path(folder), belongs, names)
        settled = set() if group.again else {path for o in outcomes for path in o.values}
        if rows.enough and (free := free_quantities(rows, [fitted], settled)):
            versions = Versions(kind=kind, records=(fitted,), quantities=free, catalogue=names)
            (fitted,), outcome = fit_group(rows, versions, date=date, rows_of=rows_of)
            outcomes += [] if outcome is None else [outcome]
        else:
            files = ", ".join(group.files).replace("*", fitted.name)
            skipped.append(f"{group.name}: {len(rows)} rows of {fitted.name} in {files}")
    if not outcomes:
        raise BadFile(
            f"nothing to fit {fitted.name} on: it needs at least {LEAST_ROWS} rows to fit and as many thirds "
            f"to hold out, but found {'; '.join(skipped)}"
        )
    return fitted, outcomes


def fit_group(
    rows: GroupRows, versions: Versions, *, date: str = "", rows_of: str = ""
) -> tuple[tuple[Any, ...], FitOutcome | None]:
    """Fit the quantities of a group to its rows; what data sheets and sources say is kept where it is better
    on rows nobody fitted, the round start of engines' numbers is not. No outcome where rows tell nothing.
    """
    if rows.group.search.slopes:
        solution: FitSolution | None = solve_runs(rows, versions)
    elif rows.group.solved:
        solution = solved_energies(rows, versions.records[0])
    else:
        solution = solve_fit(rows, versions)
    if solution is None:
        return versions.records, None
    if solution.after >= solution.before and not rows.group.search.slopes:
        solution = replace(solution, values={}, after=solution.before)
    outcome = outcome_of(solution, rows.group.name, rows.files, date, rows_of=rows_of)
    changed = versions.changed(solution.values)
    return tuple(_with_source(one, outcome, versions.kind) for one in changed), outcome


def versions_of(rows: GroupRows, catalogue: Catalogue) -> Versions:
    """The records of a group as they stand, and what of them may move."""
    group = rows.group
    records = tuple(getattr(catalogue, group.kind)(name) for name in group.records)
    free = free_quantities(rows, records)
    return Versions(kind=group.kind, records=records, quantities=free, catalogue=catalogue)


def same_chip(name: str, catalogue: Catalogue, label: str) -> bool:
    """Whether a data set's label means the chip of this name, which may be the user's own."""
    if label.lower() == name.lower():
        return True
    return catalogue.has_chip(label) and catalogue.chip(label).name == name


def joined_by(name: str, catalogue: Catalogue, label: str) -> bool:
    """Whether chips of a node are joined by the transport of this name."""
    return transport_inside(label, catalogue) == name


def transport_inside(label: str, catalogue: Catalogue) -> str:
    """The transport that joins chips of a node, "" where a label means no chip."""
    if not catalogue.has_chip(label):
        return ""
    try:
        joined: Fabric = catalogue.usual_fabric(label)
    except UnknownName:
        return ""
    return str(joined.dimension[0].transport)


# ------------------------------------------------------------------------- what fits rest on


def outcome_of(
    solution: FitSolution, family: str, files: Iterable[str], date: str = "", *, rows_of: str = ""
) -> FitOutcome:
    """What is reported of a fit."""
    named = tuple(files)
    share, unseen = "two thirds of them", f"held-out third ({solution.held_out} rows)"
    if not solution.held_out:
        share, unseen = "all of them", "fitted rows, none to spare,"
    return FitOutcome(
        **vars(solution),
        family=family,
        files=named,
        source=f"fitted: {' and '.join(named)}{f', rows of {rows_of}' if rows_of else ''}, "
        f"{share} ({solution.rows}){f', {date}' if date else ''}; "
        f"mean error of the {unseen} {solution.after:.1%}, {solution.before:.1%} before",
    )


def _with_source(version: Any, outcome: FitOutcome, kind: str) -> Any:
    """A record whose fitted quantities say what they rest on."""
    own = {path: value for path, value in outcome.values.items() if path in leaf_paths(version)}
    changed = override(version, own, kind)[1]
    entries = {path: replace(param, source=outcome.source) for path, param in changed.items()}
    return replace(version, sources=version.sources.updated(entries))


def fitted_entries(record: Any, outcomes: Iterable[FitOutcome]) -> dict[str, Param]:
    """What fits found of a record, each number with its unit and source."""
    units = leaf_paths(record)
    return {
        path: Param(value, units[path]["unit"], outcome.source)
        for outcome in outcomes
        for path, value in outcome.values.items()
        if path in units
    }


def overlay_toml(entries: Mapping[str, Param]) -> str:
    """Fitted quantities as a file to lay over the record's own: `base = "..."` in front makes one of it."""
    document = tomlkit.document()
    for path, param in entries.items():
        *tables, key = path.split(".")
        table: Any = document
        for name in tables:
            table = table.setdefault(name, tomlkit.table())
        entry = tomlkit.inline_table()
        value = float(param.value)
        entry["value"] = float(f"{value:.3g}") if param.unit == "1" else show(value, param.unit, 3)
        entry["source"] = param.source
        table[key] = entry
    return tomlkit.dumps(document)


def carried(entries: Mapping[str, Param], of: Any, to: Any, why: str, share: float = 1.0) -> dict[str, Param]:
    """What the fits of one record found as assumptions of another: some numbers go with a number of its own,
    some only with the same kind of part, all a share of the way from what the other's own file says [log].

    >>> from strata.hardware.chip import chip
    >>> old, new = chip("mi300x"), chip("mi355x")
    >>> own = {"cache.core_bandwidth": Param(40e9, "B/s", "fitted: some rows")}
    >>> carried(own, old, new, "the generation before")["cache.core_bandwidth"].value / 1e9
    100.0
    >>> half = carried(own, old, new, "the generation before", 0.5)["cache.core_bandwidth"].value
    >>> round(float(half**2 / (100e9 * new.cache.core_bandwidth)), 1)
    1.0
    """
    rules = fit_table().carried
    taken = {}
    for path, param in entries.items():
        rule = rules.get(path, {})
        kind = rule.get("same")
        if kind and _at(of, kind) != _at(to, kind):
            continue
        ratio = float(_at(to, rule["by"]) / _at(of, rule["by"])) if "by" in rule else 1.0
        reason = f"{why}, {rule['why']}" if ratio != 1.0 else why
        way, value = "as", float(param.value) * ratio
        if share != 1.0 and path in leaf_paths(to):
            own = float(value_at(to, path))
            from_own = show(own, param.unit, 3) if param.unit != "1" else f"{own:.3g}"
            way, value = f"{share:.0%} of the way from {from_own} to what was", own * (value / own) ** share
        source = f"assumed: {way} fitted on {of.name}, {reason}"
        taken[path] = Param(float(f"{value:.3g}"), param.unit, source)
    return taken


def _at(record: Any, path: str) -> Any:
    value = value_at(record, path)
    return value.lower() if isinstance(value, str) else value


def with_entries(record: Any, entries: Mapping[str, Param], kind: str) -> Any:
    """A record with numbers and their sources laid over its own, those that it has."""
    own = {path: param for path, param in entries.items() if path in leaf_paths(record)}
    changed, _ = override(record, {path: float(param.value) for path, param in own.items()}, kind)
    return replace(changed, sources=changed.sources.updated(own))


LONG_ENOUGH = 0.2e-3  # s: below it a board's power reading is noise (validation/README.md)
AT_THE_LIMIT = 0.95  # of the power limit: above it the clock has fallen, to what these files do not say
BOUND = 0.9  # of its time for DRAM: a load that waits for little else
WORK = ("flop", "cache_bytes", "memory_bytes", "memory_time", "time")


def solved_energies(rows: GroupRows, fitted: Chip) -> FitSolution | None:
    """Energies from loads whose power, time and clock are known; None where there are no more of them than
    energies to find, or DRAM binds none: products share its energy among them then.
    """
    # loads of seconds with their clock say more than short products without it
    tables = [t for t in rows.tables if "load" in t.columns] or rows.tables
    learn: list[PowerDraw] = []
    check: list[PowerDraw] = []
    for table in tables:
        unseen = table.lines % HELD_OUT == 0
        learn += measured_draws(table.keep(~unseen), fitted)
        check += measured_draws(table.keep(unseen), fitted)
    formats = {d.format for d in learn if d.format}
    if len(learn) < len(formats) + 3 or not any(d.dram_share > BOUND for d in learn):
        return None
    solved = energies_of_draws(learn, fitted)
    values = {
        path: float(f"{v:.{rows.group.search.digits}g}")
        for path, v in solved.items()
        if path in leaf_paths(fitted)
    }
    new = override(fitted, values, "chip")[0]
    before, after = (
        float(np.mean([abs(drawn_power(d, version) / d.power - 1.0) for d in check or learn]))
        for version in (fitted, new)
    )
    return FitSolution(values=values, rows=len(learn), held_out=len(check), before=before, after=after)


def measured_draws(table: Table, chip: Chip) -> list[PowerDraw]:
    """The loads of a file of power, with their work as it is priced."""
    spec = spec_of(table.folder, table.name)
    require(spec is not None, f"{table.name} must be a file of power that a TOML describes")
    assert spec is not None
    asked = question(spec.question)
    arguments = row_arguments(asked, spec, Columns(table, spec))
    priced, _ = row_answers(asked, arguments, table, list(WORK), Catalogue().with_chip(chip))
    work = dict(zip(WORK, priced.values, strict=True))
    power, kinds = table.number("power_w"), arguments["kind"]
    if "load" in table.columns:  # of seconds, with their clock
        seconds = table.number("seconds") / np.maximum(table.number("calls"), 1.0)
        share = table.number("sm_mhz") * 1e6 / float(chip.compute.max_clock)
        known, products = kinds != "idle", (kinds == "gemm") & (arguments["m"] > 1.0)
    else:
        seconds, share = table.number("latency_ms") * 1e-3, np.ones(len(table))
        known = ~((seconds < LONG_ENOUGH) | (power > AT_THE_LIMIT * table.number("power_limit_w")))
        products = kinds == "gemm"
    return [
        PowerDraw(
            format=kernel_format(arguments["precision"][i]).weight if products[i] else "",
            flop=work["flop"][i],
            cache_bytes=work["cache_bytes"][i],
            memory_bytes=work["memory_bytes"][i],
            dram_share=work["memory_time"][i] / work["time"][i],
            seconds=seconds[i],
            power=power[i],
            share=share[i],
        )
        for i in np.flatnonzero(known)
    ]
