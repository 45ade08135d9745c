"""What no fit has seen is told apart from what some fit looked at."""

from pathlib import Path

from strata.validation.fit.table import fitted_files, is_fitted

DATA = Path(__file__).parents[3] / "validation"


def test_files_of_every_fit_are_held_out():
    """The list follows from the fits; these are the files that were fitted when the table was last looked at."""
    assert {*fitted_files()} == {
        "*/gemm.csv",
        "*/stream.csv",
        "*/grouped_gemm.csv",
        "*/attention.csv",
        "*/power.csv",
        "*/step_power.csv",
        "ops/gemm_power.csv",
        "ops/gemm.csv",
        "ops/moe.csv",
        "ops/amd_gemm.csv",
        "ops/amd_moe.csv",
        "ops/context_attention.csv",
        "ops/generation_attention.csv",
        "ops/context_mla.csv",
        "ops/generation_mla.csv",
        "ops/nccl.csv",
        "ops/custom_allreduce.csv",
        "ops/deepep_low_latency.csv",
        "ops/tpu_layers.csv",
        "network/multinode.csv",
        "h100/overlap.csv",
        "*/other.csv",
        "a100/gemm_ncu.csv",
        "v100/deepbench_*.csv",
        "area/deepstack_cores.csv",
        "dram/channel.csv",
        "*/optimiser.csv",
        "*/train_step.csv",
        "training/mlperf.csv",
        "training/a100_singlenode.csv",
        "training/h100_nanotron.csv",
        "training/h100_nanotron_oom.csv",
        "training/megatron_bridge.csv",
        "training/nvidia_bridge.csv",
    }
    assert is_fitted("h200/power.csv") and not is_fitted("h200/decoder.csv")
