"""NVIDIA's published recipes of Megatron Bridge: tokens/s of a GPU under full plans."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.errors import StrataError
from strata.mapping.plan import plan
from strata.params import part, quantity, text
from strata.units import finite_number
from strata.validation.readers.benchmark_conditions import read_conditions
from strata.validation.readers.bridge_recipes import BridgeRecipe, recomputed_modules, run_settings
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.comparison import ComparedPoints, compare_metric, forecast, group_names
from strata.validation.readers.labels import dashed, dashed_all, trained_format
from strata.validation.readers.like_cases import case_keys
from strata.validation.readers.steps import systems_of
from strata.validation.readers.tables import BadRows, Table
from strata.validation.readers.training_steps import (
    CONTEXT_RING,
    TRAINER,
    AdapterConditions,
    ranked_by_gpus,
    trained_parts,
    training_step,
)

CONDITIONS = "training/megatron_bridge.toml"
SIZES = ("gpus", "gbs", "mbs", "seq_len")
DEGREES = ("tp", "pp", "cp", "ep", "vp")
_EMPTY = ("", "n/a", "-")
TRAINED_WHOLE = ("pre-training", "sft")  # phases that train every weight


@dataclass(frozen=True, eq=False, kw_only=True)
class BridgeConditions:
    """Published recipes of which some rows do not name their precision."""

    title: str = text("what was run")
    precision: str = text("the format of rows that name none")
    host_kernel: Number = quantity(
        "s", "host time of a kernel of the forward pass, with its module around it"
    )
    release: str = text("the release of files that name none")
    recipes: tuple[BridgeRecipe, ...] = part(
        BridgeRecipe, "what recipes set, later ones over earlier ones", many=True
    )
    adapters: AdapterConditions = part(AdapterConditions, "adapters of the recipes that train only those")


def nvidia_bridge(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """Published pre-training tokens/s/GPU; groups by model."""
    model = table.text("model")
    known = read_conditions(BridgeConditions, table, CONDITIONS)
    phase, release = (np.full(len(table), said, dtype=object) for said in (TRAINED_WHOLE[0], known.release))
    return _recipes(table, catalogue, known, (release, phase, table.text("precision")), (model,))


def megatron_bridge(table: Table, catalogue: Catalogue) -> ComparedPoints:
    """The same over releases, with fine-tuning; groups by system and model. Of cells that state two settings,
    the second in brackets, the first is meant everywhere.
    """
    known = read_conditions(BridgeConditions, table, CONDITIONS)
    told = [first_said(cell) for cell in table.text("precision")]
    precision = np.array([p or known.precision for p in told], dtype=object)
    groups = (table.text("system"), table.text("model"))
    release = np.array([first_said(cell) or known.release for cell in table.text("release")], dtype=object)
    runs = (release, table.text("phase"), precision)
    return _recipes(table, catalogue, known, runs, groups)


def _recipes(
    table: Table,
    catalogue: Catalogue,
    known: BridgeConditions,
    runs: tuple[Array, Array, Array],
    groups: Sequence[Array],
) -> ComparedPoints:
    """Tokens/s of a GPU; products in the recipe's format, the optimiser sharded over data parallel ranks.

    `runs`: release, phase and precision of each row.
    """
    release, phase, precision = runs
    s = {c: first_numbers(table, c) for c in SIZES}
    s |= {c: np.maximum(first_numbers(table, c, 1.0), 1.0) for c in DEGREES}
    s |= {"fsdp": first_numbers(table, "fsdp", 0.0), "lora_rank": np.full(len(table), np.nan)}
    systems, models = table.text("system"), [first_said(name) for name in table.text("model")]
    keys = [systems, np.array(models, dtype=object), precision, phase, release, s["ep"]]

    def price(key: tuple[str, str, str, str, str, float], rows: Array) -> Any:
        v = {k: x[rows] for k, x in s.items()}
        adapters = trained_parts("phase", key[3].lower(), TRAINED_WHOLE, known.adapters, v["lora_rank"])
        model = catalogue.model(key[1], weights=trained_format(key[2]), kv="bf16")
        dp = v["gpus"] / (v["tp"] * v["pp"] * v["cp"])
        experts: dict[str, Any] = {"ep": v["ep"], "moe_tp": np.ones_like(dp)} if model.has_experts else {}
        layout = plan(
            tp=v["tp"],
            pp=v["pp"],
            cp=v["cp"],
            dp=dp,
            microbatches=np.maximum(np.round(v["gbs"] / (v["mbs"] * dp)), 1.0),
            virtual_stages=np.where(v["pp"] > 1, v["vp"], 1.0),
            zero=np.where(v["fsdp"] > 0, 3.0, 1.0),
            sp=np.ones_like(dp),
            cp_mode=CONTEXT_RING,
            **experts,
        )
        system_name, model_name, precision_name = (dashed(name) for name in key[:3])
        system = systems_of(catalogue, system_name, v["gpus"])
        settings = run_settings(known.recipes, key[4], system_name, model_name, precision_name, key[5])
        trainer = asdict(settings) | {"host_kernel": known.host_kernel}
        layout = replace(layout, **recomputed_modules(trainer.pop("recompute")))
        step = training_step(catalogue, system, model, v["gbs"], v["seq_len"], layout, adapters, **trainer)
        return v["gbs"] * v["seq_len"] / step.time / v["gpus"]

    forecasts = forecast(table, keys, price, ())
    case = case_keys(catalogue, "train", dashed_all(systems), models, TRAINER)
    names = group_names("tokens", *groups, count=len(table))
    measured = first_numbers(table, "tokens_per_s_per_gpu")
    points = compare_metric(table, measured, forecasts, names, rate=True, case=case)
    return ranked_by_gpus(points, table, s["gpus"])


def first_said(cell: str) -> str:
    """What stands before a bracket: the first of two settings, a model without what its recipe did to it.

    >>> first_said("31508 (29789)"), first_said("DeepSeekV3 (tokendrop)"), first_said("n/a")
    ('31508', 'DeepSeekV3', '')
    """
    said = re.sub(r"\s*\(.*\)$", "", cell).strip()
    return "" if said.lower() in _EMPTY else said


def first_numbers(table: Table, column: str, empty: float = np.nan) -> Array:
    """A column as the first number of each cell; what is empty or not applicable is `empty`."""
    values, why = np.full(len(table), float(empty)), dict[int, str]()
    for i, cell in enumerate(table.text(column)):
        if said := first_said(cell):
            try:
                values[i] = finite_number(said)
            except StrataError:
                why[int(table.lines[i])] = f"column '{column}' must be a number, but got '{cell}'"
    if why:
        raise BadRows(table.name, why)
    return values
