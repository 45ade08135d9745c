"""What validation asks of the core, it asks in one place each: ops, and whole steps."""

import ast
from pathlib import Path

import pytest

import strata.validation

ROOT = Path(strata.validation.__file__).parent
ROOMS = ("readers", "fit", "measure", "accuracy")
MODULES = [path for room in ROOMS for path in sorted((ROOT / room).glob("*.py"))]


def imported(path):
    """Modules that a module imports, with the names it takes from them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_ops_and_steps_are_asked_for_in_one_place_each(path):
    asked = set(imported(path))
    if path.stem != "bare_kernels":
        assert not [
            name for module, name in asked if module in ("strata.workload.graph", "strata.workload.ops")
        ]
    if path.stem != "steps":
        assert not [name for module, name in asked if module in ("strata.evaluate", "strata.case")]
