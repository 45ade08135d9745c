"""Cost and power of the 80 systems DFModel explored, by its own counts; and power and price by throughput."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import strata as st
from dfmodel.linear_parts import linear_link, linear_memory
from dfmodel.power import linear_cost, linear_counts, linear_system_cost, linear_system_power, linear_totals

LOGGED = json.loads((Path(__file__).parents[2] / "data" / "dfmodel" / "systems80.json").read_text())
CHIPS = [st.chip(f"dfmodel-{name}") for name in ("h100", "tpu-v4", "sn30", "wse-2")]
MEMORIES = [linear_memory(f"dfmodel-{name}") for name in ("ddr4", "hbm3")]
LINKS = [linear_link(f"dfmodel-{name}") for name in ("pcie4", "nvlink4")]
KINDS = {
    "2d_torus": ("ring", "ring"),
    "3d_torus": ("ring", "ring", "ring"),
    "dragonfly": ("full", "full"),
    "dgx_1": ("ring", "switch"),
    "dgx_2": ("switch", "switch"),
}
NODES = {"2d_torus": (32, 32), "3d_torus": (8, 8, 16), "dragonfly": (32, 32)}  # DLRM, FFT; 8 x 128 otherwise
SIZES = {
    "LLM": lambda t: (8, 64, 2) if t == "3d_torus" else (8, 128),
    "HPL": lambda t: (4, 8, 32) if t == "3d_torus" else (32, 32),
    "DLRM": lambda t: NODES.get(t, (8, 128)),
    "FFT": lambda t: NODES.get(t, (8, 128)),
}


def column(values, place, axes=3):
    """Values along one axis of (chip, memory, link)."""
    shape = [1] * axes
    shape[place] = len(values)
    return np.array(values).reshape(shape)


@pytest.mark.parametrize("topology", KINDS)
@pytest.mark.parametrize("workload", SIZES)
def test_dfmodel_reference_cost_and_power_of_all_systems(workload, topology):
    sizes, prices = [float(s) for s in SIZES[workload](topology)], linear_cost()
    bandwidth = [column([link.bandwidth for link in LINKS], 2)] * len(sizes)
    energy = [column([link.energy for link in LINKS], 2)] * len(sizes)
    if workload == "LLM":  # NVLink joins the innermost dimension alone
        bandwidth[1:] = [LINKS[0].bandwidth] * (len(sizes) - 1)
        energy[1:] = [LINKS[0].energy] * (len(sizes) - 1)
    counts = linear_counts(KINDS[topology], sizes, bandwidth, energy)
    memory, price = column([m.bandwidth for m in MEMORIES], 1), column([c.package.price for c in CHIPS], 0)
    place, logged = LOGGED["topology"].index(topology), LOGGED[workload]
    cost = linear_system_cost(prices, 1024.0, price, memory, counts.links, counts.ports)
    assert cost == pytest.approx(np.array(logged["cost"])[:, place], rel=1e-6)
    watts = column([c.energy.static_power for c in CHIPS], 0)
    each = column([m.energy for m in MEMORIES], 1)
    power = linear_system_power(prices, 1024.0, watts, memory, each, counts)
    assert power == pytest.approx(np.array(logged["power"])[:, place], rel=1e-6)


def test_dfmodel_reference_a_system_by_name_costs_the_same():
    found = linear_totals("1024xdfmodel-sn30+dfmodel-hbm3+dfmodel-dragonfly+32x32+dfmodel-nvlink4")
    where = (2, LOGGED["topology"].index("dragonfly"), 1, 1)
    assert sum(found.cost.values()) == pytest.approx(np.array(LOGGED["FFT"]["cost"])[where], rel=1e-6)
    assert sum(found.power.values()) == pytest.approx(np.array(LOGGED["FFT"]["power"])[where], rel=1e-6)


def test_small_systems_have_no_switches_and_one_device_no_links():
    one, four, five = (linear_counts(["switch"], [n], [50e9], [0.0]) for n in (1.0, 4.0, 5.0))
    assert (one.links, one.ports, four.ports) == (0.0, 0.0, 0.0)
    assert four.links == 4 * 50e9 and five.ports == 5 * 50e9
    assert linear_counts(["ring"], [8.0], [50e9], [1e-12], copies=8.0).link_power == 0.0


@given(some.floats(2.0, 64.0), some.floats(1e9, 1e12))
def test_more_bandwidth_never_costs_less(size, rate):
    less, more = (
        linear_counts(["full", "full"], [size, 8.0], [r, 50e9], [1e-12] * 2) for r in (rate, 2 * rate)
    )
    assert more.links > less.links and more.ports == less.ports and more.link_power > less.link_power
