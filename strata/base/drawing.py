"""How pictures look and are kept: matplotlib's settings, one set of colours, a canvas for drawings that are
no plots, and files (SVG, PNG, PDF) whose bytes depend on the numbers alone.
"""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from strata.base.errors import BadValue, require
from strata.base.shipped import extra_package

_LATER = ("#7d6250", "#d487b8", "#6e6e6e", "#b8a02e", "#4fb0c6")
COLOURS = ("#3b6fb6", "#dd8452", "#3f9b63", "#c44e52", "#8172b3", *_LATER)
MOST_SHAPES = 12_000  # of one drawing: each takes most of a millisecond
STYLE = {
    "svg.hashsalt": "strata",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # letters stay letters, as publishers ask
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
PRINTED = 220  # an inch of a PNG has at least so many: sharp in a paper
# How a picture may end, and what its file leaves out of itself: when and with what it was made.
PICTURE_KINDS: dict[str, dict[str, None]] = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
DARK, GREY = "#333333", "#777777"  # of what is drawn and said
Point = tuple[float, float]


def pyplot_of() -> Any:
    """Matplotlib's pyplot, which `pip install 'strata[plots]'` brings."""
    extra_package("matplotlib", "a picture", "plots").use("Agg")
    return import_module("matplotlib.pyplot")


def keep(path: Path, text: str) -> Path:
    """Keep a text in a file, whose folder need not be there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def check_picture(path: Path, option: str = "a picture") -> Path:
    """The file of a picture, by whose ending it is written.

    >>> check_picture(Path("a.PDF")).name
    'a.PDF'
    """
    if path.suffix.lower() not in PICTURE_KINDS:
        kinds = ", ".join(list(PICTURE_KINDS)[:-1]) + f" or {list(PICTURE_KINDS)[-1]}"
        raise BadValue(f"{option} is a file that ends in {kinds}, but got '{path}'")
    return path


def save(pyplot: Any, figure: Any, path: Path, *, pixels: int = PIXELS) -> Path:
    """Write a figure as SVG, PNG or PDF, as its name ends; the same numbers give the same bytes."""
    kind = check_picture(path).suffix.lower()
    path.parent.mkdir(parents=True, exist_ok=True)
    sharp = max(pixels, PRINTED) if kind == ".png" else pixels
    figure.savefig(path, metadata=PICTURE_KINDS[kind], dpi=sharp, format=kind.removeprefix("."))
    pyplot.close(figure)
    if kind != ".svg":
        return path
    text = path.read_text(encoding="utf-8")
    # a dozen names of fonts at every label
    text = re.sub(r"font-family: [^;\"]*sans-serif", "font-family: sans-serif", text)
    text = re.sub(r"(\d\.\d\d)\d+", r"\1", text)  # a hundredth of a point is seen by nobody
    return keep(path, "\n".join(line.rstrip() for line in text.splitlines()) + "\n")


class Canvas:
    """A drawing in points from its upper left corner; what is drawn later lies above what came before."""

    def __init__(self, width: float, height: float) -> None:
        self.pyplot = pyplot_of()
        with self.pyplot.rc_context(STYLE):
            self.figure = self.pyplot.figure(figsize=(width / 72.0, height / 72.0))
            self.axes = self.figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self.axes.set(xlim=(0.0, width), ylim=(height, 0.0))
        self.axes.set_axis_off()
        self._drawn = 0

    def _above(self) -> int:
        self._drawn += 1
        require(self._drawn <= MOST_SHAPES, f"a picture has at most {MOST_SHAPES:,} lines, boxes and words")
        return self._drawn

    def line(
        self,
        a: Point,
        b: Point,
        colour: str,
        *,
        width: float = 1.6,
        alpha: float = 0.75,
        dashed: bool = False,
    ) -> None:
        """A straight line."""
        style = (0, (3.0, 4.0)) if dashed else "-"
        look = {"color": colour, "linewidth": width, "alpha": alpha, "linestyle": style}
        ends = {"dash_capstyle": "butt", "solid_capstyle": "butt", "clip_on": False}
        self.axes.plot([a[0], b[0]], [a[1], b[1]], zorder=self._above(), **ends, **look)

    def circle(
        self, centre: Point, radius: float, *, fill: str, edge: str, width: float, alpha: float = 1.0
    ) -> None:
        """A circle; `fill` may be "none"."""
        from matplotlib.patches import Circle

        look = {"facecolor": fill, "edgecolor": edge, "linewidth": width, "alpha": alpha}
        self.axes.add_patch(Circle(centre, radius, zorder=self._above(), clip_on=False, **look))

    def box(
        self,
        corner: Point,
        size: Point,
        *,
        fill: str,
        edge: str = "none",
        width: float = 1.0,
        radius: float = 0.0,
        alpha: float = 1.0,
    ) -> None:
        """A rectangle by its upper left corner, its corners rounded; `fill` may be "none"."""
        from matplotlib.patches import FancyBboxPatch

        style = f"round,pad=0,rounding_size={radius}" if radius else "square,pad=0"
        look: dict[str, Any] = {"facecolor": fill, "edgecolor": edge, "linewidth": width, "alpha": alpha}
        patch = FancyBboxPatch(corner, *size, boxstyle=style, **look)
        patch.set(zorder=self._above(), clip_on=False)
        self.axes.add_patch(patch)

    def polygon(self, corners: list[Point], fill: str) -> None:
        """A filled polygon."""
        from matplotlib.patches import Polygon

        patch = Polygon(corners, facecolor=fill, edgecolor="none", zorder=self._above(), clip_on=False)
        self.axes.add_patch(patch)

    def text(
        self,
        at: Point,
        said: str,
        size: float,
        colour: str,
        *,
        bold: bool = False,
        centred: bool = False,
        alpha: float = 1.0,
    ) -> None:
        """Words on a base line, from a place on or around it."""
        look = {"fontsize": size, "color": colour, "fontweight": "bold" if bold else "normal", "alpha": alpha}
        side = "center" if centred else "left"
        with self.pyplot.rc_context(STYLE):
            self.axes.text(*at, said, ha=side, va="baseline", zorder=self._above(), **look)

    def image(self, values: Any, scale: Point, corner: Point, size: Point, colours: Any) -> None:
        """A field of values in a rectangle, coloured from the lowest to the highest of a scale."""
        (x, y), (wide, high) = corner, size
        look = {"cmap": colours, "vmin": scale[0], "vmax": scale[1]}
        look |= {"interpolation": "bilinear", "aspect": "auto"}
        self.axes.imshow(values, extent=(x, x + wide, y + high, y), zorder=self._above(), **look)

    def save(self, path: Path) -> Path:
        """Write the drawing as SVG, PNG or PDF."""
        with self.pyplot.rc_context(STYLE):
            # fields are smooth, their frames are lines
            return save(self.pyplot, self.figure, path, pixels=72)
