"""Fleets: routers, pools that hand requests on, links that queue, adapters, saturation and refusals."""

from itertools import pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.base.errors import StrataError
from strata.serving.simulator.arrivals import Lengths
from strata.serving.simulator.fleet import Fleet
from strata.serving.simulator.kv_pool import KvPool
from strata.serving.simulator.load import ClosedLoad, LabelledLoad, OpenLoad, RecordedLoad
from strata.serving.simulator.load_text import load_of
from strata.serving.simulator.pool import ROUTERS, AdapterRules, KvLink, Pool, Router
from strata.serving.simulator.replica import Replica
from strata.serving.simulator.scheduling import Scheduling


class Steps:
    """Times of steps by a plain rule, in place of a priced table."""

    stages = lanes = 1
    shares = False
    idle = 0.0

    def __init__(self, speed=1.0):
        self.speed = speed

    def decode_steps(self, sequences, context, steps, growth=1.0):
        return steps * (0.01 + 1e-4 * sequences) / self.speed, 0.0

    def step(self, sequences, context, tokens, attended, alone=False):
        return (0.01 + 1e-4 * sequences + 1e-4 * tokens) / self.speed, 0.0


def replica(role="both", speed=1.0, blocks=4096, ranks=1, **rules):
    told = {"tokens": 2048, "sequences": 64, "role": role, **rules}
    return Replica(0, Steps(speed), [KvPool(blocks, 16) for _ in range(ranks)], Scheduling(**told))


def pool(replicas, policy="least-loaded", **told):
    return Pool(replicas=replicas, router=Router(replicas, policy), role=replicas[0].rules.role, **told)


def run(load, *, pools=(), replicas=(), router=None):
    done, refused = [], []
    if not pools:
        alone = Pool(replicas=replicas, router=router or Router(replicas), role=replicas[0].rules.role)
        pools = (alone,)
    fleet = Fleet(pools=pools, load=load, record=done.append, refuse=refused.append)
    fleet.run()
    return fleet, done, refused


def apart(reads=1, writes=1, link=None, **told):
    then = pool([replica("decode") for _ in range(writes)])
    given_ = {} if link is None else {"link": link}
    return pool([replica("prefill") for _ in range(reads)], then=then, **given_, **told), then


LOAD = "poisson:rate=20,input=lognormal:400:0.8,output=exponential:40,count=400,seed=3"


def check_conserved(fleet, done, refused, count):
    assert len(done) + len(refused) == count
    assert len({r.key for r in done}) == len(done)
    for r in done:
        assert r.arrival <= r.scheduled <= r.first <= r.last
    for each in fleet.replicas:
        assert each.outstanding == 0
        for rank in each.ranks:
            assert rank.pool.used == 0


@pytest.mark.parametrize("policy", ROUTERS)
@pytest.mark.parametrize("admission", ["at-once", "when-room"])
def test_no_request_is_lost_or_served_twice_across_pools(policy, admission):
    first, then = apart(2, 3, KvLink([0, 1000], [0.001, 0.05], lanes=1), admission=admission)
    first.router, then.router = Router(first.replicas, policy), Router(then.replicas, policy)
    load = load_of(LOAD)
    fleet, done, refused = run(load, pools=(first, then))
    check_conserved(fleet, done, refused, 400)
    assert not refused
    wanted = {r.key: (r.input, r.output) for r in load.arrivals()}
    assert {r.key: (r.input, r.output) for r in done} == wanted


@given(st.integers(1, 3000), st.integers(1, 200), st.floats(0.0, 2.0))
@settings(max_examples=40, deadline=None)
def test_one_request_apart_takes_what_it_takes_together_and_the_link(read, wrote, took):
    load = RecordedLoad(rows=[(0.0, read, wrote)])
    _, (together,), _ = run(load, replicas=[replica()])
    first, then = apart(link=KvLink([0, read], [took, took]))
    _, (one,), _ = run(load, pools=(first, then))
    sent = took if wrote > 1 else 0.0
    assert one.latency == pytest.approx(together.latency + sent)
    assert one.ttft == pytest.approx(together.ttft + sent)
    assert one.tpot == pytest.approx(together.tpot)


def test_links_queue_in_order():
    load = RecordedLoad(rows=[(0.0, 100, 2), (0.0, 100, 2), (0.0, 100, 2)])
    firsts = []
    for lanes in (1, 3, 0):
        first, then = apart(link=KvLink([0, 100], [0.0, 5.0], lanes=lanes))
        _, done, _ = run(load, pools=(first, then))
        firsts.append(sorted(round(r.first, 1) for r in done))
    # a first token comes once a step lets its request in: the last cache finds the step of the others begun
    assert firsts == [[5.0, 10.0, 15.0], [5.0, 5.0, 5.1], [5.0, 5.0, 5.1]]


def test_a_cache_waits_for_room_where_it_is_asked_to():
    then = pool([replica("decode", blocks=8)])
    first = pool([replica("prefill")], then=then, admission="when-room", link=KvLink([0, 100], [0.01, 0.01]))
    load = RecordedLoad(rows=[(0.0, 90, 20)] * 4)
    fleet, done, refused = run(load, pools=(first, then))
    check_conserved(fleet, done, refused, 4)
    spans = sorted((r.first, r.last) for r in done)
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert sum(rank.preemptions for r in then.replicas for rank in r.ranks) == 0


@pytest.mark.parametrize("admission", ["at-once", "when-room"])
def test_blocks_stay_until_the_cache_has_been_sent(admission):
    """A reader with room for one prompt reads the next when the first has gone."""
    reader = replica("prefill", blocks=7)
    then = pool([replica("decode")])
    first = pool([reader], then=then, link=KvLink([0, 100], [3.0, 3.0]), admission=admission)
    fleet, done, refused = run(RecordedLoad(rows=[(0.0, 100, 5)] * 3), pools=(first, then))
    check_conserved(fleet, done, refused, 3)
    began = sorted(r.scheduled for r in done)
    assert all(b - a >= 3.0 for a, b in pairwise(began))
    answer = RecordedLoad(rows=[(0.0, 100, 1)] * 3)  # whose first token is the last: nothing is sent
    _, done, _ = run(answer, pools=(pool([replica("prefill", blocks=7)], then=pool([replica("decode")])),))
    assert len(done) == 3 and max(r.last for r in done) < 0.5


def test_what_the_other_side_has_is_not_sent_again():
    took = {}
    for system in (0, 800):
        first, then = apart(link=KvLink([0, 1000], [0.0, 1.0], lanes=1))
        load = load_of(f"sessions:clients=1,turns=4,input=200,output=20,count=1,system={system}")
        _, done, _ = run(load, pools=(first, then))
        took[system] = sum(r.first - r.scheduled for r in done)
        assert len(done) == 4
    assert took[0] < 1.1 * (4 * 220) / 1000  # each turn sends about what is new
    assert took[800] > took[0]


@pytest.mark.parametrize("policy", ROUTERS)
def test_routers_are_fair_to_replicas_that_are_alike(policy):
    replicas = [replica() for _ in range(4)]
    counts = [0] * 4
    router = Router(replicas, policy)
    choose = router.choose

    def counted(request):
        chosen = choose(request)
        counts[replicas.index(chosen)] += 1
        return chosen

    router.choose = counted
    _, done, _ = run(load_of(LOAD), replicas=replicas, router=router)
    assert len(done) == 400
    assert max(counts) - min(counts) <= (1 if policy == "round-robin" else 60)


def test_permuted_replicas_change_nothing_for_round_robin():
    found = set()
    for order in permutations(range(3)):
        fresh = [replica() for _ in range(3)]
        replicas = [fresh[i] for i in order]
        _, done, _ = run(load_of(LOAD), replicas=replicas, router=Router(replicas, "round-robin"))
        total = sum(r.output for r in done), round(sum(r.latency for r in done), 9)
        found.add((len(done), *total))
    assert len(found) == 1


def test_least_loaded_beats_round_robin_on_replicas_that_are_not_alike():
    means = {}
    for name, policy, weights in (
        ("turn", "round-robin", ()),
        ("weighed turn", "round-robin", (4.0, 1.0)),
        ("least", "least-loaded", ()),
        ("two", "power-of-two", ()),
    ):
        replicas = [replica(speed=2.0), replica(speed=0.5)]
        router = Router(replicas, policy, weights=weights)
        load = load_of("poisson:rate=20,input=400,output=40,count=600,seed=1")
        _, done, _ = run(load, replicas=replicas, router=router)
        means[name] = sum(r.latency for r in done) / len(done)
    assert means["weighed turn"] < means["turn"]
    assert means["least"] < means["turn"] and means["two"] < means["turn"]


def test_weights_share_turns_out():
    replicas = [replica(), replica()]
    router = Router(replicas, "round-robin", weights=(3.0, 1.0))
    chosen = [replicas.index(router.choose(None)) for _ in range(400)]
    assert chosen.count(0) == 300


def test_prefix_aware_routing_finds_more_than_turns_do():
    hits = {}
    for policy in ("round-robin", "prefix-aware"):
        replicas = [replica(blocks=8192) for _ in range(4)]
        load = load_of("sessions:rate=2,turns=6,input=200,output=30,count=80,system=100,think=2,seed=4")
        fleet, done, refused = run(load, replicas=replicas, router=Router(replicas, policy))
        check_conserved(fleet, done, refused, 480)
        hits[policy] = sum(r.cached for r in done) / sum(r.input for r in done)
    assert hits["prefix-aware"] > 1.5 * hits["round-robin"]
    assert hits["prefix-aware"] > 0.6


def test_the_same_fleet_twice_is_the_same():
    def once():
        replicas = [replica() for _ in range(3)]
        _, done, _ = run(load_of(LOAD), replicas=replicas, router=Router(replicas, "power-of-two", seed=5))
        return [(r.key, r.first, r.last) for r in done]

    assert once() == once()


def test_pools_of_other_models_get_their_own():
    pools = (
        pool([replica()], models=frozenset(["a"])),
        pool([replica(), replica()], models=frozenset(["b"])),
    )
    load = load_of(LOAD, models="a:2/b:1/c:1")
    fleet, done, refused = run(load, pools=pools)
    assert {r.model for r in refused} == {"c"} and fleet.refusals == {
        "no pool serves its model": len(refused)
    }
    assert {r.model for r in done} == {"a", "b"}
    assert fleet.replicas[0].total_steps > 0
    check_conserved(fleet, done, refused, 400)


def test_pools_of_one_model_share_it():
    pools = pool([replica()]), pool([replica()])
    fleet, done, refused = run(load_of(LOAD), pools=pools)
    check_conserved(fleet, done, refused, 400)
    busy = [r.busy for r in fleet.replicas]
    assert min(busy) > 0.5 * max(busy)


def adapted(slots, fetch, names="abcd", count=200):
    rules = AdapterRules(names=frozenset(names), slots=slots, fetch_time=fetch)
    one = pool([replica()], adapters=rules, models=frozenset(["base"]))
    load = LabelledLoad(
        load=OpenLoad(rate=5.0, input=Lengths(mean=100), output=Lengths(mean=10), count=count, seed=1),
        models=tuple((n, 1.0) for n in names),
    )
    fleet, done, refused = run(load, pools=(one,))
    check_conserved(fleet, done, refused, count)
    return sum(r.ttft for r in done) / count


def test_adapters_are_fetched_when_they_are_not_in_memory():
    all_in, two_in, one_in = adapted(4, 0.5), adapted(2, 0.5), adapted(1, 0.5)
    assert all_in < two_in < one_in
    assert adapted(1, 0.0) < one_in


def test_an_adapter_in_use_is_not_thrown_out():
    rules = AdapterRules(names=frozenset("ab"), slots=1, fetch_time=0.1)
    one = pool([replica()], adapters=rules)
    rows = [(0.0, "a"), (0.01, "b"), (0.02, "a")]
    load = RecordedLoad(rows=[(t, 100, 50) for t, _ in rows])

    class Named(RecordedLoad):
        def arrivals(self):
            for r, (_, name) in zip(super().arrivals(), rows, strict=True):
                r.model = name
                yield r

    _, done, _ = run(Named(rows=load.rows), pools=(one,))
    by_key = {r.key: r for r in done}
    assert by_key[1].scheduled >= by_key[0].last + 0.1
    assert by_key[2].scheduled >= by_key[1].last  # first come first served: it does not overtake


def test_ranks_take_requests_by_least_load():
    load = load_of("poisson:rate=100,input=200,output=50,count=300,seed=2")
    each = replica(ranks=4)
    fleet, done, refused = run(load, replicas=[each])
    check_conserved(fleet, done, refused, 300)
    reached = [rank.count for rank in each.ranks]
    assert min(reached) > 0.8 * max(reached)


def test_ranks_take_requests_in_turn_where_told():
    each = replica(ranks=3, rank_router="round-robin")
    for row in RecordedLoad(rows=[(0.0, 100, 5)] * 30).arrivals():
        each.enqueue(row, 0.0)
    for _ in range(10):
        each.ranks[0].waiting.pop()
    for row in RecordedLoad(rows=[(0.0, 100, 5)] * 3).arrivals():
        each.enqueue(row, 0.0)
    assert [len(rank.waiting) for rank in each.ranks] == [1, 11, 11]  # not those with the fewest


def test_a_prefix_is_found_on_the_rank_that_has_it():
    hits = {}
    for policy in ("round-robin", "least-loaded", "prefix-aware"):
        each = replica(ranks=4, rank_router=policy)
        load = load_of("sessions:rate=4,turns=6,input=200,output=30,count=60,think=2,seed=4")
        fleet, done, refused = run(load, replicas=[each])
        check_conserved(fleet, done, refused, 360)
        hits[policy] = sum(r.cached for r in done) / sum(r.input for r in done)
    assert hits["prefix-aware"] > 1.5 * max(hits["round-robin"], hits["least-loaded"])


# -- what can not be served


def test_requests_too_long_are_refused_with_the_reason():
    rows = [(0.0, 100, 10), (0.1, 5000, 10), (0.2, 100, 9000), (0.3, 900, 200)]
    one = pool([replica(blocks=100)], context=8000)
    fleet, done, refused = run(RecordedLoad(rows=rows), pools=(one,))
    assert [r.key for r in done] == [0, 3]
    assert fleet.refusals == {"longer than the cache": 1, "longer than the context": 1}
    assert {r.state for r in refused} == {"refused"}


def test_a_decode_pool_that_is_too_small_refuses_before_prompts_are_read():
    then = pool([replica("decode", blocks=4)])
    first = pool([replica("prefill")], then=then)
    fleet, done, refused = run(RecordedLoad(rows=[(0.0, 500, 10)]), pools=(first, then))
    assert not done and len(refused) == 1 and fleet.replicas[0].busy == 0.0


def test_the_replica_that_fits_takes_what_the_other_can_not():
    replicas = [replica(blocks=20), replica(blocks=400)]
    load = RecordedLoad(rows=[(0.1 * i, 1000, 10) for i in range(10)])
    _, done, refused = run(load, replicas=replicas, router=Router(replicas, "round-robin"))
    assert len(done) == 10 and not refused


def test_a_full_queue_refuses():
    one = pool([replica(sequences=1)], most_waiting=2)
    fleet, done, refused = run(RecordedLoad(rows=[(0.0, 100, 100)] * 6), pools=(one,))
    assert fleet.refusals["queue full"] == len(refused) == 3
    assert len(done) == 3  # one at once, two that wait


def test_clients_go_on_after_a_refusal():
    load = ClosedLoad(
        clients=2, input=Lengths(shape="empirical", values=(100, 100000)), output=Lengths(mean=5), count=40
    )
    fleet, done, refused = run(load, replicas=[replica()])
    assert refused and len(done) + len(refused) == 40
    assert fleet.saturated_from is None


def rate_served():
    """What one replica serves at most of 400 + 40 tokens, about."""
    load = load_of("closed:clients=200,input=400,output=40,count=2000")
    fleet, done, _ = run(load, replicas=[replica()])
    return len(done) / fleet.clock


def test_a_rate_that_no_fleet_serves_is_saturated_from_the_beginning_on():
    most = rate_served()
    for share in (1.3, 2.0):
        load = load_of(f"poisson:rate={share * most},input=400,output=40,count=6000,seed=2")
        fleet, done, _ = run(load, replicas=[replica()])
        assert len(done) == 6000
        assert fleet.saturated_from is not None
        assert fleet.saturated_from < 0.2 * 6000 / (share * most)
        assert fleet.overloads[-1].growth == pytest.approx((share - 1.0) * most, rel=0.5)
        assert fleet.overloads[-1].end == float("inf")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_a_rate_that_is_served_is_not_saturated(share, seed):
    load = load_of(f"poisson:rate={share * rate_served()},input=400,output=40,count=4000,seed={seed}")
    fleet, _, _ = run(load, replicas=[replica()])
    assert fleet.saturated_from is None and not fleet.overloads


def test_saturation_is_told_from_when_the_rate_rises_and_until_it_falls():
    most = rate_served()
    low, high = 0.4 * most, 2.5 * most
    load = load_of(f"daily:rates=0:{low}/100:{high}/200:{low},period=1000,duration=900,input=400,output=40")
    fleet, _, _ = run(load, replicas=[replica()])
    (told,) = fleet.overloads
    assert 90 < told.start < 125 and 300 < told.end < 600
    assert fleet.saturated_from is None
    ending = load_of(f"daily:rates=0:{low}/100:{high}/200:{low},period=1000,duration=180,input=400,output=40")
    fleet, _, _ = run(ending, replicas=[replica()])
    assert 90 < fleet.saturated_from < 125


def test_requests_present_are_those_that_came_and_are_not_done():
    load = load_of(f"poisson:rate={rate_served()},input=400,output=40,count=1000")
    left = []
    one = (pool([replica()]),)
    fleet = Fleet(pools=one, load=load, refuse=left.append, record=lambda r: left.append(fleet.present))
    fleet.run()
    assert fleet.present == left[-1] == 0 and max(left) > 5 and len(left) == 1000


def test_a_batch_is_no_rate():
    fleet, done, _ = run(RecordedLoad(rows=[(0.0, 400, 40)] * 1000), replicas=[replica()])
    assert fleet.saturated_from is None and len(done) == 1000
    both = load_of(
        "closed:clients=300,input=400,output=40,count=600 + poisson:rate=0.5,input=9,output=9,count=100"
    )
    fleet, done, _ = run(both, replicas=[replica()])
    assert not fleet.overloads and len(done) == 700


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: replica(rank_router="nearest"), "no router of ranks called 'nearest'"),
        (lambda: Router([replica()], "nearest"), "no router called 'nearest'"),
        (lambda: Router([replica()], weights=(1.0, 2.0)), "each replica has a weight"),
        (lambda: Router([replica()], weights=(0.0,)), "weights of replicas are positive"),
        (lambda: Router([]), "at least one replica"),
        (lambda: pool([replica("prefill")]), "hands on what it reads"),
        (lambda: pool([replica("prefill")], then=pool([replica()])), "role decode"),
        (lambda: Pool(replicas=[replica("decode")], router=Router([replica()])), "have its role"),
        (lambda: apart(admission="never"), "no admission called 'never'"),
        (lambda: KvLink([0], [1]), "two lengths at least"),
        (lambda: KvLink([0, 1], [1, -1]), "no negative time"),
        (lambda: KvLink([0, 1], [1, 1], lanes=-1), "links are counted"),
        (lambda: AdapterRules(names=frozenset("a"), slots=0, fetch_time=1.0), "at least one adapter"),
        (lambda: AdapterRules(names=frozenset("a"), slots=1, fetch_time=-1.0), "no negative time"),
    ],
)
def test_bad_fleets_are_told_in_one_line(make, said):
    with pytest.raises(StrataError) as told:
        make()
    assert said in str(told.value) and "\n" not in str(told.value)
