"""Temperatures of a chip for machines and for people."""

from __future__ import annotations

from typing import Any

from strata.app.terminal import plain_table, titled
from strata.arrays import Number
from strata.hardware.thermal.report import Temperatures
from strata.units import show

SHOWN_TIMES = 8  # rows of temperatures in time


def temperatures_dict(temperatures: Temperatures) -> dict[str, Any]:
    """Temperatures for machines, in SI units."""
    die, why = temperatures.binding, temperatures.infeasible
    told: dict[str, Any] = {
        "chip": temperatures.chip.name,
        "cooling": temperatures.cooling.title,
        "arrangement": temperatures.cooling.arrangement,
        "power_W": temperatures.power,
        "heat_out_W": temperatures.field.heat_out,
        "ambient_K": float(temperatures.cooling.ambient),
        "fits": why is None,
        "why": None if why is None else str(why),
        "binding": die.name,
        "highest_power_W": temperatures.highest_power,
        "dies": [
            {
                "name": d.name,
                "power_W": d.power,
                "max_K": d.hottest,
                "mean_K": d.mean,
                "min_K": d.coolest,
                "limit_K": d.limit,
            }
            for d in temperatures.dies
        ],
        "path": [
            {"name": p.name, "resistance_K_per_W": p.resistance, "power_W": p.power, "rise_K": p.rise}
            for p in temperatures.path
        ],
    }
    if temperatures.history is not None:
        shown = {d.name: temperatures.history.hottest[d.name] for d in temperatures.dies}
        told["history"] = {"time_s": temperatures.history.times, "max_K": shown}
    return told


def temperature_rows(told: dict[str, Any]) -> list[dict[str, Any]]:
    """Temperatures as rows, one a die, or one a moment where they were followed over time."""
    if "history" not in told:
        return [{"chip": told["chip"], "cooling": told["cooling"], **die} for die in told["dies"]]
    dies = told["history"]["max_K"]
    return [
        {"chip": told["chip"], "time_s": time, "max_K": {die: dies[die][i] for die in dies}}
        for i, time in enumerate(told["history"]["time_s"])
    ]


def temperatures_tables(temperatures: Temperatures) -> list[Any]:
    """Temperatures for people."""
    dies = plain_table()
    dies.add_column("die", no_wrap=True)
    for name in ("power", "hottest", "mean", "coolest", "limit", "left"):
        dies.add_column(name, justify="right", no_wrap=True)
    for d in temperatures.dies:
        dies.add_row(
            d.name,
            show(d.power, "W"),
            *(celsius(t) for t in (d.hottest, d.mean, d.coolest, d.limit)),
            f"{d.limit - d.hottest:.1f} K",
            style="bold" if d is temperatures.binding else "",
        )
    way = plain_table()
    way.add_column("way to the coolant", no_wrap=True)
    for name in ("resistance", "power", "rise"):
        way.add_column(name, justify="right", no_wrap=True)
    for p in temperatures.path:
        way.add_row(p.name, f"{p.resistance:.4f} K/W", show(p.power, "W"), f"{p.rise:.1f} K")
    cooling = temperatures.cooling
    arrangement = cooling.arrangement.replace("_", " ")
    title = f"{temperatures.chip.name}: {show(temperatures.power, 'W')}, coolant {celsius(cooling.ambient)}, "
    title += f"{arrangement}\n{cooling.title}"
    die, why = temperatures.binding, temperatures.infeasible
    said = f"{die.name} binds: it reaches {celsius(die.limit)} at {show(temperatures.highest_power, 'W')} "
    said += "shared out like this"
    ends = [said if why is None else f"{said}\ntoo hot: {why}"]
    below = "from the coolant down; the last line is what is not straight through: "
    below += "spreading into the lid, and uneven power"
    return [titled(title, dies), titled("", way, below), *_in_time(temperatures), *ends]


def _in_time(temperatures: Temperatures) -> list[Any]:
    """A few of the temperatures after power is switched on."""
    if temperatures.history is None:
        return []
    table = plain_table()
    table.add_column("after", justify="right", no_wrap=True)
    memory = [d.name for d in temperatures.dies if d.name != "logic"]
    for name in ("logic", *(["hottest DRAM"] if memory else [])):
        table.add_column(name, justify="right", no_wrap=True)
    history, last = temperatures.history, len(temperatures.history.times) - 1
    for i in sorted({round(last / 2**k) for k in range(SHOWN_TIMES)}):
        warmest = [celsius(max(history.hottest[n][i] for n in memory))] if memory else []
        table.add_row(show(history.times[i], "s"), celsius(history.hottest["logic"][i]), *warmest)
    return [titled("", table, "power switched on at the coolant's temperature")]


def celsius(kelvin: Number) -> str:
    """A temperature in degrees Celsius.

    >>> celsius(358.15)
    '85.0 °C'
    """
    return f"{kelvin - 273.15:.1f} °C"
