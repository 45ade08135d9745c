"""MLPerf's served runs: power limits, variants of chips and rounds as rows tell them, formats, and the load that
keeps limits.
"""

from pathlib import Path

import numpy as np
import pytest

from strata.hardware.chip import chip
from strata.hardware.system import as_system
from strata.mapping.plan import plan
from strata.simulate.server.load import Lengths
from strata.simulate.server.step_table import StepPricer
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.formats import multiplied_format
from strata.validation.readers.mlperf_limits import served_copy
from strata.validation.readers.served_models import in_process, served_model
from strata.validation.readers.serving_mlperf import (
    MlperfRequests,
    _token_time,
    mlperf_at_limits,
    mlperf_serving,
)
from strata.validation.readers.steps import Serving
from strata.validation.readers.tables import read_table

DATA = Path(__file__).parents[3] / "validation"
FILE = "serving/mlperf.csv"
CATALOGUE = Catalogue()


def predicted(changes, count=None, **like):
    """Tokens/s of the first rows that are like this, with some columns as told instead."""
    table = read_table(DATA, FILE)
    chosen = np.logical_and.reduce([table.text(c) == v for c, v in like.items()])
    table = table.keep(np.flatnonzero(chosen)[: count or 1])
    for column, value in changes.items():
        table.columns[column][:] = [value] * len(table)
    points = mlperf_serving(table, CATALOGUE)
    assert not points.why
    return points.predicted


def test_a_system_at_lowered_limits_is_slower():
    like = dict(chip="h200", model="llama-2-70b", scenario="Offline", round="v4.1")
    whole = predicted({"system": "NVIDIA H200 (8x H200-SXM-141GB, TensorRT)"}, **like)
    lowered = predicted({"system": "NVIDIA H200 (8x H200-SXM-141GB, MaxQ, TensorRT)"}, **like)
    assert 0.6 < lowered / whole < 0.9  # 500 of 700 W; 25,262 of 34,864 tokens/s were measured


def test_the_name_of_a_system_tells_the_variant_of_its_chip():
    like = dict(chip="h100", model="llama-2-70b", scenario="Offline", round="v4.0")
    usual = predicted({"system": "NVIDIA DGX H100 (8x H100-SXM-80GB, TensorRT)"}, **like)
    variant = predicted({"system": "SYS-521GE-TNRT (8x H100-NVL-94GB, TensorRT)"}, **like)
    assert variant < 0.9 * usual
    assert predicted({"system": "", "chip": "H100 NVL"}, **like) == pytest.approx(variant)


def test_engines_of_an_earlier_round_fuse_less():
    like = dict(chip="h100", model="llama-2-70b", scenario="Offline", round="v4.1")
    now, before, unknown = (predicted({"round": r}, **like) for r in ("v4.1", "v4.0", ""))
    assert 0.8 < before / now < 0.95 and unknown == pytest.approx(now)


def test_the_largest_batch_of_data_parallel_attention_is_that_of_a_rank():
    like = dict(chip="b200", model="deepseek-v3", scenario="Server")
    rows = read_table(DATA, FILE)
    served = (rows.text("model") == "deepseek-v3") & (rows.text("scenario") == "Server")
    in_flight, most = rows.number("mean_in_flight")[served], rows.number("max_batch")[served]
    assert np.all(in_flight > most)  # more than one rank's batch ran at once
    assert predicted({"max_batch": "512"}, **like) > 1.2 * predicted({"max_batch": "64"}, **like)


def test_four_bits_are_those_the_chip_multiplies():
    """A chip with another four-bit format than the one that the label usually means widened its weights, and
    was slower than with eight bits.
    """
    like = dict(chip="mi325x", model="llama-2-70b", scenario="Offline")
    four, eight = (predicted({"chip": "MI355X", "weights": w}, **like) for w in ("fp4", "fp8"))
    assert four > 1.3 * eight
    for name in ("b200", "gb300", "mi350x", "mi355x", "h200"):
        found = multiplied_format("fp4", chip(name))
        assert found in chip(name).compute.matrix_rate or found == "fp4"
        assert multiplied_format("fp8", chip(name)) == "fp8"


def small_serving():
    model = served_model(CATALOGUE, "llama-3.1-8b", "fp8", "fp8")
    engine = in_process(CATALOGUE.engine("trtllm"))
    return Serving(as_system("1xh200"), model, plan(), engine)


def test_one_step_for_all_loads():
    """More that run take longer for a token and bring more tokens; varied answers cost time."""
    serving = small_serving()
    running = np.array([1.0, 8.0, 64.0, 256.0])
    one = dict(input=np.full(4, 300.0), output=np.full(4, 200.0))
    times = _token_time(serving, MlperfRequests(**one), running)
    assert np.all(np.diff(times) > 0) and np.all(np.diff(running / times) > 0)
    assert np.all(_token_time(serving, MlperfRequests(**one, spread=1.0), running) >= times)
    two = _token_time(serving, MlperfRequests(**one, beams=2.0), running)
    assert np.all(two >= times)


@pytest.fixture(scope="module")
def copy():
    s = small_serving()
    pricer = StepPricer(system=s.system, model=s.model, plan=s.plan, engine=s.engine, routed={})
    asked = (Lengths(mean=300.0), Lengths(mean=200.0, shape="lognormal", spread=0.5))
    return served_copy(pricer, *asked, evenness=4.0)


def test_the_highest_load_keeps_the_limits_and_no_tighter_ones(copy):
    limits = {"ttft": 0.2, "tpot": 0.015}
    found = copy.highest_rate(limits, most=100.0)
    assert 5.0 < found < 100.0 and copy.keeps(found, limits) and not copy.keeps(1.2 * found, limits)
    assert copy.highest_rate({"ttft": 0.2, "tpot": 0.012}, most=100.0) < found
    assert copy.highest_rate({"ttft": 1e3, "tpot": 1e3}, most=10.0) == 10.0
    nothing = copy.highest_rate({"ttft": 1e-6, "tpot": 1e-6}, most=10.0)
    assert nothing == pytest.approx(0.5)  # the lowest that is tried


def test_requests_one_by_one_agree_with_the_mean_step(copy):
    """Mean TPOT of a simulated run against the closed form at the requests it had in flight."""
    rate = 40.0
    ttft, tpot = copy.latencies(rate)[400:].T
    in_flight = rate * (np.mean(ttft) + 200.0 * np.mean(tpot))
    wide = float(np.sqrt(np.expm1(0.25)))
    requests = MlperfRequests(input=np.array([300.0]), output=np.array([200.0]), spread=wide)
    closed = _token_time(small_serving(), requests, np.array([in_flight]))
    assert np.mean(tpot) == pytest.approx(closed[0], rel=0.08)


def test_rows_that_came_near_a_limit_are_compared_at_it():
    table = read_table(DATA, FILE)
    rows = (table.text("chip") == "rtx-pro-6000") & (table.text("model") == "llama-2-70b")
    points = mlperf_at_limits(table.keep(rows), CATALOGUE)
    assert len(points.predicted) == 2 and not points.why
    assert np.all(np.abs(points.predicted / points.measured - 1.0) < 0.25)
