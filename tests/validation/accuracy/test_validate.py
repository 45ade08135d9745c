"""The whole command on the project's own data, and on folders made wrong on purpose."""

import json
import math
import shutil
from pathlib import Path

import pytest

import strata
from strata.base.errors import BadFile
from strata.validation import compared_files, validate
from strata.validation.accuracy.tables import family_name
from strata.validation.fit.left_out import family_entries, left_out_points
from strata.validation.measured.reader import INPUTS, data_files

DATA = Path(strata.__file__).resolve().parents[1] / "validation"
KEYS = {"points", "failed", "mape", "median", "p90", "worst", "bias", "weighted"} | {"within_15", "within_30"}


@pytest.fixture(scope="module")
def outcome(predicted_once):
    return validate(DATA)


@pytest.fixture(scope="module")
def groups(outcome):
    return {f["file"]: f["groups"] for f in outcome["files"]}


def numbers(tree):
    if isinstance(tree, dict):
        for value in tree.values():
            yield from numbers(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from numbers(value)
    elif isinstance(tree, float):
        yield tree


def test_shape_of_the_answer(outcome):
    assert set(outcome) == {"files", "not_yet", "unknown", "unread", "arena"}
    for f in outcome["files"]:
        assert set(f) - {"failures", "spearman"} == {"file", "groups"} | KEYS
        for group in f["groups"].values():
            assert set(group) == KEYS
    assert all(math.isfinite(x) for x in numbers(outcome))
    assert json.loads(json.dumps(outcome, allow_nan=False)) == outcome


def test_every_known_file_is_predicted_and_nothing_else_fails(outcome):
    known = {"serving/argonne.csv": "no model called 'decilm-7b'", "ops2/gemm.csv": "b60 has no fp8"}
    failed = [(f["file"], row["why"]) for f in outcome["files"] for row in f.get("failures", ())]
    assert [why for file, why in failed if known.get(file, "not known to fail") not in why] == []
    later = {entry.split()[0] for entry in outcome["not_yet"]}
    assert later == {
        *("graphs/graphs.csv", "ops2/kda.csv", "ops2/quantise.csv", "peers/neusight_runs.csv"),
        *("serving/diffusion.csv", "serving/multimodal.csv"),
    }
    assert {f["file"] for f in outcome["files"]} | later | set(INPUTS) == set(data_files(DATA))
    assert outcome["unknown"] == outcome["unread"] == []


def test_points_are_counted_after_merging_backends(outcome):
    count = {f["file"]: f["points"] for f in outcome["files"]}
    assert (count["h200/gemm.csv"], count["h200/attention.csv"], count["h200/decoder.csv"]) == (456, 113, 79)
    assert (count["ops/gemm.csv"], count["training/h100_nanotron_oom.csv"]) == (10628, 735)


@pytest.mark.parametrize(
    ("file", "some"),
    [
        ("h200/gemm.csv", {"bf16", "fp8"}),
        ("h200/attention.csv", {"prefill", "decode"}),
        ("h200/grouped_gemm.csv", {"uniform", "zipf"}),
        ("h200/stream.csv", {"copy", "add", "rms_norm", "softmax", "gelu"}),
        ("h200/decoder.csv", {"llama3-8b/prefill", "llama3-70b/decode"}),
        ("h200/power.csv", {"power/gemm_bf16_4096", "clock/gemm_bf16_4096", "power/idle"}),
        ("a100/gemm_ncu.csv", {"time", "dram above the L2", "l2 above the L2"}),
        ("h100/overlap.csv", {"ag_gemm", "gemm_rs", "ep_dispatch"}),
        ("ops/gemm.csv", {"a100_sxm/int4_wo", "h200_sxm/fp8_block", "b200_sxm/nvfp4"}),
        ("ops/gemm_power.csv", {"power/h200_sxm/bfloat16", "power/b200_sxm/nvfp4"}),
        ("ops/context_attention.csv", {"h200_sxm/bfloat16/fp8"}),
        ("ops/generation_mla.csv", {"b200_sxm/bfloat16/bfloat16"}),
        ("ops/moe.csv", {"h200_sxm/fp8_block/power_law_1.2", "b200_sxm/w4a16_mxfp4/balanced"}),
        ("ops/nccl.csv", {"h100_sxm/all_reduce/8", "a100_sxm/alltoall/2"}),
        ("ops/custom_allreduce.csv", {"b200_sxm/vLLM_custom_eager/4"}),
        ("ops/deepep_low_latency.csv", {"h200_sxm/dispatch", "h200_sxm/combine"}),
        (
            "serving/vllm.csv",
            {"8xB200/deepseek-v3/decode", "8xB200/deepseek-v3/prefill", "8xB200/deepseek-v3/decode/eager"},
        ),
        ("serving/silicon.csv", {"tpot/b200_sxm/trtllm/llama-3.1-70b", "ttft/h100_sxm/vllm/llama-3.1-70b"}),
        ("serving/trtllm_max_throughput.csv", {"H200/DeepSeek-R1-0528"}),
        ("serving/llama33_70b_8xa100_nim.csv", {"ttft", "itl", "throughput"}),
        ("training/h100_nanotron.csv", {"tokens/A", "memory/C", "fits"}),
        ("training/a100_megatron.csv", {"time/GPT 175B"}),
        ("training/a100_singlenode.csv", {"time/a100_singlenode"}),
        ("training/b200_megatron.csv", {"time/llama3-70b", "memory/llama3-405b"}),
        ("training/nvidia_bridge.csv", {"tokens/LLAMA3_8B"}),
        ("training/megatron_bridge.csv", {"tokens/GB200/LLAMA3.1_405B"}),
        ("training/mlperf.csv", {"all/h100/gpt3-175b", "lora/mi325x/llama-2-70b", "fits/h200/llama-3.1-8b"}),
        ("serving/mlperf.csv", {"Offline/h100-nvl/gpt-j-6b"}),
        ("serving/inferencex.csv", {"tpot/gb200/sglang-dynamo/deepseek-v3/disagg"}),
    ],
)
def test_groups_have_their_names(groups, file, some):
    assert some <= set(groups[file])


def test_headlines(outcome, groups):
    by = {f["file"]: f for f in outcome["files"]}
    assert by["serving/silicon.csv"]["points"] == sum(
        g["points"] for k, g in groups["serving/silicon.csv"].items() if k.startswith("tpot/")
    )
    decode = [g for k, g in groups["serving/vllm.csv"].items() if k.endswith("/decode")]
    assert by["serving/vllm.csv"]["points"] == sum(g["points"] for g in decode)
    power = [g for k, g in groups["ops/gemm_power.csv"].items() if k.startswith("power/")]
    assert by["ops/gemm_power.csv"]["points"] == sum(g["points"] for g in power)
    assert by["h200/power.csv"]["points"] == 8


def test_training_ranks_by_node_count(outcome):
    found = next(f for f in outcome["files"] if f["file"] == "training/h100_nanotron.csv")["spearman"]
    assert set(found) == {"1", "2", "4", "8", "16", "32", "64"} and all(-1 <= r <= 1 for r in found.values())


def test_memory_calls_are_shares(groups):
    fits = groups["training/h100_nanotron.csv"]["fits"]
    assert fits["failed"] == 0 and 0 <= fits["mape"] < 0.2


@pytest.fixture(scope="module")
def unseen(predicted_once):
    return validate(DATA, unseen=True)


def test_a_fitted_file_is_judged_on_its_held_out_third(outcome, unseen):
    every, third = ({f["file"]: f["points"] for f in o["files"]} for o in (outcome, unseen))
    assert every["h200/gemm.csv"] == 456 and 140 <= third["h200/gemm.csv"] <= 160
    assert every["h200/decoder.csv"] == third["h200/decoder.csv"]  # no fit has seen it
    assert every["serving/silicon.csv"] == third["serving/silicon.csv"]  # families left out judge it
    seen = {f["file"]: f["seen"] for f in unseen["files"]}
    assert seen["h200/gemm.csv"] == "held out" and seen["h200/decoder.csv"] == ""
    assert not any("seen" in f for f in outcome["files"])


def test_accuracy_stays_within_its_limits(unseen):
    limits = json.loads((DATA / "limits.json").read_text(encoding="utf-8"))["files"]
    worse = {
        f["file"]: (f["mape"], limits[f["file"]]) for f in unseen["files"] if f["mape"] > limits[f["file"]]
    }
    assert worse == {}, "python -m strata.validation.accuracy.tables writes new limits; say in CHANGELOG why"
    assert set(limits) == {f["file"] for f in unseen["files"]}


# Cheap ones of each kind of question: the others take minutes, and stand in the committed table.
LEFT_OUT = (
    "h200/*.csv",
    "ops/custom_allreduce.csv",
    "training/b200_*.csv",
)


def test_families_left_out_stay_within_their_limits():
    limits = json.loads((DATA / "limits.json").read_text(encoding="utf-8"))["families"]
    table = json.loads((DATA / "accuracy.json").read_text(encoding="utf-8"))["families"]
    now = family_entries(DATA, left_out_points(DATA, *LEFT_OUT))
    assert len(now) >= 10
    worse = {
        name: (one["mape"], limits[name])
        for one in (*now, *table)
        if (name := family_name(one)) in limits and one["mape"] > limits[name]
    }
    assert worse == {}, "python -m strata.validation.accuracy.tables writes new limits; say in CHANGELOG why"
    assert set(limits) == {family_name(one) for one in table}


def test_the_committed_table_lists_the_same_files(unseen):
    table = json.loads((DATA / "accuracy.json").read_text(encoding="utf-8"))
    assert [(f["file"], f["points"]) for f in table["files"]] == [
        (f["file"], f["points"]) for f in unseen["files"]
    ]


def part(tmp_path, *names):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(DATA / name, tmp_path / name)
    return tmp_path


def rewrite(path, old, new):
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")


def test_a_part_of_the_data_is_enough(tmp_path):
    made = validate(part(tmp_path, "h200/gemm.csv"))
    assert [f["file"] for f in made["files"]] == ["h200/gemm.csv"]


def test_files_are_matched_by_pattern(tmp_path):
    folder = part(tmp_path, "serving/llama33_70b_8xa100_nim.csv")
    (folder / "serving/llama33_70b_8xa100_nim.csv").rename(folder / "serving/llama31_8b_1xh100_nim.csv")
    made = validate(folder)["files"][0]
    assert made["file"] == "serving/llama31_8b_1xh100_nim.csv" and made["failed"] == 0


def test_unknown_files(tmp_path):
    folder = part(tmp_path, "h200/gemm.csv")
    (folder / "ns3").mkdir()
    for name in ("ns3/ring.csv", "h200/odd.csv", "README.md"):
        (folder / name).write_text("a\n1\n", encoding="utf-8")
    made = validate(folder)
    assert made["not_yet"] == [] and made["unknown"] == ["h200/odd.csv", "ns3/ring.csv"]


def test_rows_that_cannot_be_predicted_are_named(tmp_path):
    folder = part(tmp_path, "ops/gemm.csv", "serving/vllm.csv")
    rewrite(folder / "ops/gemm.csv", "a100_sxm,trtllm,bfloat16,1,", "z900_sxm,trtllm,bfloat16,1,")
    rewrite(folder / "serving/vllm.csv", "8xB200,deepseek-v3,", "8xB200,no-such-model,")
    gemm, vllm = validate(folder)["files"]
    assert (
        gemm["failed"] == 1 and gemm["failures"][0]["row"] == 2 and "z900_sxm" in gemm["failures"][0]["why"]
    )
    assert gemm["groups"]["z900_sxm/bfloat16"]["mape"] == 1.0
    assert vllm["failed"] == 1 and "no-such-model" in vllm["failures"][0]["why"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("name,dtype,m,n,k", "name,dtype,rows,n,k", "no column 'm'"),
        ("median_s", "median_sec", "is it 'median_sec'"),
        ("random38,bf16,7549", "random38,bf16,many", "must be a number, but got 'many'"),
        ("random38,bf16,7549", "random38,bf16", "7 cells"),
        ('random38,bf16', '"random38,bf16', "h200/gemm.csv"),
    ],
)  # fmt: skip
def test_a_broken_file_is_one_clear_line(tmp_path, old, new, said):
    folder = part(tmp_path, "h200/gemm.csv")
    rewrite(folder / "h200/gemm.csv", old, new)
    unread = validate(folder)["unread"]  # a failed file in the table, not the end of the run
    assert unread and said in f"{unread[0]['file']}: {unread[0]['why']}" and "\n" not in str(unread[0])


def test_empty_and_missing_folders(tmp_path):
    with pytest.raises(BadFile, match="no data folder"):
        validate(tmp_path / "nowhere")
    with pytest.raises(BadFile, match="no data files"):
        validate(tmp_path)


def test_points_are_there_for_plots(tmp_path):
    folder = part(tmp_path, "h200/gemm.csv")
    ((table, found),) = list(compared_files(folder))
    kept = validate(folder, keep_points=True)["points"]
    assert table.name == "h200/gemm.csv" and len(found) == len(kept) == 456
    assert set(kept[0]) >= {"file", "row", "group", "measured", "predicted", "headline", "families"}
    assert kept[0]["row"] == 2 and kept[0]["families"]["chip"] == "h200"
