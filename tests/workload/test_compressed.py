"""DeepSeek-V4, MiniMax-M3 and Nemotron 3 Super: what their reports and other tools say of caches, operations
and sizes.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

import strata as st
from strata.adapters.huggingface.config import reading
from strata.base.errors import BadFile
from strata.params import data_folder
from strata.workload.tasks import decode, prefill

MILLION = 2.0**20


def kept(name, context, **changes):
    """Bytes of cache and of states that one sequence keeps."""
    graph = st.model(name, **changes).trace(decode(1.0, context))
    cache = sum(float(b.count * op.cache_bytes(1.0)) for b, op in graph.ops())
    return cache, sum(float(b.count * (op.state_bytes() or 0.0)) for b, op in graph.ops())


def config(name):
    return json.loads((data_folder("models") / f"{name}.json").read_text(encoding="utf-8"))


def test_the_cache_of_a_million_tokens_is_as_published():
    """vLLM blog, DeepSeek V4 in vLLM (2026-04-24): 9.62 GiB of a sequence of 1M tokens in bf16."""
    cache, states = kept("deepseek-v4-pro", MILLION, index_format="bf16")
    assert cache / 2**30 == pytest.approx(9.62, abs=0.005)
    # by hand: windows of 61 layers, entries of 30 layers by 4 with the indexer's keys, of 31 layers by 128
    entries = 30 * MILLION / 4 * (512 + 128) + 31 * MILLION / 128 * 512
    assert cache == pytest.approx(2 * (61 * 128 * 512 + entries), rel=1e-12)
    # the open windows of the compressors in fp32: 8 tokens that overlap, 128 that do not
    assert states == 4 * (30 * 8 * 4 * (512 + 128) + 31 * 128 * 2 * 512)


@pytest.mark.parametrize(("name", "share"), [("deepseek-v4-pro", 0.27), ("deepseek-v4-flash", 0.10)])
def test_operations_of_a_token_against_v32_are_as_published(name, share):
    """At 1M tokens 27 % (Pro: model card) and 10 % (Flash: 9.8 times less, the report as cited in mlx-lm issue
    1281) of the FLOP of DeepSeek-V3.2; the report counts fp4 products as less than a FLOP each.
    """
    before, now = (float(st.model(n).trace(decode(1.0, MILLION)).flop()) for n in ("deepseek-v3.2", name))
    assert now / before == pytest.approx(share, abs=0.025)


def test_cache_against_v32_is_as_published():
    """The same: 10 % and 7 % (13.7 times less) of the cache; here with fp8 keys and an fp8 indexer on both
    sides, where DeepSeek-V4 has the indexer in fp4.
    """
    before = kept("deepseek-v3.2", MILLION, kv="fp8")[0]
    for name, share in (("deepseek-v4-pro", 0.10), ("deepseek-v4-flash", 0.07)):
        assert kept(name, MILLION, kv="fp8")[0] / before == pytest.approx(share, abs=0.025)


def test_short_contexts_read_what_is_there():
    """Below the window nothing is chosen; a step reads no more than there is."""
    for context in (1.0, 64.0, 128.0, 4096.0):
        graph = st.model("deepseek-v4-flash").trace(decode(4.0, context))
        for block, op in graph.ops():
            if op.kind == "attention" and op.module == "latent_attention":
                assert float(op.cached.size) <= context + context / 4 + 1e-9, block.name
                assert float(op.span.size) <= float(op.cached.size) + 1e-9


def test_hyper_connections_widen_the_residual():
    """Four streams: what a pipeline sends is four times as wide; weights of 24 columns from all streams."""
    made = st.model("deepseek-v4-flash")
    graph = made.trace(decode(8.0, 1024.0))
    entry = next(b for b in graph.blocks if b.name == "attention.csa").entry
    assert float(entry.elements()) == 8 * 4 * 4096
    plain = replace(made, hyper_connections=False).trace(decode(8.0, 1024.0))
    each = 24 * 4 * 4096 + 24 + 3
    last = 4 * 4 * 4096 + 4 + 1
    assert float(graph.parameters() - plain.parameters()) == 2 * 43 * each + last


def test_hashed_layers_score_without_a_bias():
    made = st.model("deepseek-v4-flash")
    graph = made.trace(decode(1.0, 128.0))
    counts = {b.name: float(b.count) for b in graph.blocks}
    assert counts["ffn.hash"] == 3 and counts["ffn.moe"] == 40
    assert made.has_experts and counts["attention.csa"] == 21 and counts["attention.hca"] == 20


def test_blocks_of_minimax_m3():
    """57 of 60 layers read 16 blocks of 128; each keeps a key of 128 for the scorer beside 4 heads of 256."""
    made, context = st.model("minimax-m3"), 65536.0
    assert float(made.sparse_top_k) == 2048 and made.index_format == "bf16"
    cache, _ = kept("minimax-m3", context)
    assert cache == 2 * context * (60 * 4 * 256 + 57 * 128)
    graph = made.trace(decode(1.0, context))
    read = next(op for b, op in graph.ops() if b.name == "attention.sparse" and op.name == "attention")
    assert float(read.cached.size) == 2048


def test_latent_experts_send_narrow_rows():
    """Rows that go to experts are 1024 wide, those of the model 4096 (Nemotron 3 Super)."""
    graph = st.model("nemotron-3-super-120b-a12b").trace(decode(16.0, 128.0))
    sent = {op.name: op for b, op in graph.ops() if b.name == "ffn.moe"}
    assert float(sent["dispatch"].width) == float(sent["combine"].width) == 1024
    assert float(sent["router"].k.size) == float(sent["shared_up"].k.size) == 4096


@pytest.mark.parametrize("name", ["deepseek-v4-flash", "minimax-m3", "nemotron-3-super-120b-a12b"])
def test_a_batch_is_its_singles(name):
    contexts = np.array([1024.0, 8192.0, 131072.0])
    system, made = st.system("8xb200"), st.model(name, weights="fp8", expert_weights="fp8", kv="fp8")
    together = st.evaluate(system, made, decode(8.0, contexts), st.plan(tp=8))
    for i, context in enumerate(contexts):
        alone = st.evaluate(system, made, decode(8.0, float(context)), st.plan(tp=8))
        assert float(together.metrics.tokens_per_s[i]) == pytest.approx(
            float(alone.metrics.tokens_per_s), rel=1e-12
        )


@pytest.mark.parametrize("name", ["deepseek-v4-flash", "minimax-m3"])
def test_prefill_of_nothing_known_reads_causally(name):
    graph = st.model(name).trace(prefill(1.0, 4096.0))
    for _, op in graph.ops():
        if op.kind == "attention":
            assert float(op.span.size) <= 0.5 * (4096 + 1) + 128


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"compress_ratios": [0] * 10}, "compress_ratios"),
        ({"compress_ratios": [8] * 43}, "compress_ratios"),
        ({"compress_ratios": "4"}, "compress_ratios"),
        ({"o_groups": 7}, "o_groups"),
        ({"o_groups": 0}, "o_groups"),
        ({"index_topk": 0}, "index_topk"),
        ({"sliding_window": None}, "sliding_window"),
        ({"hc_mult": 1e9}, "hc_mult"),
        ({"qk_rope_head_dim": 1024}, "qk_rope_head_dim"),
        ({"compress_ratios": None, "layer_types": ["full_attention"] * 43}, "window in every layer"),
        ({"compress_rates": {"compressed_sparse_attention": 0}}, "compress_rates"),
    ],
)
def test_wrong_sizes_are_one_line(changed, said):
    with pytest.raises(BadFile, match=said) as error:
        reading({**config("deepseek-v4-flash"), **changed}, "v4")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "table",
    [
        {"sparse_attention_freq": [0, 1]},
        {"sparse_attention_freq": "all"},
        {"sparse_topk_blocks": -1},
        {"sparse_block_size": 1.5},
        {"sparse_num_index_heads": True},
        [],
        7,
    ],
)
def test_wrong_tables_of_blocks_are_one_line(table):
    told = config("minimax-m3")
    held = told["text_config"]["sparse_attention_config"]
    told["text_config"]["sparse_attention_config"] = (
        {**held, **table} if isinstance(table, dict) else table or 3
    )
    with pytest.raises(BadFile) as error:
        reading(told, "m3")
    assert "\n" not in str(error.value)


def test_a_decoder_inside_needs_no_model_type_of_its_own():
    told = config("minimax-m3")
    del told["text_config"]["model_type"]
    assert float(reading(told, "m3").model.sparse_top_k) == 2048


def test_layers_may_be_said_by_words():
    """Newer configs say kinds of layers by name; the model is the same."""
    told = config("deepseek-v4-flash")
    words = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
    listed = [words[r] for r in told.pop("compress_ratios")[:43]]
    told.pop("num_hash_layers")
    said = {**told, "layer_types": listed, "mlp_layer_types": ["hash_moe"] * 3 + ["moe"] * 40}
    made = reading(said, "v4").model
    assert made.pattern.pairs() == st.model("deepseek-v4-flash").pattern.pairs()
