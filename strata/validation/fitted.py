"""`python -m strata.validation.fitted`: fit the shipped chips, transports and engines to the project's data
anew.

Writes data/calibration/, and the fitted quantities of data/engines/.

Chips of the same make that have no rows of their own take a sibling's quantities, and say that this is
assumed.
"""

from __future__ import annotations

import datetime
import re
from pathlib import Path

from strata.params import data_folder
from strata.validation import transports
from strata.validation.calibrate import as_toml, calibrate
from strata.validation.engines import write_engines

TRANSPORTS = ("nvlink3", "nvlink4", "nvlink5")
MEASURED = ("h200", "a100-80", "b200")
SIBLINGS = {
    "h100": ("h200", "the same GH100 die"),
    "gb200": ("b200", "the same Blackwell dies"),
    "gb300": ("b200", "the next stepping of the Blackwell dies"),
}
HEAD = "# Laid over the chip's own file. Written by `python -m strata.validation.fitted`.\n\n"


def assumed(text: str, sibling: str, why: str) -> str:
    """A sibling's fitted file as assumptions: the same values, their source saying whose they are."""
    return re.sub(r'source = "fitted: [^"]*"', f'source = "assumed: as fitted on {sibling}, {why}"', text)


def write(folder: Path, date: str) -> None:
    """Fit every chip that has rows below the folder and write what was found."""
    target = data_folder("calibration")
    target.mkdir(exist_ok=True)
    for old in target.glob("*.toml"):
        old.unlink()  # a fit starts from the datasheet and what we assumed, not from the last fit
    made = {name: as_toml(*calibrate(name, folder, date=date)) for name in MEASURED}
    for name, text in made.items():
        (target / f"{name}.toml").write_text(HEAD + text, encoding="utf-8")
    for name, (sibling, why) in SIBLINGS.items():
        (target / f"{name}.toml").write_text(HEAD + assumed(made[sibling], sibling, why), encoding="utf-8")
    write_transports(folder, date)
    write_engines(folder, date)


def write_transports(folder: Path, date: str) -> None:
    """Fit every transport that has rows below the folder and write what was found."""
    target = data_folder("calibration")
    for name in TRANSPORTS:
        file = target / f"{name}.toml"
        file.unlink(missing_ok=True)
        made, outcomes = transports.calibrate_transport(name, folder, date=date)
        file.write_text(
            HEAD.replace("chip", "transport") + transports.as_toml(made, outcomes), encoding="utf-8"
        )


if __name__ == "__main__":
    write(Path("validation"), datetime.date.today().isoformat())
