"""`strata fabric`: how a fabric is wired, and what that offers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strata.app.commands.options import JsonFlag, TableFile, command, picture, typed
from strata.app.rows_out import answer
from strata.app.terminal import names_of, set_items, wrote
from strata.errors import BadValue
from strata.units import whole

if TYPE_CHECKING:
    from strata.hardware.fabric import Fabric


@command(
    "fabric",
    "How a fabric is wired, and what that offers.",
    "strata fabric hgx-h200 --sizes 8,4 --svg h200.svg",
)
def fabric_command(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="fabric name, or a TOML path", autocompletion=names_of("fabric")),
    ],
    sizes: Annotated[
        str,
        typed(
            "",
            "N,N,...",
            "members of each dimension, innermost first  [default: its own; 4 where it is open]",
        ),
    ] = "",
    set: Annotated[
        list[str] | None,
        typed("--set", "PATH=VALUE", "change a number, as often as needed: infiniband.oversubscription=2"),
    ] = None,
    svg: Annotated[Path | None, picture("write a picture of its topology")] = None,
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """How a fabric is wired: bisection, diameter, hops, links, cost, energy and bounds of collectives, for
    each dimension and in all.
    """
    from strata.app.render.fabric import topology_dict, topology_tables
    from strata.hardware.fabric import fabric as make_fabric
    from strata.hardware.topology import topology

    fabric = make_fabric(name, **set_items(set, "fabric", "infiniband.oversubscription=2"))
    wired = topology(fabric, typed_dimensions(fabric, sizes))
    answer(
        lambda: topology_dict(wired),
        lambda: topology_tables(wired),
        json,
        table,
        lambda told: [*told["dimensions"], told["whole"]],
    )
    if svg:
        from strata.app.render.fabric import draw_fabric

        wrote("picture", draw_fabric(wired, svg))


def typed_dimensions(fabric: Fabric, sizes: str) -> tuple[float, ...] | None:
    """Members of each dimension of a fabric, as typed; None where nothing is."""
    if not sizes:
        return None
    given = tuple(whole(item, "--sizes") for item in sizes.split(","))
    if len(given) > len(fabric.dimension):
        known = ", ".join(d.name for d in fabric.dimension)
        raise BadValue(
            f"--sizes has {len(given)} numbers, but fabric {fabric.name} has {len(fabric.dimension)} "
            f"dimensions: {known}"
        )
    return given
