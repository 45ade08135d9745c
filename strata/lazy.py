"""Packages whose public names are loaded when they are first asked for, so that commands start fast."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
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


def load_on_first_use(package: str, public: Mapping[str, str]) -> None:
    """Give a package public names, each with the module that has it: of that package, or by its path."""
    module = sys.modules[package]
    module.__class__ = _LazyPackage
    module.__dict__["_public"] = {
        name: where if "." in where else f"{package}.{where}" for name, where in public.items()
    }
