"""A model under load, for machines and for people."""

from __future__ import annotations

from typing import Any

import numpy as np

from strata.app.render.ranking import (
    SEEN_COLUMNS,
    SEEN_UNITS,
    device_hour_text,
    dollars_text,
    joules_text,
    seen_dict,
    served_dict,
    trust_of,
)
from strata.app.render.tables import card, cells_of, floats, picked, table
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
    found, rows = answer.served, []
    for one in found.choices[:6]:
        load = one.load
        cells = [plan_text(one.plan), f"{one.clients:g}", f"{float(load.rate):.3g}"]
        cells += [show(float(load.tokens_per_s) / answer.curve.devices)]
        rows.append([*cells, *(text(load) for text in SEEN_COLUMNS.values()), f"{one.slots:g}"])
    below = device_hour_text(found)
    if found.limits.text:
        how = "simulated" if answer.at_rate is not None else "in closed form"
        rate = f"{float(answer.rates[0]):.3g} requests/s"
        below += f"\narriving at random, {rate} keep the limits with the first plan ({how})"
    trusted = trust_of(found)[1] if answer.load is None else []
    names = ("batch", "requests/s", "tokens/s/device", *SEEN_COLUMNS, "slots")
    head = ["<plan", *(f">{name}" for name in names)]
    return table(answer.question, head, rows, "\n".join([below, *trusted]))


def _loaded(answer: UnderLoad) -> Any:
    load, clients = answer.load, answer.clients
    assert load is not None
    waits, reads, ttft, tpot, rate, power = cells_of(
        load, "waits:s reads:s ttft:s tpot:s tokens_per_s:1 power:W"
    )
    parts = f"{waits} waiting, {reads} reading" + _kept(load.ttft, answer.limits.ttft)
    each = show(float(load.tokens_per_s) / answer.curve.devices)
    hourly = f"{dollars_text(load.cost_per_device_hour)} USD per device-hour"
    rows = [("time to first token", ttft, parts)]
    if np.isfinite(load.ttft_p95):
        rows.append(("95 % of requests within", show(float(load.ttft_p95), "s"), ""))
    rows += [
        ("time per output token", tpot, _kept(load.tpot, answer.limits.tpot).removeprefix("; ")),
        ("requests/s", f"{float(load.rate):.4g}", f"{rate} tokens/s, {each} tokens/s/device"),
        ("in flight", show(float(load.active)), f"of {answer.curve.slots[answer.chosen]:g} slots"),
        ("cost/Mtoken", f"{dollars_text(load.cost_per_mtoken)} USD", hourly),
        ("energy/Mtoken", joules_text(load.energy_per_mtoken), f"{power} in all"),
    ]
    rows += [("utilisation", f"{float(load.utilisation):.1%}", "")] if clients is None else []
    asked = f"{clients:g} clients" if clients is not None else f"{float(load.rate):.4g} requests/s"
    trusted = "\n".join(trust_of(answer.served, load)[1])
    return card(f"{asked} with plan {plan_text(answer.curve.plan_at(answer.chosen))}", rows, trusted)


def _kept(value: Any, most: float) -> str:
    if not np.isfinite(most):
        return ""
    return "; keeps its limit" if value <= most else f"; over its limit of {show(most, 's')}"


def _guessed(s: Speculation) -> Any:
    tpot, step, cycle, guess, verify = cells_of(s, "tpot:s step:s cycle:s guess:s verify:s")
    even, batch = float(s.break_even), f"batch {float(s.target.workload.batch):g}"
    most = f"of at most {float(s.window) + 1:g}; the target looks at {float(s.verified):g}"
    asked = f"acceptance asked for: {float(s.acceptance):g}"
    rows = [
        ("speed-up", f"{float(s.speedup):.3g}x", f"{tpot} a token against {step}, {batch}"),
        ("tokens a round", f"{float(s.tokens):.3g}", most),
        ("round", cycle, f"{guess} guessing, {verify} verifying"),
        ("breaks even at", "never" if np.isnan(even) else f"{even:.3g}", asked),
    ]
    shape = f"{float(s.window):g} deep"
    shape += f", {float(s.branches):g} branches" if float(s.branches) > 1 else ""
    return card(f"guesses of {s.draft.model.name} ({plan_text(s.draft.plan)}), {shape}", rows)


def _pools(answer: UnderLoad) -> Any:
    rows, splits = [], answer.splits or []
    for s in splits[:6]:
        per = s.rate * answer.curve.requests.output / answer.curve.devices
        cells = (
            str(s.prefill_devices),
            plan_text(s.prefill_plan),
            str(s.decode_devices),
            plan_text(s.decode_plan),
        )
        rates = (f"{s.rate:.3g}", f"{per:.4g}")
        rows.append(
            (*cells, *rates, *cells_of(s, "prefill_rate:.3g decode_rate:.3g read_time:s send_time:s"))
        )
    best = max(splits, key=lambda s: s.rate, default=None)
    together = float(answer.rates[0]) if answer.at_rate is not None else float(np.max(answer.rates))
    below = ""
    if best is not None and together > 0:
        below = f"apart carries {best.rate / together:.2f} times what one kind of device does; "
        below += f"a request sends {show(best.sent, 'B')} of cache"
    head = ">read|<plan|>generate|<plan|>requests/s|>tokens/s/device|>readers take|>generators take"
    title = "devices apart for reading prompts and for generating"
    return table(title, f"{head}|>reading|>sending", rows, below)


def under_load_dict(answer: UnderLoad) -> dict[str, Any]:
    """The answer for machines."""
    c, load = answer.curve, answer.load
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
    return floats(load, "rate waits reads active utilisation queued") | seen_dict(load)


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
    names = "window branches acceptance step guess verify verified tokens cycle tpot speedup break_even"
    return {"draft": s.draft.model.name, "fits": bool(s.fits), **floats(s, names)}


def _pools_dict(split: Disaggregation) -> dict[str, Any]:
    """What devices apart for reading prompts and for generating carry."""
    return {
        "readers": split.prefill_devices,
        "reader_plan": plan_text(split.prefill_plan),
        "writers": split.decode_devices,
        "writer_plan": plan_text(split.decode_plan),
        "goodput": split.rate,
        "most_rate": pools_limit(split),
        **picked(
            split, "reader_rate=prefill_rate writer_rate=decode_rate read_time send_time sent_bytes=sent"
        ),
        "simulated": split.simulated is not None,
        "at_goodput": _load_dict(split.simulated or split.load(split.rate)),
    }
