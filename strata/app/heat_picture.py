"""The picture of a stack's temperatures: a section through the layers, and a map of every die on one scale of
colours.

Written as SVG by hand; the coloured fields are small PNG pictures inside it, one pixel a cell, so that the
same temperatures give the same bytes.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from strata.app.fabric_picture import DARK, GREY, line, text
from strata.hardware.thermal.grid import Layer
from strata.hardware.thermal.report import Temperatures
from strata.units import show

# From cool to hot: pale yellow, orange, red, dark wine.
RAMP = np.array(
    [[255, 250, 222], [252, 212, 128], [245, 150, 82], [218, 82, 62], [160, 30, 60], [84, 14, 52]], float
)
LEFT, TOP, WIDE, LABELS = 24.0, 84.0, 420.0, 196.0  # of the section, and the room for its labels
SIDE, GAP, ACROSS = 112.0, 18.0, 4  # of a map, between maps, and maps in a row
TALL = 430.0  # of the section at most
FOOT = 70.0
# Heights of layers, not to scale: bonds would be hairs and the sink would be all.
HEIGHTS = {"sink": 64.0, "lid": 44.0, "interface": 12.0, "bond": 6.0, "logic": 26.0, "dram": 20.0}
Array = Any


def picture(found: Temperatures) -> str:
    """A stack's temperatures as SVG."""
    shown = [d.name for d in found.dies]
    low = min(found.field.coolest(layer.name) for layer in found.field.problem.assembly.layers)
    high = max(d.hottest for d in found.dies)
    scale = (low, high if high > low + 1e-9 else low + 1.0)
    rows = -(-len(shown) // ACROSS)
    right = LEFT + WIDE + LABELS
    width = right + ACROSS * (SIDE + GAP) + 6
    height = TOP + max(sum(drawn_heights(found)), rows * (SIDE + 40)) + FOOT
    how = found.cooling
    title = f"{found.chip.name}: {show(found.power, 'W')} under {how.title.split(',')[0] or 'its cooling'}"
    die = found.binding
    facts = f"{die.name} binds: {celsius(die.hottest)} of {celsius(die.limit)} · coolant {celsius(float(how.ambient))} · {show(found.highest_power, 'W')} reach the limit"
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" font-family="sans-serif">',
        f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>',
        text((LEFT, 28), title, 15, DARK, weight="bold"),
        text((LEFT, 48), facts, 12, GREY if found.infeasible is None else "#b03030"),
        text((LEFT, TOP - 10), "section through the hottest point; heights not to scale", 11, GREY),
        text((right, TOP - 10), "each die from above, from the coolant down; o: its hottest point", 11, GREY),
    ]
    drawn += section(found, scale)
    for i, name in enumerate(shown):
        drawn += die_map(
            found, name, (right + (i % ACROSS) * (SIDE + GAP), TOP + (i // ACROSS) * (SIDE + 40)), scale
        )
    drawn += colour_bar(found, (LEFT, height - 34), scale)
    return "\n".join([*drawn, "</svg>", ""])


# ---------------------------------------------------------------------------------------------------------
# parts


def kind(layer: Layer) -> str:
    return layer.name.removesuffix(" bulk").rstrip("0123456789")


def drawn_layers(found: Temperatures) -> list[Layer]:
    """Layers from the coolant down; a die is drawn once, with the temperatures of its hot face."""
    return [
        layer for layer in reversed(found.field.problem.assembly.layers) if not layer.name.endswith(" bulk")
    ]


def drawn_heights(found: Temperatures) -> list[float]:
    heights = [HEIGHTS.get(kind(layer), 16.0) for layer in drawn_layers(found)]
    shrink = min(1.0, TALL / sum(heights))
    return [h * shrink for h in heights]


def section(found: Temperatures, scale: tuple[float, float]) -> Iterator[str]:
    """Layers on each other, each as wide as it is against the widest, coloured by the temperatures along x."""
    layers, lines = drawn_layers(found), found.field.problem.edges
    hot = max(found.dies, key=lambda d: d.hottest).name
    block = found.field.problem.places[hot][0]
    peak = np.unravel_index(np.argmax(found.field.of(hot)), found.field.of(hot).shape)
    row = block.first + int(peak[1])
    y, widest = TOP, lines[-1] - lines[0]
    thick = {name.removesuffix(" bulk"): 0.0 for name in found.field.problem.places}
    for layer in found.field.problem.assembly.layers:
        thick[layer.name.removesuffix(" bulk")] += layer.thickness
    named: set[str] = set()
    for layer, height in zip(layers, drawn_heights(found), strict=True):
        of, own = found.field.of(layer.name), found.field.problem.places[layer.name][0]
        across = of[::-1, row - own.first, :]  # the top slice first
        wide = WIDE * layer.side / widest
        left = LEFT + (WIDE - wide) / 2
        yield image(
            even(across, lines[own.first : own.first + len(own.widths) + 1]), scale, (left, y), (wide, height)
        )
        yield f'<rect x="{left:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{height:.1f}" fill="none" stroke="#fff" stroke-width="0.8"/>'
        # Bonds are all alike: the first is named, and nothing that is too thin for its letters.
        first = kind(layer) not in named and (height >= 9.5 or kind(layer) == "bond")
        if first or (kind(layer) == "dram" and height >= 11.0):
            said = f"{layer.name if kind(layer) != 'bond' else 'bonds'}, {micro(thick[layer.name])}: {celsius(found.field.hottest(layer.name))}"
            yield line((left + wide + 3, y + height / 2), (LEFT + WIDE + 6, y + height / 2), GREY, 0.6, 0.6)
            yield text((LEFT + WIDE + 10, y + height / 2 + 3.5), said, 10.5, DARK)
        named.add(kind(layer))
        y += height
    yield text((LEFT + WIDE / 2, y + 14), "board", 10.5, GREY, anchor="middle")


def die_map(
    found: Temperatures, name: str, corner: tuple[float, float], scale: tuple[float, float]
) -> Iterator[str]:
    """One die from above, with its hottest point."""
    of = found.field.of(name)[0]
    x, y = corner
    yield image(of, scale, corner, (SIDE, SIDE))
    binds = found.binding.name == name
    yield f'<rect x="{x:.1f}" y="{y:.1f}" width="{SIDE:g}" height="{SIDE:g}" fill="none" stroke="{DARK if binds else "#d8d8d8"}" stroke-width="{2 if binds else 1}"/>'
    at = np.unravel_index(np.argmax(of), of.shape)
    spot = x + (at[1] + 0.5) / of.shape[1] * SIDE, y + (at[0] + 0.5) / of.shape[0] * SIDE
    yield f'<circle cx="{spot[0]:.1f}" cy="{spot[1]:.1f}" r="4" fill="none" stroke="#fff" stroke-width="1.6"/>'
    die = next(d for d in found.dies if d.name == name)
    yield text(
        (x, y + SIDE + 14), f"{name}, {show(die.power, 'W')}", 11, DARK, weight="bold" if binds else "normal"
    )
    over = die.hottest > die.limit
    yield text(
        (x, y + SIDE + 27),
        f"{die.coolest - 273.15:.1f} to {celsius(die.hottest)}",
        10.5,
        "#b03030" if over else GREY,
    )


def colour_bar(found: Temperatures, corner: tuple[float, float], scale: tuple[float, float]) -> Iterator[str]:
    """The scale of colours, with the limits that lie on it."""
    x, y = corner
    yield image(np.linspace(*scale, 128)[None], scale, corner, (WIDE, 12))
    for t in np.linspace(*scale, 5):
        yield text(
            (x + (t - scale[0]) / (scale[1] - scale[0]) * WIDE, y + 26),
            celsius(float(t)),
            10,
            GREY,
            anchor="middle",
        )
    for said, limit in (
        ("DRAM limit", float(found.cooling.dram_limit)),
        ("logic limit", float(found.cooling.logic_limit)),
    ):
        if scale[0] < limit < scale[1]:
            place = x + (limit - scale[0]) / (scale[1] - scale[0]) * WIDE
            yield line((place, y - 5), (place, y + 14), DARK, 1.4, 1.0)
            yield text((place, y - 8), said, 10, DARK, anchor="middle")


# ---------------------------------------------------------------------------------------------------------
# colours


def even(values: Array, lines: Array, count: int = 96) -> Array:
    """Cells of unequal width as equal pixels, between cell middles by straight lines."""
    middles = (lines[1:] + lines[:-1]) / 2
    pixels = np.linspace(lines[0], lines[-1], 2 * count + 1)[1::2]
    return np.array([np.interp(pixels, middles, row) for row in values])


def colours(values: Array, scale: tuple[float, float]) -> Array:
    """Red, green and blue of temperatures [.., 3], as bytes."""
    place = np.clip((values - scale[0]) / (scale[1] - scale[0]), 0.0, 1.0)[..., None] * (len(RAMP) - 1)
    below = np.minimum(place.astype(int), len(RAMP) - 2)[..., 0]
    share = place - below[..., None]
    return np.rint(RAMP[below] * (1 - share) + RAMP[below + 1] * share).astype(np.uint8)


def image(
    values: Array, scale: tuple[float, float], corner: tuple[float, float], size: tuple[float, float]
) -> str:
    """A field of temperatures as a picture inside the picture."""
    data = base64.b64encode(png(colours(values, scale))).decode()
    return (
        f'<image x="{corner[0]:.1f}" y="{corner[1]:.1f}" width="{size[0]:.1f}" height="{size[1]:.1f}" preserveAspectRatio="none" '
        f'href="data:image/png;base64,{data}"/>'
    )


def png(pixels: Array) -> bytes:
    """Pixels [rows, columns, 3] as a PNG file."""
    rows, columns, _ = pixels.shape

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    raw = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(raw, 9))
        + chunk(b"IEND", b"")
    )


def celsius(kelvin: float) -> str:
    return f"{kelvin - 273.15:.1f} °C"


def micro(metres: float) -> str:
    return show(metres, "m")
