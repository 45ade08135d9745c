"""The pages of equations, one a topic, from the docstrings of the functions that hold them:
`python docs/scripts/equations.py docs/equations`.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import strata

PACKAGE = Path(strata.__file__).parent
# A page, the folder whose modules it holds (not those of folders inside it), and its title.
TOPICS = (
    ("hardware", "hardware", "Chips, networks on them, fabrics, what they cost"),
    ("dram", "hardware/dram", "DRAM"),
    ("silicon", "hardware/silicon", "Area and energy of silicon"),
    ("thermal", "hardware/thermal", "Heat"),
    ("workload", "workload", "Programs and their graphs"),
    ("adapters", "adapters/huggingface", "Models read from configs"),
    ("mapping", "mapping", "Layouts"),
    ("kernels", "pricing/kernels", "Kernels"),
    ("network", "pricing/network", "Collectives and packets"),
    ("overlap", "pricing/overlap", "Communication beside computation"),
    ("step", "pricing", "A step: pipeline, memory, clock, metrics"),
    ("serving", "serving", "Serving"),
    ("training", "training", "Training: runs, failures, checkpoints, post-training"),
    ("search", "search", "Search"),
    ("design", "../studies/deepflow/design", "Co-design: shares of budgets, slopes"),
    ("deepflow", "../studies/deepflow", "DeepFlow's program of 2021"),
    ("dfmodel", "../studies/dfmodel", "DFModel's studies in its own terms"),
    ("upgrades", "../studies/upgrades", "Which technology pays"),
)
_DIRECTIVE, _ROLE = ".. math::", ":math:`"
# A paragraph that opens with a work and its year, or with an arXiv number, is the source; a year further in
# is only a mention.
_CITES = re.compile(r"arXiv|\((?:[^()]* )?(?:19|20)\d\d\)|\.csv\b")
_OPENING = 120
WRITTEN = (
    "Written by `python docs/scripts/equations.py docs/equations` from the docstrings; do not edit this page."
)
HEADING = f"""# Equations

{WRITTEN} Each entry is one
function: the formula, what its symbols mean, where it comes from, and the file that computes it. Quantities
are SI. Every function takes numbers or arrays. Symbols that recur stand in the
[nomenclature](../nomenclature.md#symbols).

| topic | equations |
| --- | --- |
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


def equations(folder: str) -> list[DocumentedEquation]:
    """Every function in a folder of the package whose docstring holds mathematics, in the order of files."""
    found = []
    for path in sorted((PACKAGE / folder).glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            doc = (ast.get_docstring(node) or "") if isinstance(node, ast.FunctionDef) else ""
            if isinstance(node, ast.FunctionDef) and (_DIRECTIVE in doc or _ROLE in doc):
                file = path.resolve().relative_to(PACKAGE.resolve().parent).as_posix()
                found.append(equation_of(node.name, file, doc))
    return found


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


def equation_pages() -> dict[str, str]:
    """File names and texts: a page a topic, an entry an equation, and an index of all."""
    pages, rows = {}, []
    for name, folder, title in TOPICS:
        found = equations(folder)
        if found:
            pages[f"{name}.md"] = "\n".join([f"# {title}\n", f"{WRITTEN}\n", *map(_entry, found)])
            listed = ", ".join(f"[{e.name}]({name}.md#{e.name})" for e in found)
            rows.append(f"| [{title}]({name}.md) | {listed} |\n")
    return {"index.md": HEADING + "".join(rows), **pages}


def _entry(equation: DocumentedEquation) -> str:
    lines = [f"## {equation.name}", "", equation.title, ""]
    if equation.formula:
        lines += ["```math", equation.formula, "```", ""]
    for paragraph in equation.text:
        lines += [paragraph, ""]
    cited = (
        "named in the text."
        if _CITES.search(" ".join((equation.title, *equation.text)))
        else "none named; it follows from the definitions above."
    )
    lines += [
        f"Source: {equation.source or cited}",
        "",
        f"Code: [{equation.file}](../../{equation.file})",
        "",
    ]
    return "\n".join(lines)


def write_equations(folder: Path) -> None:
    """The pages in a folder, and nothing else there."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = equation_pages()
    for old in folder.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_equations(Path(sys.argv[1] if sys.argv[1:] else "docs/equations"))
