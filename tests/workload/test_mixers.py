"""Layers with a state in place of a cache: parameters, bytes of states and caches, operations, any order of
layers; norms and residuals of other families.
"""

from dataclasses import replace

import numpy as np
import pytest
from cases import model, roomy
from hybrids import HYBRIDS, PUBLISHED, falcon_h1, jamba_mini, kimi_linear, mamba2, minimax_text, qwen3_next
from hypothesis import given
from hypothesis import strategies as hy

import strata as st
from strata.workload.graph_walks import check_graph
from strata.workload.mixer import Mixer
from strata.workload.model import Model, Pattern, pattern_of

GiB = 2.0**30
every = pytest.mark.parametrize("name", HYBRIDS)


def kept(graph, page=1.0):
    """Bytes of cache and of states."""
    cache = sum(float(b.count * op.cache_bytes(page)) for b, op in graph.ops())
    state = sum(float(b.count * (op.state_bytes() or 0.0)) for b, op in graph.ops())
    return cache, state


@pytest.mark.parametrize("make", PUBLISHED, ids=lambda make: make.__name__)
def test_parameters_are_those_published(make):
    made, (whole, active) = make(), PUBLISHED[make]
    graph = made.trace(st.decode(1.0, 1.0))
    count = float(graph.parameters())
    routed = sum(float(b.count * op.weight_elements()) for b, op in graph.ops() if op.category == "experts")
    used = count - routed * (1.0 - made.top_k / made.experts) if made.has_experts else count
    assert count == pytest.approx(whole, rel=0.005)
    assert used == pytest.approx(active, rel=0.015)  # published to two digits


def test_weights_of_mamba2_are_counted_to_the_last():
    """The weights of state-spaces/mamba2-2.7b by their shapes: in, convolution, decays, norms, out."""
    inner, channels = 5120, 5120 + 2 * 128
    layer = 2560 * (2 * inner + 2 * 128 + 80) + 5 * channels + 3 * 80 + inner + inner * 2560 + 2560
    assert float(mamba2().trace(st.decode(1.0, 1.0)).parameters()) == 64 * layer + 50288 * 2560 + 2560


def test_a_cache_of_256k_tokens_is_as_the_jamba_paper_says():
    """Lieber et al., arXiv 2403.19887, table 1: keys and values of 256K tokens take 4 GB in Jamba and 32 GB in
    Mixtral.
    """
    work = st.decode(1.0, 262144.0)
    cache, state = kept(jamba_mini().trace(work))
    assert cache == 4 * GiB and state < 0.02 * GiB
    mixtral = replace(model("mixtral-8x7b"), pattern=Pattern((), 0.0, (("full", "moe"),), 32.0))
    assert kept(mixtral.trace(work)) == (32 * GiB, 0.0)


def test_kimi_linear_keeps_a_quarter_of_the_cache():
    """Kimi Linear report (arXiv 2510.26692): up to 75 % less; 7 of 27 layers have a cache."""
    made, work = kimi_linear(), st.decode(1.0, 1048576.0)
    whole = replace(made, pattern=replace(made.pattern, period=(("full", "moe"),)))
    ours, state = kept(made.trace(work))
    theirs, _ = kept(whole.trace(work))
    assert ours / theirs == pytest.approx(7 / 27)
    assert (ours + state) / theirs < 0.27


def test_states_are_as_large_as_servers_say():
    """A layer's state on one of 8 ranks under Qwen3.5-35B, whose heads are those of Qwen3-Next: 262144 bytes
    (vllm-ascend issue 7393). Blocks of 672 tokens under Nemotron-Nano-9B-v2, whose keys and values just fill a
    16-bit state with its convolution, in steps of 16 tokens (vllm issue 24280).
    """
    mixer = qwen3_next().mixer
    assert mixer.heads * mixer.key_dim * mixer.value_dim * 4.0 / 8.0 == 262144.0
    nano = Mixer(kind="mamba2", heads=128.0, value_dim=80.0, key_dim=128.0, key_heads=8.0, state="bf16")
    token = 2 * 8 * 128 * 2.0  # keys and values of 8 heads of 128
    assert np.ceil(nano.state_bytes() / token / 16) * 16 == 672


@every
def test_states_do_not_grow_with_the_context(name):
    made = HYBRIDS[name]()
    (short, state), (long, same) = (kept(made.trace(st.decode(8.0, c))) for c in (1024.0, 65536.0))
    assert state == same > 0.0
    assert long == pytest.approx(64 * short)
    layers = made.pattern.total(0, "linear") + made.pattern.total(0, "parallel")
    assert state == pytest.approx(8.0 * layers * made.mixer.state_bytes())


@every
def test_a_step_that_verifies_guesses_keeps_a_state_after_each(name):
    """Refused guesses are undone by an earlier state: memory and what is written grow, what is read does
    not.
    """
    made = HYBRIDS[name]()
    one, four = (made.trace(st.decode(8.0, 1024.0, tokens=t)) for t in (1.0, 4.0))
    scans = [
        sum(float(b.count * op.state_bytes()) for b, op in g.ops() if op.kind == "state_scan")
        for g in (one, four)
    ]
    assert scans[1] == pytest.approx(4 * scans[0]) and scans[0] > 0
    alone, verified = (
        st.evaluate(roomy("8xh200"), made, st.decode(batch=256, context=1024, tokens=t), "dp=8").metrics
        for t in (1.0, 4.0)
    )
    assert alone.step_time < verified.step_time


@every
def test_operations_of_states_are_linear_in_the_length(name):
    def work(length):
        graph = HYBRIDS[name]().trace(st.prefill(1.0, length))
        return sum(
            float(b.count * (op.flop() + op.vector_flop()))
            for b, op in graph.ops()
            if op.kind == "state_scan"
        )

    assert work(65536.0) == pytest.approx(16 * work(4096.0))


@every
def test_a_step_and_a_prompt_of_one_token_do_the_same_products(name):
    """Inside a chunk of one token there is nothing but the token itself."""
    graphs = (HYBRIDS[name]().trace(work) for work in (st.decode(4.0, 1.0), st.prefill(4.0, 1.0)))
    step, prompt = (next(op for _, op in g.ops() if op.kind == "state_scan") for g in graphs)
    assert 0.9 * prompt.flop() <= step.flop() <= prompt.flop()


@every
def test_graphs_obey_their_laws(name):
    made = HYBRIDS[name]()
    mixed = st.mixed(32.0, 4096.0, prompts=2.0, chunk=512.0)
    for work in (st.decode(8.0, 512.0), st.prefill(2.0, 512.0), st.train(2.0, 512.0), mixed):
        check_graph(made.trace(work))


def test_gradients_take_two_and_a_half_times_the_products():
    for make in (qwen3_next, falcon_h1, minimax_text):
        ops = [op for _, op in make().trace(st.train(2.0, 4096.0)).ops() if op.kind == "state_scan"]
        forward, backward = (sum(float(op.flop()) for op in ops if op.backward is b) for b in (False, True))
        assert backward == pytest.approx(2.5 * forward)


def test_decays_are_counted_for_what_a_chunk_costs():
    """Dao & Gu, arXiv 2405.21060, sec. 6: with N = P = Q the four parts of a chunk are all of size T N^2."""
    from strata.workload.scan_ops import decay_flop

    n = 64.0
    assert decay_flop(1.0, 1.0, n, n, n) == 8.0 * n * n


# ------------------------------------------------------------------------------------- orders of layers


KINDS = [("linear", "none"), ("none", "moe"), ("full", "none"), ("full", "dense"), ("linear", "moe")]


@given(hy.lists(hy.sampled_from(KINDS), min_size=1, max_size=24))
def test_any_list_of_layers_is_a_pattern(kinds):
    made = pattern_of(kinds)
    count = np.arange(len(kinds) + 1.0)
    for part in (0, 1):
        for kind in {k[part] for k in kinds}:
            exact = [sum(k[part] == kind for k in kinds[: int(n)]) for n in count]
            assert np.asarray(made.first(count, part, kind)).tolist() == exact
    for pair in made.pairs():
        assert float(made.total_pair(pair)) == kinds.count(pair)


def test_a_pattern_refuses_what_no_layer_has():
    for kinds in ([("none", "none")], [("mamba", "dense")], [("full", "mlp")], []):
        with pytest.raises(st.StrataError, match="layer"):
            pattern_of(kinds)
    with pytest.raises(st.StrataError, match="mamba2"):
        Mixer(kind="mamba-2", heads=1.0, key_dim=1.0)
    with pytest.raises(st.StrataError, match="mixer is not said"):
        replace(mamba2(), mixer=None).trace(st.decode(1.0, 1.0))


def test_layers_of_one_part_stand_in_their_order():
    graph = HYBRIDS["nemotron_3_nano"]().trace(st.decode(1.0, 128.0))
    order = [graph.sequence.layer_blocks(i) for i in range(7)]
    m, e, a = ("attention.linear",), ("ffn.moe",), ("attention.full",)
    assert order == [m, e, m, e, m, a, e]
    assert {b.name: float(b.count) for b in graph.blocks if graph.sequence.in_layers(b.name)} == {
        "attention.linear": 23.0,
        "attention.full": 6.0,
        "ffn.moe": 23.0,
    }


# ------------------------------------------------------------------ norms, residuals, gates of other families


def gpt_j(**changes):  # config.json of EleutherAI/gpt-j-6b: one norm a layer, biases in ffn and head only
    made = Model(
        "gpt-j-6b", Pattern((), 0.0, (("full", "dense"),), 28.0), hidden=4096.0, heads=16.0, kv_heads=16.0,
        head_dim=256.0, v_head_dim=256.0, vocab=50400.0, ffn=16384.0, gated=False, ffn_bias=True, norm_bias=True,
        parallel_residual=True, shared_norm=True,
    )  # fmt: skip
    return replace(made, **changes)


def test_a_parallel_residual_has_one_block_and_one_norm_a_layer():
    graph = gpt_j().trace(st.decode(1.0, 512.0))
    assert float(graph.parameters()) == pytest.approx(6.05e9, rel=0.001)
    layer = next(b for b in graph.blocks if graph.sequence.in_layers(b.name))
    assert [op.name for op in layer.ops if "norm" in op.name] == ["attention_norm"]
    assert layer.leaves == ("attended", "down_out")
    two = gpt_j(shared_norm=False).trace(st.decode(1.0, 512.0))
    assert float(two.parameters() - graph.parameters()) == 28 * 2 * 4096
    apart = gpt_j(parallel_residual=False, shared_norm=False).trace(st.decode(1.0, 512.0))
    assert float(apart.parameters()) == float(two.parameters()) and float(apart.flop()) == float(two.flop())


def test_gemma_3_has_four_norms_a_layer():
    """google/gemma-3-27b: 27.0e9 weights of the text model, embedding tied."""
    made = Model(
        "gemma-3-27b", pattern_of([("full" if i % 6 == 5 else "window", "dense") for i in range(62)]),
        hidden=5376.0, heads=32.0, kv_heads=16.0, head_dim=128.0, v_head_dim=128.0, vocab=262208.0, ffn=21504.0,
        window=1024.0, tied=True, qk_norm=True, post_norms=True,
    )  # fmt: skip
    graph = made.trace(st.decode(1.0, 512.0))
    assert float(graph.parameters()) == pytest.approx(27.0e9, rel=0.005)
    norms = [op.name for b in graph.blocks for op in b.ops if op.name.endswith("_norm")]
    assert norms.count("post_attention_norm") == 2 and norms.count("post_ffn_norm") == 1
    plain = replace(made, post_norms=False).trace(st.decode(1.0, 512.0))
    assert float(graph.parameters() - plain.parameters()) == 62 * 2 * 5376


def test_a_gated_attention_doubles_the_projection_of_queries():
    made = qwen3_next()
    plain = replace(made, output_gate=False)
    more = float(made.trace(st.decode(1.0, 1.0)).parameters() - plain.trace(st.decode(1.0, 1.0)).parameters())
    assert more == 12 * 2048 * 16 * 256


def test_latent_attention_without_a_latent_of_queries():
    """deepseek-ai/DeepSeek-V2-Lite: 15.7e9 weights, 2.4e9 of them active; q_lora_rank is null."""
    made = Model(
        "deepseek-v2-lite", pattern_of([("full", "dense")] + [("full", "moe")] * 26), hidden=2048.0, heads=16.0,
        kv_heads=16.0, head_dim=192.0, v_head_dim=128.0, vocab=102400.0, ffn=10944.0, attention="mla",
        kv_rank=512.0, rope_dim=64.0, direct_queries=True, experts=64.0, top_k=6.0, expert_ffn=1408.0,
        shared_ffn=2816.0, shared_experts=True,
    )  # fmt: skip
    for work in (st.decode(1.0, 128.0), st.prefill(1.0, 128.0)):
        assert float(made.trace(work).parameters()) == pytest.approx(15.706e9, rel=0.001)
