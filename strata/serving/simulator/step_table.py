"""Prices of an engine's steps by what is in them, ready to be asked millions of times.

A step of a rank has `sequences` that generate, whose caches hold `context` tokens together, and `tokens` of
prompts, each of which attends to `attended` tokens on average. `evaluate` prices nodes of these four, all at
once; between them times are drawn as lines, and what that leaves is measured and told.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import Any

import numpy as np

from strata.base.arrays import Array, Number
from strata.serving.simulator.step_pricer import StepPricer

SMALL_TILES = (16.0, 17.0, 32.0, 33.0)
TILES = ((1024.0, 64.0), (4096.0, 128.0), (float("inf"), 512.0))  # up to so many rows, tiles of so many


def axis_nodes(most: float, ratio: float, start: float = 1.0) -> list[float]:
    """Whole numbers from `start` to `most`, each at most `ratio` times the one before.

    >>> axis_nodes(20, 2.0)
    [1.0, 2.0, 4.0, 8.0, 16.0, 20.0]
    """
    nodes = [float(start)]
    while nodes[-1] < most:
        nodes.append(float(min(max(nodes[-1] + 1.0, np.floor(nodes[-1] * ratio)), most)))
    return nodes


def tile_nodes(most: float) -> list[float]:
    """Whole numbers up to `most` with both sides of every step that products make where a tile of rows is
    full and the next begins.

    >>> [n for n in tile_nodes(200) if n > 60]
    [63.0, 64.0, 65.0, 78.0, 97.0, 121.0, 128.0, 129.0, 151.0, 188.0, 192.0, 193.0, 200.0]
    """
    nodes, at = {*axis_nodes(most, 1.25), *SMALL_TILES}, 0.0
    for end, tile in TILES:
        while at + tile < min(most, end + tile):
            at += tile
            nodes |= {at, at + 1.0}
    return sorted(n for n in nodes if n <= most)


def place_on(nodes: list[float], x: float) -> tuple[int, float]:
    """The node before a point, and which share of the way to the next it has gone; less than 0 or more than 1
    beyond the ends.

    >>> place_on([0.0, 1.0, 3.0], 2.0), place_on([0.0, 1.0], 2.0), place_on([5.0], 9.0)
    ((1, 0.5), (0, 2.0), (0, 0.0))
    """
    if len(nodes) == 1:
        return 0, 0.0
    i = bisect_right(nodes, x, 1, len(nodes) - 1) - 1
    return i, (x - nodes[i]) / (nodes[i + 1] - nodes[i])


def line_at(nodes: list[float], values: list[float], x: float) -> float:
    """A value on the line between two nodes; beyond the ends as the last line goes on.

    >>> line_at([0.0, 1.0, 3.0], [0.0, 2.0, 2.0], 0.25), line_at([0.0, 1.0], [0.0, 2.0], 2.0)
    (0.5, 4.0)
    """
    i, share = place_on(nodes, x)
    return values[i] + share * (values[i + 1] - values[i]) if len(nodes) > 1 else values[0]


def line_sums(
    nodes: list[float], lines: tuple[list[float], ...], x: float, growth: float, steps: int
) -> list[float]:
    r"""Sums of lines at points after one another.

    .. math:: \Sigma_q = \sum_{j=0}^{k-1} f_q(x + g j)

    of `steps` k points, `growth` g apart: an arithmetic series between every two nodes.

    >>> line_sums([0.0, 2.0, 9.0], ([0.0, 2.0, 2.0],), 0.5, 1.0, 4)
    [6.0]
    """
    last = len(nodes) - 2
    i = bisect_right(nodes, x, 1, last + 1) - 1
    if i == last or x + growth * (steps - 1) <= nodes[i + 1]:  # most often: all on one line
        share = (x + 0.5 * growth * (steps - 1) - nodes[i]) / (nodes[i + 1] - nodes[i])
        return [steps * (v[i] + share * (v[i + 1] - v[i])) for v in lines]
    totals = [0.0] * len(lines)
    while steps > 0:
        here = steps
        if i < last:
            here = min(max(int((nodes[i + 1] - x) / growth) + 1, 1), steps)
        share = (x + 0.5 * growth * (here - 1) - nodes[i]) / (nodes[i + 1] - nodes[i])
        for q, v in enumerate(lines):
            totals[q] += here * (v[i] + share * (v[i + 1] - v[i]))
        x, steps = x + growth * here, steps - here
        while i < last and x > nodes[i + 1]:
            i += 1
    return totals


class Surface:
    """Quantities over two variables; lines along the second are kept for every value of the first.

    >>> surface = Surface([1.0, 2.0], [0.0, 10.0], [[[1.0, 2.0], [3.0, 4.0]]])
    >>> surface.at(1.5, 5.0), surface.lines(1.5)
    ([2.5], ([2.0, 3.0],))
    """

    __slots__ = ("_kept", "_rows", "x", "y")

    def __init__(self, x: list[float], y: list[float], values: Any) -> None:
        """`values`: several quantities, each an array [x, y]."""
        self.x, self.y = x, y
        shape = (len(x), len(y))
        self._rows = [np.broadcast_to(np.asarray(v, float), shape).tolist() for v in values]
        self._kept: dict[float, tuple[list[float], ...]] = {}

    def lines(self, x: float) -> tuple[list[float], ...]:
        """Every quantity along the second variable; for few values of the first, since all are kept."""
        found = self._kept.get(x)
        if found is None:
            i, share = place_on(self.x, x)
            j = min(i + 1, len(self.x) - 1)
            found = tuple(
                [low + share * (high - low) for low, high in zip(v[i], v[j], strict=True)] for v in self._rows
            )
            self._kept[x] = found
        return found

    def at(self, x: float, y: float) -> list[float]:
        (i, u), (j, w) = place_on(self.x, x), place_on(self.y, y)
        k, m, found = min(i + 1, len(self.x) - 1), min(j + 1, len(self.y) - 1), []
        for v in self._rows:
            a, b = v[i], v[k]
            low, high = a[j] + w * (a[m] - a[j]), b[j] + w * (b[m] - b[j])
            found.append(low + u * (high - low))
        return found


CHECKS = 48  # points between nodes at which a table is compared with `evaluate`
SEED = 20
LONGER = 1e4


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
        self._bare = pricer.launched(0.0) or pricer  # what is summed up knows nothing of the host's launching
        self.stages = int(np.asarray(pricer.plan.pp))  # of a pipeline: as many lanes take turns
        self.lanes = int(pricer.lanes)  # ranks of the whole system, of all replicas and stages
        self.shares = pricer.shares_experts  # whether ranks do a part of each other's work
        self._verified = 1.0 + pricer.draft_tokens  # tokens that a step has of a sequence which generates
        self._lines: dict[float, tuple[Any, ...]] = {}  # by sequences, those asked for so far
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

    @cached_property
    def _launching(self) -> tuple[list[float], list[float]]:
        """The least that steps which read beside sequences take, as the host launches them, by sequences: no
        kernel takes so long as launching that is this much longer.
        """
        some, more = (self.pricer.launched(k) for k in (LONGER, 2.0 * LONGER))
        n = sorted({*axis_nodes(self._most[0], 1.25), self._most[0] + 1.0})
        if some is None or more is None:
            return n, [0.0] * len(n)
        least, longer = (p.read_beside(np.array(n), 1.0, 2.0, 1.0)[0] for p in (some, more))
        each = (longer - least) / LONGER
        return n, np.broadcast_to(least - (LONGER - 1.0) * each, (len(n),)).tolist()

    def _beside(self, sequences: float) -> tuple[Any, ...]:
        """Of steps that read beside sequences: by all tokens, what caches add, the host's launching."""
        launched = line_at(*self._launching, sequences)
        return *self._all.lines(sequences), *self._caches.lines(sequences), launched

    @property
    def _reaches(self) -> list[float]:
        longest = self._most[1]
        near = [0.5, 1.0, 2.0, 4.0, 16.0, 64.0]
        return sorted({*(v for v in near if v <= longest), *axis_nodes(longest, 2.0, min(128.0, longest))})

    @cached_property
    def _middle(self) -> tuple[float, float, float, float]:
        """Sequences, context, prompt tokens and what these attend to, around which parts are told apart."""
        sequences, longest, tokens = self._most
        return min(16.0, sequences), min(256.0, longest), min(64.0, tokens), min(128.0, longest)

    @cached_property
    def _all(self) -> Surface:
        """Steps that read and generate, by sequences and all their tokens, at the middle of the rest."""
        _, c0, _, a0 = self._middle
        sequences, _, tokens = self._most
        n, each = axis_nodes(sequences, 1.25), self._verified
        total = np.array(tile_nodes(tokens + each * sequences))
        # where all tokens are fewer than those of the sequences, as many sequences as leave one to read
        some = np.minimum(_column(n), np.maximum((total - 1.0) / each, 1.0))
        return Surface(n, total.tolist(), self._reading(some, c0, np.maximum(total - each * some, 1.0), a0))

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
        p = tile_nodes(self._most[2])
        there, here = (self._reading(n0, c0, _column(p), v) for v in (np.array(self._reaches), a0))
        return Surface(p, self._reaches, [v - w for v, w in zip(there, here, strict=True)])

    @cached_property
    def _saved(self) -> tuple[Surface, Surface]:
        """By which steps that generate, and steps that read, are shorter where fewer ranks have tokens: by
        the tokens of the fullest and the share of the ranks around its experts that have as many.
        """
        sequences, _, tokens = self._most
        ranks = self.pricer.sharers
        shares = [k / ranks for k in axis_nodes(float(ranks), 1.5)]
        made = []
        for most, reads in ((sequences * self._verified, False), (tokens + self._verified * sequences, True)):
            n = tile_nodes(most)
            made.append(Surface(n, shares, [self.pricer.saved(_column(n), np.array(shares), reads)]))
        return made[0], made[1]

    def _reading(self, n: Number, c: Number, p: Number, a: Number) -> tuple[Array, Array]:
        return self._bare.read_beside(n, c, p, a)

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
        lines = self._lines.get(sequences)
        if lines is None:
            lines = self._lines[sequences] = self._beside(sequences)
        v, e, f, g, launched = lines
        i, u = place_on(self._all.y, tokens + self._verified * sequences)
        j, w = place_on(self._contexts, context / sequences)
        time, energy = self._prompts.at(tokens, reach)
        time += v[i] + u * (v[i + 1] - v[i]) + f[j] + w * (f[j + 1] - f[j])
        energy += e[i] + u * (e[i + 1] - e[i]) + g[j] + w * (g[j + 1] - g[j])
        if time >= launched:
            return time, energy
        return launched, energy + (launched - time) * self.idle

    def saved(self, tokens: float, mean: float, reads: bool) -> float:
        """Time by which a step is shorter where ranks that share experts have `mean` tokens on average than
        where each has as many as one has [s]; negative where others have more.
        """
        surface = self._saved[reads]
        if tokens >= mean:
            return surface.at(tokens, mean / tokens)[0]
        return -surface.at(mean, max(tokens / mean, surface.y[0]))[0]

    def errors(self, checks: int = CHECKS) -> dict[str, float]:
        """What lines and sums leave against `evaluate`, relative, mean and largest between the nodes."""
        draw = np.random.default_rng(SEED)
        sequences, longest, tokens = self._most

        def drawn(most: float) -> Array:
            return np.exp(draw.uniform(0.0, np.log(most), checks))

        n, c, a = np.round(drawn(sequences)), drawn(longest), drawn(longest)
        p = np.round(drawn(tokens))
        pairs = zip(n.tolist(), (n * c).tolist(), p.tolist(), (p * a).tolist(), strict=True)
        rows = [(self.decode_steps(*q[:2], 1)[0], self.step(*q)[0]) for q in pairs]
        exact = self.pricer.generated(n, c)[0], self.pricer.read_beside(n, c, p, a)[0]
        found: dict[str, float] = {}
        for name, ours, theirs in zip(("decode", "mixed"), np.array(rows).T, exact, strict=True):
            off = np.abs(ours / np.broadcast_to(theirs, (checks,)) - 1.0)
            found |= {f"{name}_mean": float(off.mean()), f"{name}_largest": float(off.max())}
        return found


def _column(values: list[float]) -> Array:
    return np.array(values).reshape(-1, 1)
