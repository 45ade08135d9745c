"""The budget that only goes down: sizes and counts of the tree, none above its entry in budget.toml.

`python tests/test_budget.py` (`make budget`) lowers entries to what the tree has now; it raises none.
"""

import ast
import re
import sys
import tomllib
from collections import Counter
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from test_shape import MODULES, ROOT, TABLES, label, lines, nodes

from strata.hardware.chip_parts import Overhead
from strata.software.engine import Engine
from strata.software.trainer import Trainer

BUDGET = Path(__file__).with_name("budget.toml")
NO_FIELD_WORDS = ("found", "told", "made", "said", "held")  # locals of which the field has a better word
FREE_NUMBERS = (0, 1, 2, 0.5)
HEAD = "# Sizes and counts that only go down: tests/test_budget.py. `make budget` lowers entries and raises none.\n"


def read():
    table = tomllib.loads(BUDGET.read_text(encoding="utf-8"))
    return {f"{group}.{name}": most for group, entries in table.items() for name, most in entries.items()}


def write(table):
    text, last = HEAD, ""
    for entry, most in table.items():
        group, name = entry.split(".")
        text += (f"\n[{group}]\n" if group != last else "") + f"{name} = {most}\n"
        last = group
    BUDGET.write_text(text, encoding="utf-8")


def is_category_test(node):
    sides = (node.left, *node.comparators) if isinstance(node, ast.Compare) else ()
    return any(isinstance(side, ast.Attribute) and side.attr == "category" for side in sides)


def is_hasattr(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hasattr"


def constants(walked):
    """Numbers written in code, without the free ones and without whole exponents and indices."""
    places = [n.slice for n in walked if isinstance(n, ast.Subscript)]
    places += [n.right for n in walked if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Pow)]
    free = {id(n) for place in places for n in ast.walk(place) if type(getattr(n, "value", None)) is int}
    numbers = [n for n in walked if isinstance(n, ast.Constant) and type(n.value) in (int, float, complex)]
    return [n.value for n in numbers if n.value not in FREE_NUMBERS and id(n) not in free]


def code_counts(path):
    """Entries to which a module adds, with how many."""
    parts, walked = path.relative_to(ROOT).parts, nodes(path)
    folder, size = parts[0] if len(parts) > 1 else "root", len(lines(path))
    yield from {f"lines.{folder}": size, "lines.strata": size}.items()
    yield from {f"modules.{folder}": 1, "modules.strata": 1}.items()
    yield "code.category_tests", sum(map(is_category_test, walked))
    yield "code.hasattr", sum(map(is_hasattr, walked))
    yield "code.fmt_skip", sum("# fmt:" in line for line in lines(path))
    yield "code.pricing_constants", len(constants(walked)) if folder == "pricing" else 0
    bound = Counter(n.id for n in walked if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    yield from ((f"locals.{word}", bound[word]) for word in NO_FIELD_WORDS)


@cache
def measured():
    """What the tree has of each entry, by file. This file, which came with the table, does not count itself."""
    by_file = {}

    def add(entry, path, count):
        by_file.setdefault(entry, Counter())[str(path.relative_to(ROOT.parent))] += count

    for path in MODULES:
        for entry, count in code_counts(path):
            add(entry, path, count)
    for path in (ROOT.parent / "tests").rglob("*.py"):
        add("lines.tests", path, len(lines(path)) if path.name != "test_budget.py" else 0)
    for path in ROOT.rglob("*.js"):
        add("lines.javascript", path, len(lines(path)))
    for kind in (Engine, Trainer, Overhead):
        add(f"fields.{kind.__name__}", Path(sys.modules[kind.__module__].__file__), len(fields(kind)))
    for path in TABLES:
        many = len(re.findall(r'\bsource\s*=\s*"+fitted', path.read_text(encoding="utf-8")))
        served = re.search("data/(engines|measured)/", label(path))
        add("fitted.data", path, many)
        add("fitted.engines_and_conditions", path, many if served else 0)
    return by_file


def above(table, by_file):
    """Entries above their budget, a line each; an entry that the table lacks has a budget of 0."""
    for entry, files in by_file.items():
        if files.total() > table.get(entry, 0):
            most = ", ".join(f"{name} {count}" for name, count in files.most_common(4) if count)
            yield f"{entry}: budget {table.get(entry, 0)}, now {files.total()}; most in {most}"


def lowered(table, by_file):
    return {entry: min(most, by_file.get(entry, Counter()).total()) for entry, most in table.items()}


@pytest.mark.parametrize("entry", read())
def test_no_entry_is_above_its_budget(entry):
    for line in above(read(), {entry: measured().get(entry, Counter())}):
        pytest.fail(f"{line}. Delete a twin; the table only goes down", pytrace=False)


def test_every_count_has_an_entry():
    assert sorted(set(measured()) - set(read())) == []


def test_lines_are_counted_at_the_width_of_the_table():
    ruff = tomllib.loads((ROOT.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["ruff"]
    assert ruff["line-length"] == 110 and "format" not in ruff


def test_the_table_is_lowered_and_never_raised():
    table, by_file = {"lines.a": 5, "lines.b": 5, "lines.gone": 3}, {"lines.a": Counter(x=4, y=2)}
    by_file |= {"lines.b": Counter(x=4), "lines.new": Counter(z=1)}
    assert lowered(table, by_file) == {"lines.a": 5, "lines.b": 4, "lines.gone": 0}
    risen = ["lines.a: budget 5, now 6; most in x 4, y 2", "lines.new: budget 0, now 1; most in z 1"]
    assert list(above(table, by_file)) == risen


def test_the_counts_see_what_they_count():
    code = "x[3] ** 4 * 3.0e8 + 7 * -1.0 if op.category in KINDS or hasattr(op, 'f') else y ** 0.8"
    walked = list(ast.walk(ast.parse(code)))
    assert sorted(constants(walked)) == [0.8, 7, 3.0e8]
    assert (sum(map(is_category_test, walked)), sum(map(is_hasattr, walked))) == (1, 1)


def main():
    table = read()
    new = lowered(table, measured())
    write(new)
    for entry in (e for e in table if new[e] < table[e]):
        print(f"lowered {entry}: {table[entry]} to {new[entry]}")
    too_much = list(above(table, measured()))
    sys.exit("\n".join(["above the budget, not raised:", *too_much]) if too_much else 0)


if __name__ == "__main__":
    main()
