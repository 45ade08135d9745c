"""A step of an evaluated point as events, and why its time differs from the closed form's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from strata.base.batch import as_float64_box
from strata.base.errors import BadValue, UnknownName, require
from strata.base.records import Tabular, row_columns
from strata.base.rich_html import display_html, rich_cards, table_html
from strata.base.units import show
from strata.case import Case
from strata.evaluate import evaluate_case, pricing_of
from strata.mapping.training_plan import SCHEDULE
from strata.pricing.pipeline_schedules import (
    SCHEDULES,
    bubble_share,
    filled_time,
    listed_passes,
    waits_for_hand_overs,
)
from strata.pricing.pricers import Structure
from strata.pricing.stage_costs import held_by_messages
from strata.result import Result
from strata.simulate.events import Schedule, Task, run_tasks
from strata.simulate.gantt import by_place, gantt_html, gantt_inline, gantt_svg, perfetto_json
from strata.simulate.orders import Pass, device_orders
from strata.simulate.passes import Parts, StepPasses, step_passes
from strata.simulate.pipelines import Groups, Pipeline, Segment, StageTimes, forward_tasks, pipeline_tasks

MOST_TASKS = 20_000  # of a simulation that chooses its detail itself: about two seconds
MOST_DRAWN = 2_000  # tasks of a chart in a notebook
ROUNDS = 4  # of decoding, of which the last is looked at: the first fill the pipeline


@dataclass(frozen=True, eq=False, repr=False)
class Simulation(Tabular):
    """A simulated step: when every task ran, how busy resources were, and what the closed form says."""

    title: str
    schedule: str
    time: float  # of the step [s]
    events: Schedule = field(repr=False)
    detail: str
    stages: int
    microbatches: int
    work: float  # what the mean stage computes in the step, its optimiser included [s]
    closed_form: float  # time by the schedule's own closed form, each stage in its own time [s]
    step_time: float  # of the evaluation, under the plan's own schedule [s]
    why: tuple[tuple[str, float], ...] = ()  # what leads from the evaluation's time to this one [s]
    static: float = 0.0  # power of a device that flows whatever it does [W]

    @property
    def bubble(self) -> float:
        """Share of the step in which the mean stage waits."""
        return float(bubble_share(self.time, self.work))

    @property
    def utilisation(self) -> dict[str, float]:
        """Busy share of each resource."""
        return self.events.utilisation()

    def __repr__(self) -> str:
        return f"Simulation({self.title}, {self.schedule}: {show(self.time, 's')} a step)"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words."""
        names = ("schedule", "time", "closed_form", "step_time", "bubble", "detail", "stages", "microbatches")
        why = [{"what": what, "seconds": seconds} for what, seconds in self.why]
        told = {name: getattr(self, name) for name in names}
        return told | {"why": why, "utilisation": self.utilisation}

    def columns(self) -> dict[str, Any]:
        """Tasks in the order of their starts: when they ran, on what, and what they did."""
        return row_columns(
            {
                "task": t.task.name,
                "kind": t.task.kind,
                "resources": " + ".join(t.task.resources),
                "start": t.start,
                "end": t.end,
                **vars(t.task.work),
            }
            for t in self.events.tasks
            if t.end > t.start
        )

    def _repr_html_(self) -> str:
        """For notebooks: the time beside the closed form's, how busy stages were, and the chart."""
        cards = [
            ("time of the step", show(self.time, "s"), f"closed form {show(self.closed_form, 's')}"),
            ("bubble", f"{self.bubble:.1%}", "the mean stage waits"),
            ("stages", f"{self.stages:,}", f"{self.microbatches:,} micro-batches"),
        ]
        drawn = gantt_inline(self.events) if len(self.events.tasks) <= MOST_DRAWN else ""
        used = sorted(self.utilisation.items(), key=lambda item: by_place(item[0]))
        rows = [(name, f"{share:.1%}") for name, share in used]
        busy = table_html(("resource", "busy"), rows, said="resources")
        return display_html(f"{self.title}, {self.schedule}", rich_cards(cards), drawn, busy)

    def to_html(self, path: str | Path) -> Path:
        """Write a Gantt chart as one HTML file that needs nothing else."""
        heading = f"{self.title}, {self.schedule}"
        return gantt_html(self.events, path, heading)

    def to_svg(self, path: str | Path) -> Path:
        """Write the chart alone, as a picture."""
        return gantt_svg(self.events, path)

    def to_perfetto(self, path: str | Path) -> Path:
        """Write Chrome trace JSON for ui.perfetto.dev: a process a stage, tracks, counters and arrows."""
        return perfetto_json(self.events, path, self.static)


def simulate_step(
    point: Result | Case, schedule: str = "", *, serial: bool = False, detail: str = "auto"
) -> Simulation:
    """Simulate the (last) step of a single evaluated point.

    `schedule` is one of gpipe, 1f1b, interleaved, zero-bubble and dualpipe for training (the plan's where
    none is named); other phases have forward passes alone.
    `serial`: nothing runs beside anything, as the closed form counts; else hand-overs, weights that are
    fetched ahead and sums of gradients run on links beside the cores. `detail`: ops, blocks or whole passes
    as tasks; "auto" is the finest that stays under 20,000 tasks.

    >>> import strata as st
    >>> r = st.evaluate("8xh200", "llama-3-70b", st.decode(batch=64, context=2048), "tp=8")
    >>> s = simulate_step(r, serial=True)
    >>> abs(s.time / r.metrics.step_time - 1.0) < 1e-9
    True
    """
    result = evaluate_case(point) if isinstance(point, Case) else point
    if result.shape:
        raise BadValue(f"a simulation takes one point, but got a box of shape {result.shape}; use at(i, ...)")
    passes = passes_of(result)
    title = f"{result.program.name} on {result.system.name}, {result.plan!r}"
    name = _schedule_of(passes, schedule)
    run = _Simulated(passes, name)
    return run.simulation(title, serial=serial, detail=detail)


def simulate_schedules(point: Result | Case) -> dict[str, Simulation | str]:
    """A training step under every schedule, or in a line why it cannot run under one."""
    result = evaluate_case(point) if isinstance(point, Case) else point
    found: dict[str, Simulation | str] = {}
    for name in SCHEDULES:
        try:
            found[name] = simulate_step(result, name, detail="stage")
        except BadValue as error:
            found[name] = str(error)
    return found


def passes_of(result: Result) -> StepPasses:
    """The passes of the last step of a single point."""
    case = as_float64_box(result.case)[0]
    work = case.workload.steps()[1][-1][1]
    return step_passes(pricing_of(case, work, Structure(case.plan.active(), 0)), result.steps[-1])


def _schedule_of(passes: StepPasses, asked: str) -> str:
    """The schedule that is asked for, or the one a step of this kind has."""
    if asked and asked not in (*SCHEDULES, "forward"):
        raise UnknownName("schedule", asked, SCHEDULES, ", ".join(SCHEDULES))
    if not passes.given.training:
        require(
            asked in ("", "forward"),
            f"schedule {asked} orders backward passes, but a {passes.given.work.phase} step has none",
        )
        return "forward"
    require(asked != "forward", "a training step has backward passes: name a schedule of them")
    sharding = passes.given.sharding
    planned = SCHEDULE[int(float(sharding.training.schedule))]
    return asked or ("interleaved" if float(sharding.virtual_stages) > 1 else planned)


class _Simulated:
    """A step under one schedule, in the variants that lead from the closed form to the events."""

    def __init__(self, passes: StepPasses, schedule: str) -> None:
        self.passes, self.schedule = passes, schedule
        self.stages, self.pieces = passes.stages, passes.microbatches
        self.decoding = passes.given.work.phase == "decode"
        asked = int(float(passes.given.sharding.virtual_stages))
        self.virtual = max(asked, 2) if schedule == "interleaved" else 1
        layers = int(float(passes.given.graph.sequence.layers))
        require(
            self.stages * self.virtual <= max(layers, 1),
            "an interleaved schedule needs a layer for each chunk of each stage",
            chunks=self.stages * self.virtual,
            layers=layers,
        )
        self.own = passes.stage_times(self.stages * self.virtual)
        self.code = float(SCHEDULE.index(schedule)) if schedule in SCHEDULE else 0.0
        trainer = passes.given.engine.training
        overlapped = 1.0 if trainer is None else float(trainer.overlap_p2p)
        self.waits = float(waits_for_hand_overs(self.code, float(self.virtual), overlapped))
        self.held = float(held_by_messages(passes.given)) / max(asked, 1)
        # update and host, as the evaluation adds them; rounding may leave less than nothing
        self.step_time, self.paced = float(passes.step.time), float(passes.step.passes)
        self.rest = max(self.step_time - self.paced, 0.0)

    def simulation(self, title: str, *, serial: bool, detail: str) -> Simulation:
        paced, how = self._closed(), self._parts(detail, serial)
        times = self._blocking() if serial or self.waits or not self.passes.given.training else self.own
        own = self._time(self._pipeline(times).run())
        events = self._events(how)
        time = self._time(events) + (self.rest if self.decoding else 0.0)
        rows = [
            (f"the schedule: {self.schedule}", paced - self.paced),
            ("passes as events", own - paced),
            ("links beside the cores", time - own - self.rest),
        ]
        every = sum(map(sum, (self.own.forward, self.own.inputs, self.own.weights)))
        return Simulation(
            title=title,
            schedule=self.schedule,
            time=time,
            events=events,
            detail=how.detail,
            stages=self.stages,
            microbatches=self.pieces,
            work=every * self.pieces / self.stages + self.passes.optimiser[0],
            closed_form=paced + self.rest,
            step_time=self.step_time,
            why=tuple(rows),
            static=float(self.passes.step.static),
        )

    # ------------------------------------------------------------------------------- variants

    def _closed(self) -> float:
        """The schedule's own closed form."""
        if self.schedule == "forward":
            return self.paced
        t, stages, v = self.own, float(self.stages), float(self.virtual)
        one_way = v * self.passes.send if self.stages > 1 else 0.0
        passes = replace(listed_passes(t.forward, t.inputs, t.weights, self.stages), saved=t.saved)
        given = (passes, self.code, stages, float(self.pieces), v, one_way, self.waits)
        return float(filled_time(*given, held=self.held * v))

    def _blocking(self) -> StageTimes:
        """Each stage in its own time, waiting for what it hands over."""
        t, last, send = self.own, self.own.chunks - 1, self.passes.send
        held = [self.held * ((i > 0) + (i < last)) for i in range(t.chunks)]
        return replace(
            t,
            forward=tuple(f + send * (i < last) + held[i] for i, f in enumerate(t.forward)),
            inputs=tuple(b + send * (i > 0) + held[i] for i, b in enumerate(t.inputs)),
            send=0.0,
            send_back=0.0,
        )

    def _pipeline(self, times: StageTimes, parts: Callable[[Pass, int], Groups] | None = None) -> Pipeline:
        if self.schedule == "forward":
            rounds = ROUNDS if self.decoding else 1
            return forward_tasks(times, self.stages, self.pieces, rounds=rounds, parts=parts)
        return pipeline_tasks(self.schedule, times, self.stages, self.pieces, parts=parts)

    def _time(self, events: Schedule) -> float:
        """The whole; when decoding one round in the middle of many."""
        if not self.decoding:
            return events.time
        last = self.own.chunks - 1
        ends = [
            max(events.by_name[f"F{i}.{last}"].end for i in range(r * self.pieces, (r + 1) * self.pieces))
            for r in (ROUNDS - 2, ROUNDS - 1)
        ]
        return ends[1] - ends[0]

    # --------------------------------------------------------------------------------- the events

    def _parts(self, detail: str, serial: bool) -> Parts:
        """How finely to look: as asked, or as fine as stays quick."""
        if detail != "auto":
            return Parts(detail, serial)
        passes = self.pieces * (ROUNDS if self.decoding else 1)
        blocks = self.passes.placed
        ops = sum(len(p.forward.ops) + (len(p.backward.ops) + 1 if p.backward else 0) for p in blocks)
        for name, count in (("op", ops), ("block", 2 * len(blocks))):
            if count * passes <= MOST_TASKS:
                return Parts(name, serial)
        return Parts("stage", serial)

    def _events(self, how: Parts) -> Schedule:
        """The step as it is looked at, with what follows its passes."""
        times = self._blocking() if how.serial else self.own
        if how.detail == "stage":
            pipeline = self._pipeline(times)
        else:
            pipeline = self._pipeline(times, self._in_parts(how))
        if self.decoding:
            return pipeline.run()
        summed = how.detail != "stage" and not how.serial and self.passes.given.training
        tasks = [*pipeline.tasks, *self._closing(pipeline.ends, summed=summed)]
        return run_tasks(tasks, pipeline.resources)

    def _in_parts(self, how: Parts) -> Callable[[Pass, int], Groups]:
        chunks = self.passes.chunk_blocks(self.own.chunks)
        last = self.own.chunks - 1
        final = _final_gradients(self.schedule, self.stages, self.pieces, self.virtual)

        def parts(p: Pass, device: int) -> Groups:
            summed = not how.serial and p.name in final
            groups = self.passes.groups(p, device, chunks, how, final=summed)
            sends = p.chunk < last if p.what == "F" else p.what != "W" and p.chunk > 0
            if how.serial and sends and self.passes.send:
                groups = [*groups, [Segment("hands over", self.passes.send, kind="send")]]
            return groups

        return parts

    def _closing(self, ends: tuple[str, ...], *, summed: bool) -> list[Task]:
        """What follows the passes of all stages: the optimiser (its gradients' norm needs all of them) and
        the host. Where sums of gradients are not simulated, what the closed form leaves of them is in it.
        """
        alone = self.passes.optimiser[0] + self.passes.host
        time = alone if summed else self.rest
        return [
            Task(name=f"update {s}", duration=time, resources=(f"stage {s}",), after=ends, kind="update")
            for s in range(self.stages)
        ]


def _final_gradients(schedule: str, stages: int, pieces: int, virtual: int) -> set[str]:
    """The passes after which the gradients of a chunk's weights are complete, on each device that has it."""
    if schedule == "forward":
        return set()
    found = set()
    for order in device_orders(schedule, stages, pieces, virtual):
        last: dict[int, str] = {}
        for p in order:
            for one in (p, *([p.beside] if p.beside else [])):
                if one.what in ("D", "W"):
                    last[one.chunk] = one.name
        found |= set(last.values())
    return found
