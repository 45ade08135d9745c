"""How pictures look and are kept: matplotlib's settings, one set of colours, and SVG whose bytes depend on
the numbers alone.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from strata.errors import StrataError

COLOURS = (
    "#3b6fb6",
    "#dd8452",
    "#3f9b63",
    "#c44e52",
    "#8172b3",
    "#7d6250",
    "#d487b8",
    "#6e6e6e",
    "#b8a02e",
    "#4fb0c6",
)
STYLE = {
    "svg.hashsalt": "strata",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888",
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelcolor": "#444",
    "xtick.color": "#666",
    "ytick.color": "#666",
    "axes.grid": True,
    "grid.color": "#e8e8e8",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
}
PIXELS = 130  # an inch of those


def pyplot_of() -> Any:
    """Matplotlib's pyplot, which `pip install 'strata[plots]'` brings."""
    try:
        import matplotlib
    except ImportError:
        raise StrataError("pictures need matplotlib: pip install 'strata[plots]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def keep(path: Path, text: str) -> Path:
    """Keep a text in a file, whose folder need not be there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def save(pyplot: Any, figure: Any, path: Path) -> Path:
    """Write a figure as SVG; the same numbers give the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None}, dpi=PIXELS)
    pyplot.close(figure)
    text = path.read_text(encoding="utf-8")
    # a dozen names of fonts at every label
    text = re.sub(r"font-family: [^;\"]*sans-serif", "font-family: sans-serif", text)
    text = re.sub(r"(\d\.\d\d)\d+", r"\1", text)  # a hundredth of a point is seen by nobody
    return keep(path, "\n".join(line.rstrip() for line in text.splitlines()) + "\n")
