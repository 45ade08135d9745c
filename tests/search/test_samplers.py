"""The contract of samplers, for every one there is: legal, repeatable, no point twice, within its budget, and
near what counting through finds.
"""

from pathlib import Path

import numpy as np
import pytest

from strata.base.errors import StrataError
from strata.base.pareto import non_dominated
from strata.search.executors import perform
from strata.search.goal import goal
from strata.search.points import concatenate_points, evaluate_points
from strata.search.samplers import sampler_class, sampler_names
from strata.search.samplers._learning import Genes, repair_points
from strata.search.space import space

SMALL = str(Path(__file__).parent / "small.toml")
PLANS = ["pp=16", "dp=16", "cp=4,dp=4", "tp=2,dp=8", "tp=4,dp=4", "tp=8,dp=2", "tp=16", "tp=8,pp=2"]
SEVERAL = ["nsga2", "random"]  # samplers that search for several metrics
PROVES = ["exact"]  # ends with a proof, not with a budget
NEAR = {"random": 0.1, "exact": 0.01}  # how far from the best a sampler may end; others 3 %
BUDGET = 400
FEW = {"tpe": 250}  # of those that think long about each point


@pytest.fixture(scope="module")
def small():
    return space(SMALL, plan=PLANS, links=[1, 2])


@pytest.fixture(scope="module")
def counted(small):
    """Every point of the space."""
    return evaluate_points(small, small.digits(np.arange(small.size)))


def search(name, where, wanted, seed=0, budget=BUDGET, rounds=10_000):
    """What a sampler asks for, done. One that proves its answer needs no budget."""
    made = sampler_class(name)(where, wanted, seed, **({} if name in PROVES else {"budget": budget}))
    found = []
    while len(found) < rounds and (work := made.ask()):
        rows = made.tell([perform(where, w) for w in work])
        if rows is not None:
            found.append(rows)
    return concatenate_points(found)


@pytest.mark.parametrize("name", sampler_names())
def test_a_sampler_keeps_to_the_space_and_budget_and_comes_near_the_best(name, small, counted):
    wanted = goal("tokens_per_s", limits=["temperature <= 62 degC"])
    budget = FEW.get(name, BUDGET)
    found = search(name, small, wanted, budget=budget)
    assert small.legal(found.digits).all()
    assert len(found) <= budget or name in PROVES
    assert len(np.unique(small.index(found.digits))) == len(found)
    best = wanted.scores(found).max()
    assert best >= wanted.scores(counted).max() * (1 - NEAR.get(name, 0.03))
    at = wanted.best(found)
    assert found.reason[at] == 0 and found.columns["temperature"][at] <= 62 + 273.15


@pytest.mark.parametrize("name", sampler_names())
def test_the_same_seed_gives_the_same_points(name, small):
    wanted = goal("energy_per_token")
    first, again = (search(name, small, wanted, seed=3, budget=100, rounds=3) for _ in range(2))
    assert np.array_equal(first.digits, again.digits)


@pytest.mark.parametrize("name", [n for n in sampler_names() if n not in ("hierarchical", *PROVES)])
def test_another_seed_gives_other_points(name, small):
    one, other = (search(name, small, goal("tokens_per_s"), seed=s, budget=64, rounds=1) for s in (0, 1))
    assert not np.array_equal(one.digits, other.digits)


@pytest.mark.parametrize("name", sampler_names())
def test_a_space_where_nothing_fits_ends_without_an_answer_and_without_an_error(name):
    tight = space(SMALL, plan=["dp=16"], layers=[1], links=[1])
    wanted = goal("tokens_per_s")
    found = search(name, tight, wanted, budget=100)
    assert len(found) >= 1
    assert wanted.best(found) is None
    assert all(wanted.reasons(found))


@pytest.mark.parametrize("name", sampler_names())
def test_a_space_of_one_point_is_that_point(name):
    one = space(
        SMALL,
        plan=["tp=16"],
        layers=[4],
        connected=[4],
        port=["468.48 GB/s"],
        core=["base"],
        overlap=["none"],
        links=[1],
    )
    assert one.size == 1
    found = search(name, one, goal("tokens_per_s"), budget=10)
    assert found.digits.tolist() == [[0] * len(one.axes)]


@pytest.mark.parametrize("name", [n for n in sampler_names() if n not in (*SEVERAL, *PROVES)])
def test_samplers_for_one_metric_say_so(name, small):
    with pytest.raises(StrataError, match="searches for one metric"):
        sampler_class(name)(small, goal("tokens_per_s, energy_per_token"))


def test_nsga2_comes_near_every_point_of_the_frontier(small, counted):
    wanted = goal("tokens_per_s, energy_per_token, temperature")
    truth, found = wanted.scores(counted), wanted.scores(search("nsga2", small, wanted, budget=1500))
    every, reached = truth[non_dominated(truth)], found[non_dominated(found)]
    assert len(every) > 5
    # of the nearest found, its worst metric
    short = ((every[:, None] - reached[None]) / np.abs(every[:, None])).max(axis=2).min(axis=1)
    assert short.max() < 0.05


def test_the_stages_of_the_hierarchy_come_from_the_file(small):
    """Stage 1 moves plans only, on the chip as described; no later round opens an axis without a stage."""
    made = sampler_class("hierarchical")(small, goal("tokens_per_s"), budget=BUDGET)
    base = made.base
    labels = {a.name: a.labels[d] for a, d in zip(small.axes, base, strict=True)}
    assert labels | {"plan": ""} == {
        "layers": "4",
        "connected": "4",
        "port": "468.48 GB/s",
        "core": "base",
        "overlap": "none",
        "links": "1",
        "plan": "",
        "batch": "16",
    }
    plan = small.axis("plan")
    made.tell([perform(small, w) for w in made.ask()])  # the chip as it is
    second = np.concatenate([w.digits for w in made.ask()])
    moved = {i for i in range(len(base)) if (second[:, i] != base[i]).any()}
    assert moved == {plan}
    assert len(second) == len(small.axes[plan]) - 1


def test_genes_are_the_points_in_other_words():
    """There and back again, for every plan; and degrees that no plan has become those of a plan."""
    whole = space(SMALL)
    genes = Genes(whole)
    digits = whole.random(np.random.default_rng(0), 2000)
    assert np.array_equal(genes.digits(genes.of(digits)), digits)
    assert len(genes) < len(whole.axes) + 6
    rng = np.random.default_rng(1)
    anything = np.stack([rng.integers(0, g.count, 500) for g in genes.genes], axis=1)
    points = repair_points(whole, genes.digits(anything), rng)
    assert whole.legal(points).all()
