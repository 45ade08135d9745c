"""`strata generate`: a chip from technology, budgets and a template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from strata.app.commands.options import JsonFlag, TableFile, command, option, picture
from strata.app.rows_out import answer, quantity_rows
from strata.app.terminal import names_of, set_items, wrote
from strata.errors import BadValue, require


@command(
    "generate",
    "A chip from technology, budgets and a template.",
    "strata generate --technology n5 --budget h100 --template gpu --device hbm3e "
    "--set power=500W --out chip.toml",
)
def generate_command(
    technology: str = option(..., "NAME", "node or library, or a TOML path", names_of("technologies")),
    budget: str = option(..., "NAME", "area, power and their split, or a TOML path", names_of("budget")),
    template: str = option(
        "gpu", "NAME", "units, levels of memory and networks, or a TOML path", names_of("template")
    ),
    device: str = option(
        "", "NAME", "memory devices, or a TOML path  [default: the template's]", names_of("device")
    ),
    link: list[str] | None = option(None, "NETWORK=NAME", "links of a network: inter=nvlink5"),
    set: list[str] | None = option(
        None,
        "PATH=VALUE",
        "change a number of budget, template, technology or device: power=500W, area_share.l2=0.2",
    ),
    out: Path | None = option(None, "FILE", "write the chip, and the fabric of its networks beside it"),
    svg: Path | None = picture("write a picture: area and power by component"),
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """What fits a die and its package, how fast its power lets it run, what binds, what more would buy."""
    from strata.app.render.generation import draw_generation, generation_dict, generation_tables
    from strata.hardware.generate.generate import generation, write_chip

    if out is not None:
        require(out.suffix == ".toml", "a chip's file ends in .toml", out=str(out))
    changes: dict[str, Any] = dict(set_items(set, "budget", "power=500W", generation))
    found = generation(
        technology, budget, template, device=device or None, links=typed_links(link), **changes
    )
    if found.infeasible and not json:
        raise BadValue(f"cannot be built: {found.infeasible[0]}")
    answer(lambda: generation_dict(found), lambda: generation_tables(found), json, table, quantity_rows)
    if out:
        for path in write_chip(found, out):
            wrote("file", path)
    if svg:
        wrote("picture", draw_generation(found, svg))


def typed_links(items: list[str] | None) -> dict[str, str]:
    """`--link` items: the links of each network.

    >>> typed_links(["inter=nvlink5"])
    {'inter': 'nvlink5'}
    """
    chosen = {}
    for item in items or []:
        network, _, name = item.partition("=")
        if not (network.strip() and name.strip()):
            raise BadValue(f"--link takes NETWORK=NAME, like inter=nvlink5, but got '{item}'")
        chosen[network.strip()] = name.strip()
    return chosen
