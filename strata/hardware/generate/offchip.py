"""Memory devices and lanes of networks: how many there is room for, and what they carry."""

from __future__ import annotations

import math

from strata.base.arrays import Number, floor_div, namespace
from strata.hardware.components import LinkPhy, Logic, MemoryDevice, OnChipMemory
from strata.hardware.generate.budget import Budget
from strata.hardware.generate.onchip import BuiltLevel, RunningLevel
from strata.hardware.generate.template import THROTTLE, Template, TemplateNetwork
from strata.hardware.generate.voltage import OperatingPoint, run_fewer, run_slower
from strata.hardware.technology import edge_lanes
from strata.params import record


@record
class BuiltMemory:
    """The memory devices of a chip."""

    devices: Number
    by_area: Number  # devices there is room for [1]; infinite where they stand on the board
    by_controller: Number
    by_edge: Number
    edge_pins: Number  # data pins that leave the die's edge; infinite on top
    pins: Number
    capacity: Number  # [B]
    static_power: Number  # [W]
    controller_area: Number  # on the die [m2]


@record
class RunningMemory:
    """The memory devices of a chip at work."""

    point: OperatingPoint
    pin_rate: Number  # [B/s]
    bandwidth: Number  # peak [B/s]
    power: Number  # with that at rest [W]


def device_room(budget: Budget, device: MemoryDevice) -> Number:
    r"""Devices that there is room for: beside the dies in the package, or on top of them.

    .. math:: N = \left\lfloor \frac{A_{node} - A_{die}}{a} \right\rfloor, \quad
        N = \left\lfloor \frac{A_{die}}{a} \right\rfloor \left\lfloor \frac{h}{h_d} \right\rfloor

    footprint of a device a; height over the die h, of a device h_d (one, where either is not stated). On a
    board there is room for any number.

    DeepFlow (2023), eq. 4; devices on top are ours.

    >>> from strata.hardware.components import memory_device
    >>> from strata.hardware.generate.budget import budget
    >>> float(device_room(budget("deepflow-v100"), memory_device("deepflow-hbm2")))
    4.0
    """
    if device.mount in ("board", "on die"):
        return math.inf
    xp = namespace(budget.node_area, budget.die_area, device.area)
    if device.mount == "beside":
        return floor_div(xp.maximum(budget.node_area - budget.die_area, 0.0), device.area)
    sites = floor_div(budget.die_area, device.area)
    if budget.height is None or device.height is None:
        return sites
    return sites * floor_div(budget.height, device.height)


def built_memory(
    room: Number, controllers: Number, edge: Number, device: MemoryDevice, template: Template
) -> BuiltMemory:
    r"""Devices by room, by area for their controllers and by die edge, and their pins.

    .. math:: N = \min\left(N_{room}, \left\lfloor \frac{A_c}{a_c} \right\rfloor,
        \left\lfloor \frac{l \, \rho}{n} \right\rfloor\right), \quad
        p = \min(n N, \lfloor l \, \rho \rfloor)

    area for controllers A_c, of one a_c; edge l [m] with ρ pins a metre; n pins of a device. Devices on top
    need no edge. In the 2021 program the edge bounds only pins.

    DeepFlow (2023), eq. 4.

    >>> from strata.hardware.components import memory_device
    >>> from strata.hardware.generate.template import template
    >>> hbm = memory_device("deepflow-hbm2")
    >>> got = built_memory(4.0, 20.212e-6, 5.70964e-3, hbm, template("deepflow-2021"))
    >>> got.devices, got.pins
    (4.0, 2283.0)
    """
    xp = namespace(room, controllers, edge, device.controller_area, device.pins, device.pins_per_edge)
    some = device.controller_area > 0.0
    by_controller = xp.where(
        some, floor_div(controllers, xp.where(some, device.controller_area, 1.0)), math.inf
    )
    on_edge = device.mount != "on top"
    edge_pins = floor_div(edge * device.pins_per_edge, 1.0) if on_edge else math.inf
    by_edge = floor_div(edge_pins, device.pins) if on_edge else math.inf
    devices = xp.minimum(room, by_controller)
    if template.rules.edge == "devices":
        devices = xp.minimum(devices, by_edge)
    capacity = devices * device.capacity
    return BuiltMemory(
        devices=devices,
        by_area=room,
        by_controller=by_controller,
        by_edge=by_edge,
        edge_pins=edge_pins,
        pins=xp.minimum(devices * device.pins, edge_pins),
        capacity=capacity,
        static_power=device.static_power * capacity,
        controller_area=devices * device.controller_area,
    )


def running_memory(power: Number, built: BuiltMemory, device: MemoryDevice) -> RunningMemory:
    r"""Bandwidth of memory devices under a power budget [B/s].

    .. math:: \beta = p \, r \frac{f}{f_n}, \quad P - P_s = p \, r \, e \frac{f}{f_n}
        \left(\frac{V}{V_n}\right)^2

    p pins of r bytes a second at the nominal voltage; energy of a byte e; P_s at rest. Below the lowest
    voltage the rate falls, above the highest it stays.

    DeepFlow (2023), section 5.

    >>> from strata.hardware.components import memory_device
    >>> from strata.hardware.generate.template import template
    >>> hbm = memory_device("deepflow-hbm2")
    >>> built = built_memory(4.0, 20.212e-6, 57.0964e-3, hbm, template("deepflow-2021"))
    >>> round(float(running_memory(48.0, built, hbm).bandwidth) / 1e9, 2)
    992.86
    """
    xp = namespace(power, built.pins, built.static_power, device.pin_rate)
    switching = xp.maximum(power - built.static_power, 0.0)
    pin = device.access_energy * device.pin_rate
    point = run_slower(switching, built.pins, pin, device, capped=True)
    rate = point.speed * device.pin_rate
    return RunningMemory(
        point=point,
        pin_rate=rate,
        bandwidth=built.pins * rate,
        power=xp.where(built.devices > 0.0, built.static_power + point.power, 0.0),
    )


def on_die_device(component: OnChipMemory, logic: Logic) -> MemoryDevice:
    """A memory of the die as the device of a chip without another: a level's banks have its area and power.

    >>> from strata.hardware.technology import technology
    >>> n7 = technology("n7")
    >>> on_die_device(n7.on_chip[1], n7.logic).mount
    'on die'
    """
    return MemoryDevice(
        name=component.name,
        title=f"{component.kind} of the die",
        kind=component.kind,
        mount="on die",
        access_energy=0.0,
        static_power=0.0,
        capacity=component.bank_capacity,
        area=component.bank_capacity * component.area,
        controller_area=0.0,
        pins=1.0,
        pin_rate=1.0,
        pins_per_edge=1.0,
        voltage=logic.voltage,
        threshold_voltage=logic.threshold_voltage,
        min_voltage=logic.min_voltage,
        max_voltage=logic.max_voltage,
        latency=component.latency,
        price=0.0,
    )


def memory_of_level(level: BuiltLevel) -> BuiltMemory:
    """The banks of a level as the memory of a chip that has no other."""
    return BuiltMemory(
        devices=level.banks,
        by_area=math.inf,
        by_controller=math.inf,
        by_edge=math.inf,
        edge_pins=math.inf,
        pins=level.banks,
        capacity=level.capacity,
        static_power=0.0,
        controller_area=0.0,
    )


def running_memory_of_level(built: BuiltLevel, level: RunningLevel, device: MemoryDevice) -> RunningMemory:
    """What the banks of a level carry, as the memory of a chip that has no other."""
    xp = namespace(built.banks, level.bandwidth)
    rate = level.bandwidth / xp.maximum(built.banks, 1.0)
    point = OperatingPoint(
        count=built.banks, voltage=device.voltage, asked=device.voltage, speed=1.0, power=0.0
    )
    return RunningMemory(point=point, pin_rate=rate, bandwidth=level.bandwidth, power=0.0)


@record
class BuiltLanes:
    """The lanes of a network."""

    lanes: Number
    by_area: Number
    by_edge: Number
    area: Number  # of their PHYs [m2]


@record
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
