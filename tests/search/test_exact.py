"""Branch and bound: bounds that hold, and the optimum that brute force finds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from proof import branch_and_bound, compared

from strata.base.errors import BadValue
from strata.base.pareto import non_dominated
from strata.search.bounds import bound_columns, core_range, legal_hull, optimistic
from strata.search.executors import perform
from strata.search.goal import goal
from strata.search.points import case_of_points, evaluate_points, groups_by_words
from strata.search.power_bounds import POWER_METRICS
from strata.search.relax import Boxes, coarse_axes, relaxed_axes, topology_axis
from strata.search.samplers.exact import Exact
from strata.search.space import space

POINTS = 250


@pytest.fixture(scope="module")
def whole():
    return space("deepstack-3d", batch=[4, 64, 1024])


def boxed_points(whole, count, seed):
    """Points, what they deliver, and a random box around each."""
    rng = np.random.default_rng(seed)
    digits, axes = whole.random(rng, count), list(relaxed_axes(whole))
    wide = [rng.integers(0, 6, (count, len(axes))) * (rng.random((count, len(axes))) < 0.6) for _ in "lh"]
    low = np.maximum(digits[:, axes] - wide[0], 0)
    high = np.minimum(digits[:, axes] + wide[1], np.array([len(whole.axes[i]) - 1 for i in axes]))
    fixed, cores = digits.copy(), np.empty(count)
    fixed[:, axes] = 0
    for which in groups_by_words(whole, digits):
        cores[which] = case_of_points(whole, digits[which]).system.chip.compute.cores
    plans = digits[:, whole.axis("plan")]
    boxes, some = legal_hull(
        whole, Boxes(fixed=fixed, low=low, high=high, cores=cores, owner=np.arange(count), plans=plans)
    )
    assert some.all()
    return digits, evaluate_points(whole, digits), boxes


@pytest.fixture(scope="module")
def drawn(whole):
    return boxed_points(whole, POINTS, seed=11)


def test_corners_of_a_box_have_the_fewest_and_the_most_cores(whole, drawn):
    _, evaluated, boxes = drawn
    fewest, most = core_range(whole, boxes)
    fits = evaluated.reason == 0
    assert np.all((fewest <= boxes.cores) & (boxes.cores <= most) | ~fits) and np.any(most > fewest)


@pytest.mark.parametrize("kind", ["box", "nearest", "coarse"])
@pytest.mark.parametrize(
    "metric",
    [
        "tokens_per_s",
        "tpot",
        "energy_per_token",
        "cost_per_mtoken",
        "tokens_per_joule",
        "tokens_per_s_per_mm2",
        *POWER_METRICS,
    ],
)
def test_no_design_of_a_box_beats_its_bound(whole, drawn, kind, metric, bounded):
    _, evaluated, _ = drawn
    wanted = goal(metric)
    scores, bounds = wanted.scores(evaluated)[:, 0], optimistic(wanted, bounded[kind])[:, 0]
    fits = scores > -np.inf
    assert fits.sum() > POINTS / 4
    assert np.all(bounds[fits] >= scores[fits])
    if kind == "box" and metric in (
        "tokens_per_s",
        "tpot",
        "power",
        "temperature",
    ):  # that rule something out
        assert np.median(np.abs(bounds[fits] / scores[fits] - 1)) < 0.11


@pytest.mark.parametrize("kind", ["box", "coarse"])
@pytest.mark.parametrize("metric", ["device_power", "power", "temperature"])
def test_a_limit_on_power_or_heat_rules_out_no_design_that_keeps_it(
    whole, drawn, kinds, bounded, kind, metric
):
    _, evaluated, _ = drawn
    values, free = evaluated.columns[metric][evaluated.reason == 0], goal("tokens_per_s")
    loose = optimistic(free, bounded[kind])[:, 0]
    wanted = replace(free, limits={metric: (-np.inf, float(np.quantile(values, 0.1)))})
    scores = wanted.scores(evaluated)[:, 0]
    bounds = optimistic(wanted, bound_columns(whole, kinds[kind], wanted))[:, 0]
    keeps = scores > -np.inf
    assert keeps.any() and np.all(bounds[keeps] >= scores[keeps])
    assert np.all(bounds <= loose * (1 + 1e-3)) and np.mean(bounds < 0.99 * loose) > 0.05


@pytest.fixture(scope="module")
def kinds(whole, drawn):
    """The boxes alone, with every topology, and with every variant of a core, as a search begins with them."""
    _, _, boxes = drawn
    nearest, coarse = boxes.fixed.copy(), boxes.fixed.copy()
    nearest[:, topology_axis(whole)] = 0
    coarse[:, [topology_axis(whole), *coarse_axes(whole)]] = 0
    return {
        "box": boxes,
        "nearest": replace(boxes, fixed=nearest, nearest=True),
        "coarse": replace(boxes, fixed=coarse, nearest=True, coarse=True),
    }


@pytest.fixture(scope="module")
def bounded(whole, kinds):
    return {kind: bound_columns(whole, boxes) for kind, boxes in kinds.items()}


@pytest.mark.parametrize("seed", [2, 4, 6])
def test_branch_and_bound_equals_brute_force(seed):
    same, said = compared(space("deepstack-3d"), seed, 1500)
    assert same, said


def small():
    return space(
        "deepstack-3d",
        layers=[4, 8],
        connected=[2, 4],
        sram="128 KiB",
        port=["468.48 GB/s", "936.96 GB/s"],
        core=["base", "wide-matrix"],
        topology="switch-256",
        inner=[0.3, 1],
        middle=0.1,
        outer=[0.5, 1],
        power="100 W",
        overlap=["none", "tiles"],
        plan=["tp=64,dp=2,pp=2,ep=4,moe_tp=8", "tp=8,dp=32,ep=256", "tp=8,dp=16,pp=2,ep=128"],
        batch=[4, 1024],
    )


def test_a_frontier_of_two_metrics_equals_that_of_all_points():
    made, wanted = small(), goal("tokens_per_s, tokens_per_s_per_user")
    found = branch_and_bound(made, wanted)
    every = wanted.scores(evaluate_points(made, made.digits(np.arange(made.size))))
    best = every[non_dominated(every)]
    assert len(best) > 1
    np.testing.assert_allclose(np.sort(found.scores, axis=0), np.sort(best, axis=0), rtol=1e-12)


def test_a_search_taken_up_again_goes_on_as_it_would_have():
    made, wanted = small(), goal("tokens_per_s")

    def run(search, rounds):
        for _ in range(rounds):
            if not (works := search.ask()):
                break
            search.tell([perform(made, w) for w in works])
        return search

    straight, first = run(Exact(made, wanted), 100), run(Exact(made, wanted), 4)
    again = Exact(made, wanted)
    again.restore(first.save())
    again = run(again, 100)
    assert again.scores[0, 0] == straight.scores[0, 0] and again.best[0].tolist() == straight.best[0].tolist()
    assert again.open == 0 and again.bound == straight.bound and again.bounded == straight.bounded


def test_many_plans_on_one_design_come_to_an_end():
    """Where nothing is left to cut, plans whose bounds are too high are evaluated, however many."""
    first = small()
    one = {a.name: a.labels[0] for a in first.axes if a.name not in ("plan", "overlap")}
    made, wanted = (
        space("deepstack-3d-prefill", **one, overlap=["tiles"], plan="(zero == 3) & (tp <= 8)"),
        goal("tokens_per_s"),
    )
    assert made.size > 1000
    found = branch_and_bound(made, wanted)
    every = wanted.scores(evaluate_points(made, made.digits(np.arange(made.size))))
    assert found.scores[0, 0] == every.max() and found.open == 0


def test_a_metric_without_a_bound_is_refused():
    with pytest.raises(BadValue, match="an exact search needs a metric with bounds"):
        Exact(small(), goal("mfu"))


@pytest.fixture(scope="module")
def counted():
    """A space of hot and cold designs, some at their limits, and what all of them deliver."""
    made = space(
        str(Path(__file__).parent / "small.toml"),
        layers=[1, 2, 4, 8],
        connected=[1, 4, 8],
        plan=["tp=8,dp=2", "tp=4,dp=4", "tp=2,dp=8", "tp=16"],
    )
    return made, evaluate_points(made, made.digits(np.arange(made.size)))


@pytest.mark.parametrize("metric", POWER_METRICS)
def test_least_power_and_heat_are_those_of_all_points(counted, metric):
    made, every = counted
    wanted = goal(metric, ["tpot <= 10 ms"])
    found = branch_and_bound(made, wanted)
    assert found.scores[0, 0] == wanted.scores(every)[:, 0].max() > -np.inf


@pytest.mark.parametrize(
    "limit", ["temperature <= 52 degC", "temperature <= 60 degC", "device_power <= 30 W", "power <= 1150 W"]
)
def test_the_best_design_under_a_limit_of_power_or_heat_is_found(counted, limit):
    made, every = counted
    wanted = goal("tokens_per_s", [limit])
    found = branch_and_bound(made, wanted)
    assert found.scores[0, 0] == wanted.scores(every)[:, 0].max() > -np.inf
    assert found.open == 0


def test_engines_with_a_host_bound_their_power_too():
    """A host's time lets a device rest: a limit on its mean power does not hold for its kernels."""
    made = space("next-node", batch=[8, 64, 256], plan=["tp=8", "tp=4,dp=2"], weights=["fp8"])
    made = replace(made, scenario=replace(made.scenario, engine="vllm"))
    every = evaluate_points(made, made.digits(np.arange(made.size)))
    middle = float(np.quantile(every.columns["device_power"][every.reason == 0], 0.3))
    for wanted in (
        goal("device_power", ["tpot <= 20 ms"]),
        replace(goal("tokens_per_s"), limits={"device_power": (-np.inf, middle)}),
    ):
        best = wanted.scores(every)[:, 0].max()
        assert branch_and_bound(made, wanted).scores[0, 0] == best > -np.inf
