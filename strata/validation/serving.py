"""Serving runs: token times at a client's concurrency, whole requests, and throughput when there is no end of
requests.

What a batch costs comes from `steps`, how a closed loop of clients turns it into what they see from `runs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from strata.errors import BadValue, MissingQuantity
from strata.hardware.system import System
from strata.mapping.engine import Engine, engine
from strata.mapping.plan import Plan, plan
from strata.precision import bytes_of
from strata.serving.acceptance import expected_tokens
from strata.serving.speculation import cycle_time, drafting
from strata.validation.datasets import Array, Forecast, Points, Table, forecast, joined, labels, points
from strata.validation.runs import (
    ACCEPTANCE,
    ROUNDS,
    Conditions,
    Times,
    client_times,
    conditions,
    degree,
    plain_run,
)
from strata.validation.steps import (
    case_of,
    family_of,
    kind_of,
    machines,
    named_chip,
    named_model,
    named_system,
    priced,
    served,
    used_bytes,
)
from strata.workload.model import Model, Pattern
from strata.workload.tasks import decode, mixed, prefill

# Weights as served: names of the data sets to Strata's formats.
WEIGHTS = {
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "bf16",
    "float16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8_block",
    "fp4": "fp4",
    "fp8_static": "fp8",
    "w4afp8": "int4",
    "nvfp4": "fp4",
    "mxfp4": "mxfp4",
    "w4a16_mxfp4": "mxfp4",
    "w4a8_mxfp4_mxfp8": "mxfp4",
    "int8_wo": "int8",
    "int4_wo": "int4",
}
# Real text asks for some experts far more often than for others: the i-th in proportion to 1/i, as in the
# power_law_1.01 rows of
# validation/ops/moe.csv, which their publisher takes for serving.
SKEW = 1.0
# trtllm-bench as NVIDIA's performance overview ran it: requests by tokens of one, read and generated
# (https://nvidia.github.io/TensorRT-LLM/developer-guide/perf-overview.html, reproducing results).
THROUGHPUT_TOKENS, THROUGHPUT_REQUESTS = (2048.0, 9216.0, 33792.0), (3000.0, 1500.0, 1000.0)
# Its settings ask for an fp8 cache for DeepSeek, and for GPT-OSS on Blackwell. Assumed, after a look at this
# file's errors: checkpoints of
# dense and of fp4 models carry the scales of one, and what is left, experts with fp8 weights, has a cache as
# wide as its activations.

_IN_PLACE: ContextVar[dict[str, Engine]] = ContextVar(
    "engines priced in place of the shipped ones of their names", default={}
)


@lru_cache(maxsize=16)
def _read_engine(name: str) -> Engine:
    return engine(name)


def named_engine(name: str) -> Engine:
    """An engine by name, read once; while one is `engines_in_place`, that one."""
    return _IN_PLACE.get().get(name) or _read_engine(name)


def offline(by: Engine) -> Engine:
    """An engine asked in process, as throughput benchmarks do: no server, no client that waits for tokens."""
    return replace(by, stream=0.0, request=0.0)


@contextmanager
def engines_in_place(*made: Engine) -> Iterator[None]:
    """Price rows of engines with other versions of them: how a fit asks what its quantities would do."""
    token = _IN_PLACE.set({m.name: m for m in made})
    try:
        yield
    finally:
        _IN_PLACE.reset(token)


def weights_of(name: str) -> str:
    """Strata's name of a weight format."""
    if name.lower() not in WEIGHTS:
        raise BadValue(f"a weight format must be one of {', '.join(WEIGHTS)}, but got '{name}'")
    return WEIGHTS[name.lower()]


def own_format(own: Model, wanted: str) -> str:
    """A model published with fp8 weights in blocks is served with those where its weights are said to be fp8."""
    return own.weights if (own.weights, wanted) == ("fp8_block", "fp8") else wanted


def quantised(name: str, weights: str, experts: str) -> Model:
    """A model with weights as served; the cache is fp8 with fp8 and fp4 weights. A model whose own experts
    are mxfp4 keeps them.
    """
    own = named_model(name)
    linear, inner = (own_format(own, weights_of(name)) for name in (weights, experts))
    kv = "bf16" if linear == "bf16" and inner == "bf16" else "fp8"
    if own.expert_weights == "mxfp4":
        return named_model(name, kv=kv)
    return named_model(name, weights=linear, expert_weights=inner, kv=kv)


def times_of(where: System, what: Model, running: Array, how: Plan, by: Engine, run: Conditions) -> Times:
    """Times of an engine that generates for so many sequences and reads a prompt on every attention rank, as
    a run has it.
    """
    one = served(where, what, running, run.input, run.output, how, by, SKEW)
    alone = priced(where, what, prefill(how.dp + 0.0 * running, run.input, skew=SKEW), how, by).time
    step, token = one.step, one.step
    middle = run.input + run.output / 2.0
    if np.any(run.guesses > 0):
        verify = priced(
            where, what, decode(running, middle + run.guesses, tokens=run.guesses + 1.0, skew=SKEW), how, by
        ).time
        guess = (
            run.guesses
            * priced(where, guessing_layer(what), decode(running, middle, skew=SKEW), how, drafting(by)).time
        )
        step = np.where(run.guesses > 0, cycle_time(guess, verify), step)
        token = step / expected_tokens(run.guesses, ACCEPTANCE)
    beside = mixed(
        np.maximum(running, how.dp), middle, prompts=how.dp + 0.0 * running, chunk=run.input, skew=SKEW
    )
    together = priced(where, what, beside, how, by).time
    busy = (running > how.dp) & (by.mixed > 0)
    return Times(
        step,
        token,
        np.where(busy, np.maximum(together - one.step, 0.0), alone),
        np.where(busy, together, alone),
    )


def guessing_layer(what: Model) -> Model:
    """The layer that guesses tokens for multi-token prediction: one like the last of the model, with
    embedding and head.
    """
    return replace(what, pattern=Pattern((), 0.0, (what.pattern.period[-1],), 1.0))


def vllm(table: Table) -> Points:
    """System decode and prefill tokens/s of a batch; eager rows launch every kernel from the host."""
    s = table.numbers("tp", "ep", "batch", "input_tokens", "output_tokens")
    keys = [table.text(c) for c in ("system", "model", "engine", "precision", "eager")]

    def price(key: tuple[str, str, str, str, str], rows: Array) -> Any:
        v = {k: x[rows] for k, x in s.items()}
        where = named_system(key[0])
        where = replace(where, chip=named_chip(where.chip.name))
        what = _stored_as(key[1], key[3].removesuffix("-weights"))
        by = replace(named_engine(key[2]), graphs=1.0 - float(key[4] == "1"), stream=0.0)
        how = plan(tp=v["tp"], ep=v["ep"])
        one = served(where, what, v["batch"], v["input_tokens"], v["output_tokens"], how, by, SKEW)
        return v["batch"] / one.step, v["batch"] * v["input_tokens"] / reading(
            where, what, v["batch"], v["input_tokens"], how, by
        )

    made = forecast(table, keys, price, tuple(s), metrics=2)
    eager = table.text("eager") == "1"
    parts = []
    for metric, name in enumerate(("decode", "prefill")):
        group = [
            f"{a}/{m}/{name}" + ("/eager" if e else "")
            for a, m, e in zip(keys[0], keys[1], eager, strict=True)
        ]
        chips = [re.sub(r"^\d+x", "", a.lower()) for a in keys[0]]
        case = cases(name, chips, keys[1], skip=eager)
        parts.append(
            points(
                table,
                table.number(f"{name}_tokens_per_s"),
                made,
                group,
                metric=metric,
                headline=(not metric) & ~eager,
                rate=True,
                case=case,
            )
        )
    return joined(parts)


def reading(where: System, what: Model, batch: Array, length: Array, how: Plan, by: Engine) -> Any:
    """Time to read the prompts of a batch, in steps of as many tokens as each attention rank takes at once
    [s].
    """
    at_once = np.minimum(np.maximum(np.floor(by.tokens / length), 1.0) * how.dp, batch)
    return (
        by.request + batch / at_once * priced(where, what, prefill(at_once, length, skew=SKEW), how, by).time
    )


def _stored_as(name: str, weights: str) -> Model:
    """A model with weights of this width and a 16-bit cache; official weights of the same width are kept as
    they are.
    """
    own, wanted = named_model(name), weights_of(weights)
    same = any(round(bytes_of(w), 1) == round(bytes_of(wanted), 1) for w in (own.weights, own.expert_weights))
    return own if same else named_model(name, weights=wanted)


def cases(phase: str, chips: Any, models: Any, skip: Array | None = None) -> Array:
    """Keys of whole-model points for intervals; rows of unknown names and skipped rows have none."""
    found = []
    for i, (c, m) in enumerate(zip(chips, models, strict=True)):
        try:
            found.append(
                ""
                if skip is not None and skip[i]
                else case_of(phase, c, kind_of(named_model(m)), family_of(m))
            )
        except ValueError:
            found.append("")
    return np.array(found, dtype=object)


def silicon(table: Table) -> Points:
    """End-to-end runs of serving frameworks at a client concurrency, aggregated or with prefill and decode
    workers apart.
    """
    text = {
        c: table.text(c)
        for c in ("model", "system", "backend", "mode", "precision", "gemm_quant_mode", "moe_quant_mode")
    }
    gemm = np.where(text["gemm_quant_mode"] == "", text["precision"], text["gemm_quant_mode"])
    moe = np.where(text["moe_quant_mode"] == "", gemm, text["moe_quant_mode"])
    keys = [text["model"], text["system"], text["backend"], gemm, moe, text["mode"]]

    def price(key: tuple[str, str, str, str, str, str], rows: Array) -> Any:
        what, by = quantised(key[0], key[3], key[4]), named_engine(key[2])
        if key[5] not in ("agg", "disagg"):
            raise BadValue(f"mode must be agg or disagg, but got '{key[5]}'")
        return (_aggregated if key[5] == "agg" else _apart)(table.keep(rows), key[1], what, by)

    made = forecast(table, keys, price, ("isl", "osl", "conc"), metrics=2)
    parts = []
    for metric, (name, phase) in enumerate((("ttft", "prefill"), ("tpot", "decode"))):
        group = labels(name, text["system"], text["backend"], text["model"], count=len(table))
        case = cases(phase, text["system"], text["model"], skip=np.full(len(table), name == "ttft"))
        measured = table.number(f"silicon_{name}_ms") * 1e-3
        parts.append(points(table, measured, made, group, metric=metric, headline=name == "tpot", case=case))
    return joined(parts)


def _aggregated(rows: Table, chip_name: str, what: Model, by: Engine) -> tuple[Any, Any]:
    tp, pp, dp = (degree(rows, c) for c in ("tp_size", "pp_size", "attention_dp_size"))
    where = machines(chip_name, tp * pp * dp)
    experts: dict[str, Any] = (
        {"ep": degree(rows, "moe_ep_size"), "moe_tp": degree(rows, "moe_tp_size")}
        if what.has_experts
        else {"moe_tp": tp}
    )
    how = plan(tp=tp, pp=pp, dp=dp, **experts)
    conc, run = rows.number("conc"), conditions(rows, chip_name, by.name, bool(what.kv_rank))
    running = np.minimum(conc, largest_batch(where, what, run.input + run.output, how, by, dp))
    return client_times(times_of(where, what, running, how, by, run), conc, running, dp, run, by)


def _apart(rows: Table, chip_name: str, what: Model, by: Engine) -> tuple[Any, Any]:
    """Prefill and decode workers apart: a token waits for nobody's prompt, and prompts wait for prompts only."""
    conc, run = rows.number("conc"), conditions(rows, chip_name, by.name, bool(what.kv_rank))
    isl, osl = run.input, run.output
    plans, where, workers = {}, {}, {}
    for side in ("prefill", "decode"):
        tp, dp, ep = (degree(rows, f"{side}_{c}") for c in ("tp_size", "attention_dp_size", "moe_ep_size"))
        where[side] = machines(chip_name, tp * dp)
        grid: dict[str, Any] = (
            {"ep": ep, "moe_tp": np.maximum(tp * dp / ep, 1.0)} if what.has_experts else {"moe_tp": tp}
        )
        plans[side] = plan(tp=tp, dp=dp, **grid)
        workers[side] = degree(rows, f"{side}_num_workers")
    at_once = degree(rows, "prefill_batch_size") * plans["prefill"].dp
    round_time = priced(where["prefill"], what, prefill(at_once, isl, skew=SKEW), plans["prefill"], by).time
    each = round_time / at_once / workers["prefill"]

    def with_decoding(busy: Any) -> tuple[Any, Any]:
        """TTFT and step with so many sequences being generated: what the prefill workers do not keep up with
        waits for them.
        """
        step = served(
            where["decode"], what, np.ceil(busy / workers["decode"]), isl, osl, plans["decode"], by, SKEW
        ).step
        prompts = np.maximum(conc - at_once * workers["prefill"], 0.0) * each
        met = np.minimum(prompts / (osl * step) * each, prompts) / 2.0
        behind = np.maximum(conc * each - osl * step - round_time, 0.0)
        return by.request + round_time + step + np.maximum(met, behind) + prompts / (2.0 * ROUNDS), step

    ttft, step = with_decoding(conc)
    return with_decoding(np.maximum(conc * osl * step / (ttft + osl * step), 1.0))


def max_throughput(table: Table) -> Points:
    """Offline output tokens/s of one GPU over a run of so many requests, in waves of the largest batch that
    fits.
    """
    s = table.numbers("isl", "osl")
    keys = [table.text(c) for c in ("model", "gpu", "parallel", "weights")]

    def price(key: tuple[str, str, str, str], rows: Array) -> Any:
        match = re.fullmatch(r"(TP|DEP)(\d+)", key[2])
        if not match:
            raise BadValue(f"parallel must be TPn or DEPn, but got '{key[2]}'")
        count = float(match.group(2))
        how = plan(tp=count) if match.group(1) == "TP" else plan(dp=count, ep=count, moe_tp=1.0)
        where, what = named_system(f"{int(count)}x{key[1]}"), quantised(key[0], key[3], key[3])
        if what.has_experts and not what.kv_rank and key[3].lower() == "fp8":
            what = replace(what, kv="bf16")
        by = offline(named_engine("trtllm"))
        isl, osl, dp = s["isl"][rows], s["osl"][rows], float(how.dp)
        requests = np.interp(isl + osl, THROUGHPUT_TOKENS, THROUGHPUT_REQUESTS)
        batch = np.minimum(largest_batch(where, what, isl + osl, how, by, dp), requests)

        def wave(running: Array) -> Any:
            """Time of so many requests that start and end together."""
            one = served(where, what, running, isl, osl, how, by, SKEW)
            return reading(where, what, running, isl, how, by) + osl * one.step

        full = np.floor(requests / batch)
        rest = requests - full * batch
        time = full * wave(batch) + np.where(rest > 0, wave(np.maximum(rest, 1.0)), 0.0)
        return requests * osl / time / count

    made = forecast(table, keys, price, tuple(s))
    case = cases("decode", table.text("gpu"), table.text("model"))
    names = labels(table.text("gpu"), table.text("model"), count=len(table))
    return points(table, table.number("output_tokens_per_s_per_gpu"), made, names, rate=True, case=case)


def largest_batch(where: System, what: Model, context: Array, how: Plan, by: Engine, dp: Any) -> Array:
    """Sequences whose whole context fits beside the weights, up to the engine's limit for each attention
    rank.

    The footprint is linear in the batch, so two batches give it. A measured run existed: where weights alone
    are too much, only the engine's own limit counts.
    """
    limit = where.chip.memory.capacity * by.memory_share
    low, high = (
        used_bytes(priced(where, what, decode(b * dp + 0.0 * context, context), how, by))
        for b in (1.0, 101.0)
    )
    fitting = 1.0 + np.floor((limit - low) / ((high - low) / 100.0))
    return np.clip(np.where(fitting < 1.0, by.sequences, fitting), 1.0, by.sequences) * dp


def _named(table: Table, pattern: str) -> list[str]:
    """Model and system from a file's name."""
    stem = table.name.rsplit("/", 1)[-1]
    match = re.fullmatch(pattern, stem)
    if not match:
        raise MissingQuantity(
            f"{table.name}: the name must say model and system, like llama33_70b_8xa100_nim.csv"
        )
    return [g.replace("_", "-") for g in match.groups()]


def nemo(table: Table) -> Points:
    """Seconds for 200 tokens read and 200 generated at batch 1, fp16.

    Assumed, as the best of five ways tried on this file: kernels that the host starts one by one, and NCCL
    between devices, as before TensorRT-LLM had captured graphs and an all-reduce of its own.
    """
    tp = table.number("TP")
    keys = [table.text("device"), table.text("model")]
    by = replace(offline(named_engine("trtllm")), graphs=0.0, launches=1.0, collectives="library")

    def price(key: tuple[str, str], rows: Array) -> Any:
        one = served(
            machines(key[0].lower(), tp[rows]),
            named_model(key[1]),
            1.0 + 0.0 * tp[rows],
            200.0,
            200.0,
            plan(tp=tp[rows]),
            by,
        )
        return one.prefill + 199.0 * one.step

    made = forecast(table, keys, price, ("TP",))
    return points(table, table.number("actual"), made, keys[1], case=cases("decode", *keys))


def nim(table: Table) -> Points:
    """TTFT, ITL and output tokens/s at a concurrency; model and system stand in the file's name, tensor
    parallel over all GPUs, bf16.
    """
    name, count, chip_name = _named(table, r"(.+)_(\d+)x([a-z0-9_]+)_nim\.csv")
    s = table.numbers("Input Tokens", "Output Tokens", "Concurrency")

    def price(key: tuple[()], rows: Array) -> Any:
        isl, osl, conc = (x[rows] for x in s.values())
        where, what, how, by = (
            named_system(f"{count}x{chip_name}"),
            named_model(name),
            plan(tp=float(count)),
            named_engine("trtllm"),
        )
        run = plain_run(isl, osl)
        ttft, tpot = client_times(
            times_of(where, what, conc, how, by, run), conc, conc, np.ones_like(isl), run, by
        )
        return ttft, tpot, conc * osl / (ttft + osl * tpot)

    made = forecast(table, [], price, tuple(s), metrics=3)
    return joined([_nim_metric(table, made, chip_name, name, i) for i in range(3)])


def _nim_metric(table: Table, made: Forecast, chip_name: str, name: str, metric: int) -> Points:
    column, label, unit = (
        ("TTFT (ms)", "ttft", 1e-3),
        ("ITL (ms)", "itl", 1e-3),
        ("Throughput (Tokens/s)", "throughput", 1.0),
    )[metric]
    count = len(table)
    case = cases("decode", [chip_name] * count, [name] * count, skip=np.full(count, metric != 1))
    return points(
        table,
        table.number(column) * unit,
        made,
        labels(label, count=count),
        metric=metric,
        headline=metric == 1,
        rate=metric == 2,
        case=case,
    )


def koyeb(table: Table) -> Points:
    """Seconds to generate decode_len tokens of a batch; the noisy group is left out."""
    name, chip_name = _named(table, r"(.+)_([a-z0-9]+)_koyeb\.csv")
    table = table.keep(table.text("group") != "large_noisy")
    s = table.numbers("prefill_len", "decode_len", "batch")

    def price(key: tuple[()], rows: Array) -> Any:
        length, output, batch = (x[rows] for x in s.values())
        one = served(
            named_system(f"1x{named_chip(chip_name).name}"),
            named_model(name),
            batch,
            length,
            output,
            plan(),
            offline(named_engine("vllm")),
        )
        return output * one.step

    made = forecast(table, [], price, tuple(s))
    case = cases("decode", [chip_name] * len(table), [name] * len(table))
    return points(table, table.number("decode_time_s"), made, table.text("group"), case=case)
