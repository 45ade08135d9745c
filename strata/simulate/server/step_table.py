"""Prices of an engine's steps by what is in them, ready to be asked millions of times.

A step of a rank has `sequences` that generate, whose caches hold `context` tokens together, and `tokens` of
prompts, each of which attends to `attended` tokens on average. `evaluate` prices nodes of these four, all at
once; between them times are drawn as lines, and what that leaves is measured and told.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.arrays import Array, ceil_div
from strata.evaluate import evaluate
from strata.hardware.system import System
from strata.mapping.engine import Engine
from strata.mapping.plan import Plan
from strata.workload.model import Model
from strata.workload.tasks import Workload, decode, mixed, prefill

ROOM = 1e6  # times the memory of a device: the block pool says what fits, prices are wanted beyond it
CHECKS = 48  # points between nodes at which a table is compared with `evaluate`
SEED = 20


@dataclass(frozen=True, eq=False, kw_only=True)
class StepPricer:
    """An engine whose steps are priced: all its ranks (lanes) with the same in each."""

    system: System
    model: Model
    plan: Plan
    engine: Engine
    routed: dict[str, Any]  # how tokens pick their experts, as workloads take it
    draft_tokens: float = 0.0  # guessed in a decode step beside the one that is sure

    @property
    def lanes(self) -> float:
        return float(self.plan.dp) * float(self.plan.pp)

    def generating(self, sequences: Array, context: Array) -> Workload:
        """`context`: tokens of each sequence."""
        told: dict[str, Any] = {"tokens": self.draft_tokens + 1.0} if self.draft_tokens else {}
        return decode(self.lanes * sequences, context + self.draft_tokens, **told, **self.routed)

    def reading(self, sequences: Array, context: Array, tokens: Array, attended: Array) -> Workload:
        chunk, cached, prompts = prompt_of(tokens, attended)
        return mixed(
            self.lanes * sequences,
            context,
            prompts=self.lanes * prompts,
            chunk=chunk,
            cached=cached,
            **self.routed,
        )

    def reading_alone(self, tokens: Array, attended: Array) -> Workload:
        chunk, cached, prompts = prompt_of(tokens, attended)
        return prefill(float(self.plan.dp) * prompts, chunk, cached=cached, **self.routed)

    def priced(self, work: Workload) -> tuple[Array, Array]:
        """Time [s] and energy of the whole system [J] of steps, whether or not their caches fit."""
        roomy = replace(self.engine, memory_share=self.engine.memory_share * ROOM)
        metrics = evaluate(self.system, self.model, work, self.plan, roomy).metrics
        time = np.asarray(metrics.step_time, float)
        return time, time * np.asarray(metrics.power, float)


def prompt_of(tokens: Array, attended: Array) -> tuple[Array, Array, Array]:
    r"""Alike prompts that have so many tokens together, each attending to so many on average: the chunk that
    is read of each, what is cached before it, and how many there are.

    .. math:: m = \max\left(1, \frac{P}{2 A}\right), \quad p = \frac{P}{m}, \quad c = A - \frac{p}{2}

    One prompt where its own half chunk explains what is attended, several short ones where not.

    >>> [float(v) for v in prompt_of(1024.0, 4096.0)], [float(v) for v in prompt_of(1024.0, 128.0)]
    ([1024.0, 3584.0, 1.0], [256.0, 0.0, 4.0])
    """
    prompts = np.maximum(tokens / (2.0 * np.maximum(attended, 0.5)), 1.0)
    chunk = tokens / prompts
    return chunk, np.maximum(attended - 0.5 * chunk, 0.0), prompts


class Grid:
    """Values over the product of some axes of numbers, between them by lines along each; beyond the ends as
    the last line goes on.

    >>> grid = Grid([[1.0, 2.0], [0.0, 10.0]], [[[1.0, 2.0], [3.0, 4.0]], [[0.0, 0.0], [1.0, 1.0]]])
    >>> grid.at((1.5, 5.0))
    [2.5, 0.5]
    """

    __slots__ = ("axes", "offsets", "values")

    def __init__(self, axes: list[list[float]], values: Any) -> None:
        """`values`: several quantities, each an array over the axes."""
        self.axes = axes
        sizes = [len(a) for a in axes]
        strides = [int(np.prod(sizes[i + 1 :])) for i in range(len(sizes))]
        self.offsets = strides
        self.values = [np.asarray(v, float).ravel().tolist() for v in values]

    def at(self, point: tuple[float, ...]) -> list[float]:
        corners = [(0, 1.0)]
        for x, axis, stride in zip(point, self.axes, self.offsets, strict=True):
            if len(axis) == 1:
                continue
            i = bisect_right(axis, x) - 1
            i = 0 if i < 0 else min(i, len(axis) - 2)
            share = (x - axis[i]) / (axis[i + 1] - axis[i])
            at, rest = i * stride, 1.0 - share
            if share == 0.0:
                corners = [(c + at, w) for c, w in corners]
            else:
                corners = [(c + at, w * rest) for c, w in corners] + [
                    (c + at + stride, w * share) for c, w in corners
                ]
        return [sum([v[c] * w for c, w in corners]) for v in self.values]


def axis_nodes(most: float, ratio: float, start: float = 1.0) -> list[float]:
    """Whole numbers from `start` to `most`, each at most `ratio` times the one before.

    >>> axis_nodes(20, 2.0)
    [1.0, 2.0, 4.0, 8.0, 16.0, 20.0]
    """
    nodes = [float(start)]
    while nodes[-1] < most:
        nodes.append(float(min(max(nodes[-1] + 1.0, np.floor(nodes[-1] * ratio)), most)))
    return nodes


class StepTable:
    """Times [s] and energies [J] of steps of one engine, by what a rank has in them."""

    def __init__(self, pricer: StepPricer, *, sequences: float, context: float, tokens: float) -> None:
        """For up to `sequences` of a rank with up to `context` tokens each, and `tokens` of a step."""
        self.pricer = pricer
        longest = max(context, 2.0)
        n, c = axis_nodes(sequences, 1.5), [1.0, *axis_nodes(longest, 2.0, min(256.0, longest))]
        c = sorted(set(c))
        self._decode = self._grid([n, c], pricer.generating)
        p, a = axis_nodes(max(tokens, 2.0), 2.0), [0.5, *axis_nodes(longest, 4.0, min(64.0, longest))]
        self._read = self._grid([p, a], pricer.reading_alone)
        coarse = [axis_nodes(sequences, 2.0), [1.0, *axis_nodes(longest, 4.0, min(256.0, longest))], p, a]
        self._mixed = self._grid([*coarse[:1], sorted(set(coarse[1])), p, a], pricer.reading)
        self._line: dict[int, tuple[list[float], list[list[float]]]] = {}

    @staticmethod
    def _open(axes: list[list[float]]) -> list[Array]:
        return [np.array(a).reshape((-1,) + (1,) * (len(axes) - 1 - i)) for i, a in enumerate(axes)]

    def _grid(self, axes: list[list[float]], work: Any) -> Grid:
        shape = tuple(len(a) for a in axes)
        values = self.pricer.priced(work(*self._open(axes)))
        return Grid(axes, [np.broadcast_to(v, shape) for v in values])

    def decode_steps(self, sequences: int, context: float, steps: int) -> tuple[float, float]:
        """Time and energy of some decode steps after one another, caches that hold `context` tokens together
        before the first growing by one token a sequence and step.
        """
        each = context / sequences + 0.5 * (steps - 1)
        nodes, lines = self._line.get(sequences) or self._line_of(sequences)
        i = bisect_right(nodes, each) - 1
        i = 0 if i < 0 else min(i, len(nodes) - 2)
        share = (each - nodes[i]) / (nodes[i + 1] - nodes[i])
        time, energy = (line[i] + share * (line[i + 1] - line[i]) for line in lines)
        return time * steps, energy * steps

    def _line_of(self, sequences: int) -> tuple[list[float], list[list[float]]]:
        """Values of decode steps along the contexts, for so many sequences."""
        nodes = self._decode.axes[1]
        points = [self._decode.at((float(sequences), c)) for c in nodes]
        found = nodes, [[p[q] for p in points] for q in (0, 1)]
        self._line[sequences] = found
        return found

    def step(
        self, sequences: int, context: float, tokens: float, attended: float, alone: bool = False
    ) -> tuple[float, float]:
        """Time and energy of one step. `context`: tokens in the caches of all that generate; `attended`: sum
        over the `tokens` of prompts of what each attends to; `alone`: sequences wait while prompts are read.
        """
        if tokens <= 0.0:
            return self.decode_steps(sequences, context, 1) if sequences else (0.0, 0.0)
        mean = attended / tokens
        if alone or not sequences:
            time, energy = self._read.at((tokens, mean))
        else:
            time, energy = self._mixed.at((float(sequences), context / sequences, tokens, mean))
        return time, energy

    def errors(self, checks: int = CHECKS) -> dict[str, float]:
        """What lines between nodes leave against `evaluate`, mean and largest over points drawn between the
        nodes, relative: of decode steps and of steps that also read.
        """
        draw = np.random.default_rng(SEED)
        found: dict[str, float] = {}
        for name, grid, work in (
            ("decode", self._decode, self.pricer.generating),
            ("mixed", self._mixed, self.pricer.reading),
        ):
            ends = [(max(a[0], 1.0), a[-1]) for a in grid.axes]
            points = [np.exp(draw.uniform(np.log(lo), np.log(max(hi, lo)), checks)) for lo, hi in ends]
            points[0] = np.round(points[0])
            priced = self.pricer.priced(work(*points))[0]
            drawn = [grid.at(tuple(float(v) for v in p))[0] for p in zip(*points, strict=True)]
            off = np.abs(np.array(drawn) / np.broadcast_to(priced, (checks,)) - 1.0)
            found |= {f"{name}_mean": float(off.mean()), f"{name}_largest": float(off.max())}
        return found


@dataclass(frozen=True, kw_only=True)
class KvRoom:
    """What the memory of a rank has room for: blocks of `page` tokens, and how many a sequence holds whatever
    its length (states of linear attention, windows).
    """

    blocks: int
    page: int
    fixed: int
    reason: str = ""  # why there is no room at all


def kv_room(pricer: StepPricer, *, context: float) -> KvRoom:
    r"""Blocks of the cache of one rank, from what devices hold with one sequence, two, and a longer one.

    .. math:: M(n, c) = M_0 + n (a + b c), \qquad B = \lfloor (M_{max} - M_0) / (b\,page) \rfloor

    Prompts of a whole step are in M_0: their activations must fit beside the caches. `context`: a length
    that is usual; windows shorter than it are full there.
    """
    engine = pricer.engine
    page = int(np.asarray(engine.page))
    chunk = float(np.asarray(engine.tokens))
    near, far = max(context, 2.0 * page), 2.0 * max(context, 2.0 * page)
    near, far = (page * float(ceil_div(v, page)) for v in (near, far))
    work = pricer.reading(
        np.array([1.0, 2.0, 2.0]), np.array([near, near, far]), np.full(3, chunk), chunk / 2
    )
    metrics = evaluate(pricer.system, pricer.model, work, pricer.plan, engine).metrics
    used = np.broadcast_to(np.asarray(metrics.memory_used, float), (3,))
    limit = float(np.max(np.asarray(metrics.memory_limit, float)))
    each, token = used[1] - used[0], (used[2] - used[1]) / (2.0 * (far - near))
    base = used[0] - each
    if not token > 0.0:  # nothing grows with a sequence: a block is its whole state
        blocks = int((limit - base) // each) if each > 0 else 2**40
        return KvRoom(blocks=max(blocks, 0), page=2**40, fixed=0, reason="" if blocks > 0 else "weights")
    fixed = int(max(round((each - token * near) / (token * page)), 0))
    blocks = int((limit - base) // (token * page))
    return KvRoom(blocks=max(blocks, 0), page=page, fixed=fixed, reason="" if blocks > 0 else "weights")
