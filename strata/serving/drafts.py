"""Drafts side by side: tokens a second over windows and acceptances, which window and which draft is best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.base.arrays import Array, Number
from strata.base.errors import require
from strata.hardware.system import System, as_system
from strata.mapping.plan import Plan
from strata.mapping.plan import plan as make_plan
from strata.serving.requests import check_context
from strata.serving.speculation import Speculation, draft_model, quickest_plan, speculate
from strata.software.engine import USUAL_SERVER, Engine, as_engine
from strata.workload.model import Model
from strata.workload.model import model as make_model
from strata.workload.tasks import decode


@dataclass(frozen=True, eq=False, kw_only=True)
class DraftComparison:
    """Speculative decoding of one target with several drafts; arrays are by window and acceptance."""

    target: Model
    system: System
    plan: Plan  # of the target
    engine: Engine
    batch: float
    context: float
    branches: float
    counting: str
    windows: Array
    acceptances: Array
    drafts: dict[str, Speculation]
    sizes: dict[str, float]  # parameters of each draft

    @property
    def plain(self) -> float:
        """Tokens/s without speculation."""
        step: Number = next(iter(self.drafts.values())).step
        return self.batch / float(np.max(step))

    def tokens_per_s(self, draft: str) -> Array:
        """Of the whole batch; 0 where target and draft do not fit together."""
        rate = self.batch / np.asarray(self.drafts[draft].tpot, float)
        return np.broadcast_to(rate, (len(self.windows), len(self.acceptances)))

    def speedup(self, draft: str) -> Array:
        """Over decoding without guesses."""
        rate = self.tokens_per_s(draft)
        return rate / self.plain if self.plain else np.zeros_like(rate)  # neither fits

    def best_windows(self, draft: str) -> Array:
        """The fastest window at each acceptance."""
        found: Array = self.windows[np.argmax(self.tokens_per_s(draft), axis=0)]
        return found

    def best_drafts(self) -> list[str]:
        """The fastest draft at each acceptance, each with its best window."""
        names = list(self.drafts)
        most = np.array([np.max(self.tokens_per_s(name), axis=0) for name in names])
        return [names[i] for i in np.argmax(most, axis=0)]

    @property
    def other_vocabularies(self) -> list[str]:
        """Drafts whose tokens are not the target's: their guesses cannot be compared token by token."""
        return [n for n, s in self.drafts.items() if float(s.draft.model.vocab) != float(self.target.vocab)]


def parameters_of(model: Model) -> float:
    """Weights of a model, each counted once."""
    return float(model.trace(decode(1.0, 1.0)).parameters())


def _axis(values: Number | Sequence[float]) -> Array:
    return np.atleast_1d(np.asarray(values, float))


def _checked_drafts(target: Model, drafts: Sequence[Model | str] | Model | str) -> dict[str, Model]:
    listed = [drafts] if isinstance(drafts, str | Model) else list(drafts)
    small = {d if isinstance(d, str) else d.name: d for d in listed}
    require(bool(small), "at least one draft is needed")
    require(len(small) == len(listed), "every draft is named once")
    found = {n: draft_model(d, target) if isinstance(d, str) else d for n, d in small.items()}
    size = parameters_of(target)
    for draft in found.values():
        require(
            parameters_of(draft) <= size,
            f"the draft {draft.name} is larger than its target {target.name}: swap them",
            draft=f"{parameters_of(draft) / 1e9:.3g}B",
            target=f"{size / 1e9:.3g}B",
        )
    return found


def compare_drafts(
    target: Model | str,
    drafts: Sequence[Model | str] | Model | str,
    system: System | str,
    *,
    window: Number | Sequence[float] = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0),
    acceptance: Number | Sequence[float] = (0.6, 0.8),
    branches: float = 1.0,
    batch: float = 1.0,
    context: float = 2048.0,
    plan: Plan | str | None = None,
    draft_plan: Plan | str | None = None,
    engine: Engine | str = USUAL_SERVER,
    counting: str = "independent",
) -> DraftComparison:
    """Decode `target` with guesses of each of `drafts`, over every window and every acceptance.

    Steps of draft and target are `evaluate`'s; `branches` above 1 makes trees. Each model has its quickest
    plan unless told. A draft must not be larger than its target.

    >>> found = compare_drafts("llama-3-70b", "llama-3.2-1b", "8xh200", acceptance=[0.6, 0.8])
    >>> found.tokens_per_s("llama-3.2-1b").shape, found.best_windows("llama-3.2-1b").tolist()
    ((8, 2), [3.0, 6.0])
    """
    hardware, software = as_system(system), as_engine(engine)
    large = make_model(target) if isinstance(target, str) else target
    small = _checked_drafts(large, drafts)
    check_context(large, context)
    chosen = make_plan(plan) if isinstance(plan, str) else plan
    chosen = chosen or quickest_plan(hardware, large, batch, context, software)
    guessing = make_plan(draft_plan) if isinstance(draft_plan, str) else draft_plan
    windows, acceptances = _axis(window), _axis(acceptance)
    asked: dict[str, Any] = {"batch": batch, "context": context, "branches": branches, "counting": counting}
    grid: dict[str, Any] = {"window": windows[:, None], "acceptance": acceptances[None, :]}
    run_by: dict[str, Any] = {"engine": software, "draft_plan": guessing}
    found = {n: speculate(hardware, large, d, chosen, **asked, **grid, **run_by) for n, d in small.items()}
    return DraftComparison(
        target=large,
        system=hardware,
        plan=chosen,
        engine=software,
        **asked,
        windows=windows,
        acceptances=acceptances,
        drafts=found,
        sizes={name: parameters_of(draft) for name, draft in small.items()},
    )
