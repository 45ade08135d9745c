"""Bars, stacked bars and heat maps of a page, as plain HTML: shown at once, in any width, on paper too."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

import numpy as np

from strata.app.render.page import figure_html, plotly_graphs, section

RESOURCE_COLOURS = ("compute", "memory", "network", "cache", "overhead", "bubble", "host", "throttling")
MOST_ACROSS, MOST_DOWN = 14, 40  # cells of a heat map that are written out; larger ones are drawn
LONG = 46  # names longer than this stand above their bars


def resource_colour(name: str) -> str:
    """The page's colour of what a time is bound by.

    >>> resource_colour("memory"), resource_colour("something")
    ('var(--c-memory)', 'var(--c-overhead)')
    """
    return f"var(--c-{name if name in RESOURCE_COLOURS else 'overhead'})"


def series_colour(place: int) -> str:
    """The page's colour of one of several series."""
    return resource_colour(RESOURCE_COLOURS[place % len(RESOURCE_COLOURS)])


def bars_html(
    names: Sequence[str],
    values: Sequence[float],
    texts: Sequence[str],
    colours: Sequence[str] | str = "var(--accent)",
    spans: Sequence[tuple[float, float] | None] | None = None,
) -> str:
    """Bars that lie, each with its name and its value; a span is a line over its bar, where it would lie."""
    shown = [abs(v) for v in values if np.isfinite(v)] + [s[1] for s in spans or [] if s is not None]
    whole = max([*shown, 1e-300])
    told = []
    for place, (name, value, text) in enumerate(zip(names, values, texts, strict=True)):
        colour = colours if isinstance(colours, str) else colours[place]
        colour = "var(--bad)" if value < 0 else colour
        width = 100.0 * abs(value) / whole if np.isfinite(value) else 0.0
        bar = f"<i style='width:{width:.2f}%;background:{colour}'></i>"
        if spans and (span := spans[place]) is not None:
            low, high = (100.0 * end / whole for end in span)
            bar += f"<b style='left:{low:.2f}%;width:{high - low:.2f}%'></b>"
        told.append(_bar(name, bar, text))
    return _bars(told, names)


def _bar(name: str, inner: str, text: str) -> str:
    named, said = html.escape(name), html.escape(text)
    return (
        f"<span class='name'>{named}</span><span class='track'>{inner}</span><span class='says'>{said}</span>"
    )


def _bars(told: list[str], names: Sequence[str]) -> str:
    style = "bars long" if max((len(n) for n in names), default=0) > LONG else "bars"
    return f"<div class='{style}'>{''.join(told)}</div>" if told else ""


def stacked_html(
    names: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    texts: Sequence[str],
    whole: float,
    colours: dict[str, str] | None = None,
    says: dict[str, str] | None = None,
) -> str:
    """Bars of parts that lie side by side, as long as their share of a whole, under a legend."""
    held = {name: sizes for name, sizes in parts.items() if max(sizes, default=0.0) > 0}
    colours = colours or {name: series_colour(place) for place, name in enumerate(held)}
    told = []
    for place, (name, text) in enumerate(zip(names, texts, strict=True)):
        inner = "".join(
            f"<i style='width:{100.0 * sizes[place] / whole:.3f}%;background:{colours[part]}' "
            f"title='{html.escape(part)}'></i>"
            for part, sizes in held.items()
            if sizes[place] > 0
        )
        told.append(_bar(name, inner, text))
    legend = {name: f"{name} {says[name]}" if says and name in says else name for name in held}
    return legend_html({said: colours[name] for name, said in legend.items()}) + _bars(told, names)


def legend_html(colours: dict[str, str]) -> str:
    """What colours mean."""
    told = (
        f"<span><span class='swatch' style='background:{colour}'></span>{html.escape(name)}</span>"
        for name, colour in colours.items()
    )
    return f"<div class='legend'>{''.join(told)}</div>"


def heat_html(
    across: tuple[str, Sequence[str]],
    down: tuple[str, Sequence[str]],
    values: np.ndarray,
    texts: Sequence[Sequence[str]],
    *,
    more: bool = True,
) -> str:
    """A heat map: a cell for each pair, stronger where it is better; the best has a frame, what is out a
    dash. Where there are too many cells to write them out, a chart.
    """
    if len(across[1]) > MOST_ACROSS or len(down[1]) > MOST_DOWN:
        return _heat_chart(across, down, values, texts, more)
    inside = values[np.isfinite(values)]
    if not len(inside):
        return ""
    low, high = float(inside.min()), float(inside.max())
    wide = low > 0 and high > 20 * low  # equal steps of colour are equal factors

    def share(value: float) -> float:
        if high == low:
            return 1.0
        at = np.log(value / low) / np.log(high / low) if wide else (value - low) / (high - low)
        return float(at if more else 1.0 - at)

    best = high if more else low
    rows = []
    for name, line, said in zip(down[1], values, texts, strict=True):
        cells = "".join(
            f"<td class='{'best' if value == best else 'in'}' style='background:{tint(share(value))}'>"
            f"{html.escape(text)}</td>"
            if np.isfinite(value)
            else "<td class='out'>-</td>"
            for value, text in zip(line, said, strict=True)
        )
        rows.append(f"<tr><th scope='row'>{html.escape(name)}</th>{cells}</tr>")
    head = "".join(f"<th scope='col'>{html.escape(name)}</th>" for name in across[1])
    corner = f"{html.escape(across[0])} →<br>{html.escape(down[0])} ↓"
    return (
        f"<div class='wide'><table class='heat'><thead><tr><th>{corner}</th>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _heat_chart(
    across: tuple[str, Sequence[str]],
    down: tuple[str, Sequence[str]],
    values: np.ndarray,
    texts: Sequence[Sequence[str]],
    more: bool,
) -> str:
    z = [[float(v) if np.isfinite(v) else None for v in line] for line in values]
    scale = [[0.0, "var(--accent-soft)"], [1.0, "var(--accent)"]]
    figure = plotly_graphs().Figure()
    figure.add_heatmap(
        x=list(across[1]),
        y=list(down[1]),
        z=z,
        text=[list(line) for line in texts],
        colorscale=scale,
        reversescale=not more,
        hovertemplate="%{x}, %{y}: %{text}<extra></extra>",
        colorbar={"thickness": 12, "outlinewidth": 0, "exponentformat": "SI"},
    )
    figure.update_xaxes(title=across[0], type="category", nticks=12)
    figure.update_yaxes(title=down[0], type="category", nticks=16)
    return figure_html(figure, 460, "heat-map")


def tint(share: float) -> str:
    """The accent over the page's ground, never so strong that ink on it is hard to read."""
    return f"color-mix(in srgb, var(--accent) {4 + 46 * share:.0f}%, var(--raised))"


def bars_section(heading: str, said: str, bars: str) -> str:
    """Bars under a heading and a sentence; nothing where there are none."""
    return section(heading, f"<p class='dim'>{html.escape(said)}</p>" if said else "", bars) if bars else ""
