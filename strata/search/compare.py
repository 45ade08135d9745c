"""Systems x models x engines x plans side by side, under limits on latency: the best of each, and why it
differs from one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from strata.base.errors import BadValue, UnknownName, require
from strata.hardware.system import System, as_system
from strata.search.compared_rows import BEST, ComparedRow, answered_row, typed_plan
from strata.search.reasons import why_different
from strata.serving.load_metrics import ServingLimits, serving_goal
from strata.serving.requests import Requests, check_work
from strata.serving.speculation import Drafting
from strata.software.engine import Engine, as_engine, usual_engine
from strata.workload.model import Model
from strata.workload.model import model as make_model
from strata.workload.tasks import Workload

MOST_ROWS = 256  # combinations of one comparison
OF_STEPS = {"prefill": "TTFT", "decode": "TPOT", "train": "time of a step"}  # what is fastest of them
LIMITS_OF = {"serve": ("ttft", "tpot", "share"), "prefill": ("ttft",), "decode": ("tpot",)}


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """Rows in the order asked; `against` is the one that ratios are of (None where no row has an answer)."""

    rows: tuple[ComparedRow, ...]
    against: int | None
    phase: str
    goal: str
    limits: ServingLimits
    work: Workload | Requests

    @property
    def means(self) -> str:
        """What ratios are of."""
        return goal_means(self.goal, self.phase)

    @property
    def ranking(self) -> list[int]:
        """Rows that have an answer, best first by the goal; without a price last."""
        higher = self.goal == "throughput"

        def key(i: int) -> float:
            answer = self.rows[i].answer
            assert answer is not None
            value = answer.value(self.goal)
            return float("inf") if np.isnan(value) else -value if higher else value

        return sorted((i for i, row in enumerate(self.rows) if row.answer is not None), key=key)

    def label(self, index: int) -> str:
        """A row by what tells it from the others: its system, and what else differs."""
        row = self.rows[index].names
        varied = [len({other.names[part] for other in self.rows}) > 1 for part in range(4)]
        kept = [row[part] for part in (1, 0, 2, 3) if varied[part]]
        return ", ".join(kept) or row[1]


def goal_means(goal: str, phase: str) -> str:
    """What a goal's ratio is of, in a phase.

    >>> goal_means("cheapest", "serve"), goal_means("fastest", "decode")
    ('USD/Mtoken', 'TPOT')
    """
    means = serving_goal(goal).means
    return OF_STEPS.get(phase, means) if goal == "fastest" else means


def compare(
    systems: Sequence[System | str] | System | str,
    models: Sequence[Model | str] | Model | str,
    work: Workload | Requests,
    engines: Sequence[Engine | str] | Engine | str = "",
    plans: Sequence[str] | str = BEST,
    *,
    ttft: float = float("inf"),
    tpot: float = float("inf"),
    share: float | None = None,
    goal: str = "throughput",
    against: str = "",
    largest: bool = False,
    inputs: Callable[[str, str, str], tuple[System, Any, Engine]] | None = None,
    heard: Callable[[ComparedRow], None] | None = None,
    quick: bool = False,
    drafting: Callable[[Model], Drafting | None] | None = None,
) -> Comparison:
    """Every combination with its best plan and batch by a goal, under limits [s], and why it differs from the
    first that has an answer, or from the one called `against` (a system, model, engine, plan, or several of
    these with commas).

    `work`: `Requests`, of which each has as many at once as keep the limits, or a workload of one phase,
    whose batch may be a list; `largest`: there also the largest that keeps the limits. A name that is not
    known is an error; what does not fit is a row that says why. `inputs` makes systems, models and engines of
    names, where these are changed; `heard` is told each row as it is answered. Requests are simulated,
    unless `quick`; `drafting` says which tokens are guessed for a model.

    >>> import strata as st
    >>> asked = (["8xh200", "8xb200"], "llama-3-70b", st.serving.Requests(1024, 256), "vllm")
    >>> found = compare(*asked, tpot=0.03)
    >>> found.label(1), bool(found.rows[1].difference.ratio > 1.2)
    ('8xb200', True)
    """
    limits = ServingLimits(ttft=ttft, tpot=tpot, share=share)
    serving_goal(goal)
    phase = "serve" if isinstance(work, Requests) else work.phase
    limited = {"ttft": np.isfinite(ttft), "tpot": np.isfinite(tpot), "share": share is not None}
    for name, told in limited.items():
        require(not told or name in LIMITS_OF.get(phase, ()), f"a step of {phase} has no limit on {name}")
    software = _several(engines or usual_engine(phase))
    every = list(product(_several(models), _several(systems), software, _several(plans)))
    require(0 < len(every) <= MOST_ROWS, f"a comparison has 1 to {MOST_ROWS} rows", rows=len(every))
    for text in _several(plans):
        typed_plan(text)
    # every name is known, and every plan can be read, before anything is worked out
    named = [(*_inputs(system, model, engine, inputs), plan) for model, system, engine, plan in every]
    if len({model.name for _, model, _, _ in named}) == 1:  # of several, each row says it
        check_work(named[0][1], work)
    rows = []
    for system, model, engine, plan in named:
        asked = ComparedRow(model=model, system=system, engine=engine, asked_plan=plan or BEST)
        drafts = None if drafting is None else drafting(model)
        rows.append(answered_row(asked, work, limits, goal, largest, quick=quick, drafting=drafts))
        if heard is not None:
            heard(rows[-1])
    found = Comparison(rows=tuple(rows), against=None, phase=phase, goal=goal, limits=limits, work=work)
    return _with_reasons(found, against)


def _several(given: Any) -> list[Any]:
    """One or several things as a list without repeats."""
    many = list(given) if isinstance(given, list | tuple) else [given]
    return [one for i, one in enumerate(many) if not any(one is b or one == b for b in many[:i])]


def _inputs(
    system: System | str, model: Model | str, engine: Engine | str, inputs: Callable[..., Any] | None
) -> tuple[System, Model, Engine]:
    if inputs is not None:
        made = inputs(system, model, engine)
    else:
        made = as_system(system), make_model(model) if isinstance(model, str) else model, as_engine(engine)
    if not isinstance(made[1], Model):
        raise BadValue(f"language models are compared, and {getattr(made[1], 'name', made[1])} is none")
    return made


def _with_reasons(found: Comparison, against: str) -> Comparison:
    """The comparison with ratios to one of its rows."""
    at = _reference(found, against)
    if at is None:
        return found
    first = found.rows[at].answer
    assert first is not None
    rows = [
        replace(row, difference=why_different(first.measure, row.answer.measure, found.goal, found.means))
        if row.answer is not None
        else row
        for row in found.rows
    ]
    return replace(found, rows=tuple(rows), against=at)


def _reference(found: Comparison, against: str) -> int | None:
    """The row that others are compared with: the first of that name, or the first with an answer."""
    wanted = {word.strip() for word in against.split(",")} if against else set()
    labels = [found.label(i) for i in range(len(found.rows))]
    for i, row in enumerate(found.rows):
        own = {*row.names, row.system.chip.name, "" if row.answer is None else row.answer.plan}
        # a plan has commas of its own
        if wanted and (wanted <= own or against in own or against == labels[i]):
            if row.answer is None:
                raise BadValue(f"nothing can be compared with {labels[i]}: {row.why_none}")
            return i
    if wanted:
        raise UnknownName("row of this comparison", against, labels, "; ".join(labels))
    return next((i for i, row in enumerate(found.rows) if row.answer is not None), None)
