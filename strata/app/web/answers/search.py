"""Search: spaces to choose from or to build, studies in the folder, points of a study as designs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from strata.app.render.catalogue import catalogue
from strata.app.render.prediction import metric_label
from strata.app.render.tables import picked
from strata.app.web.answers import FieldPath, Name, NameOrNone, Text, WebQuestion, answers
from strata.app.web.answers.what_if import work_asked
from strata.base.errors import BadFile, StrataError, require
from strata.search.goal import GOAL_METRICS, POINT_METRICS, Goal, metric_column
from strata.search.goal import goal as make_goal
from strata.search.points import point_design
from strata.search.samplers import sampler_names
from strata.search.space import Space, space_of_spec
from strata.search.space import space as make_space
from strata.search.store import Store
from strata.search.what_if import Question

StudyName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=60)]
AxisName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=40)]
Choice = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9 .,;=+*&|()<>!/%µ_-]+$", max_length=60)]
Metric = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$", max_length=40)]
LimitText = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9_]+ *(<=|>=) *[A-Za-z0-9 .+/%µ-]+$", max_length=60)
]
When = Annotated[int, Field(ge=0, le=2**53)]  # by the page's clock: a folder changes between equal questions
SHOWN_CHOICES = 40  # of an axis
# a point's number as text: those of large spaces are more than a page's numbers hold
Point = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,18}$")]
BUILT = "built"  # name of a space that is stated in the page


class BuiltAxis(WebQuestion):
    """An axis: values of a field with their units, multiples of what it is, a range, or every legal plan."""

    name: AxisName
    field: FieldPath | Literal["plan"] = "plan"
    kind: Literal["values", "times", "range", "plans"] = "values"
    choices: list[Choice] = Field(default_factory=list, max_length=64)


class BuiltSpace(WebQuestion):
    """A space stated in the page: a question, and axes."""

    model: Name = "llama-3-70b"
    system: Name = "8xh200"
    engine: Name = "ideal"
    phase: Literal["prefill", "decode", "serve", "train"] = "decode"
    batch: int = Field(16, ge=1, le=10**6)
    input: int = Field(2048, ge=1, le=10**6)
    output: int = Field(512, ge=1, le=10**6)
    weights: NameOrNone = ""
    kv: NameOrNone = ""
    plan: Text = ""
    axes: list[BuiltAxis] = Field(default_factory=list, max_length=8)


class SpaceAsked(WebQuestion):
    """A shipped space by name with some choices kept, or one that is built."""

    space: NameOrNone = "next-node"
    keep: dict[AxisName, list[Choice]] = Field(default_factory=dict, max_length=20)
    built: BuiltSpace | None = None


class StudiesAsked(WebQuestion):
    """When it is asked."""

    at: When = 0


class StudyAsked(StudiesAsked):
    """A study of the folder."""

    study: StudyName


class PointsAsked(WebQuestion):
    """Points of a study by their numbers, and systems to hold beside them."""

    study: StudyName
    points: list[Point] = Field(default_factory=list, max_length=4)
    like: Point = "0"  # the point whose sizes named systems get
    systems: list[Name] = Field(default_factory=list, max_length=4)
    at: When = 0


@answers("search/choices")
def search_choices(_: dict[str, Any]) -> dict[str, Any]:
    """Spaces, samplers and metrics."""
    return {
        "spaces": catalogue("spaces")["spaces"],
        "samplers": sampler_names(),
        "metrics": {
            name: {
                "label": metric_label(name),
                "unit": m.unit,
                "better": "more" if m.higher_is_better else "less",
                "phases": m.phases,
            }
            for name, m in GOAL_METRICS.items()
        },
    }


def space_asked(question: dict[str, Any]) -> Space:
    """The space of a question."""
    built = question.get("built")
    if built is None:
        require(bool(question["space"]), "name a space, or build one")
        return make_space(question["space"], **question["keep"])
    require(not question["keep"], "a space that is built has the choices it states: leave out keep")
    axes = [_axis_table(axis) for axis in built["axes"]]
    require(bool(axes), "a space needs an axis: choose a number and what it may be")
    asked = {k: v for k, v in built.items() if k != "axes" and v != ""}
    table = {"name": BUILT, "title": f"{built['model']} on {built['system']}"}
    return space_of_spec({"table": {**table, "question": asked, "axis": axes}})


def _axis_table(axis: dict[str, Any]) -> dict[str, Any]:
    """An axis as a space's file has it."""
    made: dict[str, Any] = {"name": axis["name"], "source": "given in the page"}
    texts = [text.strip() for text in axis["choices"] if text.strip()]
    if axis["kind"] == "plans":
        return made | {"plans": {"where": texts[0]} if texts else {}}
    require(bool(texts), f"axis {axis['name']} has no choices")
    bare = [text.removeprefix("x") for text in texts] if axis["kind"] == "times" else texts
    return made | {"field": axis["field"], axis["kind"]: [_number(text) for text in bare]}


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


@answers("search/space", SpaceAsked)
def space_told(question: dict[str, Any]) -> dict[str, Any]:
    """A space: its axes and size."""
    found = space_asked(question)
    return {
        **picked(found, "name title note size"),
        "question": picked(found.scenario, "model system engine phase batch input output plan"),
        "axes": [
            {
                **picked(axis, "name kind"),
                "fields": list(axis.fields[:6]),
                **picked(axis, "unit source"),
                "count": len(axis),
                "choices": list(axis.labels[:SHOWN_CHOICES]),
            }
            for axis in found.axes
        ],
        "constraints": [picked(c, "keep why") for c in found.constraints],
    }


def manifest_of(name: str) -> dict[str, Any]:
    """What a study of the folder was started with."""
    require(known_study(name), "there is no such study in the folder", study=name)
    found = Store(name).manifest
    whole = isinstance(found.get("goal"), dict) and isinstance(found["space"].get("spec"), dict)
    if not whole:
        raise BadFile(f"study {name} has no goal or no space in its manifest")
    return found


def study_parts(name: str) -> tuple[Space, Goal, dict[str, Any]]:
    """Space, goal and manifest of a study of the folder."""
    manifest = manifest_of(name)
    try:
        return space_of_spec(manifest["space"]["spec"]), make_goal(**manifest["goal"]), manifest
    except (KeyError, TypeError, AttributeError) as error:
        raise BadFile(f"the manifest of study {name} cannot be read: {error}") from None


@answers("search/studies", StudiesAsked)
def studies_kept(_: dict[str, Any]) -> dict[str, Any]:
    """Studies in the server's folder."""
    found: list[dict[str, Any]] = []
    folders = [p for p in Path().iterdir() if known_study(p.name) and not p.name.startswith(".")]
    for path in sorted(folders, key=lambda p: -p.stat().st_mtime)[:200]:
        try:
            manifest = manifest_of(path.name)
        except StrataError:
            continue
        row: dict[str, Any] = {"name": path.name, "space": str(manifest["space"].get("name", ""))}
        for key, of in (("goal", "metrics"), ("limits", "limits")):
            row[key] = [str(m) for m in manifest["goal"].get(of, [])]
        row |= {"sampler": str(manifest.get("sampler", "")), "rounds": len(Store(path.name).rounds())}
        found.append(row | {"moved": path.stat().st_mtime})
    return {"studies": found}


@answers("search/designs", PointsAsked)
def point_designs(question: dict[str, Any]) -> dict[str, Any]:
    """Points of a study as designs, and named systems at the same question."""
    asked = PointsAsked(**question)
    space, goal, _ = study_parts(asked.study)
    numbers = [int(text) for text in (*asked.points, asked.like)]
    require(max(numbers) < space.size, "a point's number is below the size of its space", size=space.size)
    *found, base = (point_design(space, space.digits(index)[0]) for index in numbers)
    named = [_named(system, base, goal) for system in asked.systems]
    return {"designs": found, "named": named}


def _named(system: str, like: dict[str, Any], goal: Goal) -> dict[str, Any]:
    """A named system under its best plan, at the sizes of a design."""
    design = {**like, "system": system, "plan": "", "fabric": "", "set": {}}
    named = {key: like[key] for key in ("model", "engine", "weights", "kv")}
    asked = Question(system=system, **named, work=work_asked(like))
    out = {"system": system, "design": design, "metrics": {}}
    try:
        result, _ = asked.answer()
    except StrataError as error:
        return out | {"why": str(error)}
    if not result.fits:
        return out | {"why": "does not fit"}
    columns: dict[str, Any] = {n: getattr(result.metrics, n, float("nan")) for n in POINT_METRICS}
    columns["die_area"] = result.system.chip.package.die_area
    metrics = {}
    for name in GOAL_METRICS:
        try:
            metrics[name] = float(metric_column(columns, name))
        except (TypeError, ZeroDivisionError):
            continue
    return out | {"metrics": metrics, "why": "", "goal": list(goal.metrics)}


def known_study(name: str) -> bool:
    """Whether the folder has a study of that name."""
    return (Path(name) / "manifest.json").is_file()
