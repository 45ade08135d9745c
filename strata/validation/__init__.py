"""Predictions against measurements: what `strata validate` prints, and the error intervals `strata predict`
quotes.

Rooms, each of which imports only from those before it:

1. `readers`: rows and points (`tables`, `comparison`), what names mean (`catalogue`, `labels`), collectives
   as files have them;
2. `questions`: what a row may ask, each answered by the public function that users call;
3. `measured`: the TOML of a measured file, which maps its columns to a question;
4. `fit`: a few physical quantities of chips, transports and engines, moved until rows are met (`solver`);
5. `accuracy`: figures, intervals, pictures and the committed tables.

The readers of data files are loaded when asked for, so that a prediction does not wait for them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strata.validation.accuracy.run import compared_files, validate

__all__ = ["compared_files", "validate"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("strata.validation.accuracy.run"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
