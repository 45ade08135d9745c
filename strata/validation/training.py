"""Training runs: tokens/s or seconds a step, memory, and whether a run fits at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from strata.errors import BadValue
from strata.hardware.system import System
from strata.mapping.engine import engine
from strata.mapping.plan import Plan, plan
from strata.pricing.step import Step
from strata.validation.datasets import Array, Points, Table, forecast, joined, labels, points, read_table
from strata.validation.steps import (
    case_of,
    family_of,
    kind_of,
    machines,
    named_model,
    priced,
    used_bytes,
    with_layers,
)
from strata.workload.model import Model, Pattern
from strata.workload.tasks import train

GIB = 2.0**30
GPUS_PER_NODE = 8.0
NANOTRON_LENGTH = 4096.0
NANOTRON_FILE = "training/h100_nanotron_models.csv"
# The same shapes for folders without that file: hidden, ffn, layers, heads, tied embeddings.
NANOTRON = {
    "A": (2048.0, 8192.0, 16.0, 32.0, True),
    "B": (3072.0, 8192.0, 28.0, 32.0, True),
    "C": (4096.0, 14336.0, 32.0, 32.0, False),
    "D": (8192.0, 28672.0, 80.0, 64.0, False),
    "E": (16384.0, 53248.0, 126.0, 128.0, False),
}
DEEPSPEED_VOCAB = 51200.0
# Megatron's models (validation/README.md): layers, hidden size, heads; sequence 2048, vocabulary 51200.
MEGATRON = {
    "22B": (48, 6144, 64),
    "175B": (96, 12288, 96),
    "310B": (96, 16384, 128),
    "530B": (105, 20480, 128),
    "1T": (128, 25600, 160),
}
# Chunks of a stage under the interleaved schedule of Korthikanti et al. (arXiv 2205.05198, sec. 6); the 22B
# model has no pipeline.
KORTHIKANTI_CHUNKS = {"175B": 3.0, "530B": 3.0}


def step_of(where: System, what: Model, batch: Any, length: Any, how: Plan) -> Step:
    """One optimiser step under a Megatron-like trainer."""
    return priced(where, what, train(batch, length), how, engine("megatron"))


def gpt(layers: Any, hidden: Any, heads: Any, length: Any, vocab: float) -> Model:
    """A GPT of these sizes: plain feed-forward of four times the width, learned positions, biases, tied head."""
    return Model(
        "gpt",
        Pattern((), 0.0, (("full", "dense"),), layers),
        hidden,
        heads,
        heads,
        hidden / heads,
        vocab,
        ffn=4.0 * hidden,
        v_head_dim=hidden / heads,
        positions=length,
        learned_positions=True,
        gated=False,
        tied=True,
        qkv_bias=True,
        output_bias=True,
        ffn_bias=True,
        norm_bias=True,
    )


def ranked(found: Points, nodes: Array, lines: Array) -> Points:
    """The points with their headline rows grouped by node count, for rank correlations."""
    by_line = dict(zip(lines.tolist(), nodes.tolist(), strict=True))
    head = np.flatnonzero(found.headline)
    counts = np.array([by_line[int(found.line[i])] for i in head])
    return replace(found, ranks={f"{n:g}": head[counts == n] for n in np.unique(counts)})


# nanotron


def _nanotron_shapes(folder: Path) -> dict[str, tuple[float, float, float, float, bool]]:
    """Model letter to hidden, ffn, layers, heads and whether embeddings are tied, from the file beside the
    runs if it is there.
    """
    if not (folder / NANOTRON_FILE).exists():
        return NANOTRON
    shapes = read_table(folder, NANOTRON_FILE)
    columns = [shapes.number(c) for c in ("hidden", "ffn", "layers", "heads")]
    tied = ["tied" in note for note in shapes.text("note")]
    return {m: (*(float(c[i]) for c in columns), tied[i]) for i, m in enumerate(shapes.text("model"))}  # type: ignore[misc]


def _nanotron_steps(table: Table, kv_heads: Array) -> Any:
    """A pricing function of nanotron rows: tokens/s/GPU, bytes of weights, gradients and optimiser, and
    whether the run fits.
    """
    shapes = _nanotron_shapes(table.folder)
    s = table.numbers("vocab_k", "nodes", "dp", "tp", "pp", "mbs", "acc", "zero")

    def price(key: tuple[str], rows: Array) -> Any:
        if key[0] not in shapes:
            raise BadValue(f"model must be one of {', '.join(shapes)} ({NANOTRON_FILE}), but got '{key[0]}'")
        hidden, ffn, layers, heads, tied = shapes[key[0]]
        v = {k: x[rows] for k, x in s.items()}
        kv = np.where(np.isnan(kv_heads[rows]), heads, kv_heads[rows])
        width = hidden / heads
        what = Model(
            "",
            Pattern((), 0.0, (("full", "dense"),), layers),
            hidden,
            heads,
            kv,
            width,
            v["vocab_k"] * 1024.0,
            ffn=ffn,
            v_head_dim=width,
            tied=tied,
        )
        how = plan(
            tp=v["tp"],
            pp=v["pp"],
            dp=v["dp"],
            zero=v["zero"],
            microbatches=v["acc"],
            sp=np.ones_like(v["tp"]),
        )
        where = machines("h100", v["nodes"] * GPUS_PER_NODE)
        batch = v["dp"] * v["mbs"] * v["acc"]
        step = step_of(where, what, batch, NANOTRON_LENGTH + 0.0 * batch, how)
        rate = batch * NANOTRON_LENGTH / step.time / (v["nodes"] * GPUS_PER_NODE)
        fits = used_bytes(step) <= where.chip.memory.capacity
        # The file's memory does not change with the micro-batch: it is read between steps and holds no
        # activations.
        return rate, step.memory["weights"], fits

    return price, tuple(s)


def nanotron(table: Table) -> Points:
    """Tokens/s/GPU and allocated memory of runs that succeeded, and the share of them we would have called
    too large.

    Pipelined runs from before nanotron's pipeline fix measure the fault, up to a hundred times slower than
    after it: they keep groups of their own and stay out of the headline (validation/README.md: prefer the
    others).
    """
    price, needs = _nanotron_steps(table, table.number("kv_heads"))
    made = forecast(table, [table.text("model")], price, needs, metrics=3)
    count, models = len(table), table.text("model")
    sound = (table.number("after_pp_fix") == 1) | (table.number("pp") == 1)
    group = np.array(
        [f"tokens/{m}" + ("" if good else "/before_fix") for m, good in zip(models, sound, strict=True)],
        dtype=object,
    )
    key = case_of("train", "h100", "dense", "llama")
    speed = points(
        table,
        table.number("tok_s_gpu"),
        made,
        group,
        headline=sound,
        rate=True,
        case=[key if good else "" for good in sound],
    )
    memory = points(
        table,
        table.number("mem_alloc_GB") * 1e9,
        made,
        labels("memory", models, count=count),
        metric=1,
        headline=False,
    )
    fits = called(table, made.values[2], made.why, np.array(["fits"] * count, dtype=object), headline=False)
    return ranked(joined([speed, memory, fits]), table.number("nodes"), table.lines)


def called(table: Table, right: Array, why: dict[int, str], group: Array, headline: bool) -> Points:
    """Yes-or-no predictions as points: measured 1, predicted 1 where called right, so that mape is the share
    called wrong.
    """
    count = len(table)
    reasons = {int(table.lines[i]): text for i, text in why.items() if np.isnan(right[i])}
    predicted = np.where(np.isnan(right), 0.0, np.where(right > 0, 1.0, WRONG))
    no = np.full(count, False)
    return Points(
        np.ones(count),
        predicted,
        group,
        table.lines,
        np.full(count, headline),
        no,
        np.full(count, "", dtype=object),
        reasons,
    )


WRONG = 1e-12  # a wrong call: an error of 1 that is not a failed row


def nanotron_oom(table: Table) -> Points:
    """Runs that ran out of memory: called right where our footprint does not fit either."""
    price, needs = _nanotron_steps(table, table.number("gqa"))
    made = forecast(table, [table.text("model")], price, needs, metrics=3)
    fits = made.values[2]
    group = labels("oom", table.text("model"), count=len(table))
    return called(table, np.where(np.isnan(fits), np.nan, 1.0 - fits), made.why, group, headline=True)


# Megatron and DeepSpeed on A100


def a100_megatron(table: Table) -> Points:
    """Seconds a batch of the published Megatron runs."""
    s = table.numbers("batch", "mb", "dp", "tp", "pp", "cp")
    keys = [table.text(c) for c in ("device", "model", "tp_sp", "recomputation")]

    def price(key: tuple[str, str, str, str], rows: Array) -> Any:
        size = key[1].split()[-1]
        if size not in MEGATRON:
            raise BadValue(f"model must be GPT of {', '.join(MEGATRON)}, but got '{key[1]}'")
        layers, hidden, heads = (float(x) for x in MEGATRON[size])
        v = {k: x[rows] for k, x in s.items()}
        chunks = KORTHIKANTI_CHUNKS.get(size, 1.0) if key[0].endswith("korthi") else 1.0
        again = key[3] or "none"
        how = plan(
            tp=v["tp"],
            pp=v["pp"],
            dp=v["dp"],
            cp=v["cp"],
            microbatches=v["mb"],
            virtual_stages=np.where(v["pp"] > 1, chunks, 1.0),
            sp=1.0 if key[2].lower() == "true" else 0.0,
            recompute=again,
        )
        what = gpt(layers, hidden, heads, 2048.0, DEEPSPEED_VOCAB)
        where = machines("a100", v["tp"] * v["pp"] * v["dp"] * v["cp"])
        return step_of(where, what, v["batch"], 2048.0 + 0.0 * v["batch"], how).time

    made = forecast(table, keys, price, tuple(s))
    names = labels("time", table.text("model"), count=len(table))
    case = [case_of("train", "a100", "dense", "gpt")] * len(table)
    return _nodes(
        points(table, table.number("actual"), made, names, case=case),
        table,
        s["tp"] * s["pp"] * s["dp"] * s["cp"],
    )


def _nodes(found: Points, table: Table, gpus: Array) -> Points:
    return ranked(found, np.ceil(np.where(np.isnan(gpus), GPUS_PER_NODE, gpus) / GPUS_PER_NODE), table.lines)


def a100_deepspeed(table: Table) -> Points:
    """Milliseconds an iteration of Megatron-DeepSpeed: full recomputation, 1F1B, ZeRO-0, fp16."""
    s = table.numbers(
        "gpus", "global_batch", "micro_batch", "hidden", "heads", "layers", "seq", "tp", "dp", "pp"
    )

    def price(key: tuple[()], rows: Array) -> Any:
        v = {k: x[rows] for k, x in s.items()}
        pieces = np.maximum(np.round(v["global_batch"] / (v["dp"] * v["micro_batch"])), 1.0)
        how = plan(tp=v["tp"], dp=v["dp"], pp=v["pp"], microbatches=pieces, recompute=2.0)
        what = gpt(v["layers"], v["hidden"], v["heads"], v["seq"], DEEPSPEED_VOCAB)
        return step_of(machines("a100", v["gpus"]), what, v["global_batch"], v["seq"], how).time

    made = forecast(table, [], price, tuple(s))
    stem = Path(table.name).stem
    case = [case_of("train", "a100", "dense", "gpt")] * len(table)
    return _nodes(
        points(
            table,
            table.number("iteration_ms") * 1e-3,
            made,
            labels("time", stem, count=len(table)),
            case=case,
        ),
        table,
        s["gpus"],
    )


# Others


def b200_megatron(table: Table) -> Points:
    """Time and peak allocated memory of a few layers of Llama on one node: distributed optimiser (ZeRO-1),
    sequence parallel with TP.
    """
    s = table.numbers("layers", "tp", "pp", "dp", "ep", "cp", "seq_len", "micro_batch", "num_microbatches")
    models = table.text("model")

    def price(key: tuple[str], rows: Array) -> Any:
        v = {k: x[rows] for k, x in s.items()}
        pieces = v["num_microbatches"]
        how = plan(
            tp=v["tp"],
            pp=v["pp"],
            dp=v["dp"],
            cp=v["cp"],
            ep=v["ep"],
            microbatches=pieces,
            zero=np.ones_like(pieces),
            sp=np.ones_like(pieces),
        )
        where = machines("b200", v["tp"] * v["pp"] * v["dp"] * v["cp"])
        what = with_layers(named_model(key[0]), v["layers"])
        step = step_of(where, what, v["dp"] * v["micro_batch"] * pieces, v["seq_len"], how)
        return step.time, used_bytes(step, reserve=False)

    made = forecast(table, [models], price, tuple(s), metrics=2)
    count = len(table)
    case = [case_of("train", "b200", "dense", family_of(m)) for m in models]
    time = points(
        table, table.number("measured_ms") * 1e-3, made, labels("time", models, count=count), case=case
    )
    memory = points(
        table,
        table.number("measured_peak_alloc_gib") * GIB,
        made,
        labels("memory", models, count=count),
        metric=1,
        headline=False,
    )
    return _nodes(joined([time, memory]), table, s["tp"] * s["pp"] * s["dp"] * s["cp"])


def nvidia_bridge(table: Table) -> Points:
    """Published pre-training tokens/s/GPU; fp8 recipes multiply in fp8, the optimiser is sharded over data
    parallel ranks.
    """
    s = table.numbers("gpus", "gbs", "mbs", "seq_len")
    s |= {c: np.maximum(table.number(c, empty=1.0), 1.0) for c in ("tp", "pp", "cp", "ep")} | {
        "fsdp": table.number("fsdp", empty=0.0)
    }
    chunks = np.maximum(table.number("vp", empty=1.0), 1.0)
    keys = [table.text(c) for c in ("system", "model", "precision")]

    def price(key: tuple[str, str, str], rows: Array) -> Any:
        v = {k: x[rows] for k, x in s.items()}
        narrow = key[2].upper().startswith("FP8")
        what = named_model(key[1], weights="fp8" if narrow else "bf16", kv="bf16")
        dp = v["gpus"] / (v["tp"] * v["pp"] * v["cp"])
        pieces = np.maximum(np.round(v["gbs"] / (v["mbs"] * dp)), 1.0)
        grid: dict[str, Any] = {"ep": v["ep"], "moe_tp": np.ones_like(dp)} if what.has_experts else {}
        how = plan(
            tp=v["tp"],
            pp=v["pp"],
            cp=v["cp"],
            dp=dp,
            microbatches=pieces,
            virtual_stages=np.where(v["pp"] > 1, chunks[rows], 1.0),
            zero=np.where(v["fsdp"] > 0, 3.0, 1.0),
            sp=np.ones_like(dp),
            **grid,
        )
        step = step_of(machines(key[0].lower(), v["gpus"]), what, v["gbs"], v["seq_len"], how)
        return v["gbs"] * v["seq_len"] / step.time / v["gpus"]

    made = forecast(table, keys, price, ("gpus", "gbs", "mbs", "seq_len"))
    case = [_case(c, m) for c, m in zip(keys[0], keys[1], strict=True)]
    found = points(
        table,
        table.number("tokens_per_s_per_gpu"),
        made,
        labels("tokens", keys[1], count=len(table)),
        rate=True,
        case=case,
    )
    return _nodes(found, table, s["gpus"])


def _case(chip_name: str, model_name: str) -> str:
    try:
        return case_of("train", chip_name, kind_of(named_model(model_name)), family_of(model_name))
    except ValueError:
        return ""


def a100x4(table: Table) -> Points:
    """Seconds a step of Llama-2-7B on four A100: sequence 4096, global batch 128, one sequence a micro-batch."""
    s = table.numbers("TP", "PP", "CP", "DP")
    variant = table.text("variant")

    def price(key: tuple[str], rows: Array) -> Any:
        tp, pp, cp, dp = (x[rows] for x in s.values())
        how = plan(
            tp=tp,
            pp=pp,
            cp=cp,
            dp=dp,
            microbatches=128.0 / dp,
            zero=np.where(key[0] == "FSDP", 3.0, 0.0) + 0.0 * dp,
        )
        return step_of(
            machines("a100", tp * pp * cp * dp),
            named_model("llama-2-7b"),
            128.0 + 0.0 * dp,
            4096.0 + 0.0 * dp,
            how,
        ).time

    made = forecast(table, [variant], price, tuple(s))
    names = labels("time", Path(table.name).stem, count=len(table))
    case = [case_of("train", "a100", "dense", "llama")] * len(table)
    return _nodes(
        points(table, table.number("Avg_Step_Time_s"), made, names, case=case),
        table,
        s["TP"] * s["PP"] * s["CP"] * s["DP"],
    )
