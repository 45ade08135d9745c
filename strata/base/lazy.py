"""Packages whose public names, those that they import for type checkers, are loaded when they are first asked
for, so that commands start fast.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from strata.base.calls import checked_call, if_function

Before = Callable[[dict[str, Any]], None]  # what is done to the arguments of a call first


class _LazyPackage(ModuleType):
    """A package that loads its public names on first use.

    Some modules and folders of a package are called like the public name that they hold; such a name is what
    it holds, whichever was loaded first.
    """

    _public: Mapping[str, tuple[str, str]]  # the module that holds a name, and what it is called there
    _before: Mapping[str, Before]

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in self.__dict__.get("_public", {}) and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        held = self.__dict__.get("_public", {})
        if name not in held:
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        module, called = held[name]
        value = import_module(module)
        if called:
            before = self.__dict__["_before"].get(name)
            value = getattr(value, called)
            value = if_function(value) if before is None else checked_call(value, before)
        super().__setattr__(name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__dict__.get("_public", {})})


def load_on_first_use(
    package: str, groups: Mapping[str, str] = {}, before: Mapping[str, Before] = {}
) -> None:
    """Give a package the public names that it imports for type checkers, of which `groups` are packages
    themselves; `before` is done to the arguments of calls of a name, once they are known to be right.
    """
    module = sys.modules[package]
    module.__class__ = _LazyPackage
    public = {name: (where, name) for name, where in typed_imports(str(module.__file__)).items()}
    public |= {name: (where, "") for name, where in groups.items()}
    module.__dict__["_public"] = public
    module.__dict__.setdefault("__all__", sorted(public))
    module.__dict__["_before"] = before


def typed_imports(file: str) -> dict[str, str]:
    """Names that a module imports for type checkers alone, each with the module that has it.

    >>> import strata.training
    >>> typed_imports(strata.training.__file__)["TrainRun"]
    'strata.training.run'
    """
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    typed = (n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    imports = (n for one in typed for n in one.body if isinstance(n, ast.ImportFrom))
    return {a.name: str(n.module) for n in imports for a in n.names}
