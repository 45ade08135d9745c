"""Fleets of priced services: pools apart, deployments that are not alike, adapters, saturation."""

import pytest

from strata.serving.deployment import Deployment
from strata.serving.pools import cache_bytes, send_time
from strata.serving.simulated import simulate_services, with_adapters
from strata.serving.simulator.fleet import Fleet
from strata.serving.simulator.kv_pool import KvPool
from strata.serving.simulator.load_text import load_of
from strata.serving.simulator.pool import Pool, Router
from strata.serving.simulator.replica import Replica
from strata.workload.adapted_model import adapted_model
from strata.workload.lora import Lora
from strata.workload.model import model

SMALL = {"context": 4096, "max_num_seqs": 64, "max_num_batched_tokens": 1024}


@pytest.fixture(scope="module")
def one():
    return Deployment("1xh200", "llama-3-8b", "tp=1", "vllm", **SMALL).priced()[0]


@pytest.fixture(scope="module")
def apart():
    return Deployment("2xh200", "llama-3-8b", prefill="tp=1", decode="tp=1", engine="vllm", **SMALL).priced()


@pytest.mark.parametrize(("read", "wrote"), [(1000, 50), (64, 2), (3000, 200), (500, 1)])
def test_one_request_on_pools_apart_is_one_on_a_single_device_and_the_way(one, apart, read, wrote):
    line = f"even:rate=1,input={read},output={wrote},count=1"
    alone, pools = (simulate_services(s, load_of(line)) for s in ([one], apart))
    way = send_time(apart[0].within, float(cache_bytes(one.model, float(read))), 1.0, one.engine)
    way = way + float(one.engine.frontend_latency) if wrote > 1 else 0.0  # the other pool takes it in, too
    assert pools.times["ttft"].mean == pytest.approx(alone.times["ttft"].mean + way, rel=0.02)
    assert pools.times["tpot"].mean == pytest.approx(alone.times["tpot"].mean, rel=1e-6)


def test_tokens_between_prompts_do_not_wait_where_pools_are_apart(one, apart):
    load = load_of("poisson:rate=6,input=1500,output=100,count=300,seed=2")
    together, pools = simulate_services([one.copied(2)], load), simulate_services(apart, load)
    assert pools.completed == together.completed == 300
    assert pools.times["tpot"].percentile(0.95) < together.times["tpot"].percentile(0.95)


def test_deployments_that_are_not_alike_share_a_router(one):
    faster = Deployment("1xb200", "llama-3-8b", "tp=1", "vllm", **SMALL).priced()[0]
    load = load_of("poisson:rate=20,input=500,output=100,count=1500,seed=2")
    found = simulate_services([one, faster], load)
    alone = simulate_services([one.copied(2)], load)
    assert found.completed == 1500
    assert found.times["latency"].mean < alone.times["latency"].mean
    assert found.replicas[1].total_steps > 0 and found.replicas[0].total_steps > 0


def test_a_rate_above_what_a_device_serves_is_told_since_when(one):
    served = simulate_services([one], load_of("closed:clients=128,input=500,output=50,count=1500")).rate
    few = simulate_services([one], load_of(f"poisson:rate={0.7 * served},input=500,output=50,count=3000"))
    many = simulate_services([one], load_of(f"poisson:rate={1.6 * served},input=500,output=50,count=3000"))
    assert few.saturated_from is None
    assert 0 <= many.saturated_from < 0.5 * 3000 / (1.6 * served)


def test_adapters_of_a_priced_service_wait_for_their_place():
    lora, names = Lora(rank=16.0), [f"a{i}" for i in range(8)]
    base = Deployment(
        "1xh200", adapted_model(model("llama-3-8b"), lora, 4), "tp=1", "vllm", **SMALL
    ).priced()[0]
    ttft = {}
    for slots in (8, 2):
        service, rules = with_adapters(base, names, lora, slots=slots, bandwidth=1e9)
        room = service.room
        replicas = [Replica(0, service.table, [KvPool(room.blocks, room.page, room.fixed)], service.rules)]
        pool = Pool(replicas=replicas, router=Router(replicas), adapters=rules)
        done = []
        shares = "/".join(f"{name}:1" for name in names)
        load = load_of("poisson:rate=3,input=300,output=30,count=200,seed=1", models=shares)
        Fleet(pools=(pool,), load=load, record=done.append, refuse=done.append).run()
        assert len(done) == 200
        ttft[slots] = sum(r.ttft for r in done) / 200
    assert ttft[8] < ttft[2]
