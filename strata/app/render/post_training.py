"""Post-training by reinforcement learning, for people and for machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from strata.app.terminal import plain_table, titled
from strata.mapping.plan import plan_text
from strata.training.post_training import PostTraining
from strata.training.post_training_iteration import SAMPLING, TRAINING, Iteration
from strata.units import show

SHOWN = 8  # ways that are listed


def post_training_tables(found: PostTraining) -> list[Any]:
    """A heading, the ways to run an iteration, and the best one: its phases, its memory, what it costs."""
    best = found.best
    below = "devices: one pool for all phases, or those that sample + those that train"
    parts: list[Any] = [titled(found.question, _ways_table(found.ways[:SHOWN]), below)]
    if len(found.ways) > SHOWN:
        parts.append(f"{len(found.ways) - SHOWN} more; --json has all of them")
    if not best.fits:
        return parts
    parts.append(titled(f"the best: {pools_text(best)}", _phases_table(best)))
    parts.append(titled("memory of a device", _memory_table(best)))
    return [*parts, *_remarks(best)]


def pools_text(way: Iteration) -> str:
    """How devices are shared out, in words."""
    if way.colocated:
        return "one pool" if way.keep else "one pool, moved out"
    return f"{way.rollout_devices} + {way.training_devices}" + (" async" if way.asynchronous else "")


def _ways_table(ways: list[Iteration]) -> Any:
    table = plain_table()
    table.add_column("devices", no_wrap=True)
    for head in ("rollout plan", "training plan"):
        table.add_column(head, overflow="fold")
    for head in ("iteration", "samples/s", "tokens/s/device", "USD", "kWh"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    for way in ways:
        plans = (plan_text(way.rollout_plan), plan_text(replace(way.training_plan, microbatches=0.0)))
        if not way.fits:
            table.add_row(pools_text(way), *plans, *["-"] * 5, "does not fit")
            continue
        cells = (
            show(way.time, "s"),
            f"{way.samples_per_s:.3g}",
            f"{way.tokens_per_s_per_device:,.0f}",
            f"{way.usd:.3g}",
            f"{way.kwh:.3g}",
        )
        table.add_row(pools_text(way), *plans, *cells, way.bound_by)
    return table


def _phases_table(way: Iteration) -> Any:
    table = plain_table()
    for head, side in (("phase", "left"), ("on", "left"), ("start", "right"), ("time", "right")):
        table.add_column(head, justify=side, no_wrap=True)
    table.add_column("share", justify="right")
    table.add_column("bound by")
    for p in way.phases:
        times = (show(p.start, "s"), show(p.time, "s"), f"{p.time / way.time:.1%}")
        table.add_row(p.name, p.pool, *times, p.bound_by)
    return table


def _memory_table(way: Iteration) -> Any:
    table = plain_table()
    for head in ("phase", "used", "may fill"):
        table.add_column(head, justify="left" if head == "phase" else "right", no_wrap=True)
    table.add_column("of which")
    for phase, held in way.memory.items():
        parts = ", ".join(f"{show(v, 'B')} {k}" for k, v in sorted(held.items(), key=lambda kv: -kv[1]))
        table.add_row(phase, show(sum(held.values()), "B"), show(way.limits[phase], "B"), parts)
    return table


def _remarks(way: Iteration) -> list[str]:
    said = [] if way.keep else ["moved out: what a phase does not need lies in the hosts' memory meanwhile"]
    said += [
        f"{way.slots:,.0f} responses at once, of {float(way.recipe.samples):,.0f}; "
        f"an iteration takes {way.usd:.3g} USD and {way.kwh:.3g} kWh"
    ]
    if not way.colocated:
        idle = ", ".join(f"the {pool} {way.idle_share(pool):.0%}" for pool in (SAMPLING, TRAINING))
        said.append(f"waiting: {idle} of the time")
    return said


def post_training_dict(found: PostTraining) -> dict[str, Any]:
    """Every number, SI units."""
    r = found.recipe
    names = ("batch", "group", "prompt", "response", "longest", "spread", "minibatch", "epochs")
    return {
        "question": {
            "model": found.model.name,
            "system": found.system.name,
            "recipe": r.name,
            "rollout_engine": found.rollout_engine.name,
            "training_engine": found.training_engine.name,
            **{name: float(getattr(r, name)) for name in names},
        },
        "ways": [_way(way) for way in found.ways],
        "why_none": found.why_none,
    }


def _way(way: Iteration) -> dict[str, Any]:
    return {
        "pools": "one" if way.colocated else "two",
        "asynchronous": way.asynchronous,
        "keep": way.keep,
        "rollout_devices": way.rollout_devices,
        "training_devices": way.training_devices,
        "rollout_plan": plan_text(way.rollout_plan),
        "training_plan": plan_text(way.training_plan),
        "fits": way.fits,
        "why_not": way.why_not,
        "time_s": way.time,
        "samples_per_s": way.samples_per_s,
        "tokens_per_s": way.tokens_per_s,
        "tokens_per_s_per_device": way.tokens_per_s_per_device,
        "cost_USD": way.usd,
        "energy_J": way.energy,
        "bound_by": way.bound_by,
        "slots": way.slots,
        "phases": [
            {"phase": p.name, "pool": p.pool, "start_s": p.start, "time_s": p.time, "bound_by": p.bound_by}
            for p in way.phases
            if np.isfinite(p.time)
        ],
        "memory_B": way.memory,
        "limit_B": way.limits,
    }


def post_training_rows(told: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each way, with times of its phases."""
    left_out = ("phases", "memory_B", "limit_B")
    return [
        {k: v for k, v in way.items() if k not in left_out}
        | {f"{p['phase'].replace(' ', '_')}_s": p["time_s"] for p in way["phases"]}
        for way in told["ways"]
    ]
