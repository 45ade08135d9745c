"""Speculative decoding: a draft guesses, the target verifies; tokens gained, speed-up, the best window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.base.arrays import Number, map_leaves, namespace
from strata.base.batch import take
from strata.base.errors import UnknownName, require
from strata.evaluate import evaluate
from strata.hardware.system import System
from strata.mapping.plan import Plan
from strata.mapping.plans import plans
from strata.result import Result
from strata.software.engine import USUAL_SERVER, Engine, as_engine
from strata.workload.model import Model, Pattern
from strata.workload.model import model as make_model
from strata.workload.tasks import decode


def expected_tokens(depth: Number, acceptance: Number) -> Number:
    r"""Mean tokens gained by one verification of a guess of some depth, the target's own token included.

    .. math:: E = \sum_{i=0}^{w} a^i = \frac{1 - a^{w+1}}{1 - a}

    depth w of the guess; chance a that the target agrees with one more token, the same for each and
    independent of the others.

    Leviathan, Kalman & Matias, Fast Inference from Transformers via Speculative Decoding (ICML 2023), eq. 1.

    >>> expected_tokens(4.0, 0.0), expected_tokens(4.0, 1.0), round(expected_tokens(4.0, 0.8), 4)
    (1.0, 5.0, 3.3616)
    """
    xp = namespace(depth, acceptance)
    sure = acceptance > 1.0 - 1e-9
    below = xp.where(sure, 0.5, acceptance)
    return xp.where(sure, depth + 1.0, (1.0 - below ** (depth + 1.0)) / (1.0 - below))


def branch_acceptance(acceptance: Number, branches: Number) -> Number:
    r"""Chance that one of several guesses for a token is the target's.

    .. math:: \alpha = 1 - (1 - a)^b

    chance a of each of b guesses, taken as independent: an upper estimate, as a second guess is likelier
    wrong than the first.

    Chen et al., Sequoia, arXiv 2402.12374, measures how chances fall from guess to guess; equal chances are
    the limit.

    >>> branch_acceptance(0.6, 1.0), round(branch_acceptance(0.6, 2.0), 6)
    (0.6, 0.84)
    """
    return 1.0 - (1.0 - acceptance) ** branches


def tree_size(branches: Number, depth: Number) -> Number:
    r"""Guessed tokens of a full tree.

    .. math:: \sum_{i=1}^{w} b^i = \frac{b\,(b^w - 1)}{b - 1}

    branches b, depth w; a sequence has one branch and w tokens. Miao et al., SpecInfer (ASPLOS 2024), sec. 3.

    >>> tree_size(1.0, 4.0), tree_size(2.0, 3.0)
    (4.0, 14.0)
    """
    xp = namespace(branches, depth)
    single = branches < 1.5
    b = xp.where(single, 2.0, branches)
    return xp.where(single, depth, b * (b**depth - 1.0) / (b - 1.0))


def proportional_tokens(depth: Number, kept: Number) -> Number:
    r"""Mean tokens gained by one verification where a share of the guesses is kept, wherever they stand.

    .. math:: E = w k + 1

    depth w of the guess; share k of the guessed tokens that is kept, from 0 to 1. It equals
    :func:`expected_tokens` where k is what independent acceptances leave, (E - 1) / w; with the chance of one
    token in place of the share it counts tokens behind a rejected one, too, and is too high.

    DFModel (Ko et al., arXiv 2412.16432), sec. VIII-B, as its published results are counted.

    >>> proportional_tokens(4.0, 0.8), round(float(expected_tokens(4.0, 0.8)), 4)
    (4.2, 3.3616)
    """
    return depth * kept + 1.0


COUNTINGS: dict[str, Callable[[Number, Number], Number]] = {
    "independent": expected_tokens,
    "proportional": proportional_tokens,
}  # how an acceptance becomes tokens of a round


MTP = "mtp"  # a draft by this name is the model's own module
WINDOWS = 12  # windows that are tried for the best
HALVINGS = 48


def cycle_time(guesses: Number, verify: Number) -> Number:
    r"""Time of one round of guessing and verifying [s].

    .. math:: T = \sum_{i=1}^{w} t_d(b^{i-1}) + t_v

    the draft guesses level after level, b^{i-1} tokens of a sequence at once in the i-th; the target verifies
    all in one step.

    Leviathan, Kalman & Matias (ICML 2023), sec. 3.3, with the target's step priced for the tokens it
    verifies.

    >>> round(cycle_time(4 * 0.001, 0.030), 6)
    0.034
    """
    return guesses + verify


def speed_up(step: Number, cycle: Number, tokens: Number) -> Number:
    r"""Tokens a second with speculation over those without.

    .. math:: s = \frac{E\, t}{T}

    tokens E of a round of T [s]; a step without guesses t [s].

    >>> round(speed_up(0.029, 0.034, 3.4), 2)
    2.9
    """
    return step * tokens / cycle


@dataclass(frozen=True, eq=False)
class Drafting:
    """How a draft guesses: `window` tokens deep, `branches` alternatives, each right with `acceptance`."""

    draft: Model
    acceptance: float
    window: float = 4.0
    branches: float = 1.0
    plan: Plan | None = None  # of the draft; its quickest unless told

    def __post_init__(self) -> None:
        check_drafting(self.window, self.branches, self.acceptance)

    @property
    def size(self) -> float:
        """Tokens guessed for a sequence."""
        return float(tree_size(self.branches, self.window))

    @property
    def tokens(self) -> float:
        """Tokens a round adds to a sequence on average."""
        return float(expected_tokens(self.window, branch_acceptance(self.acceptance, self.branches)))


def check_drafting(
    window: Number, branches: Number, acceptance: Number, counting: str = "independent"
) -> None:
    """Raise where a guess cannot be."""
    if counting not in COUNTINGS:
        raise UnknownName("way to count tokens", counting, COUNTINGS, ", ".join(COUNTINGS))
    for name, value, low, high in (
        ("acceptance", acceptance, 0.0, 1.0),
        ("window", window, 1.0, 64.0),
        ("branches", branches, 1.0, 64.0),
    ):
        seen = np.asarray(value, float)
        require(
            bool(np.all((seen >= low) & (seen <= high))),
            f"{name} must lie between {low:g} and {high:g}",
            **{name: value},
        )
    size = tree_size(np.asarray(branches, float), np.asarray(window, float))
    require(
        bool(np.all(size <= 4096)), "a tree of guesses has at most 4096 tokens", tokens=float(np.max(size))
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Speculation:
    """What guessing does to a decode step; arrays where windows, branches, acceptance or batches were."""

    target: Result  # the plain step
    draft: Result  # one step of the draft
    window: Number  # depth of a guess
    branches: Number
    acceptance: Number  # chance that the target agrees with one guess
    step: Number  # plain step [s]
    guess: Number  # of a whole round of the draft [s]
    verify: Number  # [s]
    verified: Number  # tokens of a sequence the target looks at
    fits: Number  # whether target and draft fit the devices together
    memory: Number  # bytes of the fullest device
    counting: str = "independent"  # how acceptance becomes tokens: acceptance.COUNTINGS

    @property
    def chance(self) -> Number:
        """That a level of the guess holds the target's token."""
        return branch_acceptance(self.acceptance, self.branches)

    @property
    def tokens(self) -> Number:
        return COUNTINGS[self.counting](self.window, self.chance)

    @property
    def cycle(self) -> Number:
        return cycle_time(self.guess, self.verify)

    @property
    def tpot(self) -> Number:
        """Mean time between a sequence's tokens [s]; infinite where it does not fit."""
        return np.where(self.fits, self.cycle / self.tokens, np.inf) + 0.0

    @property
    def speedup(self) -> Number:
        """Over decoding without it; 0 where it does not fit."""
        return np.where(self.fits, speed_up(self.step, self.cycle, self.tokens), 0.0) + 0.0

    @property
    def break_even(self) -> Number:
        """The acceptance from which it pays; nan where it never does. Tokens grow with acceptance."""
        needed = np.asarray(self.cycle / self.step, float)
        low, high = np.zeros_like(needed), np.ones_like(needed)
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            tokens = COUNTINGS[self.counting](self.window, branch_acceptance(middle, self.branches))
            enough = tokens >= needed
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        never = (needed > np.asarray(self.window) + 1.0) | ~np.asarray(self.fits, bool)
        return np.where(never, np.nan, np.where(needed <= 1.0, 0.0, high))


def quickest_plan(system: System, model: Model, batch: float, context: float, engine: Engine) -> Plan:
    """The legal plan that fits and decodes in the shortest step; the shortest of all where none fits."""
    every = plans(int(float(system.devices)), model, freely=False)
    box = evaluate(system, model, decode(batch, context), every, engine)
    step = np.broadcast_to(np.asarray(box.metrics.step_time, float), box.shape)
    fits = np.broadcast_to(np.asarray(box.fits, bool), box.shape)
    ranked = np.where(fits, step, step + 1e6 * np.max(step))
    one: Plan = take(every, (int(np.argmin(ranked)),), 1)
    return map_leaves(float, one)


def speculate(
    system: System,
    model: Model,
    draft: Model,
    plan: Plan,
    *,
    batch: Number,
    context: Number,
    acceptance: Number,
    window: Number = 4.0,
    branches: Number = 1.0,
    engine: Engine | str = USUAL_SERVER,
    draft_plan: Plan | None = None,
    draft_system: System | None = None,
    counting: str = "independent",
) -> Speculation:
    """Decode with guesses of `draft`: `window` tokens deep, each with `branches` alternatives (1: a sequence,
    more: a tree).

    The draft runs on the same devices under its quickest plan unless told, and then both must fit their
    memory; or on `draft_system`, devices of its own. Rounds follow each other: guessing waits for the
    verdict. Sizes may be arrays. `counting`: one of acceptance.COUNTINGS.

    >>> import strata as st
    >>> target, draft = st.model("llama-3-70b"), st.model("llama-3.2-1b")
    >>> asked = {"batch": 1, "context": 2048, "acceptance": 0.8}
    >>> s = speculate(st.system("8xh200"), target, draft, st.plan(tp=8), **asked)
    >>> float(s.verified), round(float(s.tokens), 3), bool(s.speedup > 1.3)
    (5.0, 3.362, True)
    """
    check_drafting(window, branches, acceptance, counting)
    size = tree_size(np.asarray(branches, float), np.asarray(window, float))
    devices = draft_system or system
    if draft_plan is None and draft.name == model.name:
        draft_plan = plan  # a module of the model lies as the model does
    elif draft_plan is None:
        few, longest = float(np.min(np.asarray(batch))), float(np.max(np.asarray(context)))
        draft_plan = quickest_plan(devices, draft, few, longest, draft_engine(engine))
    plain = evaluate(system, model, decode(batch, context), plan, engine)
    verify = evaluate(system, model, decode(batch, context + size, tokens=size + 1.0), plan, engine)
    guessing = evaluate(devices, draft, decode(batch, context), draft_plan, engine)
    guess = draft_time(
        devices, draft, draft_plan, engine, batch=batch, context=context, window=window, branches=branches
    )
    beside = 0.0 if draft_system is not None else guessing.metrics.memory_used - guessing.engine.reserve
    used = verify.metrics.memory_used + beside
    return Speculation(
        target=plain,
        draft=guessing,
        window=window,
        branches=branches,
        acceptance=acceptance,
        step=plain.metrics.step_time,
        guess=guess,
        verify=verify.metrics.step_time,
        verified=size + 1.0,
        fits=plain.fits & verify.fits & guessing.fits & (used <= verify.metrics.memory_limit),
        memory=used,
        counting=counting,
    )


def draft_model(name: str, target: Model) -> Model:
    """The draft of a name; `mtp`: the target's module, a layer like its last, embedding and head."""
    if name != MTP:
        return make_model(name)
    return replace(target, pattern=Pattern((), 0.0, (target.pattern.period[-1],), 1.0))


def named_drafting(name: str, target: Model, **shape: Any) -> Drafting:
    """Guesses of a draft of that name, as `Drafting` is told; of the target's own module (`mtp`) one token
    ahead unless told.

    >>> from strata.workload.model import model
    >>> round(named_drafting("mtp", model("deepseek-v3"), acceptance=0.8, window=2.0).tokens, 3)
    2.44
    """
    return Drafting(draft_model(name, target), **({"window": 1.0} if name == MTP else {}) | shape)


def draft_engine(engine: Engine | str) -> Engine:
    """The engine as a draft knows it: once a round, for the target, the host schedules and sends tokens."""
    target = as_engine(engine)
    return replace(target, host_step=0.0, step_gap=0.0, sequence_gap=0.0)


def draft_time(
    system: System,
    draft: Model,
    plan: Plan,
    engine: Engine | str,
    *,
    batch: Number,
    context: Number,
    window: Number,
    branches: Number,
) -> Number:
    """Time of all levels of a guess [s]: one token of each sequence, then all its branches, and so on."""
    total: Any = 0.0
    deepest = int(np.max(np.asarray(window)))
    single = bool(np.all(np.asarray(branches) == 1))
    for level in range(1 if single else deepest):
        width = np.asarray(branches, float) ** np.minimum(level, np.asarray(window) - 1.0)
        time = evaluate(
            system, draft, decode(batch, context + level, tokens=width), plan, draft_engine(engine)
        ).metrics.step_time
        total = total + np.where(level < np.asarray(window), time, 0.0)
    return total * window if single else total


def best_window(system: System, model: Model, draft: Model, plan: Plan, **options: Any) -> Speculation:
    """The guess with the fastest window of 1 to 12, for one acceptance, batch and number of branches."""
    branches = float(options.get("branches", 1.0))
    deepest = next(w for w in range(WINDOWS, 0, -1) if float(tree_size(branches, float(w))) <= 4096)
    every = speculate(system, model, draft, plan, **{**options, "window": np.arange(1.0, deepest + 1.0)})
    best = 1.0 + float(np.argmin(every.tpot))
    return speculate(system, model, draft, plan, **{**options, "window": best})
