"""Programs in Python files of a user's own: the class of a file that a workload turns into a graph."""

from __future__ import annotations

import inspect
import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from strata.base.errors import BadFile, StrataError
from strata.workload.program import with_fields


def python_program(path: str | Path, /, **changes: Any) -> Any:
    """The program of a Python file, its one class with `trace`; keywords replace its fields."""
    file = Path(path)
    if not file.is_file():
        raise BadFile(f"no program file at {file}")
    module = _loaded(file)
    own = [c for _, c in inspect.getmembers(module, inspect.isclass) if c.__module__ == module.__name__]
    programs = [c for c in own if hasattr(c, "trace") and hasattr(c, "units")]
    if len(programs) != 1:
        names = ", ".join(c.__name__ for c in programs) or "none"
        raise BadFile(f"{file.name} has one class with units and trace(work), but got {names}")
    return with_fields(programs[0](), changes) if changes else programs[0]()


def _loaded(file: Path) -> ModuleType:
    """The module of a file; a mistake in it is told by its line."""
    spec = spec_from_file_location(f"strata_program_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[module.__name__] = module  # where dataclasses look for names in annotations
    try:
        spec.loader.exec_module(module)
    except StrataError:
        raise
    except Exception as error:
        own = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
        line = own[-1] if own else getattr(error, "lineno", None)
        raise BadFile(f"{file.name}, line {line}: {type(error).__name__}: {error}") from error
    return module
