"""What validation asks of the core, it asks through questions: no price, op or step is made beside them."""

import ast
from pathlib import Path

import pytest

import strata.validation

ROOT = Path(strata.validation.__file__).parent
ROOMS = ("readers", "measured", "accuracy")
MODULES = [path for room in ROOMS for path in sorted((ROOT / room).glob("*.py"))]
PHYSICS = (
    "strata.workload.graph",
    "strata.workload.ops",
    "strata.evaluate",
    "strata.evaluate",
    "strata.case",
    "strata.pricing.kernel",
)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_ops_and_steps_are_asked_for_by_questions(path):
    modules = [
        node.module
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
    ]
    assert not [name for name in modules if name and name.startswith(PHYSICS)]
