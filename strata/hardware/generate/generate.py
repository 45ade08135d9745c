"""generate(): a chip from technology, budgets and a template. After DeepFlow's architecture generator, with
what it lacks: highest voltages, ports, leakage, units left out where power is short.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from strata.arrays import Number
from strata.errors import BadValue, Infeasible, UnknownName
from strata.hardware.chip import Chip
from strata.hardware.components import LinkPhy, MemoryDevice, link_phy, memory_device
from strata.hardware.fabric import Fabric
from strata.hardware.generate.budget import Budget
from strata.hardware.generate.budget import budget as read_budget
from strata.hardware.generate.chip_of import chip_of, fabric_of
from strata.hardware.generate.made import Made, make
from strata.hardware.generate.offchip import on_die_device
from strata.hardware.generate.onchip import component_of
from strata.hardware.generate.report import binding, fits_budgets, not_fitting, used, worth_of_more
from strata.hardware.generate.template import Template
from strata.hardware.generate.template import template as read_template
from strata.hardware.scaling import rescaled_node
from strata.hardware.technology import Technology
from strata.hardware.technology import technology as read_technology
from strata.params import leaf_paths, override, word_paths
from strata.units import parse


@dataclass(frozen=True, eq=False, kw_only=True)
class Generation:
    """A generated chip with its counts, what it uses of each budget, and what binds it."""

    made: Made
    chip: Chip
    fits: Number  # 1 where everything needed is there and every budget is kept, else 0

    @cached_property
    def fabric(self) -> Fabric | None:
        """The fabric that its networks make, sizes open."""
        return fabric_of(self.made)

    @cached_property
    def use(self) -> dict[str, dict[str, Number]]:
        """What each component uses of area [m2], power [W] and edge [m], with the budgets' totals."""
        return used(self.made)

    @cached_property
    def binds(self) -> dict[str, str]:
        """What keeps each component from more; of a single chip."""
        return binding(self.made)

    @cached_property
    def infeasible(self) -> tuple[Infeasible, ...]:
        """Why it cannot be built, with what would help; of a single chip."""
        return not_fitting(self.made)

    def worth(self, by: float = 0.01) -> dict[str, dict[str, float]]:
        """What a little more of each budget buys: relative gain of each result, by budget."""
        return worth_of_more(self.made, by)


def generate(
    technology: str | Technology,
    budget: str | Budget,
    template: str | Template,
    *,
    device: str | MemoryDevice | None = None,
    links: Mapping[str, str | LinkPhy] | None = None,
    **changes: Any,
) -> Chip:
    """The chip that a technology, a budget and a template make; refused in one line where a single one cannot
    be built.

    >>> v100 = generate("deepflow-v100", "deepflow-v100", "deepflow-2021")
    >>> round(float(v100.compute.matrix_rate["fp16"]) / 1e12)
    125
    """
    found = generation(technology, budget, template, device=device, links=links, **changes)
    if getattr(found.fits, "ndim", 0) == 0 and isinstance(found.fits, (float, int)) and found.infeasible:
        raise BadValue(f"cannot be built: {found.infeasible[0]}")
    return found.chip


def generation(
    technology: str | Technology,
    budget: str | Budget,
    template: str | Template,
    *,
    device: str | MemoryDevice | None = None,
    links: Mapping[str, str | LinkPhy] | None = None,
    **changes: Any,
) -> Generation:
    """A generated chip with the whole account of it; changes replace quantities of budget, template,
    technology or device by name or path.

    >>> made = generation("deepflow-v100", "deepflow-v100", "deepflow-2021").made
    >>> made.running.core.units, made.built.memory.devices, made.built.levels[2].banks
    (643.0, 4.0, 192.0)
    """
    built = read_template(template) if isinstance(template, str) else template
    limits = read_budget(budget) if isinstance(budget, str) else budget
    wanted = device if device is not None else limits.device or built.device
    records: dict[str, Any] = {
        "budget": limits,
        "template": built,
        "technology": read_technology(technology) if isinstance(technology, str) else technology,
    }
    records["device"] = _device(wanted, records["technology"], built) if isinstance(wanted, str) else wanted
    records = changed(records, changes)
    nets = records["template"].networks or ()
    over: dict[str, str | LinkPhy] = {nets[-1].name: limits.link} if nets and limits.link else {}
    over |= links or {}
    for name in over:
        if name not in [net.name for net in nets]:
            raise UnknownName("network of the template", name, [n.name for n in nets], "see its [[networks]]")
    chosen = [over.get(net.name, net.link) for net in nets]
    phys = tuple(link_phy(link) if isinstance(link, str) else link for link in chosen)
    made = make(records["technology"], records["budget"], records["template"], records["device"], phys)
    fits = fits_budgets(made)
    return Generation(made=made, chip=chip_of(made, fits), fits=fits)


def _device(name: str, technology: Technology, template: Template) -> MemoryDevice:
    """A memory device by name; that of a level, where a template's memory is its outermost one."""
    last = template.levels[-1]
    if name != last.name or technology.logic is None:
        return memory_device(name)
    return on_die_device(component_of(technology, last), technology.logic)


def changed(records: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Records with some of their quantities replaced: each goes to the record its first part names, else to
    the first that has a quantity so called.
    """
    for key, value in changes.items():
        path = key.replace("__", ".")
        head, _, rest = path.partition(".")
        if head in records and rest:
            owner, path = head, rest
        else:
            owner = next((name for name, record in records.items() if _has(record, path)), "")
        table, _, entry = path.partition(".")
        if table in ("area_share", "power_share", "perimeter_share") and entry and owner in ("", "budget"):
            # a share that the budget leaves out is one that a caller may still state, and none is a share
            share = parse(value, "1", path) if isinstance(value, str) else value
            shares = {**(getattr(records["budget"], table) or {}), entry: share}
            records = records | {"budget": replace(records["budget"], **{table: shares})}
            continue
        if not owner:
            known = [p for record in records.values() for p in leaf_paths(record)]
            raise UnknownName("quantity of budget, template, technology or device", path, known)
        factor = path.removeprefix("scaling.")
        if owner == "technology" and path == f"scaling.{factor}":
            number = parse(value, "1", path) if isinstance(value, str) else value
            records = records | {owner: rescaled_node(records[owner], **{factor: number})}
            continue
        records = records | {owner: override(records[owner], {path: value}, owner)[0]}
    return records


def _has(record: Any, path: str) -> bool:
    known = (*leaf_paths(record), *word_paths(record))
    return any(p == path or p.endswith("." + path) for p in known)
