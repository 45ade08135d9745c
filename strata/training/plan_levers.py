"""Levers of training: those that the box of plans does not hold, tried where they can win (recomputing only
as many layers as memory asks for, sharding over fewer ranks than there are); and what each value of a lever
is worth with the best of all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from strata.mapping.plan import WORDS, Plan
from strata.mapping.plans import TrainingBox
from strata.mapping.rules import divisors
from strata.mapping.training_plan import RECOMPUTE

FULL = RECOMPUTE.index("full")
RECOMPUTE_AXIS, ZERO_AXIS = 2, 4  # of the box
KEPT_MESHES = 48  # whose plans are looked at closer
AGAIN = 0.25  # of a step whose layers are all recomputed: one forward pass of four
LEVERS = (
    *("tp", "cp", "pp", "dp", "ep", "sp"),
    *("micro_batch", "recompute", "schedule", "virtual_stages", "zero"),
)
ROUND = 1  # layers on either side of the number that memory asks for


@dataclass(frozen=True, eq=False, kw_only=True)
class PricedPlans:
    """A box or a list of plans, priced: what each is worth (more is better, -inf where it does not fit), time
    of a step (inf there), and bytes of a device whether it fits or not.
    """

    scores: np.ndarray
    times: np.ndarray
    used: np.ndarray
    limit: float


Pricer = Callable[[Plan, int], PricedPlans]  # of a list of so many plans


@dataclass(eq=False)
class Refined:
    """Plans that are better than those of the box at whose places they stand."""

    layers: np.ndarray  # recompute_layers at each place of the box, flat
    shards: np.ndarray  # dp_shard
    tried: int = 0

    def at(self, box: TrainingBox, places: np.ndarray) -> Plan:
        """Plans at flat places of the box."""
        return replace(box.at(places), recompute_layers=self.layers[places], dp_shard=self.shards[places])


def refine(box: TrainingBox, found: PricedPlans, layers: float, price: Pricer) -> Refined:
    """Better plans beside those of a box; the scores of the places they stand for are raised."""
    made = Refined(layers=np.zeros(box.legal.size), shards=np.zeros(box.legal.size))
    _fewer_layers(box, found, layers, price, made)
    _fewer_shards(box, found, price, made)
    return made


def layers_needed(layers: np.ndarray, least: np.ndarray, most: np.ndarray, limit: float) -> np.ndarray:
    r"""How many layers of a chunk must be recomputed for a device to hold the rest.

    .. math:: n = \left\lceil L \frac{M_0 - M}{M_0 - M_L} \right\rceil

    layers L of a chunk, bytes M_0 where none of them is recomputed and M_L where all are, limit M: a layer
    that is recomputed frees as much as any other.

    >>> layers_needed(np.array([10.0]), np.array([20.0]), np.array([120.0]), 79.0)
    array([5.])
    """
    freed = np.where(most > least, most - least, np.inf)
    found: np.ndarray = np.ceil(layers * (most - limit) / freed - 1e-9)
    return found


def _fewer_layers(box: TrainingBox, found: PricedPlans, layers: float, price: Pricer, made: Refined) -> None:
    """Plans that fit where all layers are recomputed and do not where none is: as few as fit."""
    shape = box.legal.shape
    levels = np.ravel(box.plan.recompute)
    if not {0.0, float(FULL)} <= set(levels):
        return
    none, every = (int(np.flatnonzero(levels == level)[0]) for level in (0.0, float(FULL)))
    places = np.arange(box.legal.size).reshape(shape)

    def at(values: np.ndarray, which: int) -> np.ndarray:
        return np.take(values, which, RECOMPUTE_AXIS)

    chunk = np.ceil(layers / np.broadcast_to(box.plan.pp * box.plan.virtual_stages, shape))
    chunk = at(chunk, every)
    most, least = at(found.used, none), at(found.used, every)
    fits = np.isfinite(found.scores)
    open_ = at(fits, every) & at(box.legal, none) & ~at(fits, none) & (most > found.limit) & (chunk > 1)
    if not open_.any():
        return
    with np.errstate(invalid="ignore"):
        count = np.clip(layers_needed(chunk, least, most, found.limit), 1.0, chunk - 1.0)
        hoped = np.where(open_, at(found.times, every) * (1.0 - AGAIN * (1.0 - count / chunk)), np.inf)
    best = np.where(fits, found.times, np.inf).reshape(shape[0], -1).min(axis=1)
    each = hoped.reshape(shape[0], -1)
    first = each.argmin(axis=1)
    rows = np.flatnonzero(each.min(axis=1) < best)
    rows = rows[np.argsort(each[rows, first[rows]], kind="stable")][:KEPT_MESHES]
    if not len(rows):
        return
    width = each.shape[1]
    flat = rows * width + first[rows]
    place, need, most_of = (np.ravel(v)[flat] for v in (at(places, every), count, chunk))
    tried = np.clip(need[:, None] + np.arange(-ROUND, ROUND + 1), 1.0, most_of[:, None] - 1.0)
    which = np.repeat(place, tried.shape[1])
    _keep(box, found, made, price, which, made.layers, np.ravel(tried))


def _fewer_shards(box: TrainingBox, found: PricedPlans, price: Pricer, made: Refined) -> None:
    """The best plans of each mesh and ZeRO level, sharded over fewer ranks with copies beside (HSDP)."""
    shape, levels = box.legal.shape, np.ravel(box.plan.zero)
    ranks = np.ravel(np.asarray(box.plan.dp * box.plan.cp))
    places = np.arange(box.legal.size).reshape(shape)
    found_at = []
    for level in np.flatnonzero(levels > 0):
        each = np.take(found.scores, level, ZERO_AXIS).reshape(shape[0], -1)
        first = each.argmax(axis=1)
        own = np.take(places, level, ZERO_AXIS).reshape(shape[0], -1)[np.arange(shape[0]), first]
        found_at.append(own[np.isfinite(each.max(axis=1))])
    every = np.concatenate(found_at) if found_at else np.zeros(0, int)
    every = every[np.argsort(-np.ravel(found.scores)[every], kind="stable")][:KEPT_MESHES]
    which: list[int] = []
    shards: list[float] = []
    for place in every:
        whole = int(ranks[np.unravel_index(place, shape)[0]])
        for part in divisors(whole):
            if 1 < part < whole:
                which.append(int(place))
                shards.append(float(part))
    if which:
        _keep(box, found, made, price, np.array(which), made.shards, np.array(shards))


def _keep(
    box: TrainingBox,
    found: PricedPlans,
    made: Refined,
    price: Pricer,
    places: np.ndarray,
    lever: np.ndarray,
    values: np.ndarray,
) -> None:
    """Price places of the box with other values of a lever, and keep those that are better."""
    plan = made.at(box, places)
    plan = replace(plan, **{"recompute_layers" if lever is made.layers else "dp_shard": values})
    priced = price(plan, len(places))
    made.tried += len(places)
    scores = found.scores.reshape(-1)  # a view: what is kept raises the box's own
    for place, value, score in zip(places, values, np.ravel(priced.scores), strict=True):
        if score > scores[place]:
            scores[place], lever[place] = score, value


@dataclass(frozen=True, eq=False, kw_only=True)
class LeverWorth:
    """One value of one lever, whatever the others are: plans that fit, and the best of them."""

    name: str
    value: str
    fitting: int
    plans: int
    best: float  # value of the metric; nan where none fits
    loss: float  # against the best plan of all; nan where none fits


def lever_worths(box: TrainingBox, scores: np.ndarray, batch: float) -> Iterator[LeverWorth]:
    """What each value of each lever is worth with the best of all others."""
    best, finite = float(scores.max()), np.isfinite(scores)
    held = {"micro_batch": batch / box.plan.dp / box.plan.microbatches}
    for name in LEVERS:
        values = np.asarray(held.get(name, getattr(box.plan, name, None)), float)
        values = values.reshape((1,) * (scores.ndim - values.ndim) + values.shape)
        others = tuple(axis for axis, size in enumerate(values.shape) if size == 1)
        each = scores.max(axis=others, keepdims=True)
        fitting, plans = (here.sum(axis=others, keepdims=True) for here in (finite, box.legal))
        tried, words = np.unique(values[plans > 0]), WORDS.get(name)
        for value in tried if len(tried) > 1 else ():
            at = (values == value) & (plans > 0)
            top = float(each[at].max())
            fits = np.isfinite(top)
            yield LeverWorth(
                name=name,
                value=words[int(value)] if words else f"{value:g}",
                fitting=int(fitting[at].sum()),
                plans=int(plans[at].sum()),
                best=abs(top) if fits else float("nan"),
                loss=abs(top / best - 1.0) if fits else float("nan"),
            )
