"""codesign(): the best chip for a program under a budget, with its strategy and the model's shape if they are
free; after DeepFlow's search and optimisation engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from deepflow.design.ledger import Ledger, MethodTrace
from deepflow.design.methods import exhaust, optimise
from deepflow.design.problem import FREE, CodesignProblem, ModelShape
from strata.base.errors import require
from strata.evaluate import evaluate_case
from strata.hardware.components import LinkPhy, MemoryDevice
from strata.hardware.generate.budget import Budget
from strata.hardware.generate.recipe import Generation, changed_recipe, recipe
from strata.hardware.generate.template import Template
from strata.hardware.money import economics
from strata.hardware.technology import Technology
from strata.mapping.kernel_parallel import Strategy, is_strategy, parse_strategy, strategy_text
from strata.mapping.plan import Plan, plan, plan_text
from strata.result import Result
from strata.software.engine import Engine, as_engine
from strata.workload.program import program as make_program
from strata.workload.protocol import Program, member
from strata.workload.tasks import Workload

COMPARED = (
    "gradient",
    "projected",
    "deepflow",
    "l-bfgs-b",
    "random",
    "search-random",
    "search-gradient",
    "search-nsga2",
    "search-cmaes",
)


SHAPES_KEEP = ("parameters", "flop", "work")


@dataclass(frozen=True, eq=False, kw_only=True)
class Codesign:
    """What a co-design found: the best design, how the search went, and against what."""

    problem: CodesignProblem
    trace: MethodTrace
    compared: dict[str, MethodTrace] = field(default_factory=dict)
    proven: bool = False  # whether every combination was evaluated

    @property
    def found(self) -> bool:
        """Whether any design fits."""
        return bool(np.isfinite(self.trace.value))

    @property
    def value(self) -> float:
        """The metric of the best design."""
        return self.metric_of(self.trace.value)

    def metric_of(self, value: float) -> float:
        """The metric behind a searched value, of which less is better."""
        return 1.0 / value if self.problem.higher_is_better else value

    @cached_property
    def result(self) -> Result:
        """The full answer of the best design."""
        require(self.found, "no design fits: more evaluations, a larger budget, or a smaller program")
        return evaluate_case(self.problem.case_of(self.trace.design))

    @cached_property
    def start(self) -> Result:
        """The full answer of the budget as it was stated."""
        return evaluate_case(self.problem.case_of(None))

    @cached_property
    def generation(self) -> Generation:
        """The chip of the best design with its counts, its use of budgets, and what binds it."""
        return self.problem.generation_of(self.trace.design)

    @cached_property
    def design(self) -> dict[str, float | str]:
        """The best design by its columns: shares and numbers as they are, choices by their labels."""
        return self.problem.named(self.trace.design)

    @cached_property
    def worth(self) -> dict[str, float]:
        """Share by which the metric gets better with a hundredth more of each budget, of the best design."""
        return self.problem.worth_of(self.trace.design)

    @property
    def gaps(self) -> dict[str, float]:
        """How far each compared method stays behind the best value of all, at equal evaluations."""
        best = min([self.trace.value, *(t.value for t in self.compared.values())])
        return {name: t.value / best - 1.0 for name, t in self.compared.items()}


def codesign(
    *parts: Any,
    method: str = "gradient",
    evaluations: int = 4000,
    compare: Iterable[str] = (),
    seed: int = 0,
    from_stated: bool = False,
    on_progress: Callable[[Ledger], Any] | None = None,
    **settings: Any,
) -> Codesign:
    """The best of what is free in a problem, whose `parts` and `settings` are those of `codesign_problem`.

    The search starts at random, or also at the budget as it is stated. Where only choices are free, all are
    evaluated, and the best is proven.
    """
    problem = codesign_problem(*parts, **settings)
    variables = problem.variables
    if not variables.smooth_count:
        return Codesign(problem=problem, trace=exhaust(problem, variables), proven=True)
    options: dict[str, Any] = {"evaluations": evaluations, "seed": seed}
    options["start"] = problem.start if from_stated else None
    trace = optimise(problem, variables, method=method, on_progress=on_progress, **options)
    others = [name for name in compare if name != method]
    compared = {name: optimise(problem, variables, method=name, **options) for name in others}
    return Codesign(problem=problem, trace=trace, compared={method: trace, **compared} if others else {})


def codesign_problem(
    technology: str | Technology,
    template: str | Template,
    budget: str | Budget,
    program: Program,
    workload: Workload,
    system: int | str = 1,
    *,
    strategies: str | Strategy | Plan | Iterable[str | Strategy | Plan] = "",
    shapes: Iterable[ModelShape] = (),
    free: Iterable[str] = FREE,
    metric: str = "step_time",
    spend: str = "all",
    engine: str | Engine = "ideal",
    device: str | MemoryDevice | None = None,
    links: Mapping[str, str | LinkPhy] | None = None,
    changes: Mapping[str, Any] | None = None,
    rules: str = "",
) -> CodesignProblem:
    """Choose what is `free` so that a workload of a program takes the least time (or has the best `metric`):
    the problem that `codesign` solves, from names or records.

    Free may be the shares of area, power and perimeter, the die's area, the number of memory devices, the
    strategy and the shape of the model. `links` are taken for networks by name; `changes` set numbers by
    their paths, of `chip.` and `fabric.` over what is generated; `rules` are those of `layout_of`.
    """
    code = make_program(program) if isinstance(program, str) else program
    told = dict(changes or {})
    over = {path: value for path, value in told.items() if path.startswith(("chip.", "fabric."))}
    stated, _ = changed_recipe(
        recipe(technology, budget, template, device=device, links=links),
        {path: value for path, value in told.items() if path not in over},
    )
    listed = [strategies] if isinstance(strategies, str | Strategy | Plan) else list(strategies)
    divided = tuple(_strategy(one, code) for one in listed)
    return CodesignProblem(
        technology=stated.technology,
        budget=stated.budget,
        template=stated.template,
        device=stated.device,
        links=stated.links,
        program=code,
        workload=workload,
        sizes=system_sizes(system),
        strategies=divided,
        strategy_labels=tuple(_label(one) for one in divided),
        shapes=tuple(shapes) or (ModelShape(label="stated", changes={}, batch=float(workload.batch)),),
        engine=as_engine(engine),
        economics=economics(),
        metric=metric,
        spend=spend,
        free=tuple(dict.fromkeys(free)),
        changes=over,
        rules=rules,
    )


def system_sizes(system: int | str) -> tuple[float, ...]:
    """Devices along each network, innermost first: of so many packages, or PACKAGESxDEVICES.

    >>> system_sizes(4), system_sizes("16x8")
    ((4.0,), (8.0, 16.0))
    """
    try:
        counts = [float(int(part)) for part in str(system).split("x")]
    except ValueError:
        counts = []
    require(
        bool(counts) and all(n >= 1 for n in counts),
        "a system is a number of packages, or PACKAGESxDEVICES like 16x8",
        system=system,
    )
    return tuple(reversed(counts))


def _strategy(given: str | Strategy | Plan, program: Any) -> Strategy | Plan:
    if not isinstance(given, str):
        return given
    if member(program, "kernel_modules"):
        return parse_strategy(given) if is_strategy(given) else Strategy()
    return plan(given)


def _label(one: Strategy | Plan) -> str:
    return strategy_text(one) if isinstance(one, Strategy) else plan_text(one)


def model_shapes(
    program: Program, workload: Workload, hidden: Iterable[float], *, keep: str = "parameters"
) -> tuple[ModelShape, ...]:
    """Shapes of a model with other hidden sizes. `keep` says what stays equal: "parameters", by the whole
    number of layers that comes nearest; "flop", those and the work of a step, by its batch too; "work", the
    work of a step alone, by its batch, with the layers it has: fewer parameters see more sequences.

    The model as it is comes first; shapes that miss the parameters by more than a tenth are left out.

    >>> import strata as st
    >>> lstm = st.program("lstm-lm-512")
    >>> [s.label for s in model_shapes(lstm, st.train(64, 1), [8192])]
    ['16384 x 2 layers', '8192 x 32 layers']
    >>> [(s.label, s.batch) for s in model_shapes(lstm, st.train(64, 1), [8192], keep="work")][1]
    ('8192 x 2 layers', 146.0)
    """
    require(keep in SHAPES_KEEP, f"shapes keep one of {', '.join(SHAPES_KEEP)}", keep=keep)
    shaped: Any = program  # programs with layers of a hidden size
    require(
        None not in (getattr(shaped, name, None) for name in ("hidden", "layers")),
        f"shapes are of a program with hidden and layers, and {program.name} has none",
    )
    base_parameters, base_flop = _size_of(program, workload)
    found: list[ModelShape] = []
    for size in dict.fromkeys([float(shaped.hidden), *(float(h) for h in hidden)]):
        one, two = (_size_of(replace(shaped, hidden=size, layers=n), workload)[0] for n in (1.0, 2.0))
        layers = max(round((base_parameters - one) / (two - one)) + 1, 1)
        layers = int(shaped.layers) if keep == "work" else layers
        parameters, flop = _size_of(replace(shaped, hidden=size, layers=float(layers)), workload)
        if keep != "work" and abs(parameters / base_parameters - 1.0) > 0.1:
            continue
        batch = float(workload.batch) * (1.0 if keep == "parameters" else base_flop / flop)
        found.append(
            ModelShape(
                label=f"{size:g} x {layers} layers",
                changes={"hidden": size, "layers": float(layers)},
                batch=float(max(round(batch), 1)),
            )
        )
    return tuple(found)


def _size_of(program: Any, workload: Workload) -> tuple[float, float]:
    """Parameters, and operations of a step."""
    graph = program.trace(workload)
    return float(graph.parameters()), float(graph.flop())
