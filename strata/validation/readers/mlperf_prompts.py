"""Prompts of MLPerf Inference: one table for all files whose rows rest on its data sets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from strata.arrays import Number
from strata.errors import UnknownName
from strata.params import build, by_name, data_folder, read_toml, text

PROMPTS = "serving/mlperf_prompts.toml"


@dataclass(frozen=True, eq=False, kw_only=True)
class MlperfPrompts:
    """Mean tokens of a prompt in the data sets of MLPerf Inference, by model."""

    title: str = text("whose prompts")
    likely: dict[str, Number] = by_name("1", "the likely mean")
    least: dict[str, Number] = by_name("1", "the mean at least")
    most: dict[str, Number] = by_name("1", "the mean at most")

    def interval(self, model: str) -> tuple[float, float]:
        """The least and the most that the mean of a model's prompts may be.

        >>> mlperf_prompts().interval("llama-2-70b")
        (150.0, 500.0)
        """
        if model not in self.least:
            raise UnknownName("prompts of", model, sorted(self.least), PROMPTS)
        return float(self.least[model]), float(self.most[model])


@cache
def mlperf_prompts() -> MlperfPrompts:
    """What is known of MLPerf's prompts, for all files that rest on them."""
    return build(MlperfPrompts, read_toml(data_folder("conditions") / PROMPTS), PROMPTS)[0]
