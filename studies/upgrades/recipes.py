"""Recipes of generated systems: the parts a package and its network are made of, and the system they make,
at stated numbers or drawn within their spans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from strata.base.arrays import map_leaves
from strata.base.errors import BadValue, UnknownName, require
from strata.hardware.components import link_phy, memory_device
from strata.hardware.fabric import Fabric, fabric, sized
from strata.hardware.generate.budget import budget
from strata.hardware.generate.made import generated_cost
from strata.hardware.generate.recipe import Generation, generation
from strata.hardware.generate.template import template
from strata.hardware.money import Economics, dimension_price, economics
from strata.hardware.system import System
from strata.hardware.technology import bonding, packaging, technology
from strata.params import override, value_at, with_value
from upgrades.spans import Draws, SpanTable, drawn_within

# Parts of a recipe, and how each is read by name or TOML path.
PARTS: dict[str, Callable[[str], Any]] = {
    "technology": technology,
    "budget": budget,
    "template": template,
    "device": memory_device,
    "link": link_phy,
    "bonding": bonding,
    "packaging": packaging,
    "fabric": fabric,
    "economics": economics,
}


@dataclass(frozen=True, kw_only=True)
class SystemRecipe:
    """What a system is made of: files of `PARTS`, numbers of them that are set or multiplied, packages that
    one network of switches joins (`domain`), and packages over those of the base (`packages`).

    The fabric's first dimension holds what that network costs beside its lanes.
    """

    name: str
    title: str
    parts: dict[str, str]
    kind: str = ""  # what an upgrade is of: node, memory, package, link
    set: dict[str, Any] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    domain: float = 64.0
    packages: float = 1.0

    def with_(self, upgrade: Mapping[str, Any], name: str = "", title: str = "") -> SystemRecipe:
        """This recipe with parts, `set`, `times`, `domain` and `packages` of an upgrade."""
        known = (*PARTS, "name", "title", "kind", "set", "times", "domain", "packages", "why")
        for key in upgrade:
            if key not in known:
                raise UnknownName("part of a recipe", key, known, ", ".join(known))
        return SystemRecipe(
            name=name or str(upgrade.get("name", self.name)),
            title=title or str(upgrade.get("title", self.title)),
            kind=str(upgrade.get("kind", self.kind)),
            parts=self.parts | {k: str(v) for k, v in upgrade.items() if k in PARTS},
            set=self.set | dict(upgrade.get("set", {})),
            times=self.times | dict(upgrade.get("times", {})),
            domain=float(upgrade.get("domain", self.domain)),
            packages=float(upgrade.get("packages", self.packages)),
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class MadeSystem:
    """A recipe's chip, the fabric between its packages (sizes open) and what owning it costs."""

    recipe: SystemRecipe
    generation: Generation
    fabric: Fabric
    economics: Economics

    def system(self, packages: float) -> System:
        """So many packages of the base as a system of this recipe."""
        count = round(packages * self.recipe.packages)
        inner = min(self.recipe.domain, count)
        require(count % inner == 0, "packages fill whole domains", packages=count, domain=inner)
        joined = sized(self.fabric, (inner, count / inner))
        return System(f"{count}x{self.recipe.name}", self.generation.chip, joined)


def made_system(
    recipe: SystemRecipe,
    base: SystemRecipe | None = None,
    spans: SpanTable | None = None,
    draws: Draws | None = None,
) -> MadeSystem:
    """The chip and the network of a recipe; with spans and draws, as many of them as there are samples, along
    a first axis of two.
    """
    records = {role: PARTS[role](name) for role, name in recipe.parts.items()}
    require(
        set(records) == set(PARTS), f"a recipe names {', '.join(PARTS)}", missing=set(PARTS) - set(records)
    )
    records = _changed(records, recipe)
    if spans is not None and draws is not None:
        start = base or recipe
        changes = {**recipe.set, **recipe.times}
        for role, record in records.items():
            other = recipe.parts[role] != start.parts[role]
            moved = (
                None
                if other
                else [p.removeprefix(f"{role}.") for p in changes if p not in {**start.set, **start.times}]
            )
            records[role] = _along(drawn_within(record, role, spans, draws, own=recipe.name, moved=moved))
    nets: tuple[Any, ...] = records["template"].networks or ()
    require(len(nets) == 1, "a recipe's template has one network, of its link", networks=len(nets))
    made = generation(
        records["technology"],
        records["budget"],
        records["template"],
        device=records["device"],
        links={nets[0].name: records["link"]},
    )
    cost = generated_cost(made.made, records["bonding"], records["packaging"])
    if cost is None:
        raise BadValue(f"{recipe.title}: the process and the memory device of a recipe have prices")
    chip = made.chip
    priced = replace(chip, package=replace(chip.package, price=cost * records["economics"].markup))
    return MadeSystem(
        recipe=recipe,
        generation=replace(made, chip=priced),
        fabric=_joined(records["fabric"], made, records["economics"]),
        economics=records["economics"],
    )


def _changed(records: dict[str, Any], recipe: SystemRecipe) -> dict[str, Any]:
    """Records with the recipe's own numbers: first those that are set, then those that are multiplied."""
    for path, value in recipe.set.items():
        role, _, inner = path.partition(".")
        require(role in records, "a recipe sets numbers of its parts", path=path)
        records[role] = override(records[role], {inner: value}, role)[0]
    for path, factor in recipe.times.items():
        role, _, inner = path.partition(".")
        require(role in records, "a recipe multiplies numbers of its parts", path=path)
        records[role] = with_value(records[role], inner, value_at(records[role], inner) * factor)
    return records


def _along(record: Any) -> Any:
    """A record whose arrays are the first axis of two: the second is left for plans."""
    return map_leaves(lambda v: np.asarray(v)[:, None] if np.ndim(v) == 1 else v, record)


def _joined(stated: Fabric, made: Generation, money: Economics) -> Fabric:
    """The fabric whose first dimension is the chip's own network."""
    link, lanes = made.made.links[0], made.made.running.networks[0]
    own, first = made.fabric, stated.dimension[0]
    if own is None:
        raise BadValue(f"no lane of {link.name} fits the chip's edge, area and power")
    price = lanes.lanes * (0.0 if link.price is None else link.price)
    joined = dimension_price(first, money)
    inner = replace(
        first,
        bandwidth=own.dimension[0].bandwidth,
        latency=first.latency + link.latency,
        energy=first.energy + own.dimension[0].energy,
        price=price + (0.0 if joined is None else joined),
    )
    return replace(stated, dimension=(inner, *stated.dimension[1:]))
