"""NVIDIA's published recipes of Megatron Bridge: tokens/s of a GPU under full plans, with what each
release sets.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.errors import BadValue, StrataError
from strata.mapping.plan import plan
from strata.mapping.trainer import CAPTURES, EXCHANGES, FORMATS, WORKING
from strata.mapping.training_plan import RECOMPUTE, RECOMPUTE_MODULES, flags_code
from strata.params import part, quantity, text
from strata.units import finite_number
from strata.validation.readers.benchmark_conditions import read_conditions
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

NO_MODULES = "none"
CONTAINER = "nemo:"  # of the images that releases come in


@dataclass(frozen=True, eq=False, kw_only=True)
class BridgeRecipe:
    """Settings of some recipes, from one release on; what is left out stays as it was."""

    source: str = text("where it is told, or why it is taken so")
    since: str = text("the first release it holds in; left out: any", default="")
    before: str = text("the first release it no longer holds in; left out: none", default="")
    systems: str = text("systems it holds on, with commas; left out: all", default="")
    models: str = text("models it holds for, with commas; left out: all", default="")
    precisions: str = text("precisions it holds for, with commas; left out: all", default="")
    beyond: Number | None = quantity(
        "1", "ranks of an expert group above which it holds; left out: any number", optional=True
    )
    expert_exchange: str = text("what carries tokens to experts", choices=("", *EXCHANGES), default="")
    overlap: Number | None = quantity(
        "1", "1 where tokens go to experts beside the kernels of another micro-batch", optional=True
    )
    captured: str = text("kernels in CUDA graphs", choices=("", *CAPTURES), default="")
    recompute: str = text(
        "modules of layers that are recomputed, joined by +, or none; left out: as before", default=""
    )
    gathered: str = text("format in which updated weights are gathered", choices=("", *FORMATS), default="")

    def holds(self, release: str, system: str, model: str, precision: str, ranks: float) -> bool:
        """Whether a run is one of these; names in small letters with dashes."""
        named = ((self.systems, system), (self.models, model), (self.precisions, precision))
        return (
            all(not said or name in said.split(",") for said, name in named)
            and (not self.since or release_order(release) >= release_order(self.since))
            and (not self.before or release_order(release) < release_order(self.before))
            and (self.beyond is None or bool(ranks > self.beyond))
        )


@dataclass(frozen=True)
class RunSettings:
    """What a run's recipe says of its software."""

    expert_exchange: str = EXCHANGES[0]
    overlap_moe_expert_parallel_comm: float = 0.0
    captured: str = CAPTURES[0]
    gathered_parameters: str = WORKING
    recompute: str = NO_MODULES  # modules; of the plan, not of the trainer


def run_settings(
    recipes: Sequence[BridgeRecipe], release: str, system: str, model: str, precision: str, ranks: float
) -> RunSettings:
    """The settings of one run: of each, the last that any recipe says.

    >>> overlapped = BridgeRecipe(source="", since="26.06", overlap=1.0, captured="all")
    >>> run_settings([overlapped], "26.06.01", "gb200", "deepseekv3", "mxfp8", 64.0).captured
    'all'
    >>> run_settings([overlapped], "26.04.01", "gb200", "deepseekv3", "mxfp8", 64.0).captured
    'none'
    """
    exchange, overlap, captured = RunSettings.expert_exchange, 0.0, RunSettings.captured
    gathered, again = RunSettings.gathered_parameters, RunSettings.recompute
    for recipe in recipes:
        if recipe.holds(release, system, model, precision, ranks):
            exchange, captured = recipe.expert_exchange or exchange, recipe.captured or captured
            overlap = overlap if recipe.overlap is None else float(recipe.overlap)
            gathered, again = recipe.gathered or gathered, recipe.recompute or again
    return RunSettings(exchange, overlap, captured, gathered, again)


def recomputed_modules(modules: str) -> dict[str, float]:
    """Degrees of a plan that recomputes some modules, or none.

    >>> recomputed_modules("layernorm+moe_act"), recomputed_modules("none")
    ({'recompute': 1.0, 'recompute_modules': 10.0}, {})
    """
    if modules == NO_MODULES:
        return {}
    code = flags_code(modules, RECOMPUTE_MODULES, "recomputed module")
    return {"recompute": float(RECOMPUTE.index("selective")), "recompute_modules": code}


def release_order(release: str) -> tuple[int, ...]:
    """A release, or the container it came in, as numbers that compare as releases follow each other.

    >>> release_order("26.02") < release_order("26.02.01") < release_order("nemo:26.04")
    True
    """
    tag = release.removeprefix(CONTAINER)
    if not re.fullmatch(r"\d+(\.\d+)*", tag):
        raise BadValue(f"a release is written like 26.04 or 26.04.01, but got '{release}'")
    return tuple(int(number) for number in tag.split("."))


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
