"""Full servers: what a row means, what its groups are called, and laws of their steady state."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from strata.mapping.plan import plan
from strata.validation.readers.benchmark_conditions import EnergyConditions, read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.ml_energy import energy_runs, served_steadily, steady_state
from strata.validation.readers.registry import reader_of
from strata.validation.readers.steps import Serving, systems_of
from strata.validation.readers.tables import read_table

FOLDER = Path(__file__).parents[3] / "validation"
FILE = "serving/ml_energy.csv"
HEAD = (
    "task,avg_batch_size,avg_output_len,avg_power_watts,data_parallel,energy_per_token_joules,"
    "expert_parallel,gpu_model,median_itl_ms,model_id,num_gpus,tensor_parallel,weight_precision"
)


@pytest.fixture(scope="module")
def points():
    return reader_of(FILE, Catalogue())(read_table(FOLDER, FILE), Catalogue())


def error(points, start):
    of = np.array([g.startswith(start) for g in points.group])
    return float(np.mean(np.abs(points.predicted[of] / points.measured[of] - 1.0)))


def own_table(tmp_path, *rows):
    (tmp_path / "serving").mkdir()
    (tmp_path / FILE).write_text("\n".join((HEAD, *rows)) + "\n")
    return read_table(tmp_path, FILE)


def test_groups_are_metric_gpu_and_model(points):
    assert {tuple(g.split("/")[:2]) for g in points.group} == {
        (m, g) for m in ("power", "energy", "itl") for g in ("H100", "B200")
    }
    assert {len(g.split("/")) for g in points.group} == {3}
    assert len(points) == 3 * 194 and not points.why


def test_servers_nobody_fitted_draw_what_we_say(points):
    # 14.7, 13.5, 19.0, 14.9 and 26 % before hosts ran a step ahead, chunks broke graphs, experts dealt out lost
    # their tiles, and text asked for experts more evenly. Seven rows of B200 that the file does not explain
    # (Qwen3 30B Thinking, three times slower than on H100) are a quarter of the error of power.
    # With energies of an H200 on B200 power fell from 14.1 to 13.2 % and energy rose from 11.9 to 12.9 %: Llama 3.1 70B,
    # too slow there before, is slowed further.
    assert error(points, "power/") < 0.135 and error(points, "power/H100") < 0.10
    assert error(points, "energy/") < 0.132
    assert error(points, "itl/") < 0.11
    assert error(points, "itl/H100/Llama-4-Scout") < 0.08


def test_a_row_that_cannot_be_read_is_named(tmp_path):
    good = "gpqa,8,1000,400,1,1.0,1,H100,10,Qwen/Qwen3-8B,1,1,bfloat16"
    rows = (
        good,
        "poetry,8,1000,400,1,1.0,1,H100,10,Qwen/Qwen3-8B,1,1,bfloat16",  # no such task
        "gpqa,8,1000,400,1,1.0,1,X9000,10,Qwen/Qwen3-8B,1,1,bfloat16",  # no such chip
        "gpqa,,1000,400,1,1.0,1,H100,10,Qwen/Qwen3-8B,1,1,bfloat16",  # cut off
    )
    points = energy_runs(own_table(tmp_path, *rows), Catalogue())
    assert sorted(points.why) == [3, 4, 5]
    assert (
        "poetry" in points.why[3] and "x9000" in points.why[4].lower() and "avg_batch_size" in points.why[5]
    )


def test_a_gauge_is_that_of_one_attention_rank(tmp_path):
    row = "gpqa,32,1000,400,{dp},1.0,{ep},B200,10,Qwen/Qwen3-30B-A3B,4,1,bfloat16"
    table = own_table(tmp_path, row.format(dp=4, ep=4), row.format(dp=1, ep=4))
    known = read_conditions(EnergyConditions, table, "serving/ml_energy.toml")
    key = ("B200", "Qwen/Qwen3-30B-A3B", "bfloat16", "gpqa")
    found = served_steadily(table, Catalogue(), key, known, known.prompt)
    tokens_per_s = found.power / found.token_energy
    assert np.allclose(tokens_per_s * found.step, [128.0, 32.0])


def test_longer_prompts_cost_more_and_bound_what_is_likely():
    catalogue = Catalogue()
    table = read_table(FOLDER, FILE).keep(np.arange(5))
    known = read_conditions(EnergyConditions, table, "serving/ml_energy.toml")
    key = tuple(str(table.text(c)[0]) for c in ("gpu_model", "model_id", "weight_precision", "task"))
    low, likely, high = (
        served_steadily(table, catalogue, key, known, p)
        for p in (known.shortest_prompt, known.prompt, known.longest_prompt)
    )
    assert np.all(low.token_energy < likely.token_energy) and np.all(likely.token_energy < high.token_energy)


def test_power_stays_between_idle_and_the_limit():
    catalogue = Catalogue()
    running = np.geomspace(1.0, 2000.0, 12)
    serving = Serving(
        systems_of(catalogue, "b200", np.ones(12)),
        catalogue.model("qwen3-14b"),
        plan(tp=np.ones(12)),
        catalogue.engine("vllm"),
    )
    found = steady_state(serving, running, 300.0 + 0.0 * running, 600.0 + 0.0 * running)
    chip = serving.system.chip.energy
    # work at logits in time that counts as the host's comes on top of a step that is at the limit
    assert np.all(found.power > chip.static_power)
    assert np.all(found.power <= chip.power_limit * chip.held * 1.005)
    assert np.all(np.diff(found.token_energy[:10]) < 0)
