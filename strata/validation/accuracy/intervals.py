"""How far to trust a prediction: conformal intervals from the residuals of measured rows that no fit has
seen.

A row's residual is ln(measured / predicted). Rows that share metric, engine, chip, kind and family of model
are a category (a Mondrian one: Vovk, Gammerman & Shafer, Algorithmic Learning in a Random World, 2005, sec.
4.5). A question that falls into one with enough rows gets the interval of its rows. Any other gets that of
like categories, each of which counts as one draw: same engine and kind, then any kind, then any engine; but a
chip that was never fitted borrows only from rows that were priced without their own chip's fit.
`residuals.json` is written by `strata.validation.accuracy.like_rows` from the project's data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from strata.arrays import Array

SHARE = 0.8  # of like rows that an interval holds
LEAST = 10  # rows below which a category borrows from wider ones
GROUPS = 3  # categories below which it borrows from still wider ones
# Share of few groups' rows that an interval holds: so much of the others holds 80 % of a group left out (the
# check in docs/accuracy.md).
MOST_OF_GROUPS = 0.87
ALIKE = ("dense", "moe")  # kinds that may borrow from each other; one that keeps a state is like neither
UNIT = 1e-4  # of residuals in the file, which are whole numbers
RATES = ("throughput",)  # metrics of which more is better; all others are times, watts or bytes
ANY = "*"
REPRICED = "ideal*"  # rows of real engines, priced without what the engine adds
WORDS = {
    "prefill": "prefill",
    "decode": "decode",
    "request": "time to first token under load",
    "throughput": "tokens/s under load",
    "train": "training",
    "power": "power",
    "memory": "memory",
}


@dataclass(frozen=True, kw_only=True)
class LikeCase:
    """What makes two predictions alike. `form` is how the chip is built (gpu, systolic, stacked, …);
    `fitted`: quantities of the chip, or of a sibling with the same dies, rest on measured kernels or steps.
    """

    metric: str
    engine: str = ANY
    chip: str = ANY
    form: str = "gpu"
    fitted: bool = True
    kind: str = ""
    family: str = ""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Where a predicted quantity would be measured, as logarithms of measured / predicted: 80 % of like rows
    lie there, and the prediction itself always does.
    """

    low: float
    high: float
    points: int
    like: str  # which runs: "vllm on h200, dense models", or wider
    inside: bool  # engine, chip and kind of model were all measured together
    missing: tuple[str, ...] = ()  # what was not measured

    def bounds(self, value: Any) -> tuple[Any, Any]:
        """Where a predicted value, or each of an array, would be measured.

        >>> Interval(low=-0.1, high=0.3, points=40, like="", inside=True).bounds(10.0)
        (9.048374180359595, 13.498588075760033)
        """
        return value * float(np.exp(self.low)), value * float(np.exp(self.high))

    def of_rate(self) -> Interval:
        """The same of one over the quantity: tokens/s of a token's time."""
        return replace(self, low=-self.high, high=-self.low)


@dataclass(frozen=True, kw_only=True)
class NothingLike:
    """No row like it was measured, and why that is so."""

    missing: tuple[str, ...] = field(default=())


def conformal(groups: Sequence[Array | Sequence[float]], most: float = 1.0) -> tuple[float, float]:
    r"""The interval around 0 that holds 80 % of what is drawn as these residuals were: a group of them first,
    then one of it. Rows that are alike are groups of one.

    .. math:: w = \frac{1}{K} \sum_g \frac{1}{n_g}, \qquad
              \sum_{r \in [l, h]} w = \min(\frac{0.8 (K + 1) + 1}{K}, m)

    K groups of n residuals each, every group of the same weight. The share is that of Wilks for groups of
    one: from the a-th to the b-th of K values lies the next one with probability (b - a) / (K + 1), whatever
    their distribution. `most` m bounds it where groups are few. The interval lies in the middle, moved as
    little as it takes to hold 0, the prediction itself; where all residuals lie on one side, 0 is its end.

    Wilks, Ann. Math. Stat. 12 (1941), 91-96; Dunn, Wasserman & Ramdas, Distribution-free prediction sets for
    two-layer hierarchical models, J. Am. Stat. Assoc. 118 (2023), sec. 3 (pooling).

    >>> conformal([[r] for r in (-4, -3, -2, -1, 0, 1, 2, 3, 4)])
    (-4.0, 4.0)
    >>> conformal([[r] for r in (1, 2, 3, 4, 5, 6, 7, 8, 9)])
    (0.0, 8.0)
    """
    count = len(groups)
    values = np.concatenate([np.asarray(g, float) for g in groups])
    weights = np.concatenate([np.full(len(g), 1.0 / (count * len(g))) for g in groups])
    order = np.argsort(values, kind="stable")
    values, after = values[order], np.cumsum(weights[order])
    before = np.concatenate([[0.0], after[:-1]])
    onesided = values[0] > 0 or values[-1] < 0  # 0 is an end then, in place of a row
    share = min((SHARE * (count + 1) + 1.0 - onesided) / count, most, 1.0)
    slack = 0.5 * float(np.min(weights)) + 1e-9  # to the nearest row

    def upto(first: int) -> int:
        enough = after - before[first] >= share - slack
        return int(np.argmax(enough)) if enough.any() else len(values) - 1

    first = int(np.flatnonzero(before <= (1.0 - share) / 2.0 + slack)[-1])
    first = min(first, max(int(np.count_nonzero(values <= 0)) - 1, 0))
    last = upto(first)
    if values[last] < 0:
        last = min(int(np.count_nonzero(values < 0)), len(values) - 1)
        first = int(np.flatnonzero(after[last] - before >= share - slack)[-1]) if last < len(values) else 0
    return min(float(values[first]), 0.0), max(float(values[last]), 0.0)


# ------------------------------------------------------------------------------- the table of residuals


@lru_cache(maxsize=1)
def shipped_residuals() -> dict[str, Any]:
    """The residuals of the project's own data."""
    text = files("strata.validation.accuracy").joinpath("residuals.json").read_text(encoding="utf-8")
    known: dict[str, Any] = json.loads(text)
    return known


def _spread(stored: Sequence[float]) -> Array:
    """The residuals of a cell: how many there are, then they, or quantiles of them."""
    count, values = int(stored[0]), np.asarray(stored[1:], float) * UNIT
    if len(values) == count:
        return values
    return np.interp(np.linspace(0.0, 1.0, count), np.linspace(0.0, 1.0, len(values)), values)


def _wider(case: LikeCase) -> Iterator[LikeCase]:
    """Wider and wider categories of a case."""
    for engine in dict.fromkeys((case.engine, REPRICED if case.engine == "ideal" else ANY)):
        yield replace(case, engine=engine, chip=ANY, family=ANY)
        if case.kind in ALIKE:
            yield replace(case, engine=engine, chip=ANY, family=ANY, kind=ANY)


def _cells(table: Mapping[str, Any]) -> Iterator[tuple[LikeCase, Sequence[float]]]:
    for key, stored in table["cells"].items():
        metric, engine, chip, kind, family, fit = key.split("|")
        yield (
            LikeCase(
                metric=metric,
                engine=engine,
                chip=chip,
                form=table["chips"].get(chip, "gpu"),
                fitted=fit == "fitted",
                kind=kind,
                family=family,
            ),
            stored,
        )


def _matches(pattern: LikeCase, cell: LikeCase) -> bool:
    real = cell.engine not in (REPRICED, "ideal")  # software of a kind, which any engine is like
    return (
        cell.form == pattern.form
        and cell.fitted == pattern.fitted
        and (cell.engine == pattern.engine or (pattern.engine == ANY and real))
        and pattern.chip in (ANY, cell.chip)
        and pattern.kind in (ANY, cell.kind)
        and pattern.family in (ANY, cell.family)
    )


def interval(case: LikeCase, table: Mapping[str, Any] | None = None) -> Interval | NothingLike:
    """The residuals of the nearest rows that are like a case, or that there are none.

    >>> found = interval(LikeCase(metric="decode", engine="vllm", chip="b200", kind="dense", family="llama"))
    >>> found.low <= 0.0 <= found.high and found.inside and found.points >= 10
    True
    >>> interval(LikeCase(metric="decode", form="stacked", kind="dense")).missing
    ('no decode on a stacked chip',)
    """
    cells = [
        (cell, stored)
        for cell, stored in _cells(shipped_residuals() if table is None else table)
        if cell.metric == case.metric
    ]
    word = WORDS.get(case.metric, case.metric)
    if not any(cell.form == case.form for cell, _ in cells):
        return NothingLike(missing=(f"no {word}" + (f" on a {case.form} chip" if cells else ""),))
    if case.kind not in ("", *ALIKE) and not any(cell.kind == case.kind for cell, _ in cells):
        return NothingLike(missing=(f"no {word}{_of(case.kind)}",))
    missing = _missing(case, [cell for cell, _ in cells], word)
    same = [_spread(stored) for cell, stored in cells if case.fitted and _matches(case, cell)]
    if same and len(same[0]) >= LEAST and case.engine != ANY:
        low, high = conformal(list(same[0][:, None]))
        like = _named(case.engine, f"on {case.chip}", case.kind)
        return Interval(low=low, high=high, points=len(same[0]), like=like, inside=True)
    widest: tuple[LikeCase, list[Array]] | None = None
    for pattern in _wider(case):
        alike = [_spread(stored) for cell, stored in cells if _matches(pattern, cell)]
        if sum(map(len, alike)) >= LEAST:
            widest = pattern, alike
            if len(alike) >= GROUPS:
                break
    if widest is None:
        return NothingLike(missing=(*missing, f"fewer than {LEAST} rows of {word} like it"))
    pattern, alike = widest
    low, high = conformal(alike, MOST_OF_GROUPS)
    like = _named(pattern.engine, "on other chips", pattern.kind)
    points = sum(map(len, alike))
    return Interval(low=low, high=high, points=points, like=like, inside=False, missing=tuple(missing))


def _missing(case: LikeCase, cells: Sequence[LikeCase], word: str) -> list[str]:
    """What was never measured, one after the other."""
    said = []
    if not any(cell.chip == case.chip and cell.kind == case.kind for cell in cells):
        said.append(f"no {word}{_of(case.kind)} on {case.chip}")
    if case.engine != ANY and not any(cell.engine == case.engine for cell in cells):
        said.append(f"no {word}{_by(case.engine)}")
    if case.family and not any(cell.family == case.family for cell in cells):
        said.append(f"no {word} of a {case.family} model")
    return said


def _of(kind: str) -> str:
    return f" of {'any' if kind == ANY else kind} models" if kind else ""


def _by(engine: str) -> str:
    return {REPRICED: " by engines without their host", ANY: "", "bare": ""}.get(engine, f" by {engine}")


def _named(engine: str, chips: str, kind: str) -> str:
    """Which runs: `vllm on h200, dense models`."""
    software = {REPRICED: "engines without their host", ANY: "any engine", "bare": "kernels"}
    models = {"": "", ANY: ", any model"}.get(kind, f", {kind} models")
    return f"{software.get(engine, engine)} {chips}{models}"
