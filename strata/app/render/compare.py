"""A comparison: a row each, why rows differ, whether that can be told; as a picture and a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render import page
from strata.app.render.figures import colour_of, picture
from strata.app.render.prediction_report import sources_html
from strata.app.render.ranking import dollars_text, joules_text, seconds_text
from strata.app.render.tables import picked, rows_table
from strata.app.terminal import plain_json, titled, words
from strata.base.units import show
from strata.search.compare import Comparison
from strata.search.compared_rows import Answer, ComparedRow
from strata.serving.requests import Requests
from strata.validation.accuracy.compared import UNKNOWN, WITHIN, RowTrust

Trusted = Sequence[RowTrust | None]
PHASES_OF = {
    "serve": ("ttft", "ttft_p95", "tpot"),
    "prefill": ("ttft",),
    "decode": ("tpot",),
    "train": ("step_time", "train_days", "train_cost"),
}
NAMES = ("model", "system", "engine")
SPENT = ("cost_per_mtoken", "energy_per_mtoken", "cost_per_device_hour", "power")
TITLES = {
    "tokens_per_s": "tokens/s",
    "cost_per_mtoken": "USD/Mtoken",
    "energy_per_mtoken": "J/Mtoken",
    "ttft": "TTFT [s]",
    "tpot": "TPOT [s]",
    "train_days": "days for a trillion tokens",
    "train_cost": "USD for a trillion tokens",
}
INTERVALS_OF = ("tokens_per_s", "ttft", "tpot")  # bars with the interval of like cases measured
WORD_COLUMNS = (*NAMES, "plan", "by")
# Metrics by their headings, with how people read them and their units.
COLUMNS: dict[str, tuple[str, Callable[[float], str], str]] = {
    "tokens_per_s": ("tokens/s", show, "1/s"),
    "tokens_per_s_per_device": ("/device", show, "1/s"),
    "ttft": ("TTFT", seconds_text, "s"),
    "ttft_p95": ("95 %", seconds_text, "s"),
    "tpot": ("TPOT", seconds_text, "s"),
    "step_time": ("step", seconds_text, "s"),
    "train_days": ("days/Ttok", lambda v: f"{v:.3g}", "1"),
    "train_cost": ("USD/Ttok", lambda v: show(v) if np.isfinite(v) else "-", "USD"),
    "cost_per_mtoken": ("USD/Mtok", dollars_text, "USD"),
    "energy_per_mtoken": ("J/Mtok", joules_text, "J"),
    "cost_per_device_hour": ("USD/dev-h", dollars_text, "USD"),
}
COMPARED_UNITS = {name: unit for name, (_, _, unit) in COLUMNS.items()} | {"power": "W"}


def compared_metrics(row: ComparedRow, answer: Answer, phase: str) -> dict[str, float]:
    """The numbers of a row that its phase has; units in `COMPARED_UNITS`."""
    rate = answer.tokens_per_s
    own = {name: float(getattr(answer, name)) for name in (*PHASES_OF[phase], *SPENT)}
    return {"tokens_per_s": rate, "tokens_per_s_per_device": rate / row.devices, **own}


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
        own = "log_share=share factor before after said"
        data["reasons"] = [{"what": r.what, "bound": r.bound or None, **picked(r, own)} for r in why.reasons]
    return data


def compared_rows(found: Comparison, trusted: Trusted) -> list[dict[str, Any]]:
    """A flat entry each row, for a file of them."""
    header = [*NAMES, "plan_asked", "devices", "fits", "rank", "plan", "batch", "limited_by"]
    header += ["tokens_per_s", "tokens_per_s_per_device", *PHASES_OF[found.phase], *SPENT]
    header += ["ratio", "low", "high", "measured_rows", "confidence", "reason"]
    rows = []
    for i, told in enumerate(trusted):
        flat = plain_json(_row_dict(found, i, told))
        flat |= flat.get("metrics", {}) | (flat.get("goal_interval") or {})
        flat |= {"measured_rows": None if told is None else told.points}
        flat["reason"] = flat.get("reason") or flat["why_none"]
        rows.append({name: flat.get(name) for name in header})
    return rows


def row_names(found: Comparison) -> list[str]:
    """Which names rows differ in; the system at least."""
    varied = [n for i, n in enumerate(NAMES) if len({row.names[i] for row in found.rows}) > 1]
    return varied or ["system"]


def goal_text(found: Comparison, value: float) -> str:
    """What the goal counts, in its unit."""
    texts: dict[str, Callable[[float], str]] = {"throughput": show, "cheapest": dollars_text}
    texts |= {"efficient": joules_text, "fastest": lambda time: show(time, "s")}
    return texts[found.goal](value)


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
    counted = [trust.points for trust in trusted if trust is not None and trust.points]
    most = "" if len(set(counted)) < 2 else f" to {max(counted)}"
    rows = f" ({min(counted)}{most} rows each)" if counted else ""
    shown = f"ratio: {found.means} against {found.label(found.against)}; 80 %: where {found.means} of like "
    shown += f"cases measured would lie{rows}, ? where none was; by: what one more sequence would break"
    for i, row in enumerate(found.rows):
        if row.answer is not None and row.answer.served is not None and row.answer.served.used:
            shown += f"\n{found.label(i)}: {row.answer.served.used}, the others idle and paid for"
    near = _near_best(found, trusted)
    sure = f"; not distinguishable from it: {', '.join(near)}" if near else ""
    return f"{shown}\nbest by {found.means}: {found.label(found.ranking[0])}{sure}"


def _near_best(found: Comparison, trusted: Trusted) -> list[str]:
    """Rows whose interval meets that of the best."""
    bounds = [None if trust is None else trust.bounds for trust in trusted]
    best = bounds[found.ranking[0]]
    if best is None:
        return []
    met = ((i, bounds[i]) for i in found.ranking[1:])
    return [found.label(i) for i, own in met if own and own[0] <= best[1] and best[0] <= own[1]]


def compared_parts(found: Comparison, trusted: Trusted) -> list[Any]:
    """A comparison for people: the table, in two where names of rows are long, then reasons."""
    header, rows = compared_cells(found, trusted)
    tables = [_table(header, rows)]
    if len(row_names(found)) > 1:
        last = header.index("J/Mtok") - (found.phase != "train")
        numbered = [(str(i), row) for i, row in enumerate(rows, 1)]
        tables = [
            _table(["", *header[part]], [[number, *row[part]] for number, row in numbered])
            for part in (slice(last), slice(last, None))
        ]
    reasons = [words(f"- {line}") for line in reason_lines(found, trusted)]
    title = [titled(question_text(found), tables[0]), *tables[1:]]
    return [*title, words(remark_text(found, trusted), "dim"), *reasons]


def _table(header: list[str], rows: list[list[str]]) -> Any:
    side = {name: "<" if name in WORD_COLUMNS else ">" for name in header} | {"plan": ""}
    return rows_table([f"{side[label]}{label}~" for label in header], rows)


def draw_compared(found: Comparison, trusted: Trusted, path: Path) -> Path:
    """Bars of each row, with intervals of like cases measured; rows without an answer are named."""
    panels = metric_panels(found)
    labels = [found.label(i) + ("" if row.answer else " (no answer)") for i, row in enumerate(found.rows)]
    count = max(len(panels), 1)
    size = (1.2 + 2.7 * count, 1.1 + 0.36 * len(labels))
    with picture(path, size, 1, count, sharey=True, squeeze=False) as (_, axes):
        for place, (axis, (name, values)) in enumerate(zip(axes[0], panels.items(), strict=False)):
            drawn = np.where(np.isfinite(values), values, 0.0)
            axis.barh(range(len(labels)), drawn, color=colour_of(place), height=0.62)
            for at, span in enumerate(spans_of(name, trusted)):
                if span is not None:
                    axis.plot(span, [at, at], "|-", color="#333", linewidth=1.2)
            axis.set_title(TITLES[name])
            axis.grid(axis="y", visible=False)
            axis.ticklabel_format(axis="x", style="plain")
            axis.tick_params(axis="x", labelrotation=30 if COMPARED_UNITS[name] != "s" else 0)
        axes[0][0].set_yticks(range(len(labels)), labels)
        axes[0][0].invert_yaxis()
    return path


def metric_panels(found: Comparison) -> dict[str, list[float]]:
    """Metrics that are drawn, where any row has them: not a number in rows without an answer."""
    rows = [
        {} if row.answer is None else compared_metrics(row, row.answer, found.phase) for row in found.rows
    ]
    wanted = [n for n in TITLES if n in {*PHASES_OF[found.phase], "tokens_per_s", "cost_per_mtoken"}]
    panels = {name: [float(row.get(name, np.nan)) for row in rows] for name in wanted}
    return {name: values for name, values in panels.items() if np.isfinite(values).any()}


def spans_of(name: str, trusted: Trusted) -> list[tuple[float, float] | None]:
    """Where like cases measured would lie, row by row."""
    spans: list[tuple[float, float] | None] = []
    for trust in trusted:
        one = None if trust is None or name not in INTERVALS_OF else trust.every.get(name)
        bounds = None if one is None else one.bounds
        spans.append(None if bounds is None else (float(bounds[0]), float(bounds[1])))
    return spans


def comparison_report(found: Comparison, trusted: Trusted, path: Path) -> Path:
    """A comparison as a page that opens offline: bars, table, reasons, the factors behind them, sources."""
    header, rows = compared_cells(found, trusted)
    texts = [i for i, name in enumerate(header) if name in WORD_COLUMNS]
    best = found.ranking[0] if found.ranking else -1
    remarks = page.paragraphs(remark_text(found, trusted).splitlines(), "dim")
    every = (part for row in found.rows for part in (row.system.chip, row.system.fabric, row.engine))
    records: dict[str, Any] = {part.name: part for part in every}  # each once
    parts = [
        page.cards_html(_headline(found, trusted)) if found.ranking else "",
        _panels(found, trusted),
        page.section("Row by row", page.html_table(header, rows, texts, best), remarks),
        page.section("Why they differ", page.paragraphs(reason_lines(found, trusted)), _factors(found)),
        sources_html(records),
    ]
    return page.write_page(path, f"Strata: {found.means} side by side", parts, question_text(found))


def _headline(found: Comparison, trusted: Trusted) -> list[tuple[str, str, str]]:
    """The best by the goal, how much better than the next it is, and what it delivers."""
    first, *others = found.ranking
    row, told = found.rows[first], trusted[first]
    assert row.answer is not None
    value, bounds = row.answer.value(found.goal), None if told is None else told.bounds
    ends = " to ".join(goal_text(found, end) for end in bounds or ())
    rows = [
        (f"best by {found.means}", found.label(first), f"plan {row.answer.plan}, batch {row.answer.batch:g}"),
        (found.means, goal_text(found, value), f"of like cases measured: {ends}" if ends else ""),
    ]
    if others and (second := found.rows[others[0]].answer) is not None:
        next_value = second.value(found.goal)
        if np.isfinite([value, next_value]).all() and value and next_value:
            ahead = max(value / next_value, next_value / value)
            rows.append(("ahead of the next", f"{ahead:.2f} x", found.label(others[0])))
    metrics = compared_metrics(row, row.answer, found.phase)
    wanted = ("tokens_per_s", "ttft", "tpot", "step_time", "cost_per_mtoken", "energy_per_mtoken")
    rows += [
        (COLUMNS[name][0], COLUMNS[name][1](metrics[name]), "")
        for name in wanted
        if name in metrics and np.isfinite(metrics[name]) and COLUMNS[name][0] != found.means
    ]
    return rows


def _panels(found: Comparison, trusted: Trusted) -> str:
    """Bars of each row, a panel a metric, with where like cases measured would lie."""
    wanted = [n for n in TITLES if n in {*PHASES_OF[found.phase], "tokens_per_s", "cost_per_mtoken"}]
    names = [found.label(i) for i in range(len(found.rows))]
    panels = []
    for name, values in metric_panels(found).items():
        texts = [COLUMNS[name][1](v) if np.isfinite(v) else "no answer" for v in values]
        colour = page.series_colour(wanted.index(name))
        rows = list(zip(names, values, texts, strict=True))
        bars = page.bars_html(rows, colour, spans_of(name, trusted))
        heading = TITLES[name].partition(" [")[0]
        panels.append(f"<div class='panel'>{page.section(heading, bars, level=3)}</div>")
    said = page.paragraphs(["Lines over bars: where 80 % of like cases measured would lie."], "dim")
    return page.section("Side by side", f"<div class='two'>{''.join(panels)}</div>", said) if panels else ""


def _factors(found: Comparison) -> str:
    """Every reason's factor of each row; their product is the ratio."""
    rows = [
        [found.label(i), r.what, r.bound, r.said, f"{r.factor:.4f}"]
        for i, row in enumerate(found.rows)
        if row.difference is not None and i != found.against
        for r in row.difference.reasons
        if abs(r.share) >= 5e-5
    ]
    if not rows:
        return ""
    table = page.html_table(["row", "stage", "bound by", "", "factor"], rows, (0, 1, 2, 3))
    return page.folded_html("All factors; their product is the ratio", table)
