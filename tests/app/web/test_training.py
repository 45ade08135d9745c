"""Answers of the training page: the command's numbers, memory that adds up, a timeline, levers."""

import pytest

from strata.app.render.training import step_parts
from strata.app.web.answers import training as page
from strata.app.web.worker import answered
from strata.simulate.step import simulate_step
from strata.training.run import train_run

SMALL = page.TrainDesign(
    model="llama-3-8b",
    system="8xh100",
    tokens="1B",
    batch=64,
    plan="tp=2,pp=2,dp=2,zero=1,sp=1,recompute=full",
).model_dump()


@pytest.fixture(scope="module")
def run():
    return train_run("8xh100", "llama-3-8b", "1B", batch=64, plan=SMALL["plan"])


def done(call, question):
    told = answered(call, question, print)
    assert "error" not in told, told
    return told["done"]


def test_the_run_is_the_commands(run):
    told = done("training.trained", SMALL)
    assert (
        told["fits"]
        and told["run"]["days"] == run.days
        and told["step"] == float(run.result.metrics.step_time)
    )
    assert sum(part["time"] for part in told["parts"]) == pytest.approx(sum(step_parts(run).values()))
    stages = zip(*told["memory"]["purposes"].values(), strict=True)
    assert max(sum(stage) for stage in stages) == pytest.approx(told["memory"]["used"])
    assert [card["label"] for card in told["cards"]][:3] == ["Step", "MFU", "Tokens/s"]


def test_the_timeline_is_the_simulations(run):
    told, made = done("training.step_timeline", SMALL), simulate_step(run.result, detail="stage")
    assert told["time"] == made.time and told["stages"] == 2
    assert max(task[2] for task in told["tasks"]) == pytest.approx(made.time)
    assert {task[3] for task in told["tasks"]} >= {"forward", "backward"}


def test_what_does_not_fit_says_what_would_help():
    told = done("training.trained", SMALL | {"model": "llama-3-70b", "plan": "tp=8"})
    assert not told["fits"] and "cards" not in told
    assert any(lever.startswith("zero=") or "=" in lever for lever in told["infeasible"][0]["levers"])
    assert done("training.step_timeline", SMALL | {"model": "llama-3-70b", "plan": "tp=8"})["tasks"] == []


def test_too_many_passes_are_not_drawn():
    design = SMALL | {
        "batch": 8192,
        "plan": "pp=8,microbatches=8192,zero=1,recompute=full",
        "system": "8xb200",
    }
    assert "more passes" in done("training.step_timeline", design)["why"]


def test_the_best_plan_is_the_searchs():
    said = []
    told = answered("training.best_training_plans", page.BestPlan(**SMALL).model_dump(), said.append)["done"]
    best = train_run("8xh100", "llama-3-8b", "1B", batch=64)
    assert told["plans"][0]["plan"] == best.to_dict()["plan"] and said


@pytest.mark.parametrize(
    "change, line",
    [
        ({"plan": ""}, "give a plan"),
        ({"plan": "tp=3"}, "plan tp=3"),
        ({"plan": "zz"}, "a plan is written like"),
        ({"engine": "vllm"}, "does not train"),
        ({"model": "mlp-8192"}, "language models"),
        ({"tokens": "many"}, "tokens are a number"),
        ({"tokens": "12"}, "at least one step"),
        ({"set": {"chip.nonesuch": "1"}}, "nonesuch"),
    ],
)
def test_mistakes_are_one_line(change, line):
    for call in (
        ("training.trained",) if "tokens" in change else ("training.trained", "training.step_timeline")
    ):
        told = answered(call, SMALL | change, print)
        assert told["status"] == 422 and line in told["error"]
