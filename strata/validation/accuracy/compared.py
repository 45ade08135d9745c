"""How far to trust a comparison: intervals of each row, and whether two rows differ by more than measured
errors allow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from strata.search.compare import Comparison
from strata.search.compared_rows import Answer, ComparedRow
from strata.validation.accuracy.intervals import Interval, NothingLike
from strata.validation.accuracy.trust import Trust, trust, trust_served, trusts

REFERENCE, APART = "compared with", "distinguishable"
WITHIN, UNKNOWN = "not distinguishable", "nothing like it was measured"


@dataclass(frozen=True, kw_only=True)
class RowTrust:
    """How far to trust a row: each of its numbers that measured ones are known for, what its goal counts as
    an interval, and whether that lies apart from the row all are compared with.
    """

    every: Mapping[str, Trust]
    bounds: tuple[float, float] | None  # of what the goal counts; None where nothing like it was measured
    points: int  # measured rows behind that
    verdict: str


def trust_compared(found: Comparison) -> list[RowTrust | None]:
    """How far to trust each row of a comparison, None where it has no answer.

    Intervals that overlap are not distinguishable. That is cautious: rows of one chip, engine or model err
    alike, which leaves their order surer than their values. Cost and energy take the errors of tokens/s;
    prices and powers are taken as they are told.

    >>> import strata as st
    >>> asked = (["8xh200", "8xb200"], "llama-3-70b", st.serving.Requests(1024, 256), "vllm")
    >>> [one.verdict for one in trust_compared(st.search.compare(*asked))]
    ['compared with', 'not distinguishable']
    """
    told = [None if row.answer is None else _intervals(row, row.answer, found.goal) for row in found.rows]
    first = None if found.against is None else told[found.against]
    return [
        None
        if one is None
        else RowTrust(
            every=one[0],
            bounds=one[1],
            points=one[2],
            verdict=REFERENCE if one is first else _verdict(one[1], None if first is None else first[1]),
        )
        for one in told
    ]


def _verdict(bounds: tuple[float, float] | None, others: tuple[float, float] | None) -> str:
    if bounds is None or others is None:
        return UNKNOWN
    return WITHIN if bounds[0] <= others[1] and others[0] <= bounds[1] else APART


def _intervals(
    row: ComparedRow, answer: Answer, goal: str
) -> tuple[dict[str, Trust], tuple[float, float] | None, int]:
    if answer.served is not None:
        every = _served(row, answer)
    else:
        every = {**trusts(answer.result), "tokens_per_s": trust(answer.result, "tokens_per_s")}
    time = next((name for name in ("tpot", "ttft", "step_time") if name in every), "tokens_per_s")
    behind = every[time if goal == "fastest" else "tokens_per_s"]
    value = answer.value(goal)
    if not isinstance(behind.found, Interval) or not np.isfinite(value):
        return every, None, 0
    # more tokens a second are fewer dollars and joules each
    counted = behind.found.of_rate() if goal in ("cheapest", "efficient") else behind.found
    low, high = counted.bounds(value)
    return every, (float(low), float(high)), behind.found.points


def _served(row: ComparedRow, answer: Answer) -> dict[str, Trust]:
    """Of requests that are served; tokens/s by TPOT where no tokens/s like them were measured."""
    case = (row.system, row.model, row.engine.name)
    rate = trust_served(*case, "tokens_per_s", answer.tokens_per_s, "throughput")
    if isinstance(rate.found, NothingLike):
        rate = trust_served(*case, "tokens_per_s", answer.tokens_per_s, "decode", inverse=True)
    return {
        "tokens_per_s": rate,
        "ttft": trust_served(*case, "ttft", answer.ttft, "request"),
        "tpot": trust_served(*case, "tpot", answer.tpot, "decode"),
    }
