"""How far like cases were off: the interval beside a prediction, from the residuals of whole-model
measurements.

`residuals.json` is written by `write_residuals` from the project's own data; a case is (phase, chip, kind of
model).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from strata.result import Result
from strata.validation.readers.comparison import ComparedPoints
from strata.validation.readers.steps import model_family, model_kind
from strata.workload.model import Model

LEAST = 5  # points below which a case borrows the quantiles of a wider one
QUANTILES = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class Interval:
    """Errors of like cases, as predicted / measured - 1 of a time: the middle 80 %, how many points, and what
    was checked.
    """

    low: float
    high: float
    points: int
    like: str  # which cases: "decode of dense models on h200", or wider
    inside: bool  # chip, phase and kind of model were all checked together
    missing: tuple[str, ...] = ()  # what was not checked

    def bounds(self, time: float) -> tuple[float, float]:
        """Where a predicted time would be measured, if it is off as like cases were [s].

        >>> Interval(-0.5, 0.25, 10, "", True).bounds(1.0)
        (0.8, 2.0)
        """
        return time / (1.0 + self.high), time / (1.0 + self.low)


def residuals(compared: Iterable[ComparedPoints]) -> dict[str, Any]:
    """Quantiles of the errors of whole-model points by case, and by case without the chip or the kind of
    model.
    """
    errors: dict[str, list[float]] = {}
    families: dict[str, set[str]] = {}
    for p in compared:
        for m, predicted, rate, case in zip(p.measured, p.predicted, p.rate, p.case, strict=True):
            if not case or predicted == 0:
                continue
            error = float((m / predicted if rate else predicted / m) - 1.0)
            phase, chip, kind, family = case.split("|")
            for key in (f"{phase}|{chip}|{kind}", f"{phase}|*|{kind}", f"{phase}|*|*"):
                errors.setdefault(key, []).append(error)
            families.setdefault(phase, set()).add(family)
    table = {
        k: [len(v), *(round(float(q), 4) for q in np.quantile(v, QUANTILES))]
        for k, v in sorted(errors.items())
    }
    return {"cases": table, "families": {k: sorted(v) for k, v in sorted(families.items())}}


def write_residuals(folder: Path | str, path: Path | str) -> None:
    """Write the residuals of the measurements below a folder, one case a line."""
    from strata.validation.accuracy.run import compared_files  # readers, which a prediction does not wait for

    known = residuals(points for _, points in compared_files(folder))
    lines = ",\n".join(f"    {json.dumps(k)}: {json.dumps(v)}" for k, v in known["cases"].items())
    text = f'{{\n  "families": {json.dumps(known["families"])},\n  "cases": {{\n{lines}\n  }}\n}}\n'
    Path(path).write_text(text, encoding="utf-8")


@lru_cache(maxsize=1)
def _shipped() -> dict[str, Any]:
    text = files("strata.validation.accuracy").joinpath("residuals.json").read_text(encoding="utf-8")
    known: dict[str, Any] = json.loads(text)
    return known


def interval(
    phase: str, chip: str, kind: str, family: str = "", table: dict[str, Any] | None = None
) -> Interval | None:
    """The errors of the nearest like cases; None where nothing of this phase was ever checked.

    phase is prefill, decode or train; chip a chip's own name; kind dense or moe; family such as llama.
    """
    known = _shipped() if table is None else table
    cases, said = known["cases"], []
    exact, same_kind, same_phase = f"{phase}|{chip}|{kind}", f"{phase}|*|{kind}", f"{phase}|*|*"
    if exact not in cases:
        said.append(f"no {phase} of a {kind} model on {chip} was ever checked")
    if family and family not in known["families"].get(phase, ()):
        said.append(f"no {phase} of a {family} model was ever checked")
    for key, like in (
        (exact, f"{phase} of {kind} models on {chip}"),
        (same_kind, f"{phase} of {kind} models on any chip"),
        (same_phase, f"{phase} of any model"),
    ):
        if key in cases and (cases[key][0] >= LEAST or key == same_phase):
            count, low, _, high = cases[key]
            return Interval(low, high, int(count), like, exact in cases, tuple(said))
    return None


def intervals_of(result: Result) -> dict[str, Interval]:
    """For each time a result quotes (ttft, tpot, step_time), the errors of like cases."""
    phases = {
        "serve": {"ttft": "prefill", "tpot": "decode"},
        "prefill": {"ttft": "prefill"},
        "decode": {"tpot": "decode"},
        "train": {"step_time": "train"},
    }
    if not isinstance(result.program, Model):
        return {}  # runs of other programs were never compared
    kind, family = model_kind(result.model), model_family(result.model.name)
    intervals = {}
    for metric, phase in phases[result.workload.phase].items():
        like = interval(phase, result.system.chip.name, kind, family)
        if like is not None:
            intervals[metric] = like
    return intervals
