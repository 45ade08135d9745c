"""One basis for money and for hosts: whoever sells a fabric, the same links cost the same; hosts draw what is
always on and what follows the load; a device-hour has a price.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import strata as st
from strata.base.errors import StrataError
from strata.hardware.fabric import fabric
from strata.hardware.making import cost_rate, system_cost
from strata.hardware.money import (
    device_hour_price,
    dimension_price,
    economics,
    host_power,
    plug_power,
    switch_ports,
)
from strata.hardware.system import system
from strata.params import names

PAPERS = ("dfmodel", "deepstack")  # fabrics that repeat a paper's own prices
SAME = 1.02  # prices of the same links may differ by so much: by rounding
OURS = [name for name in names("fabric") if not name.startswith(PAPERS)]
WORK = st.decode(batch=8, context=1024)


@pytest.mark.parametrize("name", OURS)
def test_links_cost_what_the_price_list_says_whoever_sells_them(name):
    money = economics()
    for dimension in fabric(name).dimension:
        if dimension.medium:
            listed = dimension_price(replace(dimension, price=None), money)
            stated = dimension_price(dimension, money)
            assert 1 / SAME <= stated / listed <= SAME, (name, dimension.name)
        else:  # a price of its own needs its medium, so that it can be compared
            assert dimension.price is None, (name, dimension.name)


def test_equal_bandwidth_over_the_same_kind_of_links_costs_the_same_for_every_vendor():
    money, found = economics(), {}
    for name in OURS:
        for d in fabric(name).dimension:
            if d.medium:
                each = dimension_price(d, money) / d.bandwidth * (d.oversubscription or 1.0)
                found.setdefault((d.medium, switch_ports(d)), []).append(float(each))
    assert len(found) >= 5
    assert all(max(prices) <= SAME * min(prices) for prices in found.values())
    b200, mi325x = (
        system_cost(f"8x{c}").fabric / system(f"8x{c}").fabric.dimension[0].bandwidth
        for c in ("b200", "mi325x")
    )
    assert b200 / mi325x < 1.5  # it was 13, as one was priced as a network and the other as wires


@pytest.mark.parametrize("name", OURS)
def test_hosts_follow_one_rule(name):
    host = fabric(name).host
    if host is None:
        return
    if host.power is not None:  # only where that system's own figure was published
        assert not fabric(name).sources["host.power"].source.startswith("assumed"), name
        return
    assert host.cooling and host.processors is not None
    idle, load = (sum(host_power(fabric(name), economics(), watts)) for watts in (100.0, 700.0))
    assert idle < load < idle + 0.3 * 600.0


def test_a_later_generation_of_the_same_links_costs_and_draws_no_more_beside_its_devices():
    """B300 on NVLink 5 had a fabric of 23,400 USD and hosts of 788 W, B200 on the same 2,475 USD."""
    found = {c: system_cost(f"8x{c}") for c in ("b200", "b300", "mi300x", "mi325x")}
    assert found["b300"].fabric == pytest.approx(found["b200"].fabric)
    assert found["mi300x"].fabric == pytest.approx(found["mi325x"].fabric)
    beside = {c: sum(host_power(system(f"8x{c}").fabric, economics(), 700.0)) for c in found}
    assert beside["mi300x"] == pytest.approx(beside["mi325x"])
    assert beside["b200"] <= beside["b300"] < 1.2 * beside["b200"]


def test_a_node_of_eight_h100_draws_what_was_measured_at_the_plug_and_not_its_data_sheet():
    joined, money = fabric("hgx-h100"), economics()
    at_limit = 8 * (690.0 + sum(host_power(joined, money, 690.0)))
    assert at_limit == pytest.approx(8480.0, rel=0.02)  # Latif et al. 2025; the data sheet says 10.2 kW
    assert 8 * sum(host_power(joined, money, 115.0)) < 0.65 * 8 * sum(host_power(joined, money, 690.0))


@given(watts=some.floats(0.0, 2000.0), more=some.floats(0.0, 500.0))
def test_hosts_draw_more_with_the_load_and_energies_add_up(watts, more):
    joined, money = fabric("hgx-h200"), economics()
    low, high = (sum(host_power(joined, money, w)) for w in (watts, watts + more))
    assert 0.0 < low <= high
    many = np.array([watts, watts + more])
    assert np.allclose(sum(host_power(joined, money, many)), [low, high], rtol=1e-12)


@given(watts=some.floats(0.0, 2000.0), load=some.floats(0.0, 1.0))
def test_hosts_idle_below_their_load_and_in_between_by_the_share_of_time(watts, load):
    """Before, processors and adapters drew the same whether or not anything ran."""
    joined, money = fabric("hgx-h200"), economics()
    idle, some_of_it, busy = (plug_power(joined, money, watts, u) for u in (0.0, load, 1.0))
    assert idle < busy == pytest.approx(watts + sum(host_power(joined, money, watts)), rel=1e-12)
    assert some_of_it == pytest.approx(idle + load * (busy - idle), rel=1e-12)
    both = plug_power(joined, money, watts, np.array([0.0, 1.0]))
    assert np.allclose(both, [idle, busy], rtol=1e-12)


def test_an_idle_node_of_eight_h100_is_a_sum_by_hand():
    """Two processors, ten adapters and four switch chips idle beside eight devices of 70 W, under fans and
    supplies.
    """
    by_hand = (8 * 70.0 + 2 * 150.0 + 10 * 20.0 + 4 * 100.0) * 1.2 * 1.06
    assert 8 * plug_power(fabric("hgx-h100"), economics(), 70.0, 0.0) == pytest.approx(by_hand)


def test_hosts_are_no_longer_most_of_the_energy():
    energy = st.evaluate("8xh200", "llama-3-70b", WORK, "tp=8").summary.energy
    beside = (energy["hosts"] + energy["cooling and supply"]) / sum(energy.values())
    assert 0.25 < beside < 0.45


def test_a_rented_device_costs_its_rent_and_nothing_else():
    money = economics(rent="2.5 USD/h")
    rented = st.evaluate("8xh200", "llama-3-70b", WORK, "tp=8", economics=money).metrics
    assert rented.cost_per_device_hour == pytest.approx(2.5)
    assert rented.cost_per_mtoken == pytest.approx(8 * 2.5 / 3600 / rented.tokens_per_s * 1e6)
    assert cost_rate(system("8xh200"), money, 0.0) == cost_rate(system("8xh200"), money, 1e4)
    bought = st.evaluate("8xh200", "llama-3-70b", WORK, "tp=8").metrics
    assert bought.cost_per_device_hour == pytest.approx(
        bought.cost_per_mtoken / 1e6 * bought.tokens_per_s / 8 * 3600
    )


def test_a_system_carries_what_it_costs_to_own_into_every_evaluation():
    known = replace(system("8xh200"), economics=economics(rent="4 USD/h"))
    assert st.evaluate(known, "llama-3-70b", WORK, "tp=8").metrics.cost_per_device_hour == pytest.approx(4.0)
    dear = replace(system("8xh200"), economics=economics(**{"link.board": "20 USD*s/GB"}))
    assert system_cost(dear).fabric > 5 * system_cost("8xh200").fabric


@pytest.mark.parametrize("text", ["-1", "inf", "nan", "2 W", "2.5 EUR/h", "USD", "", "-3 USD/h", "1e400"])
def test_a_price_that_is_none_is_one_line(text):
    with pytest.raises(StrataError) as caught:
        device_hour_price(text)
    assert "\n" not in str(caught.value)


def test_prices_parse_with_and_without_their_unit():
    assert device_hour_price("2.5 USD/h") == pytest.approx(device_hour_price("2.5"), rel=1e-15)
    assert device_hour_price("60 USD/h") * 3600 == pytest.approx(60.0)
    assert device_hour_price("0") == 0.0
