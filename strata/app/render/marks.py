"""Where every number that is shown comes from: its own document, another file, a fit, other numbers, or an
assumption.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from strata.params import MARKS, Param

_WORKED_OUT = ("follows", "counted from")


def marked(numbers: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Numbers with the mark of each (`strata.params.MARKS`), whom it is inherited from and what it is there.

    >>> found = marked({"a": {"value": 1, "source": "inherited from h200: fitted: gemm.csv"}})["a"]
    >>> found["mark"], found["from"], found["there"]
    ('inherited', 'h200', 'fitted')
    """
    return {path: {**entry, **_mark(entry)} for path, entry in numbers.items()}


def _mark(entry: dict[str, Any]) -> dict[str, str]:
    known = Param(0.0, str(entry.get("unit", "1")), str(entry["source"]))
    mark = "derived" if known.stated_source.startswith(_WORKED_OUT) else known.mark
    return {"mark": mark, "from": known.inherited_from, "there": known.mark_there}


def mark_text(entry: dict[str, Any]) -> str:
    """A mark as a table has it.

    >>> mark_text({"mark": "inherited", "from": "h200"}), mark_text({"mark": "fitted", "from": ""})
    ('inherited (h200)', 'fitted')
    """
    return f"{entry['mark']} ({entry['from']})" if entry["from"] else str(entry["mark"])


def source_text(entry: dict[str, Any]) -> str:
    """A source without the file that its mark names already."""
    return Param(0.0, "1", str(entry["source"])).stated_source


def legend(numbers: dict[str, dict[str, Any]]) -> str:
    """How many numbers have which mark, and what the marks mean."""
    count = Counter(entry["mark"] for entry in numbers.values())
    if not count:
        return ""
    kinds = [mark for mark in MARKS if count[mark]]
    told = ", ".join(f"{count[mark]} {mark}" for mark in kinds)
    meaning = "; ".join(f"{mark}: {MARKS[mark]}" for mark in kinds)
    return f"{len(numbers)} numbers: {told}\n{meaning}"


def versions_text(described: dict[str, Any]) -> str:
    """The releases that `name@version` takes, and those in which something changed."""
    versions = described.get("versions")
    if not versions:
        return ""
    first, last = versions[0], versions[-1]
    changed = [f"{', '.join(v['changes'])} up to {v['version']}" for v in versions if v["changes"]]
    span = f"versions {first['version']} ({first['date']}) to {last['version']} ({last['date']})"
    return f"{span}, as {described['name']}@{last['version']}" + (
        f"; other: {'; '.join(changed)}" if changed else ""
    )
