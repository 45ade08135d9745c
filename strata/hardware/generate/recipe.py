"""What a chip is generated from, as one record of it: any number of technology, budget, template, memory
device or links may be changed, and the chip follows. generate() is after DeepFlow's architecture generator,
with what it lacks: highest voltages, ports, leakage, units left out where power is short.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from strata.base.arrays import Number, namespace
from strata.base.errors import BadValue, UnknownName, require
from strata.base.records import Infeasible
from strata.base.units import parse
from strata.hardware.chip import Chip, register_maker
from strata.hardware.chip_parts import Generated
from strata.hardware.components import LinkPhy, MemoryDevice, link_phy, memory_device
from strata.hardware.fabric import Fabric
from strata.hardware.generate.budget import Budget
from strata.hardware.generate.budget import budget as read_budget
from strata.hardware.generate.chip_of import chip_of, fabric_of
from strata.hardware.generate.made import Made, make
from strata.hardware.generate.offchip import on_die_device
from strata.hardware.generate.onchip import component_of
from strata.hardware.generate.report import binding, fits_budgets, not_fitting, used, worth_of_more
from strata.hardware.generate.template import Template, skeleton
from strata.hardware.generate.template import template as read_template
from strata.hardware.technology import Technology, rescaled_node
from strata.hardware.technology import technology as read_technology
from strata.params import (
    Param,
    Sources,
    build,
    called,
    leaf_paths,
    load_table,
    of_other_files,
    override,
    record,
    value_at,
    with_value,
    word_paths,
)
from strata.params.records import as_toml, record_table

SHARES = ("area_share", "power_share", "perimeter_share")
# words of a recipe that choose files or the kind of chip: other ones are named where the recipe is read
NAMING = ("budget.device", "budget.link", "template.device", "template.fabric", "template.kernel_model")


@record
class Recipe:
    """Technology, budget, template, memory device and links: all numbers that a chip is generated from."""

    technology: Technology = of_other_files("what its die is made of")
    budget: Budget = of_other_files("what it may take, and how that is split")
    template: Template = of_other_files("what it is built of, before sizes are known")
    device: MemoryDevice = of_other_files("memory off the die")
    links: dict[str, LinkPhy] = of_other_files("links of each network of the template")
    # of a chip's file: what it states itself, which stays, and the networks that join its systems
    own: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()

    def made(self, refuse: bool = True) -> Made:
        """What it makes: counts, voltages, clocks and bandwidths."""
        nets = self.template.networks or ()
        links = tuple(self.links[net.name] for net in nets)
        return make(self.technology, self.budget, self.template, self.device, links, refuse=refuse)


PARTS = tuple(f.name for f in fields(Recipe) if f.metadata)


def recipe(
    technology: str | Technology,
    budget: str | Budget,
    template: str | Template,
    *,
    device: str | MemoryDevice | None = None,
    links: Mapping[str, str | LinkPhy] | None = None,
) -> Recipe:
    """The records of some names; device and links are the budget's or the template's where they are left out.

    >>> recipe("n5", "h100", "gpu").device.name
    'hbm3'
    """
    built = read_template(template) if isinstance(template, str) else template
    limits = read_budget(budget) if isinstance(budget, str) else budget
    die = read_technology(technology) if isinstance(technology, str) else technology
    wanted, chosen = _chosen(limits, built, device, links)
    return Recipe(
        technology=die,
        budget=limits,
        template=built,
        device=_device(wanted, die, built) if isinstance(wanted, str) else wanted,
        links={name: link_phy(link) if isinstance(link, str) else link for name, link in chosen.items()},
    )


def _chosen(
    budget: Budget,
    template: Template,
    device: str | MemoryDevice | None,
    links: Mapping[str, str | LinkPhy] | None,
) -> tuple[str | MemoryDevice, dict[str, str | LinkPhy]]:
    """The device, and the links of each network: as told, else the budget's, else the template's."""
    nets = template.networks or ()
    over: dict[str, str | LinkPhy] = {nets[-1].name: budget.link} if nets and budget.link else {}
    over |= links or {}
    for name in over:
        if name not in [net.name for net in nets]:
            raise UnknownName("network of the template", name, [n.name for n in nets], "see its [[networks]]")
    chosen = {net.name: over.get(net.name) or net.link for net in nets}
    return device or budget.device or template.device, chosen


def _device(name: str, technology: Technology, template: Template) -> MemoryDevice:
    """A memory device by name; that of a level, where a template's memory is its outermost one."""
    last = template.levels[-1]
    if name != last.name or technology.logic is None:
        return memory_device(name)
    return on_die_device(component_of(technology, last), technology.logic)


def changed_recipe(given: Recipe, changes: Mapping[str, Any]) -> tuple[Recipe, dict[str, Param]]:
    """A recipe with some of its quantities replaced, each by its path or by a part that ends it: of the first
    record that has one so called; with where they come from.

    >>> changed_recipe(recipe("n5", "h100", "gpu"), {"power": "500 W"})[1]["budget.power"].value
    500.0
    """
    noted: dict[str, Param] = {}
    known = {**leaf_paths(given), **word_paths(given)}
    wanted = {_whole_path(known, key.replace("__", ".")): value for key, value in changes.items()}
    # the technology first: a memory on the die follows from it
    for path, value in sorted(wanted.items(), key=lambda one: not one[0].startswith("technology.")):
        owner, _, rest = path.partition(".")
        table, _, entry = rest.partition(".")
        if path in NAMING:
            raise BadValue(
                f"{path} names what is read, and is no number of the recipe: change generated.device,"
                " generated.links.NETWORK, or fabric and kernel_model of the chip"
            )
        if owner == "budget" and table in SHARES and entry:
            # a share that the budget leaves out is one that a caller may still state, and none is a share
            share = parse(value, "1", path) if isinstance(value, str) else value
            shares: Any = {**(getattr(given.budget, table) or {}), entry: share}
            given = replace(given, budget=replace(given.budget, **{table: shares}))
            noted[path] = Param(share, "1", "given by the caller")
        elif owner == "technology" and table == "scaling" and entry:
            number = parse(value, "1", path) if isinstance(value, str) else value
            given = replace(given, technology=rescaled_node(given.technology, **{entry: number}))
            noted[path] = Param(number, "1", "given by the caller")
        else:
            given, more = override(given, {path: value}, "budget")
            noted |= more
        if owner == "technology" and given.device.mount == "on die":
            last = given.template.levels[-1].name
            given = replace(given, device=_device(last, given.technology, given.template))
    return given, noted


def _whole_path(known: Mapping[str, Any], path: str) -> str:
    """The path of a quantity of a recipe from its name: shares that a budget leaves out have one, too."""
    head, _, rest = path.partition(".")
    if head in SHARES and rest:
        return f"budget.{path}"
    if head in PARTS and rest:
        if path in known or rest.partition(".")[0] in SHARES:
            return path
        inside = {p: meta for p, meta in known.items() if p.startswith(f"{head}.")}
        found = called(rest, inside)
    else:
        found = next(
            (hits for part in ("budget", "template", "technology", "device", "links")
             if (hits := called(path, {p: m for p, m in known.items() if p.startswith(f"{part}.")}))),
            [],
        )  # fmt: skip
    if not found:
        raise UnknownName("quantity of budget, template, technology or device", path, known)
    if len(found) > 1:
        raise BadValue(f"'{path}' names several quantities: {', '.join(found)}; write the whole path")
    return found[0]


def chip_from_recipe(given: Recipe, made: Made) -> Chip:
    """The chip that a recipe has made; where it does not fit its budgets, or a network that joins its systems
    has no lane, no core does.
    """
    base = given.template.chip
    assert base is not None
    fits = fits_budgets(made)
    for net, running in zip(given.template.networks or (), made.running.networks, strict=True):
        if net.name in given.networks:
            fits = namespace(fits, running.bandwidth).where(running.bandwidth > 0.0, fits, 0.0)
    chip = chip_of(made, fits)
    for path in given.own:
        chip = with_value(chip, path, value_at(base, path))
    joined = fabric_of(made, given.networks) if given.networks else None
    stated = {path: base.sources[path] for path in given.own if path in base.sources}
    return replace(
        chip,
        recipe=given,
        networks=None if joined is None else replace(joined, name=f"{chip.name}-networks"),
        sources=chip.sources.updated(_recipe_sources(given) | stated),
    )


def _recipe_sources(given: Recipe) -> dict[str, Param]:
    """Where the numbers of a recipe come from, by their paths in a chip."""
    records: dict[str, Any] = {name: getattr(given, name) for name in PARTS if name != "links"}
    records |= {f"links.{name}": link for name, link in given.links.items()}
    return {
        f"recipe.{name}.{path}": param
        for name, record in records.items()
        for path, param in record.sources.items()
    }


def why_not(given: Recipe) -> tuple[Infeasible, ...]:
    """Why a single chip cannot be built, with what would help; () where it can."""
    made = given.made(refuse=False)
    found = not_fitting(made)
    if not found:
        both = zip(given.template.networks or (), made.running.networks, strict=True)
        lacks = [net.name for net, run in both if net.name in given.networks and not run.bandwidth > 0.0]
        levers = ("area, power and die edge for it",)
        found = tuple(Infeasible(f"lanes of {name} between chips", 1.0, 0.0, "1", levers) for name in lacks)
    return found


class _FromRecipe:
    """How chips are made whose files name a technology, a budget and a template."""

    def read(self, table: Mapping[str, Any], file: str) -> Chip:
        names, _ = build(Generated, table["generated"], f"{file}: generated")
        found = recipe(names.technology, names.budget, names.template, device=names.device, links=names.links)
        below = load_table("template", names.template).get("chip", {})
        base = skeleton(found.template, below, file, table)
        joining = tuple(names.networks.split())
        for name in joining:
            if name not in found.links:
                raise UnknownName(f"network of template {found.template.name}", name, found.links)
        device, links = _chosen(found.budget, found.template, names.device, names.links)
        names = replace(names, device=device, links=links)
        base = replace(base, generated=names)
        found = replace(
            found,
            template=replace(found.template, chip=base),
            own=tuple(p for p in _own_paths(table) if not p.startswith("generated.")),
            networks=joining,
        )
        return chip_from_recipe(found, found.made())

    def changed(self, chip: Chip, changes: Mapping[str, Any]) -> tuple[Chip, dict[str, Any]]:
        before = chip.recipe
        assert before is not None
        of_recipe = {name: path for name in changes if (path := recipe_path(chip, name.replace("__", ".")))}
        if not of_recipe:
            return chip, dict(changes)
        after, noted = changed_recipe(before, {path: changes[name] for name, path in of_recipe.items()})
        made = chip_from_recipe(after, after.made())
        given = {f"recipe.{path}": param for path, param in noted.items()}
        made = replace(made, sources=made.sources.updated(given))
        return made, {name: value for name, value in changes.items() if name not in of_recipe}


def recipe_path(chip: Chip, name: str) -> str:
    """The path in a chip's recipe of what a name of the chip means; "" where it means a quantity of the chip.

    >>> from strata.hardware.chip import chip
    >>> v100 = chip("deepflow-v100")
    >>> [recipe_path(v100, n) for n in ("recipe.budget.power", "budget.power", "power", "memory.bandwidth")]
    ['budget.power', 'budget.power', 'budget.power', '']
    """
    if chip.recipe is None:
        return ""
    short = name.removeprefix("recipe.")
    if short != name or short.partition(".")[0] in PARTS:
        return short
    hits = called(name, leaf_paths(chip)) or called(name, word_paths(chip))
    inside = bool(hits) and all(hit.startswith("recipe.") for hit in hits)
    return hits[0].removeprefix("recipe.") if inside else ""


def _own_paths(table: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Paths of what a chip's file states: words, quantities, whole lists."""
    for key, value in table.items():
        if isinstance(value, dict) and "value" not in value:
            yield from _own_paths(value, f"{prefix}{key}.")
        else:
            yield prefix + key


register_maker(_FromRecipe())


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
    """The chip of a technology, a budget and a template; refused in one line where it cannot be built.

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
    """A generated chip with the whole account of it; changes replace quantities of what it is generated from.

    >>> made = generation("deepflow-v100", "deepflow-v100", "deepflow-2021").made
    >>> made.running.core.units, made.built.memory.devices, made.built.levels[2].banks
    (643.0, 4.0, 192.0)
    """
    given, _ = changed_recipe(recipe(technology, budget, template, device=device, links=links), changes)
    made = given.made()
    fits = fits_budgets(made)
    return Generation(made=made, chip=chip_of(made, fits), fits=fits)


def write_chip(found: Generation, path: Path) -> list[Path]:
    """Write a chip's file and, where it has networks of its own, their fabric beside it."""
    require(path.suffix == ".toml", "a chip's file ends in .toml", out=str(path))
    chip, joined = found.chip, found.fabric
    written = [path]
    if joined is not None:
        beside = path.with_name(f"{path.stem}-fabric.toml")
        table = record_table(replace(joined, name=beside.stem), Sources())
        for dimension in table["dimension"]:
            for number in dimension.values():
                if isinstance(number, dict):
                    number["source"] = "derived: lanes that fit, at the voltage that the power allows"
        beside.write_text(as_toml(table), encoding="utf-8")
        written.append(beside)
        chip = replace(chip, fabric=beside.name)
    path.write_text(as_toml(record_table(replace(chip, name=path.stem), chip.sources)), encoding="utf-8")
    return written
