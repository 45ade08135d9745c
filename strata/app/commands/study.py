"""`strata study`: repeat a published study, claim by claim."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from strata.app.commands.options import JsonFlag, TableFile, command, flag, typed
from strata.app.rows_out import answer
from strata.app.terminal import (
    wrote,
)


def _study_names(incomplete: str) -> list[str]:
    from strata.studies import study_names

    return [n for n in study_names() if n.startswith(incomplete)]


@command(
    "study",
    "Repeat a published study, claim by claim.",
    "strata study deepstack-layers --report out/layers.html",
)
def study_command(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NAME]",
            help="a study, or the path of its folder; left out: all there are",
            autocompletion=_study_names,
        ),
    ] = "",
    json: JsonFlag = False,
    table: TableFile = None,
    report: Annotated[Path | None, typed("", "FILE", "write an HTML page with pictures")] = None,
    write: Annotated[
        bool, flag("--write", "keep what was found, and the pictures, in the study's folder")
    ] = False,
) -> None:
    """Repeat a published study: for each claim what the paper says, what we get, and whether it holds."""
    from rich.console import Console

    from strata import studies
    from strata.app.render.study import claims_table, studies_table, study_dict

    if not name:
        known = {n: studies.study(n).title for n in studies.study_names()}
        answer(
            lambda: known,
            lambda: [studies_table(known)],
            json,
            table,
            lambda told: [{"study": n, "title": title} for n, title in told.items()],
        )
        return
    with Console(stderr=True).status(f"running study {name}"):
        outcome = studies.run_study(name)
    answer(lambda: study_dict(outcome), lambda: [claims_table(outcome)], json, table, "claims")
    if write:
        from strata.app.render.study import draw_study

        wrote("result", studies.store_result(outcome))
        drawn = draw_study(outcome, outcome.study.folder)
        wrote("pictures", outcome.study.folder, f" ({len(drawn)} files)")
    if report:
        from strata.app.render.study import study_report

        wrote("report", study_report(outcome, report))
