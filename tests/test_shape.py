"""The shape of the code: import order, sizes, sourced numbers, no print, no chip by name. See docs/ and the
design.
"""

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest

import strata

ROOT = Path(strata.__file__).parent
# A module imports from its own place or from one that stands before it; "strata" itself re-exports up to
# search.
ORDER = [
    {"arrays", "units", "errors", "params", "precision", "drawing"},
    {"hardware"},
    {"workload"},
    {"mapping"},
    {"pricing"},
    {"batch", "stages"},
    {"evaluate"},
    {"choose", "sensitivity"},
    {"optimise"},
    {"serving"},
    {"search"},
    {"strata"},
    {"validation"},
    {"studies"},
    {"app"},
]
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}
PLACEHOLDER = re.compile(
    r"^\W*(todo|tbd|fixme|xxx+|unknown|none|n/?a|source|citation|placeholder|guess|assumed)\W*$", re.I
)

MODULES = sorted(ROOT.rglob("*.py"))
TABLES = sorted((ROOT / "data").rglob("*.toml"))
CONFIGS = sorted((ROOT / "data" / "models").glob("*.json"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}


def label(path):
    return str(path.relative_to(ROOT))


def place(path):
    """The folder or top-level module a file belongs to."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return "strata" if parts == ("__init__",) else parts[0]


def imported(tree):
    """Folders and top-level modules of strata that a module imports, with the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"line {node.lineno}: relative import; write the whole path")
        if isinstance(node, ast.ImportFrom) and node.module == "strata":
            yield from ((a.name if a.name in LEVEL else "strata", node.lineno) for a in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("strata."):
            yield node.module.split(".")[1], node.lineno
        elif isinstance(node, ast.Import):
            yield from (
                ((*a.name.split("."), "strata")[1], node.lineno)
                for a in node.names
                if a.name.split(".")[0] == "strata"
            )


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_modules_import_only_from_what_stands_above_them(path):
    own = place(path)
    assert own in LEVEL, f"{own} has no place in the order of imports; design.md, section 3"
    if own == "strata":
        return
    wrong = [
        f"line {line}: {name}" for name, line in imported(TREES[path]) if LEVEL.get(name, 99) > LEVEL[own]
    ]
    # Foundation modules form one folder, and so does each folder.
    assert not wrong, f"{label(path)} imports from below itself: {wrong}"


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_modules_have_at_most_400_lines(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_functions_have_at_most_60_lines(path):
    functions = [n for n in ast.walk(TREES[path]) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    long = [f"{f.name}: {f.end_lineno - f.lineno + 1}" for f in functions if f.end_lineno - f.lineno + 1 > 60]
    assert not long


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_modules_say_what_they_are(path):
    assert ast.get_docstring(TREES[path])


def unsourced(value, cited, path=""):
    """Numbers of a table that are not the value of a {value, source} pair, and pairs whose source says
    nothing.

    An axis or a tie of a space has one source for all of its choices; its question states what is asked, not
    what is known.
    """
    if isinstance(value, dict) and "source" in value and ("axis." in path or "tie." in path):
        yield from weak_source(value["source"], cited, path)
    elif path == "question":
        return
    elif isinstance(value, dict) and "value" in value:
        if set(value) != {"value", "source"}:
            yield f"{path}: keys {sorted(value)}"
        else:
            yield from weak_source(value["source"], cited, path)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not (path == "" and key == "sources") and key != "process":  # a process is called "7 nm"
                yield from unsourced(inner, cited, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from unsourced(inner, cited, f"{path}.{i}")
    elif not isinstance(value, str) or re.fullmatch(
        r"[-+]?\d[\d.eE+-]*\s*[A-Za-z/%°0-9]{0,9}", value.strip()
    ):
        yield f"{path}: {value!r} stands alone"


def weak_source(source, cited, path):
    if source.startswith("@"):
        key = source[1:].partition(":")[0]
        if key not in cited:
            yield f"{path}: cites '@{key}', which is not under [sources]"
        source = cited.get(key, "")
    reason = source.partition(":")[2] if source.lower().startswith("assumed") else source
    if len(source) < 8 or len(reason.strip()) < 8 or PLACEHOLDER.match(source):
        yield f"{path}: source {source!r} says nothing"


@pytest.mark.parametrize("path", TABLES, ids=label)
def test_every_number_of_a_data_file_has_a_source(path):
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    assert list(unsourced(table, table.get("sources", {}))) == []


def test_the_check_of_sources_finds_what_is_missing():
    for bad in (
        3,
        "3 TB/s",
        {"value": 1},
        {"value": 1, "source": "todo"},
        {"value": 1, "source": "assumed"},
        {"value": 1, "source": "@paper: p. 2"},
    ):
        assert list(unsourced({"a": bad}, {})), bad
    for good in (
        "a name",
        {"value": "1 s", "source": "a paper, p. 3"},
        {"value": 1, "source": "@paper"},
        {"value": 1, "source": "assumed: half of it"},
    ):
        assert not list(unsourced({"a": good}, {"paper": "a paper, p. 2"})), good


@pytest.mark.parametrize("path", CONFIGS, ids=label)
def test_every_model_names_its_sources(path):
    facts = json.loads(path.read_text(encoding="utf-8"))["_strata"]
    for key in ("source", "parameters_source"):
        assert len(facts.get(key, "")) >= 8 and not PLACEHOLDER.match(facts[key]), key


@pytest.mark.parametrize("path", [p for p in MODULES if place(p) != "app"], ids=label)
def test_nothing_prints_outside_the_app(path):
    calls = [
        n.lineno
        for n in ast.walk(TREES[path])
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "print"
    ]
    assert calls == []


def compared_names(tree):
    """Lines where the name of a record (not of an op, a file or a field) is compared with a constant text."""
    harmless = {"op", "path", "file", "f", "field", "target", "p"}

    def by_name(node):
        return (
            isinstance(node, ast.Attribute)
            and node.attr == "name"
            and ast.unparse(node.value).split(".")[-1] not in harmless
        )

    def constant(node):
        return any(
            isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value for n in ast.walk(node)
        )

    for node in ast.walk(tree):
        found = (
            isinstance(node, ast.Attribute)
            and node.attr in ("startswith", "endswith")
            and by_name(node.value)
        )
        if isinstance(node, ast.Match):
            found = by_name(node.subject)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            found = any(by_name(s) for s in sides) and any(constant(s) for s in sides if not by_name(s))
        if found:
            yield node.lineno


@pytest.mark.parametrize("path", [p for p in MODULES if place(p) != "app"], ids=label)
def test_hardware_and_models_are_data_never_recognised_by_name(path):
    assert list(compared_names(TREES[path])) == []


def test_the_check_of_names_finds_them():
    for bad in (
        "chip.name == 'h200'",
        "system.model.name in ('a', 'b')",
        "'h200' != chip.name",
        "chip.name.startswith('h')",
    ):
        assert list(compared_names(ast.parse(bad))) == [1], bad
    for good in ("op.name == 'head'", "chip.name == other.name", "chip.kind == 'gpu'"):
        assert not list(compared_names(ast.parse(good))), good


TEXTS = [
    p
    for p in sorted(ROOT.rglob("*"))
    if p.suffix in (".py", ".toml", ".json", ".md", ".html", ".js", ".css", ".csv")
]


@pytest.mark.parametrize("path", TEXTS, ids=label)
def test_no_file_names_a_private_place(path):
    private = re.compile(
        r"(?<!\w)/work(?![\w-])|(?<!\w)shared/|index-url|artifactory|pypi\.(?!org)|/root/|/home/\w"
    )
    found = [
        f"line {i}: {m.group()}"
        for i, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (m := private.search(text))
    ]
    assert found == []


def equations():
    for path in MODULES:
        if place(path) in ("pricing", "hardware"):
            for node in ast.walk(TREES[path]):
                if isinstance(node, ast.FunctionDef) and ".. math::" in (ast.get_docstring(node) or ""):
                    yield pytest.param(node, id=f"{label(path)}::{node.name}")


@pytest.mark.parametrize("function", list(equations()))
def test_every_equation_has_a_doctest(function):
    assert ">>>" in ast.get_docstring(function)
