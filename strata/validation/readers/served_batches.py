"""Files of engines that are asked in process: batches, single requests, all requests at once, and the highest
rate that keeps limits. Which options of `strata simulate` their columns are, and what was measured.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import BadValue
from strata.params import dashed
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.labels import machine_of, server_of
from strata.validation.readers.served_layouts import (
    format_options,
    layout_text,
    loop_words,
    named_in_file,
    server_label,
    stored_format,
    with_stated,
)
from strata.validation.readers.served_rows import Cells, ServedConditions, ServedFile, ServedMetric
from strata.validation.readers.tables import Table

# Prompts of smaller batches are noisy (validation/README.md): such rows tell nothing about others.
NOISY_PROMPTS = 16
KOYEB = r"(.+)_([a-z0-9]+)_koyeb\.csv"
SCENARIOS = ("Offline", "Server", "Interactive")
FEWEST, MOST = 1024, 16384  # requests of one replica of an Offline run


# ------------------------------------------------------------------------------------- vllm


def vllm_options(cells: Cells, known: ServedConditions, catalogue: Catalogue) -> dict[str, Any]:
    """A batch that is handed over at once."""
    model, label = catalogue.model(cells.text("model")), dashed(cells.text("system"))
    batch, read, written = (int(cells.needed(c)) for c in ("batch", "input_tokens", "output_tokens"))
    options = {
        "model": model.name,
        "system": label,
        "plan": layout_text(model, tp=cells.degree("tp"), ep=cells.degree("ep")),
        **stored_format(catalogue, model.name, cells.text("precision").removesuffix("-weights")),
    }
    words = {server_of(cells.text("engine")), "eager" if cells.text("eager") == "1" else "graphs"}
    return with_stated(options, known, model, words, loop_words(known, batch, read, written))


def vllm_metrics(cells: Cells, known: ServedConditions) -> list[ServedMetric]:
    """Tokens/s of the batch as times: of a token of each sequence, and until the last has its first."""
    system, model, engine = (cells.text(c) for c in ("system", "model", "engine"))
    eager, batch = cells.text("eager") == "1", cells.number("batch")
    chip = re.sub(r"^\d+x", "", system.lower())
    tokens = {"decode": batch, "prefill": batch * cells.number("input_tokens")}
    metrics = []
    for name, at in (("decode", "inter_token.p50"), ("prefill", "ttft.largest")):
        counted = not eager and not (name == "prefill" and batch < NOISY_PROMPTS)
        metrics.append(
            ServedMetric(
                at=at,
                measured=tokens[name] / cells.number(f"{name}_tokens_per_s"),
                group=f"{system}/{model}/{name}" + ("/eager" if eager else ""),
                case=(name if counted else "", chip, model, engine),
                headline=name == "decode" and not eager,
            )
        )
    return metrics


# ------------------------------------------------------------------------------------- trtllm_max_throughput


def throughput_options(cells: Cells, known: ServedConditions, catalogue: Catalogue) -> dict[str, Any]:
    """All requests at once, without a limit on how many run."""
    match = re.fullmatch(r"(TP|DEP)(\d+)", cells.text("parallel"))
    if not match:
        raise BadValue(f"parallel must be TPn or DEPn, but got '{cells.text('parallel')}'")
    count, whole = int(match.group(2)), match.group(1) == "TP"
    model, chip = catalogue.model(cells.text("model")), catalogue.chip(cells.text("gpu")).name
    weights = cells.text("weights")
    read, written = (int(cells.needed(c)) for c in ("isl", "osl"))
    kind = "wide" if model.has_experts and not model.kv_rank and weights.lower() == "fp8" else "narrow"
    options = {
        "model": model.name,
        "system": f"{count}x{chip}",
        "plan": layout_text(model, tp=count) if whole else layout_text(model, dp=count, ep=count),
        **format_options(catalogue, model.name, chip, weights, weights),
    }
    return with_stated(options, known, model, {kind, model.name, chip}, loop_words(known, 1, read, written))


def throughput_metrics(cells: Cells, known: ServedConditions) -> list[ServedMetric]:
    gpu, model = cells.text("gpu"), cells.text("model")
    count = int(re.sub(r"\D", "", cells.text("parallel")) or 1)
    return [
        ServedMetric(
            at="tokens_per_s",
            measured=cells.number("output_tokens_per_s_per_gpu") * count,
            group=f"{gpu}/{model}",
            case=("throughput", gpu, model, "trtllm"),
            rate=True,
        )
    ]


# ------------------------------------------------------------------------------------- nemo, koyeb


def nemo_options(cells: Cells, known: ServedConditions, catalogue: Catalogue) -> dict[str, Any]:
    """One request, tensor parallel."""
    model, chip, tp = (
        catalogue.model(cells.text("model")),
        catalogue.chip(cells.text("device")).name,
        cells.degree("TP"),
    )
    options = {"model": model.name, "system": f"{tp}x{chip}", "plan": layout_text(model, tp=tp)}
    return with_stated(options, known, model, {chip, model.name}, {})


def nemo_metrics(cells: Cells, known: ServedConditions) -> list[ServedMetric]:
    case = ("decode", cells.text("device"), cells.text("model"), "trtllm")
    return [
        ServedMetric(at="latency.mean", measured=cells.number("actual"), group=cells.text("model"), case=case)
    ]


def koyeb_options(cells: Cells, known: ServedConditions, catalogue: Catalogue) -> dict[str, Any]:
    """A batch on one device; model and chip stand in the file's name."""
    name, label = named_in_file(cells, KOYEB)
    model, chip = catalogue.model(name), catalogue.chip(label).name
    batch, read, written = (int(cells.needed(c)) for c in ("batch", "prefill_len", "decode_len"))
    options = {"model": model.name, "system": f"1x{chip}", "plan": "tp=1"}
    return with_stated(options, known, model, {chip, model.name}, loop_words(known, batch, read, written))


def koyeb_metrics(cells: Cells, known: ServedConditions) -> list[ServedMetric]:
    name, chip = named_in_file(cells, KOYEB)
    each = cells.number("decode_time_s") / cells.number("decode_len")
    case = ("decode", chip, name, "vllm")
    return [ServedMetric(at="tpot.mean", measured=each, group=cells.text("group"), case=case)]


def not_noisy(table: Table) -> Array:
    return np.asarray(table.text("group") != "large_noisy")


# ------------------------------------------------------------------------------------- argonne


def argonne_options(cells: Cells, known: ServedConditions, catalogue: Catalogue) -> dict[str, Any]:
    """A batch that is handed over at once, until its last token."""
    model, chip = catalogue.model(cells.text("model")), catalogue.chip(cells.text("chip")).name
    label, count = cells.text("engine"), cells.degree("count")
    batch, read, written = (int(cells.needed(c)) for c in ("batch", "input", "output"))
    values = loop_words(known, batch, read, written) | {"chunk": cells.text("prompt_chunk")}
    engine = server_of(label)
    options = {
        "model": model.name,
        "system": f"{count}x{chip}",
        "plan": _argonne_layout(cells.text("parallelism").lower(), count, model, engine),
        "engine": engine,
        **stored_format(catalogue, model.name, cells.text("precision") or "fp16"),
    }
    return with_stated(options, known, model, {engine, chip, model.name}, values)


def _argonne_layout(told: str, count: int, model: Any, engine: str) -> str:
    """The layout a row names: tensor parallel where it names none; llama.cpp puts layers on devices."""
    if told in ("pipeline parallelism", "pp") or (not told and engine == "llamacpp"):
        return layout_text(model, pp=count)
    if "pipeline" in told:
        return layout_text(model, tp=2, pp=count // 2)
    ep = {"ep": count, "hybrid tp = 2 and ep = 2": count // 2}.get(told, 1)
    return layout_text(model, tp=count, ep=ep)


def argonne_metrics(cells: Cells, known: ServedConditions) -> list[ServedMetric]:
    chip, engine, model = (cells.text(c) for c in ("chip", "engine", "model"))
    flagged = bool(cells.text("flag"))
    return [
        ServedMetric(
            at="duration",
            measured=cells.number("latency_s"),
            group=("flagged/" if flagged else "") + f"latency/{chip}/{engine}/{model}",
            case=("" if flagged else "batch", chip, model, server_label(engine)),
            headline=not flagged,
        )
    ]


# ------------------------------------------------------------------------------------- mlperf


def mlperf_options(cells: Cells, known: ServedConditions, catalogue: Catalogue) -> dict[str, Any]:
    """One replica of a submission: all requests at once, or the highest rate that keeps the limits."""
    scenario, model = cells.text("scenario"), catalogue.model(cells.text("model"))
    if scenario not in SCENARIOS:
        raise BadValue(f"scenario must be one of {', '.join(SCENARIOS)}, but got '{scenario}'")
    chip = variant_named(cells.text("system"), catalogue.chip(dashed(cells.text("chip"))).name, catalogue)
    engine = server_of(cells.text("engine"))
    ranks, pp, ep = (cells.degree(c) for c in ("tp", "pp", "ep"))
    apart = cells.number("attention_dp", empty=0.0) > 0
    degrees = {"dp": ranks} if apart else {"tp": ranks}
    weights, most = cells.text("weights"), int(cells.number("max_batch", empty=0.0))
    options = {
        "model": model.name,
        "system": f"{ranks * pp}x{chip}",
        "plan": layout_text(model, **degrees, pp=pp, ep=ep),
        "engine": engine,
        **format_options(catalogue, model.name, chip, weights, weights),
        **({"sequences": str(most)} if most else {}),
        **{n: f"{cells.needed(f'{n}_limit_s'):g}s" for n in ("ttft", "tpot") if cells.text(f"{n}_limit_s")},
    }
    lowered = "lowered" if "maxq" in cells.text("system").lower() else "own-limit"
    words = {engine, chip, model.name, scenario, cells.text("round"), lowered}
    values = _samples(known, model.name, most * ranks) | {"replicas": f"{_replicas(cells):.0f}"}
    return with_stated(options, known, model, words, values)


def _replicas(cells: Cells) -> float:
    """Replicas of a submission: as told, or as many as its devices are."""
    ranks = cells.degree("tp") * cells.degree("pp")
    return cells.number("replicas", empty=cells.number("devices") / ranks)


def _samples(known: ServedConditions, model: str, most: int) -> dict[str, Any]:
    """Words of a data set's samples: mean lengths, which a run does not change, and enough of them for a
    steady state.
    """
    prompts, answers = known.prompt or {}, known.answer or {}
    if model not in prompts or model not in answers:
        raise BadValue(f"the prompts and answers of {model} are not known")
    values = loop_words(known, most, round(float(prompts[model])), round(float(answers[model])))
    beams = int((known.beams or {}).get(model, 1))
    samples = int(np.clip(values["count"], FEWEST, MOST)) // beams
    return values | {"count": samples * beams, "samples": samples}


def mlperf_metrics(cells: Cells, known: ServedConditions) -> list[ServedMetric]:
    """Tokens/s of one replica, or samples/s where a rate is looked for, of all replicas where conditions have
    them simulated; a sample with beams is as many sequences.
    """
    scenario, chip, engine = cells.text("scenario"), *(dashed(cells.text(c)) for c in ("chip", "engine"))
    model = cells.text("model")
    values = loop_words(known, 1, 1, 1) | {"samples": 1, "replicas": 1}
    together = "replicas" in known.options({scenario, model}, values)
    each = float((known.beams or {}).get(model, 1)) / (1 if together else _replicas(cells))
    tokens, samples, output = (cells.number(c) for c in ("tokens_per_s", "samples_per_s", "mean_output"))
    tokens = samples * output if np.isnan(tokens) else tokens
    offline = scenario == SCENARIOS[0]
    return [
        ServedMetric(
            at="tokens_per_s" if offline else "rate",
            measured=each * (tokens if offline else tokens / output),
            group=f"{scenario}/{chip}/{model}",
            case=("throughput", chip, model, server_label(engine)),
            rate=True,
        )
    ]


def variant_named(system_name: str, chip_name: str, catalogue: Catalogue) -> str:
    """The chip a row names, or that variant of it which the name of its system says.

    >>> variant_named("SYS-521GE-TNRT (8x H100-NVL-94GB, TensorRT)", "h100", Catalogue())
    'h100-nvl'
    >>> variant_named("Supermicro AS -8126GS-TNMR (8x MI325X)", "mi325x", Catalogue())
    'mi325x'
    """
    named = machine_of(system_name)[0]
    return named if named.startswith(f"{chip_name}-") and catalogue.has_chip(named) else chip_name


# ------------------------------------------------------------------------------------- mlperf_power


def power_options(cells: Cells, known: ServedConditions, catalogue: Catalogue) -> dict[str, Any]:
    """A whole server of replicas, all requests at once."""
    name = cells.text("system")
    chip, count = machine_of(name)
    benchmark = re.sub(r"(-interactive)?(-99(\.9)?)?$", "", cells.text("benchmark").strip().lower())
    if not count:
        raise BadValue(f"the system '{name}' names no chip that is known, with how many of them it has")
    lowered = "lowered" if "maxq" in name.lower() else "own-limit"
    words = {chip, benchmark, lowered}
    stated = known.options(words, {})
    if "model" not in stated:
        raise BadValue(f"no lengths are known of the benchmark '{cells.text('benchmark')}'")
    model = catalogue.model(stated["model"])
    weights = "fp8" if "fp8" in catalogue.chip(chip).compute.matrix_rate else "bf16"
    devices = int(stated.get("plan", "tp=1").removeprefix("tp="))
    options = {
        "model": model.name,
        "system": f"{devices}x{chip}",
        "replicas": str(count // devices),
        **format_options(catalogue, model.name, chip, weights, weights),
    }
    return with_stated(options, known, model, words, {})


def power_metrics(cells: Cells, known: ServedConditions) -> list[ServedMetric]:
    group = f"power/{cells.text('system')}/{cells.text('benchmark')}"
    return [ServedMetric(at="power", measured=cells.number("watts_in_window"), group=group)]


BATCHES = {
    "serving/vllm.csv": ServedFile(
        conditions="serving/vllm.toml", options=vllm_options, metrics=vllm_metrics
    ),
    "serving/trtllm_max_throughput.csv": ServedFile(
        conditions="serving/trtllm_max_throughput.toml",
        options=throughput_options,
        metrics=throughput_metrics,
    ),
    "serving/*_nemo.csv": ServedFile(
        conditions="serving/nemo.toml", options=nemo_options, metrics=nemo_metrics
    ),
    "serving/*_koyeb.csv": ServedFile(
        conditions="serving/koyeb.toml", options=koyeb_options, metrics=koyeb_metrics, keep=not_noisy
    ),
    "serving/argonne.csv": ServedFile(
        conditions="serving/argonne.toml", options=argonne_options, metrics=argonne_metrics
    ),
    "serving/mlperf.csv": ServedFile(
        conditions="serving/mlperf.toml", options=mlperf_options, metrics=mlperf_metrics
    ),
    "serving/mlperf_power.csv": ServedFile(
        conditions="serving/mlperf_power.toml", options=power_options, metrics=power_metrics
    ),
}
