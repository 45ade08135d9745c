"""The question of a served model, answered as `strata simulate` does: its options are the arguments, beside
those that let the columns of published files be told plainly (degrees, labels of formats, versions and days).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from strata.base.errors import BadValue, UnknownName, require
from strata.base.precision import bytes_of, supports
from strata.hardware.chip import Chip
from strata.search.served_options import command_line, served_answer
from strata.serving.pools import pool
from strata.serving.simulated_result import UNITS
from strata.software.engine import engine as make_engine
from strata.validation.questions.question import QuestionKind, word
from strata.validation.readers.labels import Catalogue, multiplied_format, server_of, weight_format
from strata.workload.model import Model

OWN_RELEASE = re.compile(r"v?\d+(\.\d+)+(rc\d+)?(\.post\d+)?")  # not a router's version around an engine
MOST_NODES = 128
DEGREES = ("tp", "pp", "dp", "ep", "moe_tp")
SIDES = ("prefill", "decode")
FLAGS = ("find_rate", "no_prefix_caching", "priorities")
LOOP = ("rate", "clients", "input", "output", "count")  # parts of a load, which a whole one replaces
_NAMES = Catalogue()

# Options of `strata simulate` that are handed on as they are.
PLAIN = {
    "replicas": "engines that share the requests",
    "sequences": "most sequences of a step",
    "tokens": "most tokens of a step",
    "kv_blocks": "blocks of the cache",
    "kv_tiers": "memories that keep what the device has no room for",
    "router": "which replica gets a request",
    "eviction": "what becomes of a sequence that has no room",
    "speculative": "how tokens are drafted, like draft=mtp,acceptance=0.7,window=2",
    "power_cap": "power limit of a device, like '500 W'",
    "load": "requests, in place of rate or clients, input, output and count",
    "trace": "file of recorded requests",
    "rate": "requests that arrive, like 4/s",
    "clients": "clients that each wait for an answer before they ask again",
    "input": "tokens of a prompt, or how they are drawn",
    "output": "tokens of an answer, or how they are drawn",
    "count": "requests in all",
    "seed": "of what is drawn",
    "speed": "how many times as fast requests come",
    "ttft": "limit on the time to first token, like 2s",
    "tpot": "limit on the time of a token",
    "latency": "limit on the time of a request",
    "share": "of requests that keep all limits",
    "find_rate": "look for the highest rate that keeps the limits",
    "no_prefix_caching": "read prompts anew that begin as others did",
    "priorities": "serve by priorities",
}
ARGUMENTS = {
    "model": word("name of the model"),
    "system": word("the system, like 8xh200; without one: as many chips as the degrees need", ""),
    "chip": word("name of the chip, in place of a system", ""),
    "plan": word("the plan, in place of degrees", ""),
    **{f"{side}": word(f"plan of {side} workers, in place of degrees", "") for side in SIDES},
    **{f"{side}_workers": word(f"{side} workers where prefill and decode are apart", "") for side in SIDES},
    **{d: word(f"degree {d} of the plan; empty or 0: 1", "") for d in DEGREES},
    **{f"{s}_{d}": word(f"degree {d} of {s} workers", "") for s in SIDES for d in DEGREES},
    "engine": word("engine by its label, or with its version like vllm@0.11", ""),
    "version": word("version of the engine, where its label has none", ""),
    "date": word("day of the run: the engine as of then where the version is not known", ""),
    "weights": word("format of weights; the model's own where it is as wide", ""),
    "experts": word(
        "format of experts' weights; where told, the cache is fp8 beside weights below 16 bits", ""
    ),
    "kv": word("format of the cache", ""),
    "skew": word("how unevenly experts are picked; of no account where there are none", ""),
    **{name: word(meaning, "") for name, meaning in PLAIN.items()},
}


def simulate_options(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a row as options of `strata simulate`.

    >>> row = {"model": "llama-3-70b", "chip": "h200", "tp": "8", "clients": "4", "input": "9", "output": "9"}
    >>> simulate_options(row | {"engine": "vLLM", "engine.tokenize": "0 s"})["set"]
    ('engine.tokenize=0 s',)
    """
    asked = {name: str(value) for name, value in given.items() if str(value)}
    require(bool(asked.get("system") or asked.get("chip")), "serve needs a system, or a chip and degrees")
    model = _NAMES.model(asked["model"])
    place = _place(asked, model)
    formats = _formats(asked, model, place["system"])
    sets = [*formats.pop("set", ()), *(f"{n}={v}" for n, v in asked.items() if "." in n)]
    plain = {n: True if n in FLAGS else v for n, v in asked.items() if n in PLAIN}
    if "load" in plain:
        plain = {n: v for n, v in plain.items() if n not in LOOP}
    elif {"clients", "rate"} & set(plain):
        require({"input", "output"} <= set(plain), "serve needs the input and output tokens of its requests")
    options = {
        "model": model.name,
        **place,
        "engine": engine_text(asked.get("engine", ""), asked.get("version", ""), asked.get("date", "")),
        **formats,
        "skew": asked.get("skew", "") if model.has_experts else "",
        **plain,
    }
    return {n: v for n, v in options.items() if v} | ({"set": tuple(sets)} if sets else {})


# ------------------------------------------------------------------------------------- layouts and systems


def layout_text(model: Model, *, tp: int = 1, pp: int = 1, dp: int = 1, ep: int = 1, moe_tp: int = 0) -> str:
    """A plan as text; experts are cut further over the ranks that are left.

    >>> from strata.workload.model import model
    >>> layout_text(model("deepseek-v3"), dp=8, ep=4), layout_text(model("llama-3-70b"), tp=8)
    ('dp=8,ep=4,moe_tp=2', 'tp=8')
    """
    degrees = {"tp": tp, "pp": pp, "dp": dp}
    if model.has_experts:
        whole = moe_tp * ep == tp * dp
        degrees |= {"ep": ep, "moe_tp": moe_tp if whole else max(tp * dp // ep, 1)}
        degrees["redundant_experts"] = -int(model.experts) % ep  # as few as give each rank whole experts
    return ",".join(f"{k}={v}" for k, v in degrees.items() if v > 1 or k == "moe_tp") or "tp=1"


def _degrees(asked: dict[str, str], prefix: str = "") -> dict[str, int]:
    """Degrees that are told; empty and 0 mean 1."""
    told = {d: asked.get(f"{prefix}{d}", "") for d in DEGREES}
    try:
        return {d: max(int(float(cell or 1)), 1) for d, cell in told.items()}
    except ValueError:
        raise BadValue(f"degrees are whole numbers, but got {told}") from None


def _devices(degrees: dict[str, int]) -> int:
    return degrees["tp"] * degrees["pp"] * degrees["dp"]


def _place(asked: dict[str, str], model: Model) -> dict[str, str]:
    """System and plans of a row; the smallest system where workers are apart."""
    apart = [side for side in SIDES if asked.get(side) or asked.get(f"{side}_workers")]
    chip = "" if asked.get("system") else _NAMES.chip(asked["chip"]).name
    if not apart:
        degrees = _degrees(asked)
        plan = asked.get("plan") or layout_text(model, **degrees)
        return {"system": asked.get("system") or f"{_devices(degrees)}x{chip}", "plan": plan}
    plans, counts = {}, dict[int, int]()
    for side in SIDES:
        degrees, workers = _degrees(asked, f"{side}_"), int(float(asked.get(f"{side}_workers", 1)))
        plans[side] = asked.get(side) or layout_text(model, **degrees)
        plans[f"{side}_workers"] = str(workers)
        counts[_devices(degrees)] = counts.get(_devices(degrees), 0) + workers
    return {"system": asked.get("system") or whole_system(chip, counts), **plans}


def whole_system(chip: str, workers: dict[int, int]) -> str:
    """The smallest system that has so many workers of each size, in whole nodes where there are several.

    >>> whole_system("b200", {4: 1, 8: 3})
    '32xb200'
    """
    total = sum(size * count for size, count in workers.items())
    for devices in range(total, total + MOST_NODES):
        try:
            system = _NAMES.system(f"{devices}x{chip}")
            node = float(system.fabric.dimension[0].size or devices)
            for size in workers:
                require(size <= node or size % node == 0, "a worker fills whole nodes", size=size, node=node)
                pool(system, size)
        except BadValue:
            continue
        return f"{devices}x{chip}"
    raise BadValue(f"no system of {chip} has workers of {sorted(workers)} devices")


# ------------------------------------------------------------------------------------- formats and engines


def _formats(asked: dict[str, str], model: Model, system: str) -> dict[str, Any]:
    """Options of weights and cache. A model keeps its own weights, those that its name says (an -FP8 behind
    it), where they are as wide as the label.
    """
    weights = asked.get("weights", "")
    options: dict[str, Any] = (
        {} if model.weights == _NAMES.model(model.name).weights else {"weights": model.weights}
    )
    if asked.get("experts"):
        options = format_options(model, _NAMES.system(system).chip, weights, asked["experts"])
    elif weights:
        wanted = weight_format(weights)
        width, *own = (round(float(bytes_of(w)), 1) for w in (wanted, model.weights, model.expert_weights))
        options = options if width in own else {"weights": wanted}
    return options | ({"kv": asked["kv"]} if asked.get("kv") else {})


def format_options(model: Model, chip: Chip, weights: str, experts: str) -> dict[str, Any]:
    """Weights and cache as served: a model published in blocks of fp8 keeps them where it is said to be in
    fp8, one whose experts are mxfp4 keeps those; the cache is fp8 unless weights are bf16, or a chip widens
    4-bit weights.
    """
    linear, inner = (weight_format(multiplied_format(w, chip)) for w in (weights, experts))
    linear, inner = (
        model.weights if (model.weights, f) == ("fp8_block", "fp8") else f for f in (linear, inner)
    )
    kv = "bf16" if (linear, inner) == ("bf16", "bf16") else "fp8"
    if model.expert_weights == "mxfp4":
        return {"kv": kv if supports(chip.compute.matrix_rate, "mxfp4") else "bf16"}
    sets = {"set": (f"model.expert_weights={inner}",)} if model.has_experts else {}
    return {"weights": linear, "kv": kv, **sets}


@lru_cache(maxsize=1024)
def engine_text(label: str, version: str = "", date: str = "") -> str:
    """An engine as of its version where its file knows that, else as of the last that was out on a day.

    >>> engine_text("trtllm", "1.2.0rc6.post2"), engine_text("trtllm", "0.8.1.post1", "2026-01-29")
    ('trtllm@1.2.0rc6.post2', 'trtllm@1.2.0rc6')
    """
    if not label or "@" in label:
        return label
    name = server_of(label)
    if OWN_RELEASE.fullmatch(version):
        try:
            make_engine(f"{name}@{version}")
            return f"{name}@{version}"
        except UnknownName:
            pass
    if not date:
        return name
    out = [release.version for release in make_engine(f"{name}@{date}").versions if release.date <= date]
    return f"{name}@{out[-1]}"


# ------------------------------------------------------------------------------------- the question


def _serve(given: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    answer = served_answer(simulate_options(given), catalogue.engines)
    if answer.get("refusals") and not answer["completed"]:
        raise BadValue("; ".join(answer["refusals"]))
    return answer


QUESTIONS = {
    "serve": QuestionKind(
        name="serve",
        arguments=ARGUMENTS,
        answers={
            n: unit for n, unit in UNITS.items() if n.split(".")[0] not in ("overloads", "slo", "fleet")
        },
        ask=_serve,
        command=lambda given: command_line(simulate_options(given)),
        slow=True,
        rates=("rate", "goodput", "tokens_per_s"),
        sets="a field of the chip, the model or the engine, as --set has it",
    )
}
