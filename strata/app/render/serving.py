"""A model under load, for machines and for people."""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.app.render.served import (
    SEEN_COLUMNS,
    SEEN_UNITS,
    device_hour_text,
    dollars_text,
    joules_text,
    seen_dict,
    served_dict,
    trust_of,
)
from strata.app.terminal import plain_table, titled
from strata.mapping.plan import plan_text
from strata.serving.load import most_rate, open_load
from strata.serving.load_metrics import LoadMetrics
from strata.serving.pools import Disaggregation, pools_limit
from strata.serving.speculation import Speculation
from strata.serving.under_load import UnderLoad
from strata.units import show


def under_load_tables(answer: UnderLoad) -> list[Any]:
    """The answer for people."""
    parts: list[Any] = [_plans(answer) if answer.served.choices else answer.question]
    if answer.load is not None:
        parts += ["", _loaded(answer)]
    if answer.speculation is not None:
        parts += ["", _guessed(answer.speculation)]
    if answer.splits is not None:
        parts += ["", _pools(answer)]
    return parts


def _plans(answer: UnderLoad) -> Any:
    c, found, table = answer.curve, answer.served, plain_table()
    table.add_column("plan", no_wrap=True)
    limited = bool(found.limits.text)
    names = ("batch", "requests/s", "tokens/s/device", *SEEN_COLUMNS, "slots")
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for one in found.choices[:6]:
        load = one.load
        cells = [
            f"{one.clients:g}",
            f"{float(load.rate):.3g}",
            show(float(load.tokens_per_s) / c.devices),
            *(text(load) for text in SEEN_COLUMNS.values()),
            f"{one.slots:g}",
        ]
        table.add_row(plan_text(one.plan), *cells)
    below = device_hour_text(found)
    if limited:
        how = "simulated" if answer.at_rate is not None else "in closed form"
        rate = f"{float(answer.rates[0]):.3g} requests/s"
        below += f"\narriving at random, {rate} keep the limits with the first plan ({how})"
    trusted = trust_of(found)[1] if answer.load is None else []
    return titled(answer.question, table, "\n".join([below, *trusted]))


def _loaded(answer: UnderLoad) -> Any:
    load, table = answer.load, plain_table(show_header=False)
    assert load is not None
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", style="bold", no_wrap=True)
    table.add_column(style="dim")
    parts = f"{show(float(load.waits), 's')} waiting, {show(float(load.reads), 's')} reading"
    table.add_row(
        "time to first token", show(float(load.ttft), "s"), parts + _kept(load.ttft, answer.limits.ttft)
    )
    if np.isfinite(load.ttft_p95):
        table.add_row("95 % of requests within", show(float(load.ttft_p95), "s"), "")
    table.add_row(
        "time per output token",
        show(float(load.tpot), "s"),
        _kept(load.tpot, answer.limits.tpot).removeprefix("; "),
    )
    table.add_row(
        "requests/s",
        f"{float(load.rate):.4g}",
        f"{show(float(load.tokens_per_s))} tokens/s, {show(float(load.tokens_per_s) / answer.curve.devices)} "
        "tokens/s/device",
    )
    table.add_row("in flight", show(float(load.active)), f"of {answer.curve.slots[answer.chosen]:g} slots")
    table.add_row(
        "cost/Mtoken",
        f"{dollars_text(load.cost_per_mtoken)} USD",
        f"{dollars_text(load.cost_per_device_hour)} USD per device-hour",
    )
    table.add_row(
        "energy/Mtoken", joules_text(load.energy_per_mtoken), f"{show(float(load.power), 'W')} in all"
    )
    if answer.clients is None:
        table.add_row("utilisation", f"{float(load.utilisation):.1%}", "")
    clients = answer.clients
    asked = f"{clients:g} clients" if clients is not None else f"{float(load.rate):.4g} requests/s"
    trusted = "\n".join(trust_of(answer.served, load)[1])
    return titled(f"{asked} with plan {plan_text(answer.curve.plan_at(answer.chosen))}", table, trusted)


def _kept(value: Any, most: float) -> str:
    return (
        ""
        if not np.isfinite(most)
        else "; keeps its limit"
        if value <= most
        else f"; over its limit of {show(most, 's')}"
    )


def _guessed(s: Speculation) -> Any:
    table = plain_table(show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(justify="right", style="bold", no_wrap=True)
    table.add_column(style="dim")
    table.add_row(
        "speed-up",
        f"{float(s.speedup):.3g}x",
        f"{show(float(s.tpot), 's')} a token against {show(float(s.step), 's')}, batch "
        f"{float(s.target.workload.batch):g}",
    )
    table.add_row(
        "tokens a round",
        f"{float(s.tokens):.3g}",
        f"of at most {float(s.window) + 1:g}; the target looks at {float(s.verified):g}",
    )
    table.add_row(
        "round",
        show(float(s.cycle), "s"),
        f"{show(float(s.guess), 's')} guessing, {show(float(s.verify), 's')} verifying",
    )
    even = float(s.break_even)
    table.add_row(
        "breaks even at",
        "never" if np.isnan(even) else f"{even:.3g}",
        f"acceptance asked for: {float(s.acceptance):g}",
    )
    shape = f"{float(s.window):g} deep" + (
        f", {float(s.branches):g} branches" if float(s.branches) > 1 else ""
    )
    return titled(f"guesses of {s.draft.model.name} ({plan_text(s.draft.plan)}), {shape}", table)


def _pools(answer: UnderLoad) -> Any:
    table = plain_table()
    for name, side in (("read", "right"), ("plan", "left"), ("generate", "right"), ("plan", "left")):
        table.add_column(name, justify=side, no_wrap=True)
    for name in ("requests/s", "tokens/s/device", "readers take", "generators take", "reading", "sending"):
        table.add_column(name, justify="right", no_wrap=True)
    for s in (answer.splits or [])[:6]:
        per = s.rate * answer.curve.requests.output / answer.curve.devices
        times = (show(s.read_time, "s"), show(s.send_time, "s"))
        cells = (
            str(s.prefill_devices),
            plan_text(s.prefill_plan),
            str(s.decode_devices),
            plan_text(s.decode_plan),
            f"{s.rate:.3g}",
            f"{per:.4g}",
            f"{s.prefill_rate:.3g}",
            f"{s.decode_rate:.3g}",
            *times,
        )
        table.add_row(*cells)
    best = max(answer.splits or [], key=lambda s: s.rate, default=None)
    together = float(answer.rates[0]) if answer.at_rate is not None else float(np.max(answer.rates))
    below = (
        ""
        if best is None or together <= 0
        else f"apart carries {best.rate / together:.2f} times what one kind of device does; a request sends "
        f"{show(best.sent, 'B')} of cache"
    )
    return titled("devices apart for reading prompts and for generating", table, below)


def under_load_dict(answer: UnderLoad) -> dict[str, Any]:
    """The answer for machines."""
    c = answer.curve
    load = answer.load
    loaded = {"plan": plan_text(c.plan_at(answer.chosen)), "clients": answer.clients}
    return {
        "question": {
            "model": c.model.name,
            "system": (c.within or c.system).name,
            "engine": c.engine.name,
            **vars(c.requests),
            **answer.limits.told,
            "goal": answer.served.goal.name,
        },
        "plans": [_plan_dict(answer, i) for i in range(len(answer.served.choices))],
        "interval": trust_of(answer.served, load)[0],
        "load": None if load is None else loaded | _load_dict(load),
        "speculation": None if answer.speculation is None else _speculation_dict(answer.speculation),
        "pools": None if answer.splits is None else [_pools_dict(split) for split in answer.splits],
        "frontier": None if answer.frontier is None else answer.frontier.as_dict(),
        "units": dict(SEEN_UNITS),
    }


def under_load_rows(told: dict[str, Any]) -> list[dict[str, Any]]:
    """The load asked for as one row, or else a row a plan, from what machines are told."""
    asked = {k: told["question"][k] for k in ("model", "system", "engine", "input", "output", "goal")}
    rows = [told["load"]] if told["load"] is not None else told["plans"]
    return [asked | row for row in rows]


def _load_dict(load: LoadMetrics) -> dict[str, float]:
    own = ("rate", "waits", "reads", "active", "utilisation", "queued")
    return {name: float(getattr(load, name)) for name in own} | seen_dict(load)


def _plan_dict(answer: UnderLoad, i: int) -> dict[str, Any]:
    """What one plan carries."""
    served = answer.served.choices[i]
    row, one = served.row, answer.curve.at(served.row)
    own = answer.at_rate if i == 0 else None
    return {
        **served_dict(served),
        "goodput": float(answer.rates[row]),
        "most_rate": float(most_rate(one)[0]),
        "most_clients": served.clients,
        "goodput_simulated": own is not None,
        "at_goodput": _load_dict(own or open_load(one, answer.rates[row]).at(0)),
    }


def _speculation_dict(s: Speculation) -> dict[str, Any]:
    names = ("window", "branches", "acceptance", "step", "guess", "verify", "verified", "tokens", "cycle")
    numbers = {k: float(getattr(s, k)) for k in (*names, "tpot", "speedup", "break_even")}
    return {"draft": s.draft.model.name, "fits": bool(s.fits), **numbers}


def _pools_dict(split: Disaggregation) -> dict[str, Any]:
    """What devices apart for reading prompts and for generating carry."""
    return {
        "readers": split.prefill_devices,
        "reader_plan": plan_text(split.prefill_plan),
        "writers": split.decode_devices,
        "writer_plan": plan_text(split.decode_plan),
        "goodput": split.rate,
        "most_rate": pools_limit(split),
        "reader_rate": split.prefill_rate,
        "writer_rate": split.decode_rate,
        "read_time": split.read_time,
        "send_time": split.send_time,
        "sent_bytes": split.sent,
        "simulated": split.simulated is not None,
        "at_goodput": _load_dict(split.simulated or split.load(split.rate)),
    }
