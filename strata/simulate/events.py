"""Tasks on resources: what runs when, found by an event queue (simpy), the same every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any

from strata.base.errors import BadValue, UnknownName, require


@dataclass(frozen=True)
class TaskWork:
    """What a task does on its device, as far as it is known."""

    flop: float = 0.0
    memory_bytes: float = 0.0  # of DRAM
    energy: float = 0.0  # beside static power [J]


NO_WORK = TaskWork()


@dataclass(frozen=True, kw_only=True)
class Task:
    """One piece of work: how long, on which resources (all at once), and after which other tasks."""

    name: str
    duration: float  # [s]
    resources: tuple[str, ...] = ()  # the cores of a stage, its DRAM, a link
    after: tuple[str, ...] = ()
    priority: float = 0.0  # the lower the sooner, of tasks that hold resources
    track: str = ""  # the line of a picture it stands on; its first resource where none is named
    kind: str = ""  # its colour in a picture: forward, backward, weight, send, collective, ...
    work: TaskWork = NO_WORK


@dataclass(frozen=True)
class ScheduledTask:
    """A task with when it ran."""

    task: Task
    start: float
    end: float

    @property
    def track(self) -> str:
        return self.task.track or (self.task.resources[0] if self.task.resources else "order")


@dataclass(frozen=True)
class Schedule:
    """When every task ran, in the order of their starts."""

    tasks: tuple[ScheduledTask, ...]
    resources: tuple[str, ...] = ()

    @property
    def time(self) -> float:
        """End of the last task [s]."""
        return max((t.end for t in self.tasks), default=0.0)

    @cached_property
    def by_name(self) -> dict[str, ScheduledTask]:
        return {t.task.name: t for t in self.tasks}

    @cached_property
    def busy(self) -> dict[str, float]:
        """Time that tasks spend on each resource [s]."""
        spent = dict.fromkeys(self.resources, 0.0)
        for t in self.tasks:
            for name in t.task.resources:
                spent[name] += t.task.duration
        return spent

    def utilisation(self) -> dict[str, float]:
        """Busy share of each resource over the whole schedule."""
        whole = self.time
        return {name: self.busy[name] / whole if whole else 0.0 for name in self.resources}


def run_tasks(tasks: Sequence[Task], resources: Iterable[str]) -> Schedule:
    """Run tasks on resources, each of which serves one at a time: a task starts when what it comes after has
    ended and all its resources are free.

    Of tasks that are ready at one time the more urgent goes first, then the one that has been ready longer,
    then the one listed first. A task that waits for one resource holds none of the others, so nothing can
    lock up; nothing is broken off once it runs.

    >>> two = [Task(name="a", duration=2.0, resources=("core",)),
    ...     Task(name="b", duration=1.0, resources=("link",), after=("a",)),
    ...     Task(name="c", duration=2.0, resources=("core",))]
    >>> [(t.task.name, t.start, t.end)
    ...     for t in run_tasks(two, ["core", "link"]).tasks]
    [('a', 0.0, 2.0), ('b', 2.0, 3.0), ('c', 2.0, 4.0)]
    """
    known = tuple(dict.fromkeys(resources))
    check_tasks(tasks, known)
    return Schedule(tuple(_Run(tasks).scheduled()), known)


def check_tasks(tasks: Sequence[Task], resources: tuple[str, ...]) -> None:
    """One line where tasks name what is not there, wait for each other in a circle, or have no time."""
    twice = [name for name, count in Counter(t.name for t in tasks).items() if count > 1]
    require(not twice, "every task must have a name of its own", twice=twice[:3])
    names = {t.name for t in tasks}
    for t in tasks:
        if not 0.0 <= t.duration < float("inf"):
            raise BadValue(
                f"task '{t.name}' must have a duration of at least 0 s, but it has {t.duration:g} s"
            )
        for name in t.resources:
            if name not in resources:
                raise UnknownName(f"resource of task '{t.name}'", name, resources)
        for name in t.after:
            if name not in names:
                raise UnknownName(f"task that '{t.name}' comes after", name, names)
    circle = _circle(tasks)
    if circle:
        raise BadValue(f"tasks wait for each other in a circle: {' > '.join(circle)}")


def _circle(tasks: Sequence[Task]) -> list[str]:
    """Tasks that come after each other all the way round, or none."""
    try:
        TopologicalSorter({t.name: t.after for t in tasks}).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1][:-1]
        first = circle.index(min(circle))
        return [*circle[first:], *circle[: first + 1]]
    return []


class _Run:
    """The event queue of one run. Ends at one time are all seen before anything starts."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        import simpy

        self.queue = simpy.Environment(initial_time=0.0)
        self.tasks, self.held = tasks, set[str]()  # resources of the tasks that run
        self.place = {t.name: i for i, t in enumerate(tasks)}
        self.waits = [len(set(t.after)) for t in tasks]
        self.next_of: list[list[int]] = [[] for _ in tasks]
        for i, t in enumerate(tasks):
            for name in set(t.after):
                self.next_of[self.place[name]].append(i)
        # waiting tasks by the resources they need: only those whose resources are free are looked at
        self.ready: dict[tuple[str, ...], list[tuple[float, float, int]]] = {}
        self.starts, self.ends = [0.0] * len(tasks), [0.0] * len(tasks)
        self.asked = False

    def scheduled(self) -> Iterator[ScheduledTask]:
        for i, waits in enumerate(self.waits):
            if not waits:
                self._wait(i)
        self._start_what_can()
        self.queue.run()
        order = sorted(range(len(self.tasks)), key=lambda i: (self.starts[i], i))
        return (ScheduledTask(self.tasks[i], self.starts[i], self.ends[i]) for i in order)

    def _wait(self, i: int) -> None:
        task = self.tasks[i]
        key = (task.priority if task.resources else 0.0, self.queue.now, i)
        self.ready.setdefault(task.resources, []).append(key)

    def _start_what_can(self) -> None:
        self.asked = False
        waiting = sorted(
            (key, needs) for needs, keys in self.ready.items() if self.held.isdisjoint(needs) for key in keys
        )
        for key, needs in waiting:
            if self.held.isdisjoint(needs):
                self.ready[needs].remove(key)
                self.queue.process(self._run(key[2]))
                self.held.update(needs)

    def _run(self, i: int) -> Generator[Any, Any, None]:
        task = self.tasks[i]
        self.starts[i] = self.queue.now
        yield self.queue.timeout(task.duration)
        self.ends[i] = self.queue.now
        self.held.difference_update(task.resources)
        for other in self.next_of[i]:
            self.waits[other] -= 1
            if not self.waits[other]:
                self._wait(other)
        if not self.asked:
            self.asked = True
            # at the same time, after every other end of this time
            self.queue.timeout(0.0).callbacks.append(lambda _: self._start_what_can())
