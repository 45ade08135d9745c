"""Prices of an engine's steps by what is in them, ready to be asked millions of times.

A step of a rank has `sequences` that generate, whose caches hold `context` tokens together, and `tokens` of
prompts, each of which attends to `attended` tokens on average. `evaluate` prices nodes of these four, all at
once; between them times are drawn as lines, and what that leaves is measured and told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from strata.arrays import Array, ceil_div
from strata.evaluate import evaluate
from strata.hardware.system import System
from strata.mapping.engine import Engine
from strata.mapping.plan import Plan
from strata.result import Result
from strata.simulate.server.surfaces import Surface, axis_nodes, line_at, line_sums, place_on, tile_nodes
from strata.workload.model import Model
from strata.workload.tasks import Workload, decode, mixed, prefill

ROOM = 1e6  # times the memory of a device: the block pool says what fits, prices are wanted beyond it
CHECKS = 48  # points between nodes at which a table is compared with `evaluate`
SEED = 20
SLACK = 0.01  # of a prompt: rounding is not to make two of one
SHARED = ("experts", "collective")  # kinds of ops that see the tokens of all ranks that step together


@dataclass(frozen=True, eq=False, kw_only=True)
class StepPricer:
    """An engine whose steps are priced: all its ranks (lanes) with the same in each."""

    system: System
    model: Model
    plan: Plan
    engine: Engine
    routed: dict[str, Any]  # how tokens pick their experts, as workloads take it
    draft_tokens: float = 0.0  # guessed in a decode step beside the one that is sure
    # time of the guesses of a step [s], by the sequences of all lanes and the tokens of each
    guessing: Callable[[Array, Array], Array] | None = None

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

    @property
    def shares_experts(self) -> bool:
        """Whether ranks have experts of which each holds a part."""
        return bool(self.model.has_experts) and float(self.plan.dp) > float(self.plan.moe_groups)

    def evaluated(self, work: Workload) -> Result:
        """Steps whether or not their caches fit: the pool says what does."""
        roomy = replace(self.engine, memory_share=self.engine.memory_share * ROOM)
        return evaluate(self.system, self.model, work, self.plan, roomy)

    def priced(self, work: Workload) -> tuple[Array, Array]:
        """Time [s] and energy of the whole system [J] of steps."""
        metrics = self.evaluated(work).metrics
        time = np.asarray(metrics.step_time, float)
        return time, time * np.asarray(metrics.power, float)

    def shared(self, work: Workload) -> Array:
        """Time that ranks spend on each other's tokens [s]: in experts, and in exchanges where a rank is one
        device.
        """
        by_kind = self.evaluated(work).summary.time_by_kind
        kinds = SHARED if float(self.plan.tp) == 1.0 else SHARED[:1]
        return sum((np.asarray(by_kind[k], float) for k in kinds), np.zeros(()))

    def generated(self, sequences: Array, context: Array) -> tuple[Array, Array]:
        """Time and energy of steps that generate, guesses and all."""
        time, energy = self.priced(self.generating(sequences, context))
        if self.guessing is None:
            return time, energy
        guess = self.guessing(self.lanes * sequences, context)
        return time + guess, energy * (1.0 + guess / time)

    def idle(self) -> float:
        """Power of the whole system while it waits for requests [W]."""
        return float(idle_power(self.evaluated(self.generating(1.0, 1.0))))


def idle_power(result: Result) -> Array:
    """What a system draws while it waits for requests [W]: of a result's energy, what idles and the hosts."""
    energy = result.summary.energy
    return np.asarray((energy["static"] + energy["hosts"]) * result.metrics.tokens_per_s, float)


def prompt_of(tokens: Array, attended: Array) -> tuple[Array, Array, Array]:
    r"""Alike prompts that have so many tokens together, each attending to so many on average: the chunk that
    is read of each, what is cached before it, and how many there are.

    .. math:: m = \max\left(1, \left\lceil \frac{P}{2 A} \right\rceil\right), \quad p = \frac{P}{m},
        \quad c = A - \frac{p}{2}

    One prompt where its own half chunk explains what is attended, several short ones where not; a whole
    number of them, as a rank has no part of one.

    >>> [float(v) for v in prompt_of(1024.0, 4096.0)], [float(v) for v in prompt_of(1024.0, 128.0)]
    ([1024.0, 3584.0, 1.0], [256.0, 0.0, 4.0])
    """
    prompts = np.maximum(np.ceil(tokens / (2.0 * np.maximum(attended, 0.5)) - SLACK), 1.0)
    chunk = tokens / prompts
    return chunk, np.maximum(attended - 0.5 * chunk, 0.0), prompts


class StepTable:
    r"""Times [s] and energies [J] of steps of one engine, by what a rank has in them.

    Steps that only generate or only read are lines between priced nodes. One that does both is the sum of
    what hardly depends on each other: all its tokens in the products, the caches of those that generate, and
    what the prompts attend to,

    .. math:: T(n, c, p, a) = T(n, c_0, p, a_0) + [T(n, c, p_0, a_0) - T(n, c_0, p_0, a_0)]
        + [T(n_0, c_0, p, a) - T(n_0, c_0, p, a_0)]

    each with nodes as close as it needs; `errors` tells what that leaves.
    """

    def __init__(self, pricer: StepPricer, *, sequences: float, context: float, tokens: float) -> None:
        """For up to `sequences` of a rank with up to `context` tokens each, and `tokens` of a step; longer
        contexts are priced as the last line goes on.
        """
        self.pricer = pricer
        self.stages = int(np.asarray(pricer.plan.pp))
        self.lanes = int(pricer.lanes)
        self.shares = pricer.shares_experts
        self._most = sequences, max(context, 2.0), max(tokens, 2.0)
        longest = self._most[1]
        self._contexts = sorted({1.0, *axis_nodes(longest, 1.5, min(128.0, longest))})
        n = sorted({*axis_nodes(min(sequences, 256.0), 1.0), *axis_nodes(sequences, 1.05)})
        self._decode = Surface(n, self._contexts, pricer.generated(_column(n), np.array(self._contexts)))

    @cached_property
    def _read(self) -> Surface:
        """Prompts alone, by their tokens and what each attends to."""
        p, a = tile_nodes(self._most[2]), self._reaches
        return Surface(p, a, self.pricer.priced(self.pricer.reading_alone(_column(p), np.array(a))))

    @property
    def _reaches(self) -> list[float]:
        longest = self._most[1]
        near = [0.5, 1.0, 2.0, 4.0, 16.0, 64.0]
        return sorted({*(v for v in near if v <= longest), *axis_nodes(longest, 2.0, min(128.0, longest))})

    @cached_property
    def _middle(self) -> tuple[float, float, float, float]:
        """Sequences, context, prompt tokens and what these attend to, around which parts are told apart."""
        sequences, longest, tokens = self._most
        return min(16.0, sequences), min(1024.0, longest), min(256.0, tokens), min(512.0, longest)

    @cached_property
    def _all(self) -> Surface:
        """Steps that read and generate, by sequences and all their tokens, at the middle of the rest."""
        _, c0, _, a0 = self._middle
        sequences, _, tokens = self._most
        n, total = axis_nodes(sequences, 1.25), np.array(tile_nodes(tokens + sequences))
        rest = np.maximum(total - _column(n), 1.0)
        return Surface(n, total.tolist(), self._reading(_column(n), c0, rest, a0))

    @cached_property
    def _caches(self) -> Surface:
        """What caches of those that generate add to `_all`, by sequences and context."""
        _, c0, p0, a0 = self._middle
        n, c = self._all.x, np.array(self._contexts)
        there, here = (self._reading(_column(n), v, p0, a0) for v in (c, c0))
        return Surface(n, self._contexts, [v - w for v, w in zip(there, here, strict=True)])

    @cached_property
    def _prompts(self) -> Surface:
        """What prompts that attend to more or less add to `_all`, by what each attends to and tokens."""
        n0, c0, _, a0 = self._middle
        p = sorted({*axis_nodes(self._most[2], 1.5), *(v for v in (64.0, 128.0, 256.0) if v < self._most[2])})
        there, here = (self._reading(n0, c0, _column(p), v) for v in (np.array(self._reaches), a0))
        return Surface(p, self._reaches, [v - w for v, w in zip(there, here, strict=True)])

    @cached_property
    def _shared(self) -> tuple[tuple[list[float], list[float]], ...]:
        """What ranks do together of a step that generates, and of one that reads, by all tokens of a rank."""
        sequences, _, tokens = self._most
        c0, price = self._middle[1], self.pricer.shared
        few = np.array(sorted({1.0 / self.lanes, 0.5, 1.0, *tile_nodes(sequences)}))
        many = np.array([v for v in tile_nodes(sequences + tokens) if v >= 2.0])
        alone = np.broadcast_to(price(self.pricer.generating(few, c0)), few.shape).tolist()
        read = np.broadcast_to(price(self.pricer.reading(1.0, c0, many - 1.0, c0)), many.shape).tolist()
        nodes = few.tolist()
        least = nodes.index(1.0) + 1  # of fewer tokens than a prompt and a sequence, as of those generated
        return (nodes, alone), (nodes[:least] + many.tolist(), alone[:least] + read)

    @cached_property
    def _guesses(self) -> Surface:
        """Times of guesses, by sequences and context."""
        assert self.pricer.guessing is not None
        n, c = self._all.x, np.array(self._contexts)
        return Surface(n, self._contexts, [self.pricer.guessing(self.lanes * _column(n), c)])

    def _reading(self, n: Array, c: Array, p: Array, a: Array) -> tuple[Array, Array]:
        return self.pricer.priced(self.pricer.reading(n, c, p, a))

    @cached_property
    def idle(self) -> float:
        """Power of the whole system while it waits [W]."""
        return self.pricer.idle()

    def decode_steps(
        self, sequences: float, context: float, steps: int, growth: float = 1.0
    ) -> tuple[float, float]:
        """Time and energy of some decode steps after one another, caches that hold `context` tokens together
        before the first growing by `growth` tokens a sequence and step.
        """
        surface = self._decode
        time, energy = line_sums(surface.y, surface.lines(sequences), context / sequences, growth, steps)
        return time, energy

    def step(
        self, sequences: float, context: float, tokens: float, attended: float, alone: bool = False
    ) -> tuple[float, float]:
        """Time and energy of one step. `context`: tokens in the caches of all that generate; `attended`: sum
        over the `tokens` of prompts of what each attends to; `alone`: sequences wait while prompts are read.
        """
        if tokens <= 0.0:
            return self.decode_steps(sequences, context, 1) if sequences else (0.0, 0.0)
        reach = attended / tokens
        if alone or not sequences:
            time, energy = self._read.at(tokens, reach)
            return time, energy
        guesses = self.pricer.draft_tokens * sequences  # verified: read as tokens of a prompt are
        if guesses:
            attended, tokens = attended + guesses * context / sequences, tokens + guesses
            reach = attended / tokens
        every, caches, each = self._all, self._caches, context / sequences
        i, u = place_on(every.y, tokens + sequences)
        j, w = place_on(caches.y, each)
        v, e = every.lines(sequences)
        f, g = caches.lines(sequences)
        time, energy = self._prompts.at(tokens, reach)
        time += v[i] + u * (v[i + 1] - v[i]) + f[j] + w * (f[j + 1] - f[j])
        energy += e[i] + u * (e[i + 1] - e[i]) + g[j] + w * (g[j + 1] - g[j])
        if self.pricer.guessing is not None:
            time += line_at(self._guesses.y, self._guesses.lines(sequences)[0], each)
        return time, energy

    def shared(self, tokens: float, reads: bool) -> float:
        """Time of what ranks that step together do for each other's tokens, of a step with so many of each on
        average: experts, and the exchanges around them [s].
        """
        return line_at(*self._shared[reads], tokens)

    def errors(self, checks: int = CHECKS) -> dict[str, float]:
        """What lines and sums leave against `evaluate`, mean and largest over points drawn between the nodes,
        relative: of decode steps and of steps that also read.
        """
        draw = np.random.default_rng(SEED)
        sequences, longest, tokens = self._most

        def drawn(most: float) -> Array:
            return np.exp(draw.uniform(0.0, np.log(most), checks))

        n, c, a = np.round(drawn(sequences)), drawn(longest), drawn(longest)
        p = np.round(drawn(tokens))
        pairs = zip(n.tolist(), (n * c).tolist(), p.tolist(), (p * a).tolist(), strict=True)
        rows = [(self.decode_steps(*q[:2], 1)[0], self.step(*q)[0]) for q in pairs]
        exact = self.pricer.generated(n, c)[0], self.pricer.priced(self.pricer.reading(n, c, p, a))[0]
        found: dict[str, float] = {}
        for name, ours, theirs in zip(("decode", "mixed"), np.array(rows).T, exact, strict=True):
            off = np.abs(ours / np.broadcast_to(theirs, (checks,)) - 1.0)
            found |= {f"{name}_mean": float(off.mean()), f"{name}_largest": float(off.max())}
        return found


def _column(values: list[float]) -> Array:
    return np.array(values).reshape(-1, 1)


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
