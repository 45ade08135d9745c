"""What a command prints, in a page: its tables and lines as HTML, and the sources of its numbers."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from strata.app.render.page import folded_html, html_table, paragraphs, section
from strata.app.render.prediction import inputs_digest, sourced_numbers
from strata.units import show


def printed_html(part: Any) -> str:
    """A table, a text or a group of them as it would be printed, as HTML.

    >>> printed_html("1 < 2")
    '<p>1 &lt; 2</p>'
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    if isinstance(part, Group):
        first, *rest = part.renderables
        title = first.plain if isinstance(first, Text) else ""
        if not title:
            return "".join(printed_html(one) for one in part.renderables)
        heading, *more = title.splitlines()
        below = [
            paragraphs(one.plain.splitlines(), "dim") if isinstance(one, Text) else printed_html(one)
            for one in rest
        ]
        return section(heading, paragraphs(more, "dim"), *below)
    if isinstance(part, Table):
        return _table(part)
    return paragraphs((part.plain if isinstance(part, Text) else str(part)).splitlines())


def _table(table: Any) -> str:
    """A printed table: its header, its cells, which columns hold numbers."""
    columns = [[_said(cell) for cell in column.cells] for column in table.columns]
    header = [_said(column.header) for column in table.columns] if table.show_header else []
    words = [i for i, column in enumerate(table.columns) if column.justify != "right"]
    return html_table(header, list(zip(*columns, strict=True)), words)


def _said(cell: Any) -> str:
    return cell.plain if hasattr(cell, "plain") else str(cell)


def sources_html(records: dict[str, Any], said: Iterable[str] = ()) -> str:
    """Every number an answer rests on, with its source; those that are assumed stand first and out."""
    rows, assumed, hashes = [], [], []
    for owner, record in records.items():
        numbers = sourced_numbers(record)
        called = " ".join(dict.fromkeys((owner, getattr(record, "name", owner))))
        hashes.append(f"{called} {inputs_digest(record)}")
        for path, number in numbers.items():
            guess = str(number["source"]).startswith("assumed")
            row = (
                f"<tr{' class=assumed' * guess}><td class='w'>{html.escape(f'{owner}.{path}')}</td>"
                f"<td class='n'>{html.escape(show(float(number['value']), number['unit']))}</td>"
                f"<td class='src'>{html.escape(str(number['source']))}</td></tr>"
            )
            rows.append(row)
            assumed += [row] if guess else []
    if not rows:
        return ""
    head = "<thead><tr><th>number</th><th class='n'>value</th><th>source</th></tr></thead>"

    def table(some: list[str]) -> str:
        return f"<div class='wide'><table>{head}<tbody>{''.join(some)}</tbody></table></div>"

    guesses = (
        f"<p><span class='mark assumed'>assumed</span> {len(assumed)} of {len(rows)} numbers are "
        "assumed, not published or measured: the answer changes with them.</p>"
        + folded_html(f"{len(assumed)} assumptions", table(assumed), shown=len(assumed) <= 12, printed=True)
        if assumed
        else f"<p>All {len(rows)} numbers have a source.</p>"
    )
    every = folded_html(f"{len(rows)} numbers with their sources", table(rows))
    known = f"<p class='dim'>hashes: {html.escape(', '.join(hashes))}</p>"
    return section("Inputs, sources and assumptions", paragraphs(said, "dim"), guesses, every, known)


def result_records(result: Any) -> dict[str, Any]:
    """The records a prediction rests on, by what they are called."""
    return {"chip": result.system.chip, "fabric": result.system.fabric, "engine": result.engine}
