"""How far to trust a prediction: conformal intervals from the residuals of measured rows that no fit has
seen.

A row's residual is ln(measured / predicted). Rows of one kind of question (a metric by an engine) that
share chip, kind and family of model are a cell (a Mondrian category: Vovk, Gammerman & Shafer, Algorithmic
Learning in a Random World, 2005, sec. 4.5). How far a question is from what was measured says which rows
are like it: its own cell; other families on its chip; other chips; the latter two predicted by numbers that
were fitted without them. Of other cells each counts as one draw. `residuals.json` is written by
`strata.validation.accuracy.tables`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from strata.base.arrays import Array

SHARE = 0.8  # of like rows that an interval holds
LEAST = 10  # rows below which a cell is not enough
ALIKE = ("dense", "moe")  # kinds that may borrow from each other; one that keeps a state is like neither
UNIT = 1e-4  # of residuals in the file, which are whole numbers
RATES = ("throughput",)  # metrics of which more is better; all others are times, watts or bytes
ANY = "*"
REPRICED = "ideal*"  # rows of real engines, priced without what the engine adds
NOT_ENGINES = (REPRICED, "ideal")
NEAR, ON_CHIP, FAR = "same chip and family", "same chip", "other chips"
DISTANCES = (NEAR, ON_CHIP, FAR)
CELLS = {NEAR: 1, ON_CHIP: 2, FAR: 3}  # fewer of them are not enough
# Share of rows that an interval holds at most: so much of the others holds 80 % of a cell left out (the check
# in docs/accuracy.md).
MOST = {NEAR: 1.0, ON_CHIP: 1.0, FAR: 0.93}
WORDS = {
    "request": "time to first token under load",
    "throughput": "tokens/s under load",
    "train": "training",
}


@dataclass(frozen=True, kw_only=True)
class LikeCase:
    """What makes two predictions alike. `chip` is "" of a chip that nobody has; `form` is how it is built
    (gpu, systolic, stacked, …).
    """

    metric: str
    engine: str = ANY
    chip: str = ""
    form: str = "gpu"
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
    distance: str = NEAR
    missing: tuple[str, ...] = ()  # what was not measured

    @property
    def inside(self) -> bool:
        """Whether engine, chip and family of model were all measured together."""
        return self.distance == NEAR

    def bounds(self, value: Any) -> tuple[Any, Any]:
        """Where a predicted value, or each of an array, would be measured.

        >>> Interval(low=-0.1, high=0.3, points=40, like="").bounds(10.0)
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


def _cells(table: Mapping[str, Any], metric: str, distance: str) -> list[tuple[LikeCase, Sequence[float]]]:
    """Cells of a metric, as questions at a distance see them."""
    cells = []
    for key, stored in table[distance].items():
        name, engine, chip, kind, family = key.split("|")
        if name == metric:
            form = table["chips"].get(chip, "gpu")
            cell = LikeCase(metric=name, engine=engine, chip=chip, form=form, kind=kind, family=family)
            cells.append((cell, stored))
    return cells


def _patterns(case: LikeCase) -> Iterator[tuple[str, LikeCase]]:
    """The question from near to far, kinds of models apart before together, its engine before any. A kernel
    is near others of its kind on its chip, whoever calls them.
    """
    yield NEAR, case
    any_family = replace(case, family=ANY)
    kinds = (case.kind, ANY) if case.kind in ALIKE else (case.kind,)
    if case.chip and not case.family:
        yield NEAR, replace(case, engine=ANY)
    if case.chip and case.family:
        yield from ((ON_CHIP, replace(any_family, kind=kind)) for kind in kinds)
    engines = dict.fromkeys((case.engine, REPRICED if case.engine in NOT_ENGINES else ANY))
    for engine in engines:
        yield from ((FAR, replace(any_family, chip=ANY, engine=engine, kind=kind)) for kind in kinds)


def _matches(pattern: LikeCase, cell: LikeCase) -> bool:
    return (
        cell.form == pattern.form
        and (cell.engine == pattern.engine or (pattern.engine == ANY and cell.engine not in NOT_ENGINES))
        and pattern.chip in (ANY, cell.chip)
        and pattern.kind in (ANY, cell.kind)
        and pattern.family in (ANY, cell.family)
    )


def interval(case: LikeCase, table: Mapping[str, Any] | None = None) -> Interval | NothingLike:
    """The residuals of the nearest rows that are like a case, or that there are none.

    >>> known = LikeCase(metric="decode", engine="vllm", chip="b200", kind="dense", family="llama")
    >>> near = interval(known)
    >>> near.low <= 0.0 <= near.high and near.inside and near.points >= 10
    True
    >>> interval(LikeCase(metric="decode", form="stacked", kind="dense")).missing
    ('no decode on a stacked chip',)
    """
    known = shipped_residuals() if table is None else table
    cells = {distance: _cells(known, case.metric, distance) for distance in DISTANCES}
    every = [cell for some in cells.values() for cell, _ in some]
    word = WORDS.get(case.metric, case.metric)
    if not any(cell.form == case.form for cell in every):
        return NothingLike(missing=(f"no {word}" + (f" on a {case.form} chip" if every else ""),))
    if case.kind not in ("", *ALIKE) and not any(cell.kind == case.kind for cell in every):
        return NothingLike(missing=(f"no {word} of {case.kind} models",))
    missing = tuple(_missing(case, every, word))
    widest: tuple[str, LikeCase, dict[LikeCase, Array]] | None = None
    for distance, pattern in _patterns(case):
        alike = {cell: _spread(stored) for cell, stored in cells[distance] if _matches(pattern, cell)}
        if sum(map(len, alike.values())) >= LEAST:
            widest = distance, pattern, alike
            if len(alike) >= CELLS[distance]:
                break
    if widest is None:
        return NothingLike(missing=(*missing, f"fewer than {LEAST} rows of {word} like it"))
    distance, pattern, alike = widest
    first, *others = alike.values()
    engines = {cell.engine for cell in alike}
    # rows of its own cell are drawn one by one
    groups = list(first[:, None]) if distance == NEAR and not others else [first, *others]
    low, high = conformal(groups, MOST[distance])
    return Interval(
        low=low,
        high=high,
        points=sum(map(len, alike.values())),
        like=_named(replace(pattern, engine=engines.pop()) if len(engines) == 1 else pattern, distance),
        distance=distance,
        missing=() if distance == NEAR else missing,
    )


def _missing(case: LikeCase, cells: Sequence[LikeCase], word: str) -> Iterator[str]:
    """What was never measured, one after the other."""
    of = f" of {case.kind} models" if case.kind else ""
    if not case.chip:
        yield f"no {word}{of} on a chip as changed here"
    elif not any(cell.chip == case.chip and cell.kind == case.kind for cell in cells):
        yield f"no {word}{of} on {case.chip}"
    if case.engine not in (ANY, "bare", REPRICED) and not any(cell.engine == case.engine for cell in cells):
        yield f"no {word} by {case.engine}"
    if case.family and not any(cell.family == case.family for cell in cells):
        yield f"no {word} of a {case.family} model"


def _named(pattern: LikeCase, distance: str) -> str:
    """Which runs: `vllm on h200, llama models`."""
    by = {"bare": "", ANY: "", "served": " in engines"}.get(pattern.engine, f" by {pattern.engine}")
    names = {REPRICED: "engines without their host", ANY: "any engine"}
    software = names.get(pattern.engine, pattern.engine)
    if pattern.metric.startswith("kernel "):
        software = f"{pattern.metric.removeprefix('kernel ')} kernels{by}"
    where = "on other chips" if distance == FAR else f"on {pattern.chip}"
    other = "other " if distance == ON_CHIP else ""
    family = pattern.family if pattern.family not in ("", ANY) else pattern.kind
    models = {"": "", ANY: f", {other or 'any '}models"}.get(family, f", {other}{family} models")
    return f"{software} {where}{models}"
