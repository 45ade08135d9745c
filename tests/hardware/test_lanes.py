"""Lanes by bumps, wires and layers: hand sums, published densities, and laws."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from strata.base.errors import MissingQuantity
from strata.hardware.components import link_phy
from strata.hardware.technology import area_lanes, bonding, edge_bandwidth, edge_lanes, packaging
from strata.params import names

LINK, BOND, PACKAGE = link_phy("interposer"), bonding("interposer"), packaging("cowos")
positive = some.floats(0.1, 10)


def test_by_hand():
    """23 rows of 45 um, 72 % of them data, 1.15 wires a lane, two directions; wires would allow 2,500 a mm."""
    bumps = 23 * 0.72 / 45e-6
    assert edge_lanes(LINK) == pytest.approx(bumps / 2 / 1.15)
    assert bumps < 2 / 0.8e-6
    coarse = replace(PACKAGE, wire_pitch=20e-6, routing_layers=2.0)
    assert edge_lanes(LINK, BOND, coarse) == pytest.approx(2 / 20e-6 / 2 / 1.15)
    assert area_lanes(LINK) == pytest.approx(0.72 / (2 * 1.15 * 45e-6**2))
    assert area_lanes(replace(LINK, lane_area=1e-6)) == pytest.approx(1e6)


@pytest.mark.parametrize(("name", "bond", "package"), [
    ("ucie-advanced", "interposer", "cowos"), ("ucie-standard", "organic", "organic"),
])  # fmt: skip
def test_what_links_state_follows_from_bumps_and_wires(name, bond, package):
    """Rows and shares of these bonds are set by UCIe's published shoreline; both packages leave it room."""
    link = link_phy(name)
    free = replace(link, lanes_per_edge=None)
    implied = edge_lanes(free, bonding(bond), packaging(package))
    assert implied == pytest.approx(link.lanes_per_edge, rel=0.1)


def test_published_shorelines_come_out():
    """UCIe: 224 GB/s/mm and 1.317 TB/s/mm, both directions."""
    assert 2 * edge_bandwidth(link_phy("ucie-standard")) / 1e12 == pytest.approx(224, rel=0.01)
    assert 2 * edge_bandwidth(link_phy("ucie-advanced")) / 1e12 == pytest.approx(1317, rel=0.01)


@given(positive, positive, positive, positive, positive)
def test_finer_and_more_is_never_worse(pitch, wire, layers, rows, wires):
    bond = replace(BOND, pitch=pitch * 45e-6, rows=rows * 20)
    package = replace(PACKAGE, wire_pitch=wire * 1e-6, routing_layers=layers)
    link = replace(LINK, wires_per_lane=wires)
    base = edge_lanes(link, bond, package)
    assert edge_lanes(link, replace(bond, pitch=bond.pitch / 2), package) >= base
    assert edge_lanes(link, bond, replace(package, routing_layers=2 * layers)) >= base
    assert edge_lanes(link, bond, replace(package, wire_pitch=package.wire_pitch / 2)) >= base
    assert edge_lanes(replace(link, wires_per_lane=2 * wires), bond, package) == pytest.approx(base / 2)
    finest = replace(bond, pitch=bond.pitch / 2), replace(package, wire_pitch=package.wire_pitch / 2)
    assert edge_lanes(link, *finest) == pytest.approx(2 * base)


def test_a_batch_is_its_singles():
    pitches = np.array([10e-6, 45e-6, 100e-6])
    box = edge_lanes(LINK, replace(BOND, pitch=pitches), PACKAGE)
    dense = area_lanes(LINK, replace(BOND, pitch=pitches))
    for i, pitch in enumerate(pitches):
        one = replace(BOND, pitch=float(pitch))
        assert box[i] == edge_lanes(LINK, one, PACKAGE) and dense[i] == area_lanes(LINK, one)


def test_what_is_not_known_is_said():
    with pytest.raises(
        MissingQuantity, match="link interposer states neither lanes_per_edge nor its bonding"
    ):
        edge_lanes(replace(LINK, bonding=""))
    with pytest.raises(MissingQuantity, match="package cowos states no wire_pitch"):
        edge_lanes(LINK, BOND, replace(PACKAGE, wire_pitch=None))


@pytest.mark.parametrize("name", names("links"))
def test_every_link_leaves_an_edge(name):
    assert edge_bandwidth(link_phy(name)) > 0 and area_lanes(link_phy(name)) > 0


def test_the_largest_packages():
    """Reticle multiples, and DeepFlow's wafer of 70,000 mm2 as one node."""
    areas = {name: packaging(name).max_area for name in names("packaging")}
    assert areas["si-if"] == pytest.approx(0.07) and areas["cowos"] == pytest.approx(0.0027)
    assert areas["cowos"] < areas["cowos-l"] < areas["wafer"] < areas["si-if"]
