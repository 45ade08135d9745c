"""Which data files some fit has looked at: of these only the held-out third judges predictions."""

from __future__ import annotations

from strata.validation.fit.engines import FITS
from strata.validation.fit.families import FAMILIES, NETWORK, POWER, STEP_POWER
from strata.validation.fit.networks import FILE as BETWEEN_NODES

# Fitted once, outside `strata calibrate`: their quantities are not a chip's (data/memories, data/floorplans,
# data/conditions and data/engines say how).
BY_HAND = (
    "*/optimiser.csv",
    "*/train_step.csv",
    "a100/gemm_ncu.csv",
    "area/deepstack_cores.csv",
    "dram/channel.csv",
    "serving/inferencex.csv",
    "training/a100_singlenode.csv",
    "training/h100_nanotron.csv",
    "training/h100_nanotron_oom.csv",
    "training/megatron_bridge.csv",
    "training/nvidia_bridge.csv",
    "v100/deepbench_*.csv",
)
SERVED_FILES = tuple(dict.fromkeys(rows.file for fit in FITS for rows in fit.rows))
FITTED_FILES = tuple(
    dict.fromkeys(
        [
            *(file for family in (POWER, *FAMILIES, STEP_POWER, *NETWORK) for file in family.files),
            BETWEEN_NODES,
            *BY_HAND,
            *SERVED_FILES,
        ]
    )
)
