"""What clients of a served model see and what it costs, for machines and for people: the same numbers and
columns in `strata plan` and `strata serving`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from strata.app.render.tables import floats
from strata.mapping.plan import plan_text
from strata.serving.load_metrics import LoadMetrics
from strata.units import show

if TYPE_CHECKING:
    from strata.hardware.system import System
    from strata.serving.served_plans import ServedPlan, ServedPlans
    from strata.workload.model import Model

SEEN_UNITS = {
    "requests_per_s": "1/s",
    "tokens_per_s": "1/s",
    "tokens_per_s_per_device": "1/s",
    "tokens_per_s_per_user": "1/s",
    "ttft": "s",
    "ttft_p95": "s",
    "tpot": "s",
    "in_flight": "1",
    "power": "W",
    "energy_per_mtoken": "J",
    "cost_per_mtoken": "USD",
    "cost_per_device_hour": "USD",
}


def seen_dict(load: LoadMetrics) -> dict[str, float]:
    """What clients see and what it costs; units in `SEEN_UNITS`."""
    return {
        "requests_per_s": float(load.rate),
        "tokens_per_s": float(load.tokens_per_s),
        "tokens_per_s_per_device": float(load.tokens_per_s / load.devices),
        "tokens_per_s_per_user": float(1.0 / load.tpot),
        **floats(load, "ttft ttft_p95 tpot in_flight=active power energy_per_mtoken cost_per_mtoken"),
        "cost_per_device_hour": float(load.cost_per_device_hour),
    }


def served_dict(one: ServedPlan) -> dict[str, Any]:
    """One plan with its clients, and what the closed form says of those that were simulated, or why not."""
    closed = one.closed
    return {
        "plan": plan_text(one.plan),
        "batch": one.clients,
        "limited_by": one.limited_by or None,
        "slots": one.slots,
        "devices": float(one.load.devices),
        "devices_used": float(one.plan.devices),
        **seen_dict(one.load),
        "simulated": one.simulated,
        "closed_form": None
        if closed is None
        else {**floats(closed, "ttft tpot rate"), "refused": str(closed.refusal) or None},
    }


def simulated_text(found: ServedPlans) -> str:
    """Which plans were simulated, and where the closed form says something else by more than a tenth."""
    from strata.serving.simulated_plans import MOST_CLIENTS, closed_form_errors

    shown = [one for one in found.choices if one.simulated]
    if not shown:
        many = found.choices[0].clients > MOST_CLIENTS
        why = f"more than {MOST_CLIENTS:,} clients" if many else "--quick"
        return f"in closed form, not simulated ({why})"
    few = len(found.choices) > len(shown)
    lines = ["simulated request by request"]
    lines[0] += f": the first {len(shown)}, the others in closed form" if few else ""
    words = {"ttft": "TTFT", "tpot": "TPOT", "rate": "requests/s"}
    for one in shown:
        off = [f"{words[name]} {value:+.0%}" for name, value in closed_form_errors(one).items()]
        refused = "" if one.closed is None else str(one.closed.refusal)
        if refused:
            lines.append(f"{plan_text(one.plan)}: {refused}")
        elif off:
            lines.append(f"{plan_text(one.plan)}: the closed form differs, {', '.join(off)}")
    return "\n".join(lines)


def dollars_text(value: Any) -> str:
    return f"{float(value):.3g}" if np.isfinite(value) else "-"


def joules_text(value: Any) -> str:
    return show(float(value), "J") if np.isfinite(value) else "-"


SEEN_COLUMNS: dict[str, Callable[[LoadMetrics], str]] = {
    "TTFT": lambda load: show(float(load.ttft), "s"),
    "95 %": lambda load: show(float(load.ttft_p95), "s"),
    "TPOT": lambda load: show(float(load.tpot), "s"),
    "USD/Mtok": lambda load: dollars_text(load.cost_per_mtoken),
    "J/Mtok": lambda load: joules_text(load.energy_per_mtoken),
}


def device_hour_text(found: ServedPlans) -> str:
    """What a device of the best plan costs an hour, and what columns mean."""
    text = (
        "batch: clients that each wait for their answer; TTFT, 95 %, TPOT: what they see, waiting included "
    )
    text += "(mean, 95th percentile of TTFT, mean)"
    text += f"\n{simulated_text(found)}" if found.choices else ""
    if not found.choices or not np.isfinite(found.choices[0].load.cost_per_device_hour):
        return f"{text}; no price is known"
    best = found.choices[0]
    used = f"; {best.used}, the others idle and paid for" if best.used else ""
    return f"{text}\n{dollars_text(best.load.cost_per_device_hour)} USD per device-hour{used}"


def trust_of(found: ServedPlans, load: LoadMetrics | None = None) -> tuple[dict[str, Any] | None, list[str]]:
    """How far like cases measured were off, for what requests see under a load that was asked for, else for
    what clients of the best plan see; nothing of a load that no plan carries.
    """
    if load is None:
        if not found.choices:
            return None, []
        load = found.choices[0].load
    if not np.isfinite(load.ttft):
        return None, []
    where = (found.curve.system, found.curve.model, found.curve.engine.name)
    return served_interval(*where, float(load.ttft), float(load.tpot))


def served_interval(
    system: System, model: Model, engine: str, ttft: float, tpot: float
) -> tuple[dict[str, Any] | None, list[str]]:
    """How far first tokens and token times of a served model were off in runs like it, for machines and for
    people.
    """
    from strata.app.render.accuracy import intervals_told
    from strata.validation.accuracy.trust import trust_served

    asked = (("ttft", ttft, "request"), ("tpot", tpot, "decode"))
    return intervals_told(trust_served(system, model, engine, *one) for one in asked)
