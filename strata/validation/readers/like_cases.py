"""What makes two predictions alike: the keys under which whole-model points are counted for intervals.

A key is metric|chip|kind|family|engine. Metrics are `prefill` and `decode` (a prompt's time, a token's time),
`request` (time to first token in a loaded server), `throughput` (tokens/s of such a server), `train` (an
optimiser step).
"""

from __future__ import annotations

from strata.validation.readers.catalogue import Catalogue
from strata.workload.model import Model

# Families that models' names are known by, the longer ones first.
MODEL_FAMILIES = ("llama", "deepseek", "gpt-oss", "qwen", "mixtral", "kimi", "gpt")
ATTENDING = ("full", "window", "sparse")  # layers that attend to a cache; others keep a state


def model_kind(model: Model) -> str:
    """Dense, moe, or hybrid where some layers keep a state in place of a cache: models of one kind are alike
    in how far predictions are off.
    """
    if not set(model.pattern.kinds(0)) <= set(ATTENDING):
        return "hybrid"
    return "moe" if model.has_experts else "dense"


def model_family(name: str) -> str:
    """The family of a model's name: its letters before the first digit.

    >>> [model_family(n) for n in ("llama-3.1-70b", "DeepSeek-V3", "gpt-oss-120b", "Qwen3-30B")]
    ['llama', 'deepseek', 'gpt-oss', 'qwen']
    """
    lower = name.strip().lower().replace("_", "-").replace(" ", "-").replace("meta-llama/", "")
    return next((k for k in MODEL_FAMILIES if k in lower), lower.split("-")[0])


def case_key(catalogue: Catalogue, metric: str, chip_name: str, kind: str, family: str, engine: str) -> str:
    """The key of a whole-model point; chips by their own names."""
    return "|".join((metric, catalogue.chip(chip_name).name, kind, family, engine))


def case_key_of(catalogue: Catalogue, metric: str, chip_name: str, model_name: str, engine: str) -> str:
    """The key of a point by its chip, model ("" of a kernel) and engine; "" where a name is unknown."""
    try:
        if not model_name:  # a kernel or a collective
            return case_key(catalogue, metric, chip_name, "", "", engine)
        kind = model_kind(catalogue.model(model_name))
        return case_key(catalogue, metric, chip_name, kind, model_family(model_name), engine)
    except ValueError:
        return ""
