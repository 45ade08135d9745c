"""Requests from the server's own OpenAPI schema, some hundred of the thousands of `make fuzz-web`."""

import re

import httpx
import pytest

CASES, SEED = 40, 7


def test_no_request_that_the_schema_makes_ends_as_a_fault(server):
    pytest.importorskip("schemathesis", reason="schemathesis is not installed (strata[dev])")
    from .schema_fuzz import fuzz

    report = fuzz(server.url, CASES, SEED, quiet=True)
    assert not report.faults, "\n".join(report.faults)
    assert report.cases >= 0.9 * CASES and report.statuses[200] > 4 and report.statuses[422] > 12


def test_every_route_says_what_it_takes_and_how_it_refuses(server):
    schema = httpx.get(f"{server.url}/api/openapi.json").json()
    for path, ways in schema["paths"].items():
        for method, way in ways.items():
            assert way.get("summary") and {"422", "403", "429"} <= set(way["responses"]), (method, path)
    for name, part in schema["components"]["schemas"].items():
        if name not in ("Told", "JobTold", "HTTPValidationError", "ValidationError"):
            assert part.get("additionalProperties") is False, f"{name} takes what nobody has named"


def test_no_text_or_list_of_a_question_is_without_end(server):
    """What is asked has bounds, so that nothing is expensive by accident."""
    schema = httpx.get(f"{server.url}/api/openapi.json").json()["components"]["schemas"]
    endless = []

    def look(part, where):
        kind = part.get("type")
        if kind == "string" and not ({"enum", "const", "maxLength"} & set(part)) and not _short(part):
            endless.append(f"{where}: text")
        if kind == "array" and "maxItems" not in part:
            endless.append(f"{where}: list")
        if kind in ("integer", "number") and not {"maximum", "exclusiveMaximum"} & set(part):
            endless.append(f"{where}: number")
        if (
            kind == "object"
            and "additionalProperties" in part
            and "properties" not in part
            and "maxProperties" not in part
        ):
            endless.append(f"{where}: table")
        for inner in (*part.get("anyOf", []), *([part["items"]] if "items" in part else [])):
            look(inner, where)
        if isinstance(part.get("additionalProperties"), dict):
            look(part["additionalProperties"], f"{where}.*")

    for name, part in schema.items():
        if name not in ("Told", "JobTold", "HTTPValidationError", "ValidationError"):
            for key, form in part.get("properties", {}).items():
                look(form, f"{name}.{key}")
    assert not endless, "\n".join(endless)


def _short(part):
    """A pattern that says how long a text may be, or lists what it may be."""
    return "pattern" in part and not re.search(r"[*+]", part["pattern"])
