"""What a system costs by DFModel's prices: its published figures."""

from dataclasses import replace

import pytest

import strata as st
from dfmodel.power import linear_cost, linear_system_cost, linear_totals

# P, chip price, DRAM GB/s, sum of links, sum of ports [GB/s], published cost: DFModel's exploration, LLM on
# H100 with DDR and PCIe links.
DFMODEL = {
    "2d torus": (1024 * 100, (2 * 128 + 2 * 8) * 50, 34_630_400),
    "dragonfly": (8 * 7 * 128 * 50 + 128 * 127 * 50, 128**2 * 50, 56_102_400),
    "3d torus": (1024 * 150, (2 * 64 * 2 + 2 * 8 * 2 + 2 * 8 * 64) * 50, 35_980_800),
    "dgx-1": (1024 * 50 + 128 * 50, (2 * 128 + 128) * 50, 34_675_200),
}


@pytest.mark.parametrize("topology", DFMODEL)
def test_linear_system_cost_is_dfmodels(topology):
    links, ports, published = DFMODEL[topology]
    assert float(
        linear_system_cost(linear_cost(), 1024.0, 33000.0, 300e9, links * 1e9, ports * 1e9)
    ) == pytest.approx(published, rel=1e-9)
    assert float(linear_system_cost(linear_cost(), 1.0, 33000.0, 300e9, 1e12, 1e12)) == pytest.approx(33300)


def test_a_torus_of_ours_costs_what_dfmodels_does():
    links = st.hardware.sized(
        replace(
            st.fabric("torus-256"),
            dimension=tuple(
                replace(d, kind="ring", bandwidth=100e9, links=2.0)
                for d in st.fabric("torus-256").dimension[:2]
            ),
        ),
        (8.0, 128.0),
    )
    found = linear_totals(
        st.system(st.chip("h100", **{"package.price": 33000.0, "memory.bandwidth": 300e9}), links)
    )
    assert sum(found.cost.values()) == pytest.approx(DFMODEL["2d torus"][2]) and float(found.devices) == 1024
