"""Folders of the project beside the package: measurements and studies, in a checkout or packed in a wheel.

What only repeats a paper is a package in the folder of studies. Its `OFFERS` says what it adds to tables of
the core: the table, a name, and MODULE:FUNCTION. Nothing of it is loaded before a name is asked for.
Its folder `data` holds chips, links and other records that only it has, in the kinds of `strata/data`.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from strata.base.errors import BadFile, StrataError, UnknownName

PACKED = Path(__file__).parents[1] / "packed"  # where a wheel holds them; see pyproject.toml
# A file that only this project's folder of that name has.
SIGNS = {"validation": "NOTICE.md", "studies": "deepstack-layers/study.toml"}


def shipped_folder(name: str) -> Path:
    """The project's folder of measurements or studies: of checkout, current directory or installed package.

    >>> (shipped_folder("validation") / "h200" / "gemm.csv").is_file()
    True
    """
    for base in (Path(__file__).resolve().parents[2], Path.cwd(), PACKED):
        if (base / name / SIGNS[name]).is_file():
            return base / name
    raise BadFile(f"this installation has no folder of {name}; give the path of one")


def paper(name: str) -> ModuleType:
    """The package of a paper in the folder of studies; `from NAME.MODULE import ...` works from then on.

    >>> paper("dfmodel").__name__
    'dfmodel'
    """
    known = {init.parent.name: init.parent for init in _papers()}
    if name not in known:
        raise UnknownName("paper", name, known, ", ".join(known))
    return _package(known[name])


def _papers() -> list[Path]:
    """The packages of papers, of the checkout or the installed package, never of the current directory."""
    for base in (Path(__file__).resolve().parents[2], PACKED):
        if (base / "studies" / SIGNS["studies"]).is_file():
            return sorted((base / "studies").glob("*/__init__.py"))
    return []


def paper_data() -> list[Path]:
    """The folders of papers' data files, which hold a folder a kind.

    >>> [folder.parent.name for folder in paper_data()][:2]
    ['deepflow', 'deepstack']
    """
    return [init.parent / "data" for init in _papers()]


@cache
def _package(folder: Path) -> ModuleType:
    """Python of a folder as a package that is called like it."""
    name, init = folder.name.replace("-", "_"), folder / "__init__.py"
    if name not in sys.modules:
        spec = spec_from_file_location(name, init, submodule_search_locations=[str(folder)])
        assert spec is not None and spec.loader is not None
        sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    if Path(sys.modules[name].__file__ or "").resolve() != init.resolve():
        raise BadFile(f"{init} cannot be loaded: another package is called {name}")
    return sys.modules[name]


def paper_offers(table: str, own: Path | None = None) -> dict[str, tuple[Path, str]]:
    """What papers, and Python in a study's `own` folder, add to a table: folder and MODULE:FUNCTION by name.

    >>> paper_offers("study runs")["fusion"][1]
    'study_fusion:run_fusion'
    """
    inits = _papers()
    if own is not None and (own / "__init__.py").is_file() and own / "__init__.py" not in inits:
        inits.append(own.resolve() / "__init__.py")
    return {name: (i.parent, where) for i in inits for name, where in _offers(i).get(table, {}).items()}


@cache
def _offers(init: Path) -> dict[str, dict[str, str]]:
    """The literal `OFFERS` of a package, read and not run."""
    try:
        for node in ast.parse(init.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "OFFERS":
                return {str(table): dict(offers) for table, offers in ast.literal_eval(node.value).items()}
    except (SyntaxError, ValueError, TypeError, AttributeError) as error:
        raise BadFile(f"{init}: OFFERS is a table of tables of texts: {error}") from error
    return {}


@cache
def paper_model(table: str, name: str) -> Any:
    """What a paper adds to a table under a name, or None."""
    offer = paper_offers(table).get(name)
    return None if offer is None else plugged(*offer)


def needed_model(table: str, name: str) -> Any:
    """What a paper adds to a table under a name that data asks for."""
    found = paper_model(table, name)
    if found is None:
        raise UnknownName(f"entry of the {table} of papers", name, paper_offers(table))
    return found


def plugged(folder: Path, where: str) -> Any:
    """The function that an offer names: MODULE:FUNCTION of a folder."""
    module, _, name = where.partition(":")
    return getattr(import_module(f"{_package(folder).__name__}.{module}"), name)


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
