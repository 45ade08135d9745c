"""Training runs of nanotron: tokens/s, memory, and whether a run fits at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.errors import BadValue
from strata.mapping.plan import plan
from strata.params import data_folder, part, quantity, text
from strata.pricing.stage_memory import first_stage_at_update
from strata.validation.readers.benchmark_conditions import read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import (
    ComparedPoints,
    Forecast,
    compare_metric,
    forecast,
    group_names,
    join_metrics,
)
from strata.validation.readers.like_cases import case_key
from strata.validation.readers.steps import dense_model, priced_step, priced_with, systems_of, used_bytes
from strata.validation.readers.tables import Table, read_table
from strata.validation.readers.training_steps import (
    GPUS_PER_NODE,
    called_right,
    ranked_by_nodes,
    with_trainer,
)
from strata.workload.model import Model
from strata.workload.tasks import train

SHAPES = "training/h100_nanotron_models.csv"
CHIP = "h100"
ENGINE = "nanotron"
FIXED = "after_pp_fix"  # column: 1 where a run was made after the pipeline fix
GIB = 2.0**30


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainerBuild:
    """What a build of a trainer does otherwise than its engine's file says."""

    split: str = text("where stages of a pipeline end (engine, training.split)")
    stalls: str = text("where hosts stall (engine, training.stalls)")
    message_hold: Number = quantity(
        "s", "a message between stages holds both (engine, training.message_hold)"
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class NanotronConditions:
    """Training runs of llama-like models of many layouts."""

    title: str = text("what was run")
    sequence: Number = quantity("1", "tokens of a sequence", positive=True)
    vocabulary_unit: Number = quantity("1", "tokens that one of the file's vocabulary counts", positive=True)
    fabric: str = text("the fabric of the nodes they ran on")
    before_fix: TrainerBuild = part(TrainerBuild, "the build before its pipelines were mended")


def _shapes(table: Table) -> dict[str, dict[str, Any]]:
    """Model letter to its sizes and whether embeddings are tied: from the file beside the runs, else from the
    shipped copy.
    """
    beside = (table.folder / SHAPES).exists()
    shapes = read_table(table.folder if beside else data_folder("conditions"), SHAPES)
    sizes = shapes.numbers("hidden", "ffn", "layers", "heads")
    return {
        letter: {name: float(column[i]) for name, column in sizes.items()} | {"tied": "tied" in note}
        for i, (letter, note) in enumerate(zip(shapes.text("model"), shapes.text("note"), strict=True))
    }


def _nanotron_model(shape: dict[str, Any], kv_heads: Array, vocab: Array) -> Model:
    heads = shape["heads"]
    return dense_model(
        "",
        **shape,
        kv_heads=np.where(np.isnan(kv_heads), heads, kv_heads),
        head_dim=shape["hidden"] / heads,
        vocab=vocab,
    )


def _nanotron_forecast(table: Table, catalogue: Catalogue, kv_heads: Array) -> Forecast:
    """Tokens/s/GPU, allocated bytes, and whether the run fits.

    The file's memory holds no activations: peaks are counted anew after the backward pass (nanotron's
    log_memory), so that it is the update's, of the first rank, which stands in the first stage; in GiB.
    """
    shapes = _shapes(table)
    known = read_conditions(NanotronConditions, table, "training/h100_nanotron.toml")
    s = table.numbers("vocab_k", "nodes", "dp", "tp", "pp", "mbs", "acc", "zero")

    builds = {True: vars(known.before_fix), False: {}}

    def price(key: tuple[str, bool], rows: Array) -> Any:
        if key[0] not in shapes:
            raise BadValue(f"model must be one of {', '.join(shapes)} ({SHAPES}), but got '{key[0]}'")
        v = {k: x[rows] for k, x in s.items()}
        model = _nanotron_model(shapes[key[0]], kv_heads[rows], v["vocab_k"] * known.vocabulary_unit)
        layout = plan(
            tp=v["tp"],
            pp=v["pp"],
            dp=v["dp"],
            zero=v["zero"],
            microbatches=v["acc"],
            sp=np.ones_like(v["tp"]),
        )
        gpus = v["nodes"] * GPUS_PER_NODE
        system = systems_of(catalogue, CHIP, gpus, known.fabric)
        batch = v["dp"] * v["mbs"] * v["acc"]
        engine = with_trainer(catalogue.engine(ENGINE), **builds[key[1]])
        given = (system, model, train(batch, known.sequence + 0.0 * batch), layout, engine)
        step = priced_step(*given)
        fits = used_bytes(step) <= system.chip.memory.capacity
        allocated = first_stage_at_update(priced_with(*given))
        return batch * known.sequence / step.time / gpus, allocated, fits

    return forecast(table, [table.text("model"), _before_fix(table)], price, tuple(s), metrics=3)


def _before_fix(table: Table) -> Array:
    """Rows of the build before nanotron's pipeline fix; runs of a file that does not say are of the first
    sweep, as memory has it (95.6 % of those that ran out of it called right, 95.1 % as after the fix).
    """
    return table.number(FIXED) == 0 if FIXED in table.columns else np.ones(len(table), bool)


def nanotron(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Tokens/s/GPU and allocated memory of runs that succeeded, and the share of them we would have called
    too large.

    Runs with stages from before nanotron's pipeline fix have groups of their own: they measure a fault, which
    is priced as that build's.
    """
    forecasts = _nanotron_forecast(table, catalogue, table.number("kv_heads"))
    count, models = len(table), table.text("model")
    faulty = _before_fix(table) & (table.number("pp") > 1)
    group = [f"tokens/{m}" + ("/before_fix" if bad else "") for m, bad in zip(models, faulty, strict=True)]
    key = case_key(catalogue, "train", CHIP, "dense", "llama", ENGINE)
    speed = compare_metric(
        table,
        table.number("tok_s_gpu"),
        forecasts,
        group,
        rate=True,
        case=["" if bad else key for bad in faulty],
    )
    memory = compare_metric(
        table,
        table.number("mem_alloc_GB") * GIB,
        forecasts,
        group_names("memory", models, count=count),
        metric=1,
        headline=False,
    )
    fits = called_right(
        table, forecasts[2], forecasts.why, np.array(["fits"] * count, dtype=object), headline=False
    )
    return ranked_by_nodes(join_metrics([speed, memory, fits]), table.number("nodes"), table.lines)


def nanotron_oom(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Runs that ran out of memory: called right where our footprint does not fit either."""
    forecasts = _nanotron_forecast(table, catalogue, table.number("gqa"))
    fits = forecasts[2]
    group = group_names("oom", table.text("model"), count=len(table))
    too_large = np.where(np.isnan(fits), np.nan, 1.0 - fits)
    return called_right(table, too_large, forecasts.why, group, headline=True)
