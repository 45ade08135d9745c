"""Every number behind a design: what it is now and as shipped, its unit, source and mark; and what it does
over a range.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from strata.app.commands.options import with_price
from strata.app.render.prediction import finite, metric_label, metric_text, shown_metrics
from strata.app.render.sweep import best_line, sweep_remarks
from strata.app.render.tables import picked
from strata.app.web.answers import FieldPath, NameOrNone, answers
from strata.app.web.answers.what_if import Design, changes, question_of
from strata.base.errors import StrataError
from strata.base.units import show
from strata.hardware.derive import is_derived
from strata.hardware.money import economics
from strata.hardware.system import System
from strata.params import MARKS, leaf_paths, stated
from strata.pricing.metrics import METRICS
from strata.search.fields import SIZES
from strata.search.sweep import sweep
from strata.software.engine import Engine

Number = Annotated[float, Field(ge=-1e30, le=1e30, allow_inf_nan=False)]


class SweptDesign(Design):
    """A design, one number of it that varies, and what is looked at."""

    path: FieldPath = "batch"
    values: list[Number] = Field(default=[1.0], min_length=1, max_length=33)
    metric: NameOrNone = ""  # the phase's own where empty
    plans: Literal["each", "same"] = "each"  # the best for each value, or one for all


@answers("numbers", Design)
def numbers(design: dict[str, Any]) -> dict[str, Any]:
    """Every number behind a design, with its source."""
    asked = question_of(design)
    shipped = asked.inputs()
    refused = ""
    try:
        now = asked.inputs(changes(design))
    except StrataError as error:  # told beside the numbers, which stay as shipped
        now, refused = shipped, str(error)
    records = [_records(system, engine) for system, _, engine in (shipped, now)]
    told = {
        owner: {"name": record.name, "numbers": _stated(owner, record, records[1][owner])}
        for owner, record in records[0].items()
    }
    return {"owners": told, "marks": MARKS, "refused": refused}


def _records(system: System, engine: Engine) -> dict[str, Any]:
    """What has numbers, by what `--set` calls it."""
    money = system.economics or economics()
    return {"chip": system.chip, "fabric": system.fabric, "engine": engine, "economics": money}


def _stated(owner: str, shipped: Any, now: Any) -> list[dict[str, Any]]:
    """The numbers of one record."""
    described, moved = leaf_paths(shipped), stated(now)
    found = []
    for path, p in stated(shipped).items():
        value, new = finite(p.value), moved.get(path, p)
        row = {"path": f"{owner}.{path}", "shipped": value, "value": finite(new.value)}
        row |= {"text": show(float(p.value), p.unit), **picked(p, "unit mark source")}
        row |= {"says": described.get(path, {}).get("doc", "")}
        row |= {"follows": owner == "chip" and is_derived(shipped, path)}
        whole = p.unit == "1" and value is not None and value >= 2 and value == int(value)
        found.append(row | {"whole": whole})
    return found


@answers("sweep", SweptDesign)
def swept(asked: dict[str, Any]) -> dict[str, Any]:
    """What one number does over a range."""
    path, unit = asked["path"], _unit(asked)
    listed = ",".join(f"{v:.12g}" for v in dict.fromkeys(asked["values"]))
    axis = f"{path}={listed}{'' if unit == '1' else f' {unit}'}"
    names: dict[str, Any] = {k: asked[k] for k in ("engine", "weights", "kv", "fabric", "phase", "metric")}
    sizes: dict[str, Any] = {k: float(asked[k]) for k in ("batch", "input", "output")}
    kept = [item for item in changes(asked) if not item.startswith(f"{path}=")]
    kept = with_price(kept, asked["price"].strip(), "price")
    plan = asked["plan"] or ("best" if asked["plans"] == "each" else "")
    try:
        found = sweep(asked["system"], asked["model"], [axis], **sizes, **names, plan=plan, changes=kept)
    except StrataError:
        if plan != "best":
            raise
        # programs other than language models have no plans to rank: one division for all
        found = sweep(asked["system"], asked["model"], [axis], **sizes, **names, changes=kept)
    fits, binds = found.fits, found.of(lambda r: r.bound_by)
    metrics = shown_metrics(found.groups[0].result.workload.phase, found.groups[0].result.metrics)
    at, points = found.best_index, list(zip(found.values, fits, strict=True))
    return {
        "question": found.question,
        "path": path,
        "unit": unit,
        "values": found.axes[0].values.tolist(),
        "labels": found.axes[0].labels,
        "metric": found.metric,
        "metrics": [{"name": name, "label": metric_label(name)} for name in metrics],
        **picked(METRICS[found.metric], "better metric_unit=unit"),
        "results": [float(v) if ok else None for v, ok in points],
        "texts": [metric_text(v, found.metric) if ok else "" for v, ok in points],
        "binds": np.where(fits, binds, "").tolist(),
        "plans": [found.plan_of((i,)) if ok else "" for i, ok in enumerate(fits)],
        "best": None if at is None else at[0],
        "best_text": "".join(best_line(found)),
        "remarks": sweep_remarks(found),
    }


def _unit(asked: dict[str, Any]) -> str:
    """The unit of what varies; a path that is not known is left to the sweep, which says so."""
    if asked["path"] in SIZES:
        return "1"
    system, _, engine = question_of(asked).inputs(changes(asked))
    owner, _, path = asked["path"].partition(".")
    record = _records(system, engine).get(owner)
    return str(leaf_paths(record).get(path, {}).get("unit", "1")) if record is not None else "1"
