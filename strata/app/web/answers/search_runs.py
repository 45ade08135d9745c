"""Search, running: a study in the server's folder, round by round, and what a study found."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from strata.app.render.prediction import shown_metrics
from strata.app.render.search import why_no_design
from strata.app.render.search_figures import Trait, importance, relative_worths, trade_metrics, traits_of
from strata.app.render.tables import picked
from strata.app.terminal import plain_json
from strata.app.web.answers import Name, Tell, answers, search
from strata.base.errors import BadValue
from strata.base.units import show
from strata.search.axes import DesignAxis
from strata.search.goal import GOAL_METRICS, Goal, metric_column
from strata.search.outcome import SearchOutcome
from strata.search.points import Evaluated, concatenate_points
from strata.search.run import Search
from strata.search.space import Space
from strata.search.store import Store, write_atomically

HISTORY = "progress.json"  # beside a study's manifest: how it came here
BETWEEN = 0.3  # s between two reports
FRONTIER, CLOUD = 150, 1200  # points that are drawn
MOST_ROWS = 400_000  # of a study that is opened
MAPS, MAP_CHOICES = 15, 40  # heat maps, and choices of their axes


class StudyStart(search.SpaceAsked):
    """A study to start, or to go on with."""

    study: search.StudyName
    goal: list[search.Metric] = Field(default=["tokens_per_s"], min_length=1, max_length=4)
    limits: list[search.LimitText] = Field(default_factory=list, max_length=8)
    sampler: Name = "exact"
    budget: int | None = Field(default=None, ge=1, le=500_000)
    gap: float | None = Field(default=None, ge=0, le=1)
    seed: int = Field(0, ge=0, le=10**6)
    resume: bool = False


@answers("search/run", StudyStart, job=True, kept=True)
def searched_study(asked: dict[str, Any], tell: Tell) -> dict[str, Any]:
    """Start a study in the folder, or resume it. Whoever cancels keeps what was stored."""
    searching, old = _resumed(asked["study"]) if asked["resume"] else (_begun(asked), [])
    space, goal = searching.space, searching.goal
    tell({"study": asked["study"], "size": space.size, "goal": goal.words(), **_axes_told(space, goal)})
    history, before = list(old), float(old[-1]["seconds"]) if old else 0.0
    last, seen = 0.0, b""
    for progress in searching.rounds():
        row = plain_json({**vars(progress), "seconds": progress.seconds + before})  # with earlier runs
        history.append(row)
        if time.monotonic() - last < BETWEEN:
            continue
        last = time.monotonic()
        outcome = searching.outcome()
        now = outcome.frontier.digits.tobytes()
        moved = {"frontier": frontier_rows(outcome)} if now != seen else {}
        seen = now
        tell({"progress": row, **moved})
        _keep_history(asked["study"], history, "stopped")
    outcome = searching.outcome()
    _keep_history(asked["study"], history, outcome.ended)
    return found_told(asked["study"], outcome, outcome.evaluated(), history)


def _begun(asked: dict[str, Any]) -> Search:
    if search.known_study(name := asked["study"]):
        raise BadValue(f"the folder has a study {name} already; resume it, or choose another name")
    names = ("limits", "sampler", "budget", "gap", "seed")
    how = {n: asked[n] for n in names}
    return Search(search.space_asked(asked), asked["goal"], out=asked["study"], **how)


def _resumed(study: str) -> tuple[Search, list[dict[str, Any]]]:
    """A study of the folder as it was started."""
    space, goal, manifest = search.study_parts(study)
    names = ("sampler", "budget", "gap", "seed")
    asked = {n: manifest[n] for n in names if manifest.get(n) is not None}
    return Search(space, goal, out=study, resume=True, **asked), history_of(study)["rows"]


def _keep_history(study: str, rows: list[dict[str, Any]], ended: str) -> None:
    """How the study came here, thinned, beside its manifest."""
    by = max(1, len(rows) // 400)
    kept = [*rows[::by], *([rows[-1]] if rows and (len(rows) - 1) % by else [])]
    text = json.dumps({"rows": kept, "ended": ended}, separators=(",", ":")).encode()
    write_atomically(Path(study) / HISTORY, lambda file: file.write(text))


def history_of(study: str) -> dict[str, Any]:
    """How a study came here; empty where it was started elsewhere."""
    found: dict[str, Any] = {"rows": [], "ended": ""}
    with suppress(OSError, ValueError):
        read = json.loads((Path(study) / HISTORY).read_text(encoding="utf-8"))
        rows = [r for r in read["rows"] if isinstance(r, dict) and isinstance(r.get("seconds"), int | float)]
        found = {"rows": rows, "ended": str(read.get("ended", ""))}
    return found


@answers("search/open", search.StudyAsked)
def opened_study(question: dict[str, Any]) -> dict[str, Any]:
    """What a study of the folder has found so far."""
    name = question["study"]
    space, goal, _ = search.study_parts(name)
    store, history = Store(name), history_of(name)
    parts: list[Evaluated] = []
    for number in store.rounds():
        parts.append(store.read(number, space))
        if sum(map(len, parts)) > MOST_ROWS:
            break
    last = history["rows"][-1] if history["rows"] else {}
    none = Evaluated(np.empty((0, len(space.axes)), int), {}, np.empty(0, int))
    every = concatenate_points(parts) if parts else none
    order = np.flatnonzero(goal.frontier(every)) if len(every) else np.empty(0, int)
    order = order[np.argsort(-goal.scores(every)[order, 0], kind="stable")] if len(order) else order
    counts = Counter(str(words) for words in goal.reasons(every) if words) if len(every) else Counter()
    numbers: dict[str, Any] = {"seconds": 0.0, "bound": float("nan"), "gap": float("nan")}
    numbers |= {key: float(last[key]) for key in numbers if last.get(key) is not None}
    outcome = SearchOutcome(
        space=space,
        goal=goal,
        frontier=every.take(order) if len(every) else none,
        rows=len(every),
        counts=dict(counts.most_common()),
        rounds=len(store.rounds()),
        ended=history["ended"] or "started elsewhere",
        out=Path(name),
        **numbers,
    )
    return found_told(name, outcome, every, history["rows"])


def _metrics_of(space: Space, goal: Goal) -> list[str]:
    """Metrics worth a column: the goal's, its limits', then what its phase has."""
    usual = [m for m in shown_metrics(space.scenario.phase) if m in GOAL_METRICS]
    trade = trade_metrics(goal)
    listed = dict.fromkeys([*goal.metrics, *goal.limits, *trade, *usual, "device_power", "temperature"])
    return list(listed)[:14]


def _axes_told(space: Space, goal: Goal) -> dict[str, Any]:
    return {
        "metrics": _metrics_of(space, goal),
        "goals": list(goal.metrics),
        "trade": list(trade_metrics(goal)),
        "axes": [{"name": a.name, "kind": a.kind, "fields": list(a.fields[:6])} for a in space.axes],
    }


def axis_choice_text(axis: DesignAxis, label: str) -> str:
    """A choice as people read it: bare numbers of a range get their unit, multiples their cross."""
    if axis.kind == "times":
        return f"x {label}"
    if axis.kind != "number" or axis.unit == "1":
        return label
    try:
        return show(float(label), axis.unit)
    except ValueError:
        return label


def frontier_rows(outcome: SearchOutcome) -> list[dict[str, Any]]:
    """Points that no other beats: number, choices and metrics."""
    if not outcome.found:
        return []
    axes = {axis.name: axis for axis in outcome.space.axes}
    places = np.unique(np.rint(np.linspace(0, len(outcome.frontier) - 1, FRONTIER)).astype(int))
    found = [outcome.point(int(i)) for i in places]
    for point in found:
        point["index"] = str(point["index"])
        point["design"] = {k: axis_choice_text(axes[k], v) for k, v in point["design"].items()}
    return found


def found_told(
    study: str, outcome: SearchOutcome, every: Evaluated, history: list[dict[str, Any]]
) -> dict[str, Any]:
    """A study for the page: its frontier, a cloud of its points, what matters, heat maps, why points are
    out.
    """
    space, goal = outcome.space, outcome.goal
    told = {
        "study": study,
        "space": space.name,
        "title": space.title or space.name,
        "size": space.size,
        "words": goal.words(),
        "manifest": {k: search.manifest_of(study).get(k) for k in ("sampler", "budget", "gap", "seed")},
        **picked(outcome, "rows rounds ended bound gap seconds notes"),
        "why_none": "" if outcome.found else why_no_design(outcome),
        "out": [{"why": k, "points": a, "alone": b} for k, (a, b) in list(outcome.reasons.items())[:12]],
        "frontier": frontier_rows(outcome),
        "history": history,
        **_axes_told(space, goal),
    }
    return told | (points_told(outcome, every) if len(every) else {"points": None, "maps": [], "matters": []})


def points_told(outcome: SearchOutcome, every: Evaluated) -> dict[str, Any]:
    """The frontier, the best and some of the rest, column by column, and what tells them apart."""
    space, goal = outcome.space, outcome.goal
    worth = relative_worths(goal, every)
    on = np.flatnonzero(goal.frontier(every))[:FRONTIER]
    best = np.argsort(-worth, kind="stable")[: CLOUD // 2]
    rest = np.unique(np.linspace(0, len(every) - 1, CLOUD // 2).astype(int))
    chosen = np.array(list(dict.fromkeys([*on.tolist(), *best.tolist(), *rest.tolist()])), int)
    some = every.take(chosen)
    traits = traits_of(space, some.digits)
    whole = {t.name: importance(t, worth) for t in traits_of(space, every.digits)}
    matters = sorted(whole.items(), key=lambda pair: -pair[1])
    rank = {name: i for i, (name, _) in enumerate(matters)}
    axes = {axis.name: axis for axis in space.axes}
    points = {
        "index": [str(i) for i in space.index(some.digits)],
        "in": goal.feasible(some).tolist(),
        "frontier": np.isin(chosen, on).tolist(),
        "worth": [round(float(w), 5) for w in worth[chosen]],
        "metrics": {n: np.asarray(metric_column(some.columns, n), float) for n in _metrics_of(space, goal)},
        "traits": [
            {"name": t.name, "labels": _labels(axes, t), "of": t.of.tolist()}
            for t in sorted(traits, key=lambda t: rank.get(t.name, 99))[:16]
        ],
    }
    return {
        "points": points,
        "matters": [{"name": name, "share": max(share, 0.0)} for name, share in matters[:16]],
        "maps": heat_maps(space, goal, every, rank),
    }


def _labels(axes: dict[str, DesignAxis], trait: Trait) -> list[str]:
    axis = axes.get(trait.name)  # a degree of a plan is no axis of its own
    if axis is None or axis.kind == "times":  # multiples have their cross already
        return list(trait.labels)
    return [axis_choice_text(axis, text) for text in trait.labels]


def heat_maps(space: Space, goal: Goal, every: Evaluated, rank: dict[str, int]) -> list[dict[str, Any]]:
    """The best of the first metric for each two choices of two numeric axes."""
    scores = goal.scores(every)[:, 0]
    some = [i for i, a in enumerate(space.axes) if a.ordered and 1 < len(a) <= MAP_CHOICES]
    numeric = [i for i in some if len(np.unique(every.digits[:, i])) > 1]
    numeric.sort(key=lambda i: rank.get(space.axes[i].name, 99))
    maps: list[dict[str, Any]] = []
    for i, j in [(i, j) for k, j in enumerate(numeric) for i in numeric[:k]][:MAPS]:
        along, up = space.axes[i], space.axes[j]
        grid = np.full((len(up), len(along)), -np.inf)
        np.maximum.at(grid, (every.digits[:, j], every.digits[:, i]), scores)
        labels = {
            f"{k}_labels": [axis_choice_text(a, v) for v in a.labels] for k, a in (("x", along), ("y", up))
        }
        best = [[goal.value(v) for v in row] for row in grid.tolist()]
        maps.append({"x": along.name, "y": up.name, **labels, "best": best})
    return maps
