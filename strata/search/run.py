"""The loop of a search: rounds of work asked by a sampler, done by an executor, kept on disk."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from strata.base.calls import checked_class
from strata.base.errors import StrataError, require
from strata.search.executors import PointsWork
from strata.search.goal import GOAL_METRICS, Goal
from strata.search.goal import goal as make_goal
from strata.search.outcome import Progress, SearchOutcome
from strata.search.points import Evaluated, concatenate_points
from strata.search.samplers import Sampler, sampler_class
from strata.search.space import Space
from strata.search.space import space as make_space
from strata.search.store import Store, fingerprint

WRITTEN = "written_rounds"  # in a saved state: the rounds on disk by then, and their rows


@checked_class
class Search:
    """A search round by round: `rounds()` runs it, `outcome()` says what it found so far."""

    checkpoint = 5.0  # seconds between states that a sampler saves: what a kill may cost

    def __init__(
        self,
        space: Space | str,
        goal: Goal | str | Iterable[str] = "tokens_per_s",
        *,
        limits: Mapping[str, str] | Iterable[str] = (),
        sampler: str = "exact",
        executor: str = "one",
        workers: int = 0,
        address: str = "",
        budget: int | None = None,
        gap: float | None = None,
        seed: int = 0,
        out: Path | str | None = None,
        resume: bool = False,
    ):
        # processes and all: a tenth of a second that only a search pays
        from strata.search.executors import open_executor

        self.space = make_space(space) if isinstance(space, str) else space
        self.goal = goal if isinstance(goal, Goal) else make_goal(goal, limits)
        require(not (isinstance(goal, Goal) and limits), "limits belong to the goal where it is one already")
        phase = self.space.scenario.phase
        for metric in (*self.goal.metrics, *self.goal.limits):
            has = phase in GOAL_METRICS[metric].phases
            require(has, f"a step of {phase} has no {GOAL_METRICS[metric].label}", metric=metric)
        require(gap is None or gap >= 0, "a gap is zero or more", gap=gap)
        require(out is not None or not resume, "to resume a study, say where it is: --out FOLDER")
        require(seed >= 0, "a seed is a whole number, not negative", seed=seed)
        options = {} if budget is None else {"budget": budget}
        self._new_sampler = lambda: sampler_class(sampler)(self.space, self.goal, seed, **options)
        self._asked_gap = gap
        self.sampler = self._fresh_sampler()
        self.gap: float = self.sampler.gap if gap is None else gap
        self.resume = resume
        self.executor = open_executor(executor, self.space, workers, address)
        self.store = None if out is None else Store(out)
        self._asked = {"sampler": sampler, "seed": seed, "budget": budget, "gap": self.gap}
        self._frontier: Evaluated | None = None
        self._kept: list[Evaluated] = []
        self._counts: Counter[str] = Counter()
        self._rounds = self._rows = self._old = 0
        self._parts: dict[int, int] = {}  # rounds on disk, and their rows
        self.notes: list[str] = []  # what a user should know of how the study was taken up
        self._gaps: list[tuple[float, float]] = []  # seconds and gap after each round
        self._started, self._ended = time.perf_counter(), "stopped"

    def rounds(self) -> Iterator[Progress]:
        """Run to the end, with word after each round; who stops listening stops it, what is stored stays."""
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
        self._old = self._rows + self.sampler.bounded
        with self.executor as run:
            while not self._near() and (works := self.sampler.ask()):
                evaluated = self.sampler.tell(run(works))
                self._note(evaluated)
                if self.store is None:
                    self._kept += [evaluated] if evaluated is not None else []
                elif evaluated is not None and len(evaluated):
                    self.store.write(self._rounds, self.space, evaluated)
                    self._parts[self._rounds] = len(evaluated)
                if time.perf_counter() - last >= self.checkpoint:
                    self._save(self._rounds)
                    last = time.perf_counter()
                self._rounds += 1
                yield self.progress()
        stopped = self._near() and self._proven()[2] > 0 and len(self.goal.metrics) == 1
        self._ended = "within the gap" if stopped else "finished"
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
        own = evaluated.take(self.goal.frontier(evaluated))
        both = own if self._frontier is None else concatenate_points([self._frontier, own])
        order = np.flatnonzero(self.goal.frontier(both))
        self._frontier = both.take(order[np.argsort(-self.goal.scores(both)[order, 0], kind="stable")])

    def manifest(self) -> dict[str, Any]:
        """What makes this study: its inputs, resolved, and their hashes."""
        from importlib.metadata import PackageNotFoundError, version

        scenario = self.space.scenario
        records: dict[str, Any] = {
            "model": scenario.base_model,
            "system": scenario.base_system,
            "engine": scenario.base_engine,
        }
        records |= {f"fabric {name}": scenario.fabric_named(name) for name in scenario.fabrics}
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
        if self.store is not None and self.sampler.saves and number >= 0:
            parts = np.array(list(self._parts.items()), np.int64).reshape(-1, 2)
            self.store.save(number, {**self.sampler.save(), WRITTEN: parts})

    def _fresh_sampler(self) -> Sampler:
        made: Sampler = self._new_sampler()
        if self._asked_gap is not None:
            made.gap = self._asked_gap
        return made

    def _take_up(self, store: Store) -> None:
        """Bring the sampler to the end of whole rounds; what is missing or broken is done again."""
        before = set(store.rounds())
        if self.sampler.saves:
            self._restore(store)
        else:
            for number, stored in enumerate(store.read_rounds(itertools.count(), self.space)):
                self._replay(stored, number)
        store.forget(after=self._rounds - 1)
        lost = sorted(before - set(store.rounds()))
        if lost:
            self.notes.append(f"rounds from {lost[0]} on were not whole and are done again")

    def _restore(self, store: Store) -> None:
        """Go on from the latest state whose rounds are all there, each with its rows; else from the start."""
        for number, state in store.saved():
            try:
                written = {int(n): int(rows) for n, rows in state.pop(WRITTEN)}
                stored = list(store.read_rounds(written, self.space))
                if [len(part) for part in stored] != list(written.values()):
                    continue
                self.sampler.restore(state)
            except (KeyError, ValueError, TypeError, IndexError):  # not what a sampler of this study saved
                self.sampler = self._fresh_sampler()
                continue
            for part in stored:
                self._note(part)
            self._parts, self._rounds = written, number + 1
            return

    def _replay(self, stored: Evaluated, number: int) -> None:
        works = self.sampler.ask()
        require(
            all(isinstance(w, PointsWork) for w in works),
            "a sampler that asks for more than points saves its state",
        )
        asked = [w.digits for w in works if isinstance(w, PointsWork)]
        same = bool(asked) and np.array_equal(np.concatenate(asked), stored.digits)
        if not same:
            raise StrataError(
                f"round {number} of the study holds other points than the sampler asks for now;"
                " start the search anew in another folder"
            )
        cuts = np.cumsum([0, *(len(a) for a in asked)])
        self._note(self.sampler.tell([stored.take(slice(a, b)) for a, b in pairwise(cuts)]))
        self._rounds += 1

    def _proven(self) -> tuple[float, float, float]:
        """Best and bound as values of the first metric, and how far apart they are as a share of the best.

        Of several metrics there is no one bound: the gap is that within which no design passes the frontier,
        known when no region is open.
        """
        front, unknown = self._frontier, float("nan")
        best = float(self.goal.scores(front)[0, 0]) if front is not None and len(front) else unknown
        if len(self.goal.metrics) > 1:  # known once a sampler has ruled out or evaluated all regions
            return self.goal.value(best), unknown, self.sampler.gap if self.sampler.complete else unknown
        bound = unknown if self.sampler.bound is None else float(self.sampler.bound)
        gap = max(bound - best, 0.0) / abs(best) if best else float("nan")
        return self.goal.value(best), self.goal.value(bound), gap

    def progress(self) -> Progress:
        best, bound, gap = self._proven()
        seconds = time.perf_counter() - self._started
        rate = (self._rows + self.sampler.bounded - self._old) / max(seconds, 1e-9)
        self._gaps.append((seconds, gap))
        left = self._left(seconds, rate)
        return Progress(
            rounds=self._rounds,
            rows=self._rows,
            best=best,
            bound=bound,
            gap=gap,
            open=self.sampler.open,
            seconds=seconds,
            rate=rate,
            left=left,
            bounded=self.sampler.bounded,
        )

    def _left(self, seconds: float, rate: float) -> float:
        """Seconds until the end: what the budget leaves at this rate; of a proof, when the gap closes if it
        shrinks as in the last half of the time.
        """
        if self.sampler.bound is None:
            left = min(self.sampler.budget, self.space.size) - self._rows
            return left / rate if rate > 0 else float("nan")
        _, now = self._gaps[-1]
        since, before = next(
            ((t, g) for t, g in self._gaps if t >= seconds / 2 and g > 0), (seconds, float("nan"))
        )
        if not (self.gap > 0 and before > now > self.gap and seconds > since):
            return float("nan")
        return float(np.log(now / self.gap) / np.log(before / now) * (seconds - since))

    def outcome(self) -> SearchOutcome:
        _, bound, gap = self._proven()
        frontier = self._frontier
        if frontier is None:
            frontier = Evaluated(np.empty((0, len(self.space.axes)), int), {}, np.empty(0, int))
        return SearchOutcome(
            space=self.space,
            goal=self.goal,
            frontier=frontier,
            rows=self._rows,
            bound=bound,
            gap=gap,
            counts=dict(self._counts.most_common()),
            rounds=self._rounds,
            seconds=time.perf_counter() - self._started,
            ended=self._ended,
            out=None if self.store is None else self.store.folder,
            kept=tuple(self._kept),
            notes=tuple(self.notes),
        )


def search(
    space: Space | str,
    goal: Goal | str | Iterable[str] = "tokens_per_s",
    on_progress: Callable[[Progress], Any] | None = None,
    **options: Any,
) -> SearchOutcome:
    """Search a space of designs for a goal. Options are those of `Search`: limits, sampler, executor,
    workers, budget, gap, seed, out, resume.

    >>> import strata as st
    >>> found = search("next-node", "tokens_per_s", limits=["tpot <= 20 ms"], sampler="random", budget=3000)
    >>> found.rows, found.best["metrics"]["tpot"] <= 0.02
    (3000, True)
    """
    running = Search(space, goal, **options)
    for progress in running.rounds():
        if on_progress is not None:
            on_progress(progress)
    return running.outcome()
