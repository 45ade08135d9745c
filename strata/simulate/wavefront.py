"""The wavefront of an LSTM's time steps over stages: as events, and as a closed form that equals them.

Every time step is an embedding, a cell of each layer, and a softmax. Cell (s, l) needs cell (s, l - 1) and
cell (s - 1, l); layers lie on stages, so that time steps follow one another through them like a wave. The
backward pass runs from the last time step to the first, from the softmax down, and ends with the sums of
gradients over data parallel ranks (all-reduces), which start as soon as a weight's last gradient is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from strata.arrays import Number, namespace
from strata.errors import BadValue, require
from strata.simulate.events import Resource, Schedule, Task, run_tasks

Part = tuple[str, int]  # what of a time step, and its layer, -1 where it is none


@dataclass(frozen=True, kw_only=True)
class WavefrontTimes:
    """Times of one time step's parts in one direction [s], numbers or arrays, and of the all-reduces of their
    weights (backward alone).
    """

    embedding: Number
    cell: Number
    softmax: Number
    send: Number = 0.0  # hand-over from a stage to the next
    reduce_embedding: Number = 0.0
    reduce_cell: Number = 0.0  # of one layer's weights
    reduce_softmax: Number = 0.0


@dataclass(frozen=True, kw_only=True)
class LstmStages:
    """Which stage holds what: layers of each stage; the embedding stands with the first, the softmax with the
    last, alone where no layer is there.
    """

    layers: tuple[int, ...]
    deepflow_links: bool = False  # all-reduces on links as DeepFlow has them, not on one link a stage

    @property
    def count(self) -> int:
        return len(self.layers)


def deepflow_stages(layers: int, stages: int) -> LstmStages:
    """The stages DeepFlow gives an LSTM: the embedding and the softmax have one each where there are more
    than two, and layers are spread over the rest.

    All-reduces of cells run one after the other on their stage's link, those of embedding, softmax and the
    topmost layer on links of their own, even where all share one device. That rule is the simplest found
    which gives the six numbers recorded of nanocad-lab/DeepFlow 566c192 and its data parallel step of a
    one-layer model, where only the embedding's all-reduce shows.

    >>> deepflow_stages(6, 3).layers, deepflow_stages(2, 4).layers, deepflow_stages(2, 1).layers
    ((0, 6, 0), (0, 1, 1, 0), (2,))
    """
    _check(layers, stages)
    own = stages > 2
    inner = _even(layers, stages - 2 if own else stages)
    return LstmStages(layers=(0, *filter(None, inner), 0) if own else inner, deepflow_links=True)


def shared_stages(layers: int, stages: int) -> tuple[LstmStages, ...]:
    """Every way to lay layers on at most so many stages in order, as even as may be between a first stage
    that also holds the embedding and a last one that also holds the softmax.

    >>> [s.layers for s in shared_stages(2, 4)]
    [(0, 1, 1, 0), (0, 1, 1), (1, 1, 0), (1, 1)]
    """
    _check(layers, stages)
    if stages == 1:
        return (LstmStages(layers=(layers,)),)
    most = -(-layers // (stages - 1)) if stages > 2 else layers
    found = []
    for first in range(most + 1):
        for last in range(most + 1):
            left = layers - first - last
            if left >= 0 and (stages > 2 or not left):
                # a stage that would hold nothing is left out
                found.append((first, *filter(None, _even(left, stages - 2)), last))
    return tuple(LstmStages(layers=one) for one in dict.fromkeys(found))


def _check(layers: int, stages: int) -> None:
    require(layers >= 1 and stages >= 1, "an LSTM has layers and stages", layers=layers, stages=stages)


def _even(layers: int, stages: int) -> tuple[int, ...]:
    """Layers on stages, as even as whole layers allow, the longer first."""
    if stages < 1:
        return ()
    even, rest = divmod(layers, stages)
    return tuple(even + (i < rest) for i in range(stages))


# ----------------------------------------------------------------------------------------- closed form


def wavefront_time(times: WavefrontTimes, steps: Number, stages: LstmStages) -> Number:
    r"""Time of one direction of an LSTM's time steps over stages [s].

    .. math:: T_j = \sum_{i \le j} w_i + j h + (S - 1) \max(w_0 \ldots w_j, h)

    stage j ends its last time step at T_j; w_i: a time step's work on stage i; hand-over h (none before the
    first stage); steps S. Stages and links work on one time step after the other, so that the slowest sets
    the pace: a line of deterministic servers. The pass ends at T of the last stage, or with its last
    all-reduce (`reduce_ends`). Exact for any durations that do not change from step to step; the layout of
    stages is fixed, durations and steps may be arrays.

    Ardalani, Pal & Gupta, DeepFlow (2023) simulates these events one by one; the line of servers is that of
    Hockney & Jesshope, Parallel Computers 2 (1988), sec. 1.3.

    >>> forward = WavefrontTimes(embedding=2.0, cell=2.0, softmax=5.0, send=3.0)
    >>> float(wavefront_time(forward, 4.0, deepflow_stages(6, 3)))
    61.0
    """
    return _ends(times, steps, stages, backward=False)


def wavefront_backward_time(times: WavefrontTimes, steps: Number, stages: LstmStages) -> Number:
    """Time of the backward direction, all-reduces included [s]: `wavefront_time` from the softmax down, then
    each all-reduce after the last gradient of its weights and after those before it on its link.

    >>> back = WavefrontTimes(embedding=5.0, cell=2.0, softmax=2.0, send=3.0,
    ...     reduce_embedding=5.0, reduce_cell=10.0, reduce_softmax=5.0)
    >>> float(wavefront_backward_time(back, 4.0, deepflow_stages(6, 3)))
    95.0
    """
    return _ends(times, steps, stages, backward=True)


def best_wavefront(
    forward: WavefrontTimes, backward: WavefrontTimes, steps: Number, layers: int, stages: int
) -> Number:
    """Forward and backward time over the best way to lay layers on stages, at each point of arrays [s].

    >>> forward = WavefrontTimes(embedding=1.0, cell=3.0, softmax=4.0, send=1.0)
    >>> float(best_wavefront(forward, forward, 20.0, 2, 4))
    178.0
    """
    best: Number = float("inf")
    for one in shared_stages(layers, stages):
        time = wavefront_time(forward, steps, one) + wavefront_backward_time(backward, steps, one)
        best = namespace(best, time).minimum(best, time)
    return best


def _parts(stages: LstmStages, *, backward: bool) -> list[list[Part]]:
    """What each stage does in a time step, in order: (what, layer), stages in the order of the pass."""
    found: list[list[Part]] = []
    layer = 0
    for count in stages.layers:
        found.append([("cell", layer + i) for i in range(count)])
        layer += count
    found[0].insert(0, ("embedding", -1))
    found[-1].append(("softmax", -1))
    return [part[::-1] for part in reversed(found)] if backward else found


def _ends(times: WavefrontTimes, steps: Number, stages: LstmStages, *, backward: bool) -> Number:
    """The end of a pass: stages one after the other, then what their links still have to do."""
    xp = namespace(times.embedding, times.cell, times.softmax, times.send, steps)
    reached: Number = 0.0
    slowest: Number = 0.0
    free: dict[str, Number] = {}  # when each link of all-reduces is free
    parts = _parts(stages, backward=backward)
    top = sum(stages.layers) - 1
    for j, part in enumerate(parts):
        own: Number = 0.0
        for what, _ in part:
            own = own + _duration(times, what)
        # what comes in paces a stage as its own work does
        slowest = xp.maximum(slowest, xp.maximum(own, times.send if j else 0.0))
        reached = reached + (times.send if j else 0.0)
        begins = reached + (steps - 1.0) * slowest  # of the last time step
        reached = reached + own
        for what, layer in part if backward else ():
            begins = begins + _duration(times, what)
            link, time = _link(stages, j, what, layer == top), _reduction(times, what)
            free[link] = xp.maximum(free.get(link, 0.0), begins) + time
    end = reached + (steps - 1.0) * slowest
    for link_end in free.values():
        end = xp.maximum(end, link_end)
    return end


def _duration(times: WavefrontTimes, what: str) -> Number:
    every: dict[str, Number] = {
        "embedding": times.embedding,
        "cell": times.cell,
        "softmax": times.softmax,
    }
    return every[what]


def _reduction(times: WavefrontTimes, what: str) -> Number:
    every: dict[str, Number] = {
        "embedding": times.reduce_embedding,
        "cell": times.reduce_cell,
        "softmax": times.reduce_softmax,
    }
    return every[what]


def _link(stages: LstmStages, stage: int, what: str, top: bool) -> str:
    """The link of an all-reduce."""
    if not stages.deepflow_links:
        return f"sums of stage {stage}"
    if what == "cell" and top:
        return "sums of the topmost cell"
    return f"sums of cells {stage}" if what == "cell" else f"sums of {what}"


# ------------------------------------------------------------------------------------------- simulation


def simulate_wavefront(
    times: WavefrontTimes, steps: int, stages: LstmStages, *, backward: bool = False
) -> Schedule:
    """The events of one direction: a task a cell, hand-overs and all-reduces on links, each stage's time
    steps in their order.

    >>> forward = WavefrontTimes(embedding=1.0, cell=3.0, softmax=4.0, send=1.0)
    >>> simulate_wavefront(forward, 20, deepflow_stages(2, 4)).time
    90.0
    """
    if steps < 1:
        raise BadValue(f"a wavefront has at least one time step, but got {steps}")
    parts = _parts(stages, backward=backward)
    tasks: list[Task] = []
    for s in range(steps):
        for j, part in enumerate(parts):
            tasks += _time_step(times, parts, j, s)
            if backward and s == steps - 1:
                top = sum(stages.layers) - 1
                tasks += [_sum_task(times, stages, j, what, layer, s, top) for what, layer in part]
    names = dict.fromkeys(r for t in tasks for r in t.resources)
    return run_tasks(tasks, [Resource(name=name) for name in names])


def _time_step(times: WavefrontTimes, parts: list[list[Part]], j: int, s: int) -> Iterator[Task]:
    """One time step on one stage, and its hand-over to the next."""
    part = parts[j]
    # behind what the stage before hands over and, by an edge of no length, the time step before
    before = [*([f"to stage {j}, step {s}"] if j else []), *([_name(*part[-1], s - 1)] if s else [])]
    for what, layer in part:
        name, time = _name(what, layer, s), float(_duration(times, what))
        yield Task(name=name, duration=time, resources=(f"stage {j}",), after=tuple(before), kind=what)
        before = [name]
    if j < len(parts) - 1:
        to, link = f"to stage {j + 1}, step {s}", (f"link {j}>{j + 1}",)
        yield Task(name=to, duration=float(times.send), resources=link, after=tuple(before), kind="send")


def _sum_task(
    times: WavefrontTimes, stages: LstmStages, j: int, what: str, layer: int, step: int, top: int
) -> Task:
    """The all-reduce of a weight's gradients, after the last of them."""
    return Task(
        name=f"sum of {what} {layer}" if layer >= 0 else f"sum of {what}",
        duration=float(_reduction(times, what)),
        resources=(_link(stages, j, what, layer == top),),
        after=(_name(what, layer, step),),
        kind="collective",
    )


def _name(what: str, layer: int, step: int) -> str:
    return f"{what} {layer}, step {step}" if layer >= 0 else f"{what}, step {step}"
