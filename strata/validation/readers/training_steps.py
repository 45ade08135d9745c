"""What readers of training runs share: one optimiser step, ranks by node count, and yes-or-no predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.errors import BadValue
from strata.hardware.system import System
from strata.mapping.engine import Engine
from strata.mapping.plan import Plan
from strata.params import quantity, text
from strata.pricing.step import Step
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints
from strata.validation.readers.steps import dense_model, priced_step
from strata.validation.readers.tables import Table
from strata.workload.adapters import Lora
from strata.workload.model import Model
from strata.workload.tasks import train

GPUS_PER_NODE = 8.0
TRAINER = "megatron"  # the engine all training runs are priced with
CONTEXT_RING = "ring"  # how Megatron's context ranks meet unless told (cp_comm_type "p2p")
ADAPTERS = "lora"  # what data sets call runs of a frozen base with trained adapters
WRONG = 1e-12  # a wrong call: an error of 1 that is not a failed row


def training_step(
    catalogue: Catalogue,
    system: System,
    model: Model,
    batch: Any,
    length: Any,
    plan: Plan,
    adapters: Lora | None = None,
    engine: str = TRAINER,
    **trainer: Any,
) -> Step:
    """One optimiser step under a Megatron-like trainer; keywords say what of its settings differs."""
    work = train(batch, length, adapters=adapters)
    return priced_step(system, model, work, plan, with_trainer(catalogue.engine(engine), **trainer))


@dataclass(frozen=True, eq=False, kw_only=True)
class AdapterConditions:
    """Adapters of runs that train only those, where a file tells their rank at most."""

    modules: str = text("modules whose products have adapters beside them, with commas")
    dropout: Number = quantity("1", "1 where what goes into an adapter is dropped at random")
    rank: Number | None = quantity("1", "their rank, where the file tells none", optional=True, minimum=1)

    def of_rank(self, rank: Array) -> Lora:
        """The adapters of rows with these ranks; where a rank is not told, it is that of the conditions."""
        told = rank if self.rank is None else np.where(np.isnan(rank), self.rank, rank)
        if np.any(np.isnan(told)):
            raise BadValue("column 'lora_rank' is empty")
        return Lora(
            rank=told,
            modules=tuple(self.modules.split(",")),
            dropout=bool(self.dropout),
        )


def trained_parts(
    column: str, said: str, whole: Sequence[str], known: AdapterConditions, rank: Array
) -> Lora | None:
    """What a run trains: None where every weight, else its adapters."""
    if said == ADAPTERS:
        return known.of_rank(rank)
    if said not in whole:
        raise BadValue(f"{column} must be {', '.join((*whole, ADAPTERS))}, but got '{said}'")
    return None


def with_trainer(engine: Engine, **settings: Any) -> Engine:
    """An engine whose trainer has other settings."""
    if engine.training is None:
        raise BadValue(f"engine {engine.name} says nothing of training")
    return replace(engine, training=replace(engine.training, **settings))


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


def ranked_within(points: ComparedPoints, names: Sequence[str], lines: Array) -> ComparedPoints:
    """The points with their headline rows grouped by a name of each line, for rank correlations."""
    by_line = dict(zip(lines.tolist(), names, strict=True))
    head = np.flatnonzero(points.headline)
    own = np.array([by_line[int(points.line[i])] for i in head], dtype=object)
    return replace(points, ranks={name: head[own == name] for name in dict.fromkeys(own)})


def ranked_by_nodes(points: ComparedPoints, nodes: Array, lines: Array) -> ComparedPoints:
    """The same by node count."""
    ranked = ranked_within(points, [f"{n:g}" for n in nodes], lines)
    return replace(ranked, ranks=dict(sorted(ranked.ranks.items(), key=lambda one: float(one[0]))))


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
