"""What no fit has seen is told apart from what some fit looked at."""

from pathlib import Path

from strata.validation.accuracy.holdout import is_fitted, unseen_models
from strata.validation.fit.engines import seen_by_fits
from strata.validation.fit.files import FITTED_FILES

DATA = Path(__file__).parents[3] / "validation"


def test_files_of_every_fit_are_held_out():
    """The list follows from the fits; these are the files that were fitted when the table was last looked at."""
    assert {*FITTED_FILES} == {
        "*/gemm.csv",
        "*/stream.csv",
        "*/grouped_gemm.csv",
        "*/attention.csv",
        "*/power.csv",
        "*/step_power.csv",
        "ops/gemm_power.csv",
        "serving/inferencex.csv",
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
        "network/multinode.csv",
        "h100/overlap.csv",
        "*/other.csv",
        "a100/gemm_ncu.csv",
        "v100/deepbench_*.csv",
        "area/deepstack_cores.csv",
        "dram/channel.csv",
        "*/optimiser.csv",
        "*/train_step.csv",
        "training/a100_singlenode.csv",
        "training/h100_nanotron.csv",
        "training/h100_nanotron_oom.csv",
        "training/megatron_bridge.csv",
        "training/nvidia_bridge.csv",
        "serving/silicon.csv",
        "serving/vllm.csv",
        "serving/trtllm_max_throughput.csv",
    }
    assert is_fitted("h200/power.csv") and not is_fitted("training/mlperf.csv")


def test_models_no_fit_has_seen_are_told_apart(own_points):
    table, found = own_points("serving/silicon.csv")
    seen = seen_by_fits(table.name, table, found)
    told = {
        (g.split("/")[0], g.split("/")[2], g.split("/")[3])
        for g, s in zip(found.group, seen, strict=True)
        if not s
    }
    assert {
        ("tpot", "trtllm", "deepseek-v3"),
        ("ttft", "sglang", "llama-3.1-8b"),
    } <= told
    assert not told & {
        ("tpot", "vllm", "llama-3.1-70b"),
        ("tpot", "sglang", "deepseek-v3"),
        ("ttft", "trtllm", "deepseek-v3"),
    }
    for row in unseen_models(table, found):
        assert row["unseen"]["points"] > row["never"]["points"] > 0
        if row["metric"] == "tpot":
            assert (
                row["never"]["mape"] < 0.20
                and row["unseen"]["mape"] < 0.20
                and row["unseen"]["median"] < 0.12
            )
        else:
            assert row["unseen"]["median"] < 0.30
