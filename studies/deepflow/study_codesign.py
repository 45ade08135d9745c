"""Co-designs as runs of a study: what was found, or what was found before evaluated anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from deepflow.codesign import Codesign, codesign, codesign_problem, model_shapes
from deepflow.design.ledger import MethodTrace
from deepflow.design.problem import FREE, CodesignProblem
from strata.base.errors import require
from strata.base.reading import known_keys
from strata.evaluate import evaluate_case
from strata.hardware.generate.template import CORE, MEMORY
from strata.search.fields import parse_setting
from strata.search.inputs import make_workload, phase_of
from strata.workload.program import program as make_program

CODESIGN_KEYS = (
    "technology", "template", "budget", "program", "system", "strategies", "phase", "batch", "input",
    "output", "free", "spend", "metric", "device", "links", "set", "shapes", "method", "evaluations",
    "compare", "seed", "from_stated", "engine", "rules", "model",
)  # fmt: skip
_PASSED = ("strategies", "spend", "metric", "device", "links", "engine", "rules")
POINTS = 25  # of a trace, along the number of evaluations


def run_codesign(
    entry: dict[str, Any], where: str, folder: Path, runs: dict[str, Any], stored: dict[str, Any] | None
) -> dict[str, Any]:
    """Search a design and tell it: `best`, `stated` (the budget as it is), `cpu_seconds`, every column of the
    design, figures of its chip, and over `count` evaluations the `best_so_far` of each method.

    With nothing free (`free = []`) the stated budget alone is evaluated. With what was `stored` of an earlier
    search its design is evaluated anew instead, and the way there is believed. Of several technologies each
    gets its own search, and numbers are arrays over `technology`.
    """
    names = entry["technology"]
    if isinstance(names, list):
        before = stored["each"] if stored is not None else [None] * len(names)
        require(len(before) == len(names), f"{where}: other technologies were searched before: write it anew")
        return _over(
            names,
            [
                run_codesign({**entry, "technology": n}, where, folder, runs, b)
                for n, b in zip(names, before, strict=True)
            ],
        )
    known_keys(entry, ("name", *CODESIGN_KEYS), where)
    code = make_program(entry["program"], **entry.get("model", {}))
    work = make_workload(
        phase_of(code, entry.get("phase", "train")),
        float(entry.get("batch", 1)),
        float(entry.get("input", 1024)),
        float(entry.get("output", 1024)),
    )
    inputs: dict[str, Any] = {k: entry[k] for k in ("technology", "template", "budget")}
    inputs |= {"program": code, "workload": work, "system": entry.get("system", 1)}
    inputs |= {k: entry[k] for k in _PASSED if k in entry}
    inputs["changes"] = dict(parse_setting(text) for text in entry.get("set", []))
    if "shapes" in entry:
        inputs["shapes"] = model_shapes(code, work, **entry["shapes"])
    free = entry.get("free", list(FREE))
    if not free:
        problem = codesign_problem(**inputs)
        return _figures(problem, None) | {"axes": []}
    if stored is not None:
        problem = codesign_problem(**inputs, free=free)
        return _told(problem, np.array(stored["design"], float), stored)
    options: dict[str, Any] = {
        k: entry[k] for k in ("method", "evaluations", "compare", "seed", "from_stated") if k in entry
    }
    found = codesign(**inputs, free=free, **options)
    require(found.found, f"{where}: no design fits")
    return _told(found.problem, found.trace.design, _kept(found))


def _over(names: list[str], runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Runs of several technologies as one: numbers and words as arrays, over `technology`."""
    plain = {k for k, v in runs[0].items() if isinstance(v, float | bool | str) and all(k in r for r in runs)}
    found: dict[str, Any] = {k: np.array([run[k] for run in runs]) for k in plain}
    found |= {"technology": np.array(names), "axes": ["technology"]}
    if "kept" in runs[0]:
        found["kept"] = {"bound": None, "each": [run["kept"] for run in runs]}
        for kept in found["kept"]["each"]:
            kept["bound"] = None
    return found


def _kept(found: Codesign) -> dict[str, Any]:
    """What is written down of a search, as JSON has it."""
    traces = found.compared or {found.trace.method: found.trace}
    counts = np.unique(np.geomspace(10, found.trace.evaluations, POINTS).astype(int))
    return {
        "design": [float(v) for v in found.trace.design],
        "best": found.value,
        "bound": float("nan"),
        "size": float(found.trace.evaluations),
        "cpu_seconds": round(found.trace.cpu_seconds, 2),
        "count": counts.tolist(),
        "methods": {name: [_finite(t, n) for n in counts.tolist()] for name, t in traces.items()},
    }


def _finite(trace: MethodTrace, count: int) -> float | None:
    value = trace.best_after(count)
    return float(f"{value:.6g}") if np.isfinite(value) else None


def _told(problem: CodesignProblem, design: np.ndarray, kept: dict[str, Any]) -> dict[str, Any]:
    columns = {name.replace(".", "_"): value for name, value in problem.named(design).items()}
    numbers = {name: float(value) for name, value in columns.items() if _is_number(value)}
    lines = [[np.nan if v is None else v for v in line] for line in kept["methods"].values()]
    ends = {
        name.replace("-", "_"): float(line[-1]) for name, line in zip(kept["methods"], lines, strict=True)
    }
    stated = float(getattr(evaluate_case(problem.case_of(None)).metrics, problem.metric))
    return {
        **_figures(problem, design),
        **columns,
        **numbers,
        **{f"by_{name}": value for name, value in ends.items()},
        "stated": stated,
        "cpu_seconds": float(kept["cpu_seconds"]),
        "count": np.array(kept["count"], float),
        "method": list(kept["methods"]),
        "best_so_far": np.array(lines, float).T,
        "axes": ["count", "method"],
        "kept": kept,
    }


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _figures(problem: CodesignProblem, design: np.ndarray | None) -> dict[str, Any]:
    """The metric of a design, and its chip in figures a claim may ask for; SI units."""
    result, made = evaluate_case(problem.case_of(design)), problem.generation_of(design)
    built, running, use = made.made.built, made.made.running, made.use
    area, power = use["area"], use["power"]
    return {
        "best": float(getattr(result.metrics, problem.metric)),
        "fits": bool(result.fits),
        "bound_by": result.bound_by,
        "die": float(made.chip.package.die_area),
        "stacks": float(built.memory.devices),
        "dram_bandwidth": float(running.memory.bandwidth),
        "dram_voltage": float(running.memory.point.voltage),
        "matrix_rate": float(running.core.rate),
        "core_voltage": float(running.core.point.voltage),
        "link_bandwidth": float(max([float(n.bandwidth) for n in running.networks], default=0.0)),
        "link_voltage": float(max([float(n.point.voltage) for n in running.networks], default=0.0)),
        "core_area_used": float(area[CORE] / area["total"]),
        "core_power_used": float(power[CORE] / power["total"]),
        "memory_power_used": float(power[MEMORY] / power["total"]),
    }
