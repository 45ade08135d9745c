"""Predictions against measurements: what `strata validate` prints, and the error intervals `strata predict`
quotes.

Four rooms, each of which imports only from those before it:

1. `readers`: a module for each kind of file predicts its rows. Inside it, `tables` and `comparison` (rows and
   points), `catalogue` (what names mean), `benchmark_conditions` (how published runs were made), `steps` and
   `bare_kernels` (the only places that ask the core for prices of whole steps and of single ops) stand before
   the readers, `registry` (which reader reads which file) after them;
2. `fit`: a few physical quantities of chips, transports and engines, moved until rows are met (`solver`);
3. `measure`: new measurements, on a GPU or in a packet simulator;
4. `accuracy`: figures, intervals, pictures and the committed tables.

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
