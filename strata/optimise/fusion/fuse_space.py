"""How many mappings there are inside a chip: the exact number, as an integer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from strata.optimise.fusion.fuse_path import fusion_steps
from strata.optimise.fusion.fusion_problem import FusionProblem, order_ideals
from strata.optimise.fusion.partition_prices import PartitionPricer

IDEALS, STEPS = 20_000, 1_000_000


@dataclass(frozen=True, kw_only=True)
class MapSpace:
    """How many mappings there are, as integers: of degrees and placements, layouts over all of these, and
    fused mappings of one rank's blocks; `mappings` is their sum over candidates, `counts` says of what.
    """

    candidates: int
    layouts: int
    fusions: int
    mappings: int
    counts: str


def fused_space(problems: Iterable[FusionProblem]) -> tuple[int, str] | None:
    """Fused mappings of some blocks together, and what is counted; None where one has too many."""
    mappings, words = 1, ""
    for problem in problems:
        found = mapping_space(problem)
        if found is None:
            return None
        mappings, words = mappings * found[0], found[1]
    return mappings, words


def mapping_space(problem: FusionProblem) -> tuple[int, str] | None:
    """All mappings of a problem without pins and limits of partitions, whether or not they fit, and in words
    what is counted; None where it has more than `IDEALS` order ideals.

    Ordered partitions that respect the graph (chains of order ideals), times the numbers of tiles (one for
    all or one for each), times, where rules share out cores, every way to give each kernel lanes x stages
    (element-wise ones lanes alone) of the cores.
    """
    problem = replace(problem, pinned=(), max_partitions=0)
    pricer = PartitionPricer(problem)
    pricer.weights = 0.0 * pricer.weights  # what does not fit counts too
    masks = order_ideals(problem.before, IDEALS)
    steps = None if masks is None else fusion_steps(pricer, masks, STEPS)
    if steps is None:
        return None
    products = np.array([k.depth > 0 for k in problem.kernels])
    made, plain = (
        (rows.sum(1)[steps.second] - rows.sum(1)[steps.first]).astype(int).tolist()
        for rows in (steps.rows[:, products], steps.rows[:, ~products])
    )
    shared, pairs = problem.rules.compute == "cores", list(zip(made, plain, strict=True))
    ways = _core_shares(set(pairs), problem.chip.cores) if shared else dict.fromkeys(pairs, 1)
    choices, own = len(problem.tiles), problem.rules.tiles == "each"
    each = choices if own else 1
    total = [1] + [0] * (steps.ideals - 1)  # over chains to each ideal; steps are sorted by their second
    for i, j, pair in zip(steps.first.tolist(), steps.second.tolist(), pairs, strict=True):
        total[j] += total[i] * each * ways[pair]
    words = f"chains of order ideals x {'a number of tiles each' if each > 1 else 'one number of tiles'}"
    words += f" x lanes and stages of {problem.chip.cores} cores" if shared else ""
    return total[-1] * (1 if each > 1 else choices), words


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
