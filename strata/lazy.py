"""Packages whose public names, those that they import for type checkers, are loaded when they are first asked
for, so that commands start fast.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from strata.calls import if_function


class _LazyPackage(ModuleType):
    """A package that loads its public names on first use.

    Some modules of a package are called like the public name that they hold; such a name is what it holds,
    whichever was loaded first.
    """

    _public: Mapping[str, str]

    def __setattr__(self, name: str, value: Any) -> None:
        held = self.__dict__.get("_public", {})
        if not (name in held and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        held = self.__dict__.get("_public", {})
        if name not in held:
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        value = if_function(getattr(import_module(held[name]), name))
        super().__setattr__(name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__dict__.get("_public", {})})


class _NamesFirst(ModuleType):
    """A package some of whose public names are also those of folders in it: the name stays what it is."""

    _taken: frozenset[str]

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in self.__dict__["_taken"] and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


def names_before_folders(package: str, public: Iterable[str]) -> None:
    """Let public names of a package stand before its folders of the same name."""
    module = sys.modules[package]
    module.__dict__["_taken"] = frozenset(public)
    module.__class__ = _NamesFirst


def load_on_first_use(package: str) -> None:
    """Give a package the public names that it imports for type checkers."""
    module = sys.modules[package]
    module.__class__ = _LazyPackage
    public = module.__dict__["_public"] = typed_imports(str(module.__file__))
    module.__dict__.setdefault("__all__", sorted(public))


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
