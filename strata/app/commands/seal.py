"""`strata seal`: predictions for systems whose results are not public, written once."""

from __future__ import annotations

from pathlib import Path

from strata.app.commands.options import JsonFlag, TableFile, argument, command, option
from strata.app.rows_out import answer
from strata.app.terminal import wrote
from strata.shipped import shipped_folder


@command("seal", "Predictions before results are public, sealed by a hash.", "strata seal announced-2026")
def seal_command(
    name: str = argument(..., "NAME", "name of a TOML of questions in the folder"),
    folder: Path | None = option(None, "DIR", "folder of seals  [default: the project's validation/sealed]"),
    json: JsonFlag = False,
    table: TableFile = None,
) -> None:
    """Predict the questions of NAME.toml and seal the answers as NAME.json: version, inputs, predictions,
    intervals, and a hash over them and the seal before. A seal is never written again.
    """
    from strata.app.render.validated import seal_table
    from strata.validation.accuracy.sealed import write_seal

    path, content = write_seal(folder or shipped_folder("validation") / "sealed", name)
    content.pop("chips")  # their numbers stand in the file
    answer(lambda: content, lambda: [seal_table(content)], json, table, "entries")
    wrote("seal", path)
