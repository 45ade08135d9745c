"""Measured loads that tell energies, which are solved and not searched: power, time and clock are known."""

from __future__ import annotations

import numpy as np

from strata.errors import require
from strata.hardware.chip import Chip
from strata.params import leaf_paths, override
from strata.pricing.power_cap import PowerDraw, drawn_power, energies_of_draws
from strata.validation.fit.rows import GroupRows
from strata.validation.fit.solver import FitSolution
from strata.validation.measured.compared import row_answers, row_arguments
from strata.validation.measured.formulas import Columns
from strata.validation.measured.spec import spec_of
from strata.validation.questions.registry import question
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import HELD_OUT
from strata.validation.readers.labels import kernel_format
from strata.validation.readers.tables import Table

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
    before, after = (_power_error(version, check or learn) for version in (fitted, new))
    return FitSolution(values=values, rows=len(learn), held_out=len(check), before=before, after=after)


def _power_error(version: Chip, draws: list[PowerDraw]) -> float:
    return float(np.mean([abs(drawn_power(d, version) / d.power - 1.0) for d in draws]))


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
