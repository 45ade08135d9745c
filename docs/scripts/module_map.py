"""The map of modules, from the first sentence of each docstring, and the map of folders in CONTRIBUTING.md:
`python docs/scripts/module_map.py`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "strata"
# The order of the data flow, each name a level of its own: a module imports from its own level or from one
# that stands before it (tests/test_shape.py). A title, what it is about, and its modules and folders.
PLACES = (
    (
        "Foundations",
        "what everything stands on",
        "base.arrays base.errors base.units base.precision base.shipped base.drawing base.pareto base.expression "
        "base.memo base.reading base.calls base.lazy params base.rich_html base.records base.batch base.stages base",
    ),
    (
        "Hardware",
        "what is built",
        "hardware.components hardware.technology hardware.transport hardware.noc hardware.dram hardware.silicon "
        "hardware.thermal hardware hardware.generate",
    ),
    ("Software", "what runs on it", "software.trainer software"),
    ("Workload", "what must be computed", "workload"),
    ("Mapping", "how it is divided", "mapping"),
    ("The case", "all inputs of an evaluation in one record", "case"),
    (
        "Pricing",
        "what it costs",
        "pricing.price pricing.kernels pricing.network pricing.pricers pricing.overlap pricing",
    ),
    (
        "Evaluation",
        "the one screen, for one case or a box of them",
        "result sharded evaluate one_step roofline",
    ),
    ("Simulation", "the same step as events", "simulate"),
    ("Serving", "what requests see under load", "serving"),
    ("Training", "runs of tokens: days, money, energy, goodput", "training"),
    ("Search", "what to build, and how to divide", "search"),
    ("Optimisation", "exact mappings of any graph", "optimise"),
    ("The package", "what `import strata as st` offers", "strata"),
    (
        "Validation",
        "how wrong it is",
        "validation.readers validation.questions validation.measured validation.fit validation.accuracy validation "
        "measure studies",
    ),
    ("Adapters", "what other tools write, read or do; nothing above imports them", "adapters"),
    ("App", "what people type and see", "app __main__"),
)
HEADING = """# Modules

Written by `python docs/scripts/module_map.py` from the first sentence of each docstring; do not edit this
page. Folders stand in the order of the data flow: a module imports from its own folder or from what stands above it here.
The picture of the whole is in [how it works](how-it-works.md).
"""


BEGIN, END = "<!-- written by docs/scripts/module_map.py -->", "<!-- to here -->"


def module_map() -> str:
    """The page: a section a place, a table a folder, a row a module."""
    known = {path for *_, names in PLACES for path in _paths(names)}
    there = {p for p in PACKAGE.iterdir() if p.suffix == ".py" or _is_folder(p)}
    if there - known:
        missing = ", ".join(sorted(p.name for p in there - known))
        raise SystemExit(f"docs/scripts/module_map.py: no place for {missing}")
    parts = [HEADING]
    for title, about, names in PLACES:
        parts.append(f"## {title}\n\n{about[0].upper()}{about[1:]}.\n")
        modules = [path for path in _paths(names) if path.suffix]
        parts += [_table(modules)] if modules else []
        for folder in filter(_is_folder, _paths(names)):
            parts += [_section(f) for f in (folder, *sorted(filter(_is_folder, folder.rglob("*"))))]
    return "\n".join(parts)


def _paths(names: str) -> list[Path]:
    """Modules and folders of the package that names are of, or within; `strata` is the package's own file."""
    tops = dict.fromkeys(name.split(".")[0] for name in names.split())
    files = [PACKAGE / ("__init__.py" if top == "strata" else f"{top}.py") for top in tops]
    return [path if path.exists() else path.with_suffix("") for path in files]


def _is_folder(path: Path) -> bool:
    return path.is_dir() and (path / "__init__.py").exists()


def _section(folder: Path) -> str:
    modules = [p for p in sorted(folder.glob("*.py")) if p.name != "__init__.py"]
    text = (folder / "__init__.py").read_text(encoding="utf-8")
    holds_code = any(isinstance(n, ast.FunctionDef | ast.ClassDef) for n in ast.parse(text).body)
    rows = _table(([folder / "__init__.py"] if holds_code else []) + modules)
    return f"### {folder.relative_to(PACKAGE.parent).as_posix()}/\n\n{said(text)}\n\n{rows}"


def _table(modules: list[Path]) -> str:
    rows = ["| module | what |", "| --- | --- |"]
    for path in modules:
        link = path.relative_to(PACKAGE.parent).as_posix()
        rows.append(f"| [{path.name}](../{link}) | {said(path.read_text(encoding='utf-8'))} |")
    return "\n".join(rows) + "\n"


def said(text: str) -> str:
    """The first sentence of a module's docstring.

    >>> said('\"\"\"What fits\\na die. And more.\"\"\"')
    'What fits a die.'
    """
    paragraph = " ".join((ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].split())
    ends = (m.end() for m in re.finditer(r"\.(?=\s|$)", paragraph))
    end = next((e for e in ends if paragraph[:e].count("(") == paragraph[:e].count(")")), len(paragraph))
    return paragraph[:end].replace("|", "\\|")


def contributing() -> str:
    """CONTRIBUTING.md with its table of places: a row a place, its folders by their docstrings."""
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = ["| place | what |", "| --- | --- |"]
    for title, about, names in PLACES:
        modules = [f"`{path.stem}`" for path in _paths(names) if path.suffix]
        rows += [f"| {' '.join(modules)} | {title.lower()}: {about} |"] if modules else []
        for folder in filter(_is_folder, _paths(names)):
            rows.append(f"| `{folder.name}/` | {_sentence(folder)} |")
            inner = sorted(filter(_is_folder, folder.iterdir()))
            rows += [f"| `{folder.name}/{f.name}/` | {_sentence(f)} |" for f in inner]
    before, _, rest = text.partition(BEGIN)
    return "\n".join([before + BEGIN, *rows, END]) + rest.partition(END)[2]


def _sentence(folder: Path) -> str:
    return said((folder / "__init__.py").read_text(encoding="utf-8"))


if __name__ == "__main__":
    root = PACKAGE.parent
    (root / "docs" / "modules.md").write_text(module_map(), encoding="utf-8")
    (root / "CONTRIBUTING.md").write_text(contributing(), encoding="utf-8")
