"""The map of modules, from the first sentence of each docstring, and the map of folders in CONTRIBUTING.md:
`python docs/scripts/module_map.py`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "strata"
# In the order of the data flow: a title, what it is about, and its top-level modules and folders.
PLACES = (
    (
        "Foundations",
        "what everything stands on",
        "arrays units errors precision reading calls params records rich_html pareto drawing expression shipped lazy memo",
    ),
    ("Hardware", "what is built", "hardware"),
    ("Workload", "what must be computed", "workload"),
    ("Mapping", "how it is divided", "mapping"),
    ("Pricing", "what it costs", "pricing"),
    (
        "Evaluation",
        "the one screen, for one case or a box of them",
        "case batch stages sharded evaluate one_step result roofline",
    ),
    ("Simulation", "the same step as events", "simulate"),
    ("Serving", "what requests see under load", "serving"),
    ("Training", "runs of tokens: days, money, energy, goodput; and post-training", "training"),
    ("Search", "what to build, and how to divide", "search"),
    (
        "Optimisation",
        "exact mappings of any graph; silicon, strategy and model shape chosen together",
        "optimise",
    ),
    ("Validation", "how wrong it is", "validation measure studies"),
    ("Adapters", "what other tools write, read or do; nothing above imports them", "adapters"),
    ("App", "what people type and see", "app"),
    ("The package", "what `import strata as st` and `python -m strata` offer", "__init__ __main__"),
)
HEADING = """# Modules

Written by `python docs/scripts/module_map.py` from the first sentence of each docstring; do not edit this
page. Folders stand in the order of the data flow: a module imports from its own folder or from what stands above it here.
The picture of the whole is in [how it works](how-it-works.md).
"""


BEGIN, END = "<!-- written by docs/scripts/module_map.py -->", "<!-- to here -->"


def module_map() -> str:
    """The page: a section a place, a table a folder, a row a module."""
    known = {name for _, _, names in PLACES for name in names.split()}
    there = {p.stem if p.suffix else p.name for p in PACKAGE.iterdir() if p.suffix == ".py" or _is_folder(p)}
    if there - known:
        raise SystemExit(f"docs/scripts/module_map.py: no place for {', '.join(sorted(there - known))}")
    parts = [HEADING]
    for title, about, names in PLACES:
        found = [name for name in names.split() if name in there]
        if found:
            parts.append(f"## {title}\n\n{about[0].upper()}{about[1:]}.\n")
            modules = [PACKAGE / f"{name}.py" for name in found if (PACKAGE / f"{name}.py").exists()]
            parts += [_table(modules)] if modules else []
            for folder in (PACKAGE / name for name in found if (PACKAGE / name).is_dir()):
                parts += [_section(f) for f in (folder, *sorted(filter(_is_folder, folder.rglob("*"))))]
    return "\n".join(parts)


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
        folders = [PACKAGE / name for name in names.split() if _is_folder(PACKAGE / name)]
        modules = [name for name in names.split() if (PACKAGE / f"{name}.py").exists()]
        if modules:
            rows.append(f"| {' '.join(f'`{name}`' for name in modules)} | {title.lower()}: {about} |")
        for folder in folders:
            inner = [
                f"`{f.name}/` {_sentence(f).rstrip('.')}"
                for f in sorted(filter(_is_folder, folder.iterdir()))
            ]
            rows.append(f"| `{folder.name}/` | {' '.join([_sentence(folder), '; '.join(inner)]).strip()} |")
    before, _, rest = text.partition(BEGIN)
    return "\n".join([before + BEGIN, *rows, END]) + rest.partition(END)[2]


def _sentence(folder: Path) -> str:
    return said((folder / "__init__.py").read_text(encoding="utf-8"))


if __name__ == "__main__":
    root = PACKAGE.parent
    (root / "docs" / "modules.md").write_text(module_map(), encoding="utf-8")
    (root / "CONTRIBUTING.md").write_text(contributing(), encoding="utf-8")
