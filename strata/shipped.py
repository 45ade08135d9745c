"""Folders of the project beside the package: measurements and studies, in a checkout or packed in a wheel."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from strata.errors import BadFile, StrataError

PACKED = Path(__file__).parent / "packed"  # where a wheel holds them; see pyproject.toml
# A file that only this project's folder of that name has.
SIGNS = {"validation": "NOTICE.md", "studies": "deepstack-layers/study.toml"}


def shipped_folder(name: str) -> Path:
    """The project's folder of measurements or studies: of the checkout, of the current directory, or of the
    installed package.

    >>> (shipped_folder("validation") / "h200" / "gemm.csv").is_file()
    True
    """
    for base in (Path(__file__).resolve().parents[1], Path.cwd(), PACKED):
        if (base / name / SIGNS[name]).is_file():
            return base / name
    raise BadFile(f"this installation has no folder of {name}; give the path of one")


def is_packed(folder: Path) -> bool:
    """Whether a folder belongs to the installed package, where nothing is to be written."""
    return PACKED in folder.resolve().parents


def extra_package(module: str, what: str, extra: str) -> Any:
    """A module that an extra of the project brings; one line tells where it is missing.

    >>> extra_package("json", "this", "plots").__name__
    'json'
    """
    try:
        return import_module(module)
    except ImportError as error:
        if (error.name or "").split(".")[0] != module.split(".", maxsplit=1)[0]:
            raise
        raise StrataError(
            f"{what} needs {module.split('.', maxsplit=1)[0]}: pip install 'strata[{extra}]'"
        ) from None
