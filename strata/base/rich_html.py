"""Answers in notebooks: cards, bars, tables and small drawings as HTML and SVG that need nothing else.

Ink is the page's own (`currentColor`) and colours are of middle lightness, so that light and dark pages both
show them; styles stand in the elements, because some viewers drop style sheets. No script.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import isfinite, log10

from strata.base.units import show

# of the resources that time is credited to, as on the pages of `strata serve`
RESOURCE_COLOURS = {
    "compute": "#4a7fd6",
    "memory": "#d9803a",
    "network": "#3f9d6b",
    "cache": "#3d9fb6",
    "overhead": "#858e9d",
    "throttling": "#d0554c",
    "bubble": "#a286cc",
    "host": "#b5764f",
}
ACCENT, FAINT = RESOURCE_COLOURS["compute"], "rgba(128,128,128,.28)"
FONT = "font:13px/1.45 system-ui,sans-serif;max-width:860px"
LEAST_SHARE = 0.005  # of a bar that is drawn
MOST_LINES = 12  # of a table
Card = tuple[str, str, str]  # what, how much, and a line beside


def display_html(title: str, *parts: str) -> str:
    """One answer: its title over its parts."""
    head = f'<div style="font-weight:600;margin:0 0 8px">{escape(title)}</div>'
    return f'<div style="{FONT}">{head}{"".join(parts)}</div>'


def rich_cards(cards: Sequence[Card]) -> str:
    """Headline numbers side by side."""
    box = f"border:1px solid {FAINT};border-radius:8px;padding:6px 12px;min-width:104px"
    made = [
        f'<div style="{box}"><div style="opacity:.72">{escape(what)}</div>'
        f'<div style="font-size:19px;font-weight:600">{escape(value)}</div>'
        f'<div style="opacity:.72;font-size:12px">{escape(beside)}</div></div>'
        for what, value, beside in cards
    ]
    return f'<div style="display:flex;flex-wrap:wrap;gap:8px;margin:0 0 10px">{"".join(made)}</div>'


def bar_html(what: str, parts: Mapping[str, float], unit: str) -> str:
    """A bar of parts of a whole, with what each is below it.

    >>> "memory 75%" in bar_html("time", {"memory": 3.0, "network": 1.0}, "s")
    True
    """
    whole = sum(parts.values())
    if not (isfinite(whole) and whole > 0.0):
        return ""
    colours = _colours(tuple(parts))
    drawn, told, at = [], [], 0.0
    for name, value in parts.items():
        share = value / whole
        if share < LEAST_SHARE:
            continue
        said = f"{name} {share:.0%}, {show(value, unit)}"
        drawn.append(
            f'<rect x="{at * 1000:.2f}" width="{share * 1000:.2f}" height="18" fill="{colours[name]}">'
            f"<title>{escape(said)}</title></rect>"
        )
        dot = f'<span style="color:{colours[name]}">&#9632;</span>'
        told.append(f"{dot} {escape(name)} {share:.0%}")
        at += share
    label = f"{escape(what)}: {escape(', '.join(parts))}"
    return (
        '<div style="margin:0 0 10px">'
        f'<div style="opacity:.72">{escape(what)}, {escape(show(whole, unit))}</div>'
        f'<svg viewBox="0 0 1000 18" preserveAspectRatio="none" role="img" aria-label="{label}" '
        f'style="width:100%;height:18px;display:block">{"".join(drawn)}</svg>'
        f'<div style="display:flex;flex-wrap:wrap;gap:2px 14px;font-size:12px">'
        f"{''.join(f'<span>{t}</span>' for t in told)}</div></div>"
    )


def table_html(heads: Sequence[str], rows: Sequence[Sequence[str]], *, said: str = "") -> str:
    """A table, in a fold where `said` names one; only its first lines where it is long."""
    cell = f"padding:2px 10px;border-bottom:1px solid {FAINT};text-align:left"
    top = "".join(f'<th style="{cell};opacity:.72;font-weight:500">{escape(h)}</th>' for h in heads)
    lines = [
        "<tr>" + "".join(f'<td style="{cell}">{escape(c)}</td>' for c in row) + "</tr>"
        for row in rows[:MOST_LINES]
    ]
    left = len(rows) - MOST_LINES
    more = f'<div style="opacity:.72">and {left:,} more: to_pandas()</div>' if left > 0 else ""
    table = (
        f'<div style="overflow-x:auto"><table style="border-collapse:collapse;font:inherit">'
        f"<thead><tr>{top}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table></div>{more}"
    )
    return f"<details><summary>{escape(said)}</summary>{table}</details>" if said else table


def scatter_svg(
    points: Sequence[tuple[float, float, str]], across: str, up: str, *, joined: bool = True
) -> str:
    """Points by two quantities with a hover each, on scales of even factors where they span more than ten."""
    kept = [p for p in points if isfinite(p[0]) and isfinite(p[1])]
    if len(kept) < 2:
        return ""
    width, height, left, below = 640.0, 260.0, 64.0, 40.0
    xs, ys = _scale([p[0] for p in kept]), _scale([p[1] for p in kept])
    place = [
        (left + x * (width - left - 16.0), 14.0 + (1.0 - y) * (height - below - 14.0))
        for x, y in zip(xs, ys, strict=True)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in sorted(place))
    dots = [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{ACCENT}"><title>{escape(p[2])}</title></circle>'
        for (x, y), p in zip(place, kept, strict=True)
    ]
    axes = f"M{left - 8:.0f} 8V{height - below + 8:.0f}H{width - 8:.0f}"
    path = f'<polyline points="{line}" fill="none" stroke="{ACCENT}" stroke-opacity=".5"/>' if joined else ""
    text = 'fill="currentColor" font-size="12"'
    ends = [
        (left, height - 16.0, "start", show(min(p[0] for p in kept))),
        (width - 16.0, height - 16.0, "end", show(max(p[0] for p in kept))),
        (left - 12.0, height - below, "end", show(min(p[1] for p in kept))),
        (left - 12.0, 20.0, "end", show(max(p[1] for p in kept))),
        (width / 2.0, height - 2.0, "middle", across),
        (left, 10.0, "start", up),
    ]
    said = "".join(
        f'<text {text} x="{x:.0f}" y="{y:.0f}" text-anchor="{a}">{escape(t)}</text>' for x, y, a, t in ends
    )
    return (
        f'<svg viewBox="0 0 {width:.0f} {height + 4:.0f}" role="img" '
        f'aria-label="{escape(up)} over {escape(across)}" '
        f'style="width:100%;max-width:{width:.0f}px;display:block"><path d="{axes}" fill="none" '
        f'stroke="currentColor" stroke-opacity=".35"/>{path}{"".join(dots)}{said}</svg>'
    )


def blocks_svg(rows: Sequence[tuple[str, Sequence[tuple[str, float, str, str]]]]) -> str:
    """Rows of blocks as wide as their share: what is in each, its size, what binds it, and a hover."""
    whole = max((sum(size for _, size, _, _ in row) for _, row in rows), default=0.0)
    if whole <= 0.0:
        return ""
    drawn = []
    for number, (label, row) in enumerate(rows):
        y, at = 46.0 * number, 0.0
        drawn.append(
            f'<text fill="currentColor" font-size="12" x="0" y="{y + 12:.0f}">{escape(label)}</text>'
        )
        for name, size, resource, said in row:
            width = 860.0 * size / whole
            colour = RESOURCE_COLOURS.get(resource, ACCENT)
            drawn.append(
                f'<g><title>{escape(said)}</title><rect x="{at:.1f}" y="{y + 17:.0f}" '
                f'width="{max(width - 1.5, 0.5):.1f}" height="22" rx="3" fill="{colour}"/>'
            )
            if width > 7.0 * len(name):
                place = f'x="{at + width / 2:.1f}" y="{y + 32:.0f}" text-anchor="middle"'
                drawn.append(f'<text {place} font-size="12" fill="#fff">{escape(name)}</text>')
            drawn.append("</g>")
            at += width
    return (
        f'<svg viewBox="0 0 860 {46 * len(rows)}" role="img" aria-label="partitions by time" '
        f'style="width:100%;max-width:860px;display:block">{"".join(drawn)}</svg>'
    )


def _colours(names: tuple[str, ...]) -> dict[str, str]:
    spare = [c for n, c in RESOURCE_COLOURS.items() if n not in names]
    return {n: RESOURCE_COLOURS.get(n) or spare[i % len(spare)] for i, n in enumerate(names)}


def _scale(values: list[float]) -> list[float]:
    """Values from 0 to 1, by factors where they span more than ten."""
    if min(values) > 0.0 and max(values) > 10.0 * min(values):
        values = [log10(v) for v in values]
    low, span = min(values), max(values) - min(values)
    return [(v - low) / span if span else 0.5 for v in values]
