"""A picture of caps of power: speed and latency, power, energy, each against the cap of a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from strata.app.render.metrics import metric_label
from strata.app.render.power_cap import asked
from strata.drawing import COLOURS, STYLE, check_picture, pyplot_of, save
from strata.errors import require
from strata.pricing.metrics import METRICS
from strata.search.power_caps import PowerCaps


def draw_power_caps(found: PowerCaps, path: Path) -> Path:
    """Write the picture; where answers are ranges, bands show them, and lines their middle."""
    check_picture(path)
    require(bool(found.fits.any()), "no cap fits, so that there is nothing to draw")
    pyplot = pyplot_of()
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(2, 2, figsize=(8.6, 5.6), layout="constrained", sharex=True)
        (speed, latency), (power, energy) = axes
        _curve(speed, found, found.rate, COLOURS[0])
        speed.set_title(metric_label(found.rate))
        _curve(latency, found, found.latency, COLOURS[1], 1e3)
        latency.set_title(f"{metric_label(found.latency)} [ms]")
        devices = float(np.max(found.system.devices))
        _curve(power, found, "power", COLOURS[3], 1e-3, "at the plug")
        _curve(power, found, "device_power", COLOURS[0], devices * 1e-3, "devices")
        fits = found.fits
        power.plot(
            found.caps[fits], devices * found.caps[fits] * 1e-3, ":", color="#888", label="devices at the cap"
        )
        power.axhline(
            found.idle_power * 1e-3, color="#bbb", linewidth=0.8, linestyle="--", label="plug, at rest"
        )
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
        return save(pyplot, figure, path)


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
    axes.annotate(
        f"{cap:g} W", (cap, joules), textcoords="offset points", xytext=(0, 9), ha="center", fontsize=8
    )
