"""A deployment and a load are all that serving is asked with, as records and as texts."""

from dataclasses import replace

import pytest

import strata as st
from strata.base.errors import BadValue, UnknownName
from strata.search.served_options import deployment_of, load_of_options, typed_draft
from strata.serving.deployment import Deployment, served
from strata.serving.simulator.load_text import load_of
from strata.workload.model import model

ASKED = ("8xh200", "llama-3-70b", "tp=8", "vllm")
TEXTS = {"model": "llama-3-8b", "system": "1xh200", "plan": "tp=1"}


def test_prices_do_not_depend_on_what_else_is_asked():
    one, other = Deployment(*ASKED), Deployment(*ASKED)
    short, long = (load_of(f"closed:clients=4,input={n},output=64,count=8") for n in (128, 6000))
    assert one.priced(short)[0].table is one.priced(long)[0].table  # priced once
    here, there = (served(d, short).to_dict() for d in (one, replace(other)))
    assert here == there
    assert one.priced(load_of("closed:clients=1,input=7000,output=1024,count=1"))[0].table is not None


def test_workers_apart_are_copies_behind_one_router():
    pair = Deployment(
        "8xh200", "llama-3-8b", prefill="tp=1", decode="tp=2", prefill_workers=2, decode_workers=3
    )
    reading, writing = pair.priced()
    assert (reading.copies, writing.copies) == (2, 3) and reading.devices + writing.devices == 8
    twice = replace(pair, replicas=2).priced()
    assert [s.copies for s in twice] == [4, 6]
    load = load_of("closed:clients=32,input=2048,output=64,count=320")
    few = replace(pair, prefill_workers=1)
    assert served(pair, load).times["ttft"].mean < served(few, load).times["ttft"].mean


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"prefill": "tp=1"}, "both prefill and decode"),
        ({"prefill": "tp=1", "decode": "tp=1"}, "leave out plan"),
        ({"max_num_seqs": 0}, "at least 1"),
        ({"decode_workers": 0}, "at least 1"),
        ({"plan": "", "prefill": "tp=4", "decode": "tp=4", "prefill_workers": 2}, "pass those of 8xh200"),
    ],
)
def test_what_cannot_be_deployed_says_why(changes, why):
    with pytest.raises(BadValue, match=why):
        replace(Deployment(*ASKED), **changes).priced()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--prefill-workers", "2"), "--prefill-workers is of devices apart"),
        (("--prefill", "tp=1"), "devices apart need both --prefill PLAN and --decode PLAN"),
        (
            ("--decode-workers", "0", "--prefill", "tp=1", "--decode", "tp=1"),
            "must be a positive whole number",
        ),
        (("--engine", "vllm@0.999"), "no version of vllm called '0.999'"),
        (("--load", "closed:clients=2,input=8,output=8,prompts=0"), "at least one prompt"),
        (("--load", "sessions:rate=1,turns=2,input=8,output=8,prompts=4"), "prompts"),
    ],
)
def test_what_is_typed_wrong_is_one_line(strata, words, why):
    load = () if "--load" in words else ("--clients", "2")
    refused = strata("simulate", "-m", "llama-3-8b", "-s", "2xh200", *load, *words)
    assert refused.code == 2 and why in refused.err and len(refused.err.splitlines()) == 1


def test_texts_mean_records():
    one = deployment_of({**TEXTS, "sequences": "8", "kv_blocks": "900", "no_prefix_caching": True})
    assert (one.max_num_seqs, one.kv_blocks, one.prefix_caching) == (8, 900, False)
    assert one is deployment_of(
        {**TEXTS, "sequences": "8", "kv_blocks": "900", "no_prefix_caching": True, "ttft": "1s"}
    )
    assert one is not deployment_of(
        {**TEXTS, "sequences": "9", "kv_blocks": "900", "no_prefix_caching": True}
    )
    paced = load_of_options({"rate": "4/s", "count": "3", "speed": "2"})
    assert [r.input for r in paced.arrivals()] == [1024] * 3
    with pytest.raises(BadValue, match="both say which requests come"):
        load_of_options({"rate": "4", "clients": "2"})
    with pytest.raises(UnknownName, match="part of a guess"):
        typed_draft("draft=mtp,acceptance=0.7,depth=2", model("deepseek-v3"))
    own = typed_draft("draft=mtp,acceptance=0.7,window=2", model("deepseek-v3"))["draft"]
    assert own.draft.name == "deepseek-v3" and own.window == 2


def test_prompts_that_are_asked_again_are_found_in_the_cache():
    line = "closed:clients=16,input=uniform:2000:0.5:1,output=32,count=400,seed=3"
    fresh, again = (
        st.simulate("1xh200", "llama-3-8b", load_of(line + more), "tp=1") for more in ("", ",prompts=8")
    )
    assert fresh.prefix_hits == 0.0 and again.prefix_hits > 0.9
    assert again.times["ttft"].mean < fresh.times["ttft"].mean
    first, second = ([(r.input, r.prefix) for r in load_of(line + ",prompts=8").arrivals()] for _ in range(2))
    assert first == second and len({prefix for _, prefix in first}) <= 8


def test_devices_draw_less_than_the_plug():
    run = st.simulate(*ASKED[:2], load_of("closed:clients=64,input=512,output=64,count=256"), *ASKED[2:])
    limit = 8 * float(run.system.chip.energy.power_limit)
    assert 0.2 * limit < run.devices_power < min(run.power, limit * 1.01)
    assert run.devices_energy_per_token == run.devices_power / run.tokens_per_s
