"""Two saved results beside each other; a design with some fields changed beside the unchanged one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from strata.app.render.prediction import metric_label, metric_text, shown_metrics
from strata.app.render.tables import picked, table
from strata.errors import BadFile
from strata.mapping.plan import division_text
from strata.reading import json_file
from strata.units import show

if TYPE_CHECKING:
    from strata.search.what_if import WhatIf


def differences(first: Path, second: Path) -> list[dict[str, Any]]:
    """Every value that differs between two results saved with --json, by path; numbers with their ratio."""
    left, right = (_flat(_read(p)) for p in (first, second))
    both = ((path, left.get(path), right.get(path)) for path in dict.fromkeys([*left, *right]))
    return [
        {"path": path, "first": a, "second": b, "unit": _unit(path, left, right), "ratio": _ratio(a, b)}
        for path, a, b in both
        if a != b
    ]


def _ratio(first: Any, second: Any) -> float | None:
    numeric = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (first, second))
    return second / first if numeric and first else None


def _unit(path: str, *flat: dict[str, Any]) -> str | None:
    """The unit of a value, where the results say it."""
    owner, _, last = path.rpartition(".")
    if owner in ("resources_s", "kinds_s", "memory_B"):
        return owner.rpartition("_")[2]
    beside = f"{owner}.unit" if last == "value" else f"units.{last}" if owner == "metrics" else ""
    return next((str(f[beside]) for f in flat if beside in f), None)


def _read(path: Path) -> Any:
    try:
        data = json_file(path, "result file")
    except BadFile as error:
        raise BadFile(f"{error}; a result is a file made with strata predict ... --json") from None
    if not isinstance(data, dict) or "metrics" not in data:
        raise BadFile(f"{path.name} is not a result: make one with strata predict ... --json")
    return data


def _flat(node: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(node, dict):
        return {k: v for key, value in node.items() for k, v in _flat(value, f"{prefix}{key}.").items()}
    if isinstance(node, list):
        return {k: v for i, value in enumerate(node) for k, v in _flat(value, f"{prefix}{i}.").items()}
    return {prefix[:-1]: node}


def differences_table(rows: list[dict[str, Any]], first: str, second: str) -> Any:
    if not rows:
        return f"{first} and {second} are the same"
    cells = []
    for row in rows:
        shown = [_shown(row[side], row["unit"]) for side in ("first", "second")]
        cells.append((row["path"], *shown, f"{row['ratio']:.3f}" if row["ratio"] is not None else ""))
    head = ["what~", f"){first}~", f"){second}~", ">ratio"]
    return table(f"{len(rows)} difference{'s' if len(rows) > 1 else ''}", head, cells)


def _shown(value: Any, unit: str | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return show(value, unit, digits=4) if unit and unit != "1" else f"{value:.6g}"


def difference_dict(changed: WhatIf) -> dict[str, Any]:
    """What was set and what it does, for machines."""
    own, both = "before after ratio unit", (changed.before, changed.after)
    return {
        "set": {one.name: picked(one, own) for one in changed.fields},
        "plan": [division_text(r.plan) for r in both],
        "fits": [bool(r.fits) for r in both],
        "metrics": {one.name: picked(one, own) for one in changed.metrics},
        "notes": changed.notes,
    }


def difference_table(changed: WhatIf) -> Any:
    """What was set and what it does: before, after, and their ratio."""
    rows = []
    for one in changed.fields:
        sides = [_shown(value, one.unit) for value in (one.before, one.after)]
        rows.append((one.name, *sides, _ratio_text(one.ratio)))
    plans = [division_text(r.plan) for r in (changed.before, changed.after)]
    if plans[0] != plans[1]:
        rows.append(("plan, the best of each", *plans, ""))
    styles = ["dim"] * len(rows)
    shown = shown_metrics(changed.after.workload.phase, changed.after.metrics)
    known = {one.name: one for one in changed.metrics}
    for one in (known[name] for name in shown if name in known):
        sides = [metric_text(value, one.name) for value in (one.before, one.after)]
        rows.append((metric_label(one.name), *sides, _ratio_text(one.ratio)))
    below = list(changed.notes)
    if not changed.before.fits:
        below.append(f"the unchanged design is out: {'; '.join(i.what for i in changed.before.infeasible)}")
    title = "Against the unchanged design"
    return table(title, "<|>before|>after|>ratio", rows, "\n".join(below), styles)


def _ratio_text(ratio: float | None) -> str:
    return "" if ratio is None else f"x{ratio:.3f}"
