"""Projected gradient with averaging, as DeepFlow's paper has it (eq. 6) and as its program does it.

All starts and all probes of a step are one batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from deepflow.design.ledger import OUT, Ledger, Spent
from deepflow.design.variables import DesignVariables
from strata.base.arrays import Array
from strata.base.errors import require

TINY = 1e-300


@dataclass(frozen=True, kw_only=True)
class DescentRule:
    """Switches of the projected gradient. The defaults average and probe within the budget."""

    rate: float = 1.0  # eta, the length of a move
    average: float = 0.8  # beta, the share of the past in the average
    factor: float = 1.1  # a probe multiplies one variable by it
    probe_inside: bool = True  # probes keep the budget: what one gains is taken from the others
    fill: bool = False  # shares are stretched to spend the whole budget, instead of projected onto it
    floor: float = 0.0  # least share, above what a class demands itself
    from_zero: bool = False  # the average starts at nothing, instead of at the first design
    unit_norm: bool = (
        False  # averages are of shares at unit norm, as printed, not of shares within the budget
    )
    cools: bool = True  # moves shorten with the root of the step's number
    patience: int = 20  # steps without a better design after which a start has converged; 0: never
    steps: int = 100
    starts: int = 4
    draws: int = 200  # random designs of which the best are the starts; at least the starts themselves
    grows_when_full: str = ""  # a column that is multiplied by the overflow where memory overflows


# As the paper prints it. The projection takes the same from every share of a vector at unit norm, which
# leaves small ones nothing.
PAPER_RULE = DescentRule(
    average=0.9, unit_norm=True, from_zero=True, patience=0, cools=False, starts=10, draws=0
)
# What the program of 2021 does: probes by half of the variable more, outside the budget; a move as long as
# the whole budget; an average that begins at nothing; shares stretched to the budget, never less than 0.01;
# a hundred steps in any case; one start, whose seed is its index.
DEEPFLOW_RULE = DescentRule(
    average=0.9, factor=1.5, probe_inside=False, fill=True, floor=0.01, unit_norm=True, from_zero=True,
    cools=False, patience=0, starts=1, draws=0,
)  # fmt: skip


def projected_gradient(
    ledger: Ledger, rng: np.random.Generator, rule: DescentRule, start: Array | None = None
) -> None:
    r"""Descend from some starts at once until each has converged, the steps or the budget are used up.

    .. math:: W \leftarrow W - \eta\, g / \lVert g \rVert, \quad \hat W = W / \lVert W \rVert, \quad
              M \leftarrow \beta M + (1 - \beta) \hat W, \quad W \leftarrow \Pi(M)

    for each class of shares by itself: W its shares, g the slope by differences, M the average, Pi the
    projection onto the budget. Real numbers move along their logarithm by the same rule without the norm.
    Choices stay those of the start.

    DeepFlow, eq. 6 and sec. 6.
    """
    variables = ledger.variables
    designs = variables.random(rng, min(max(rule.draws, rule.starts), max(ledger.budget // 4, rule.starts)))
    if start is not None:
        designs[0] = start
    designs = _onto(variables, designs, rule)
    try:
        merits = ledger.merits(designs)
        chosen = np.argsort(merits, kind="stable")[: rule.starts]
        designs, merits = designs[chosen], merits[chosen]
        averages = designs * (0.0 if rule.from_zero else 1.0)
        lowest, since = np.array(merits), np.zeros(len(designs), int)
        for step in range(1, rule.steps + 1):
            slopes = _differences(ledger, designs, merits, rule)
            rate = rule.rate / np.sqrt(step) if rule.cools else rule.rate
            designs, averages = _moved(variables, designs, averages, slopes, rate, rule)
            designs = _room_for_memory(variables, designs, merits, rule)
            merits = ledger.merits(designs)
            since = np.where(merits < lowest - 1e-6, 0, since + 1)
            lowest = np.minimum(lowest, merits)
            going = (since < rule.patience) | (rule.patience == 0)
            if not going.any():
                return
            designs, averages, merits = designs[going], averages[going], merits[going]
            lowest, since = lowest[going], since[going]
    except Spent:
        return


def _onto(variables: DesignVariables, designs: Array, rule: DescentRule) -> Array:
    """Designs within their budgets and limits: the nearest, or stretched to spend all of each budget."""
    made = np.array(designs)
    for own, block in zip(variables.shares, variables.blocks, strict=True):
        made[:, block] = np.maximum(made[:, block], max(rule.floor, own.floor))
        if rule.fill:
            made[:, block] *= own.total / made[:, block].sum(axis=1, keepdims=True)
    return variables.project(made)


def _unit(variables: DesignVariables, designs: Array) -> Array:
    """Shares of each class at unit norm; the other columns as they are."""
    made = np.array(designs)
    for block in variables.blocks:
        made[:, block] /= np.maximum(np.linalg.norm(made[:, block], axis=1, keepdims=True), TINY)
    return made


def _differences(ledger: Ledger, designs: Array, merits: Array, rule: DescentRule) -> Array:
    """Forward differences of the merit over every column with a slope: all probes of all starts in one
    batch. A probe on the other side of feasibility tells nothing.
    """
    count, columns = len(designs), ledger.variables.smooth_count
    require(rule.factor > 1.0, "probes multiply by more than 1", factor=rule.factor)
    probes = np.repeat(designs[:, None], columns, axis=1)
    each = np.arange(columns)
    probes[:, each, each] *= rule.factor
    flat = probes.reshape(count * columns, -1)
    tried = ledger.variables.project(flat) if rule.probe_inside else ledger.variables.clipped(flat)
    found = ledger.merits(tried).reshape(count, columns)
    alike = (found < OUT) == (merits[:, None] < OUT)
    width = (rule.factor - 1.0) * designs[:, :columns]
    width[:, ledger.variables.share_count :] = np.log(rule.factor)  # real numbers move along logarithms
    return np.where(alike, found - merits[:, None], 0.0) / np.maximum(width, TINY)


def _moved(
    variables: DesignVariables,
    designs: Array,
    averages: Array,
    slopes: Array,
    rate: float,
    rule: DescentRule,
) -> tuple[Array, Array]:
    """Designs and averages after a step."""
    moved = np.array(designs)
    for block in variables.blocks:
        slope = slopes[:, block]
        slope = slope / np.maximum(np.linalg.norm(slope, axis=1, keepdims=True), TINY)
        moved[:, block] = np.maximum(moved[:, block] - rate * slope, max(rule.floor, TINY))
    moved[:, variables.reals_at] *= np.exp(-rate * np.sign(slopes[:, variables.reals_at]))
    now = _unit(variables, moved) if rule.unit_norm else _onto(variables, moved, rule)
    averages = rule.average * averages + (1.0 - rule.average) * now
    moved[:, : variables.share_count] = averages[:, : variables.share_count]
    return _onto(variables, moved, rule), averages


def _room_for_memory(variables: DesignVariables, designs: Array, merits: Array, rule: DescentRule) -> Array:
    """Where memory overflowed, the share that buys it times the overflow."""
    if not rule.grows_when_full or rule.grows_when_full not in variables.names:
        return designs
    overflow = np.where(merits >= OUT, np.expm1((merits - OUT) / 10.0), 0.0)
    made, column = np.array(designs), variables.column(rule.grows_when_full)
    made[:, column] *= 1.0 + overflow
    return _onto(variables, made, rule)
