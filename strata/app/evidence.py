"""`strata validate`, `strata measure` and `strata calibrate`: predictions against measurements, and what
follows from them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strata.app.words import names_of, print_json

Data = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="folder of measurements  [default: the project's validation/]"),
]
Json = Annotated[bool, typer.Option("--json", help="print JSON for machines")]


def add_to(app: typer.Typer) -> None:
    """Give an app these commands."""
    app.command(
        short_help="Predictions against measurements.",
        epilog="Example: strata validate --report out/accuracy.html",
    )(validate)
    app.command(
        short_help="Time kernels on the GPU at hand.", epilog="Example: strata measure --out mine --quick"
    )(measure)
    app.command(
        short_help="Fit a chip to its measured kernels.",
        epilog="Example: strata calibrate h200 --only attention --output my-h200.toml",
    )(calibrate)


def validate(
    data: Data = None,
    json: Json = False,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write an HTML page with predicted against measured")
    ] = None,
    pictures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="write a picture (SVG) for each file, and an overview")
    ] = None,
) -> None:
    """Predictions against measurements, file by file and group by group."""
    from rich.console import Console

    from strata.app.accuracy import accuracy_table, default_folder
    from strata.app.cli import say, wrote
    from strata.validation import validate as run

    folder = data or default_folder()
    with Console(stderr=True).status(f"predicting every row below {folder}"):
        outcome = run(folder, keep_points=report is not None or pictures is not None, unseen=data is None)
    points = outcome.pop("points", [])
    if json:
        print_json(outcome)
    else:
        say(accuracy_table(outcome))
    if report:
        from strata.app.report import accuracy_report

        wrote("report", accuracy_report(outcome, points, report))
    if pictures:
        from strata.validation.pictures import draw

        wrote("pictures", pictures, f" ({len(draw(points, pictures))} files)")


def measure(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="folder to write to; rows that are there already are kept")
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND", help="gemm, stream, attention, grouped_gemm or power; several as gemm,stream"
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="few shapes and short readings: about a minute instead of ten")
    ] = False,
    chip: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="the chip this is, or its TOML; it names the folder  [default: from the GPU's name]",
            autocompletion=names_of("chip"),
        ),
    ] = "",
) -> None:
    """Time kernels on the GPU at hand (PyTorch, CUDA graphs) and write the files that calibrate and validate
    read.
    """
    from strata.app.accuracy import measured_lines, run_measure
    from strata.app.cli import say, wrote
    from strata.validation.measure import chosen

    kinds = chosen(only or [])
    folder, done = run_measure(out, kinds, quick, chip)
    say(*measured_lines(folder, done))
    wrote("measurements", folder, f" (next: strata calibrate {chip or folder.name} --data {out})")


def calibrate(
    chip: Annotated[str, typer.Argument(help="the chip to fit: its name, or a TOML path")],
    data: Data = None,
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
    json: Json = False,
) -> None:
    """Fit a few quantities of a chip to its measured kernels; every third point is held out and reported."""
    import datetime

    from strata.app.accuracy import default_folder, fitted_dict, fitted_table
    from strata.app.cli import say, wrote
    from strata.validation.calibrate import as_toml
    from strata.validation.calibrate import calibrate as fit

    made, outcomes = fit(
        chip, data or default_folder(), only=tuple(only or ()), date=datetime.date.today().isoformat()
    )
    if json:
        print_json(fitted_dict(made, outcomes))
    else:
        say(fitted_table(made, outcomes))
    if output:
        base = Path(chip).resolve().as_posix() if chip.endswith(".toml") else made.name
        output.write_text(
            f'base = "{base}"\nname = "{output.stem}"\n\n' + as_toml(made, outcomes), encoding="utf-8"
        )
        wrote("chip", output)
