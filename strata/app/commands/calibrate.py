"""`strata calibrate`: a chip fitted to its measured kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strata.app.commands.options import JsonFlag, MeasuredFolder, TableFile
from strata.app.rows_out import answer
from strata.app.terminal import (
    wrote,
)


def register_calibrate(app: typer.Typer) -> None:
    """Give an app this command."""
    app.command(
        "calibrate",
        short_help="Fit a chip to its measured kernels.",
        epilog="Example: strata calibrate h200 --only attention --output my-h200.toml",
    )(calibrate_command)


def calibrate_command(
    chip: Annotated[str, typer.Argument(help="the chip to fit: its name, or a TOML path")],
    data: MeasuredFolder = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FAMILY", help="one family of kernels: products, streams, experts, attention ..."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="write the fitted chip as a TOML that starts from the shipped one"),
    ] = None,
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """Fit a few quantities of a chip to its measured kernels; every third point is held out and reported."""
    import datetime

    import tomlkit

    from strata.app.render.accuracy import fitted_dict, fitted_table
    from strata.shipped import shipped_folder
    from strata.validation.fit.calibrate import calibrate
    from strata.validation.fit.overlay import overlay_toml

    fitted_chip, outcomes = calibrate(
        chip,
        data or shipped_folder("validation"),
        only=tuple(only or ()),
        date=datetime.date.today().isoformat(),
    )
    answer(
        lambda: fitted_dict(fitted_chip, outcomes),
        lambda: [fitted_table(fitted_chip, outcomes)],
        json,
        table,
        "families",
    )
    if output:
        base = Path(chip).resolve().as_posix() if chip.endswith(".toml") else fitted_chip.name
        document = tomlkit.document()
        document.update({"base": base, "name": output.stem})
        document.update(tomlkit.parse(overlay_toml(fitted_chip, outcomes)))
        output.write_text(tomlkit.dumps(document), encoding="utf-8")
        wrote("chip", output)
