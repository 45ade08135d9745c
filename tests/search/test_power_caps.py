"""Caps of power: laws over caps, batches and chips, sums by hand, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import strata as st
from strata.base.errors import BadValue
from strata.hardware.money import host_power
from strata.search.power_caps import power_caps
from strata.serving.pools import capped_system, checked_caps, resting_power

WORK = st.serve(256, 1024, 256)


@pytest.fixture(scope="module")
def caps():
    return power_caps("8xh200", "llama-3-70b", WORK, "tp=8", caps=np.linspace(250.0, 700.0, 19))


def test_speed_does_not_fall_and_latency_does_not_rise_with_the_cap(caps):
    assert caps.fits.all()
    assert np.all(np.diff(caps.middle("tokens_per_s")) >= 0.0)
    assert np.all(np.diff(caps.middle("tpot")) <= 0.0)
    assert np.all(np.diff(caps.middle("clock")) >= 0.0)


def test_devices_never_draw_more_than_the_cap_and_the_plug_more_than_the_devices(caps):
    assert np.all(caps.middle("device_power") <= caps.caps)
    assert np.all(caps.middle("power") > 8 * caps.middle("device_power"))


def test_the_least_energy_lies_inside_and_that_of_the_devices_below_that_of_the_plug(caps):
    """What idles and the host pay for every second, voltage for every hertz."""
    assert 0 < caps.best < len(caps.caps) - 1
    devices = int(np.argmin(caps.middle("device_energy")))
    assert devices < caps.best
    assert np.all(caps.middle("device_energy") < caps.middle("energy_per_token"))


def test_energy_at_the_plug_is_that_of_devices_and_all_beside_them(caps):
    """By hand: J a token is power over tokens/s, and power is the devices' and their hosts'."""
    device = caps.middle("device_power")
    beside = sum(host_power(caps.system.fabric, caps.result.economics, device))
    assert caps.middle("power") == pytest.approx(8 * (device + beside))
    assert caps.middle("energy_per_token") == pytest.approx(
        caps.middle("power") / caps.middle("tokens_per_s")
    )


def test_a_batch_of_caps_is_so_many_single_ones():
    many = power_caps("8xh200", "llama-3-70b", WORK, "tp=8", "trtllm", caps=[300.0, 450.0, 700.0])
    for i, cap in enumerate(many.caps):
        one = st.evaluate(capped_system(st.system("8xh200"), cap), "llama-3-70b", WORK, "tp=8", "trtllm")
        for name in ("tokens_per_s", "power", "energy_per_token", "clock"):
            assert many.values(name)[i, 0] == pytest.approx(getattr(one.metrics, name), rel=1e-12)


def test_at_the_chips_own_limit_nothing_changes():
    capped = power_caps("8xh200", "llama-3-70b", WORK, "tp=8", caps=[700.0])
    usual = st.evaluate("8xh200", "llama-3-70b", WORK, "tp=8").metrics
    assert capped.values("tokens_per_s")[0, 0] == usual.tokens_per_s


@settings(max_examples=12, deadline=None)
@given(
    chip=some.sampled_from(["h100", "h200", "b200", "mi300x", "a100-80", "stack-ref"]),
    batch=some.integers(1, 512),
    phase=some.sampled_from(["decode", "prefill"]),
)
def test_laws_hold_on_every_chip(chip, batch, phase):
    work = st.decode(batch, 1024) if phase == "decode" else st.prefill(batch, 256)
    found = power_caps(f"1x{chip}", "llama-3.2-1b", work, "tp=1")
    rate, fits = found.middle("tokens_per_s"), found.fits
    assert np.all(np.diff(rate) >= -1e-12 * rate[1:])
    assert np.all(found.middle("device_power")[fits] <= found.caps[fits] * (1 + 1e-12))
    assert np.all(found.too_low == ~fits) or not fits.any()


def test_prompts_of_which_only_bounds_are_known_make_ranges():
    work = st.serve(64, np.array([200.0, 800.0]), 128)
    found = power_caps("8xh200", "llama-3-70b", work, "tp=8", caps=[400.0, 700.0])
    assert found.ranged and found.result.shape == (2, 2)
    low, high = found.range("power")
    assert np.all(low < high)
    for j, length in enumerate((200.0, 800.0)):
        alone = power_caps("8xh200", "llama-3-70b", st.serve(64, length, 128), "tp=8", caps=[400.0, 700.0])
        assert not alone.ranged
        assert found.values("power")[:, j] == pytest.approx(alone.middle("power"), rel=1e-12)


def test_a_cap_that_no_clock_holds_is_an_answer():
    found = power_caps("8xh200", "llama-3-70b", st.decode(256, 2048), "tp=8", caps=[140.0, 600.0])
    assert found.too_low.tolist() == [True, False] and found.fits.tolist() == [False, True]
    assert found.values("tokens_per_s")[0, 0] == 0.0 and found.best == 1
    nowhere = power_caps("1xh200", "llama-3.1-405b", st.decode(1, 128), "tp=1", caps=[600.0])
    assert nowhere.best is None and not nowhere.too_low.any()  # memory, not power


def test_where_the_cap_is_above_what_the_load_draws_it_binds_nothing():
    found = power_caps("1xh200", "llama-3-8b", st.decode(1, 128), "tp=1", caps=[650.0, 700.0])
    assert not found.binds.any()
    assert found.values("tokens_per_s")[0, 0] == found.values("tokens_per_s")[1, 0]


def test_it_is_one_line_at_a_prompt(caps):
    assert repr(caps).startswith("PowerCaps(llama-3-70b on 8xh200, 19 caps of 250 to 700 W: least energy at ")


def test_other_programs_count_items():
    found = power_caps("1xh200", "gemm-8192", st.forward(1), caps=[400.0, 700.0])
    assert (found.rate, found.energy, found.latency) == ("items_per_s", "energy_per_item", "step_time")
    assert np.all(np.diff(found.middle("items_per_s")) > 0.0)


def test_at_rest_a_server_draws_less_than_under_any_cap(caps):
    assert 1500.0 < caps.idle_power < caps.middle("power").min()


def test_usual_caps_end_at_the_chips_limit_and_begin_above_rest():
    for name in ("h200", "mi300x", "tpu-v5e", "stack-ref"):
        chip = st.chip(name)
        usual = checked_caps(None, chip)
        assert usual[-1] == pytest.approx(float(chip.energy.power_limit)) and usual[0] > resting_power(chip)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ([100.0, 500.0], "above what a h200 draws at rest .* got 100 W"),
        ([800.0], "at most the limit of a h200 .700 W., but got 800 W"),
        ([], "one to 1000 power caps"),
        ([float("nan")], "finite"),
        (["many"], "numbers of watts"),
    ],
)
def test_caps_that_cannot_be_set_are_refused_in_a_line(asked, why):
    with pytest.raises(BadValue, match=why) as said:
        power_caps("1xh200", "llama-3-8b", st.decode(1, 128), "tp=1", caps=asked)
    assert "\n" not in str(said.value)
