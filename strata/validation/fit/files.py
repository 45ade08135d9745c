"""Which data files some fit has looked at: of these only the held-out third judges predictions. The numbers
of serving engines were chosen with all rows of served files in sight: families left out judge them.
"""

from __future__ import annotations

from strata.validation.fit.families import FAMILIES, NETWORK, POWER, STEP_POWER
from strata.validation.fit.networks import FILE as BETWEEN_NODES
from strata.validation.readers.registry import matches

# Fitted once, outside `strata calibrate`: their quantities are not a chip's (data/memories, data/floorplans,
# data/conditions and data/engines say how).
BY_HAND = (
    "*/optimiser.csv",
    "*/train_step.csv",
    "a100/gemm_ncu.csv",
    "area/deepstack_cores.csv",
    "dram/channel.csv",
    "training/a100_singlenode.csv",
    "training/h100_nanotron.csv",
    "training/h100_nanotron_oom.csv",
    "training/megatron_bridge.csv",
    "training/nvidia_bridge.csv",
    "v100/deepbench_*.csv",
)
FITTED_FILES = tuple(
    dict.fromkeys(
        [
            *(file for family in (POWER, *FAMILIES, STEP_POWER, *NETWORK) for file in family.files),
            BETWEEN_NODES,
            *BY_HAND,
        ]
    )
)


def is_fitted(file: str) -> bool:
    """Whether some fit has looked at two thirds of a file.

    >>> is_fitted("h200/gemm.csv"), is_fitted("h200/decoder.csv")
    (True, False)
    """
    return matches(file, *FITTED_FILES)
