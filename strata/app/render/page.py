"""Parts of HTML pages that open offline, styled as the web page: cards, tables, charts, heat maps."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from strata import __version__
from strata.base.drawing import keep
from strata.base.shipped import extra_package

OWN = Path(__file__).parent
STATIC = OWN.parent / "web" / "static"  # the web page's style and charts, which reports share
STYLES = ((STATIC, "strata.css"), (OWN, "report.css"))
# Neutral colours of pictures drawn for paper, and what stands for them in a theme.
PAPER_COLOURS = {
    "#000000": "var(--ink)", "#222222": "var(--ink)", "#333333": "var(--ink)", "#444444": "var(--ink)",
    "#555555": "var(--dim)", "#666666": "var(--dim)", "#777777": "var(--dim)",
    "#888888": "var(--faint)", "#999999": "var(--faint)",
    "#cccccc": "var(--line)", "#d5d5d5": "var(--line)", "#dddddd": "var(--line)", "#e8e8e8": "var(--line)",
    "#eeeeee": "var(--line)",
}  # fmt: skip
RESOURCE_COLOURS = ("compute", "memory", "network", "cache", "overhead", "bubble", "host", "throttling")
MOST_ACROSS, MOST_DOWN = 14, 40  # cells of a heat map that are written out; larger ones are drawn
LONG = 46  # names longer than this stand above their bars
ACCENT = "var(--accent)"
Axis = tuple[str, Sequence[str]]  # of a heat map: its title and its words
Bar = tuple[str, float, str]  # its name, value and text
Spans = Sequence[tuple[float, float] | None]


def plotly_graphs() -> Any:
    """Plotly's graph objects, which `pip install 'strata[plots]'` brings."""
    return extra_package("plotly.graph_objects", "a report with charts", "plots")


@cache
def _style() -> str:
    shared, own = ((folder / name).read_text(encoding="utf-8") for folder, name in STYLES)
    light = re.search(r":root \{(.*?)\}", shared, flags=re.S)
    assert light is not None
    on_paper = f"@media print {{ :root:root:root {{{light.group(1)}}} }}"  # whatever the screen's theme is
    return shared + own + on_paper


def _scripts() -> str:
    """Plotly as text that is run after the first paint, then what draws: the page's own charts."""
    library = extra_package("plotly.offline", "a report with charts", "plots").get_plotlyjs()
    charts = (STATIC / "charts.js").read_text(encoding="utf-8")
    own = re.sub(r"^export ", "", charts, flags=re.M) + (OWN / "report.js").read_text(encoding="utf-8")
    escaped = library.replace("</script", "<\\/script")
    return f"<script type='text/plain' id='plotly'>{escaped}</script><script type='module'>{own}</script>"


def html_page(heading: str, parts: Sequence[str], lead: str = "") -> str:
    """A whole page that loads nothing; the plotting library comes with it only where a part is a chart."""
    body = "".join(parts)
    head = "<meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'>"
    head += f"<title>{html.escape(heading)}</title><style>{_style()}</style>"
    said = f"<p class='lead dim'>{html.escape(lead)}</p>" if lead else ""
    foot = f"Strata {html.escape(__version__)}. This file holds all it shows; it opens offline."
    main = f"<main class='report'><header><h1>{html.escape(heading)}</h1>{said}</header>{body}"
    main += f"<footer>{foot}</footer></main>"
    scripts = _scripts() if "class='figure'" in body else ""
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{main}{scripts}</body></html>"


def write_page(path: Path, heading: str, parts: Sequence[str], lead: str = "") -> Path:
    """A whole page as a file."""
    return keep(path, html_page(heading, parts, lead))


def section(heading: str, *parts: str, level: int = 2) -> str:
    """Parts under a heading; nothing where there are none."""
    inside = "".join(parts)
    return f"<section><h{level}>{html.escape(heading)}</h{level}>{inside}</section>" if inside else ""


def paragraphs(lines: Iterable[str], style: str = "") -> str:
    """A paragraph for each line."""
    look = f" class='{style}'" if style else ""
    return "".join(f"<p{look}>{html.escape(line)}</p>" for line in lines if line)


def folded_html(summary: str, *parts: str, shown: bool = False, printed: bool = False) -> str:
    """Parts behind a line that opens them; on paper they may stand open."""
    look = " class='printed'" * printed + " open" * shown
    return f"<details{look}><summary>{html.escape(summary)}</summary>{''.join(parts)}</details>"


def cards_html(rows: Iterable[Sequence[str]], main: int = 0) -> str:
    """Headline numbers: what, how much, and what to know about it; the main one has the accent."""
    told = []
    for place, (label, value, under) in enumerate(rows):
        style = "card main" if place == main else "card"
        told.append(
            f"<div class='{style}'><div class='label'>{html.escape(label)}</div>"
            f"<div class='value'>{html.escape(value)}</div>"
            f"<div class='under'>{html.escape(under)}</div></div>"
        )
    return f"<div class='cards'>{''.join(told)}</div>"


def figure_html(figure: Any, height: int = 380, name: str = "chart", least: int = 0) -> str:
    """A chart in the page's type and colours, drawn after the words are there; its place is kept free. One
    that needs at least so many pixels across is scrolled where there are fewer.
    """
    told = json.loads(figure.update_layout(height=height, template="none").to_json())
    told["layout"].pop("template", None)
    both = json.dumps(_plain(told), allow_nan=False, separators=(",", ":"))
    held = both.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    size = f"min-height:{height}px" + (f";min-width:{least}px" if least else "")
    return (
        f"<div class='wide'><div class='figure' data-name='strata-{html.escape(name)}'>"
        f"<script type='application/json'>{held}</script><div style='{size}'></div></div></div>"
    )


def log_axis(low: float, high: float, room: float = 0.05) -> dict[str, Any]:
    """A logarithmic axis from a number to another, with whole numbers under it: 1, 2 and 5 of each decade
    where there are few, else powers of ten.

    >>> log_axis(1.0, 10.0)["ticktext"], log_axis(1e-5, 1.0)["ticktext"]
    (['1', '2', '5', '10'], ['1e-5', '1e-4', '0.001', '0.01', '0.1', '1'])
    """
    ends = (math.log10(low), math.log10(high))
    beside = room * max(ends[1] - ends[0], 0.1)
    first, last = ends[0] - beside, ends[1] + beside
    steps = (1, 2, 5) if last - first < 3 else (1,)
    powers = range(math.floor(first), math.ceil(last) + 1)
    ticks = [m * 10.0**e for e in powers for m in steps if first <= math.log10(m) + e <= last]
    texts = [
        f"{t:,.10g}" if 1e-3 <= t < 1e6 else f"{t:.0e}".replace("e-0", "e-").replace("e+0", "e")
        for t in ticks
    ]
    return {"type": "log", "range": [first, last], "tickvals": ticks, "ticktext": texts}


def _plain(told: Any, key: str = "") -> Any:
    """A chart's words as they are: only line breaks may be markup, and what we write for hovers."""
    if isinstance(told, str) and key != "hovertemplate":
        return html.escape(told, quote=False).replace("&lt;br&gt;", "<br>")
    if isinstance(told, list):
        return [_plain(one, key) for one in told]
    if isinstance(told, dict):
        return {name: _plain(one, name) for name, one in told.items()}
    return told


def picture_html(drawn: str, name: str = "picture") -> str:
    """A picture drawn for paper (an SVG's text) within the page, its greys the theme's; it can be saved."""
    import base64

    own = drawn[drawn.index("<svg") :]
    themed = re.sub(r"(?<=fill: )#ffffff(?=[^<]*/>)", "var(--raised)", own)
    themed = re.sub(
        r"#[0-9a-f]{6}\b", lambda found: PAPER_COLOURS.get(found.group().lower(), found.group()), themed
    )
    themed = re.sub(r"(<svg[^>]*?) width=\"[^\"]*\"", r"\1", themed, count=1)
    themed = re.sub(r"(<svg[^>]*?) height=\"[^\"]*\"", r"\1", themed, count=1)
    themed = re.sub(r"<metadata>.*?</metadata>", "", themed, flags=re.S)
    # words without a colour of their own
    themed = themed.replace("<svg ", "<svg style='fill: var(--ink)' ", 1)
    kept = base64.b64encode(own.encode()).decode()
    link = f"<a download='strata-{html.escape(name)}.svg' href='data:image/svg+xml;base64,{kept}'>SVG</a>"
    return f"<div class='picture'>{link}{themed}</div>"


def html_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], words: Sequence[int] = (0,), best: int = -1
) -> str:
    """A table; columns that hold words stand left, numbers right; one row may be told apart."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag} class={'w' if i in words else 'n'}>{html.escape(c)}</{tag}>" for i, c in enumerate(row)
        )

    body = (f"<tr{' class=best' * (i == best)}>{cells('td', row)}</tr>" for i, row in enumerate(rows))
    return wide_table(cells("th", header) if any(header) else "", body)


def wide_table(head: str, rows: Iterable[str]) -> str:
    """A table of rows that are HTML already, scrolled where it is wider than the page."""
    above = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f"<div class='wide'><table>{above}<tbody>{''.join(rows)}</tbody></table></div>"


def resource_colour(name: str) -> str:
    """The page's colour of what a time is bound by.

    >>> resource_colour("memory"), resource_colour("something")
    ('var(--c-memory)', 'var(--c-overhead)')
    """
    return f"var(--c-{name if name in RESOURCE_COLOURS else 'overhead'})"


def series_colour(place: int) -> str:
    """The page's colour of one of several series."""
    return resource_colour(RESOURCE_COLOURS[place % len(RESOURCE_COLOURS)])


def bars_html(rows: Sequence[Bar], colours: Sequence[str] | str = ACCENT, spans: Spans = ()) -> str:
    """Bars that lie, each with its name, value and text; a span is a line over its bar."""
    shown = [abs(v) for _, v, _ in rows if np.isfinite(v)] + [s[1] for s in spans if s is not None]
    whole = max([*shown, 1e-300])
    told = []
    for place, (name, value, text) in enumerate(rows):
        colour = colours if isinstance(colours, str) else colours[place]
        colour = "var(--bad)" if value < 0 else colour
        width = 100.0 * abs(value) / whole if np.isfinite(value) else 0.0
        bar = f"<i style='width:{width:.2f}%;background:{colour}'></i>"
        if spans and (span := spans[place]) is not None:
            low, high = (100.0 * end / whole for end in span)
            bar += f"<b style='left:{low:.2f}%;width:{high - low:.2f}%'></b>"
        told.append(_bar(name, bar, text))
    return _bars(told, [name for name, _, _ in rows])


def _bar(name: str, inner: str, text: str) -> str:
    named, track = f"<span class='name'>{html.escape(name)}</span>", f"<span class='track'>{inner}</span>"
    return f"{named}{track}<span class='says'>{html.escape(text)}</span>"


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
    across: Axis, down: Axis, values: np.ndarray, texts: Sequence[Sequence[str]], *, more: bool = True
) -> str:
    """A heat map: a cell for each pair, stronger where it is better; the best has a frame, what is out a
    dash. Where there are too many cells to write them out, a chart.
    """
    if len(across[1]) > MOST_ACROSS or len(down[1]) > MOST_DOWN:
        return _heat_chart(across, down, values, {"text": [list(line) for line in texts]}, more)
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


def _heat_chart(across: Axis, down: Axis, values: np.ndarray, words: dict[str, Any], more: bool) -> str:
    z = [[float(v) if np.isfinite(v) else None for v in line] for line in values]
    scale = [[0.0, "var(--accent-soft)"], [1.0, "var(--accent)"]]
    figure = plotly_graphs().Figure()
    hover = words | {"hovertemplate": "%{x}, %{y}: %{text}<extra></extra>"}
    bar = {"thickness": 12, "outlinewidth": 0, "exponentformat": "SI"}
    look = {"colorscale": scale, "reversescale": not more, "colorbar": bar}
    figure.add_heatmap(x=list(across[1]), y=list(down[1]), z=z, **hover, **look)
    figure.update_xaxes(title=across[0], type="category", nticks=12)
    figure.update_yaxes(title=down[0], type="category", nticks=16)
    return figure_html(figure, 460, "heat-map")


def tint(share: float) -> str:
    """The accent over the page's ground, never so strong that ink on it is hard to read."""
    return f"color-mix(in srgb, var(--accent) {4 + 46 * share:.0f}%, var(--raised))"


def bars_section(heading: str, said: str, bars: str) -> str:
    """Bars under a heading and a sentence; nothing where there are none."""
    return section(heading, f"<p class='dim'>{html.escape(said)}</p>" if said else "", bars) if bars else ""
