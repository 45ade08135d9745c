"""How many mappings there are inside a chip: the exact number, as an integer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from strata.optimise.fusion.fuse_path import fusion_steps
from strata.optimise.fusion.fusion_problem import FusionProblem
from strata.optimise.fusion.ideals import order_ideals
from strata.optimise.fusion.partition_prices import PartitionPricer

STEPS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class MappingSpace:
    """Numbers of mappings: chains of partitions, those with numbers of tiles, those with cores shared out;
    `counts` says in words what the last one counts.
    """

    chains: int
    with_tiles: int
    mappings: int
    counts: str


def mapping_space(problem: FusionProblem, limit: int = 20_000) -> MappingSpace | None:
    """All mappings of a problem, whether or not they fit; None where it has more than `limit` order ideals.

    Ordered partitions that respect the graph (chains of order ideals), times the numbers of tiles (one for
    all or one for each), times, where rules share out cores, every way to give each kernel lanes x stages
    (element-wise ones lanes alone) of the cores.
    """
    pricer = PartitionPricer(problem)
    pricer.weights = 0.0 * pricer.weights  # what does not fit counts too
    masks = order_ideals(problem.before, limit)
    steps = None if masks is None else fusion_steps(pricer, masks, STEPS)
    if steps is None:
        return None
    products = np.array([k.depth > 0 for k in problem.kernels])
    every = [
        rows.sum(1)[steps.second] - rows.sum(1)[steps.first]
        for rows in (steps.rows[:, products], steps.rows[:, ~products])
    ]
    made, plain = (counts.astype(int).tolist() for counts in every)
    shared = problem.rules.compute == "cores"
    pairs = set(zip(made, plain, strict=True))
    ways = _core_shares(pairs, problem.chip.cores) if shared else dict.fromkeys(pairs, 1)
    choices = len(problem.tiles)
    each = choices if problem.rules.tiles == "each" else 1
    halves = problem.apart and problem.max_partitions
    sections = steps.section.tolist() if halves else [0] * len(made)
    limit = problem.max_partitions // 2 if halves else problem.max_partitions
    first, second = steps.first.tolist(), steps.second.tolist()
    counted = [
        _chains(list(zip(first, second, factors, sections, strict=True)), steps.ideals, limit)
        for factors in (
            [1] * len(first),
            [each] * len(first),
            [each * ways[pair] for pair in zip(made, plain, strict=True)],
        )
    ]
    once = choices if each == 1 else 1
    words = f"chains of order ideals x {'a number of tiles each' if each > 1 else 'one number of tiles'}"
    return MappingSpace(
        chains=counted[0],
        with_tiles=counted[1] * once,
        mappings=counted[2] * once,
        counts=words + (f" x lanes and stages of {problem.chip.cores} cores" if shared else ""),
    )


def _chains(steps: list[tuple[int, int, int, int]], ideals: int, limit: int) -> int:
    """Sum over chains of the product of their steps' factors, within a number of steps of each section (0:
    any). Steps are (first, second, factor, section), by the second: all before it are done.
    """
    total = [1] + [0] * (ideals - 1)
    if not limit:
        for i, j, factor, _ in steps:
            total[j] += total[i] * factor
        return total[-1]
    for section in sorted({s for *_, s in steps}):
        own = [(i, j, factor) for i, j, factor, s in steps if s == section]
        layer, total = total, [0] * ideals
        for _ in range(limit):
            after = [0] * ideals
            for i, j, factor in own:
                after[j] += layer[i] * factor
            layer, total = after, [a + b for a, b in zip(total, after, strict=True)]
    return total[-1]


def _core_shares(pairs: set[tuple[int, int]], cores: int) -> dict[tuple[int, int], int]:
    """Ways to give so many products lanes x stages and so many element-wise kernels lanes, within the cores.

    Generating functions, packed into one integer each: coefficients of x^c for c cores in all.

    >>> _core_shares({(1, 0), (0, 2)}, 4) == {(1, 0): 1 + 2 + 2 + 3, (0, 2): 1 + 2 + 3}
    True
    """
    most = max(a + b for a, b in pairs)
    bits = 2 * most * max(cores, 2).bit_length() + cores.bit_length()
    mask = (1 << bits * (cores + 1)) - 1

    def packed(values: list[int]) -> int:
        return sum(v << bits * c for c, v in enumerate(values))

    divisors = [0] * (cores + 1)
    for d in range(1, cores + 1):
        for c in range(d, cores + 1, d):
            divisors[c] += 1
    product, lanes = packed(divisors), packed([0] + [1] * cores)
    powers: dict[tuple[int, int], int] = {(0, 0): 1}

    def power(a: int, b: int) -> int:
        if (a, b) not in powers:
            smaller = power(a - 1, b) * product if a else power(a, b - 1) * lanes
            powers[a, b] = smaller & mask
        return powers[a, b]

    one = (1 << bits) - 1
    return {(a, b): sum(power(a, b) >> bits * c & one for c in range(cores + 1)) for a, b in sorted(pairs)}
