"""A load in one line of text, as a command line takes it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

from strata.base.errors import BadValue, UnknownName, require
from strata.base.units import parse
from strata.serving.simulator.arrivals import (
    SHAPES,
    ArrivalProcess,
    BurstyArrivals,
    DailyArrivals,
    GammaArrivals,
    Lengths,
)
from strata.serving.simulator.fleet import Load
from strata.serving.simulator.load import (
    ENDLESS,
    ClosedLoad,
    LabelledLoad,
    MergedLoad,
    OpenLoad,
    RepeatedPrompts,
    SessionLoad,
    Shares,
)
from strata.serving.simulator.trace import TraceLoad, is_trace, trace_lengths

KINDS = {
    "poisson": ("rate", "prompts"),
    "even": ("rate", "prompts"),
    "gamma": ("rate", "burstiness", "prompts"),
    "bursty": ("rate", "peak", "on", "off", "prompts"),
    "daily": ("rates", "period", "burstiness", "prompts"),
    "closed": ("clients", "think", "apart", "prompts"),
    "sessions": ("rate", "clients", "turns", "think", "system", "groups"),
    "agents": ("rate", "clients", "turns", "think", "system", "groups", "tools", "tool_time", "tool_tokens"),
    "trace": ("path", "unit", "speed", "bad"),
}
COMMON = ("input", "output", "lengths", "count", "duration", "seed", "models", "priorities", "context")
TIMES = ("think", "apart", "on", "off", "period", "tool_time", "duration")
WHOLE = ("count", "clients", "seed", "system", "groups", "prompts")
LENGTHS = ("input", "output", "turns", "tool_tokens")
TEXTS = ("path", "unit", "bad", "lengths")
SEPARATOR = " + "
USUAL = 1000  # requests, where neither their number nor a duration is told


def load_of(text: str | Path, **options: Any) -> Load:
    """A load told in a line, or the trace at a path. Options replace what the line says.

    The line is a kind and what belongs to it: `poisson:rate=8,input=lognormal:1024:0.5,output=256,count=100`.
    Kinds: poisson, even, gamma, bursty, daily, closed, sessions, agents, trace. Lengths: a number,
    `uniform:1024` (0.8 to 1 of it; or `uniform:1024:0.5:1`), `lognormal:MEAN:SPREAD`, `exponential:MEAN`,
    `empirical:100/200/300`; `lengths=FILE` draws pairs of a trace. `prompts=N`: requests ask one of N prompts
    again and again, which a prefix cache finds. Times are in seconds, or with their unit
    (`think=30s`, `period=24h`). Several loads at once are joined with ` + `.

    >>> load = load_of("poisson:rate=8,input=lognormal:1024:0.5,output=256,count=3,seed=1")
    >>> [(round(r.arrival, 3), r.input, r.output) for r in load.arrivals()]
    [(0.134, 1421, 256), (0.173, 1130, 256), (0.845, 691, 256)]
    >>> load_of("poison:rate=8")
    Traceback (most recent call last):
    ...
    strata.base.errors.UnknownName: no load called 'poison'; nearest: poisson
    """
    parts = [str(text)] if _is_file(str(text)) else [p.strip() for p in str(text).split(SEPARATOR)]
    if len(parts) == 1:
        return _one(parts[0], options, "session")
    return MergedLoad(loads=tuple(_one(p, options, f"session{i}") for i, p in enumerate(parts)))


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # not a name that a file could have
        return False


def _one(text: str, options: dict[str, Any], name: str) -> Load:
    told = {k: v for k, v in options.items() if v is not None}
    kind, _, rest = text.partition(":")
    values: dict[str, Any] = {}
    if kind not in KINDS and (is_trace(text) or _is_file(text)):
        kind, rest, values = "trace", "", {"path": text}
    elif kind == "trace" and "=" not in rest.partition(",")[0]:
        path, _, rest = rest.partition(",")
        values = {"path": path}
    if kind not in KINDS:
        raise UnknownName("load", kind, KINDS)
    known = (*KINDS[kind], *COMMON)
    for part in filter(None, (p.strip() for p in rest.split(","))):
        key, equals, value = part.partition("=")
        if not equals or not value:
            raise BadValue(f"a load of kind {kind} is told as {kind}:name=value,..., but got '{part}'")
        if key not in known:
            raise UnknownName(f"quantity of a load of kind {kind}", key, known)
        if key in values:
            raise BadValue(f"{key} of a load of kind {kind} is told twice")
        values[key] = _value(key, value)
    for key, value in told.items():
        if key not in known:
            raise UnknownName(f"quantity of a load of kind {kind}", key, known)
        if isinstance(value, str):
            value = _value(key, value)
        values[key] = (
            Lengths(mean=float(value)) if key in LENGTHS and isinstance(value, int | float) else value
        )
    return _labelled(_made(kind, values, name), values)


def _value(key: str, text: str) -> Any:
    """What a word of the line says."""
    if key in TEXTS:
        return text
    if key in LENGTHS:
        return lengths_of(text, key)
    if key in ("models", "priorities"):
        return _shares(text, key)
    if key == "rates":
        return tuple((_time(a, "rates"), _number(b, "rates")) for a, b in _pairs(text, key))
    if key in TIMES:
        return _time(text, key)
    number = _number(text, key)
    if key in WHOLE:
        whole = number == int(number) and number >= 0
        require(whole, f"{key} of a load is a whole number, not negative", value=text)
        return int(number)
    return number


def _number(text: str, what: str) -> float:
    return parse(text, "1", f"{what} of a load")


def _time(text: str, what: str) -> float:
    """Seconds, or a number with its unit."""
    try:
        return float(text)
    except ValueError:
        return parse(text, "s", f"{what} of a load")


def _pairs(text: str, key: str) -> list[tuple[str, str]]:
    pairs = [part.rpartition(":") for part in text.split("/")]
    if not all(a and b for a, _, b in pairs):
        raise BadValue(f"{key} of a load is told as a:x/b:y, but got '{text}'")
    return [(a, b) for a, _, b in pairs]


def _shares(text: str, key: str) -> Shares:
    if ":" not in text and "/" not in text:
        return ((text, 1.0),)
    return tuple((name, _number(share, key)) for name, share in _pairs(text, key))


def lengths_of(text: str, what: str = "lengths") -> Lengths:
    """A distribution of lengths from a word.

    >>> lengths_of("uniform:1000").shape, lengths_of("256").mean, lengths_of("empirical:10/20").values
    ('uniform', 256.0, (10, 20))
    """
    shape, _, rest = text.partition(":")
    if shape not in SHAPES:
        if rest or not shape[:1].isdigit():
            raise UnknownName("distribution of lengths", shape, SHAPES)
        return Lengths(mean=_number(text, what))
    if shape == "empirical":
        numbers = [_number(v, what) for v in rest.split("/")]
        whole = all(n == int(n) for n in numbers)
        require(whole, f"{what} of a load has whole lengths", values=rest)
        return Lengths(shape=shape, values=tuple(int(n) for n in numbers))
    numbers = [_number(v, what) for v in rest.split(":")] if rest else []
    names = {"fixed": ("mean",), "uniform": ("mean", "low", "high"), "lognormal": ("mean", "spread")}
    taken = names.get(shape, ("mean",))
    if not 1 <= len(numbers) <= len(taken):
        raise BadValue(f"{what} of a load is told as {shape}:{':'.join(taken).upper()}, but got '{text}'")
    given: dict[str, Any] = dict(zip(taken, numbers, strict=False))
    return Lengths(shape=shape, **given)


def _made(kind: str, values: dict[str, Any], name: str) -> Load:
    if kind == "trace":
        return _trace(values)
    drawn = _drawn(kind, values)
    if kind in PROCESSES:
        count = values.get("count", ENDLESS if "duration" in values else USUAL)
        kept = _given(values, "duration", "seed")
        return OpenLoad(process=_process(kind, values), count=count, **drawn, **kept)
    if kind == "closed":
        _needs(values, kind, "clients")
    if "duration" in values:
        raise BadValue(f"a load of kind {kind} ends with its count, not after a duration")
    if kind == "closed":
        count, own = max(USUAL, 10 * values["clients"]), _given(values, "clients", "think", "apart", "seed")
        return ClosedLoad(count=values.get("count", count), **drawn, **own)
    values = {"tools": 4.0, **values} if kind == "agents" else values
    told = _given(values, *KINDS[kind], "seed", "context")
    return SessionLoad(count=values.get("count", USUAL), name=name, **drawn, **told)


def _needs(values: dict[str, Any], kind: str, name: str) -> Any:
    if name not in values:
        raise BadValue(f"a load of kind {kind} needs {name}=")
    return values[name]


def _given(values: dict[str, Any], *names: str) -> dict[str, Any]:
    return {n: values[n] for n in names if n in values}


def _drawn(kind: str, values: dict[str, Any]) -> dict[str, Any]:
    """Lengths of prompts and answers; the fleet refuses single requests that pass the context."""
    context = values.get("context", inf)
    if "lengths" in values:
        pair = trace_lengths(values["lengths"], context)
        return {"input": pair[0], "output": pair[1]}
    read, written = (_needs(values, kind, name) for name in ("input", "output"))
    total = sum(min(v.values) if v.values else v.mean for v in (read, written))
    require(total <= context, "prompt and answer are within the context", tokens=total, context=context)
    return {"input": read, "output": written}


PROCESSES: dict[str, tuple[str, Callable[..., ArrivalProcess], str, dict[str, float]]] = {
    "poisson": ("gamma", GammaArrivals, "rate", {}),
    "even": ("gamma", GammaArrivals, "rate", {"burstiness": 0.0}),
    "gamma": ("gamma", GammaArrivals, "rate", {}),
    "bursty": ("bursty", BurstyArrivals, "rate", {}),
    "daily": ("daily", DailyArrivals, "rates", {}),
}  # of a kind: what it is, what it needs, and what is told by its name


def _process(kind: str, values: dict[str, Any]) -> ArrivalProcess:
    name, process, needed, own = PROCESSES[kind]
    _needs(values, name, needed)
    return process(**_given(values, *(n for n in KINDS[kind] if n != "prompts")), **own)


def _trace(values: dict[str, Any]) -> Load:
    path = _needs(values, "trace", "path")
    for name in ("input", "output", "lengths", "duration"):
        if name in values:
            raise BadValue(f"a trace has its own {name}")
    return TraceLoad(path, **_given(values, "context", "unit", "speed", "count", "bad"))


def _labelled(load: Load, values: dict[str, Any]) -> Load:
    labels, seed = _given(values, "models", "priorities"), _given(values, "seed")
    if "prompts" in values:
        load = RepeatedPrompts(load=load, prompts=values["prompts"], **seed)
    return LabelledLoad(load=load, **labels, **seed) if labels else load
