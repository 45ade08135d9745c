"""A comparison for machines and for people: a row each, then why rows differ and whether that can be told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from strata.app.render.served import dollars_text, joules_text
from strata.app.terminal import plain_json, plain_table, titled
from strata.search.compare import Comparison
from strata.search.compared_rows import Answer, ComparedRow
from strata.serving.requests import Requests
from strata.units import show
from strata.validation.accuracy.compared import UNKNOWN, WITHIN, RowTrust

Trusted = Sequence[RowTrust | None]
PHASES_OF = {
    "serve": ("ttft", "ttft_p95", "tpot"),
    "prefill": ("ttft",),
    "decode": ("tpot",),
    "train": ("step_time", "train_days", "train_cost"),
}
COMPARED_UNITS = {
    "tokens_per_s": "1/s",
    "tokens_per_s_per_device": "1/s",
    "ttft": "s",
    "ttft_p95": "s",
    "tpot": "s",
    "step_time": "s",
    "train_days": "1",
    "train_cost": "USD",
    "cost_per_mtoken": "USD",
    "energy_per_mtoken": "J",
    "cost_per_device_hour": "USD",
    "power": "W",
}
NAMES = ("model", "system", "engine")


def compared_metrics(row: ComparedRow, answer: Answer, phase: str) -> dict[str, float]:
    """The numbers of a row that its phase has; units in `COMPARED_UNITS`."""
    own = {
        "tokens_per_s": answer.tokens_per_s,
        "tokens_per_s_per_device": answer.tokens_per_s / row.devices,
        **{name: float(getattr(answer, name)) for name in PHASES_OF[phase]},
    }
    spent = ("cost_per_mtoken", "energy_per_mtoken", "cost_per_device_hour", "power")
    return own | {name: float(getattr(answer, name)) for name in spent}


def question_text(found: Comparison) -> str:
    """What was asked, in words."""
    work = found.work
    if isinstance(work, Requests):
        size = f"input {work.input:g}, output {work.output:g}"
    elif found.phase == "decode":
        size = f"context {float(np.asarray(work.context)):g}"
    else:
        size = f"{float(np.asarray(work.sequence)):g} tokens a sequence"
        size += f", output {float(np.asarray(work.output)):g}" if found.phase == "serve" else ""
    alike = [same[0] for part in range(3) if len(same := list({r.names[part] for r in found.rows})) == 1]
    said = [", ".join(alike), found.phase, size]
    return ", ".join(filter(None, said)) + found.limits.text + f"; the best by {found.means}"


# ------------------------------------------------------------------------------------------- machines


def compared_dict(found: Comparison, trusted: Trusted) -> dict[str, Any]:
    """A comparison for machines."""
    return {
        "phase": found.phase,
        "goal": found.goal,
        "limits": found.limits.told,
        "ratio_of": found.means,
        "against": None if found.against is None else found.label(found.against),
        "ranking": [found.label(i) for i in found.ranking],
        "units": COMPARED_UNITS,
        "rows": [_row_dict(found, i, trusted[i]) for i in range(len(found.rows))],
    }


def _row_dict(found: Comparison, index: int, told: RowTrust | None) -> dict[str, Any]:
    row, rank = found.rows[index], found.ranking
    names = dict(zip((*NAMES, "plan_asked"), row.names, strict=True))
    data: dict[str, Any] = {"row": found.label(index), **names, "devices": row.devices}
    answer, why = row.answer, row.difference
    if answer is None or told is None:
        return data | {"fits": False, "why_none": row.why_none}
    data |= {"fits": True, "why_none": None, "rank": rank.index(index) + 1}
    data |= {"plan": answer.plan, "batch": answer.batch, "limited_by": answer.limited_by or None}
    data["devices_used"] = float(answer.result.system.devices)
    data["metrics"] = compared_metrics(row, answer, found.phase)
    data["intervals"] = {name: one.to_dict() for name, one in told.every.items()}
    data["goal_interval"] = None if told.bounds is None else {"low": told.bounds[0], "high": told.bounds[1]}
    data["confidence"] = told.verdict
    if why is not None:
        data |= {"ratio": why.ratio, "reason": why.text, "common_batch": why.common_batch}
        data["reasons"] = [
            {
                "what": r.what,
                "bound": r.bound or None,
                "log_share": r.share,
                "factor": r.factor,
                "before": r.before,
                "after": r.after,
                "said": r.said,
            }
            for r in why.reasons
        ]
    return data


def compared_rows(found: Comparison, trusted: Trusted) -> list[dict[str, Any]]:
    """A flat entry each row, for a file of them."""
    metrics = ["tokens_per_s", "tokens_per_s_per_device", *PHASES_OF[found.phase]]
    metrics += ["cost_per_mtoken", "energy_per_mtoken", "cost_per_device_hour", "power"]
    header = [*NAMES, "plan_asked", "devices", "fits", "rank", "plan", "batch", "limited_by", *metrics]
    header += ["ratio", "low", "high", "measured_rows", "confidence", "reason"]
    rows = []
    for i in range(len(found.rows)):
        told = trusted[i]
        flat = plain_json(_row_dict(found, i, told))
        flat |= flat.get("metrics", {}) | (flat.get("goal_interval") or {})
        flat |= {"measured_rows": None if told is None else told.points}
        flat["reason"] = flat.get("reason") or flat["why_none"]
        rows.append({name: flat.get(name) for name in header})
    return rows


# --------------------------------------------------------------------------------------------- people


def _time(value: float) -> str:
    return show(value, "s") if np.isfinite(value) else "-"


COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {
    "tokens_per_s": ("tokens/s", show),
    "tokens_per_s_per_device": ("/device", show),
    "ttft": ("TTFT", _time),
    "ttft_p95": ("95 %", _time),
    "tpot": ("TPOT", _time),
    "step_time": ("step", _time),
    "train_days": ("days/Ttok", lambda v: f"{v:.3g}"),
    "train_cost": ("USD/Ttok", lambda v: show(v) if np.isfinite(v) else "-"),
    "cost_per_mtoken": ("USD/Mtok", dollars_text),
    "energy_per_mtoken": ("J/Mtok", joules_text),
    "cost_per_device_hour": ("USD/dev-h", dollars_text),
}


def row_names(found: Comparison) -> list[str]:
    """Which names rows differ in; the system at least."""
    varied = [n for i, n in enumerate(NAMES) if len({row.names[i] for row in found.rows}) > 1]
    return varied or ["system"]


def goal_text(found: Comparison, value: float) -> str:
    """What the goal counts, in its unit."""
    if found.goal == "fastest":
        return show(value, "s")
    return {"throughput": show, "cheapest": dollars_text, "efficient": joules_text}[found.goal](value)


def compared_cells(found: Comparison, trusted: Trusted) -> tuple[list[str], list[list[str]]]:
    """Header and cells of the table."""
    shown = [name for name in COLUMNS if name in {*PHASES_OF[found.phase], *list(COLUMNS)[:2]}]
    shown += [n for n in list(COLUMNS)[-3:] if n != "cost_per_mtoken" or "train_cost" not in shown]
    header = [*row_names(found), "plan", "batch", "by", *(COLUMNS[n][0] for n in shown), "ratio", "80 %"]
    rows = []
    for row, told in zip(found.rows, trusted, strict=True):
        names = [row.names[NAMES.index(n)] for n in row_names(found)]
        answer = row.answer
        if answer is None or told is None:
            plan = row.asked_plan if row.asked_plan != "best" else "-"
            rows.append([*names, plan, *["-"] * (len(header) - len(names) - 1)])
            continue
        metrics = compared_metrics(row, answer, found.phase)
        cells = [answer.plan, f"{answer.batch:g}", answer.limited_by or "-"]
        cells += [COLUMNS[name][1](metrics[name]) for name in shown]
        ratio = row.difference.ratio if row.difference is not None else float("nan")
        cells.append(f"{ratio:.3g}" if np.isfinite(ratio) else "-")
        ends = [] if told.bounds is None else [goal_text(found, end) for end in told.bounds]
        cells.append(" to ".join(ends) if ends else "?")
        rows.append([*names, *cells])
    return header, rows


def reason_lines(found: Comparison, trusted: Trusted) -> list[str]:
    """Why each row differs from the one all are compared with, and whether that can be told; why others have
    no answer.
    """
    said = []
    for i, (row, told) in enumerate(zip(found.rows, trusted, strict=True)):
        if row.answer is None:
            said.append(f"{found.label(i)}: {row.why_none}")
        elif i != found.against and row.difference is not None and told is not None:
            unsure = {
                WITHIN: ". Not distinguishable: like cases measured were off by as much",
                UNKNOWN: ". How sure that is cannot be told: nothing like one of them was measured",
            }.get(told.verdict if np.isfinite(row.difference.ratio) else "", "")
            said.append(f"{found.label(i)}: {row.difference.text}{unsure}")
    return said


def remark_text(found: Comparison, trusted: Trusted) -> str:
    """What the columns mean, and which row is best."""
    if found.against is None:
        return "no row has an answer"
    shown = f"ratio: {found.means} against {found.label(found.against)}"
    counted = [told.points for told in trusted if told is not None and told.points]
    most = "" if len(set(counted)) < 2 else f" to {max(counted)}"
    rows = f" ({min(counted)}{most} rows each)" if counted else ""
    shown += f"; 80 %: where {found.means} of like cases measured would lie{rows}, ? where none was; "
    shown += "by: what one more sequence would break"
    for i, answer in ((i, row.answer) for i, row in enumerate(found.rows)):
        if answer is not None and answer.served is not None and answer.served.used:
            shown += f"\n{found.label(i)}: {answer.served.used}, the others idle and paid for"
    best = found.ranking[0]
    near = _near_best(found, trusted)
    sure = f"; not distinguishable from it: {', '.join(near)}" if near else ""
    return f"{shown}\nbest by {found.means}: {found.label(best)}{sure}"


def _near_best(found: Comparison, trusted: Trusted) -> list[str]:
    """Rows whose interval meets that of the best."""
    first = trusted[found.ranking[0]]
    if first is None or first.bounds is None:
        return []
    low, high = first.bounds
    return [
        found.label(i)
        for i in found.ranking[1:]
        if (told := trusted[i]) is not None
        and told.bounds is not None
        and told.bounds[0] <= high
        and low <= told.bounds[1]
    ]


def compared_parts(found: Comparison, trusted: Trusted) -> list[Any]:
    """A comparison for people: the table, in two where names of rows are long, then reasons."""
    from rich.text import Text

    header, rows = compared_cells(found, trusted)
    names = len(row_names(found))
    last = header.index("J/Mtok") - (found.phase != "train")
    numbers = [str(i + 1) for i in range(len(rows))]
    if names == 1:
        tables = [_table(header, rows)]
    else:
        first = [[number, *row[:last]] for number, row in zip(numbers, rows, strict=True)]
        second = [[number, *row[last:]] for number, row in zip(numbers, rows, strict=True)]
        tables = [_table(["", *header[:last]], first), _table(["", *header[last:]], second)]
    reasons = [Text(f"- {line}") for line in reason_lines(found, trusted)]
    title = [titled(question_text(found), tables[0]), *tables[1:]]
    return [*title, Text(remark_text(found, trusted), style="dim"), *reasons]


def _table(header: list[str], rows: list[list[str]]) -> Any:
    table = plain_table()
    words = {*NAMES, "plan", "by"}
    for label in header:
        side = "left" if label in words else "right"
        table.add_column(label, justify=side, no_wrap=label != "plan", overflow="fold")
    for cells in rows:
        table.add_row(*cells)
    return table
