"""One kernel asked for by name: the same price as inside a step, and one line for each thing a user can get
wrong.
"""

import re
from itertools import product

import numpy as np
import pytest

import strata as st
from strata.params import names
from strata.pricing.kernel_kinds import KINDS as KNOWN
from strata.pricing.kernel_ops import STREAMS
from strata.pricing.kernels.device import device
from strata.pricing.kernels.matmul import matmul
from strata.pricing.power_cap import power_capped
from strata.pricing.price import RESOURCES

LATENT = {"head_dim": 192, "v_head_dim": 128, "kv_rank": 512, "rope_dim": 64}
SIZES = {
    "gemm": {"m": 300, "n": 4096, "k": 1024},
    "grouped": {"tokens": 512, "experts": 16, "n": 1024, "k": 2048, "top_k": 2},
    "attention": {
        "sequences": 4,
        "queries": 64,
        "context": 2048,
        "heads": 32,
        "kv_heads": 8,
        "head_dim": 128,
    },
    "mla": {"sequences": 4, "queries": 1, "context": 2048, "heads": 128, **LATENT},
    "experts": {"tokens": 512, "experts": 16, "hidden": 2048, "inner": 1024, "top_k": 2, "ranks": 2},
    "grouped_mm": {"tokens": 512, "experts": 16, "n": 1024, "k": 2048},
    "stream": {"rows": 1024, "columns": 4096},
    "lu": {"order": 2048},
    "fft": {"points": 4096, "lines": 1000},
    "scan": {"length": 4096, "inner": 1000},
    "sort": {"length": 1_000_000, "lines": 3},
    "embedding_bag": {"bags": 4096, "per_bag": 20, "width": 128},
    "sorted_experts": {"tokens": 512, "experts": 16, "hidden": 2048, "inner": 1024, "top_k": 2},
    "batched": {"batch": 16, "m": 300, "n": 4096, "k": 1024},
    "recurrent": {"hidden": 1024, "batch": 16, "steps": 25, "layers": 2},
    "adam": {"parameters": 1_000_000},
}
COMMUNICATING = {
    "ag_gemm": {"ranks": 8, "m": 8192, "n": 1024, "k": 4096},
    "gemm_rs": {"ranks": 8, "m": 8192, "n": 4096, "k": 512},
    "a2a_gemm": {"ranks": 8, "m": 1024, "n": 4096, "k": 4096},
    "ep_dispatch": {"ranks": 8, "tokens": 4096, "hidden": 4096, "experts": 256, "top_k": 8},
    "moe_ar": {"ranks": 8, "tokens": 1024, "n": 4096, "k": 1536, "experts": 128, "top_k": 8},
}
KINDS = list(SIZES)


def asked(kind, chip="h200", **changes):
    return st.kernel(chip, kind, **{**SIZES[kind], **changes})


@pytest.mark.parametrize(("chip", "kind"), list(product(names("chip"), KINDS)))
def test_every_kernel_runs_on_every_chip(chip, kind):
    precision = "bf16" if any(p in st.chip(chip).compute.matrix_rate for p in ("bf16", "fp16")) else "fp32"
    if kind == "mla" and precision == "fp32":
        pytest.skip("no kernel for latent attention is known in fp32")
    found = asked(kind, chip, precision=precision)
    price, made = found.price, found.chip
    assert 0 < price.lower <= found.time * (1 + 1e-12) and found.time <= price.upper * (1 + 1e-9)
    assert found.bound_by in RESOURCES and sum(getattr(price, r) for r in RESOURCES) == pytest.approx(
        found.time, rel=1e-9
    )
    assert 0 < found.clock <= made.compute.max_clock
    # The leakage of a stack that stays cool lies below that of the stated, hot one.
    assert (
        made.energy.static_power * (1.0 if made.stack is None else 0.7)
        < found.power
        <= max(made.energy.power_limit, made.energy.static_power) * 1.001
    )


def test_a_product_is_priced_as_in_a_step():
    chip = st.chip("h200")
    held = power_capped(matmul(4096.0, 4096.0, 4096.0, device(chip, resident=False), "fp8", "bf16"), chip)
    found = st.kernel("h200", "gemm", m=4096, n=4096, k=4096, precision="fp8")
    assert float(found.time) == float(held.price.time) and float(found.power) == float(held.power)


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_sizes_are_single_answers(kind):
    first = KNOWN[kind].needed[0]
    values = np.array([64, 300, 2048])
    many = asked(kind, **{first: values})
    for i, value in enumerate(values):
        one = asked(kind, **{first: int(value)})
        assert float(one.time) == pytest.approx(float(many.time[i]), rel=1e-12) and one.bound_by == str(
            many.bound_by[i]
        )


def test_sizes_make_a_box():
    box = st.kernel("h200", "gemm", m=np.array([1, 512])[:, None], n=[1024, 4096, 8192], k=4096)
    assert box.time.shape == (2, 3) and box.bound_by.shape == (2, 3) and np.all(np.diff(box.time, axis=0) > 0)


def test_once_is_the_highest_clock_and_never_slower():
    repeated, once = (st.kernel("h200", "gemm", m=8192, n=8192, k=8192, repeated=r) for r in (True, False))
    assert (
        once.clock == st.chip("h200").compute.max_clock
        and once.time <= repeated.time
        and once.power >= repeated.power
    )


def test_resident_activations_and_narrow_weights_are_quicker():
    small = st.kernel("h200", "gemm", m=16, n=4096, k=4096)
    for options in ({"resident": True}, {"precision": "fp8"}, {"precision": "int4", "weight_only": True}):
        assert st.kernel("h200", "gemm", m=16, n=4096, k=4096, **options).time < small.time


def test_formats_count_their_bytes():
    m, n, k = 128, 1024, 2048
    wide = st.kernel("h200", "gemm", m=m, n=n, k=k, precision="fp32")
    fp8 = st.kernel("h200", "gemm", m=m, n=n, k=k, precision="fp8")
    narrow = st.kernel("h200", "gemm", m=m, n=n, k=k, precision="fp8", activations="fp8")
    assert wide.price.memory_bytes == 4 * (m * k + k * n + m * n)
    assert (
        fp8.price.memory_bytes == m * k + k * n + 2 * m * n
        and narrow.price.memory_bytes == m * k + k * n + m * n
    )


def test_causal_attention_does_half_the_work_of_a_long_pass():
    causal, full = (asked("attention", queries=2048, causal=c).price.flop for c in (True, False))
    assert causal / full == pytest.approx(2049 / 4096)


def test_streams_read_and_write_what_they_say():
    for op, (reads, writes, _, _) in STREAMS.items():
        assert asked("stream", op=op).price.memory_bytes == (reads + writes) * 1024 * 4096 * 2


BAD = {
    "zero": ({"m": 0}, "gemm m must be a positive whole number, but got 0"),
    "negative": ({"k": -8}, "gemm k must be a positive whole number, but got -8"),
    "in pieces": ({"n": 1.5}, "gemm n must be a positive whole number, but got 1.5"),
    "not a number": ({"n": float("nan")}, "kernel: n must be a finite number, but got 'nan'"),
    "infinite": ({"n": float("inf")}, "kernel: n must be a finite number, but got 'inf'"),
    "text": ({"n": "many"}, "kernel: n is a number or an array or list of numbers, but got 'many'"),
    "one of an array": ({"m": np.array([4, 0, 2])}, "gemm m must be a positive whole number, but got 0"),
    "zero batch": ({"batch": 0}, "gemm batch must be a positive whole number, but got 0"),
    "unknown size": ({"mm": 4}, "no size of gemm called 'mm'; nearest: m; all: m, n, k, batch"),
    "shapes": (
        {"m": np.ones(2), "n": np.ones(3)},
        "gemm sizes must broadcast against each other, but got m (2,), n (3,)",
    ),
    "precision": ({"precision": "fp7"}, "no precision called 'fp7'; nearest: fp8"),
    "activations": ({"activations": "bf61"}, "no precision called 'bf61'; nearest: bf16"),
    "no such rate": (
        {"precision": "fp4"},
        "chip h200 has no fp4 matrix rate; it has: fp64, fp32, tf32, bf16, fp8, int8; weight-only use widens",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_named_in_one_line(case):
    changes, said = BAD[case]
    with pytest.raises(st.StrataError, match="^" + re.escape(said)) as caught:
        asked("gemm", **changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        (
            "attention",
            {"context": 32},
            "attention context counts the new tokens and must not be below queries, but got (context=32, queries=64)",
        ),
        (
            "attention",
            {"kv_heads": 5},
            "attention heads must be a multiple of kv_heads, but got (heads=32, kv_heads=5)",
        ),
        ("attention", {"kv": "fp9"}, "no precision called 'fp9'"),
        ("grouped", {"top_k": 17}, "grouped top_k must not exceed experts, but got (top_k=17, experts=16)"),
        ("grouped", {"skew": -1}, "grouped skew must be a number of at least 0, but got -1"),
        ("stream", {"op": "cpy"}, "no op of stream called 'cpy'; nearest: copy"),
    ],
)
def test_relations_of_sizes_are_named_in_one_line(kind, changes, said):
    with pytest.raises(st.StrataError, match="^" + re.escape(said)):
        asked(kind, **changes)


def test_unknown_kernels_missing_sizes_and_chips_without_a_rate():
    with pytest.raises(
        st.StrataError,
        match="no kernel called 'gem'; nearest: gemm, gemm_rs, ag_gemm; all: gemm, grouped, attention, stream",
    ):
        st.kernel("h200", "gem", m=1)
    with pytest.raises(st.StrataError, match="gemm needs m, n, k, but n, k are missing"):
        st.kernel("h200", "gemm", m=1)
    with pytest.raises(st.StrataError, match=r"^chip a100-80 has no fp8 matrix rate; it has: "):
        asked("attention", "a100-80", precision="fp8")
    with pytest.raises(st.StrataError, match=r"^chip p4 has no bf16 matrix rate; it has: fp32, int8$"):
        asked("gemm", "p4")


@pytest.mark.parametrize("chip", ["h100", "h200", "b200"])
@pytest.mark.parametrize("kind", COMMUNICATING)
def test_kernels_that_communicate_take_no_longer_than_one_after_the_other(chip, kind):
    found = st.kernel(chip, kind, **COMMUNICATING[kind], repeated=False)
    price = found.price
    assert 0 < price.lower <= found.time <= price.upper and price.network > 0 and price.link_energy > 0
    assert sum(getattr(price, r) for r in RESOURCES) == pytest.approx(found.time, rel=1e-9)
    if kind != "ep_dispatch":  # whose bytes are those of its tokens
        assert st.kernel(chip, kind, **COMMUNICATING[kind], sent=1e9, repeated=False).time > found.time


def test_a_host_that_launches_adds_its_time():
    plain = st.kernel("h200", "fft", points=256, lines=65536, axes=3)
    started, prepared = (st.kernel("h200", "fft", points=256, lines=65536, axes=3, **t) for t in HOSTED)
    assert started.time == pytest.approx(plain.time + 24e-6, rel=1e-9) and prepared.time == pytest.approx(
        5e-3
    )
    tiny = st.kernel("h200", "fft", points=256, axes=3, start=24e-6)
    # the third kernel starts when all three are launched
    assert tiny.time > 24e-6 + 2 * st.chip("h200").overhead.launch > 24e-6 + 2e-6


HOSTED = ({"start": 24e-6}, {"host": 5e-3})


def test_a_locked_clock_slows_cores_and_not_dram():
    locked = {"clock": 0.99e9, "repeated": False}
    for sizes, slower in (({"m": 8192, "n": 8192, "k": 8192}, 2.0), ({"m": 1, "n": 65536, "k": 8192}, 1.0)):
        fast, slow = (st.kernel("h200", "gemm", **sizes, **how) for how in ({"repeated": False}, locked))
        assert slow.clock == 0.99e9 and slow.time / fast.time == pytest.approx(slower, rel=0.1)


def test_results_that_the_cache_keeps_are_written_later():
    small, large = (st.kernel("a100-80", "gemm", m=m, n=1024, k=1024) for m in (1024, 65536))
    assert small.bytes_until_end == small.price.memory_bytes - 2 * 1024 * 1024
    assert large.bytes_until_end == large.price.memory_bytes


def test_layers_of_a_recurrent_network_train_forward_and_backward():
    sizes = {"hidden": 1024, "batch": 64, "steps": 25, "layers": 2, "inputs": 1, "repeated": False}
    forward, backward, train = (
        st.kernel("h200", "recurrent", phase=phase, **sizes).time
        for phase in ("forward", "backward", "train")
    )
    assert forward < backward and train == pytest.approx(forward + backward)
    one = st.kernel("h200", "recurrent", **sizes | {"layers": 1, "call": 1e-3}).time
    two = st.kernel("h200", "recurrent", **sizes | {"call": 1e-3}).time
    assert two - 1e-3 == pytest.approx(2 * (one - 1e-3), rel=0.01)  # a call is paid once


def test_eager_streams_on_buffers_that_take_turns():
    times = [
        st.kernel("h200", "stream", op="gelu", rows=512, columns=4096, eager=True, turns=turns).time
        for turns in (1, 32, 0)
    ]
    assert times[0] < times[1] <= times[2]
