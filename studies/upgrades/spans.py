"""Spans of assumed numbers: how far each may be from what its file says, drawn once for every variant that
uses it.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.base.errors import require
from strata.params import leaf_paths, read_toml, value_at, with_value

RULE_KEYS = {"of", "common", "step", "rest", "why"}


@dataclass(frozen=True, kw_only=True)
class Span:
    """How far a number may be from what its file says, as factors of at least 1 both ways.

    `common` is shared by every variant: what nobody knows of the quantity. `step` is of variants other than
    the base: what is not known of the way from one to the other. With `rest`, factors are of 1 - x.
    """

    common: float
    step: float
    rest: bool = False


@dataclass(frozen=True, kw_only=True)
class SpanTable:
    """Spans by pattern of path, the first that fits; else by whether a number's source says it is assumed."""

    rules: tuple[tuple[str, Span], ...]
    assumed: Span = Span(common=1.5, step=1.5)
    cited: Span = Span(common=1.1, step=1.1)

    def of(self, path: str, assumed: bool, name: str = "") -> Span:
        """The span of a number by its path, like `technology.logic.clock`, or `technology.logic.clock@n2`.

        >>> table = SpanTable(rules=(("*.clock", Span(common=1.0, step=1.05)),))
        >>> table.of("technology.logic.clock", False).step, table.of("device.price", True).common
        (1.05, 1.5)
        """
        for pattern, span in self.rules:
            if fnmatchcase(path, pattern) or fnmatchcase(f"{path}@{name}", pattern):
                return span
        return self.assumed if assumed else self.cited


def read_spans(path: Path) -> SpanTable:
    """A table of spans: `[assumed]`, `[cited]`, and `[[span]]` of `of`, `common`, `step`, `rest`, `why`."""
    table = read_toml(path)
    rules = []
    for rule in table.get("span", []):
        require(
            {"of", "why"} <= set(rule) <= RULE_KEYS,
            f"{path.name}: a span has of and why, and may have common, step and rest",
            span=str(rule)[:60],
        )
        patterns = rule["of"] if isinstance(rule["of"], list) else [rule["of"]]
        rules += [(pattern, _span(rule, path.name)) for pattern in patterns]
    usual = {key: _span(table[key], path.name) for key in ("assumed", "cited") if key in table}
    return SpanTable(rules=tuple(rules), **usual)


def _span(rule: dict[str, Any], file: str) -> Span:
    span = Span(
        common=float(rule.get("common", 1.0)),
        step=float(rule.get("step", 1.0)),
        rest=bool(rule.get("rest", False)),
    )
    require(
        span.common >= 1 and span.step >= 1, f"{file}: a span is a factor of at least 1", span=str(rule)[:60]
    )
    return span


@dataclass(frozen=True, kw_only=True)
class Draws:
    """Samples of every number that is asked for, by its name: the same name, the same numbers."""

    samples: int
    seed: int = 0
    drawn: dict[str, Array] = field(default_factory=dict)

    def factor(self, name: str, span: float) -> Array | float:
        r"""Factors of a number within a span, log-uniform and stratified.

        .. math:: f = s^{u}, \quad u \sim U(-1, 1)

        McKay, Beckman & Conover, Technometrics 21 (1979): one sample in each of n strata, in random order.

        >>> two = Draws(samples=100)
        >>> low, high = two.factor("price", 1.5).min(), two.factor("price", 1.5).max()
        >>> bool(1 / 1.5 <= low < 0.68 and 1.48 < high <= 1.5), two.factor("price", 1.0)
        (True, 1.0)
        """
        if span == 1.0:
            return 1.0
        if name not in self.drawn:
            rng = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
            strata = (rng.permutation(self.samples) + rng.random(self.samples)) / self.samples
            self.drawn[name] = 2.0 * strata - 1.0
        return np.asarray(span ** self.drawn[name])

    def kept(self, chosen: Array) -> Draws:
        """Some of the samples."""
        left = {name: values[chosen] for name, values in self.drawn.items()}
        return Draws(samples=int(np.sum(chosen)), seed=self.seed, drawn=left)


def drawn_within(
    record: Any,
    role: str,
    table: SpanTable,
    draws: Draws,
    *,
    own: str = "",
    moved: Collection[str] | None = (),
) -> Any:
    """A record with every number drawn within its span. What is `moved` from the base (paths; None: all) has
    draws of its own, called by `own`, beside those that every variant shares.
    """
    for path in leaf_paths(record):
        value, known = value_at(record, path), record.sources.get(path)
        if value is None or known is None:
            continue
        span = table.of(f"{role}.{path}", known.assumed, record.name)
        factor = draws.factor(f"{role}.{path}", span.common)
        if moved is None or path in moved:
            factor = factor * draws.factor(f"{role}.{path} of {own}", span.step)
        if np.ndim(factor):
            record = with_value(record, path, 1.0 - (1.0 - value) * factor if span.rest else value * factor)
    return record


def spearman(one: Array, other: Array) -> float:
    r"""Spearman's rank correlation of two samples, -1 to 1.

    .. math:: \rho = \frac{\mathrm{cov}(r(x), r(y))}{\sigma_{r(x)} \sigma_{r(y)}}

    Saltelli et al., Global Sensitivity Analysis: The Primer (2008), section 1.2.

    >>> x = np.arange(9.0)
    >>> round(spearman(x, np.exp(x)), 9), spearman(x, np.ones(9))
    (1.0, 0.0)
    """
    ranks = [np.unique(np.asarray(v), return_inverse=True)[1].astype(float) for v in (one, other)]
    if any(r.std() == 0.0 for r in ranks):
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])
