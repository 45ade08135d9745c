"""Parts of HTML pages that open offline: the page, its tables, its pictures."""

from __future__ import annotations

import html
from typing import Any

from strata.shipped import extra_package

PAGE_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1100px; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .4rem; }
p { margin: .3rem 0; }
table { border-collapse: collapse; }
td, th { padding: .2rem 1.2rem .2rem 0; text-align: left; vertical-align: top; }
th { border-bottom: 1px solid #ccc; font-weight: 600; } tr + tr td { border-top: 1px solid #eee; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.assumed td { color: #8a5a00; } .dim { color: #777; } summary { cursor: pointer; }
"""


def plotly_graphs() -> Any:
    """Plotly's graph objects, which `pip install 'strata[plots]'` brings."""
    return extra_package("plotly.graph_objects", "a report", "plots")


def html_page(heading: str, parts: list[str]) -> str:
    """A whole page; the first picture carries the plotting library, so that the file opens offline."""
    head = "<meta name='viewport' content='width=device-width, initial-scale=1'>"
    head += f"<meta charset='utf-8'><title>{html.escape(heading)}</title><style>{PAGE_STYLE}</style>"
    body = f"<h1>{html.escape(heading)}</h1>{''.join(parts)}"
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{body}</body></html>"


def figure_html(figure: Any, first: bool, height: int = 380) -> str:
    """A picture of a page; the first one brings the plotting library."""
    figure.update_layout(
        height=height, margin={"l": 60, "r": 20, "t": 20, "b": 50}, template="plotly_white", font={"size": 13}
    )
    figure.update_yaxes(automargin=True)
    return str(
        figure.to_html(
            full_html=False, include_plotlyjs=first, config={"displaylogo": False, "displayModeBar": False}
        )
    )


def html_table(header: list[str], rows: list[list[str]], words: tuple[int, ...] = (0,)) -> str:
    """A table; columns that hold words stand left, numbers right."""

    def cells(tag: str, row: list[str]) -> str:
        return "".join(
            f"<{tag}{'' if i in words else ' class=n'}>{html.escape(c)}</{tag}>" for i, c in enumerate(row)
        )

    head = f"<tr>{cells('th', header)}</tr>" if any(header) else ""
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table>{head}{body}</table>"


def bars_figure(
    labels: list[str], values: list[float], texts: list[str], colours: list[str] | str, axis: str
) -> Any:
    """Bars that lie, longest on top, each with its value at its end."""
    go = plotly_graphs()
    figure = go.Figure(
        go.Bar(
            x=values,
            y=labels,
            text=texts,
            textposition="outside",
            cliponaxis=False,
            orientation="h",
            marker_color=colours,
            hoverinfo="skip",
        )
    )
    figure.update_yaxes(autorange="reversed", ticksuffix=" ")
    figure.update_xaxes(title=axis, range=[min(0.0, *values) * 1.15, max(*values, 1e-12) * 1.15])
    return figure
