"""A program on a system of generated chips, as a run of a study."""

from __future__ import annotations

from typing import Any

from deepflow.generated import sweep_generated
from strata.base.reading import known_keys
from strata.search.inputs import make_workload, phase_of
from strata.validation.accuracy.study_errors import recipe_of
from strata.workload.program import program as make_program

PASSED = ("device", "links", "sizes", "plan", "vary", "engine", "metric", "where", "orders", "gains")
GENERATE_KEYS = ("name", "generate", "model", "devices", "batch", "input", "output", "phase", "set", *PASSED)


def run_generated(entry: dict[str, Any], where: str) -> dict[str, Any]:
    """A program on a system of generated chips."""
    known_keys(entry, GENERATE_KEYS, where)
    technology, budget, template = recipe_of(entry, where)
    program = make_program(entry["model"])
    sizes = (float(entry.get(k, usual)) for k, usual in (("batch", 1), ("input", 1024), ("output", 1024)))
    work = make_workload(phase_of(program, entry.get("phase", "train")), *sizes)
    settings: dict[str, Any] = {key: entry[key] for key in PASSED if key in entry}
    settings |= {"devices": int(entry.get("devices", 1)), "changes": list(entry.get("set", []))}
    found = sweep_generated(technology, budget, template, program, workload=work, **settings)
    shorts = [a.name.rsplit(".", 1)[-1] for a in found.axes]
    # two axes of one last part have their whole names
    named = [
        a.name.replace(".", "_") if shorts.count(short) > 1 else short
        for a, short in zip(found.axes, shorts, strict=True)
    ]
    values: dict[str, Any] = dict(found.values) | {"plans": found["plan"]}
    return values | {name: a.values for name, a in zip(named, found.axes, strict=True)} | {"axes": named}
