"""Files of clients that wait for their answers, and of recorded requests: which options of `strata simulate`
their columns are, and what was measured.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import BadValue, UnknownName
from strata.params import dashed
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.served_layouts import (
    engine_text,
    format_options,
    layout_text,
    loop_words,
    named_in_file,
    rank_places,
    server_label,
    stored_format,
    sweep_peak,
    with_stated,
    worker_options,
)
from strata.validation.readers.served_rows import Cells, ServedConditions, ServedFile, ServedMetric
from strata.validation.readers.tables import BadRows, Table, read_table
from strata.workload.model import Model

NEAR = 1e-4  # relative: times of one run in two files
INFERENCEX = "serving/inferencex.csv"
# columns that say which recipe workers apart ran by; its runs differ in clients
APART = [
    f"{side}_{size}"
    for side in ("prefill", "decode")
    for size in ("num_workers", "tp_size", "attention_dp_size")
]
SILICON_RECIPE = ("model", "system", "backend", "precision", "mode", "isl", "osl", "measured", *APART)
INFERENCEX_RECIPE = (
    *("chip", "model", "precision", "engine", "disaggregated", "speculative", "isl", "osl", "date"),
    *("tp", "ep", "dp_attention", "decode_workers", "decode_devices"),
    *("prefill_tp", "prefill_ep", "prefill_dp_attention", "prefill_workers", "prefill_devices"),
)
NIM = r"(.+)_(\d+)x([a-z0-9_]+)_nim\.csv"
NIM_METRICS = (  # column, group, unit, path, what intervals it is for
    ("TTFT (ms)", "ttft", 1e-3, "ttft.mean", "request"),
    ("ITL (ms)", "itl", 1e-3, "tpot.mean", "decode"),
    ("Throughput (Tokens/s)", "throughput", 1.0, "tokens_per_s", "throughput"),
)
ENERGY_METRICS = (  # column, group, unit, path
    ("avg_power_watts", "power", 1.0, "devices_power"),
    ("energy_per_token_joules", "energy", 1.0, "devices_energy_per_token"),
    ("median_itl_ms", "itl", 1e-3, "inter_token.p50"),
)
REQUESTS = r"(?:(\d+)x)?([^_]+)_([^_]+)((?:_(?:tp|pp|dp|ep)\d+)*)(?:_[^_]+)*\.csv"
RECORDED = ("arrival_s", "input_tokens", "output_tokens", "first_token_s", "last_token_s")
RECORDED_METRICS = {
    "tpot": ("tpot.mean", "decode"),
    "ttft": ("ttft.mean", "request"),
    "ttft_p95": ("ttft.p95", ""),
    "e2e": ("latency.mean", ""),
}


# ------------------------------------------------------------------------------------- silicon, silicon2


def silicon_options(cells: Cells, known: ServedConditions, catalogue: Catalogue) -> dict[str, Any]:
    """A closed loop of clients at one engine, or at workers apart."""
    chip, model = catalogue.chip(cells.text("system")).name, catalogue.model(cells.text("model"))
    engine = engine_text(cells.text("backend"), cells.text("backend_version"), cells.text("measured"))
    weights = cells.text("gemm_quant_mode") or cells.text("precision")
    clients, read, written = (int(cells.needed(c)) for c in ("conc", "isl", "osl"))
    mode = cells.text("mode")
    if mode == "agg":
        columns = {"tp": "tp_size", "pp": "pp_size", "dp": "attention_dp_size"}
        columns |= {"ep": "moe_ep_size", "moe_tp": "moe_tp_size"}
        degrees = {name: cells.degree(column) for name, column in columns.items()}
        devices = degrees["tp"] * degrees["pp"] * degrees["dp"]
        place = {"system": f"{devices}x{chip}", "plan": layout_text(model, **degrees)}
    elif mode == "disagg":
        place, sizes = {}, {}
        for side in ("prefill", "decode"):
            tp, dp, ep = (cells.degree(f"{side}_{c}_size") for c in ("tp", "attention_dp", "moe_ep"))
            sizes[side] = tp * dp, cells.degree(f"{side}_num_workers")
            place[side] = layout_text(model, tp=tp, dp=dp, ep=ep)
        place |= worker_options(catalogue, chip, sizes)
    else:
        raise BadValue(f"mode must be agg or disagg, but got '{mode}'")
    lengths = "drawn" if {read, written} <= {1024, 8192} else "other-lengths"
    words = {engine.partition("@")[0], chip, model.name, mode, lengths, place.get("plan", "")}
    words |= {cells.text("measured"), "round" if read % 1000 == 0 else "binary"}
    words.add(_attention(place))
    formats = format_options(catalogue, model.name, chip, weights, cells.text("moe_quant_mode") or weights)
    options = {"model": model.name, **place, "engine": engine, **formats}
    values = loop_words(known, clients, read, written) | _places(cells, place, "conc", SILICON_RECIPE)
    return with_stated(options, known, model, words, values)


def _places(cells: Cells, place: dict[str, str], column: str, recipe: tuple[str, ...]) -> dict[str, int]:
    """Sequences that a decode rank of workers apart takes, sized for the most clients of their recipe."""
    if "decode" not in place:
        return {}
    peak = sweep_peak(cells, column, recipe)
    return {"places": rank_places(peak, place["decode"], int(place["decode_workers"]))}


def _attention(place: dict[str, str]) -> str:
    """How attention of those that generate is cut."""
    generating = place.get("plan") or place["decode"]
    return "data-parallel" if "dp=" in generating else "tensor-parallel"


def silicon_metrics(cells: Cells, known: ServedConditions) -> list[ServedMetric]:
    chip, engine, model = (cells.text(c) for c in ("system", "backend", "model"))
    return [
        ServedMetric(
            at=f"{name}.mean",
            measured=cells.number(f"silicon_{name}_ms") * 1e-3,
            group=f"{name}/{chip}/{engine}/{model}",
            case=(phase, chip, model, engine),
            headline=name == "tpot",
        )
        for name, phase in (("ttft", "request"), ("tpot", "decode"))
    ]


def not_in_inferencex(table: Table) -> Array:
    """Rows whose times InferenceX's own file in the folder does not have."""
    if not (table.folder / INFERENCEX).exists():
        return np.ones(len(table), bool)
    other = read_table(table.folder, INFERENCEX)
    there = np.array([other.number(f"mean_{name}_s") for name in ("ttft", "tpot")])
    here = np.array([table.number(f"silicon_{name}_ms") * 1e-3 for name in ("ttft", "tpot")])
    same = np.abs(there[:, None, :] / here[:, :, None] - 1.0) < NEAR
    return ~np.any(np.all(same, axis=0), axis=1)


# ------------------------------------------------------------------------------------- inferencex


def inferencex_options(cells: Cells, known: ServedConditions, catalogue: Catalogue) -> dict[str, Any]:
    """A closed loop of clients, aggregated or with workers apart, with the model's own guesses where told."""
    chip, model = catalogue.chip(dashed(cells.text("chip"))).name, catalogue.model(cells.text("model"))
    engine = engine_text(cells.text("engine"), "", cells.text("date"))
    guessing, apart = cells.text("speculative") or "none", cells.text("disaggregated") == "1"
    if guessing not in ("none", "mtp"):
        raise BadValue(f"speculative must be none or mtp, but got '{guessing}'")
    if guessing == "mtp" and not model.kv_rank:
        raise BadValue(f"{model.name} has no layers of its own to guess tokens with")
    if apart:
        place, sizes = {}, {}
        for side, prefix in (("prefill", "prefill_"), ("decode", "")):
            workers = cells.degree(f"{side}_workers")
            devices = cells.degree(f"{side}_devices") // workers
            place[side] = _recorded_layout(cells, prefix, devices, model, float(known.whole_worker or 0.0))
            sizes[side] = devices, workers
        place |= worker_options(catalogue, chip, sizes)
    else:
        devices = int(cells.needed("devices"))
        place = {"system": f"{devices}x{chip}", "plan": _recorded_layout(cells, "", devices, model, 0.0)}
    precision = cells.text("precision")
    formats = format_options(catalogue, model.name, chip, precision, precision)
    words = {engine.partition("@")[0], chip, model.name, guessing, "disagg" if apart else "agg"}
    words.add(_attention(place))
    clients, read, written = (int(cells.needed(c)) for c in ("concurrency", "isl", "osl"))
    options = {"model": model.name, **place, "engine": engine, **formats}
    values = loop_words(known, clients, read, written)
    values |= _places(cells, place, "concurrency", INFERENCEX_RECIPE)
    return with_stated(options, known, model, words, values)


def _recorded_layout(cells: Cells, prefix: str, devices: int, model: Model, whole: float) -> str:
    """The layout of a worker of so many devices. Of several devices whose layout says 1 it is not recorded:
    tensor parallel, or data and expert parallel where attention is said to be and it has more than `whole`.
    """
    tp, ep = (cells.degree(f"{prefix}{c}") for c in ("tp", "ep"))
    apart = cells.number(f"{prefix}dp_attention", empty=0.0) > 0
    unrecorded = tp == 1 and devices > 1
    apart = apart and not (unrecorded and devices <= whole)
    ep = devices if unrecorded and apart else ep
    degrees = {"dp": devices} if apart else {"tp": devices}
    return layout_text(model, **degrees, ep=ep)


def inferencex_metrics(cells: Cells, known: ServedConditions) -> list[ServedMetric]:
    """Means where they were recorded, else medians."""
    chip, engine, model = (dashed(cells.text(c)) for c in ("chip", "engine", "model"))
    kind = "disagg" if cells.text("disaggregated") == "1" else "agg"
    guessing = cells.text("speculative")
    kind += f"-{guessing}" if guessing not in ("", "none") else ""
    metrics = []
    for name, phase in (("ttft", "request"), ("tpot", "decode")):
        mean, median = (cells.number(f"{which}_{name}_s") for which in ("mean", "median"))
        unknown = np.isnan(mean)
        metrics.append(
            ServedMetric(
                at=f"{name}.p50" if unknown else f"{name}.mean",
                measured=median if unknown else mean,
                group=f"{name}/{chip}/{engine}/{cells.text('model')}/{kind}",
                case=(phase, chip, model, server_label(engine)),
                headline=name == "tpot",
            )
        )
    return metrics


# ------------------------------------------------------------------------------------- nim


def nim_options(cells: Cells, known: ServedConditions, catalogue: Catalogue) -> dict[str, Any]:
    """A closed loop; model and system stand in the file's name, tensor parallel over all devices."""
    name, count, label = named_in_file(cells, NIM)
    model, chip = catalogue.model(name), catalogue.chip(label).name
    read, written, clients = (int(cells.needed(c)) for c in ("Input Tokens", "Output Tokens", "Concurrency"))
    options = {"model": model.name, "system": f"{count}x{chip}", "plan": layout_text(model, tp=int(count))}
    return with_stated(options, known, model, {chip, model.name}, loop_words(known, clients, read, written))


def nim_metrics(cells: Cells, known: ServedConditions) -> list[ServedMetric]:
    name, _, chip = named_in_file(cells, NIM)
    return [
        ServedMetric(
            at=at,
            measured=cells.number(column) * unit,
            group=label,
            case=(phase, chip, name, "trtllm"),
            headline=label == "itl",
            rate=label == "throughput",
        )
        for column, label, unit, at, phase in NIM_METRICS
    ]


# ------------------------------------------------------------------------------------- ml_energy


def energy_options(cells: Cells, known: ServedConditions, catalogue: Catalogue) -> dict[str, Any]:
    """A server that so many clients as it takes at once keep full; its gauge counts one attention rank."""
    model, chip = catalogue.model(cells.text("model_id")), catalogue.chip(cells.text("gpu_model")).name
    devices, dp, ep = (cells.degree(c) for c in ("num_gpus", "data_parallel", "expert_parallel"))
    task, most = cells.text("task"), int(cells.needed("max_num_seqs"))
    prompts = known.prompt or {}
    if task not in prompts:
        raise UnknownName("task", task, sorted(prompts), "strata/data/conditions/serving/ml_energy.toml")
    values = loop_words(known, most * dp, int(prompts[task]), int(cells.needed("avg_output_len")))
    options = {
        "model": model.name,
        "system": f"{devices}x{chip}",
        "plan": layout_text(model, tp=max(devices // dp, 1), dp=dp, ep=ep),
        **stored_format(catalogue, model.name, cells.text("weight_precision")),
        "sequences": str(most),
    }
    return with_stated(options, known, model, {chip, model.name, task}, values)


def energy_metrics(cells: Cells, known: ServedConditions) -> list[ServedMetric]:
    gpu, model = cells.text("gpu_model"), cells.text("model_id").rpartition("/")[2]
    return [
        ServedMetric(
            at=at,
            measured=cells.number(column) * unit,
            group=f"{label}/{gpu}/{model}",
            headline=label == "power",
        )
        for column, label, unit, at in ENERGY_METRICS
    ]


# ------------------------------------------------------------------------------------- requests


def recorded_options(cells: Cells, known: ServedConditions, catalogue: Catalogue) -> dict[str, Any]:
    """Requests that came as the file says; its name says chip, model and layout."""
    count, label, name, degrees = named_in_file(cells, REQUESTS)
    model, chip = catalogue.model(name), catalogue.chip(label).name
    stated = {k: int(v) for k, v in re.findall(r"-(tp|pp|dp|ep)(\d+)", degrees)}
    others = stated.get("pp", 1) * stated.get("dp", 1)
    stated.setdefault("tp", max(int(count or 1) // others, 1))
    options = {
        "model": model.name,
        "system": f"{stated['tp'] * others}x{chip}",
        "plan": layout_text(model, **stated),
        "trace": (cells.table.folder / cells.table.name).as_posix(),
    }
    return with_stated(options, known, model, {chip, model.name}, {})


def recorded_metrics(cells: Cells, known: ServedConditions) -> list[ServedMetric]:
    """Means over the requests of a run, and first tokens at the 95th percentile; answers of one token have
    no time between tokens.
    """
    _, chip, model, _ = named_in_file(cells, REQUESTS)
    ttft, whole, written = recorded_times(cells.table)
    several = written > 1
    values = {
        "tpot": float(np.mean((whole - ttft)[several] / (written[several] - 1.0)))
        if several.any()
        else np.nan,
        "ttft": float(ttft.mean()),
        "ttft_p95": float(np.percentile(ttft, 95)),
        "e2e": float(whole.mean()),
    }
    return [
        ServedMetric(at=at, measured=values[name], group=f"{name}/{chip}", case=(phase, chip, model, "vllm"))
        for name, (at, phase) in RECORDED_METRICS.items()
    ]


def recorded_times(table: Table) -> tuple[Array, Array, Array]:
    """First token, whole time [s] and tokens of each request's answer."""
    s = table.numbers(*RECORDED)
    why = {}
    for i, line in enumerate(table.lines):
        empty = [c for c in RECORDED if np.isnan(s[c][i])]
        if empty:
            why[int(line)] = f"column '{empty[0]}' is empty"
        elif not s["arrival_s"][i] <= s["first_token_s"][i] <= s["last_token_s"][i]:
            why[int(line)] = "arrival, first and last token must come in this order"
        elif min(s["input_tokens"][i], s["output_tokens"][i]) < 1:
            why[int(line)] = "a request has at least one token in and one out"
    if why:
        raise BadRows(table.name, why)
    ttft, whole = (s[c] - s["arrival_s"] for c in ("first_token_s", "last_token_s"))
    return ttft, whole, s["output_tokens"]


def first_row(table: Table) -> Array:
    """A file of requests is one run."""
    return np.arange(len(table)) == 0


LOOPS = {
    "serving/silicon.csv": ServedFile(
        conditions="serving/silicon.toml", options=silicon_options, metrics=silicon_metrics
    ),
    "serving/silicon2.csv": ServedFile(
        conditions="serving/silicon.toml",
        options=silicon_options,
        metrics=silicon_metrics,
        keep=not_in_inferencex,
    ),
    INFERENCEX: ServedFile(
        conditions="serving/inferencex.toml", options=inferencex_options, metrics=inferencex_metrics
    ),
    "serving/*_[0-9]*x*_nim.csv": ServedFile(
        conditions="serving/nim.toml", options=nim_options, metrics=nim_metrics
    ),
    "serving/ml_energy.csv": ServedFile(
        conditions="serving/ml_energy.toml", options=energy_options, metrics=energy_metrics
    ),
    "serving/requests/*.csv": ServedFile(
        conditions="serving/requests.toml", options=recorded_options, metrics=recorded_metrics, keep=first_row
    ),
}
