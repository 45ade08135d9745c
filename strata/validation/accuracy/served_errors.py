"""How far token times and first tokens of served models are from measured ones where a whole model, chip or
engine was not seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strata.validation.accuracy.training_errors import family_errors
from strata.validation.fit.servers import FIRST_TOKENS, TOKEN_TIMES, leave_served_families_out
from strata.validation.readers.tables import read_table

LEFT_OUT_FILES = ("serving/silicon.csv",)  # runs of several models, chips and engines


def served_errors(folder: Path | str) -> list[dict[str, Any]]:
    """For each file of served runs and each metric its rows predicted without their own family
    (`leave_served_families_out`): figures of all, and the family with the largest median.
    """
    return [
        {
            "file": name,
            "metric": fit.metric,
            "left_out": [family_errors(f) for f in leave_served_families_out(table, fit=fit)],
        }
        for name in LEFT_OUT_FILES
        if (Path(folder) / name).exists()
        for table in (read_table(Path(folder), name),)
        for fit in (TOKEN_TIMES, FIRST_TOKENS)
    ]
