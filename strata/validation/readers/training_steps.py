"""What readers of training runs share: one optimiser step, ranks by node count, and yes-or-no predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.errors import BadValue
from strata.hardware.system import System
from strata.mapping.engine import trainer_of
from strata.mapping.plan import Plan
from strata.pricing.step import Step
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints
from strata.validation.readers.steps import dense_model, priced_step
from strata.validation.readers.tables import Table
from strata.workload.model import Model
from strata.workload.tasks import train

GPUS_PER_NODE = 8.0
TRAINER = "megatron"  # the engine all training runs are priced with
CONTEXT_RING = "ring"  # how Megatron's context ranks meet unless told (cp_comm_type "p2p")
ADAPTERS = "lora"  # what data sets call runs of a frozen base with trained adapters
WRONG = 1e-12  # a wrong call: an error of 1 that is not a failed row


def training_step(
    catalogue: Catalogue, system: System, model: Model, batch: Any, length: Any, plan: Plan, **trainer: Any
) -> Step:
    """One optimiser step under a Megatron-like trainer; keywords say what of its settings differs."""
    engine = catalogue.engine(TRAINER)
    engine = replace(engine, training=replace(trainer_of(engine), **trainer)) if trainer else engine
    return priced_step(system, model, train(batch, length), plan, engine)


def require_trained_whole(column: str, said: str, whole: Sequence[str]) -> None:
    """Refuse runs that do not train every weight."""
    if said == ADAPTERS:
        raise BadValue(f"{column} is '{said}': a frozen base under adapters is not modelled yet")
    if said not in whole:
        raise BadValue(f"{column} must be {', '.join((*whole, ADAPTERS))}, but got '{said}'")


def gpt_model(layers: Any, hidden: Any, heads: Any, length: Any, vocab: Number) -> Model:
    """A GPT of these sizes: plain feed-forward of four times the width, learned positions, biases."""
    return dense_model(
        "gpt",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden / heads,
        vocab=vocab,
        ffn=4.0 * hidden,
        positions=length,
        learned_positions=True,
        gated=False,
        tied=True,
        qkv_bias=True,
        output_bias=True,
        ffn_bias=True,
        norm_bias=True,
    )


def ranked_by_nodes(points: ComparedPoints, nodes: Array, lines: Array) -> ComparedPoints:
    """The points with their headline rows grouped by node count, for rank correlations."""
    by_line = dict(zip(lines.tolist(), nodes.tolist(), strict=True))
    head = np.flatnonzero(points.headline)
    counts = np.array([by_line[int(points.line[i])] for i in head])
    return replace(points, ranks={f"{n:g}": head[counts == n] for n in np.unique(counts)})


def ranked_by_gpus(points: ComparedPoints, table: Table, gpus: Array) -> ComparedPoints:
    """The same from counts of GPUs; a row without one is a node's."""
    nodes = np.ceil(np.where(np.isnan(gpus), GPUS_PER_NODE, gpus) / GPUS_PER_NODE)
    return ranked_by_nodes(points, nodes, table.lines)


def called_right(
    table: Table, right: Array, why: dict[int, str], group: Array, headline: bool
) -> ComparedPoints:
    """Yes-or-no predictions as points: measured 1, predicted 1 where called right, so that mape is the share
    called wrong.
    """
    count = len(table)
    return ComparedPoints(
        measured=np.ones(count),
        predicted=np.where(np.isnan(right), 0.0, np.where(right > 0, 1.0, WRONG)),
        group=group,
        line=table.lines,
        headline=np.full(count, headline),
        rate=np.full(count, False),
        case=np.full(count, "", dtype=object),
        why={int(table.lines[i]): text for i, text in why.items() if np.isnan(right[i])},
    )
