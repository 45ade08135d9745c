"""Answers of the fabric page: the command's numbers, ranks that are the plan's, loads that add up."""

import numpy as np
import pytest

from strata.app.web.answers import fabric as page
from strata.app.web.worker import answered
from strata.hardware.topology import topology
from strata.mapping.plan import plan
from strata.pricing.network.collective_cost import collective, group_collective

ON = page.JoinedDevices().model_dump()
ONE = page.OneCollective().model_dump()


def done(call, question):
    told = answered(call, question, print)
    assert "error" not in told, told
    return told["done"]


def test_numbers_of_the_fabric_are_the_commands():
    told, wired = done("fabric.joined", ON), topology("hgx-h200", (8, 8))
    assert told["devices"] == 64 and told["drawn"]
    assert told["whole"]["bisection_B_per_s"] == wired.whole.bisection
    assert [p["dimensions"] for p in told["panels"]] == [[0], [1]]
    assert told["plan"] == "tp=8,dp=8"


def test_ranks_of_every_axis():
    told = done("fabric.joined", ON | {"plan": "tp=4,dp=8,pp=2"})
    assert [a["axis"] for a in told["axes"]] == ["tp", "dp", "pp"]
    assert told["ranks"]["pp"]["number"] == [0] * 32 + [1] * 32
    assert told["ranks"]["tp"]["group"][:8] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_larger_fabric_is_told_by_its_levels():
    told = done("fabric.joined", ON | {"system": "256x8xh100", "plan": "tp=8,dp=256"})
    assert not told["drawn"] and told["ranks"] == {} and len(told["panels"]) == 2


def test_a_collective_is_the_commands():
    told = done("fabric.collective_told", ONE)
    assert told["cost"]["time_s"] == pytest.approx(
        float(collective("8x8xh200", "all_reduce", bytes=64e6, ranks=8).time)
    )
    far = group_collective("8x8xh200", plan("tp=8,dp=8"), "dp", "all_reduce", bytes=64e6)
    other = done("fabric.collective_told", ONE | {"group": "dp"})
    assert other["cost"]["time_s"] == pytest.approx(float(far.time))
    assert other["loads"]["busiest"]["name"] == "infiniband"
    assert np.all(np.diff(told["curve"]["time"]) >= 0)


def test_collectives_of_a_step():
    question = page.StepOn(model="deepseek-v3", plan="tp=4,dp=16,ep=64,moe_tp=1").model_dump()
    found = {(c["group"], c["pattern"]) for c in done("fabric.step_collectives", question)["collectives"]}
    assert ("ep", "all_to_all") in found and ("tp", "all_reduce") in found
    train = page.StepOn(model="llama-3-8b", plan="tp=8,dp=8", phase="train").model_dump()
    assert done("fabric.step_collectives", train)["collectives"][-1]["group"] == "dp_cp"


@pytest.mark.parametrize(
    "question, line",
    [
        (ONE | {"system": "nonesuch"}, "no system called"),
        (ONE | {"plan": "tp=8,dp=9"}, "1 to 64 ranks"),
        (ONE | {"group": "ep"}, "needs 2 ranks or more"),
        (ONE | {"group": "zz"}, "no group of ranks"),
        (ONE | {"schedule": "zz"}, "the schedule is one of"),
        (ONE | {"system": "1xh200"}, "needs 2 ranks or more"),
    ],
)
def test_mistakes_are_one_line(question, line):
    told = answered("fabric.collective_told", question, print)
    assert told["status"] == 422 and line in told["error"]
