"""DFModel's serving closed form: the results it logged, laws, and arrays that equal single values."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from dfmodel.serving import (
    ServedLayer,
    ServingChips,
    dfmodel_tokens_per_s,
    draft_passes,
    layer_work,
    pipeline_latency,
    serving_stage,
)
from strata.serving.speculation import expected_tokens, proportional_tokens

LOGGED = json.loads((Path(__file__).parents[1] / "data" / "dfmodel" / "serving.json").read_text())
CHIPS = ServingChips(**LOGGED["chips"])
LAYERS = {name: ServedLayer(**{k: float(v) for k, v in t.items()}) for name, t in LOGGED["layers"].items()}
TIMES = ("compute", "memory", "serialisation", "link_latency", "interval", "latency")


def stage(row, **other):
    prefill = row["phase"] == "prefill"
    told = {"context": 4096.0 if prefill else 4097.0, "cached": 0.0 if prefill else 1.0}
    places = {k: float(row[k]) for k in ("tp", "pp", "tokens")}
    return serving_stage(LAYERS["8B"], CHIPS, layers=32.0, **{**told, **places, **other})


def a_pass(name, tokens, context=4096.0):
    count = float(LOGGED["count"][name])
    return serving_stage(LAYERS[name], CHIPS, layers=count, tp=16.0, tokens=tokens, context=context)


@pytest.mark.parametrize("row", LOGGED["fig20"], ids=lambda r: f"{r['phase']}-{r['tp']}x{r['pp']}")
def test_dfmodel_reference_serving_points(row):
    found = stage(row)
    for name in TIMES:
        assert float(getattr(found, name)) * 1e3 == pytest.approx(row[name], rel=1e-6, abs=1e-15), name
    # its prefill throughput is multiplied by a tile size, 3 wherever TP is below 16
    tiles = 3.0 if row["phase"] == "prefill" and row["tp"] < 16 else 1.0
    assert tiles * float(found.throughput) == pytest.approx(row["throughput"], rel=1e-6)


@pytest.mark.parametrize("row", LOGGED["fig21"], ids=lambda r: f"{r['model']}-{r['tokens']}")
def test_dfmodel_reference_passes(row):
    found = a_pass(row["model"], float(row["tokens"]), float(row["context"]))
    assert float(found.latency) * 1e3 == pytest.approx(row["latency"], rel=1e-6)


def test_dfmodel_reference_guessed_rates():
    """K = 4 and a share of 0.8, with its passes over one and five tokens: 438.6 and 120.4 with the 0.1 % its
    rates carry beyond the passes' latencies.
    """
    draft = a_pass("8B", 1.0, 4097.0).latency
    for name, said in (("70B", 438.6), ("405B", 120.4)):
        rate = dfmodel_tokens_per_s(4.0, draft, a_pass(name, 5.0).latency, proportional_tokens(4.0, 0.8))
        assert float(rate) == pytest.approx(said, rel=1.2e-3)


def test_printed_links_of_25_gb_s_give_fewer_tokens():
    row = next(r for r in LOGGED["fig20"] if r["phase"] == "decode" and r["tp"] == 16)
    slow = ServingChips(**{**LOGGED["chips"], "link": 25e9})
    found = serving_stage(LAYERS["8B"], slow, layers=32.0, tp=16.0, context=4097.0)
    # two all-reduces of 8 KiB by a ring: 2 x 2 x 15/16 x 8192 B / 25 GB/s, 32 times
    assert float(found.serialisation) == pytest.approx(32 * 4 * 15 / 16 * 8192 / 25e9)
    assert float(found.throughput) == pytest.approx(1160.7, rel=1e-4) and row["throughput"] > 1187


def test_work_by_hand():
    layer = ServedLayer(hidden=8.0, inner=32.0, heads=2.0, read=0.0)
    # products 2 x 8 x (32 + 64) x 3, GeLU 32 x 3, scores and values 2 x 2 x 8 x 10 x 3, two SIMD of 2 heads x
    # 3 x 10, seven of 8 x 3
    want = 4608 + 96 + 960 + 120 + 168
    assert float(layer_work(layer, 3.0, 10.0, 0.0, 1.0)) == want
    assert float(layer_work(layer, 3.0, 10.0, 1.0, 1.0)) == want + 4 * 8 * 10
    # one head more than chips: the chip with two of them sets the pace
    assert float(layer_work(layer, 1.0, 10.0, 0.0, 4.0)) == (1536 + 32 + 160) / 4 + 10 * (8 + 2) + 56


def test_arrays_equal_single_values():
    tp = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    tokens = np.array([[1.0], [5.0], [17.0]])
    box = serving_stage(LAYERS["70B"], CHIPS, layers=80.0, tp=tp, pp=16.0 / tp, tokens=tokens)
    for (i, j), seen in np.ndenumerate(np.broadcast_to(box.latency, (3, 5))):
        one = serving_stage(
            LAYERS["70B"], CHIPS, layers=80.0, tp=tp[j], pp=16.0 / tp[j], tokens=float(tokens[i, 0])
        )
        assert float(one.latency) == pytest.approx(float(seen), rel=1e-12)


@given(interval=some.floats(1e-6, 1.0), hop=some.floats(0.0, 1e-3), stages=some.integers(1, 64))
def test_latency_rises_with_stages_of_one_time(interval, hop, stages):
    assert pipeline_latency(interval, hop, stages + 1.0) > pipeline_latency(interval, hop, float(stages))
    assert pipeline_latency(interval, hop, 1.0) == pytest.approx(interval)


@given(depth=some.integers(1, 16), chance=some.floats(0.0, 1.0))
def test_counting_in_proportion_is_never_below_independent_chances(depth, chance):
    assert proportional_tokens(float(depth), chance) >= expected_tokens(float(depth), chance) - 1e-9


def test_a_tree_of_as_many_passes_is_never_faster_at_one_acceptance():
    windows, draft = np.arange(1.0, 9.0), float(a_pass("8B", 1.0).latency)
    tokens = proportional_tokens(windows, 0.8)
    rates = {
        tree: dfmodel_tokens_per_s(draft_passes(windows, tree), draft, 0.0315, tokens)
        for tree in (False, True)
    }
    assert np.all(rates[True] <= rates[False]) and np.argmax(rates[True]) < np.argmax(rates[False])
