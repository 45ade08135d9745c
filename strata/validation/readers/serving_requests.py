"""Runs of a serving engine request by request: each is simulated with the arrivals and lengths it had, and
compared in the mean over its requests, and first tokens at the 95th percentile too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.errors import BadFile
from strata.mapping.plan import Plan, plan
from strata.params import part, quantity, text
from strata.serving.priced_service import price_service
from strata.serving.simulated import simulate_services
from strata.simulate.server.load import RecordedLoad
from strata.validation.readers.benchmark_conditions import read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints
from strata.validation.readers.like_cases import case_keys
from strata.validation.readers.served_models import stored_model
from strata.validation.readers.steps import systems_of
from strata.validation.readers.tables import BadRows, Table

COLUMNS = ("arrival_s", "input_tokens", "output_tokens", "first_token_s", "last_token_s")
METRICS = {"tpot": "decode", "ttft": "request", "ttft_p95": "", "e2e": ""}  # and what intervals they are for
NAME = re.compile(r"(?:(\d+)x)?([^_]+)_([^_]+)((?:_(?:tp|pp|dp|ep)\d+)*)(?:_[^_]+)*\.csv")


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordedRun:
    """What one run had otherwise than the others."""

    chip: str = text("its chip")
    model: str = text("its model")
    sequences: Number | None = quantity("1", "sequences at once at most", optional=True, positive=True)
    blocks: Number | None = quantity("1", "blocks of the cache", optional=True, positive=True)


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordedConditions:
    """An engine asked by clients that do not wait for each other."""

    title: str = text("what was run")
    engine: str = text("the engine")
    weights: str = text("format of the weights")
    skew: Number = quantity("1", "exponent of the power law by which experts are asked for")
    tokens: Number = quantity("1", "tokens of a step at most", positive=True)
    sequences: Number = quantity("1", "sequences at once at most", positive=True)
    asynchronous: Number = quantity("1", "1 where a step is chosen while the one before it runs")
    whole_prompt: Number = quantity("1", "1 where a request is let in only where all of its prompt fits")
    sampling: Number = quantity("1", "share of a sequence's time in a step that is the device's")
    run: tuple[RecordedRun, ...] = part(RecordedRun, "single runs by chip and model", many=True)

    def run_of(self, chip: str, model: str) -> RecordedRun | None:
        return next((r for r in self.run if (r.chip, r.model) == (chip, model)), None)


def run_in_name(name: str) -> tuple[str, str, Plan]:
    """Chip, model and layout in a file's name; tensor parallel over all devices where it says no more.

    >>> run_in_name("serving/requests/rtx4090_llama-3.1-8b.csv")[:2]
    ('rtx4090', 'llama-3.1-8b')
    >>> run_in_name("2xh100_qwen3-32b.csv")[2].tp, run_in_name("h100_qwen3-30b-a3b_dp2_ep2.csv")[2].dp
    (2.0, 2.0)
    """
    match = NAME.fullmatch(name.rsplit("/", 1)[-1].lower())
    if match is None:
        raise BadFile(f"{name}: the name must say chip and model, like rtx4090_llama-3.1-8b.csv")
    count, chip, model, told = match.groups()
    degrees: dict[str, Any] = {k: float(v) for k, v in re.findall(r"_(tp|pp|dp|ep)(\d+)", told)}
    others = degrees.get("pp", 1.0) * degrees.get("dp", 1.0)
    degrees.setdefault("tp", max(float(count or 1) / others, 1.0))
    lanes = degrees["tp"] * degrees.get("dp", 1.0)
    return chip, model, plan(moe_tp=max(lanes / degrees.get("ep", 1.0), 1.0), **degrees)


def latencies(table: Table) -> tuple[dict[str, Array], list[tuple[float, int, int]]]:
    """First token, time of a token after it and whole time of each request [s], and what came when."""
    s = table.numbers(*COLUMNS)
    why = {}
    for i, line in enumerate(table.lines):
        empty = [c for c in COLUMNS if np.isnan(s[c][i])]
        if empty:
            why[int(line)] = f"column '{empty[0]}' is empty"
        elif not s["arrival_s"][i] <= s["first_token_s"][i] <= s["last_token_s"][i]:
            why[int(line)] = "arrival, first and last token must come in this order"
        elif min(s["input_tokens"][i], s["output_tokens"][i]) < 1:
            why[int(line)] = "a request has at least one token in and one out"
    if why:
        raise BadRows(table.name, why)
    ttft, whole = (s[c] - s["arrival_s"] for c in ("first_token_s", "last_token_s"))
    times = {"ttft": ttft, "e2e": whole, "output": s["output_tokens"]}
    rows = zip(s["arrival_s"], s["input_tokens"], s["output_tokens"], strict=True)
    return times, [(float(a), int(i), int(o)) for a, i, o in rows]


def in_the_mean(ttft: Array, whole: Array, output: Array) -> dict[str, float]:
    """What is compared of a run; answers of one token have no time between tokens.

    >>> found = in_the_mean(np.array([0.1, 0.3]), np.array([0.3, 0.3]), np.array([11, 1]))
    >>> {name: round(value, 4) for name, value in found.items()}
    {'tpot': 0.02, 'ttft': 0.2, 'ttft_p95': 0.29, 'e2e': 0.3}
    """
    several = output > 1
    between = (whole - ttft)[several] / (output[several] - 1.0)
    return {
        "tpot": float(between.mean()) if several.any() else np.nan,
        "ttft": float(ttft.mean()),
        "ttft_p95": float(np.percentile(ttft, 95)),
        "e2e": float(whole.mean()),
    }


def recorded_requests(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Mean time of a token, mean and 95th percentile of first tokens, and mean whole time of a run's
    requests, by the chip.
    """
    label, model_name, layout = run_in_name(table.name)
    times, rows = latencies(table)
    known = read_conditions(RecordedConditions, table, "serving/requests.toml")
    chip = catalogue.chip(label).name
    model = stored_model(catalogue, model_name, known.weights)
    run = known.run_of(chip, model.name)
    engine = replace(
        catalogue.engine(known.engine),
        asynchronous=known.asynchronous,
        whole_prompt=known.whole_prompt,
        sampling=known.sampling,
    )
    blocks = run.blocks if run is not None else None
    load = RecordedLoad(rows=rows)
    service = price_service(
        systems_of(catalogue, chip, np.asarray(layout.tp * layout.pp * layout.dp)),
        model,
        layout,
        engine,
        tokens=int(known.tokens),
        sequences=int((run and run.sequences) or known.sequences),
        context=max(i + o for _, i, o in rows),
        kv_blocks=None if blocks is None else int(blocks),
        routed={"skew": float(known.skew)},
    )
    found = simulate_services([service], load, keep=True)
    if found.completed < len(rows):
        raise BadFile(f"{table.name}: {len(rows) - found.completed} requests do not fit the cache")
    measured = in_the_mean(times["ttft"], times["e2e"], times["output"])
    served = [np.array(v) for v in zip(*((r.ttft, r.latency, r.output) for r in found.records), strict=True)]
    predicted = in_the_mean(*served)
    names = [name for name in METRICS if np.isfinite(measured[name]) and measured[name] > 0]
    return ComparedPoints(
        measured=np.array([measured[name] for name in names]),
        predicted=np.array([predicted[name] for name in names]),
        group=np.array([f"{name}/{label}" for name in names], dtype=object),
        line=np.full(len(names), table.lines[0]),
        headline=np.full(len(names), True),
        rate=np.full(len(names), False),
        case=np.array(
            [
                case_keys(catalogue, METRICS[n], [chip], [model_name], known.engine, not METRICS[n])[0]
                for n in names
            ],
            dtype=object,
        ),
        why={},
    )
