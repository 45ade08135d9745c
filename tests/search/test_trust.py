"""Answers of a search that nobody misreads: limits, proofs of frontiers, chips that cannot be built, free axes."""

import numpy as np
import pytest

from strata.app.render.search import search_tables
from strata.base.errors import BadValue
from strata.base.pareto import non_dominated
from strata.search.goal import GOAL_METRICS, goal, metric_column
from strata.search.points import evaluate_points
from strata.search.run import search
from strata.search.samplers import sampler_class
from strata.search.space import space

NODE = space("next-node", batch=[8, 64, 256])
STACKS = {
    "name": "stacks",
    "title": "stacks without a constraint",
    "note": "connected layers may exceed those there are",
    "question": {
        "model": "llama-3-8b",
        "system": "16xstack-ref",
        "phase": "decode",
        "plan": "tp=8,dp=2",
    },
    "axis": [
        {"name": "layers", "field": "chip.stack.layers", "values": [1, 2, 4, 8], "source": "tests"},
        {
            "name": "connected",
            "field": "chip.stack.connected_layers",
            "values": [1, 2, 4, 8],
            "source": "tests",
        },
        {"name": "batch", "field": "batch", "values": [16, 64], "source": "tests"},
    ],
}


def written(tmp_path, table):
    import tomlkit

    path = tmp_path / "space.toml"
    path.write_text(tomlkit.dumps(table), encoding="utf-8")
    return space(str(path))


def every_point(on):
    return evaluate_points(on, on.digits(np.arange(on.size)))


@pytest.mark.parametrize("sampler", ["random", "exact", "nsga2"])
@pytest.mark.parametrize("name", list(GOAL_METRICS))
def test_every_metric_of_the_phase_is_a_limit_that_is_kept_and_shown(name, sampler):
    metric, sign = GOAL_METRICS[name], ">=" if GOAL_METRICS[name].higher_is_better else "<="
    some = metric_column(evaluate_points(NODE, NODE.random(np.random.default_rng(1), 200)).columns, name)
    middle = float(np.nanmedian(some[np.isfinite(some)])) if np.isfinite(some).any() else 1.0
    limit = f"{name} {sign} {middle!r} {metric.unit if metric.unit != '1' else ''}"
    if "decode" not in metric.phases:
        with pytest.raises(BadValue, match="a step of decode has no"):
            search(NODE, "tokens_per_s", limits=[limit], sampler=sampler)
        return
    found = search(NODE, "tokens_per_s", limits=[limit], sampler=sampler, budget=400)
    found.as_dict()
    if found.found:
        value = found.best["metrics"][name]
        assert value >= middle if sign == ">=" else value <= middle
        assert list(search_tables(found))


def test_a_frontier_keeps_its_limits():
    found = search(
        NODE, ["tokens_per_s", "energy_per_token"], limits=["tpot <= 15 ms"], sampler="random", budget=2000
    )
    assert len(found.frontier) and np.all(found.frontier.columns["tpot"] <= 0.015)


@pytest.mark.parametrize("gap", [0.0, 0.05])
def test_a_frontier_is_proven_within_its_gap(gap):
    few = space("next-node", batch=[8, 64], plan=["tp=8", "tp=4,dp=2", "tp=2,pp=4"], weights=["fp8"])
    wanted = goal(["tokens_per_s", "energy_per_token"], ["tpot <= 20 ms"])
    found = search(few, wanted, gap=gap)
    scores, ours = wanted.scores(every_point(few)), wanted.scores(found.frontier)
    assert found.gap == gap
    for score in scores[scores[:, 0] > -np.inf]:
        assert np.any(np.all(ours + gap * np.abs(ours) >= score - 1e-12 * np.abs(score), axis=1))
    if gap == 0.0:
        true = np.unique(scores[non_dominated(scores)], axis=0)
        np.testing.assert_allclose(np.unique(ours, axis=0), true, rtol=1e-12)


@pytest.mark.parametrize("sampler", ["random", "exact", "nsga2", "cmaes"])
def test_a_chip_that_cannot_be_built_is_a_point_that_is_out(tmp_path, sampler):
    on = written(tmp_path, STACKS)
    every = every_point(on)
    wrong = on.values(every.digits)["connected"] > on.values(every.digits)["layers"]
    relation = "the parts of a chip must go together as its file demands"
    told = goal("tokens_per_s").reasons(every)
    assert wrong.any() and all((relation in words) == bad for words, bad in zip(told, wrong, strict=True))
    found = search(on, "tokens_per_s", sampler=sampler, budget=on.size)
    assert found.best["metrics"]["tokens_per_s"] == every.columns["tokens_per_s"][~wrong].max()


AREAS = [f"{area} mm2" for area in (100, 140, 144, 145, 400, 900)]  # its lid has 144 mm2
THICK = ["30 um", "600 um", "1.5 mm", "6 mm"]  # eight dies, two, and none leave room in the package


@pytest.mark.parametrize("metric", ["tokens_per_s", "temperature", "tokens_per_s_per_mm2"])
@pytest.mark.parametrize(
    "field, values", [("chip.package.die_area", AREAS), ("chip.cooling.dram_thickness", THICK)]
)
def test_geometry_that_cannot_be_built_is_out_in_an_exact_search(tmp_path, field, values, metric):
    shape = {"name": "shape", "field": field, "values": values, "source": "tests"}
    on = written(tmp_path, {**STACKS, "axis": [shape, STACKS["axis"][0], STACKS["axis"][2]]})
    scores = goal(metric).scores(every_point(on))[:, 0]
    found = search(on, metric, sampler="exact", gap=0.0)
    assert found.best["metrics"][metric] == goal(metric).value(scores.max())
    assert found.gap == 0.0 and np.sum(scores > -np.inf) < on.size


def test_winners_on_an_edge_and_axes_that_cost_nothing_are_pointed_out(tmp_path):
    table = {**STACKS, "axis": [{**STACKS["axis"][0], "values": [2, 4]}, STACKS["axis"][2]]}
    links = {"name": "links", "field": "fabric.0.bandwidth", "times": [0.5, 1, 2], "source": "tests"}
    table["axis"] = [*table["axis"], links]
    found = search(written(tmp_path, table), "tokens_per_s", sampler="random", budget=100)
    said = "\n".join(found.remarks)
    assert "links ends at 2, and more would be better" in said
    assert "costs nothing here, no price follows: links" in said
    assert found.as_dict()["notes"] == []


@pytest.mark.parametrize("sampler", ["nsga2", "tpe", "cmaes"])
def test_samplers_that_learn_begin_with_the_system_as_stated(sampler):
    # a limit that few random points keep: what the system does as it is must not be lost
    asked = sampler_class(sampler)(NODE, goal("tokens_per_s"), seed=3, budget=256)
    first = np.concatenate([work.digits for work in asked.ask()])
    stated = NODE.values(first)
    assert set(stated["bandwidth"]) == {1.0} and set(stated["links"]) == {1.0}
    told = evaluate_points(NODE, first)
    best = goal("tokens_per_s").scores(told).max()
    found = search(NODE, "tokens_per_s", sampler=sampler, budget=256, seed=3)
    assert found.best["metrics"]["tokens_per_s"] >= best > 0
