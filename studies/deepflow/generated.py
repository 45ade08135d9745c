"""Sweeps of generated chips: technology, memory, links, budgets and the program varied at once, on a system
of such chips; the division as told, or the best for each point.

Numbers are axes of one box; words (names of technologies, devices, links, budgets, templates, plans) are
taken in turn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from deepflow.device_mapping import in_every_mesh_order
from deepflow.generated_readings import faster_parts, generated_readings, numbers_of, with_chip_numbers
from strata.base.errors import UnknownName, require
from strata.evaluate import evaluate
from strata.hardware.components import LinkPhy, MemoryDevice
from strata.hardware.fabric import Fabric, sized
from strata.hardware.generate.budget import Budget
from strata.hardware.generate.made import component_names
from strata.hardware.generate.recipe import Generation, generation
from strata.hardware.generate.template import Template
from strata.hardware.system import System, system
from strata.hardware.technology import Technology
from strata.mapping.kernel_parallel import by_structure, layout_of, strategy_text
from strata.mapping.plan import division, division_text
from strata.mapping.plans import candidate_plans, plan_at
from strata.params import leaf_paths
from strata.pricing.metrics import METRICS
from strata.result import Result
from strata.search.fields import changed_fabric, fabric_path, parse_setting
from strata.search.plans import candidate_strategies
from strata.search.sweep_axes import SweepAxis, parse_axis
from strata.search.swept import BEST
from strata.software.engine import Engine, as_engine
from strata.workload.program import program as make_program
from strata.workload.protocol import member
from strata.workload.tasks import Workload

WORDS = ("technology", "budget", "template", "device", "plan")  # axes of names, with links.NETWORK
PARTS = ("budget", "template", "technology", "device")  # whose numbers the generator takes
GENERATED_AXES = (
    "technology=n5,n3, device=hbm3e,hbm4, links.inter=nvlink4,nvlink5, plan=d512,RC-8-8-d8, sizes.intra=1,4, "
    "budget.power='100:500:5 W', model.hidden=..., batch=..."
)
MORE = 1.01  # how much faster a part is made to see what its speed is worth


@dataclass(frozen=True, eq=False, kw_only=True)
class GeneratedSweep:
    """A box of systems of generated chips: its axes and, over them, what was found.

    `values` holds arrays over the axes by name: every metric, `fits`, `reason`, `bound_by`, `plan`, shares of
    the step's time by what it is credited to (`share_compute`, `share_cache`, `share_memory`,
    `share_network`, `share_overhead`), readings of the chip, and with `gains` what a faster part is worth.
    """

    axes: list[SweepAxis]
    values: dict[str, np.ndarray]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(a.values) for a in self.axes)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.values:
            raise UnknownName("quantity of this sweep", name, self.values, ", ".join(sorted(self.values)))
        return self.values[name]


@dataclass(frozen=True, kw_only=True)
class _Question:
    """What is asked of every point, before words are chosen."""

    chosen: dict[str, Any]  # technology, budget, template, device, plan, links.NETWORK, sizes.DIMENSION
    program: Any
    workload: Workload
    devices: int
    engine: Engine
    metric: str
    where: str
    orders: bool
    gains: bool
    fixed: tuple[tuple[str, str], ...]  # numbers changed for all points
    numbers: tuple[SweepAxis, ...] = ()


def sweep_generated(
    technology: str | Technology,
    budget: str | Budget,
    template: str | Template,
    program: Any,
    *,
    workload: Workload,
    device: str | MemoryDevice | None = None,
    links: Mapping[str, str | LinkPhy] | None = None,
    devices: int = 512,
    sizes: Mapping[str, int] | None = None,
    plan: Any = BEST,
    vary: Sequence[str] = (),
    changes: Sequence[str] = (),
    engine: Engine | str = "ideal",
    metric: str = "step_time",
    where: str = "",
    orders: bool = False,
    gains: bool = False,
) -> GeneratedSweep:
    """Evaluate a program on a system of generated chips over everything that varies.

    The system is `devices` chips on the fabric that the template's networks make: `sizes` are those of its
    inner dimensions by name (1 where left out), the outermost takes the rest. `changes` are numbers set for
    all points (``budget.power=500 W``); `chip.` and `fabric.` ones go over what was generated. `plan` is a
    strategy or plan, or the best at each point by `metric`, of those that meet `where`, with `orders`
    in every order of its dimensions on the fabric. `gains` adds, for
    every part of the chip, by how many percent the step gets shorter when it gets one percent faster.

    >>> import strata as st
    >>> found = sweep_generated("deepflow-v100", "deepflow-v100", "deepflow-2021", "lstm-lm-v100",
    ...                         workload=st.train(64.0, 1.0), devices=8, plan="d8",
    ...                         vary=["device=deepflow-hbm2,deepflow-hbm4", "budget.power=200:300:3 W"])
    >>> found.shape, bool((found["step_time"][1] <= found["step_time"][0]).all())
    ((2, 3), True)
    """
    if metric not in METRICS:
        raise UnknownName("metric", metric, METRICS, ", ".join(METRICS))
    code = make_program(program) if isinstance(program, str) else program
    chosen: dict[str, Any] = {"technology": technology, "budget": budget, "template": template}
    chosen |= {"device": device, "plan": plan}
    chosen |= {f"links.{name}": link for name, link in (links or {}).items()}
    chosen |= {f"sizes.{name}": str(size) for name, size in (sizes or {}).items()}
    asked = _Question(
        chosen=chosen,
        program=code,
        workload=workload,
        devices=devices,
        engine=as_engine(engine),
        metric=metric,
        where=where,
        orders=orders,
        gains=gains,
        fixed=tuple(parse_setting(text) for text in changes),
    )
    axes = _axes(vary, asked)
    return GeneratedSweep(axes=axes, values=_found(asked, axes))


def _found(asked: _Question, axes: list[SweepAxis]) -> dict[str, np.ndarray]:
    """Everything found over the axes: a box of the numbers for each choice of words."""
    words = [axis for axis in axes if axis.values.dtype.kind == "U"]
    numbers = tuple(axis for axis in axes if axis not in words)
    names = [axis.name for axis in words]
    boxes = []
    for chosen in itertools.product(*(axis.values.tolist() for axis in words)):
        named = asked.chosen | dict(zip(names, chosen, strict=True))
        boxes.append(_box(replace(asked, numbers=numbers, chosen=named)))
    return _joined(boxes, axes, words)


def _joined(
    found: list[dict[str, np.ndarray]], axes: list[SweepAxis], words: list[SweepAxis]
) -> dict[str, np.ndarray]:
    """Boxes of each choice of words as one, axes in the order they were told."""
    order = [axes.index(a) for a in [*words, *(a for a in axes if a not in words)]]
    back = np.argsort(order)
    values = {}
    # what only some chips have (a level, a network) is not a number at the others
    for name in dict.fromkeys(key for box in found for key in box):
        shape = tuple(len(a.values) for a in axes if a not in words)
        nothing = np.full(shape, np.nan)
        stacked = np.stack([box.get(name, nothing) for box in found])
        values[name] = stacked.reshape([len(axes[i].values) for i in order]).transpose(back)
    return values


def is_word_axis(name: str) -> bool:
    """Whether an axis chooses names and not numbers.

    >>> [is_word_axis(n) for n in ("technology", "links.inter", "sizes.intra", "budget.power")]
    [True, True, True, False]
    """
    return name in WORDS or name.startswith(("links.", "sizes."))


def _axes(vary: Sequence[str], asked: _Question) -> list[SweepAxis]:
    """What varies, each thing once."""
    axes, units = [], None
    for text in vary:
        name, _, listed = (part.strip() for part in text.partition("="))
        if is_word_axis(name):
            # modules of one strategy are joined by commas, so plans may be told apart by semicolons
            parted = [w.strip() for w in listed.split(";" if ";" in listed else ",") if w.strip()]
            require(bool(parted), f"an axis is written like {GENERATED_AXES}", vary=text)
            axes.append(SweepAxis(name=name, values=np.array(parted), labels=parted))
            if asked.chosen.get(name) in (None, ""):
                asked.chosen[name] = parted[0]
        else:
            units = units or _units(asked)
            axes.append(parse_axis(text, units, {}))
    names = [a.name for a in axes]
    twice = next((n for n in names if names.count(n) > 1), "")
    require(not twice, "each axis varies something else", vary=twice)
    return axes


def _units(asked: _Question) -> dict[str, str]:
    """Units of every number that may vary, at the first choice of words."""
    made = _generated(asked, {})
    units = {"batch": "1"}
    records = {name: getattr(made.made, name) for name in PARTS} | {"chip": made.chip}
    for owner, record in records.items():
        units |= {f"{owner}.{path}": meta["unit"] for path, meta in leaf_paths(record).items()}
    for share in ("area_share", "power_share", "perimeter_share"):
        units |= {f"budget.{share}.{name}": "1" for name in component_names(made.made.template)}
    for dimension in made.fabric.dimension if made.fabric else ():
        known = leaf_paths(dimension).items()
        units |= {f"fabric.{dimension.name}.{path}": meta["unit"] for path, meta in known}
    sizes = [f.name for f in fields(asked.program) if isinstance(getattr(asked.program, f.name), float)]
    return units | {f"model.{name}": "1" for name in sizes}


def _generated(asked: _Question, numbers: Mapping[str, Any]) -> Generation:
    """The chips of one choice of words, with the numbers that vary."""
    chosen = asked.chosen
    both = [*asked.fixed, *numbers.items()]
    own = {path: value for path, value in both if path.partition(".")[0] in PARTS}
    made = generation(
        chosen["technology"],
        chosen["budget"],
        chosen["template"],
        device=chosen["device"] or None,
        links=numbers_of("links", chosen),
        **own,
    )
    return with_chip_numbers(made, numbers_of("chip", both))


def generated_system(made: Generation, devices: int, sizes: Mapping[str, int] | None = None) -> System:
    """So many generated chips on the fabric that their networks make; the outermost network takes what the
    sizes of inner ones leave, of which those left out are 1.

    >>> made = generation("deepflow-v100", "deepflow-v100", "deepflow-2021")
    >>> [(d.name, d.size) for d in generated_system(made, 512).fabric.dimension]
    [('inter', 512.0)]
    """
    wanted = dict(sizes or {})
    joined = made.fabric
    if joined is None:
        require(devices == 1, "chips without networks make a system of one", devices=devices)
        return system(made.chip)
    known = [d.name for d in joined.dimension]
    inner = [wanted.pop(name, 1) for name in known[:-1]]
    rest = next((name for name, size in wanted.items() if size > 1), "")
    if rest:
        raise UnknownName("inner network with bandwidth", rest, known[:-1], ", ".join(known[:-1]) or "none")
    whole, left = divmod(devices, math.prod(inner))
    require(left == 0 and whole > 0, "inner networks divide the devices", devices=devices, inner=inner)
    return system(made.chip, sized(joined, (*map(float, inner), float(whole))))


def _box(asked: _Question) -> dict[str, np.ndarray]:
    """Everything found at one choice of words, over the numbers that vary."""
    best = isinstance(asked.chosen["plan"], str) and asked.chosen["plan"] == BEST
    rank = len(asked.numbers) + best
    shape = tuple(len(a.values) for a in asked.numbers)
    shaped = {
        a.name: a.values.reshape([-1 if i == j else 1 for j in range(rank)])
        for i, a in enumerate(asked.numbers)
    }
    made = _generated(asked, shaped)
    joined = _system(asked, made, shaped)
    work, code = asked.workload, asked.program
    if "batch" in shaped:
        work = replace(work, batch=shaped["batch"])
    own = numbers_of("model", [*asked.fixed, *shaped.items()])
    code = replace(code, **{k: float(v) if isinstance(v, str) else v for k, v in own.items()})
    divisions, texts = _divisions(asked, joined, code, work, best)
    results = [evaluate(joined, code, work, one, asked.engine) for one in divisions]
    box = _Box(results, shape, best, asked.metric)
    found = box.found() | {
        name: np.broadcast_to(np.asarray(value, float), (*shape, 1) if best else shape).reshape(shape)
        for name, value in generated_readings(made, joined).items()
    }
    found["plan"] = np.array(texts)[box.picked] if best else np.full(shape, texts[0])
    if asked.gains:
        for part, quicker in faster_parts(joined, MORE).items():
            again = [evaluate(quicker, code, work, one, asked.engine) for one in divisions]
            after = _Box(again, shape, best, asked.metric, box.picked).of(lambda r: r.metrics.step_time)
            with np.errstate(invalid="ignore"):
                found[f"gain_{part}"] = np.log(found["step_time"] / after) / math.log(MORE)
    return found


def _system(asked: _Question, made: Generation, numbers: Mapping[str, Any]) -> System:
    """The system of one choice of words, with numbers of its fabric as they are set and vary."""
    sizes = {name: int(size) for name, size in numbers_of("sizes", asked.chosen).items()}
    joined = generated_system(made, asked.devices, sizes)
    over = numbers_of("fabric", [*asked.fixed, *numbers.items()])
    return replace(joined, fabric=_changed(joined.fabric, over)) if over else joined


def _changed(fabric: Fabric, over: Mapping[str, Any]) -> Fabric:
    for path in over:
        if fabric_path(fabric, path) is None:
            known = [d.name for d in fabric.dimension]
            raise UnknownName("network with bandwidth", path.partition(".")[0], known, ", ".join(known))
    return changed_fabric(fabric, over)


def _divisions(
    asked: _Question, joined: System, code: Any, work: Workload, best: bool
) -> tuple[list[Any], list[str]]:
    """Plans to price, each a box's last axis where there is a choice, and how each is written."""
    plan = asked.chosen["plan"]
    if not best:
        told = division(code, plan)
        return [told], [plan if isinstance(plan, str) else division_text(told)]
    if member(code, "kernel_modules"):
        many = candidate_strategies(joined, code, asked.where)
        count = np.size(many.dp)
        made = [layout_of(part, code) for _, part in by_structure(many)]
        texts = [strategy_text(many.at(i)) for i in range(count)]
        return in_every_mesh_order(made[0], texts) if asked.orders else (made, texts)
    every = candidate_plans(joined, code, work, asked.engine, asked.where)
    return [every], [division_text(plan_at(every, i)) for i in range(np.size(every.tp))]


class _Box:
    """Results over the numbers that vary, at the division that counts."""

    def __init__(
        self, results: list[Result], shape: tuple[int, ...], best: bool, metric: str, picked: Any = None
    ):
        self.results, self.shape, self.best = results, shape, best
        self.picked = None
        if best:
            self.picked = self._most(metric) if picked is None else picked

    def _most(self, metric: str) -> np.ndarray:
        values = self._whole(lambda r: getattr(r.metrics, metric))
        values = values if METRICS[metric].higher_is_better else -values
        fits = self._whole(lambda r: r.fits).astype(bool)
        return np.argmax(np.where(fits & ~np.isnan(values), values, -np.inf), axis=-1)

    def _whole(self, read: Any) -> np.ndarray:
        each = [
            np.broadcast_to(np.asarray(read(r)), (*self.shape, r.shape[-1]) if self.best else self.shape)
            for r in self.results
        ]
        return np.concatenate(each, axis=-1) if self.best else each[0]

    def of(self, read: Any) -> np.ndarray:
        """A quantity of the results over the box."""
        whole = self._whole(read)
        if self.picked is None:
            return whole
        taken: np.ndarray = np.take_along_axis(whole, self.picked[..., None], axis=-1)[..., 0]
        return taken

    def found(self) -> dict[str, np.ndarray]:
        """Metrics, verdicts, and shares of the time by what it is credited to."""
        first = self.results[0]
        values = {f.name: self.of(lambda r, k=f.name: getattr(r.metrics, k)) for f in fields(first.metrics)}
        values |= {"fits": self.of(lambda r: r.fits), "reason": self.of(lambda r: r.reason)}
        values["bound_by"] = self.of(lambda r: r.bound_by)
        spent = {k: self.of(lambda r, k=k: r.summary.resources[k]) for k in first.summary.resources}
        whole = np.maximum(sum(spent.values()), 1e-300)
        return values | {f"share_{k}": v / whole for k, v in spent.items()} | {"device_time": whole}
