"""A run of training for machines and for people: days, money, energy, its plan, memory by stage, what a step
waits for, what stops take, and what other plans would do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from strata.app.render.tables import bare, cells_of, floats, picked
from strata.app.terminal import titled, words
from strata.base.arrays import Number
from strata.base.units import show
from strata.mapping.plan import WORDS, Plan, order_text, plan_text
from strata.one_step import stage_memory
from strata.pricing.price import RESOURCES
from strata.search.plan_for import why_behind
from strata.training.plan_levers import LeverWorth
from strata.training.plan_search import TrainingSearch
from strata.training.reliability import MONTH
from strata.training.run import DAY, TrainRun, count_text
from strata.training.scaling import ScalingCurve

BAR = 60  # columns of a full bar
GLYPHS, ROOM = "█▓▒░▚▞▪▫", "·"
MOST_LOSS = 0.3  # of a lever's value that is told by itself
MOST_STAGES = 16  # bars of memory; more are left out between the first and the last
STEP_WORDS = {
    "compute": "computing", "cache": "on-chip memories", "memory": "DRAM",
    "overhead": "launches, small kernels",
    "throttling": "clock held down by power", "bubble": "pipeline bubble", "host": "host",
    "communication": "exposed communication", "gradients": "exposed: gradients summed",
    "parameters": "exposed: parameters gathered", "tp": "exposed: tensor parallel",
    "offload": "exposed: activations offloaded", "cp": "exposed: context parallel",
    "ep": "exposed: experts exchanged",
    "p2p": "exposed: stages' hand-overs", "pp": "exposed: stages' hand-overs",
}  # fmt: skip

_AWAY = {"optimizer": "optimiser", "activations": "activations", "both": "optimiser and activations"}
OTHERS = "the best plans, one for each division of the devices"
SCALED = ("devices", "batch", "tokens/s/GPU", "efficiency", "MFU", "goodput", "days", "USD", "plan")


def train_dict(run: TrainRun, curves: list[ScalingCurve]) -> dict[str, Any]:
    """The run for machines, in SI units but for days and MWh."""
    found = run.to_dict()
    found["memory_by_stage_B"] = {name: list(each) for name, each in stage_memory(run.result).items()}
    if run.search is not None:
        found["search"] = {
            **picked(run.search, "considered refined feasible out_by_reason=out"),
            "plans": [_choice_dict(run, choice.result) for choice in run.search.choices],
            "levers": [picked(o, "lever=name value plans feasible=fitting loss") for o in run.search.levers],
        }
    return found | ({"scaling": {c.kind: c.to_dict() for c in curves}} if curves else {})


def _choice_dict(run: TrainRun, result: Any) -> dict[str, Any]:
    m = result.metrics
    return {
        "plan": plan_text(result.plan),
        **floats(m, "tokens_per_s_per_device mfu memory_B=memory_used"),
        "days": run.days * float(m.step_time) / float(run.result.metrics.step_time),
    }


def train_page(run: TrainRun) -> list[Any]:
    """The run for people."""
    parts = [bare(run_title(run), run_rows(run)), "", _plan_lines(run), "", *_memory_bars(run)]
    parts += ["", _step_table(run), "", goodput_table(run)]
    if run.search is not None:
        header = ("tokens/s/GPU", "days", "MFU", "memory", "behind", "plan")
        rows = [(*cells, plan) for plan, *cells in other_rows(run, run.search)]
        parts += ["", words(OTHERS, "bold"), _lines(header, rows)]
        parts += [*(f" {line}" for line in others_remarks(run.search)), "", levers_table(run.search)]
    return parts


def run_title(run: TrainRun) -> str:
    """What is trained, on what, with which batch."""
    r, work = run.result, run.result.workload
    size = float(work.batch) * float(work.sequence)
    title = f"{r.model.name} ({count_text(run.parameters)} parameters) on {r.system.name}: "
    title += f"{count_text(run.tokens)} tokens, batch {float(work.batch):g} x {float(work.sequence):g} "
    return f"{title}({count_text(size)} tokens a step), engine {r.engine.name}"


def run_rows(run: TrainRun) -> list[tuple[str, str, str]]:
    """The numbers of a run: what, how much, and what to know about it."""
    r, m, kept = run.result, run.result.metrics, run.goodput
    hours, share, rate = float(r.system.devices) * run.time / 3600.0, float(kept.share), float(m.tokens_per_s)
    cost = show(run.cost, "USD") if np.isfinite(run.cost) else "no price"
    power = f"{show(float(m.power), 'W')} while it trains, hosts and cooling included; "
    tokens = f"{count_text(rate)} tokens/s; {count_text(rate * share)} over the month"
    steps = f"{run.steps:,.0f} steps of {show(m.step_time, 's')}, goodput {share:.1%}"
    return [
        ("time", days_text(run.days), steps),
        ("cost", cost, f"{hours:,.0f} device-hours at {float(m.cost_per_device_hour):.3g} USD"),
        ("energy", energy_text(run), f"{power}PUE {float(r.economics.overhead):g}"),
        ("tokens/s/GPU", show(run.tokens_per_s_per_device), tokens),
        ("MFU", f"{run.mfu:.1%}", f"HFU {run.hfu:.1%}: operations that are recomputed counted too"),
    ]


def energy_text(run: TrainRun) -> str:
    """The energy of a run in MWh."""
    return f"{run.mwh:,.0f} MWh" if run.mwh >= 10 else f"{run.mwh:.3g} MWh"


def days_text(days: float) -> str:
    """Days as people say them.

    >>> days_text(37.83), days_text(0.31), days_text(412.0), days_text(2620.0)
    ('37.8 days', '7.44 hours', '412 days', '2,620 days')
    """
    return f"{few_digits(days)} days" if days >= 2 else f"{days * 24:.3g} hours"


def few_digits(value: float) -> str:
    """Three digits, or all of a whole number that has more."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def plan_words(plan: Plan, micro: float) -> str:
    """A plan in words.

    >>> from strata.mapping.plan import plan
    >>> plan_words(plan("tp=8,pp=4,dp=16,sp=1,zero=1,recompute=full,microbatches=64"), 1.0)
    'tensor 8 (sequence parallel), pipeline 4 (1f1b), data 16 (ZeRO-1), micro-batch 1 x 64, recompute full'
    """
    parts = []
    if plan.tp > 1:
        parts.append(f"tensor {plan.tp:g}" + (" (sequence parallel)" if plan.sp else ""))
    if plan.cp > 1:
        parts.append(f"context {plan.cp:g} ({WORDS['cp_mode'][int(plan.cp_mode)]})")
    if plan.pp > 1:
        schedule = WORDS["schedule"][int(plan.schedule)]
        v = f"interleaved, {plan.virtual_stages:g} chunks a stage" if plan.virtual_stages > 1 else schedule
        parts.append(f"pipeline {plan.pp:g} ({v})")
    shards = f" over {plan.dp_shard:g} ranks" if plan.zero and plan.dp_shard else ""
    parts.append(f"data {plan.dp:g}" + (f" (ZeRO-{plan.zero:g}{shards})" if plan.zero else ""))
    if plan.ep > 1:
        parts.append(f"experts {plan.ep:g}")
    parts.append(f"micro-batch {micro:g}" + (f" x {plan.microbatches:g}" if plan.microbatches else ""))
    some = f" ({plan.recompute_layers:g} layers of a chunk)" if plan.recompute_layers else ""
    parts.append(f"recompute {WORDS['recompute'][int(plan.recompute)]}{some}")
    away = WORDS["offload"][int(plan.offload)]
    return ", ".join([*parts, *([f"{_AWAY[away]} in the host's memory"] if plan.offload else [])])


def _plan_lines(run: TrainRun) -> Any:
    said, s = f"plan {plan_text(run.plan)}", run.search
    if s is not None:
        said += f": the best of {s.considered + s.refined:,}, {s.feasible:,} of which fit"
    order = order_text(run.plan)
    placed = f"; {order} on the fabric, innermost first" if order else ""
    return words(f"{said}\n {plan_words(run.plan, run.micro_batch)}{placed}", no_wrap=True)


def _memory_bars(run: TrainRun) -> list[Any]:
    """A bar for every stage, filled by purpose up to what a device may hold."""
    held, limit = stage_memory(run.result), float(run.result.metrics.memory_limit)
    purposes = [name for name, each in held.items() if np.max(each) > 0]
    lines, half = [], MOST_STAGES // 2
    for stage, label in enumerate(stage_names(run)):
        sizes = [float(held[name][stage]) for name in purposes]
        lines.append(f" {label:>8}  {bar(sizes, limit)}  {show(sum(sizes), 'B')}")
    if len(lines) > MOST_STAGES:
        lines[half:-half] = ["  ..."]
    full = int(np.argmax(sum(held.values())))
    legend = [f"{glyph_of(i)} {name} {show(float(held[name][full]), 'B')}" for i, name in enumerate(purposes)]
    return [titled(memory_title(run), words("\n".join([*lines, *legend_lines(legend)]), no_wrap=True))]


def stage_names(run: TrainRun) -> list[str]:
    """What bars of memory are called."""
    stages = len(next(iter(stage_memory(run.result).values())))
    alone = "fullest" if run.plan.pp > 1 else "device"
    return [f"stage {i}" for i in range(stages)] if stages > 1 else [alone]


def memory_title(run: TrainRun) -> str:
    """What a device holds, of what it may."""
    used, limit = run.result.metrics.memory_used, run.result.metrics.memory_limit
    return f"memory of a device, {show(float(used), 'B')} of {show(float(limit), 'B')} at most"


def legend_lines(words: list[str], width: int = BAR + 20) -> list[str]:
    """Words of a legend in as many lines as they need, none of them cut.

    >>> legend_lines(["one 1 GB", "two 2 GB", "three 3 GB"], 22)
    ['  one 1 GB  two 2 GB', '  three 3 GB']
    """
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + len(word) + 2 > width:
            lines.append("")
        lines[-1] += f"  {word}"
    return lines


def glyph_of(place: int) -> str:
    return GLYPHS[place % len(GLYPHS)]


def bar(sizes: list[float], limit: float, width: int = BAR) -> str:
    """Sizes side by side, as long as their share of a limit; dots are room that is left.

    >>> bar([2.0, 1.0], 4.0, 8)
    '████▓▓··'
    """
    ends = [round(min(end / limit, 1.0) * width) for end in np.cumsum(sizes)]
    drawn, last = "", 0
    for place, end in enumerate(ends):
        drawn += glyph_of(place) * (end - last)
        last = end
    return drawn + ROOM * (width - last)


def step_parts(run: TrainRun) -> dict[str, float]:
    """Where the time of a step goes [s]: what its kernels are bound by, and each wait by name."""
    bound = run.result.steps[-1].time_by_bound
    parts = {name: float(bound[name]) for name in RESOURCES if name != "network"}
    parts = {name: time for name, time in parts.items() if time > 0}
    return dict(sorted(parts.items(), key=lambda p: -p[1])) | run.waits


def _step_table(run: TrainRun) -> Any:
    whole = float(run.result.metrics.step_time)
    rows = []
    for name, time in step_parts(run).items():
        share = time / whole
        rows.append((STEP_WORDS.get(name, name), show(time, "s"), f"{share:.1%}", "█" * round(share * BAR)))
    return bare(f"a step of {show(whole, 's')} on the mean device", rows, "|)|)|")


def goodput_table(run: TrainRun) -> Any:
    """What a month loses, and to what."""
    kept = run.goodput
    about = {
        "checkpoints": f"{show(kept.state, 'B')} every {_clock(kept.interval)}, {show(kept.stall, 's')} "
        f"each; {show(kept.writing, 's')} to write",
        "restarts": f"{kept.failures:.3g} failures a month (one in {_clock(kept.mtbf)}), "
        f"{_clock(kept.recovery)} each",
        "work done again": "since the last checkpoint",
        "stragglers": "machines slower than the rest",
    }
    rows = ((name, f"{share:.2%}", about.get(name, "")) for name, share in kept.lost.items())
    trained = f"{kept.share * MONTH / DAY:.1f} days of training in a month of 30"
    return bare(f"goodput {float(kept.share):.1%}: {trained}; the rest is", rows, "|)|")


def _clock(span: Number) -> str:
    seconds = float(span)
    for unit, size in (("days", DAY), ("hours", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return show(seconds, "s")


def _lines(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Any:
    """Rows whose last cell may be long: it is never folded nor cut, so that it can be copied."""
    every = [header, *rows]
    wide = [max(len(row[i]) for row in every) for i in range(len(header) - 1)]
    lines = ["  ".join([*(c.rjust(w) for c, w in zip(row, wide, strict=False)), row[-1]]) for row in every]
    return words("\n".join(f" {line}" for line in lines), no_wrap=True)


def other_rows(run: TrainRun, found: TrainingSearch) -> list[tuple[str, ...]]:
    """The best plans: each with tokens/s of a device, days, MFU, memory, and how far it is behind."""
    best = float(found.nearest.metrics.tokens_per_s)
    rows: list[tuple[str, ...]] = []
    for choice in found.choices:
        row = _choice_dict(run, choice.result)
        behind = float(choice.result.metrics.tokens_per_s) / best - 1.0
        plan, rate, mfu, memory = cells_of(row, "plan tokens_per_s_per_device:1 mfu:.1% memory_B:B")
        rows.append((plan, rate, few_digits(row["days"]), mfu, memory, f"{behind:+.1%}" if behind else ""))
    return rows


def others_remarks(found: TrainingSearch) -> list[str]:
    """Why the second plan is behind, and how many are out, and why."""
    below = [f"second: {why_behind(c.result, found.nearest)}" for c in found.choices[1:2]]
    return below + [f"{count:,} plans are out: {why}" for why, count in found.out.items()]


def levers_table(found: TrainingSearch) -> Any:
    """What each lever is worth, all others at their best: a line a lever."""
    lines: dict[str, list[LeverWorth]] = {}
    for one in found.levers:
        lines.setdefault(one.name, []).append(one)
    rows = ((name.replace("_", " "), _lever_texts(tried)) for name, tried in lines.items())
    return bare("levers: loss against the best with all others at their best", rows)


def _lever_texts(tried: list[LeverWorth]) -> str:
    shown = [one for one in tried if one.loss <= MOST_LOSS]
    said = [f"{one.value} best" if one.loss < 5e-4 else f"{one.value} -{one.loss:.1%}" for one in shown]
    far = [one.value for one in tried if one.loss > MOST_LOSS]
    none = [one.value for one in tried if one.loss != one.loss]
    said += [f"{'/'.join(far)} worse than -{MOST_LOSS:.0%}"] if far else []
    said += [f"{'/'.join(none)} {'do' if len(none) > 1 else 'does'} not fit"] if none else []
    return ", ".join(said)


def scaling_lines(curve: ScalingCurve) -> list[Any]:
    """A line for each device count."""
    header, rows = scaling_rows(curve)
    return [words(scaling_title(curve), "bold"), _lines(tuple(header), rows)]


def scaling_title(curve: ScalingCurve) -> str:
    """What a curve holds fixed."""
    what = {"strong": "the same batch for all", "weak": "the batch grows with the devices"}[curve.kind]
    return f"{curve.kind} scaling: {what}"


def scaling_rows(curve: ScalingCurve, without: str = "") -> tuple[list[str], list[tuple[str, ...]]]:
    """Header and cells, a row for each device count, or why it has no plan; one column may be left out."""
    efficiency, rows = iter(curve.efficiency()), []
    for point in curve.points:
        run, first = point.run, [f"{point.devices:,}", f"{point.batch:g}"]
        cells = [*[""] * 6, point.why_none]
        if run is not None:
            cells = [show(run.tokens_per_s_per_device), f"{next(efficiency):.1%}", f"{run.mfu:.1%}"]
            cells += [f"{run.goodput.share:.1%}", few_digits(run.days)]
            cells += [f"{run.cost:,.0f}" if run.cost == run.cost else "", plan_text(run.plan)]
        rows.append(dict(zip(SCALED, [*first, *cells], strict=True)))
    header = [name for name in SCALED if name != without]
    return header, [tuple(row[name] for name in header) for row in rows]
