"""DRAM channels: worked examples, laws, a cycle-accurate simulator, bad input."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hy
from scipy.optimize import minimize

import strata as st
from strata.base.errors import BadFile, BadValue, UnknownName
from strata.hardware.dram.channel import Stream, dram_channel, interface_peak, refresh_left, sustained_channel
from strata.params import load_table, names
from strata.validation.measured.compared import compared
from strata.validation.measured.spec import spec_of
from strata.validation.readers.comparison import HELD_OUT
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import read_table

NANO = 1e-9


MEMORIES = names("memory")


DATA = Path(st.__file__).parents[1] / "validation"


def bandwidth(made, hot=0.0, port=None, **stream):
    return float(sustained_channel(made, Stream(**stream), hot, port).bandwidth)


def quiet(**changes):
    """A channel of round numbers: 64 B in 2 ns, 16 banks, rows cycle in 26 ns, refreshed so rarely that it
    does not count.
    """
    return dram_channel("stacked-dram", **{"burst": 64.0, "timing.refi": 1.0, **changes})


def test_activations_bind_short_runs_over_many_banks():
    found = sustained_channel(quiet(**{"timing.faw": 30e-9}), Stream(run=64.0))
    assert found.binding == "activation" and float(found.bandwidth) == pytest.approx(64 / 7.5e-9, rel=1e-4)


def test_refresh_takes_its_share_and_twice_of_it_when_hot():
    made = dram_channel("stacked-dram")
    taken = (120 + 5 + 8 + 8 - 2) / 3900
    assert float(refresh_left(made.timing)) == pytest.approx(1 - taken)
    assert float(refresh_left(made.timing, 1.0)) == pytest.approx(1 - 2 * taken)
    assert bandwidth(made, run=2048.0, hot=1.0) / bandwidth(made, run=2048.0) == pytest.approx(
        (1 - 2 * taken) / (1 - taken)
    )


def test_little_and_the_port_bind_as_such():
    made = dram_channel("hbm3")
    few = sustained_channel(made, Stream(run=1024.0, outstanding=1024.0, latency=400 * NANO))
    assert few.binding == "buffer" and float(few.bandwidth) == pytest.approx(1024 / 400e-9)
    narrow = sustained_channel(made, Stream(run=1024.0), 0.0, 1e9)
    assert narrow.binding == "sram" and float(narrow.bandwidth) == 1e9


def test_a_run_moves_whole_bursts():
    made = dram_channel("hbm3")
    assert bandwidth(made, run=33.0) / bandwidth(made, run=64.0) == pytest.approx(33 / 64)
    # the next run takes the rest
    assert bandwidth(made, run=300.0, packed=True) == pytest.approx(bandwidth(made, run=320.0))


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
    made = dram_channel(name)
    found = sustained_channel(made, Stream(**given_stream), hot, port)
    assert 0 < found.bandwidth <= min(map(float, found.bounds.values())) * (1 + 1e-9)
    assert found.bandwidth <= interface_peak(made) * refresh_left(made.timing, hot) * (1 + 1e-9)


@given(hy.sampled_from(MEMORIES), streams, hy.integers(1, 16))
@settings(max_examples=300, deadline=None)
def test_more_banks_or_more_outstanding_are_never_slower_and_heat_never_faster(name, given_stream, more):
    made, base = dram_channel(name), bandwidth(dram_channel(name), **given_stream)
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
    made = dram_channel(name)
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
    batch = sustained_channel(dram_channel(name), Stream(**many)).bandwidth
    single = [bandwidth(dram_channel(name), **{k: float(v[i]) for k, v in many.items()}) for i in range(64)]
    np.testing.assert_allclose(batch, single, rtol=1e-12)


def test_a_large_batch_has_no_holes():
    assert np.all(
        np.isfinite(sustained_channel(dram_channel("hbm3"), Stream(**random_streams(100_000))).bandwidth)
    )


@pytest.fixture(scope="module")
def table():
    if not (DATA / "dram" / "channel.csv").exists():
        pytest.skip("measured data is not in this checkout")
    return read_table(DATA, "dram/channel.csv")


def errors(found):
    return found.predicted / found.measured - 1


def channel_under(table, **controller):
    """Channels with other constants of the controller."""
    spec = spec_of(None, "dram/channel.csv")
    constants = {f"controller.{name}": str(value) for name, value in controller.items()}
    return compared(table, Catalogue(), spec.model_copy(update={"ask": spec.ask | constants}))


def test_simulated_channels_are_met_on_patterns_that_were_not_fitted(table):
    found = channel_under(table)
    unseen = np.abs(errors(found)[found.line % HELD_OUT == 0])
    assert len(unseen) > 130 and unseen.mean() < 0.025 and unseen.max() < 0.15
    assert abs(errors(found).mean()) < 0.01


@pytest.mark.parametrize("apart", ["stacked-fast", "hbm2"])
def test_a_set_of_timings_no_fit_has_seen_is_met_too(table, apart):
    """`hbm2` leaves out hbm2-hot as well, which differs from it in refresh alone."""
    names_of = ("rounds", "jitter", "spill", "drift")
    away = np.char.startswith(table.text("timing").astype(str), apart)
    seen = table.keep(~away & (table.lines % HELD_OUT != 0))

    def loss(x):
        e = errors(channel_under(seen, **dict(zip(names_of, np.abs(x).tolist(), strict=True))))
        return np.abs(e).mean() + 2 * (e**2).mean()

    best = minimize(loss, [1.0, 0.1, 0.3, 2.0], method="Nelder-Mead", options={"maxiter": 120})
    fitted = dict(zip(names_of, np.abs(best.x).tolist(), strict=True))
    left = np.abs(errors(channel_under(table.keep(away), **fitted)))
    assert left.mean() < 0.03 and left.max() < 0.2


def test_the_shipped_constants_are_those_of_the_fit(table):
    controller = dram_channel("stacked-dram").controller
    seen = table.keep(table.lines % HELD_OUT != 0)

    def loss(**constants):
        e = errors(channel_under(seen, **constants))
        return np.abs(e).mean() + 2 * (e**2).mean()

    shipped_loss = loss()
    for name in ("rounds", "jitter", "spill", "drift"):
        for factor in (0.8, 1.25):
            other = loss(**{name: getattr(controller, name) * factor})
            assert other > shipped_loss * 0.995, name


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
        dram_channel("hbm3", **changes)
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


def test_an_unknown_memory_is_named_with_the_nearest():
    with pytest.raises(UnknownName, match="no memory called 'hbm5'; nearest: hbm"):
        dram_channel("hbm5")
    with pytest.raises(BadFile):
        dram_channel("nowhere.toml")


@pytest.mark.parametrize("name", MEMORIES)
def test_every_shipped_memory_has_a_source_for_each_number(name):
    made = dram_channel(name)
    assert len(made.sources) >= 25 and all(len(p.source) >= 8 for p in made.sources.values())
    assert load_table("memory", name)["title"]
