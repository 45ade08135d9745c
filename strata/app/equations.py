"""The page of equations, from the docstrings of the functions that hold them: `python -m strata.app.equations
> docs/equations.md`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import strata

FOLDERS = ("hardware", "workload", "mapping", "pricing", "serving")
_DIRECTIVE, _ROLE = ".. math::", ":math:`"
# A paragraph that opens with a work and its year, or with an arXiv number, is the source; a year further in
# is only a mention.
_CITES = re.compile(r"arXiv|\((?:[^()]* )?(?:19|20)\d\d\)|\.csv\b")
_OPENING = 120
HEADING = """# Equations

Written by `python -m strata.app.equations` from the docstrings; do not edit this page. Each entry is one
function: the formula, what its symbols mean, where it comes from, and the file that computes it. Quantities
are SI. Every function takes numbers or arrays.
"""


@dataclass(frozen=True)
class DocumentedEquation:
    """One function with its formula, as its docstring tells it."""

    name: str
    file: str
    title: str
    formula: str
    text: tuple[str, ...]
    source: str


def equation_modules() -> Iterator[ModuleType]:
    """The modules that hold equations, in the order of the data flow, then by name."""
    for folder in FOLDERS:
        package = importlib.import_module(f"strata.{folder}")
        for module in sorted(
            pkgutil.walk_packages(package.__path__, f"strata.{folder}."), key=lambda m: m.name
        ):
            yield importlib.import_module(module.name)


def equations() -> list[DocumentedEquation]:
    """Every function of those modules whose docstring holds mathematics, in the order of the file."""
    listed = []
    for module in equation_modules():
        own = [f for f in vars(module).values() if inspect.isfunction(f) and f.__module__ == module.__name__]
        for function in sorted(own, key=lambda f: f.__code__.co_firstlineno):
            doc = inspect.getdoc(function) or ""
            if _DIRECTIVE in doc or _ROLE in doc:
                file = Path(inspect.getfile(function)).relative_to(Path(strata.__file__).parent).as_posix()
                listed.append(equation_of(function.__name__, f"strata/{file}", doc))
    return listed


def equation_of(name: str, file: str, doc: str) -> DocumentedEquation:
    r"""The parts of a docstring: first sentence, formula, text, source. Doctests are left out.

    >>> doc = "Half.\n\n.. math:: y = x / 2\n\nx [m].\n\nEuclid, Elements (1956), book I.\n\n>>> 1"
    >>> equation_of("half", "a.py", doc).source
    'Euclid, Elements (1956), book I.'
    """
    formula: list[str] = []
    text: list[str] = []
    for paragraph in re.split(r"\n\s*\n", doc.partition(">>>")[0].strip()):
        if paragraph.startswith(_DIRECTIVE):
            lines = [line.strip() for line in paragraph[len(_DIRECTIVE) :].splitlines()]
            formula.append("\n".join(line for line in lines if line))
        else:
            text.append(re.sub(r":math:`([^`]*)`", r"$\1$", " ".join(paragraph.split())))
    title, *rest = text
    source = rest.pop() if rest and _is_source(rest) else ""
    return DocumentedEquation(name, file, title, "\n".join(formula), tuple(rest), source)


def _is_source(paragraphs: list[str]) -> bool:
    return bool(_CITES.search(paragraphs[-1][:_OPENING])) or (
        len(paragraphs) > 1 and not _CITES.search(" ".join(paragraphs))
    )


def equations_page(listed: list[DocumentedEquation]) -> str:
    """The page: a section a folder, an entry an equation."""
    parts = [HEADING]
    for folder in FOLDERS:
        mine = [e for e in listed if e.file.startswith(f"strata/{folder}/")]
        if mine:
            parts.append(f"## {folder.capitalize()}\n")
            parts += [_entry(e) for e in mine]
    return "\n".join(parts)


def _entry(equation: DocumentedEquation) -> str:
    lines = [f"### {equation.name}", "", equation.title, ""]
    if equation.formula:
        lines += ["```math", equation.formula, "```", ""]
    for paragraph in equation.text:
        lines += [paragraph, ""]
    cited = (
        "named in the text."
        if _CITES.search(" ".join((equation.title, *equation.text)))
        else "none named; it follows from the definitions above."
    )
    lines += [f"Source: {equation.source or cited}", "", f"Code: [{equation.file}](../{equation.file})", ""]
    return "\n".join(lines)


def print_page() -> None:
    """The page on stdout."""
    sys.stdout.write(equations_page(equations()))


if __name__ == "__main__":
    print_page()
