"""The shape of the code: import order, sizes, sourced numbers, no print, no chip by name. See docs/ and the
design.
"""

import ast
import json
import re
import runpy
import tomllib
from functools import cache
from pathlib import Path

import strata
from strata.params import data_folders

ROOT = Path(strata.__file__).parent
# The folders are the data flow: a module imports from its own level or from one that stands before it; "strata"
# itself re-exports up to optimise.
PLACES = runpy.run_path(str(ROOT.parent / "docs" / "scripts" / "module_map.py"))["PLACES"]
ORDER = [name for *_, names in PLACES for name in names.split()]
LEVEL = {name: level for level, name in enumerate(ORDER)}
PLACEHOLDER = re.compile(
    r"^\W*(todo|tbd|fixme|xxx+|unknown|none|n/?a|source|citation|placeholder|guess|assumed)\W*$", re.I
)

MODULES = sorted(ROOT.rglob("*.py"))
PAPERS = [p for p in sorted((ROOT.parent / "studies").rglob("*.py")) if not p.name.startswith("test_")]
TABLES = [p for folder in data_folders("") for p in sorted(folder.rglob("*.toml"))]
CONFIGS = sorted((ROOT / "data" / "models").glob("*.json"))
TEXTS = [
    p
    for p in (*sorted(ROOT.rglob("*")), *TABLES)
    if p.suffix in (".py", ".toml", ".json", ".md", ".html", ".js", ".css", ".csv")
]


@cache
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path):
    return list(ast.walk(tree(path)))


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def wrong(check, paths=MODULES):
    """What a check finds in each file, of the files in which it finds something."""
    return {label(path): found for path in paths if (found := list(check(path)))}


def label(path):
    return str(path.relative_to(ROOT if ROOT in path.parents else ROOT.parent))


def level(name):
    """The place of a module in the data flow, by the longest known beginning of its path without `strata.`."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in LEVEL:
            return LEVEL[".".join(parts[:length])]
    raise AssertionError(f"{name} has no place in the order of imports; docs/design.md")


def module(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "strata"


def place(path):
    """The folder or top-level module a file belongs to."""
    return module(path).split(".")[0]


def imported(tree):
    """Modules of strata that a module imports, with the line; what is imported for type checkers alone does not count."""
    typed = {
        n
        for i in ast.walk(tree)
        if isinstance(i, ast.If) and "TYPE_CHECKING" in ast.unparse(i.test)
        for n in ast.walk(i)
    }
    for node in ast.walk(tree):
        if node in typed:
            continue
        if isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"line {node.lineno}: relative import; write the whole path")
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "strata":
            base = node.module.removeprefix("strata").removeprefix(".")
            for a in node.names:
                whole = f"{base}.{a.name}" if base else a.name
                inner = ROOT.joinpath(*whole.split("."))
                yield (
                    (whole if inner.with_suffix(".py").exists() or inner.is_dir() else base or "strata"),
                    node.lineno,
                )
        elif isinstance(node, ast.Import):
            yield from (
                (a.name.removeprefix("strata.") or "strata", node.lineno)
                for a in node.names
                if a.name.split(".")[0] == "strata"
            )


def test_modules_import_only_from_what_stands_above_them():
    def from_below(path):
        own = module(path)
        if own != "strata":
            for name, line in imported(tree(path)):
                if level(name) > level(own):
                    yield f"line {line}: {name}"

    assert wrong(from_below) == {}


def test_lines_have_at_most_110_columns():
    def wide(path):
        # formulas of a docstring are one line of LaTeX each
        return [i for i, line in enumerate(lines(path), 1) if len(line) > 110 and "\\" not in line]

    assert wrong(wide, MODULES + PAPERS) == {}


def test_no_public_name_stands_in_two_modules():
    """A class or function of one name means one thing; `main` is what a module does when it is run."""
    found = {}
    for path in MODULES + PAPERS:
        for node in tree(path).body:
            if (
                isinstance(node, ast.ClassDef | ast.FunctionDef)
                and not node.name.startswith("_")
                and node.name != "main"
            ):
                found.setdefault(node.name, []).append(label(path))
    assert {name: where for name, where in found.items() if len(where) > 1} == {}


def test_no_call_has_more_than_eight_positional_arguments():
    def long(path):
        return [n.lineno for n in nodes(path) if isinstance(n, ast.Call) and len(n.args) > 8]

    assert wrong(long) == {}


OPS = {
    "Op",
    "MatMul",
    "ExpertMatMul",
    "Attention",
    "Vector",
    "Gather",
    "Dispatch",
    "Combine",
    "Collective",
    "FftLines",
    "CustomOp",
    "Communication",
}


def asks_what_an_op_is(tree):
    """Lines that test the class of an op, or its name: a rule belongs to the op's protocol, or to the table of pricers."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call | ast.Compare):
            continue
        called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if called == "isinstance" and OPS & {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}:
            yield node.lineno
        named = [
            n
            for n in ast.walk(node)
            if isinstance(n, ast.Attribute)
            and n.attr == "name"
            and ast.unparse(n.value) in ("op", "block", "kernel")
        ]
        constant = any(isinstance(n, ast.Constant) and isinstance(n.value, str) for n in ast.walk(node))
        if isinstance(node, ast.Compare) and named and constant:
            yield node.lineno
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("startswith", "endswith")
            and named
        ):
            yield node.lineno


def test_no_rule_asks_for_the_class_or_name_of_an_op():
    rules = [p for p in MODULES if module(p) not in ("workload.graph", "workload.ops")]
    assert wrong(lambda path: asks_what_an_op_is(tree(path)), rules) == {}


def test_the_check_of_ops_finds_them():
    for bad in (
        "isinstance(op, MatMul)",
        "isinstance(x, (Vector, int))",
        "op.name == 'head'",
        "op.name.startswith('shared_')",
        "block.name in ('a',)",
    ):
        assert list(asks_what_an_op_is(ast.parse(bad))), bad
    for good in ("op.kind == 'matmul'", "isinstance(op, int)", "op.name == other.name"):
        assert not list(asks_what_an_op_is(ast.parse(good))), good


def test_modules_have_at_most_400_lines():
    assert {label(path): many for path in MODULES + PAPERS if (many := len(lines(path))) > 400} == {}


def test_functions_have_at_most_60_lines():
    def long(path):
        for f in nodes(path):
            if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) and f.end_lineno - f.lineno + 1 > 60:
                yield f"{f.name}: {f.end_lineno - f.lineno + 1}"

    assert wrong(long, MODULES + PAPERS) == {}


def test_modules_say_what_they_are():
    assert [label(path) for path in MODULES + PAPERS if not ast.get_docstring(tree(path))] == []


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
            # a chip's process is called "7 nm"; a technology's is a table of numbers
            # and a release is called by its number and its day
            word = key in ("process", "name", "version", "date") and isinstance(inner, str)
            if not (path == "" and key == "sources") and not word:
                yield from unsourced(inner, cited, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from unsourced(inner, cited, f"{path}.{i}")
    elif isinstance(value, bool):  # a yes or no is no number
        return
    elif not isinstance(value, str) or re.fullmatch(
        r"[-+]?\d[\d.eE+-]*\s*[A-Za-z/%°0-9]{0,9}", value.strip()
    ):
        yield f"{path}: {value!r} stands alone"


def unsourced_conditions(table):
    """Of a measured file: what it says of its runs without a source. Its formulas are of the rows; numbers that all
    rows ask with are told by the source of the file.
    """
    for name, given in table.get("given", {}).items():
        yield from weak_source(given.get("source", ""), {}, f"given.{name}")
    for i, stated in enumerate(table.get("stated", [])):
        yield from weak_source(stated.get("source", ""), {}, f"stated.{i}")
    if any(unsourced(table.get("ask", {}), {})):
        yield from weak_source(table.get("source", ""), {}, "source")


def weak_source(source, cited, path):
    if source.startswith("@"):
        key = source[1:].partition(":")[0]
        if key not in cited:
            yield f"{path}: cites '@{key}', which is not under [sources]"
        source = cited.get(key, "")
    reason = source.partition(":")[2] if source.lower().startswith("assumed") else source
    if len(source) < 8 or len(reason.strip()) < 8 or PLACEHOLDER.match(source):
        yield f"{path}: source {source!r} says nothing"


def test_every_number_of_a_data_file_has_a_source():
    def alone(path):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        if "measured" in path.parts:
            return unsourced_conditions(table)
        if path.name == "fits.toml":  # what may move, not what is known: one source for all
            return weak_source(table.get("source", ""), {}, "source")
        return unsourced(table, table.get("sources", {}))

    assert wrong(alone, TABLES) == {}


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


def test_every_model_names_its_sources():
    def unnamed(path):
        facts = json.loads(path.read_text(encoding="utf-8"))["_strata"]
        for key in ("source", "parameters_source"):
            if len(facts.get(key, "")) < 8 or PLACEHOLDER.match(facts[key]):
                yield key

    assert wrong(unnamed, CONFIGS) == {}


def test_nothing_prints_outside_the_app():
    def prints(path):
        for n in nodes(path):
            if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "print":
                yield n.lineno

    assert wrong(prints, [*PAPERS, *(p for p in MODULES if place(p) != "app")]) == {}


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


def test_hardware_and_models_are_data_never_recognised_by_name():
    outside = [p for p in MODULES if place(p) != "app"]
    assert wrong(lambda path: compared_names(tree(path)), outside) == {}


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


def test_no_file_names_a_private_place():
    private = re.compile(
        r"(?<!\w)/work(?![\w-])|(?<!\w)shared/|index-url|artifactory|pypi\.(?!org)|/root/|/home/\w"
    )

    def named(path):
        for i, text in enumerate(lines(path), 1):
            if m := private.search(text):
                yield f"line {i}: {m.group()}"

    assert wrong(named, TEXTS) == {}


def test_every_equation_has_a_doctest():
    def untried(path):
        for node in nodes(path):
            said = ast.get_docstring(node) if isinstance(node, ast.FunctionDef) else None
            if said and ".. math::" in said and ">>>" not in said:
                yield node.name

    assert wrong(untried, [p for p in MODULES if place(p) in ("pricing", "hardware")]) == {}
