"""Laws of generated chips: they keep their budgets, more buys no less, a batch equals its singles."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.base.arrays import enable_jax, leaves
from strata.base.errors import BadUnit, BadValue, MissingQuantity, StrataError, UnknownName
from strata.hardware.components import memory_device
from strata.hardware.generate.budget import Budget, budget
from strata.hardware.generate.recipe import generate, generation
from strata.hardware.generate.template import template
from strata.hardware.generate.voltage import clock_ratio, least_voltage, power_ratio, run_fewer, voltage_for
from strata.hardware.technology import technology

NODES = ("n12", "n7", "n5", "n3")
SIZES = st.floats(100.0, 2000.0)  # mm2
POWERS = st.floats(20.0, 2000.0)  # W


def of(die=814.0, power=700.0, room=700.0, **more):
    return Budget(
        name="case", title="a case", die_area=die * 1e-6, node_area=(die + room) * 1e-6, power=power, **more
    )


@given(st.floats(1e-9, 50.0), st.floats(0.0, 2.0))
@settings(max_examples=200, deadline=None)
def test_the_voltage_draws_the_power(power, leakage):
    logic = technology("n5").logic
    found = voltage_for(power, logic, leakage)
    at_threshold = float(power_ratio(logic.threshold_voltage, logic, leakage))
    if power > at_threshold * (1 + 1e-6) + 1e-12:
        assert float(power_ratio(found, logic, leakage)) == pytest.approx(power, rel=1e-9)
    roots = np.roots(cubic(power, logic, leakage))
    real = max(root.real for root in roots if abs(root.imag) < 1e-9)
    assert float(found) == pytest.approx(max(real, logic.threshold_voltage), rel=1e-6)


def cubic(power, logic, leakage):
    low, over = logic.threshold_voltage, logic.voltage - logic.threshold_voltage
    return [1.0, -2 * low, low**2 + leakage * over**2, -power * logic.voltage * over**2]


def test_below_the_least_voltage_an_operation_takes_more_energy():
    logic = technology("n5").logic
    leak = 0.5
    low = float(least_voltage(logic, leak))
    assert low > logic.min_voltage
    energy = [
        float(power_ratio(v, logic, leak) / clock_ratio(v, logic)) for v in (0.95 * low, low, 1.05 * low)
    ]
    assert energy[1] < energy[0] and energy[1] < energy[2]


@given(st.floats(0.01, 100.0), st.floats(0.0, 1.0), st.floats(1.0, 300.0), st.floats(0.0, 1.0))
@settings(max_examples=200, deadline=None)
def test_more_power_or_elements_never_do_less(power, more, count, leakage):
    logic = technology("n5").logic

    def work(p, n):
        point = run_fewer(p, float(int(n)), 0.2, logic, leakage)
        assert float(point.power) <= p * (1 + 1e-9)
        return float(point.count * point.speed)

    assert work(power * (1 + more), count) >= work(power, count) * (1 - 1e-9)
    assert work(power, count * (1 + more)) >= work(power, count) * (1 - 1e-9)


@given(SIZES, POWERS, st.floats(100.0, 1500.0), st.sampled_from(NODES), st.sampled_from(("gpu", "systolic")))
@settings(max_examples=60, deadline=None)
def test_a_generated_chip_keeps_its_budget(die, power, room, node, kind):
    found = generation(node, of(die, power, room), kind)
    if not found.fits:
        assert found.infeasible
        return
    assert found.infeasible == ()
    for parts in found.use.values():
        spent = sum(float(value) for name, value in parts.items() if name != "total")
        assert spent <= float(parts["total"]) * (1 + 1e-9)
    made = found.made
    assert float(made.built.memory.devices * made.device.area) <= room * 1e-6 * (1 + 1e-9)
    assert float(made.running.core.clock) <= float(found.chip.compute.max_clock) * (1 + 1e-9)
    assert float(made.running.core.point.voltage) >= made.logic.min_voltage


@given(SIZES, POWERS, st.floats(1.0, 1.5), st.sampled_from(NODES))
@settings(max_examples=60, deadline=None)
def test_more_power_never_buys_less(die, power, more, node):
    few, many = (generation(node, of(die, p), "gpu").made for p in (power, power * more))
    assert float(many.running.core.rate) >= float(few.running.core.rate) * (1 - 1e-9)
    assert float(many.running.memory.bandwidth) >= float(few.running.memory.bandwidth) * (1 - 1e-9)
    for net, other in zip(many.running.networks, few.running.networks, strict=True):
        assert float(net.bandwidth) >= float(other.bandwidth) * (1 - 1e-9)


@given(st.floats(0.05, 0.3), st.floats(1.0, 1.5))
@settings(max_examples=40, deadline=None)
def test_more_area_or_edge_of_a_component_never_buys_less_of_it(share, more):
    stated = replace(
        budget("deepflow-v100"), area_share={**budget("deepflow-v100").area_share, "core": share}
    )
    wide = replace(stated, area_share={**stated.area_share, "core": share * more})
    corrected = template("deepflow-2021")
    corrected = replace(corrected, rules=type(corrected.rules)(sums="any"))
    few, many = (generation("deepflow-v100", b, corrected).made for b in (stated, wide))
    assert float(many.running.core.rate) >= float(few.running.core.rate) * (1 - 1e-9)
    narrow = replace(stated, perimeter_share={"memory": share, "inter": share})
    broad = replace(stated, perimeter_share={"memory": share * more, "inter": share * more})
    few, many = (generation("deepflow-v100", b, corrected).made for b in (narrow, broad))
    assert many.built.memory.devices >= few.built.memory.devices
    assert float(many.running.networks[1].bandwidth) >= float(few.running.networks[1].bandwidth) * (1 - 1e-9)


def test_a_batch_equals_its_singles():
    dies, powers = np.array([200.0, 500.0, 814.0]), np.array([75.0, 300.0, 700.0, 1200.0])
    grid = of(dies[:, None], powers[None, :])
    batch = generation("n5", grid, "gpu")
    for i, die in enumerate(dies):
        for j, power in enumerate(powers):
            single = generation("n5", of(die, power), "gpu")
            assert batch.fits[i, j] == single.fits
            for many, one in zip(leaves(batch.chip), leaves(single.chip), strict=True):
                there = np.broadcast_to(many, (3, 4))[i, j]
                assert there == pytest.approx(float(one), rel=1e-12)


def test_jax_gives_the_same_chips():
    jax = enable_jax()
    powers = np.linspace(60.0, 1200.0, 7)

    def rates(power):
        made = generation("n5", of(814.0, power), "gpu")
        return made.made.running.core.rate, made.made.running.memory.bandwidth, made.chip.cores_fit

    for traced, plain in zip(jax.jit(rates)(powers), rates(powers), strict=True):
        assert np.asarray(traced) == pytest.approx(np.broadcast_to(plain, (7,)), rel=1e-12)
    slope = jax.grad(lambda p: generation("n5", of(814.0, p), "gpu").made.running.product.rate)(400.0)
    assert np.isfinite(slope) and slope > 0


def test_no_power_is_no_link():
    made = generation("n5", of(perimeter_share=None), "gpu", **{"power_share.inter": 0.0}).made
    assert made.running.networks[0].bandwidth == 0.0
    assert generation("deepflow-p4", "deepflow-p4", "deepflow-p4").made.running.networks[1].bandwidth == 0.0


@pytest.mark.parametrize(
    "budget, what, unit",
    [
        (of(2.0, 700.0), "area of one bundle of units", "m2"),
        (of(814.0, 20.0), "power of one bundle at the lowest voltage", "W"),
        (of(814.0, 700.0, 50.0), "area of one memory device", "m2"),
        (of(814.0, 700.0, money=10.0), "what it costs to make", "USD"),
        (of(814.0, 700.0, devices=0.0), "memory devices allowed", "1"),
        (of(814.0, 0.0), "power of one bundle at the lowest voltage", "W"),
    ],
)
def test_what_cannot_be_built_says_what_binds_and_by_how_much(budget, what, unit):
    found = generation("n5", budget, "gpu")
    assert not found.fits and float(found.chip.cores_fit) == 0.0
    why = next(reason for reason in found.infeasible if reason.what == what)
    assert why.demand > why.limit and why.unit == unit and why.levers
    with pytest.raises(BadValue, match="cannot be built"):
        generate("n5", budget, "gpu")


@pytest.mark.parametrize(
    "changes, error, said",
    [
        ({"power_share.core": 1.5}, BadValue, "power_share is a share and at most 1"),
        ({"power_share.core": 0.8, "power_share.l2": 0.3}, BadValue, "adds up to more than the budget"),
        ({"power_share.l4": 0.1}, UnknownName, "no component for power_share called 'l4'"),
        ({"logic.min_voltage": "0.1 V"}, BadValue, "threshold < lowest <= highest"),
        ({"node_area": "100 mm2"}, BadValue, "a package holds its dies"),
        ({"area_share.core": -0.2}, BadValue, "area_share is a share and at least 0"),
        ({"perimeter_share.memory": 2.0}, BadValue, "perimeter_share is a share and at most 1"),
        ({"template.spare": 1.2}, BadValue, "spare is a share and at most 1"),
        ({"template.delivery": 1.4}, BadValue, "delivery is a share and at most 1"),
        ({"template.max_clock": 0.01}, BadValue, "at least the clock at the lowest voltage"),
        ({"logic.max_voltage": "0.3 V"}, BadValue, "threshold < lowest <= highest"),
        ({"logic.voltage": "0.2 V"}, BadValue, "threshold < nominal"),
        ({"power": "-5 W"}, BadValue, "power must be at least 0"),
        ({"power": "500"}, BadUnit, "measured in W, but got '500' without a unit"),
        ({"power": "fast"}, BadUnit, "a number with a unit"),
        ({"die_area": "0 mm2"}, BadValue, "die_area must be positive"),
        ({"template.dataflow": "xx"}, BadValue, "one of ws, os, as, best"),
        ({"split": "half"}, BadValue, "one of stated, auto"),
        ({"no_such": 1.0}, UnknownName, "no quantity of budget, template, technology or device"),
    ],
)
def test_bad_input_is_one_line(changes, error, said):
    with pytest.raises(error, match=said) as caught:
        generation("n5", of(), "gpu", **changes)
    assert "\n" not in str(caught.value)


def test_a_technology_without_logic_says_so():
    bare = replace(technology("n5"), logic=None)
    with pytest.raises(MissingQuantity, match=r"no \[logic\]"):
        generation(bare, of(), "gpu")
    with pytest.raises(StrataError, match="no memory of technology n5 called"):
        generation(replace(technology("n5"), on_chip=()), of(), "gpu")


def test_memory_on_top_goes_by_die_area_and_height():
    device = replace(memory_device("hbm3e"), mount="on top", height=0.5e-3)
    low, high = (
        generation("n5", of(height=h, perimeter_share=None), "gpu", device=device).made.built.memory
        for h in (0.6e-3, 1.1e-3)
    )
    assert (low.devices, high.devices) == (7.0, 14.0)
    found = generation("n5", of(height=0.4e-3), "gpu", device=device)
    (why,) = found.infeasible
    assert why.what == "height of one memory device on the die"
    assert (why.demand, why.limit, why.unit) == (0.5e-3, 0.4e-3, "m")
    fits = generation("n5", of(height=1.0e-3), "gpu", device=device)
    assert fits.binds["memory"].startswith("area and height over the die for devices")
    # half a millimetre more is one device more on every site
    assert fits.worth(0.5)["height"]["memory B"] == pytest.approx(0.5)


def test_money_is_what_die_package_and_memory_cost():
    cost = generation("n5", of(), "gpu").made.cost
    assert generation("n5", of(money=1.001 * cost), "gpu").fits
    over = generation("n5", of(money=0.9 * cost), "gpu")
    (why,) = over.infeasible
    assert (why.demand, why.limit) == pytest.approx((cost, 0.9 * cost))
    # of a box of dies, those that fit the money
    many = generation("n5", of(np.array([400.0, 814.0, 1600.0]), money=cost), "gpu")
    assert many.fits.tolist() == [1.0, 1.0, 0.0]


@given(POWERS, st.sampled_from(("gpu", "systolic")))
@settings(max_examples=40, deadline=None)
def test_both_turns_keep_the_power(power, kind):
    """A large product, and memory and networks at full rate."""
    found = generation("n5", of(814.0, power), kind)
    if found.fits:
        for turn in ("power", "streaming"):
            spent = sum(float(v) for name, v in found.use[turn].items() if name != "total")
            assert spent <= power * (1 + 1e-9)
    stated = generation("deepflow-v100", "deepflow-v100", "deepflow-2021")
    assert "streaming" not in stated.use  # all at once


def test_units_follow_the_node():
    from strata.hardware.generate.onchip import on_node, unit_area

    build = template("gpu")
    for node in NODES:
        logic = technology(node).logic
        there = on_node(build, logic)
        assert float(unit_area(logic, there)) == pytest.approx(build.unit_area, rel=1e-9)
        assert there.vector_lanes / there.macs**0.5 == pytest.approx(build.vector_lanes / build.macs**0.5)


def test_a_chip_says_what_its_arrays_keep():
    assert generation("n7", "tpu-v4", "systolic").chip.compute.dataflow == "ws"
    assert generation("n5", "h100", "gpu").chip.compute.dataflow == "best"


def test_worth_of_more_follows_the_equations():
    worth = generation("n5", of(power=400.0), "gpu").worth()
    # leakage stays, so that what is left for work grows faster than the power, and the clock more slowly
    assert 0 < worth["power"]["product FLOP/s"] < 0.02
    assert worth["node_area"]["FLOP/s"] == 0.0


def test_every_number_of_a_generated_chip_has_a_source():
    from strata.params import stated

    chip = generation("n5", of(), "gpu").chip
    missing = [path for path in stated(chip) if path not in chip.sources]
    assert missing == []
    assert chip.sources["compute.matrix_rate.bf16"].source.startswith("derived: ")
