"""How far token times and first tokens of served models are from measured ones where a whole model, chip or
engine was not seen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.validation.accuracy.compare import statistics
from strata.validation.accuracy.training_errors import family_errors
from strata.validation.fit.served import FAMILIES, FILES, leave_served_families_out
from strata.validation.fit.trainers import FamiliesLeftOut
from strata.validation.readers.catalogue import Catalogue

KINDS = ("dense", "experts")  # models without and with experts that tokens choose


def served_errors(folder: Path | str) -> list[dict[str, Any]]:
    """For each set of files of served runs and each metric its configurations predicted without their own
    family (`leave_served_families_out`): figures of all, of dense models and of mixtures of experts, and the
    family with the largest median.
    """
    return [
        {"file": ", ".join(files), "metric": metric, "left_out": [_figures(one) for one in left_out]}
        for files in FILES
        if all((Path(folder) / name).exists() for name in files)
        for metric, left_out in leave_served_families_out(folder, files).items()
    ]


def _figures(one: FamiliesLeftOut) -> dict[str, Any]:
    models = [str(group).split("/")[FAMILIES["model"]] for group in one.points.group]
    catalogue = Catalogue()
    routed = {name: bool(catalogue.model(name).has_experts) for name in set(models)}
    has_experts = np.array([routed[name] for name in models], bool)
    split = {
        kind: statistics(one.points.measured[rows], one.points.predicted[rows])
        for kind, rows in zip(KINDS, (~has_experts, has_experts), strict=True)
        if rows.any()
    }
    return {**family_errors(one), **split}
