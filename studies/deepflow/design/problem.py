"""A chip to be designed for a program: every free number a column, every design a generated chip that is
evaluated like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from deepflow.design.variables import ChoiceVariable, DesignVariables, RealVariable, ShareClass
from deepflow.generated_readings import numbers_of, with_chip_numbers
from strata.base.arrays import Array, enable_jax, leaves, map_leaves
from strata.base.errors import UnknownName, require
from strata.case import Case
from strata.evaluate import evaluate_case, summarised
from strata.hardware.components import MemoryDevice
from strata.hardware.fabric import Fabric, sized
from strata.hardware.generate.budget import Budget, die_edge
from strata.hardware.generate.recipe import Generation, generation
from strata.hardware.generate.template import Template
from strata.hardware.money import Economics
from strata.hardware.system import System
from strata.hardware.technology import Technology
from strata.mapping.kernel_parallel import Strategy, layout_of
from strata.mapping.rules import MEMORY
from strata.pricing.metrics import METRICS
from strata.pricing.pricers import Structure
from strata.result import Result
from strata.search.fields import changed_fabric
from strata.software.engine import Engine
from strata.workload.tasks import Workload

SPLITS = {"area": "area_share", "power": "power_share", "perimeter": "perimeter_share"}
FREE = (*SPLITS, "die_area", "devices", "strategy", "shape")
LEAKS = "leakage"  # of a power budget: what the die leaks around its components
LEAST_DIE = 0.25  # of the package's area: a die is not made smaller
FLOOR = 0.002  # least share of a component


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """A shape of the model: what it changes of the program, and the batch."""

    label: str
    changes: Mapping[str, float]
    batch: float


@dataclass(frozen=True, eq=False, kw_only=True)
class CodesignProblem:
    """Technology, template, budget and program, and what of them is free.

    It is an objective: designs [N, columns] in, a metric and how far each is out.
    """

    technology: Technology
    template: Template
    budget: Budget
    device: MemoryDevice
    program: Any
    workload: Workload
    sizes: tuple[float, ...]  # devices along each network, innermost first
    strategies: tuple[Any, ...]  # strategies of kernel parallelism, or plans
    strategy_labels: tuple[str, ...]
    shapes: tuple[ModelShape, ...]
    engine: Engine
    economics: Economics
    metric: str = "step_time"
    free: tuple[str, ...] = FREE
    spend: str = "all"  # shares of a budget add up to it, or to what the stated ones do
    links: Mapping[str, Any] = field(default_factory=dict)  # by network; the template's where left out
    changes: Mapping[str, Any] = field(default_factory=dict)  # numbers over what is generated: chip., fabric.
    rules: str = ""  # of layouts of strategies (`layout_of`)

    def __post_init__(self) -> None:
        for name in self.free:
            if name not in FREE:
                raise UnknownName("thing that may be free", name, FREE, ", ".join(FREE))
        if self.metric not in METRICS:
            raise UnknownName("metric", self.metric, METRICS, ", ".join(METRICS))
        require(self.spend in ("all", "stated"), "spend is all or stated", spend=self.spend)

    @cached_property
    def variables(self) -> DesignVariables:
        """What is free, as columns."""
        shares = tuple(
            self._share_class(name, stated)
            for name, stated in self.stated.items()
            if name in self.free and len(stated) > 1
        )
        reals = []
        if "die_area" in self.free:
            node = float(self.budget.node_area)
            room = node - (float(self.device.area) if self.device.mount == "beside" else 0.0)
            require(room > LEAST_DIE * node, "a package has room for a die and one memory device")
            reals.append(RealVariable(name="die_area", low=LEAST_DIE * node, high=room))
        choices = []
        if "devices" in self.free:
            count = int(float(self.budget.node_area) * (1.0 - LEAST_DIE) / float(self.device.area))
            choices.append(
                ChoiceVariable(name="devices", labels=tuple(f"{n + 1}" for n in range(max(count, 1))))
            )
        if "strategy" in self.free and len(self.strategies) > 1:
            choices.append(ChoiceVariable(name="strategy", labels=self.strategy_labels))
        if "shape" in self.free and len(self.shapes) > 1:
            choices.append(ChoiceVariable(name="shape", labels=tuple(s.label for s in self.shapes)))
        made = DesignVariables(shares=shares, reals=tuple(reals), choices=tuple(choices))
        require(bool(made.names), "nothing is free: name some of " + ", ".join(FREE))
        return made

    @cached_property
    def stated(self) -> dict[str, dict[str, float]]:
        """Shares of the budget as it is stated, or as the template splits it: of components that get some,
        and of what the die leaks around them.
        """
        made = self.generation_of(None).made
        totals = {
            "area": self.budget.die_area,
            "power": self.budget.power,
            "perimeter": die_edge(self.budget),
        }
        parts = {"area": made.area, "power": made.power, "perimeter": made.edge}
        found = {
            name: {m: float(v) / float(totals[name]) for m, v in given.items() if float(v) > 0.0}
            for name, given in parts.items()
        }
        if self.template.rules.leakage == "counted":
            found["power"][LEAKS] = max(1.0 - sum(found["power"].values()), FLOOR)
        return found

    def _share_class(self, name: str, stated: dict[str, float]) -> ShareClass:
        total = 1.0 if self.spend == "all" else min(sum(stated.values()), 1.0)
        floor = min(FLOOR, 0.5 * total / len(stated))
        return ShareClass(name=name, members=tuple(stated), floor=floor, total=total)

    @property
    def higher_is_better(self) -> bool:
        return METRICS[self.metric].higher_is_better

    @cached_property
    def start(self) -> Array:
        """The budget as it is stated, as a design: shares cut to their budget, the first of each list."""
        names, row = self.variables.names, []
        for name in names:
            owner, _, member = name.partition(".")
            if owner in SPLITS:
                row.append(self.stated[owner][member])
            elif name == "die_area":
                row.append(float(self.budget.die_area))
            elif name == "devices":
                row.append(float(self.generation_of(None).made.built.memory.devices) - 1.0)
            else:
                row.append(0.0)
        return self.variables.project(np.array([row]))[0]

    def named(self, design: Array) -> dict[str, float | str]:
        """A design by its columns: shares and numbers as they are, choices by their labels."""
        columns: dict[str, float | str] = dict(zip(self.variables.names, map(float, design), strict=True))
        for choice in self.variables.choices:
            columns[choice.name] = choice.labels[int(design[self.variables.column(choice.name)])]
        return columns

    def worth_of(self, design: Array, more: float = 0.01) -> dict[str, float]:
        """Share by which the value of a design falls with a little more of each budget."""
        before = float(self(design[None])[0][0])
        found = {}
        for name in ("die_area", "node_area", "power"):
            own = replace(
                self, budget=replace(self.budget, **{name: getattr(self.budget, name) * (1.0 + more)})
            )
            changed = np.array(design)
            if name == "die_area" and name in self.variables.names:
                changed[self.variables.column(name)] *= 1.0 + more
            found[name] = 1.0 - float(own(changed[None])[0][0]) / before
        return found

    # ------------------------------------------------------------------------------------ designs

    def budget_of(self, designs: Any) -> Budget:
        """The budget of designs; as stated where designs are None."""
        if designs is None:
            return self.budget
        column = {name: designs[..., k] for k, name in enumerate(self.variables.names)}
        changes: dict[str, Any] = {}
        for own in self.variables.shares:
            split = {m: column[f"{own.name}.{m}"] for m in own.members if m != LEAKS}
            changes[SPLITS[own.name]] = {**(getattr(self.budget, SPLITS[own.name]) or {}), **split}
        if "die_area" in column:
            changes["die_area"] = column["die_area"]
            changes["perimeter"] = None  # of square dies
        if "devices" in column:
            changes["devices"] = column["devices"] + 1.0
        return replace(self.budget, **changes)

    def generation_of(self, designs: Any) -> Generation:
        """The chips of designs, with the numbers that are set over them."""
        made = generation(
            self.technology, self.budget_of(designs), self.template, device=self.device, links=self.links
        )
        return with_chip_numbers(made, numbers_of("chip", self.changes))

    def case_of(self, designs: Any) -> Case:
        """The case of designs: their chips on their networks, each with its strategy and shape."""
        made = self.generation_of(designs)
        joined = self._joined(made)
        require(joined is not None, "several devices need a network with area, power and perimeter")
        assert joined is not None
        program, batch = self._shaped(designs)
        return Case(
            system=System(f"{made.chip.name} x {float(np.prod(self.sizes)):g}", made.chip, joined),
            program=program,
            workload=replace(self.workload, batch=batch),
            plan=self._divided(program, designs),
            engine=self.engine,
            economics=self.economics,
        )

    def _joined(self, made: Generation) -> Fabric | None:
        """The fabric of designs; None where none of them has the networks that join its devices."""
        given = made.fabric.dimension[-len(self.sizes) :] if made.fabric is not None else ()
        if made.fabric is None or any(n > 1 for n in self.sizes[: len(self.sizes) - len(given)]):
            return None
        joined = sized(replace(made.fabric, dimension=given), self.sizes[-len(given) :])
        return changed_fabric(joined, numbers_of("fabric", self.changes))

    def _chosen(self, designs: Any, name: str) -> Any:
        """Which of a list designs choose: whole numbers, or the first."""
        if designs is None or name not in self.variables.names:
            return 0
        return np.asarray(designs[..., self.variables.column(name)]).astype(int)

    def _shaped(self, designs: Any) -> tuple[Any, Any]:
        which = self._chosen(designs, "shape")
        fields = {key for shape in self.shapes for key in shape.changes}
        table = {
            key: np.array([s.changes.get(key, getattr(self.program, key)) for s in self.shapes])
            for key in fields
        }
        batch = np.array([s.batch for s in self.shapes])[which]
        changes = {key: _plain(values[which]) for key, values in table.items()}
        return (replace(self.program, **changes) if changes else self.program), _plain(batch)

    def _divided(self, program: Any, designs: Any) -> Any:
        """The layout of each design's strategy: arrays of degrees, one structure."""
        which = self._chosen(designs, "strategy")
        several = len(self.strategies) > 1 and np.ndim(which) > 0
        chosen = _stacked(self.strategies, which) if several else self.strategies[int(np.ravel(which)[0])]
        return layout_of(chosen, program, rules=self.rules) if isinstance(chosen, Strategy) else chosen

    # ---------------------------------------------------------------------------------- objective

    def __call__(self, designs: Array) -> tuple[Array, Array]:
        """The metric of designs, turned so that less is better, and how far each is out: the share by which
        memory overflows, and 1 for every other rule.
        """
        # probes of DeepFlow's rule pass the budget; a generator that minds gets the nearest design within it
        legal = designs if self.template.rules.sums == "any" else self.variables.project(designs)
        if self._joined(self.generation_of(legal)) is None:  # no design of the batch has its networks
            return np.full(len(designs), np.inf), np.ones(len(designs))
        return self.scored(evaluate_case(self.case_of(legal)), len(designs))

    def scored(self, result: Result, count: int) -> tuple[Array, Array]:
        """Values and violations of a result."""
        metric = np.broadcast_to(np.asarray(getattr(result.metrics, self.metric), float), count)
        reason = np.broadcast_to(np.asarray(result.reason, int), count)
        used = np.broadcast_to(np.asarray(result.metrics.memory_used, float), count)
        limit = np.broadcast_to(np.asarray(result.metrics.memory_limit, float), count)
        overflow = np.maximum(used / np.maximum(limit, 1.0) - 1.0, 1e-9)
        others = sum(((reason & ~MEMORY.bit) >> bit) & 1 for bit in range(40))
        violation = np.where(reason & MEMORY.bit, overflow, 0.0) + others
        with np.errstate(divide="ignore"):
            value = 1.0 / metric if self.higher_is_better else metric
        return value, violation

    def slope(self, designs: Array) -> Array:
        """Slope of the logarithm of the metric over every column, by JAX through generator and evaluation.

        Whole counts (units, banks, devices, lanes) have the slope of their quotient; choices have none.
        """
        jax, smooth = enable_jax(), self.variables.smooth_count
        slopes = np.zeros_like(designs)
        _, kind = np.unique(designs[:, smooth:], axis=0, return_inverse=True)
        for group in range(int(np.max(kind)) + 1):
            rows = np.flatnonzero(np.ravel(kind) == group)
            # JAX compiles anew for each length: it is rounded up, with repeats that nobody reads
            padded = np.resize(rows, max(8, 1 << (len(rows) - 1).bit_length()))
            slope = self._slope_of(tuple(designs[rows[0], smooth:].tolist()))
            found = np.asarray(slope(jax.numpy.asarray(designs[padded, :smooth])))
            slopes[rows, :smooth] = found[: len(rows)]
        return slopes

    def _slope_of(self, choices: tuple[float, ...]) -> Any:
        """The compiled slope for one combination of choices."""
        if choices not in self._compiled:
            jax = enable_jax()
            own = self.with_choices(choices)
            sign = -1.0 if self.higher_is_better else 1.0

            def total(designs: Any) -> Any:
                case = own.case_of(designs)
                found = summarised(case, Structure(case.plan.active(), 1))[0]
                return sign * jax.numpy.sum(jax.numpy.log(getattr(found.metrics, self.metric)))

            self._compiled[choices] = jax.jit(jax.grad(total))
        return self._compiled[choices]

    @cached_property
    def _compiled(self) -> dict[tuple[float, ...], Any]:
        return {}

    def with_choices(self, choices: Iterable[float]) -> CodesignProblem:
        """The same problem with its choices made."""
        chosen = {c.name: int(k) for c, k in zip(self.variables.choices, choices, strict=True)}
        changes: dict[str, Any] = {"free": tuple(f for f in self.free if f not in chosen)}
        if "devices" in chosen:
            changes["budget"] = replace(self.budget, devices=chosen["devices"] + 1.0)
        if "strategy" in chosen:
            changes["strategies"] = (self.strategies[chosen["strategy"]],)
            changes["strategy_labels"] = (self.strategy_labels[chosen["strategy"]],)
        if "shape" in chosen:
            changes["shapes"] = (self.shapes[chosen["shape"]],)
        return replace(self, **changes)


def _plain(value: Any) -> Any:
    return float(value) if np.ndim(value) == 0 else value


def _stacked(many: tuple[Any, ...], which: Array) -> Any:
    """Some strategies or plans of one kind as one whose degrees are arrays."""
    kinds = {(type(one), tuple(getattr(one, "modules", ()) and (m for m, _ in one.modules))) for one in many}
    require(len(kinds) == 1, "strategies of one search are of one kind: for all modules, by module, or plans")
    columns = iter(zip(*(leaves(one) for one in many), strict=True))
    return map_leaves(lambda _: np.array(next(columns), float)[which], many[0])
