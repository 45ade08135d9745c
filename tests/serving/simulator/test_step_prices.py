"""Prices of steps as `evaluate` has them: what lines leave, one request alone, ranks that are not alike."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import strata as st
from strata.hardware.system import as_system
from strata.serving.deployment import Deployment, simulate
from strata.serving.simulator.arrivals import Lengths
from strata.serving.simulator.kv_pool import KvPool
from strata.serving.simulator.load import ClosedLoad, RecordedLoad
from strata.serving.simulator.replica import Replica
from strata.serving.simulator.scheduling import Request, Scheduling
from strata.serving.simulator.step_pricer import StepPricer, kv_room
from strata.serving.simulator.step_table import StepTable, line_sums
from strata.serving.speculation import Drafting
from strata.software.engine import as_engine, request_time

DENSE = ("1xh100", "llama-3-8b", "", "vllm")
SHARED = ("8xh200", "deepseek-v3", "dp=8,ep=8", "sglang")
PIPED = ("8xh200", "llama-3-70b", "tp=2,pp=4", "trtllm")
WINDOWS = ("8xh200", "gpt-oss-120b", "tp=2,dp=4", "vllm")
EXPERTS = ("8xh200", "qwen3-235b-a22b", "tp=2,dp=4,ep=8", "vllm")
GROUPS = ("8xh200", "gpt-oss-120b", "tp=8,ep=8", "vllm")  # one rank, experts over its devices
WAITS = ("8xh200", "deepseek-v3", "dp=8,ep=8", "trtllm")


def pricer(case, **told):
    system, model, plan, engine = case
    return StepPricer(
        system=as_system(system),
        model=st.model(model),
        plan=st.plan(plan),
        engine=as_engine(engine),
        routed={},
        **told,
    )


@pytest.fixture(scope="module")
def tables():
    made = {}

    def table(case):
        if case not in made:
            made[case] = StepTable(pricer(case), sequences=256, context=8192, tokens=8192)
        return made[case]

    return table


@pytest.mark.parametrize("case", [DENSE, SHARED, PIPED, WINDOWS])
def test_what_lines_leave(tables, case):
    """Of steps drawn anywhere between the nodes; sums of four variables stood at 1 to 5 %, 60 % at most."""
    found = tables(case).errors(300)
    assert found["decode_mean"] < 0.002 and found["decode_largest"] < 0.03
    assert found["mixed_mean"] < 0.008 and found["mixed_largest"] < 0.1


def test_sums_of_steps_are_steps_added_up(tables):
    table = tables(DENSE)
    for n, context, steps in ((1, 10.0, 300), (7, 900.0, 2000), (64, 64 * 500.0, 40), (3, 3.0, 12000)):
        alone = [table.decode_steps(n, context + n * j, 1) for j in range(steps)]
        together = table.decode_steps(n, context, steps)
        assert together == pytest.approx(np.sum(alone, axis=0), rel=1e-9)
    nodes, line = [0.0, 1.0, 4.0, 9.0], [0.0, 3.0, 1.0, 7.0]
    points = [np.interp(0.3 + 0.7 * j, nodes, line) for j in range(12)]
    assert line_sums(nodes, (line,), 0.3, 0.7, 12)[0] == pytest.approx(sum(points))


ALONE = (DENSE, SHARED, PIPED, EXPERTS, GROUPS, WAITS)


@pytest.mark.parametrize("case", ALONE)
def test_one_request_alone_is_the_plain_prediction(case):
    """First token after the request's own time and a prefill, the others after decode steps, as `evaluate`
    has them of a batch of one: experts see its tokens alone, exchanges wait for the one rank that has them.
    """
    system, model, plan, engine = case
    input, output = 1024, 40
    found = simulate(system, model, RecordedLoad(rows=[(1.0, input, output)]), plan, engine, keep=True)
    one, steps = found.records[0], np.arange(input, input + output - 1.0)
    read, made = (
        st.evaluate(system, model, work, plan, engine).metrics.step_time
        for work in (st.prefill(1.0, float(input), skew=1.0), st.decode(1.0, steps, skew=1.0))
    )
    assert one.ttft == pytest.approx(
        float(np.asarray(request_time(found.engine, float(input)))) + float(read), rel=4e-3
    )
    assert one.tpot == pytest.approx(np.mean(made), rel=6e-3)


@pytest.mark.parametrize("case", [SHARED, EXPERTS, WAITS])
@pytest.mark.parametrize("count", [2, 8, 12, 20, 64])
def test_a_steady_batch_is_the_plain_prediction(tables, case, count):
    """Whether or not it divides by the ranks: the fullest has one more, experts see those there are."""
    system, model, plan, engine = case
    table = tables(case)
    replica = Replica(
        0, table, [KvPool(10**5, 64) for _ in range(table.lanes)], Scheduling(tokens=8192, sequences=256)
    )
    for i, rank in enumerate(replica.ranks):
        rank.generating = count // table.lanes + (i < count % table.lanes)
        rank.context = rank.generating * 1000.0
    plain = st.evaluate(system, model, st.decode(float(count), 1000.0), plan, engine).metrics.step_time
    assert replica._decode(1)[0] == pytest.approx(float(plain), rel=0.015)


def test_exchanges_wait_for_the_fullest_rank(tables):
    """Prompts of 2048 tokens on some of eight ranks, as `evaluate` has them of so many sequences."""
    system, model, plan, engine = SHARED
    for some in (1, 2, 5, 8):
        plain = st.evaluate(system, model, st.prefill(float(some), 2048.0), plan, engine).metrics.step_time
        ours = uneven(tables(SHARED), [2048] * some + [0] * (8 - some))[0]
        assert ours == pytest.approx(float(plain), rel=0.01)


@pytest.mark.parametrize(("case", "steps"), [(WAITS, 60), (SHARED, 0), (PIPED, 0)])
def test_prompts_wait_for_those_of_other_ranks_as_the_engine_says(case, steps):
    """`Engine.balance`, where attention ranks share experts; not where lanes are those of a pipeline."""
    system, model, plan, engine = case
    assert Deployment(system, model, plan, engine).priced()[0].rules.wait_steps == steps


def uneven(table, read, generating=0, mixed=True):
    """A step of eight ranks of which some read so many tokens, each with some sequences of 1000 tokens."""
    rules = Scheduling(tokens=8192, sequences=256, mixed=mixed)
    replica = Replica(0, table, [KvPool(10**5, 64) for _ in range(8)], rules)
    for rank in replica.ranks:
        rank.generating, rank.context = generating, generating * 1000.0
    return replica._mixed([(t, t * t / 2) for t in read])


def test_ranks_that_share_experts(tables):
    """A prompt on one of eight ranks: longer than with an eighth on each, shorter than with one on each; and
    all alike is what one table says.
    """
    table = tables(SHARED)
    one, spread, every = (uneven(table, v, 16)[0] for v in ([2048] + [0] * 7, [256] * 8, [2048] * 8))
    assert spread < one < every
    # of 289 ms for all, experts and exchanges are 168; a rank's own part stays
    assert 0.45 < one / every < 0.75
    assert every == pytest.approx(table.step(16, 16e3, 2048, 2048 * 1024.0)[0])
    more = [uneven(table, [2048] * k + [0] * (8 - k), 16)[0] for k in range(9)]
    assert all(a <= b * (1.0 + 1e-9) for a, b in itertools.pairwise(more))


def test_ranks_that_read_beside_ranks_that_generate(tables):
    """Where prompts are read first, ranks without one generate in the same step."""
    rules = Scheduling(tokens=8192, sequences=256, mixed=False)
    replica = Replica(0, tables(SHARED), [KvPool(10**5, 64) for _ in range(8)], rules)
    done = []
    for i in range(8):
        replica.ranks[i].enqueue(Request(i, 0.0, 64, 50))
    replica.start(0.0)
    replica.end(done.append)
    replica.ranks[0].enqueue(Request(9, 0.0, 64, 50))
    replica.start(replica.until)
    assert replica.steps == 1
    replica.end(done.append)
    assert [r.count for r in replica.ranks] == [0] + [1] * 7


def test_lanes_of_a_pipeline_wait_for_the_fullest(tables):
    table = tables(PIPED)
    rules = Scheduling(tokens=8192, sequences=256)
    replica = Replica(0, table, [KvPool(10**5, 64) for _ in range(4)], rules)
    for rank, n in zip(replica.ranks, (3, 40, 0, 7), strict=True):
        rank.generating, rank.context = n, n * 700.0
    time, energy = replica._decode(5)
    assert time == pytest.approx(table.decode_steps(40, 28e3, 5)[0])
    assert 0.0 < energy < table.decode_steps(40, 28e3, 5)[1]


@pytest.mark.parametrize("case", [SHARED, PIPED])
def test_first_tokens_under_load_of_priced_engines(case):
    """The same requests, arriving faster: first tokens never come sooner on average."""
    system, model, plan, engine = case
    draw = np.random.default_rng(5)
    times = np.cumsum(draw.exponential(1.0, 120))
    sizes = draw.integers(100, 2000, 120).tolist(), draw.integers(10, 200, 120).tolist()
    found = []
    for pace in (0.02, 0.5, 2.0, 8.0, 64.0):
        rows = list(zip((times / pace).tolist(), *sizes, strict=True))
        found.append(simulate(system, model, RecordedLoad(rows=rows), plan, engine).times["ttft"].mean)
    assert all(a <= b * 1.01 for a, b in itertools.pairwise(found)), found


LINEAR = ("8xh200", "qwen3-next-80b-a3b", "tp=8", "vllm")
MIXED_WINDOWS = ("1xh200", "gemma-3-27b", "", "vllm")


@pytest.mark.parametrize("case", [DENSE, SHARED, PIPED, WINDOWS, LINEAR, MIXED_WINDOWS])
def test_blocks_are_what_devices_hold(case):
    """So many sequences of the usual length as blocks allow fit, by `evaluate`, and a few per cent more do
    not; of other lengths, no more than fit.
    """
    asked = pricer(case)
    room = kv_room(asked, context=4096)
    windows = case in (LINEAR, MIXED_WINDOWS, WINDOWS)
    assert (room.fixed * room.page >= 64) == windows
    tokens, limit = (
        int(np.asarray(v)) for v in (asked.engine.max_num_batched_tokens, asked.engine.max_num_seqs)
    )

    def fits(sequences, length):
        work = asked.reading(sequences, length, float(tokens), tokens / 2)
        metrics = st.evaluate(asked.system, asked.model, work, asked.plan, asked.engine).metrics
        return float(metrics.memory_used) <= float(metrics.memory_limit)

    for length in (512, 4096, 8192):
        most = room.blocks // (-(-length // room.page) + room.fixed)
        assert fits(np.floor(0.99 * min(most, limit)), float(length))
        assert length != 4096 or not fits(np.ceil(1.03 * most) + 1.0, 4096.0)


def test_a_state_that_does_not_grow():
    """Of a model without attention, a sequence holds one block however long it is."""
    room = kv_room(pricer(("1xh100", "mamba-codestral-7b", "", "vllm")), context=2048)
    assert room.fixed == 0 and KvPool(room.blocks, room.page).blocks_of(10**6) == 1 and room.blocks > 100


def test_guesses_are_priced_with_the_draft_and_what_is_verified():
    """A round is the draft's time and a step that verifies; steps that read verify too."""
    plain = StepTable(pricer(DENSE), sequences=64, context=4096, tokens=4096)

    def draft(batch, context):
        return 1e-3 + 1e-6 * np.asarray(batch) + 0.0 * np.asarray(context)

    asked = pricer(DENSE, draft_tokens=3.0, guessing=draft)
    guessing = StepTable(asked, sequences=64, context=4096, tokens=4096)
    verify = float(asked.priced(asked.generating(20.0, 1000.0))[0])
    time = guessing.decode_steps(20, 20 * 1000.0, 1)[0]
    assert time == pytest.approx(1e-3 + 20e-6 + verify, rel=2e-3)
    more = guessing.step(20, 20e3, 512, 512 * 256.0)[0] - plain.step(20, 20e3, 512, 512 * 256.0)[0]
    assert more >= 1e-3 + 20e-6 - 1e-9  # equal where launching takes longer than what is verified
    assert guessing.errors(200)["mixed_mean"] < 0.01


def test_guesses_beside_prompts_are_sequences_with_several_tokens():
    """Not tokens of a prompt: a step that hardly reads is one that verifies."""
    case = ("1xh200", "llama-3-8b", "", replace(as_engine("vllm"), launches=0.0))
    asked = pricer(case, draft_tokens=3.0)
    n, context = np.array([4.0, 31.0, 125.0]), 3000.0  # whose tokens end no tile
    verify = asked.priced(asked.generating(n, context))[0]
    reads = asked.priced(asked.reading(n, context, 1.0, 1.0))[0]
    plain = pricer(case)
    other = (
        plain.priced(plain.reading(n, context, 1.0, 1.0))[0] - plain.priced(plain.generating(n, context))[0]
    )
    assert reads - verify == pytest.approx(other, rel=0.15, abs=1e-4)
    work = asked.reading(4.0, context, 100.0, 50.0)
    assert float(work.generated) == 4.0 and float(work.batch * work.sequence) == pytest.approx(
        4 * 4.0 + 100.0
    )


def test_the_cache_of_a_draft_grows_too():
    """As many sequences as blocks allow fit beside a draft that has as many of its own; more do not."""
    target, small = st.model("llama-3-70b"), st.model("llama-3-8b")
    case = ("8xh200", "llama-3-70b", "tp=8", "vllm")
    drafting = Drafting(small, acceptance=0.7, window=3.0, plan=st.plan("tp=8"))
    room = Deployment(*case, drafting=drafting).priced()[0].room
    engine = as_engine("vllm")

    def used(sequences):
        work = pricer(case).reading(
            sequences, 2048.0, float(engine.max_num_batched_tokens), float(engine.max_num_batched_tokens) / 2
        )
        whole = st.evaluate("8xh200", target, work, "tp=8", engine).metrics
        draft = st.evaluate("8xh200", small, st.decode(sequences, 2048.0), "tp=8", engine).metrics
        return float(whole.memory_used + draft.memory_used) - float(engine.reserve), float(whole.memory_limit)

    most = room.blocks // (2048 // room.page)
    assert used(0.99 * most)[0] <= used(1.0)[1] < used(1.02 * most)[0]


def test_energy_of_an_idle_and_a_busy_service():
    """A service that waits draws its idle power; one that steps, more."""
    load = RecordedLoad(rows=[(0.0, 256, 32), (100.0, 256, 32)])
    found = simulate(*DENSE[:2], load, engine="vllm")
    one = found.replicas[0]
    assert one.total_energy(found.end) == pytest.approx(one.energy + one.table.idle * (found.end - one.busy))
    assert one.energy / one.busy > one.table.idle > 0.0


def test_closed_loop_agrees_with_the_closed_form():
    """256 clients on attention ranks that share experts: a step that one rank reads in is not a step that all
    read in.
    """
    load = ClosedLoad(
        clients=256, input=Lengths(mean=1024), output=Lengths(mean=256, shape="uniform"), count=768
    )
    found = simulate("8xh200", "deepseek-v3", load, "dp=8,ep=8", "sglang")
    table = found.replicas[0].table
    decode = table.decode_steps(32, 32 * 1150.0, 1)[0]
    assert decode < found.times["tpot"].mean < 2.5 * decode
