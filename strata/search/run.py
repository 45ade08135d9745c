"""The loop of a search: rounds of work asked by a sampler, done by an engine, kept on disk; the best, the
frontier and what is proven.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from strata.errors import StrataError, require
from strata.evaluate import evaluate
from strata.result import Result
from strata.search.goal import GOAL_UNITS, Goal, column
from strata.search.goal import goal as make_goal
from strata.search.points import Evaluated, joined, point_inputs
from strata.search.samplers import Sampler, sampler_class
from strata.search.sensitivity import Gain, axis_gains, sensitivity
from strata.search.space import Space
from strata.search.space import space as make_space
from strata.search.store import Store, fingerprint
from strata.search.work import Points


@dataclass(frozen=True)
class Progress:
    """Where a search stands after a round; `best` and `bound` are values of the first metric, nan where there
    is none.
    """

    rounds: int
    rows: int
    best: float
    bound: float
    gap: float
    open: int
    seconds: float
    rate: float  # rows and bounds a second of this run
    # seconds until the budget is spent or, by the trend of it, the gap is closed; nan where nothing says
    left: float
    bounded: int = 0  # bounds of regions priced so far


@dataclass(frozen=True)
class Outcome:
    """What a search found. `frontier` has the points that no other beats, the best of the first metric first:
    one point for one metric.
    """

    space: Space
    goal: Goal
    frontier: Evaluated
    rows: int
    bound: float
    gap: float
    counts: dict[str, int]  # points that are out, by all that they break
    rounds: int
    seconds: float
    ended: str  # finished, within the gap, or stopped before that
    out: Path | None = None
    kept: tuple[Evaluated, ...] = field(default=(), repr=False)

    @property
    def found(self) -> bool:
        return len(self.frontier) > 0

    @property
    def reasons(self) -> dict[str, tuple[int, int]]:
        """For each rule and limit how many points break it, and how many of them nothing else; the most
        broken first.
        """
        found: dict[str, tuple[int, int]] = {}
        for words, count in self.counts.items():
            broken = words.split("; ")
            for rule in broken:
                points, alone = found.get(rule, (0, 0))
                found[rule] = (points + count, alone + (count if len(broken) == 1 else 0))
        return dict(sorted(found.items(), key=lambda item: -item[1][0]))

    @property
    def best(self) -> dict[str, Any]:
        """The best point: what each axis chose (its label), what it delivers, and its number in the space; {}
        where none is legal.
        """
        return self.point(0) if self.found else {}

    def point(self, place: int) -> dict[str, Any]:
        """One point of the frontier."""
        digits = self.frontier.digits[place]
        chosen = {a.name: a.labels[int(d)] for a, d in zip(self.space.axes, digits, strict=True)}
        metrics = {name: float(values[place]) for name, values in self.frontier.columns.items()}
        metrics |= {m: float(column(self.frontier.columns, m)[place]) for m in self.goal.metrics}
        return {"index": int(self.space.index(digits)[0]), "design": chosen, "metrics": metrics}

    def result(self, place: int = 0) -> Result:
        """The full answer of a point of the frontier: bounds, timeline, notes."""
        require(self.found, "no point was found that fits and keeps the limits; outcome.counts says why")
        return evaluate(*point_inputs(self.space, self.frontier.digits[place : place + 1])).at(0)

    def gains(self, more: float = 0.1) -> tuple[list[Gain], list[Gain]]:
        """What so much more buys at the best point: of each numeric axis for the first metric, and of each
        resource in speed.
        """
        point = self.frontier.digits[0]
        return axis_gains(
            self.space, replace(self.goal, metrics=self.goal.metrics[:1]), point, more
        ), sensitivity(self.result(), more)

    def evaluated(self) -> Evaluated:
        """Every row of the study, from disk where it has a folder."""
        if self.out is None:
            return joined(list(self.kept)) if self.kept else self.frontier
        store = Store(self.out)
        return (
            joined([store.read(number, self.space) for number in store.rounds()])
            if store.rounds()
            else self.frontier
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain types."""
        return {
            "space": self.space.name,
            "size": self.space.size,
            "goal": self.goal.spec(),
            "best": self.best,
            "frontier": [self.point(i) for i in range(len(self.frontier))],
            "rows": self.rows,
            "bound": self.bound,
            "gap": self.gap,
            "out": sum(self.counts.values()),
            "out_by_reason": {
                rule: {"points": points, "alone": alone} for rule, (points, alone) in self.reasons.items()
            },
            "rounds": self.rounds,
            "seconds": self.seconds,
            "ended": self.ended,
            "folder": None if self.out is None else str(self.out),
            "units": {m: GOAL_UNITS[m] for m in self.goal.metrics},
        }


class Search:
    """A search that goes round by round: `rounds()` runs it, `outcome()` says what it found so far, whenever
    it is asked.
    """

    checkpoint = 5.0  # seconds between states that a sampler saves: what a kill may cost

    def __init__(
        self,
        space: Space | str,
        goal: Goal | str | Iterable[str] = "tokens_per_s",
        *,
        limits: Mapping[str, str] | Iterable[str] = (),
        sampler: str = "exact",
        engine: str = "one",
        workers: int = 0,
        address: str = "",
        budget: int | None = None,
        gap: float | None = None,
        seed: int = 0,
        out: Path | str | None = None,
        resume: bool = False,
    ):
        from strata.search.executors import (
            opened,  # processes and all: a tenth of a second that only a search pays
        )

        self.space = make_space(space) if isinstance(space, str) else space
        self.goal = goal if isinstance(goal, Goal) else make_goal(goal, limits)
        require(not (isinstance(goal, Goal) and limits), "limits belong to the goal where it is one already")
        require(gap is None or gap >= 0, "a gap is zero or more", gap=gap)
        require(out is not None or not resume, "to resume a study, say where it is: --out FOLDER")
        maker = sampler_class(sampler)
        options = {} if budget is None else {"budget": budget}
        self.sampler: Sampler = maker(self.space, self.goal, seed, **options)
        if gap is not None and hasattr(self.sampler, "gap"):
            setattr(self.sampler, "gap", gap)  # noqa: B010  (not every sampler has one)
        self.gap: float = getattr(self.sampler, "gap", 0.0) if gap is None else gap
        self.resume = resume
        self.engine = opened(engine, self.space, workers, address)
        self.store = None if out is None else Store(out)
        self._asked = {"sampler": sampler, "seed": seed, "budget": budget, "gap": self.gap}
        self._frontier: Evaluated | None = None
        self._kept: list[Evaluated] = []
        self._counts: Counter[str] = Counter()
        self._rounds = self._rows = self._old = 0
        self._gaps: list[tuple[float, float]] = []  # seconds and gap after each round
        self._started, self._ended = time.perf_counter(), "stopped"

    # ------------------------------------------------------------------------------------------ running

    def rounds(self) -> Iterator[Progress]:
        """Run to the end, with word after each round. Whoever stops listening stops the search; what was
        stored stays.
        """
        self._started = time.perf_counter()
        if self.store is None:
            yield from self._run()
            return
        with self.store.locked():
            self.store.begin(self.manifest(), self.resume)
            self._take_up(self.store)
            yield from self._run()

    def _run(self) -> Iterator[Progress]:
        last = time.perf_counter()
        self._old = self._rows + self._bounded()
        with self.engine as run:
            while not self._near() and (works := self.sampler.ask()):
                evaluated = self.sampler.tell(run(works))
                self._note(evaluated)
                if self.store is None:
                    self._kept += [evaluated] if evaluated is not None else []
                elif evaluated is not None and len(evaluated):
                    self.store.write(self._rounds, self.space, evaluated)
                if time.perf_counter() - last >= self.checkpoint:
                    self._save(self._rounds)
                    last = time.perf_counter()
                self._rounds += 1
                yield self.progress()
        self._ended = "within the gap" if self._near() and self._proven()[2] > 0 else "finished"
        self._save(self._rounds - 1)

    def _near(self) -> bool:
        """Whether what is proven is near enough to what is found."""
        _, _, gap = self._proven()
        return gap <= self.gap

    def _note(self, evaluated: Evaluated | None) -> None:
        if evaluated is None or not len(evaluated):
            return
        self._rows += len(evaluated)
        self._counts.update(str(words) for words in self.goal.reasons(evaluated) if words)
        scores = self.goal.scores(evaluated)
        own = evaluated.take(self.goal.frontier(scores))
        both = own if self._frontier is None else joined([self._frontier, own])
        kept = self.goal.frontier(self.goal.scores(both))
        order = np.flatnonzero(kept)
        self._frontier = both.take(order[np.argsort(-self.goal.scores(both)[order, 0], kind="stable")])

    # ------------------------------------------------------------------------------------------ keeping and
    # taking up

    def manifest(self) -> dict[str, Any]:
        """What makes this study: its inputs, resolved, and their hashes."""
        from importlib.metadata import PackageNotFoundError, version

        question = self.space.question
        records: dict[str, Any] = {
            "model": question.spoken,
            "system": question.base,
            "engine": question.software,
        }
        records |= {f"fabric {name}": question.on(name) for name in question.fabrics}
        try:
            release = version("strata")
        except PackageNotFoundError:
            release = "not installed"
        return {
            "space": {"name": self.space.name, "hash": self.space.hash, "spec": self.space.spec()},
            "goal": self.goal.spec(),
            **self._asked,
            "version": release,
            "files": {name: fingerprint(record) for name, record in records.items()},
        }

    def _save(self, number: int) -> None:
        if self.store is not None and hasattr(self.sampler, "save") and number >= 0:
            self.store.save(number, self.sampler.save())

    def _take_up(self, store: Store) -> None:
        """Bring the sampler to where the stored rounds end."""
        if not hasattr(self.sampler, "restore"):
            for number in store.rounds():
                if number != self._rounds:  # a part is missing: what follows it is done again
                    break
                self._replay(store.read(number, self.space), number)
            store.drop(after=self._rounds - 1)
            return
        found = store.saved()
        last = -1 if found is None else found[0]
        store.drop(after=last)
        for number in store.rounds():
            self._note(store.read(number, self.space))
        if found is not None:
            self.sampler.restore(found[1])
        self._rounds = last + 1

    def _replay(self, stored: Evaluated, number: int) -> None:
        works = self.sampler.ask()
        require(
            all(isinstance(w, Points) for w in works),
            "a sampler that asks for more than points saves its state",
        )
        asked = [w.digits for w in works if isinstance(w, Points)]
        same = bool(asked) and np.array_equal(np.concatenate(asked), stored.digits)
        if not same:
            raise StrataError(
                f"round {number} of the study holds other points than the sampler asks for now; start the search anew in another folder"
            )
        cuts = np.cumsum([0, *(len(a) for a in asked)])
        self._note(self.sampler.tell([stored.take(slice(a, b)) for a, b in pairwise(cuts)]))
        self._rounds += 1

    # ------------------------------------------------------------------------------------------ saying

    def _proven(self) -> tuple[float, float, float]:
        """Best and bound as values of the first metric, and how far apart they are as a share of the best."""
        found = self._frontier is not None and len(self._frontier) > 0
        best = (
            float(self.goal.scores(self._frontier)[0, 0])
            if found and self._frontier is not None
            else float("nan")
        )
        bound = (
            float(getattr(self.sampler, "bound", float("nan")))
            if len(self.goal.metrics) == 1
            else float("nan")
        )
        gap = max(bound - best, 0.0) / abs(best) if best else float("nan")
        return self.goal.value(best), self.goal.value(bound), gap

    def _bounded(self) -> int:
        return int(getattr(self.sampler, "bounded", 0))

    def progress(self) -> Progress:
        best, bound, gap = self._proven()
        seconds = time.perf_counter() - self._started
        rate = (self._rows + self._bounded() - self._old) / max(seconds, 1e-9)
        self._gaps.append((seconds, gap))
        left = self._left(seconds, rate)
        return Progress(
            self._rounds,
            self._rows,
            best,
            bound,
            gap,
            int(getattr(self.sampler, "open", 0)),
            seconds,
            rate,
            left,
            self._bounded(),
        )

    def _left(self, seconds: float, rate: float) -> float:
        """Seconds until the end: what the budget leaves at this rate; of a proof, when the gap closes if it
        shrinks as in the last half of the time.
        """
        if not hasattr(self.sampler, "bound"):
            budget = getattr(self.sampler, "budget", None)
            return (
                (min(budget, self.space.size) - self._rows) / rate
                if budget is not None and rate > 0
                else float("nan")
            )
        _, now = self._gaps[-1]
        since, before = next(
            ((t, g) for t, g in self._gaps if t >= seconds / 2 and g > 0), (seconds, float("nan"))
        )
        if not (self.gap > 0 and before > now > self.gap and seconds > since):
            return float("nan")
        return float(np.log(now / self.gap) / np.log(before / now) * (seconds - since))

    def outcome(self) -> Outcome:
        _, bound, gap = self._proven()
        frontier = self._frontier
        if frontier is None:
            frontier = Evaluated(np.empty((0, len(self.space.axes)), int), {}, np.empty(0, int))
        seconds = time.perf_counter() - self._started
        out = None if self.store is None else self.store.folder
        counts = dict(self._counts.most_common())
        return Outcome(
            self.space,
            self.goal,
            frontier,
            self._rows,
            bound,
            gap,
            counts,
            self._rounds,
            seconds,
            self._ended,
            out,
            tuple(self._kept),
        )


def search(
    space: Space | str,
    goal: Goal | str | Iterable[str] = "tokens_per_s",
    on_progress: Callable[[Progress], Any] | None = None,
    **options: Any,
) -> Outcome:
    """Search a space of designs for a goal. Options are those of `Search`: limits, sampler, engine, budget,
    gap, seed, out, resume.

    >>> import strata as st
    >>> found = search("next-node", "tokens_per_s", limits=["tpot <= 20 ms"], sampler="random", budget=3000)
    >>> found.rows, found.best["metrics"]["tpot"] <= 0.02
    (3000, True)
    """
    looking = Search(space, goal, **options)
    for progress in looking.rounds():
        if on_progress is not None:
            on_progress(progress)
    return looking.outcome()
