"""Lanes of a network: how many leave the die, and what they carry."""

from __future__ import annotations

import math
from dataclasses import dataclass

from strata.arrays import Number, floor_div, namespace, register_pytree
from strata.hardware.components import LinkPhy
from strata.hardware.generate.template import THROTTLE, Template, TemplateNetwork
from strata.hardware.generate.voltage import OperatingPoint, run_fewer, run_slower
from strata.hardware.lanes import edge_lanes


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class BuiltLanes:
    """The lanes of a network."""

    lanes: Number
    by_area: Number
    by_edge: Number
    area: Number  # of their PHYs [m2]


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class RunningLanes:
    """The lanes of a network at work."""

    point: OperatingPoint
    lanes: Number  # that run
    lane_rate: Number  # [B/s]
    bandwidth: Number  # of the chip into the network, one direction [B/s]
    neighbour: Number  # sustained, to one neighbour [B/s]


def built_lanes(area: Number, edge: Number, link: LinkPhy) -> BuiltLanes:
    r"""Lanes by PHY area and by die edge.

    .. math:: N = \left\lfloor \min\left(\frac{A}{a}, l \, \rho\right) \right\rfloor

    area of a lane a; edge l [m] with ρ lanes a metre (`edge_lanes`). 0 where area or edge is.

    DeepFlow (2023), section 5.

    >>> from strata.hardware.components import link_phy
    >>> float(built_lanes(81.5e-6, 57.0964e-3, link_phy("deepflow-inter")).lanes)
    1141.0
    """
    dense = edge_lanes(link)
    xp = namespace(area, edge, link.lane_area, dense)
    some = link.lane_area > 0.0
    by_area = xp.where(some, floor_div(area, xp.where(some, link.lane_area, 1.0)), math.inf)
    by_edge = floor_div(edge * dense, 1.0)
    lanes = xp.minimum(by_area, by_edge)
    return BuiltLanes(lanes=lanes, by_area=by_area, by_edge=by_edge, area=lanes * link.lane_area)


def running_lanes(
    power: Number, built: BuiltLanes, link: LinkPhy, network: TemplateNetwork, template: Template
) -> RunningLanes:
    r"""Bandwidth of a network under a power budget [B/s]; exactly 0 without power.

    .. math:: \beta = N r \frac{f}{f_n}, \quad \beta_1 = \frac{\eta \, \beta}{d}

    N lanes of r bytes a second at the nominal voltage; to one of d neighbours with the efficiency η.

    DeepFlow (2023), section 5; a highest voltage is ours: without one, clocks rise without end.

    >>> from strata.hardware.components import link_phy
    >>> from strata.hardware.generate.template import template
    >>> build, link = template("deepflow-2021"), link_phy("deepflow-inter")
    >>> built = built_lanes(81.5e-6, 57.0964e-3, link)
    >>> round(float(running_lanes(2.805, built, link, build.networks[1], build).neighbour) / 1e9, 4)
    51.6054
    """
    rules = template.rules
    assert rules is not None
    lane = link.lane_energy * link.lane_rate
    if rules.at_min_voltage == THROTTLE:
        point = run_slower(power, built.lanes, lane, link, capped=rules.voltage_caps == "all")
    else:
        point = run_fewer(power, built.lanes, lane, link)
    rate = point.speed * link.lane_rate
    bandwidth = point.count * rate
    return RunningLanes(
        point=point,
        lanes=point.count,
        lane_rate=rate,
        bandwidth=bandwidth,
        neighbour=bandwidth * network.efficiency / network.degree,
    )
