"""What each lever of training is worth: each of its values with the best of all others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from strata.mapping.plan import WORDS
from strata.mapping.plans import TrainingBox

LEVERS = (
    "tp",
    "cp",
    "pp",
    "dp",
    "ep",
    "sp",
    "micro_batch",
    "recompute",
    "schedule",
    "virtual_stages",
    "zero",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class LeverWorth:
    """One value of one lever, whatever the others are: plans that fit, and the best of them."""

    name: str
    value: str
    fitting: int
    plans: int
    best: float  # value of the metric; nan where none fits
    loss: float  # against the best plan of all; nan where none fits


def by_lever(
    box: TrainingBox, scores: np.ndarray, batch: float
) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Levers with their values, and at each place that these tell apart the best score of all other levers,
    how many plans fit and how many there are.
    """
    plan, finite = box.plan, np.isfinite(scores)
    micro = batch / plan.dp / plan.microbatches
    held = {name: getattr(plan, name) for name in LEVERS if name != "micro_batch"} | {"micro_batch": micro}
    known: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
    for name in LEVERS:
        values = np.asarray(held[name], float)
        values = values.reshape((1,) * (scores.ndim - values.ndim) + values.shape)
        axes = tuple(axis for axis, size in enumerate(values.shape) if size == 1)
        if axes not in known:
            known[axes] = (
                scores.max(axis=axes, keepdims=True),
                finite.sum(axis=axes, keepdims=True),
                box.legal.sum(axis=axes, keepdims=True),
            )
        yield name, values, *known[axes]


def lever_worths(box: TrainingBox, scores: np.ndarray, batch: float) -> Iterator[LeverWorth]:
    """What each value of each lever is worth with the best of all others."""
    best = float(scores.max())
    for name, values, each, fitting, plans in by_lever(box, scores, batch):
        tried = np.unique(values[plans > 0])
        for value in tried if len(tried) > 1 else ():
            at = (values == value) & (plans > 0)
            top = float(each[at].max())
            fits = np.isfinite(top)
            words = WORDS.get(name)
            yield LeverWorth(
                name=name,
                value=words[int(value)] if words else f"{value:g}",
                fitting=int(fitting[at].sum()),
                plans=int(plans[at].sum()),
                best=abs(top) if fits else float("nan"),
                loss=abs(top / best - 1.0) if fits else float("nan"),
            )
