"""A generated chip as files that every command takes: the chip, and the fabric its networks make."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from strata.errors import require
from strata.hardware.generate.generate import Generation
from strata.params import Sources
from strata.params.written import as_toml, record_table


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
