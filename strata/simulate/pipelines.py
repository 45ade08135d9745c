"""Micro-batches through a pipeline as tasks: after the pass before on the device, and after their data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from strata.base.errors import BadValue, require
from strata.simulate.events import NO_WORK, Schedule, Task, TaskWork, run_tasks
from strata.simulate.orders import Order, Pass, device_orders

KINDS = {"F": "forward", "B": "backward", "W": "weight", "D": "backward", "O": "both"}


@dataclass(frozen=True, kw_only=True)
class StageTimes:
    """Times of the model's chunks for one micro-batch, first chunk first [s]: one or several a stage."""

    forward: tuple[float, ...]
    inputs: tuple[float, ...]  # gradients to inputs, with what is recomputed for them
    weights: tuple[float, ...]  # gradients to weights
    send: float = 0.0  # activations to the next chunk, on the link between their stages
    send_back: float = 0.0  # their gradients
    saved: float = 0.0  # DualPipe: by a forward beside a backward pass, over one after the other

    @property
    def chunks(self) -> int:
        return len(self.forward)

    def __post_init__(self) -> None:
        require(
            len(self.forward) == len(self.inputs) == len(self.weights) > 0,
            "forward, inputs and weights must name the same chunks",
            given=(len(self.forward), len(self.inputs), len(self.weights)),
        )


@dataclass(frozen=True)
class Segment:
    """A part of a pass: on the cores of its stage, or on a link of it."""

    name: str
    duration: float
    resources: tuple[str, ...] = ()  # beside its stage's cores; instead of them where `on_link`
    on_link: bool = False
    beside: bool = False  # it starts with its group, which others run through meanwhile
    detached: bool = False  # nothing of its pass waits for it: others on its link go first
    kind: str = ""
    work: TaskWork = NO_WORK


Groups = list[list[Segment]]  # one after the other; the next starts when all of one has ended


@dataclass(frozen=True)
class Pipeline:
    """A schedule as tasks, with the resources they need: cores of stages and links between them."""

    schedule: str
    stages: int
    tasks: tuple[Task, ...]
    resources: tuple[str, ...] = field(repr=False)
    ends: tuple[str, ...] = ()  # the last pass of each stage, and what nothing waited for

    def run(self) -> Schedule:
        return run_tasks(self.tasks, self.resources)


def pipeline_tasks(
    schedule: str,
    times: StageTimes,
    stages: int,
    microbatches: int,
    *,
    parts: Callable[[Pass, int], Groups] | None = None,
) -> Pipeline:
    """A training step of so many micro-batches through a pipeline, as tasks. `parts` says of what a pass on a
    device consists, where it is not one task.

    >>> times = StageTimes(forward=(1.0,) * 4, inputs=(1.0,) * 4, weights=(1.0,) * 4)
    >>> [pipeline_tasks(name, times, 4, 8).run().time for name in ("gpipe", "1f1b", "zero-bubble")]
    [33.0, 33.0, 27.0]
    """
    whole = stages >= 1 and microbatches >= 1 and times.chunks % stages == 0
    require(
        whole,
        "a pipeline has stages, micro-batches, and chunks of the model in multiples of its stages",
        stages=stages,
        microbatches=microbatches,
        chunks=times.chunks,
    )
    virtual = times.chunks // stages
    if virtual > 1 and schedule != "interleaved":
        raise BadValue(f"schedule {schedule} takes one chunk of the model a stage, but got {virtual}")
    made = _Tasks(times, stages, parts, half=microbatches // 2 if schedule == "dualpipe" else 0)
    for device, order in enumerate(device_orders(schedule, stages, microbatches, virtual)):
        made.add(device, order)
    return made.pipeline(schedule)


def forward_tasks(
    times: StageTimes,
    stages: int,
    microbatches: int,
    *,
    rounds: int = 1,
    parts: Callable[[Pass, int], Groups] | None = None,
) -> Pipeline:
    """Forward passes alone; in each further round a micro-batch enters again once it has left (decoding).

    >>> times = StageTimes(forward=(1.0, 2.0), inputs=(0.0, 0.0), weights=(0.0, 0.0))
    >>> [forward_tasks(times, 2, 1, rounds=n).run().time for n in (1, 2)]
    [3.0, 6.0]
    """
    made = _Tasks(times, stages, parts)
    for device in range(stages):
        order = [Pass("F", i, device) for i in range(rounds * microbatches)]
        made.add(device, order, again=microbatches)
    return made.pipeline("forward")


class _Tasks:
    """Tasks of passes: each after the one before it on its device, and after what it takes in has come."""

    def __init__(
        self,
        times: StageTimes,
        stages: int,
        parts: Callable[[Pass, int], Groups] | None = None,
        half: int = 0,
    ) -> None:
        self.times, self.stages, self.half = times, stages, half
        self.parts = parts or self._whole
        self.tasks: list[Task] = []
        self.ends: list[str] = []

    def pipeline(self, schedule: str) -> Pipeline:
        cores = [f"stage {s}" for s in range(self.stages)]
        resources = tuple(dict.fromkeys([*cores, *sorted({r for t in self.tasks for r in t.resources})]))
        return Pipeline(schedule, self.stages, tuple(self.tasks), resources, tuple(self.ends))

    def add(self, device: int, order: Order, again: int = 0) -> None:
        before: list[str] = []
        for p in order:
            inner = [Pass("F", p.microbatch, p.chunk), p.beside] if p.beside else [p]
            needs = [name for one in inner for name in self._needs(one, again)]
            groups = [group for one in inner for group in self.parts(one, device)]
            if self.parts == self._whole:
                groups = [[self._joined(p, groups)]]
            self._chain(p, groups, [*before, *needs], device)
            self.tasks += [sent for one in inner for sent in self._sends(one, p.name, device)]
            before = [p.name]
        self.ends += before

    def _chain(self, p: Pass, groups: Groups, start: list[str], device: int) -> None:
        """The parts of a pass: groups one after the other, what runs beside starts with its group."""
        cores = f"stage {device}"
        last = groups[-1][-1] if groups and groups[-1] else None
        single = len(groups[-1]) == 1 if last else False
        tail = start
        for group in groups:
            chain, open_ends = tail, []
            for s in group:
                name = p.name if single and s is last else f"{p.name}/{s.name}"
                held = s.resources if s.on_link else (cores, *s.resources)
                after = tuple(dict.fromkeys(tail if s.beside else chain))
                self.tasks.append(
                    Task(
                        name=name,
                        duration=s.duration,
                        resources=held,
                        after=after,
                        priority=1.0 if s.detached else 0.0,
                        track=held[0] if held else "",
                        kind=s.kind,
                        work=s.work,
                    )
                )
                if s.detached:
                    self.ends.append(name)
                elif s.beside:
                    open_ends.append(name)
                else:
                    chain = [name]
            tail = [*(chain if chain is not tail or not open_ends else []), *open_ends]
        if not single:
            self.tasks.append(Task(name=p.name, duration=0.0, after=tuple(dict.fromkeys(tail)), kind="order"))

    def _whole(self, p: Pass, device: int) -> Groups:
        t, c = self.times, p.chunk
        every = {"F": t.forward[c], "B": t.inputs[c], "W": t.weights[c], "D": t.inputs[c] + t.weights[c]}
        return [[Segment(p.what, every[p.what], kind=KINDS[p.what])]]

    def _joined(self, p: Pass, groups: Groups) -> Segment:
        """Passes that run beside each other as one."""
        time = sum(s.duration for group in groups for s in group)
        return Segment(p.what, max(time - (self.times.saved if p.beside else 0.0), 0.0), kind=KINDS[p.what])

    def _device_of(self, microbatch: int, chunk: int) -> int:
        if self.half and microbatch >= self.half:
            return self.stages - 1 - chunk
        return chunk % self.stages

    def _needs(self, p: Pass, again: int) -> Iterator[str]:
        """What a pass takes in: it comes from the chunk before, or, backward, from the one behind."""
        last = self.times.chunks - 1
        if p.what == "F" and p.chunk:
            yield f"to F{p.microbatch}.{p.chunk}"
        elif p.what == "F" and again and p.microbatch >= again:
            yield f"F{p.microbatch - again}.{last}"
        elif p.what in "BD" and p.chunk < last:
            yield f"to B{p.microbatch}.{p.chunk}"
        # the last chunk turns round: its forward pass stands before in its own order

    def _sends(self, p: Pass, task: str, device: int) -> Iterator[Task]:
        step = {"F": 1, "B": -1, "D": -1}.get(p.what, 0)
        if not step or not 0 <= p.chunk + step < self.times.chunks:
            return
        other = self._device_of(p.microbatch, p.chunk + step)
        time = self.times.send if step > 0 else self.times.send_back
        crosses = other != device and time > 0.0
        link = (f"link {device}>{other}",) if crosses else ()
        yield Task(
            name=f"to {'F' if step > 0 else 'B'}{p.microbatch}.{p.chunk + step}",
            duration=time if crosses else 0.0,
            resources=link,
            after=(task,),
            track=link[0] if link else "",
            kind="send" if crosses else "order",
        )
