"""Schedules of a pipeline: the order of each device's passes, which frameworks fix beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from strata.base.errors import UnknownName, require
from strata.pricing.pipeline_schedules import SCHEDULES

Order = list["Pass"]


@dataclass(frozen=True)
class Pass:
    """One entry of a device's order: a forward pass F, a whole backward pass D, one to inputs B, to weights
    W, or a forward and a backward pass beside each other (O, `beside` being the backward one).
    """

    what: str
    microbatch: int
    chunk: int  # of the model
    beside: Pass | None = None

    @property
    def name(self) -> str:
        own = f"{'F' if self.what == 'O' else self.what}{self.microbatch}.{self.chunk}"
        return f"{own}+{self.beside.name}" if self.beside else own


def gpipe_order(stage: int, stages: int, microbatches: int) -> Order:
    """All forward passes, then all backward passes.

    Huang et al., GPipe, arXiv 1811.06965, fig. 2c.
    """
    ahead = [Pass("F", i, stage) for i in range(microbatches)]
    return ahead + [Pass("D", i, stage) for i in reversed(range(microbatches))]


def one_f_one_b_order(stage: int, stages: int, microbatches: int) -> Order:
    """As many forward passes as stages follow, then one forward and one backward pass in turn.

    Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters (SC 2021), fig. 4.
    """
    ahead = min(stages - 1 - stage, microbatches)
    order = [Pass("F", i, stage) for i in range(ahead)]
    for i in range(microbatches):
        order += [Pass("F", ahead + i, stage)] if ahead + i < microbatches else []
        order.append(Pass("D", i, stage))
    return order


def interleaved_order(stage: int, stages: int, microbatches: int, virtual: int) -> Order:
    """1F1B over `virtual` chunks a stage, micro-batches in groups as large as the pipeline.

    Narayanan et al. (SC 2021), sec. 2.2.2: micro-batches must be a multiple of the stages.
    """
    require(
        microbatches % stages == 0,
        "an interleaved schedule needs micro-batches in multiples of the stages",
        microbatches=microbatches,
        stages=stages,
    )
    total = microbatches * virtual

    def nth(k: int, what: str) -> Pass:
        group, inside = divmod(k, stages * virtual)
        chunk, member = divmod(inside, stages)
        chunk = chunk if what == "F" else virtual - 1 - chunk
        return Pass(what, group * stages + member, chunk * stages + stage)

    ahead = total if microbatches == stages else min(2 * (stages - 1 - stage) + (virtual - 1) * stages, total)
    order = [nth(k, "F") for k in range(ahead)]
    for k in range(total):
        order += [nth(ahead + k, "F")] if ahead + k < total else []
        order.append(nth(k, "D"))
    return order


def zero_bubble_order(stage: int, stages: int, microbatches: int) -> Order:
    """ZB-H1: 1F1B whose gradients to weights wait, on stage j for j micro-batches, and fill the drain.

    Qi et al., arXiv 2401.10241, sec. 2.1 and fig. 3.
    """
    order: Order = []
    done = 0
    for p in one_f_one_b_order(stage, stages, microbatches):
        if p.what == "F":
            order.append(p)
            continue
        order.append(Pass("B", p.microbatch, stage))
        late = p.microbatch + 1 - done > stage
        if late:
            order.append(Pass("W", done, stage))
            done += 1
    return order + [Pass("W", i, stage) for i in range(done, microbatches)]


def dualpipe_order(device: int, stages: int, microbatches: int) -> Order:
    """DualPipe: two halves of the micro-batches enter at the two ends; device d holds stage d of the one
    direction and stage P - 1 - d of the other, and runs a forward pass of one beside a backward of the other.

    DeepSeek-AI, arXiv 2412.19437, fig. 5; micro-batches of the second direction are counted from m/2 on.
    """
    require(
        stages % 2 == 0 and microbatches % 2 == 0 and microbatches >= 2 * stages,
        "DualPipe needs an even number of stages and of micro-batches, at least two a stage",
        stages=stages,
        microbatches=microbatches,
    )
    deep = min(device, stages - 1 - device)  # distance from the nearer end
    shallow = stages // 2 - 1 - deep
    return list(_DualDevice(device, stages, microbatches // 2).passes(deep, shallow))


class _DualDevice:
    """What one device of DualPipe has done in its near (0) and far (1) direction."""

    def __init__(self, device: int, stages: int, half: int) -> None:
        first = device < stages // 2
        self.chunks = (device, stages - 1 - device) if first else (stages - 1 - device, device)
        self.starts = (0, half) if first else (half, 0)
        self.middle = device in (stages // 2 - 1, stages // 2)
        self.half, self.stages = half, stages
        self.made = {"F": [0, 0], "B": [0, 0]}
        self.owed: list[tuple[int, int]] = []

    def _next(self, what: str, way: int, whole: str) -> Pass:
        i = self.made[what][way]
        self.made[what][way] = i + 1
        return Pass(whole, self.starts[way] + i, self.chunks[way])

    def forward(self, way: int) -> Pass:
        return self._next("F", way, "F")

    def backward(self, way: int, *, split: bool = False) -> Pass:
        made = self._next("B", way, "B" if split else "D")
        if split:
            self.owed.append((made.microbatch, made.chunk))
        return made

    def weight(self) -> Pass:
        return Pass("W", *self.owed.pop(0))

    def both(self, way: int) -> Pass:
        ahead = self.forward(way)
        return Pass("O", ahead.microbatch, ahead.chunk, beside=self.backward(1 - way))

    def passes(self, deep: int, shallow: int) -> Iterator[Pass]:
        for _ in range(2 * shallow):
            yield self.forward(0)
        for _ in range(deep + 1):
            yield self.forward(0)
            yield self.forward(1)
        for _ in range(shallow):
            yield self.backward(1, split=True)
            yield self.weight()
            yield self.forward(1)
        for i in range(self.half - self.stages + deep + 1):
            if i == 0 and self.middle:  # apart, so that the neighbour need not wait for both
                yield self.forward(0)
                yield self.backward(1)
            else:
                yield self.both(0)
            yield self.both(1)
        for _ in range(shallow):
            yield self.backward(1)
            yield self.both(1)
        split = False
        for i in range(deep + 1):
            turn = i == (deep + 1) // 2
            split = split or (turn and deep % 2 == 1)
            yield self.backward(1, split=split)
            split = split or (turn and deep % 2 == 0)
            yield self.backward(0, split=split)
        for _ in range(shallow):
            yield self.weight()
            yield self.backward(0, split=True)
        for _ in range(deep + 1):
            yield self.weight()


def device_orders(schedule: str, stages: int, microbatches: int, virtual_stages: int = 1) -> list[Order]:
    """The order of passes on each device under a schedule."""
    if schedule not in SCHEDULES:
        raise UnknownName("schedule", schedule, SCHEDULES, ", ".join(SCHEDULES))
    plain: dict[str, Callable[[int, int, int], Order]] = {
        "gpipe": gpipe_order,
        "1f1b": one_f_one_b_order,
        "zero-bubble": zero_bubble_order,
        "dualpipe": dualpipe_order,
    }
    if schedule == "interleaved":
        return [interleaved_order(s, stages, microbatches, virtual_stages) for s in range(stages)]
    return [plain[schedule](s, stages, microbatches) for s in range(stages)]
