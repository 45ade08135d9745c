"""Runs of training: steps, days, money and energy of a number of tokens, failures and checkpoints included,
and how that scales with devices. As `st.training`: its public names.
"""

from typing import TYPE_CHECKING

from strata.base.lazy import load_on_first_use

if TYPE_CHECKING:
    from strata.training.reliability import Goodput, Reliability, reliability, training_goodput
    from strata.training.run import TrainRun, train_run
    from strata.training.scaling import ScalingCurve, scaling_curve

__all__ = [
    "Goodput",
    "Reliability",
    "ScalingCurve",
    "TrainRun",
    "reliability",
    "scaling_curve",
    "train_run",
    "training_goodput",
]
load_on_first_use(__name__)
