"""Speed and energy against caps of power, for people, for machines, and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render.figures import note, picture
from strata.app.render.prediction import metric_label, metric_text
from strata.app.render.tables import picked, table
from strata.drawing import COLOURS, check_picture
from strata.errors import require
from strata.mapping.layout import Layout
from strata.mapping.plan import plan_text
from strata.pricing.metrics import METRICS
from strata.result import reasons
from strata.search.power_caps import PowerCaps
from strata.units import show


def power_cap_tables(found: PowerCaps) -> list[Any]:
    """A heading, a row for each cap, and the best of them."""
    return [_caps_table(found), *_remarks(found)]


def asked(found: PowerCaps) -> str:
    """What was asked, in a line."""
    r, work = found.result, found.result.workload
    batch = f"batch {float(np.max(work.batch)):g}"
    where = f"{r.program.name} on {r.system.name}"
    return f"{where}, {work.phase}, {_plan(found)}, {batch}, engine {r.engine.name}"


def _plan(found: PowerCaps) -> str:
    plan = found.result.plan
    if isinstance(plan, Layout):
        return ",".join(f"{name}={float(np.max(ranks)):g}" for name, ranks in plan.mesh.items())
    return plan_text(plan)


def columns(found: PowerCaps) -> list[str]:
    """The metrics of a row, in the order of reading."""
    return [found.rate, found.latency, "clock", "device_power", "power", "device_energy", found.energy]


def _caps_table(found: PowerCaps) -> Any:
    per, rows = found.energy.rsplit("_", 1)[-1], []
    fits, most = found.fits, float(found.middle(found.rate).max())
    for i, cap in enumerate(found.caps):
        cells = ["-"] * (len(columns(found)) + 1)
        if fits[i]:
            first, *cells = (_cell(found, name, i) for name in columns(found))
            cells = [first, f"{float(found.middle(found.rate)[i]) / most:.1%}", *cells]
            cells[-1] += " *" if i == found.best else "  "
        rows.append([show(float(cap), "W"), *cells])
    head = f">cap|>{metric_label(found.rate)}|>of most|>{found.latency.replace('_', ' ')}|>clock|>a device"
    return table(asked(found), f"{head}|>at the plug|>J/{per}, devices|>J/{per}, plug", rows)


def _cell(found: PowerCaps, name: str, i: int) -> str:
    low, high = (_said(float(end[i]), name) for end in found.range(name))
    return range_text(low, high)


def range_text(low: str, high: str) -> str:
    """Two values as one range; a unit they share is said once.

    >>> range_text("369 W", "383 W"), range_text("990 MHz", "1.1 GHz"), range_text("2 ms", "2 ms")
    ('369-383 W', '990 MHz - 1.1 GHz', '2 ms')
    """
    if low == high:
        return low
    first, _, unit = low.partition(" ")
    if unit == high.partition(" ")[2]:
        return f"{first}-{high}"
    return f"{low} - {high}"


def _said(value: float, name: str) -> str:
    """A value as people read it; joules in joules, so that caps compare.

    >>> _said(0.8212, "device_energy"), _said(435.1, "device_power")
    ('0.821', '435 W')
    """
    if name == "device_energy" or name.startswith("energy_per"):
        return f"{value:.3g}"
    return metric_text(value, name)


def _remarks(found: PowerCaps) -> list[str]:
    said = []
    if found.best is not None:
        said.append(_best_line(found, found.best))
    free = found.caps[found.fits & ~found.binds]
    if len(free):
        said.append(f"from {show(float(free[0]), 'W')} on the cap slows nothing down")
    low = found.caps[found.too_low]
    if len(low):
        said.append(
            f"- : {', '.join(show(float(c), 'W') for c in low)}: not held even at the lowest clock; "
            "DRAM, links and what flows at rest draw more"
        )
    out = ~found.fits & ~found.too_low
    if out.any():
        broken = np.broadcast_to(found.result.reason, found.result.shape)[out]
        rules = dict.fromkeys(rule for mask in np.unique(broken) for rule in reasons(int(mask)))
        said.append(f"- : {int(out.sum())} of {len(out)} caps are out: {'; '.join(rules)}")
    said.append(f"at rest {show(found.idle_power, 'W')} at the plug, devices ready")
    return said


def _best_line(found: PowerCaps, best: int) -> str:
    energy, rate = found.middle(found.energy), found.middle(found.rate)
    last = int(np.flatnonzero(found.fits)[-1])
    per = found.energy.rsplit("_", 1)[-1]
    line = f"* least energy at the plug: {energy[best]:.3g} J/{per} at {show(float(found.caps[best]), 'W')}"
    if best == last:
        return f"{line}, the highest"
    return (
        f"{line}: {1.0 - energy[best] / energy[last]:.1%} less than at {show(float(found.caps[last]), 'W')} "
        f"for {1.0 - rate[best] / rate[last]:.1%} fewer {metric_label(found.rate)}"
    )


def power_cap_dict(found: PowerCaps) -> dict[str, Any]:
    """Every number, SI units; where prompts are an interval, a row for each end of it."""
    r, work = found.result, found.result.workload
    contexts = np.broadcast_to(np.asarray(work.context, float), r.shape[1:]).ravel()
    names = {"device_energy": "device_energy_J"}
    values = {names.get(name, name): found.values(name) for name in columns(found)}
    reason = np.broadcast_to(r.reason, r.shape).astype(int).reshape(len(found.caps), -1)
    rows = []
    for i, cap in enumerate(found.caps):
        for j in range(int(np.prod(r.shape[1:]))):
            row: dict[str, Any] = {"cap_W": float(cap), "fits": bool(reason[i, j] == 0)}
            row |= {"context": float(contexts[j])} if found.ranged else {}
            rows.append(row | {name: float(value[i, j]) for name, value in values.items()})
    question = picked(r, "program=program.name system=system.name") | {"plan": _plan(found)}
    question |= {"engine": r.engine.name, "phase": work.phase, "batch": float(np.max(work.batch))}
    best = None if found.best is None else float(found.caps[found.best])
    return {"question": question, "rows": rows, "best_cap_W": best, "idle_power_W": found.idle_power}


def draw_power_caps(found: PowerCaps, path: Path) -> Path:
    """Write the picture; where answers are ranges, bands show them, and lines their middle."""
    check_picture(path)
    require(bool(found.fits.any()), "no cap fits, so that there is nothing to draw")
    with picture(path, (8.6, 5.6), 2, 2, sharex=True) as (figure, ((speed, latency), (power, energy))):
        _curve(speed, found, found.rate, COLOURS[0])
        speed.set_title(metric_label(found.rate))
        _curve(latency, found, found.latency, COLOURS[1], 1e3)
        latency.set_title(f"{metric_label(found.latency)} [ms]")
        devices, caps = float(np.max(found.system.devices)), found.caps[found.fits]
        _curve(power, found, "power", COLOURS[3], 1e-3, "at the plug")
        _curve(power, found, "device_power", COLOURS[0], devices * 1e-3, "devices")
        power.plot(caps, devices * caps * 1e-3, ":", color="#888", label="devices at the cap")
        rest = {"color": "#bbb", "linewidth": 0.8, "linestyle": "--", "label": "plug, at rest"}
        power.axhline(found.idle_power * 1e-3, **rest)
        power.set_title("power [kW]")
        _curve(energy, found, found.energy, COLOURS[3], 1.0, "at the plug")
        _curve(energy, found, "device_energy", COLOURS[0], 1.0, "devices")
        _mark_best(energy, found)
        energy.set_title(f"{METRICS[found.energy].label} [J]")
        for panel in (speed, latency, power, energy):
            panel.set_ylim(bottom=0.0)
        for panel in (power, energy):
            panel.set_xlabel("cap of a device [W]")
            panel.legend(frameon=False, fontsize=7)
        figure.suptitle(asked(found), fontsize=9)
    return path


def _curve(axes: Any, found: PowerCaps, name: str, colour: str, scale: float = 1.0, label: str = "") -> None:
    fits = found.fits
    low, high = (scale * end[fits] for end in found.range(name))
    caps = found.caps[fits]
    if found.ranged:
        axes.fill_between(caps, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(caps, 0.5 * (low + high), ".-", color=colour, label=label or None)


def _mark_best(axes: Any, found: PowerCaps) -> None:
    best = found.best
    if best is None:
        return
    cap, joules = float(found.caps[best]), float(found.middle(found.energy)[best])
    axes.plot([cap], [joules], "o", markersize=9, markerfacecolor="none", markeredgecolor=COLOURS[3])
    note(axes, f"{cap:g} W", (cap, joules), (0, 9), ha="center", fontsize=8)
