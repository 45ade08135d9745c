"""What became of logs of collectives, for people and machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from strata.app.render.accuracy import fitted_dict, fitted_table
from strata.app.terminal import plain_table, titled
from strata.units import show

if TYPE_CHECKING:
    from strata.validation.fit.logged import LoggedFit
    from strata.validation.measure.collectives import GroupFacts, MeasuredCollective
    from strata.validation.readers.nccl_logs import LoggedRun


def logged_dict(fit: LoggedFit) -> dict[str, Any]:
    """Runs, rows by file, transports and why rows were not fitted, as plain JSON types."""
    return {
        "runs": [_run(run) for run in fit.runs],
        "files": [{"file": name, "rows": rows} for name, rows in fit.files.items()],
        "transports": [fitted_dict(record, outcomes, "transport") for record, outcomes in fit.fitted],
        "notes": list(fit.notes),
    }


def _run(run: LoggedRun) -> dict[str, Any]:
    sizes = [row.bytes for row in run.rows]
    return {
        "log": run.log,
        "op": run.op,
        "gpu": run.gpu,
        "nodes": run.nodes,
        "devices": run.gpus,
        "fabric": run.fabric,
        "links": run.links,
        "library": run.library,
        "setting": run.setting,
        "rows": len(run.rows),
        "smallest_B": min(sizes),
        "largest_B": max(sizes),
        "shortest_s": min(row.time_us for row in run.rows) * 1e-6,
        "longest_s": max(row.time_us for row in run.rows) * 1e-6,
        "empty": run.empty,
        "left_out": [{"row": line, "why": why} for line, why in sorted(run.left_out.items())],
    }


def logged_tables(fit: LoggedFit) -> list[Any]:
    """The runs, a line each; then each transport that was fitted."""
    table = plain_table()
    for column in ("log", "collective", "GPUs", "nodes", "over", "rows", "bytes", "times", "left out"):
        table.add_column(column, justify="left" if column in ("log", "collective", "over") else "right")
    for run in fit.runs:
        told = _run(run)
        ends = [show(told[f"{end}_{unit}"], unit) for unit, names in _ENDS for end in names]
        first = (run.log, run.op, f"{run.gpus} {run.gpu}", str(run.nodes), run.fabric, str(len(run.rows)))
        out = str(run.empty + len(run.left_out) or "")
        table.add_row(*first, " to ".join(ends[:2]), " to ".join(ends[2:]), out)
    files = ", ".join(f"{rows} rows of {name}" for name, rows in fit.files.items())
    shown = [titled(f"collectives read from logs: {files}", table, "\n".join(fit.notes))]
    return [*shown, *(fitted_table(record, found, "collectives") for record, found in fit.fitted)]


_ENDS = (("B", ("smallest", "largest")), ("s", ("shortest", "longest")))


def measured_collectives(
    facts: GroupFacts, done: Sequence[MeasuredCollective]
) -> tuple[dict[str, Any], list[Any]]:
    """What became of collectives that were measured, for machines and for people."""
    table = plain_table()
    for column in ("collective", "sizes", "shortest", "longest", "left out", "most often because"):
        table.add_column(
            column, justify="left" if column in ("collective", "most often because") else "right"
        )
    told = []
    for op in dict.fromkeys(one.op for one in done):
        times = [one.time_us * 1e-6 for one in done if one.op == op and not one.why]
        why = [one.why for one in done if one.op == op and one.why]
        ends = [show(end(times), "s") if times else "" for end in (min, max)]
        reason = max(why, key=why.count, default="")
        table.add_row(op, str(len(times)), *ends, str(len(why) or ""), reason)
        told += [
            {"op": one.op, "bytes": one.bytes, "time_s": one.time_us * 1e-6, "why": one.why}
            for one in done
            if one.op == op
        ]
    who = {"gpu": facts.gpu, "devices": facts.ranks, "nodes": facts.nodes, "library": facts.library}
    where = f"{facts.ranks} ranks of {facts.gpu} on {facts.nodes} node{'s' if facts.nodes > 1 else ''}"
    return {**who, "collectives": told}, [titled(f"collectives measured over {where}", table)]
