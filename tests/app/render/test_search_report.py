"""The page of a search: its parts and numbers, nothing loaded from elsewhere, and an answer also where
nothing fits.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from test_report import alone, figures, own_text

from strata.app.render.search import search_report
from strata.app.render.search_figures import Trait, importance, relative_worths, trade_metrics, traits_of
from strata.search.goal import goal
from strata.search.points import Evaluated
from strata.search.run import Search
from strata.search.space import space

SMALL = str(Path(__file__).parents[2] / "search" / "small.toml")


def searched(where, metrics, limits=(), **options):
    looking = Search(where, metrics, limits=limits, **options)
    history = list(looking.rounds())
    return looking.outcome(), history


@pytest.fixture(scope="module")
def small():
    return space(SMALL, plan=["tp=16", "tp=8,dp=2", "dp=16", "cp=4,dp=4,cp_mode=ulysses"])


def test_a_page_of_one_metric(small, tmp_path):
    outcome, history = searched(
        small, "tokens_per_s", ["temperature <= 60 degC"], sampler="random", budget=600
    )
    page = search_report(outcome, tmp_path / "new" / "s.html", history).read_text(encoding="utf-8")
    alone(page)
    text = own_text(page)
    headings = (
        "Best design",
        "How the answer came",
        "Trade: tokens/s against energy/token",
        "What matters",
        "Best tokens/s with each choice",
        "Designs",
    )
    for heading in (
        *headings,
        "Why regions are empty",
        "What 10 % more of each axis buys",
        "The best point as a prediction",
        "Inputs",
    ):
        assert heading in text, heading
    best = outcome.best
    for name, label in best["design"].items():
        assert re.search(rf"<td class=w>{name}</td><td class=w>(x )?{re.escape(label)}</td>", text), name
    assert f"{best['metrics']['tokens_per_s']:,.0f}" in text
    assert (
        "temperature above 60 degC" in page
        and f"{sum(outcome.counts.values()):,} of 600 points are out" in text
    )
    assert "This sampler proves nothing" in text
    threads = [t for f in figures(page) for t in f if t.get("type") == "parcoords"]
    labels = [d["label"] for d in threads[0]["dimensions"]]
    assert {"layers", "plan.tp", "tokens/s"} <= set(labels) and "plan.moe_tp" not in labels
    assert len(threads[0]["dimensions"][0]["values"]) == 600 - sum(outcome.counts.values())


def test_a_page_of_several_metrics_lists_the_frontier(small, tmp_path):
    outcome, history = searched(small, "tokens_per_s, temperature", sampler="random", budget=600)
    page = search_report(outcome, tmp_path / "s.html", history).read_text(encoding="utf-8")
    text = own_text(page)
    assert f"{len(outcome.frontier):,} points that no other beats" in text
    assert "Frontier: tokens/s against temperature" in text
    cloud = next(f for f in figures(page) if any(t.get("name") == "no other beats" for t in f))
    line = next(t for t in cloud if t["name"] == "no other beats")
    assert len(line["x"]) == len(outcome.frontier)
    assert max(line["x"]) < 200  # °C, not kelvin


def test_a_page_where_nothing_fits_says_why(tmp_path):
    outcome, history = searched(
        space(SMALL, plan=["dp=16"], layers=[1, 2]), "tokens_per_s", sampler="random", budget=100
    )
    page = search_report(outcome, tmp_path / "s.html", history).read_text(encoding="utf-8")
    alone(page)
    assert "No point fits and keeps the limits" in page
    assert "what a device holds must fit its memory" in page


def test_worth_is_the_share_of_the_best_whichever_way_is_better():
    seen = Evaluated(
        np.zeros((3, 1), int),
        {"tokens_per_s": np.array([1.0, 4.0, 9.0]), "tpot": np.array([4.0, 1.0, 9.0])},
        np.array([0, 0, 1]),
    )
    assert relative_worths(goal("tokens_per_s"), seen).tolist() == [0.25, 1.0, 0.0]
    assert relative_worths(goal("tpot"), seen).tolist() == [0.25, 1.0, 0.0]


def test_importance_is_that_of_the_axis_which_made_the_numbers():
    rng = np.random.default_rng(0)
    mine, other = rng.integers(0, 4, 2000), rng.integers(0, 4, 2000)
    worth = np.exp(-0.5 * mine + 0.1 * rng.standard_normal(2000))
    labels = ("a", "b", "c", "d")
    assert importance(Trait("mine", labels, mine), worth) > 0.95
    assert importance(Trait("other", labels, other), worth) < 0.01
    assert importance(Trait("mine", labels, mine), np.zeros(2000)) == 0.0


def test_what_only_repeats_another_is_left_out(small):
    """Of a model without experts, moe_tp is tp."""
    names = [t.name for t in traits_of(small, small.digits(np.arange(small.size)))]
    assert "plan.tp" in names and "plan.moe_tp" not in names and "batch" not in names


def test_the_cloud_has_two_different_metrics():
    for one in ("tokens_per_s", "energy_per_token", "tokens_per_joule", "tpot"):
        assert len(set(trade_metrics(goal(one)))) == 2
    assert trade_metrics(goal("ttft, power")) == ("ttft", "power")
