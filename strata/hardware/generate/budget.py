"""What a chip may take: area, power, die edge, height, money; and how it is split. A file of `budgets`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from strata.base.arrays import Number, has_axes, highest, leaves, namespace
from strata.base.errors import UnknownName, require
from strata.hardware.components import LinkPhy, Logic, MemoryDevice
from strata.hardware.generate.template import Template, check_template
from strata.hardware.generate.voltage import KNOWN, Supplied
from strata.params import (
    Named,
    by_name,
    check_shipped,
    positive,
    quantity,
    record,
    remembered,
    sourced_record,
    text,
)


@record
class Budget(Named):
    """Limits of one chip with its memory, and their split over its components.

    Shares are by component: `core`, `memory` (controllers on the die, DRAM's power, its part of the edge),
    and the template's levels and networks by name.
    """

    note: str = text("what a reader of these numbers should know", default="")
    die_area: Number = positive("m2", "logic silicon of the chip, all its dies")
    dies: Number | None = quantity("1", "dies it is cut into; left out: one", minimum=1)
    node_area: Number = positive("m2", "dies and the memory beside them: the package")
    power: Number = quantity("W", "power of the chip with its memory")
    perimeter: Number | None = positive("m", "edge of its dies; left out: of square ones")
    height: Number | None = quantity(
        "m", "height over the die for memory on top of it; left out: one device high"
    )
    money: Number | None = quantity("USD", "what it may cost to make")
    devices: Number | None = quantity("1", "most memory devices")
    device: str = text("memory off the die, a file of devices/; left out: the template's", default="")
    link: str = text("links of the outermost network, a file of links/; left out: the template's", default="")
    split: str = text(
        "what becomes of shares that are left out: none, or by the template's rules",
        choices=("stated", "auto"),
        default="auto",
    )
    area_share: dict[str, Number] | None = by_name("1", "share of the die, by component")
    power_share: dict[str, Number] | None = by_name("1", "share of the power, by component")
    perimeter_share: dict[str, Number] | None = by_name("1", "share of the edge, by component")


@remembered
def budget(name: str) -> Budget:
    """A budget by name or TOML path: a file of `budgets`.

    >>> v100 = budget("deepflow-v100")
    >>> float(v100.power), round(float(die_edge(v100)) * 1e3, 2)  # W, mm
    (300.0, 114.19)
    """
    check_shipped("budget", str(name), more="strata list budgets")
    return sourced_record(Budget, "budget", name)


def die_edge(budget: Budget) -> Number:
    r"""Edge of a chip's dies [m]: as stated, else of n square dies of equal size.

    .. math:: l = 4 n \sqrt{A / n}

    >>> from dataclasses import replace
    >>> two = replace(budget("deepflow-v100"), dies=2.0)
    >>> round(float(die_edge(two) / die_edge(budget("deepflow-v100"))), 6)
    1.414214
    """
    if budget.perimeter is not None:
        return budget.perimeter
    dies = 1.0 if budget.dies is None else budget.dies
    return 4.0 * (budget.die_area * dies) ** 0.5


def shared_out(
    stated: Mapping[str, Number] | None, usual: Mapping[str, Number] | None, components: Iterable[str]
) -> dict[str, Number]:
    r"""Share of a budget for each component: as stated, else the usual one, cut alike where they would add up
    to more than what stated ones leave.

    .. math:: s_i = u_i \min\left(1, \frac{1 - \sum_{stated} s}{\sum_{left\ out} u}\right)

    >>> shared_out({"a": 0.5}, {"a": 0.1, "b": 0.6, "c": 0.4}, ("a", "b", "c"))
    {'a': 0.5, 'b': 0.3, 'c': 0.2}
    """
    given, known = dict(stated or {}), dict(usual or {})
    rest = [name for name in components if name not in given]
    wanted = sum((known.get(name, 0.0) for name in rest), 0.0)
    left = 1.0 - sum(given.values(), 0.0)
    xp = namespace(wanted, left)
    some = wanted > 0.0
    cut = xp.where(some, xp.minimum(1.0, xp.maximum(left, 0.0) / xp.where(some, wanted, 1.0)), 1.0)
    return {name: given[name] if name in given else known.get(name, 0.0) * cut for name in components}


def check_shares(budget: Budget, components: Iterable[str], *, sums: bool) -> None:
    """Refuse shares of unknown components, and of a single budget shares above 1, sums above 1 where `sums`
    count, and a die larger than its package; of an array of budgets those do not fit (`keeps_whole`).
    """
    known = tuple(components)
    for what in ("area_share", "power_share", "perimeter_share"):
        shares = getattr(budget, what) or {}
        for name, value in shares.items():
            if name not in known:
                raise UnknownName(f"component for {what}", name, known, ", ".join(known))
            told = {name: _shown(value)}
            require(has_axes(value) or value <= 1, f"{what} is a share and at most 1", **told)
            require(has_axes(value) or value >= 0, f"{what} is a share and at least 0", **told)
        total = sum(shares.values(), 0.0)
        require(
            not sums or has_axes(total) or total <= 1 + 1e-9,
            f"{what} adds up to more than the budget",
            sum=_shown(total),
        )
    require(
        has_axes(budget.die_area - budget.node_area) or bool(budget.die_area <= budget.node_area),
        "a package holds its dies: node_area is at least die_area",
        die_area=f"{_shown(budget.die_area * 1e6)} mm2",
        node_area=f"{_shown(budget.node_area * 1e6)} mm2",
    )


def keeps_whole(budget: Budget, *, sums: bool) -> Number:
    """Whether shares are from 0 to 1, and together where `sums` count, and the package holds its dies.

    >>> from dataclasses import replace
    >>> import numpy as np
    >>> several = replace(budget("deepflow-v100"), area_share={"core": np.array([0.5, 0.7]), "l2": 0.4})
    >>> keeps_whole(several, sums=True).tolist(), keeps_whole(several, sums=False).tolist()
    ([True, False], [True, True])
    """
    ok: Any = budget.die_area <= budget.node_area
    for shares in (budget.area_share, budget.power_share, budget.perimeter_share):
        for value in (shares or {}).values():
            ok = ok & (value >= 0.0) & (value <= 1.0)
        if sums and shares:
            ok = ok & (sum(shares.values(), 0.0) <= 1.0 + 1e-9)
    return ok


def _shown(value: Number) -> str:
    return f"{float(highest(value)):.6g}"


def check_inputs(
    logic: Logic,
    budget: Budget,
    template: Template,
    device: MemoryDevice,
    links: tuple[LinkPhy, ...],
    *,
    names: tuple[str, ...],
) -> None:
    """Refuse shares above 1 and voltages out of order; numbers still being traced are taken as they are."""
    given = leaves((budget, logic, device, template))
    if any(not isinstance(v, KNOWN) for v in given):
        return
    check_template(template)
    check_shares(budget, names, sums=template.rules.sums == "at most 1")
    supplied: list[tuple[str, Supplied]] = [("logic", logic), (device.name, device)]
    supplied += [(link.name, link) for link in links]
    for name, part in supplied:
        low = np.all(np.asarray(part.threshold_voltage) < np.asarray(part.min_voltage))
        high = np.all(np.asarray(part.min_voltage) <= np.asarray(part.max_voltage))
        nominal = np.all(np.asarray(part.threshold_voltage) < np.asarray(part.voltage))
        require(
            bool(low and high and nominal),
            f"{name}: voltages must keep threshold < lowest <= highest and threshold < nominal",
            threshold=part.threshold_voltage,
            lowest=part.min_voltage,
            nominal=part.voltage,
            highest=part.max_voltage,
        )


def power_split(
    total: Number,
    stated: Mapping[str, Number],
    *,
    rest: Number,
    wanted: Mapping[str, Number],
    most: Mapping[str, Number],
    at_rest: Mapping[str, Number],
    weights: Mapping[str, Number],
) -> dict[str, Number]:
    r"""Power of each component [W] where a budget leaves it open: loads come in turn, and each keeps the
    budget.

    .. math::
        P_i = p_i + \frac{e_i}{\sum e} \left(P - P_0 - \sum p\right), \quad P_j = \min(w_j, m_j P)

    i: units and levels on the die in a large product, with p_i at rest and e_i an operation [J/FLOP]: half a
    multiply-add, or the bytes that an operation moves through a level times their energy. Memory takes part
    in the sums, with the few bytes of a product. P_0: what the rest of the die leaks. j: memory and networks
    when all their pins and lanes run, which wants w_j and gets at most the share m_j, and together no more
    than all others at rest leave. Stated shares come first.

    Ours: in a product every component runs out of power at the same rate of operations; datasheets, too,
    state peaks that do not come at once.

    >>> power_split(100.0, {}, rest=10.0, wanted={"memory": 40.0}, most={"memory": 0.3},
    ...             at_rest={"core": 10.0, "l2": 0.0, "memory": 0.0},
    ...             weights={"core": 2.0, "l2": 1.0, "memory": 1.0})
    {'core': 50.0, 'l2': 20.0, 'memory': 30.0}
    """
    xp = namespace(total, rest, *stated.values(), *wanted.values(), *at_rest.values(), *weights.values())
    given = {name: stated[name] * total for name in weights if name in stated and name not in wanted}
    left = xp.maximum(total - rest - sum(given.values(), 0.0), 0.0)
    pool = [name for name in weights if name not in given]
    idle = sum((at_rest[name] for name in pool), 0.0)
    some = idle > 0.0
    kept = xp.where(some, xp.minimum(1.0, left / xp.where(some, idle, 1.0)), 0.0)
    switching = xp.maximum(left - idle, 0.0)
    whole = sum((weights[name] for name in pool), 0.0)
    for name in pool:
        if name not in wanted:
            given[name] = at_rest[name] * kept + switching * (weights[name] / whole)
    asked = {
        name: xp.minimum(want, most.get(name, 1.0) * total)
        for name, want in wanted.items()
        if name not in stated
    }
    given |= {name: stated[name] * total for name in wanted if name in stated}
    others = sum((at_rest[name] for name in at_rest if name not in wanted), 0.0)
    spent = sum((given[name] for name in wanted if name in stated), 0.0)
    room = xp.maximum(total - rest - others - spent, 0.0)
    sum_asked = sum(asked.values(), 0.0)
    some = sum_asked > 0.0
    cut = xp.where(some, xp.minimum(1.0, room / xp.where(some, sum_asked, 1.0)), 1.0)
    return given | {name: want * cut for name, want in asked.items()}


def peak_power(
    total: Number,
    *,
    rest: Number,
    at_rest: Mapping[str, Number],
    weights: Mapping[str, Number],
    busy: Collection[str],
    of: str,
) -> Number:
    r"""Power of a component when only some are busy and all others at rest [W].

    .. math:: P = p_i + \frac{e_i}{\sum_{busy} e} \left(P - P_0 - \sum p\right)

    The load that peaks are quoted for: multiply-adds on operands in registers, without the traffic of a
    product from further memories; a product then runs at the clock that the power leaves it.

    >>> peak_power(100.0, rest=10.0, at_rest={"core": 10.0, "l2": 0.0}, weights={"core": 2.0, "l2": 1.0},
    ...            busy=("core",), of="core")
    90.0
    """
    left = total - rest - sum(at_rest.values(), 0.0)
    xp = namespace(left)
    whole = sum((weights[name] for name in busy), 0.0)
    return at_rest[of] + xp.maximum(left, 0.0) * (weights[of] / whole)
