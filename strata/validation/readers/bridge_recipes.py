"""What releases of Megatron Bridge set in their published recipes, where a table of results does not say: one
record for each change, later ones over earlier ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from strata.arrays import Number
from strata.errors import BadValue
from strata.mapping.trainer import CAPTURES, EXCHANGES, FORMATS, WORKING
from strata.mapping.training_plan import RECOMPUTE, RECOMPUTE_MODULES, flags_code
from strata.params import quantity, text

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
