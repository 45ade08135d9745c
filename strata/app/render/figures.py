"""Figures of matplotlib: made in our style and kept, their colours, and words beside what they show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from strata.base.drawing import COLOURS, STYLE, pyplot_of, save
from strata.base.units import show


@contextmanager
def picture(path: Path, size: tuple[float, float], *shape: int, **options: Any) -> Iterator[tuple[Any, Any]]:
    """A figure of a size [inches] with its panel, or as many as its shape says; kept when it is drawn."""
    pyplot = pyplot_of()
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(*shape, figsize=size, **{"layout": "constrained", **options})
        yield figure, axes
        save(pyplot, figure, path)


def colour_of(place: int) -> str:
    """The colour of one of several series.

    >>> colour_of(0) == colour_of(len(COLOURS))
    True
    """
    return COLOURS[place % len(COLOURS)]


def quantity_axis(axis: Any, unit: str, log: bool = False) -> None:
    """Ticks that read 20 ms and 3 s."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)) if log else MaxNLocator(6))
    axis.set_major_formatter(FuncFormatter(lambda value, _: show(float(value), unit)))
    axis.set_minor_formatter(NullFormatter())


def note(axes: Any, text: str, at: tuple[Any, Any], off: tuple[float, float], **look: Any) -> None:
    """Words some points off a place."""
    axes.annotate(text, at, xytext=off, textcoords="offset points", **look)
