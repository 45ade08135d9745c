"""Two saved results beside each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.table import Table

from strata.errors import BadFile


def compare_files(first: Path, second: Path) -> list[dict[str, Any]]:
    """Every value that differs between two results saved with --json, by path; numbers with their ratio."""
    left, right = (_flat(_read(p)) for p in (first, second))
    rows = []
    for path in dict.fromkeys([*left, *right]):
        a, b = left.get(path), right.get(path)
        if a != b:
            numeric = isinstance(a, (int, float)) and isinstance(b, (int, float)) and a
            rows.append({"path": path, "first": a, "second": b, "ratio": b / a if numeric else None})
    return rows


def _read(path: Path) -> Any:
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        raise BadFile(f"no result file at {path}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadFile(f"{path.name} is not JSON: {error}") from None
    if not isinstance(data, dict) or "metrics" not in data:
        raise BadFile(f"{path.name} is not a result: make one with strata predict ... --json")
    return data


def _flat(node: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(node, dict):
        return {k: v for key, value in node.items() for k, v in _flat(value, f"{prefix}{key}.").items()}
    if isinstance(node, list):
        return {k: v for i, value in enumerate(node) for k, v in _flat(value, f"{prefix}{i}.").items()}
    return {prefix[:-1]: node}


def comparison_table(rows: list[dict[str, Any]], first: str, second: str) -> Table:
    table = Table(
        title="the two results are the same" if not rows else f"{len(rows)} differences",
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 2),
    )
    if not rows:
        return table
    table.add_column("what")
    table.add_column(first, justify="right", overflow="fold")
    table.add_column(second, justify="right", overflow="fold")
    table.add_column("ratio", justify="right")
    for row in rows:
        shown = [f"{v:.6g}" if isinstance(v, float) else str(v) for v in (row["first"], row["second"])]
        table.add_row(row["path"], *shown, f"{row['ratio']:.3f}" if row["ratio"] else "")
    return table
