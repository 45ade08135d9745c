"""Small examples worked by hand."""

import numpy as np
import pytest
from cases import MODELS, model, system

import strata as st
from strata.pricing.kernels.device import device
from strata.pricing.kernels.matmul import matmul
from strata.pricing.network.algorithms import direct_scatter, one_shot_all_reduce, ring_scatter
from strata.pricing.pipeline import decode_cycle, pipeline_time
from strata.pricing.training_memory import state_bytes
from strata.software.engine import trainer_of
from strata.workload.attention_parts import attended


def cache_bytes_per_token(name, **changes):
    """Bytes a cache of a long context grows by for each token of one sequence, all layers."""
    made = st.model(name, **changes)
    held = [
        sum(
            b.count * op.cache_bytes(1.0)
            for b, op in made.trace(st.decode(1, n)).ops()
            if op.kind == "attention"
        )
        for n in (20000.0, 20001.0)
    ]
    return held[1] - held[0]


# ---------------------------------------------------------------------------------------------------- models


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_those_published(name):
    made = model(name)
    published, source = made.published
    assert source
    for work in (st.decode(1, 1), st.prefill(1, 8), st.train(1, 8)):
        assert made.trace(work).parameters() == pytest.approx(published, rel=1e-3)


def test_parameters_of_llama_3_8b_by_hand():
    h, layers, ffn, vocab, kv = 4096, 32, 14336, 128256, 1024
    attention = h * h + 2 * h * kv + h * h
    by_hand = layers * (attention + 3 * h * ffn + 2 * h) + h + 2 * vocab * h
    assert by_hand == 8_030_261_248 == model("llama-3-8b").trace(st.decode(1, 1)).parameters()


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [
        ("llama-3-70b", 80 * 8 * 128 * 2 * 2),  # 327,680 B: layers x kv heads x width x (key, value) x bf16
        ("llama-3-8b", 32 * 8 * 128 * 2 * 2),
        ("llama-2-7b", 32 * 32 * 128 * 2 * 2),  # every head has its own keys
        ("gpt3-175b", 96 * 96 * 128 * 2 * 2),
        ("deepseek-v3", 61 * (512 + 64) * 2),  # latent and rotary part, shared by all heads: 70,272 B
        ("gpt-oss-20b", 12 * 8 * 64 * 2 * 2),  # the other 12 layers hold a window that is full already
        ("qwen3-235b-a22b", 94 * 4 * 128 * 2 * 2),
    ],
)
def test_cache_bytes_of_a_token(name, by_hand):
    assert cache_bytes_per_token(name) == pytest.approx(by_hand, rel=1e-9)


def test_cache_bytes_follow_their_own_precision():
    assert cache_bytes_per_token("llama-3-70b", kv="fp8") == pytest.approx(327_680 / 2, rel=1e-9)
    assert cache_bytes_per_token("llama-3-70b", weights="fp8") == pytest.approx(327_680, rel=1e-9)


@pytest.mark.parametrize("name", ["llama-2-7b", "llama-3-70b", "llama-3.1-405b", "qwen2.5-72b", "gpt3-175b"])
def test_a_decoded_token_takes_two_operations_for_each_weight_it_meets(name):
    """2 N, without the embedding, which is looked up (a tied one is still multiplied as the head); attention
    left out.
    """
    made = model(name)
    graph = made.trace(st.decode(1, 1))
    n = graph.parameters() - (0.0 if made.tied else made.vocab * made.hidden)
    attention = sum(b.count * op.flop() for b, op in graph.ops() if op.kind == "attention")
    assert graph.flop() - attention == pytest.approx(2 * n, rel=0.02)


def test_a_token_of_a_mixture_meets_its_active_weights_only():
    """DeepSeek-V3: 37 B active of 671 B by its model card."""
    graph = model("deepseek-v3").trace(st.decode(1, 1))
    assert graph.flop() == pytest.approx(2 * 37e9, rel=0.05)


@pytest.mark.parametrize("name", ["llama-3-70b", "gpt3-175b"])
def test_training_takes_six_operations_for_each_weight_and_token(name):
    made = model(name)
    graph = made.trace(st.train(4, 2048))
    n = graph.parameters() - (0.0 if made.tied else made.vocab * made.hidden)
    attention = sum(b.count * op.flop() for b, op in graph.ops() if op.kind == "attention")
    assert graph.flop() - attention == pytest.approx(6 * n * 4 * 2048, rel=0.02)


def test_attention_of_a_prompt_is_half_a_square():
    """2 products x 2 FLOP x heads x width x n (n + 1) / 2 pairs."""
    graph = model("llama-3-8b").trace(st.prefill(1, 1000))
    attention = sum(b.count * op.flop() for b, op in graph.ops() if op.kind == "attention")
    assert attention == pytest.approx(32 * 4 * 32 * 128 * 1000 * 1001 / 2, rel=1e-12)


def test_a_window_limits_what_is_attended_read_and_held():
    assert attended(1024.0, 1.0, 128.0) == 128
    assert attended(4.0, 4.0, 1e18) == 2.5
    assert attended(4.0, 4.0, 2.0) == (1 + 2 + 2 + 2) / 4


def test_weights_in_fewer_bits_take_fewer_bytes():
    def weight_bytes(**changes):
        return sum(
            b.count * op.weight_bytes()
            for b, op in st.model("llama-3-70b", **changes).trace(st.decode(1, 1)).ops()
        )

    ends = 2 * 2 * 128256 * 8192
    assert weight_bytes() == pytest.approx(2 * 70.553706e9, rel=1e-4)
    assert weight_bytes(weights="fp8") == pytest.approx(70.553706e9 + ends / 2, rel=1e-4)


# ----------------------------------------------------------------------------------------------- collectives


def test_ring_all_reduce_of_a_gigabyte():
    """1 GB over 8 ranks at 50 GB/s and 1 us: 2 x 7 x (1 us + 1 GB / 8 / 50 GB/s) = 35.014 ms."""
    assert 2 * ring_scatter(1e9, 8.0, 50e9, 1e-6) == pytest.approx(0.035014, abs=1e-9)


def test_small_messages_go_in_one_step_and_large_ones_in_two():
    link = (8.0, 400e9, 1e-6)
    assert one_shot_all_reduce(1e3, *link) < 2 * direct_scatter(1e3, *link)
    assert one_shot_all_reduce(1e8, *link) > 2 * direct_scatter(1e8, *link)


# --------------------------------------------------------------------------------------------------- kernels


def test_a_product_of_one_row_takes_the_time_of_its_weights():
    """8192 x 8192 bf16 weights, 134 MB, at 4.8 TB/s x 0.8, and the kernel's floor of 3 us; ends of tiles hide
    behind the weights.
    """
    d = device(
        st.chip(
            "h200",
            **{
                "memory.efficiency": 0.8,
                "overhead.kernel": 3e-6,
                "overhead.tile": 0.0,
                "overhead.cold": 0.0,
                "memory.exposed": 0.0,
            },
        )
    )
    price = matmul(1.0, 8192.0, 8192.0, d, "bf16", "bf16")
    assert price.time == pytest.approx((2 * 8192 * 8192 + 2 * 2 * 8192) / (4.8e12 * 0.8) + 3e-6, rel=1e-3)


def test_a_large_product_runs_at_the_sustained_matrix_rate():
    """16384^3 fills tiles and waves to within 5 %; its tiles' ends cost a little more. At 1.98 GHz, 989.4
    TFLOP/s are 1070.5.
    """
    d = device(st.chip("h200", **{"compute.matrix_efficiency.bf16": 0.75, "memory.exposed": 0.0}))
    price = matmul(16384.0, 16384.0, 16384.0, d, "bf16", "bf16")
    assert 1.0 <= price.time / (2 * 16384.0**3 / (1070.5e12 * 0.75)) < 1.08


def test_a_tile_too_many_starts_another_wave_unless_products_are_cut():
    """132 cores and tiles of at most 256 x 128: one more row of tiles than cores costs a wave where parts are
    dear to add up, and about its share of the work, and the adding up, where they are cheap.
    """
    times = {}
    for split in (1e-3, 1e-6):
        d = device(st.chip("h200", **{"overhead.split.bf16": split}))
        prices = [matmul(m, 256.0 * 11, 8192.0, d, "bf16", "bf16") for m in (128.0 * 12, 128.0 * 12 + 1)]
        times[split] = [float(p.compute + p.cache) for p in prices]
    assert times[1e-3][1] > 1.3 * times[1e-3][0]
    assert times[1e-6][0] < times[1e-6][1] < 1.15 * times[1e-6][0]


# ------------------------------------------------------------------------------------------ pipelines, memory


def test_pipelines_wait_for_their_first_micro_batch():
    assert pipeline_time(1.0, 4.0, 8.0) == 11.0
    assert pipeline_time(1.0, 4.0, 8.0, 3.0) == 9.0
    assert [float(decode_cycle(2.0, 4.0, m)) for m in (1.0, 4.0, 8.0)] == [8.0, 8.0, 16.0]


def test_mixed_precision_adam_keeps_eighteen_bytes_a_parameter():
    """2 weight + 4 gradient + 12 state; ZeRO shares out state, then gradients, then weights over 4 ranks."""
    trainer = trainer_of(st.engine("megatron"))
    assert [float(sum(state_bytes(2.0, 1.0, trainer, z, 4.0))) for z in (0.0, 1.0, 2.0, 3.0)] == [
        18.0,
        2 + 4 + 3,
        2 + 1 + 3,
        0.5 + 1 + 3,
    ]


def test_a_device_holds_its_share_of_weights_and_cache():
    """Llama-3-70B on 8 devices: an eighth of 141 GB, and 64 sequences x 2048 tokens x 327,680 B / 8."""
    memory = st.evaluate("8xh200", "llama-3-70b", st.decode(64, 2048), "tp=8").summary.memory
    assert memory["weights"] == pytest.approx(2 * 70.55e9 / 8, rel=1e-3)
    assert memory["cache"] == pytest.approx(64 * 2048 * 327_680 / 8, rel=1e-9)


# ------------------------------------------------------------------------------------------- systems, plans


@pytest.mark.parametrize(
    ("name", "devices", "sizes"),
    [
        ("h200", 1, [1, 1]),
        ("8xh200", 8, [8, 1]),
        ("4xh200", 4, [4, 1]),
        ("64xh200", 64, [8, 8]),
        ("4x8xh100", 32, [8, 4]),
        ("2x4xh100", 8, [4, 2]),
        ("4X8xH100", 32, [8, 4]),
        ("72xgb200", 72, [72, 1]),
        ("64xtpu-v4", 64, [4, 4, 4]),
        ("4096xtpu-v4", 4096, [4, 4, 256]),
        ("256xstack-ref", 256, [4, 4, 2, 2, 4]),
        ("16xstack-ref", 16, [4, 4, 1, 1, 1]),
    ],
)
def test_names_of_systems(name, devices, sizes):
    made = st.system(name)
    assert made.devices == devices
    assert [d.size for d in made.fabric.dimension] == sizes


def test_a_system_from_a_file(tmp_path):
    path = tmp_path / "pod.toml"
    path.write_text(
        'name = "pod"\ntitle = "a pod"\nchip = "h200"\n'
        '[sizes]\ninfiniband = { value = 4, source = "assumed: this test" }\n'
    )
    made = st.system(str(path))
    assert (made.name, float(made.devices), made.chip.name) == ("pod", 32.0, "h200")
    assert st.system(str(path), **{"memory.bandwidth": "6 TB/s"}).chip.memory.bandwidth == 6e12


def test_a_system_from_its_parts():
    made = st.system(st.chip("h200"), st.hardware.sized(st.fabric("hgx-b200"), (8.0, 2.0)))
    assert (float(made.devices), made.name) == (16.0, "16xh200 on hgx-b200")
    assert system("8xh200").chip.memory.bandwidth == 4.8e12


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {"tp": 1, "pp": 1, "devices": 1}),
        ("tp=8", {"tp": 8, "moe_tp": 8, "devices": 8}),
        ("tp=8,ep=8", {"ep": 8, "moe_tp": 1, "moe_groups": 1}),
        ("tp=8, ep=2", {"moe_tp": 4}),
        ("tp=4 dp=2 pp=2", {"devices": 16}),
        ("dp=8,fsdp=1", {"zero": 3}),
        ("tp=2,recompute=full", {"recompute": 2}),
        ("recompute=selective", {"recompute": 1}),
        ("tp=4,dp=2,ep=8", {"moe_tp": 1, "moe_groups": 1}),
        ("tp=2,dp=4,ep=2,moe_tp=2", {"moe_groups": 2}),
    ],
)
def test_plans_are_read_from_text(text, expected):
    made = st.plan(text)
    assert {k: getattr(made, k) for k in expected} == expected


def test_plans_are_arrays_where_degrees_are():
    made = st.plan(tp=np.array([1, 2, 4]), ep=2)
    assert made.moe_tp.tolist() == [1.0, 1.0, 2.0]
    assert made.devices.tolist() == [1.0, 2.0, 4.0]


def test_all_plans_of_four_devices_for_a_model_of_eight_heads():
    """Divisors of 4 over tp, cp, dp, pp: 10 ordered products; nothing else is broken for Llama-3-8B."""
    assert len(st.plans(4, model("llama-3-8b")).tp) == 10


def test_a_box_has_an_axis_for_each_field_and_gives_back_single_answers():
    chips = st.chip("h200", **{"memory.bandwidth": np.array([3e12, 6e12])[:, None]})
    node = st.system(chips, st.hardware.sized(st.fabric("hgx-h200"), (8.0, 1.0)))
    plans = st.plans(8, model("llama-3-70b"))
    r = st.evaluate(node, "llama-3-70b", st.decode(64, 2048), plans)
    assert r.shape == r.metrics.tokens_per_s.shape == (2, len(plans.tp))
    best = r.best()
    assert best.metrics.tokens_per_s == pytest.approx(np.max(r.metrics.tokens_per_s), rel=1e-12)
    assert best.system.chip.memory.bandwidth == 6e12


def test_a_timeline_has_the_time_of_the_step_and_is_written_for_perfetto(tmp_path):
    import json

    r = st.evaluate("8xh200", "llama-3-8b", st.decode(8, 1024), "tp=8")
    assert r.timeline.time == pytest.approx(r.metrics.step_time, rel=1e-9)
    starts = [e.start for e in r.timeline.events]
    assert starts == sorted(starts) and len({e.layer for e in r.timeline.events}) == 34
    trace = json.loads(r.timeline.to_perfetto(tmp_path / "step.json").read_text())
    # kernels and collectives one after the other; what they read of DRAM stands beside them
    bars = [e["dur"] for e in trace["traceEvents"] if e["ph"] == "X" and e["tid"] != 2]
    assert sum(bars) * 1e-6 == pytest.approx(r.timeline.time, rel=1e-9)
