"""Predictions against measurements: what `strata validate` prints, and the error intervals `strata predict`
quotes.

The readers of data files are loaded when asked for, so that a prediction does not wait for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strata.validation.datasets import Points

__all__ = ["points", "validate"]


def validate(folder: Path | str, *, keep_points: bool = False, unseen: bool = False) -> dict[str, Any]:
    """Predict every row of every known file below a folder and compare (`strata.validation.run.validate`)."""
    from strata.validation import run

    return run.validate(folder, keep_points=keep_points, unseen=unseen)


def points(folder: Path | str) -> Iterator[tuple[str, Points]]:
    """Measured and predicted points of every known file below a folder (`strata.validation.run.points`)."""
    from strata.validation import run

    return run.points(folder)
