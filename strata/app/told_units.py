"""Units of the numbers of an answer in JSON: found by the keys above each number, told in one table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

ONE = "1"
# How a key says its unit, longer ends first: `time_s`, `memory_B`, `bandwidth_B_per_s`, `price_USD`.
_ENDS = (
    "J_per_B", "K_per_W", "B_per_s", "FLOP_per_s", "flop_per_s", "m2", "USD", "Hz", "s", "B", "J", "W", "K",
    "V", "m",
)  # fmt: skip
_RATE = re.compile(r"\w+_per_s(_per_\w+)?")

# Keys that say no unit by themselves, in any answer; `a.b` is key b inside a, `a.*` every key inside a.
KEYS = {
    "s": "bound closed_form cpu_seconds dimensions.algorithms gradients guess interval.high "
    "interval.low ops.lower ops.time partitions.compute partitions.memory partitions.network "
    "queued read_time reads seconds send send_time stage step time ttft_p95 verify waits",
    "B": "bytes memory output_bytes payload sent_bytes sram traffic weight_bytes",
    "1/s": "goodput most_rate rate reader_rate tokens_per_s_without writer_rate",
    "FLOP": "flop",
    "FLOP/s": "flop_per_s",
    "J": "energy_per_mtoken",
    "day": "days",
    "MWh": "mwh",
    "m2": "design.die_area design.node_area stated_design.die_area stated_design.node_area",
    "as the claim says": "claims.ours claims.paper",
    "as the goal says": "best methods",
    # counts, shares, ratios, sizes
    ONE: "acceptance active after alone banks batch before best_window bias bounded branches bubble "
    "bundles candidates clients compared.loss compared.partitions compute_units considered context cores "
    "cores_sold cores_stated count degrees design devices devices.* diameter die_yield dies empty epochs "
    "evaluations failed feasible fitted gain gap held_out high_factor hops group in_flight index input "
    "lanes layers layouts_fused links longest loss low_factor mape mean_hops median memory_share mesh "
    "microbatches minibatch more most_clients networks networks_used nodes numbers out out_by_reason "
    "output oversubscription p90 package_yield parameters partitions partitions.passes partitions.tiles "
    "partitions.times passes pays pins points prompt ranks ratio read_share readers reason reduction "
    "refined refresh_leaves response rollout_devices rounds row rows samples sequences share shared_hops "
    "shared_unicast_hops sharing size sizes skew slots solved speedup spread stacking_yield stages "
    "stated_design stride tiles times tokens trace training_devices upgrades utilisation variation "
    "verified vias weighted window worst worth_of_one_percent worth_of_one_percent.* writers within_15 "
    "within_30 "
    "arena.left_out arena.ours arena.our_median error open predictions failures_per_month goodput_lost "
    "goodput_share hfu length micro_batch plans steps",
}
_UNITS = {key: unit for unit, keys in KEYS.items() for key in keys.split()}


def rate_unit(name: str, unit: str) -> str:
    """The unit of a metric; of a count a second its second, which its name says.

    >>> rate_unit("tokens_per_s", "1"), rate_unit("mfu", "1"), rate_unit("power", "W")
    ('1/s', '1', 'W')
    """
    return "1/s" if unit == ONE and _RATE.fullmatch(name) else unit


def key_unit(key: str, above: str = "") -> tuple[str, str] | None:
    """The unit of numbers under a key, and the name it is told under: that of the key inside the one above,
    of a metric, or of how the key ends. None where the key says none.

    >>> key_unit("tpot"), key_unit("bandwidth_B_per_s"), key_unit("die_area", "design"), key_unit("h200")
    (('tpot', 's'), ('bandwidth_B_per_s', 'B/s'), ('design.die_area', 'm2'), None)
    """
    from strata.pricing.metrics import METRICS
    from strata.search.goal import GOAL_METRICS

    for name in (f"{above}.{key}", f"{above}.*"):
        if above and name in _UNITS:
            return f"{above}.{key}", _UNITS[name]
    if (ended := _ending(key)) is not None:
        return key, ended
    if (declared := METRICS.get(key) or GOAL_METRICS.get(key)) is not None:
        return key, rate_unit(key, declared.unit)
    if key in _UNITS:
        return key, _UNITS[key]
    return (key, "1/s") if _RATE.fullmatch(key) else None


def _ending(key: str) -> str | None:
    """The unit that a key ends with; a count a second has none (`tokens_per_s`)."""
    end = next((end for end in _ENDS if key.endswith(f"_{end}")), None)
    if end is None or (end == "s" and key.endswith("_per_s")):
        return None
    return end.replace("_per_", "/").replace("flop", "FLOP")


def numbers_in(node: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The keys above each number of an answer, once; what states its unit beside it is left out."""
    if isinstance(node, dict):
        for key, value in node.items():
            table = key == "units" and isinstance(value, dict)
            if not (table or ("unit" in node and not isinstance(value, dict))):
                yield from numbers_in(value, (*keys, str(key)))
    elif isinstance(node, list):
        seen: set[tuple[str, ...]] = set()
        for value in node:
            for found in numbers_in(value, keys):
                if found not in seen:
                    seen.add(found)
                    yield found
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield keys


def unit_under(keys: tuple[str, ...]) -> tuple[str, str] | None:
    """The unit of a number, and the name it is told under: of the nearest key above it that says one; names
    of parts below a key that ends with a unit say none.

    >>> unit_under(("resources_s", "memory")), unit_under(("interval", "tpot", "high"))
    (('resources_s', 's'), ('tpot', 's'))
    """
    for i in reversed(range(len(keys))):
        if (ended := _ending(keys[i])) is not None:
            return keys[i], ended
    for i in reversed(range(len(keys))):
        if (found := key_unit(keys[i], keys[i - 1] if i else "")) is not None:
            return found
    return None


def unit_read(keys: tuple[str, ...], units: dict[str, str]) -> str | None:
    """The unit of a number as a reader of `units` finds it: under `a.b`, the key inside the one above it, or
    under its key; else under the nearest key above.

    >>> unit_read(("parts", "tpot", "high"), {"tpot": "s"})
    's'
    """
    for i in reversed(range(len(keys))):
        for name in ((f"{keys[i - 1]}.{keys[i]}",) if i else ()) + (keys[i],):
            if name in units:
                return units[name]
    return None


def with_units(told: Any) -> Any:
    """An answer with `units`, a table of the units of all its numbers: a number's unit stands under its key,
    or the nearest key above it that is in the table (`a.b`: key b inside a), or beside it as `unit`.

    >>> with_units({"time_s": 1.0, "memory": 3.0, "resources_s": {"memory": 2.0}})["units"]
    {'time_s': 's', 'memory': 'B', 'resources_s': 's', 'resources_s.memory': 's'}
    """
    if isinstance(told, list):
        return [with_units(entry) for entry in told]
    if not isinstance(told, dict) or not isinstance(told.get("units", {}), dict):
        return told
    units = {name: rate_unit(name, unit) for name, unit in told.get("units", {}).items()}
    found = [(keys, one) for keys in dict.fromkeys(numbers_in(told)) if (one := unit_under(keys))]
    for _, (name, unit) in found:
        units.setdefault(name, unit)
    for keys, (_, unit) in found:
        if unit_read(keys, units) != unit:
            units[".".join(keys[-2:])] = unit
    return {**told, "units": units} if units else told
