"""Fleets from a file: pools of several models, adapters, limits on who waits, mistakes in one line."""

import pytest

from strata.base.errors import StrataError
from strata.search.served_options import read_pools
from strata.serving.deployment import Deployment
from strata.serving.simulated import ServicePool, simulate_services
from strata.serving.simulated_answers import find_rate
from strata.serving.simulator.load_text import load_of

SMALL = """model = "llama-3-8b"
system = "1xh200"
plan = "tp=1"
sequences = 32
tokens = 1024
context = 4096
"""
TWO = f"""
[[pool]]
name = "chat"
{SMALL}replicas = 2
router = "round-robin"
serves = ["assistant"]

[[pool]]
name = "code"
{SMALL}most_waiting = 2

[pool.adapters]
names = ["sql", "python"]
rank = 16
slots = 2
bandwidth = "50 GB/s"
"""
MODELS = "models=chat:0.4/assistant:0.1/sql:0.3/python:0.2"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    def write(text):
        path = tmp_path_factory.mktemp("pools") / "fleet.toml"
        path.write_text(text)
        return path

    return write


@pytest.fixture(scope="module")
def two(written):
    return read_pools(written(TWO), load_of("poisson:rate=4,input=200,output=40,count=10"))


def test_a_file_says_what_each_pool_is(two):
    chat, code = two
    assert [p.name for p in two] == ["chat", "code"]
    assert chat.services[0].copies == 2 and chat.router == "round-robin" and chat.adapters is None
    assert chat.asked_for == {"chat", "assistant", "llama-3-8b"}
    assert code.asked_for == {"code", "llama-3-8b", "sql", "python"} and code.most_waiting == 2
    assert code.adapters.slots == 2
    assert code.services[0].room.blocks < chat.services[0].room.blocks  # adapters lie in memory
    assert chat.services[0].rules.sequences == 32 and chat.services[0].context == 4096


def test_requests_go_to_the_pool_of_their_model_and_none_is_lost(two):
    load = load_of(f"poisson:rate=6,input=300,output=60,count=300,seed=3,{MODELS}")
    run = simulate_services(two, load, slo={"ttft": 1.0})
    assert run.completed + run.refused == 300
    assert {n: t.completed + t.refused for n, t in run.by_model.items()}.keys() == {
        "chat", "assistant", "sql", "python"
    }  # fmt: skip
    assert sum(t.completed for t in run.by_model.values()) == run.completed
    assert sum(t.refused for t in run.by_model.values()) == run.refused
    mean = sum(t.completed * t.times["ttft"].mean for t in run.by_model.values()) / run.completed
    assert mean == pytest.approx(run.times["ttft"].mean)
    told = run.to_dict()
    assert [one["pool"] for one in told["fleet"]] == ["chat", "code"]
    assert told["by_model"]["sql"]["completed"] == run.by_model["sql"].completed


def test_a_pool_that_is_full_refuses_and_the_other_does_not(two):
    load = load_of(f"poisson:rate=400,input=1000,output=200,count=200,seed=3,{MODELS}")
    run = simulate_services(two, load)
    assert run.refusals == {"queue full": run.refused} and run.refused > 0
    assert run.by_model["chat"].refused == run.by_model["assistant"].refused == 0


def test_one_pool_is_the_deployment_itself(two):
    """A pool that serves all is what deployments by themselves are."""
    service = two[0].services[0]
    load = load_of("poisson:rate=6,input=300,output=60,count=200,seed=3")
    pool = ServicePool(services=[service], name="all")
    one, other = simulate_services([pool], load), simulate_services([service], load)
    assert one.times["ttft"].mean == other.times["ttft"].mean and not one.by_model
    assert one.to_dict()["fleet"][0].pop("pool") == "all"


def test_the_rate_of_pools_may_be_asked_for(two):
    load = load_of(f"poisson:rate=4,input=200,output=40,count=150,seed=3,{MODELS}")
    found = find_rate(two, load, {"ttft": 0.5}, share=0.9)
    assert found.rate > 0.0


def test_ranks_of_a_pool_are_chosen_as_it_says(written):
    text = '[[pool]]\nmodel = "gpt-oss-120b"\nsystem = "2xh200"\nplan = "dp=2,ep=2"\n'
    text += 'rank_router = "round-robin"\n'
    load = load_of("poisson:rate=4,input=200,output=40,count=10")
    (pool,) = read_pools(written(text), load)
    assert pool.services[0].rules.rank_router == "round-robin" and pool.services[0].ranks == 2
    text = text.replace("round-robin", "prefix-first")
    with pytest.raises(StrataError, match="prefix-first"):
        read_pools(written(text), load)


def test_prompts_read_apart_in_a_pool(written):
    body = SMALL.replace('plan = "tp=1"', 'prefill = "tp=1"\ndecode = "tp=1"\nadmission = "when-room"')
    load = load_of("poisson:rate=4,input=200,output=40,count=50")
    pools = read_pools(written("[[pool]]\n" + body.replace("1xh200", "2xh200")), load)
    assert [s.rules.role for s in pools[0].services] == ["prefill", "decode"]
    assert simulate_services(pools, load).completed == 50


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pool = 3", "at least one table"),
        ("[[pool]]\nname =", "is no TOML"),
        ("[[pools]]\nname = 'a'", "pools"),
        ("[[pool]]\nname = 'a'", r"pool 1 \(a\) must say its model"),
        ("[[pool]]\n" + SMALL + "colour = 1", "colour"),
        ("[[pool]]\n" + SMALL + "most_waiting = 0", "most_waiting is a whole number"),
        ("[[pool]]\n" + SMALL + "router = 'nearest'", "nearest"),
        ("[[pool]]\n" + SMALL + "serves = 'a'", "serves is a list of names"),
        ("[[pool]]\n" + SMALL + "priorities = 1", "priorities is true or false"),
        ("[[pool]]\n" + SMALL + "prefill = 'tp=1'", "both prefill and decode"),
        ("[[pool]]\n" + SMALL + "[pool.adapters]\nnames = ['a']", "adapters must say their rank"),
        ("[[pool]]\n" + SMALL + "[pool.adapters]\nnamez = ['a']", "namez"),
        ("[[pool]]\n" + SMALL + "[pool.draft]\nmodel = 'mtp'", "draft must say its acceptance"),
        ("[[pool]]\n" + SMALL.replace("tp=1", "tp=2"), "pool 1: no plan for 1xh200: tp=2"),
        (2 * ("[[pool]]\nname = 'a'\n" + SMALL), "one name"),
        ("[[pool]]\n" + SMALL.replace("llama-3-8b", "llama-99"), "llama-99"),
    ],
)
def test_mistakes_are_told_in_one_line(written, text, said):
    load = load_of("poisson:rate=4,input=200,output=40,count=10")
    with pytest.raises(StrataError, match=said) as caught:
        simulate_services(read_pools(written(text), load), load)
    assert "\n" not in str(caught.value)


def test_requests_must_say_which_model_they_want(two):
    with pytest.raises(StrataError, match="requests name no model"):
        simulate_services(two, load_of("poisson:rate=4,input=200,output=40,count=10"))
    with pytest.raises(StrataError, match="all in pools, or none"):
        simulate_services(
            [two[0], two[1].services[0]], load_of("poisson:rate=4,input=200,output=40,count=10")
        )


def test_a_plan_that_cannot_be_is_told():
    with pytest.raises(StrataError, match="no plan for 8xh200: tp=16"):
        Deployment("8xh200", "llama-3-70b", "tp=16", "vllm").priced()[0]
