"""DRAM channels and stacks: worked examples, laws, a cycle-accurate simulator, other tools, what kernels see
of it, bad input.
"""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hy
from scipy.optimize import minimize

import strata as st
from strata.arrays import enable_jax
from strata.errors import BadFile, BadValue, UnknownName
from strata.hardware.dram.channel import (
    Stream,
    dram,
    interface_peak,
    refresh_left,
    shipped,
    sustained_channel,
)
from strata.hardware.dram.stack import (
    Stack,
    channel_of,
    check_stack,
    dram_of,
    stack_bandwidth,
    stack_banks,
    stack_channels,
    whole_waves,
    with_memory,
)
from strata.hardware.noc import access_bandwidth, access_latency, local_share
from strata.params import load_table, names
from strata.pricing.kernels.attention import attention
from strata.pricing.kernels.device import device
from strata.pricing.kernels.dram_access import (
    Asked,
    cache_stream,
    dram_bandwidth,
    in_flight,
    long_stream,
    product_stream,
)
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.vector import vector
from strata.validation.datasets import HELD_OUT, read_table
from strata.validation.dram import REFERENCE, channel, with_controller

NANO = 1e-9
MEMORIES = names("memory")
DATA = Path(st.__file__).parents[1] / "validation"


def bandwidth(made, hot=0.0, port=None, **stream):
    return float(sustained_channel(made, Stream(**stream), hot, port).bandwidth)


def of_a_channel(stack, stream, port=None):
    """What one of a stack's channels sustains: its share of what all cores ask for, and of their ports,
    through which a byte goes twice.
    """
    found, count = dram_of(stack), stack_channels(stack)
    share = None if stream.outstanding is None else stream.outstanding / count
    asked = replace(stream, banks=stack_banks(stack, found), outstanding=share)
    return sustained_channel(
        channel_of(stack, found), asked, 0.0, None if port is None else port / (2.0 * count)
    )


# ------------------------------------------------------------------------------------------- worked by hand


def quiet(**changes):
    """A channel of round numbers: 64 B in 2 ns, 16 banks, rows cycle in 26 ns, refreshed so rarely that it
    does not count.
    """
    return dram("stacked-dram", **{"burst": 64.0, "timing.refi": 1.0, **changes})


def test_one_bank_gives_a_run_in_each_row_cycle():
    assert bandwidth(quiet(), run=64.0, banks=1.0) == pytest.approx(64 / 26e-9, rel=1e-4)
    # 16 bursts: tRCD 8, 15 more bursts 30, tRTP 5, tRP 8.
    assert bandwidth(quiet(), run=1024.0, banks=1.0) == pytest.approx(1024 / 51e-9, rel=1e-4)
    # Written: the last data arrives CWL 4 + burst 2 after its command, tWR 16 later the row closes.
    assert bandwidth(quiet(), run=64.0, banks=1.0, read_share=0.0) == pytest.approx(64 / 38e-9, rel=1e-4)


def test_activations_bind_short_runs_over_many_banks():
    found = sustained_channel(quiet(**{"timing.faw": 30e-9}), Stream(run=64.0))
    assert found.binding == "activation" and float(found.bandwidth) == pytest.approx(64 / 7.5e-9, rel=1e-4)


def test_two_banks_in_step_close_their_rows_together():
    # 2 x 8 bursts of 2 ns alternate; after the last of the first bank tRTP + tRP + tRCD = 21 ns, of which 2
    # are the other bank's last burst.
    assert bandwidth(quiet(), run=512.0, banks=2.0) == pytest.approx(
        2 * 512 / (8 + 14 * 2 + 5 + 8) / NANO, rel=1e-4
    )


def test_turns_of_the_bus_cost_what_their_times_add_up_to():
    # Runs longer than a bank's queue, a controller that holds one write back: a turn for every 1/(p (1 - p))
    # = 4 visits.
    made = quiet(**{"controller.queue": 1.0, "controller.spill": 0.0})
    turn = (14 + 2 - 4 + 1) + (4 + 2 + 6) - 2 * 2
    share = 0.25 / np.sqrt(1 + (0.5 / 32) ** 2)
    assert bandwidth(made, run=2048.0, read_share=0.5) == pytest.approx(
        2048 / (64 + share * turn) / NANO, rel=1e-4
    )


def test_refresh_takes_its_share_and_twice_of_it_when_hot():
    made = dram("stacked-dram")
    taken = (120 + 5 + 8 + 8 - 2) / 3900
    assert float(refresh_left(made.timing)) == pytest.approx(1 - taken)
    assert float(refresh_left(made.timing, 1.0)) == pytest.approx(1 - 2 * taken)
    assert bandwidth(made, run=2048.0, hot=1.0) / bandwidth(made, run=2048.0) == pytest.approx(
        (1 - 2 * taken) / (1 - taken)
    )


def test_little_and_the_port_bind_as_such():
    made = dram("hbm3")
    few = sustained_channel(made, Stream(run=1024.0, outstanding=1024.0, latency=400 * NANO))
    assert few.binding == "buffer" and float(few.bandwidth) == pytest.approx(1024 / 400e-9)
    narrow = sustained_channel(made, Stream(run=1024.0), 0.0, 1e9)
    assert narrow.binding == "sram" and float(narrow.bandwidth) == 1e9


def test_a_run_moves_whole_bursts():
    made = dram("hbm3")
    assert bandwidth(made, run=33.0) / bandwidth(made, run=64.0) == pytest.approx(33 / 64)
    # the next run takes the rest
    assert bandwidth(made, run=300.0, packed=True) == pytest.approx(bandwidth(made, run=320.0))


# ------------------------------------------------------------------------------------------------------ laws


streams = hy.fixed_dictionaries(
    {
        "run": hy.floats(1.0, 4096.0),
        "read_share": hy.one_of(hy.just(1.0), hy.floats(0.0, 1.0)),
        "banks": hy.integers(1, 16).map(float),
        "outstanding": hy.floats(64.0, 1e6),
        "latency": hy.floats(1e-8, 1e-6),
    }
)


@given(hy.sampled_from(MEMORIES), streams, hy.floats(0.0, 1.0), hy.floats(1e6, 1e12))
@settings(max_examples=300, deadline=None)
def test_never_above_any_bound_nor_the_peak_and_always_positive(name, given_stream, hot, port):
    made = shipped(name)
    found = sustained_channel(made, Stream(**given_stream), hot, port)
    assert 0 < found.bandwidth <= min(map(float, found.bounds.values())) * (1 + 1e-9)
    assert found.bandwidth <= interface_peak(made) * refresh_left(made.timing, hot) * (1 + 1e-9)


@given(hy.sampled_from(MEMORIES), streams, hy.integers(1, 16))
@settings(max_examples=300, deadline=None)
def test_more_banks_or_more_outstanding_are_never_slower_and_heat_never_faster(name, given_stream, more):
    made, base = shipped(name), bandwidth(shipped(name), **given_stream)
    assert bandwidth(made, **given_stream | {"banks": given_stream["banks"] + more}) >= base * (1 - 1e-6)
    assert bandwidth(made, **given_stream | {"outstanding": given_stream["outstanding"] * more}) >= base * (
        1 - 1e-9
    )
    assert bandwidth(made, hot=1.0, **given_stream) <= base


@given(hy.sampled_from(MEMORIES), hy.integers(0, 4), hy.integers(1, 16))
@settings(max_examples=200, deadline=None)
def test_longer_runs_of_reads_are_never_slower(name, doubled, banks):
    """Of reads: runs of writes and reads longer than a bank's queue do turn the bus more often for each byte,
    in the simulator too.
    """
    made = shipped(name)
    runs = [made.burst * 2.0**i for i in range(doubled, 6)]
    found = [bandwidth(made, run=run, banks=float(banks)) for run in runs]
    assert all(b >= a * (1 - 1e-9) for a, b in itertools.pairwise(found))


def random_streams(count, seed=5):
    rng = np.random.default_rng(seed)
    return {
        "run": rng.uniform(1.0, 4096.0, count),
        "read_share": rng.uniform(0.0, 1.0, count),
        "banks": rng.integers(1, 33, count) * 1.0,
        "outstanding": rng.uniform(64.0, 1e5, count),
        "latency": rng.uniform(1e-8, 1e-6, count),
    }


@pytest.mark.parametrize("name", MEMORIES)
def test_a_batch_equals_single_streams(name):
    many = random_streams(64)
    batch = sustained_channel(shipped(name), Stream(**many)).bandwidth
    single = [bandwidth(shipped(name), **{k: float(v[i]) for k, v in many.items()}) for i in range(64)]
    np.testing.assert_allclose(batch, single, rtol=1e-12)


def test_jax_gives_the_same_and_a_slope():
    jax = pytest.importorskip("jax")
    enable_jax()
    many = random_streams(32)
    stack = Stack(8.0, 16.0, 32.0, 0.8e9, 1.5e9, 4.0, memory="stacked-dram")

    def whole(layers, run, share):
        stream = Stream(run=run, read_share=share, outstanding=1e6, latency=1e-7)
        return of_a_channel(replace(stack, layers=layers), stream, 4e12).bandwidth

    made = jax.jit(whole)(8.0, many["run"], many["read_share"])
    np.testing.assert_allclose(np.asarray(made), whole(8.0, many["run"], many["read_share"]), rtol=1e-9)
    assert np.isfinite(jax.grad(lambda f: whole(8.0, 1024.0, f))(0.7))


def test_a_large_batch_has_no_holes():
    assert np.all(
        np.isfinite(sustained_channel(shipped("hbm3"), Stream(**random_streams(100_000))).bandwidth)
    )


# ----------------------------------------------------------------------------- against simulators, run
# elsewhere


@pytest.fixture(scope="module")
def table():
    if not (DATA / "dram" / "channel.csv").exists():
        pytest.skip("measured data is not in this checkout")
    return read_table(DATA, "dram/channel.csv")


def errors(found):
    return found.predicted / found.measured - 1


def test_simulated_channels_are_met_on_patterns_that_were_not_fitted(table):
    found = channel(table)
    unseen = np.abs(errors(found)[found.line % HELD_OUT == 0])
    assert len(unseen) > 130 and unseen.mean() < 0.025 and unseen.max() < 0.15
    assert abs(errors(found).mean()) < 0.01


@pytest.mark.parametrize("apart", ["stacked-fast", "hbm2"])
def test_a_set_of_timings_no_fit_has_seen_is_met_too(table, apart):
    """`hbm2` leaves out hbm2-hot as well, which differs from it in refresh alone."""
    how = shipped(REFERENCE).controller
    names_of = ("rounds", "jitter", "spill", "drift")
    away = np.char.startswith(table.text("timing").astype(str), apart)
    seen = table.keep(~away & (table.lines % HELD_OUT != 0))

    def loss(x):
        e = errors(
            with_controller(seen, replace(how, **dict(zip(names_of, np.abs(x).tolist(), strict=True))))
        )
        return np.abs(e).mean() + 2 * (e**2).mean()

    best = minimize(loss, [1.0, 0.1, 0.3, 2.0], method="Nelder-Mead", options={"maxiter": 120})
    left = np.abs(
        errors(
            with_controller(
                table.keep(away), replace(how, **dict(zip(names_of, np.abs(best.x).tolist(), strict=True)))
            )
        )
    )
    assert left.mean() < 0.03 and left.max() < 0.2


def test_the_shipped_constants_are_those_of_the_fit(table):
    how = shipped(REFERENCE).controller
    seen = table.keep(table.lines % HELD_OUT != 0)

    def loss(made):
        e = errors(with_controller(seen, made))
        return np.abs(e).mean() + 2 * (e**2).mean()

    shipped_loss = loss(how)
    for name in ("rounds", "jitter", "spill", "drift"):
        for factor in (0.8, 1.25):
            assert loss(replace(how, **{name: getattr(how, name) * factor})) > shipped_loss * 0.995, name


# ---------------------------------------------------------------------------------------------------- stacks


def test_unconnected_layers_hide_row_cycles_as_deepstack_says():
    """One bank behind a channel of a layer, whole rows: all of the peak up to half of the layers connected,
    read over full at all of them.
    """
    one = dram("stacked-dram", **{"bank_groups": 1.0, "banks_per_group": 1.0, "timing.refi": 1.0})
    made = [Stack(8.0, 16.0, 32.0, 0.8e9, 1e9, float(n), dram=one) for n in range(1, 9)]
    share = np.array(
        [
            float(of_a_channel(s, Stream(run=2048.0)).bandwidth * stack_channels(s) / stack_bandwidth(s))
            for s in made
        ]
    )
    assert share[:4] == pytest.approx(1.0, rel=1e-4) and np.all(np.diff(share) <= 1e-9)
    assert share[-1] == pytest.approx(16 * 5 / (8 + 15 * 5 + 5 + 8), rel=1e-4)


def test_more_layers_connected_give_more_and_unconnected_ones_never_less():
    base = Stack(8.0, 16.0, 32.0, 0.8e9, 1.5e9, memory="stacked-dram")
    runs = Stream(run=np.array([64.0, 128.0, 512.0, 2048.0]), read_share=0.8)
    of = {
        (m, n): of_a_channel(replace(base, layers=m, connected_layers=n), runs).bandwidth * n * 16
        for m in (4.0, 8.0)
        for n in (2.0, 4.0)
    }
    assert np.all(of[4.0, 4.0] > of[4.0, 2.0]) and np.all(of[8.0, 4.0] >= of[4.0, 4.0] * (1 - 1e-9))
    assert stack_bandwidth(replace(base, layers=8.0, connected_layers=4.0)) == stack_bandwidth(
        replace(base, layers=4.0)
    )


def test_a_wider_channel_helps_until_the_banks_bind():
    base = Stack(4.0, 16.0, 32.0, 0.8e9, 1.5e9, memory="stacked-dram")
    found = [
        of_a_channel(replace(base, channel_width=w), Stream(run=128.0)) for w in (16.0, 32.0, 64.0, 256.0)
    ]
    assert [f.binding for f in found] == ["interface", "interface", "activation", "activation"]
    assert found[2].bandwidth == pytest.approx(found[3].bandwidth, rel=1e-3)


def test_waves_cover_what_is_moved():
    moved = np.array([0.0, 1.0, 2048.0, 2049.0, 1e9])
    np.testing.assert_allclose(whole_waves(2048.0, moved), np.ceil(moved / 2048) * 2048)


def test_a_stack_names_its_memory_and_may_change_it():
    written = with_memory(
        {
            "stack": {
                "memory": "stacked-dram",
                "dram": {"timing": {"rcd": {"value": "9 ns", "source": "a test's own"}}},
            }
        }
    )
    assert (
        written["stack"]["dram"]["timing"]["rcd"]["value"] == "9 ns"
        and written["stack"]["dram"]["timing"]["rp"]["value"] == "8 ns"
    )
    assert dram_of(Stack(1.0, 1.0, 1.0, 1.0, 1.0)) is None
    with pytest.raises(UnknownName, match="no memory called 'stacked'; nearest: stacked-dram"):
        with_memory({"stack": {"memory": "stacked"}})


# --------------------------------------------------------------------------------------------- kernels on it


@pytest.fixture(scope="module")
def banked():
    ref = st.chip("stack-ref")
    return replace(ref, stack=replace(ref.stack, memory="stacked-dram"))


def test_a_decode_product_and_a_prefill_product_see_different_bandwidths(banked):
    gemv, gemm = (product_stream(banked, m, 8192.0, 8192.0, 2.0, 2.0, 2.0) for m in (1.0, 4096.0))
    one, many = (float(dram_bandwidth(device(banked), 0.9, lambda s=s: s)) for s in (gemv, gemm))
    assert one > many * 1.02 and one <= banked.memory.bandwidth
    assert in_flight(banked) == 8 * 128 * 1024


def test_kernels_take_the_time_of_their_streams(banked):
    d = device(banked)
    price = matmul(1.0, 8192.0, 8192.0, d, "bf16", "bf16")
    stream = product_stream(banked, 1.0, 8192.0, 8192.0, 2.0, 2.0, 2.0)
    assert price.memory == pytest.approx(
        float(price.memory_bytes / dram_bandwidth(d, 0.9, lambda: stream)), rel=1e-3
    )
    assert price.time >= price.lower
    copied = vector(1e9, 1e9, 0.0, 0.0, d)
    assert copied.memory == pytest.approx(
        2e9 / float(dram_bandwidth(d, 0.9, lambda: long_stream(d, 0.5))), rel=1e-4
    )
    assert copied.memory > vector(2e9, 0.0, 0.0, 0.0, d).memory  # reads alone never turn the bus
    step = attention(64.0, 1.0, 8192.0, 8192.0, 32.0, 8.0, 128.0, 128.0, 256.0, d, "bf16", "bf16")
    assert step.memory >= step.memory_bytes / banked.memory.bandwidth
    assert cache_stream(128.0, 2.0, 1.0, 0.0).run == 4096.0


@pytest.mark.parametrize(
    "run, share, packed", [(64.0, 1.0, False), (1000.0, 0.8, True), (2048.0, 0.5, False)]
)
def test_what_kernels_get_is_what_the_stack_sustains_below_the_network(banked, run, share, packed):
    d = device(banked)
    cores, noc = banked.compute.cores, banked.silicon.noc
    latency = banked.memory.latency + access_latency(noc, cores, local_share(noc, cores))
    stream = Stream(run=run, read_share=share, outstanding=in_flight(banked), latency=latency, packed=packed)
    whole = of_a_channel(
        banked.stack, stream, cores * banked.compute.sram_bandwidth
    ).bandwidth * stack_channels(banked.stack)
    expected = access_bandwidth(noc, cores, whole, local_share(noc, cores))
    found = dram_bandwidth(d, 0.9, lambda: Asked(run, share, packed, even=True))
    assert float(found) == pytest.approx(float(expected), rel=1e-12)
    assert dram_bandwidth(d, 0.9, lambda: Asked(run, share, packed, even=True)) is found  # worked out once
    many = dram_bandwidth(d, 0.9, lambda: Asked(np.full(3, run), share, packed, even=True))
    np.testing.assert_allclose(many, float(found), rtol=1e-12)


def test_chips_without_banks_keep_their_measured_share():
    for name in ("h200", "b200", "tpu-v4"):
        chip = st.chip(name)
        assert (
            dram_bandwidth(device(chip), 0.7, lambda: pytest.fail("not asked for"))
            == chip.memory.bandwidth * 0.7
        )


# ------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"timing.rc": "20 ns"},
            "hbm3.toml: timing.rc must be at least ras + rp, but got rc = 20 ns, ras = 33 ns, rp = 14 ns",
        ),
        ({"timing.rcd": "40 ns"}, "timing.ras must be at least rcd"),
        ({"timing.ccd_l": "1 ns"}, "timing.ccd_l must be at least ccd_s"),
        ({"timing.rrd_l": "1 ns"}, "timing.rrd_l must be at least rrd_s"),
        ({"timing.refi": "700 ns"}, "timing.refi must leave time between refreshes even when heat halves it"),
        ({"row": "16 B"}, "a row must hold at least one burst"),
    ],
)
def test_timings_that_contradict_each_other_are_refused_in_one_line(changes, said):
    with pytest.raises(BadValue) as told:
        dram("hbm3", **changes)
    assert said in str(told.value) and "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"run": 0.0}, "run must be positive, but got 0"),
        (
            {"run": 64.0, "read_share": np.array([0.5, 1.5])},
            "read_share must be from 0 to 1, but got 0.5 to 1.5",
        ),
        ({"run": 64.0, "banks": 0.0}, "banks must be at least 1, but got 0"),
        ({"run": float("nan")}, "run must be positive, but got nan"),
    ],
)
def test_a_stream_that_cannot_be_is_refused(wrong, said):
    with pytest.raises(BadValue, match=said):
        Stream(**wrong)


def test_more_connected_layers_than_layers_are_refused():
    with pytest.raises(BadValue, match=r"connected_layers must be at most stack\.layers"):
        check_stack(Stack(4.0, 16.0, 32.0, 1e9, 1e9, 6.0), "a.toml")


def test_an_unknown_memory_is_named_with_the_nearest():
    with pytest.raises(UnknownName, match="no memory called 'hbm5'; nearest: hbm"):
        dram("hbm5")
    with pytest.raises(BadFile):
        dram("nowhere.toml")


@pytest.mark.parametrize("name", MEMORIES)
def test_every_shipped_memory_has_a_source_for_each_number(name):
    made = dram(name)
    assert len(made.sources) >= 25 and all(len(p.source) >= 8 for p in made.sources.values())
    assert load_table("memory", name)["title"]
