"""What the software of MLPerf Training's rounds does, where a table of results does not say: one record for
each change, by the round it came with.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from strata.arrays import Number
from strata.params import quantity, text


@dataclass(frozen=True, eq=False, kw_only=True)
class RoundSoftware:
    """What software does from one round on; what is left out stays as it was."""

    source: str = text("where it is told, or why it is taken so")
    since: str = text("the first round it holds in, as v5.1")
    others: str = text("chips whose software is another, with commas; left out: none", default="")
    trains: str = text("all or lora; left out: both", default="")
    precisions: str = text("formats of products it holds for, with commas; left out: all", default="")
    tensor: Number | None = quantity(
        "1", "ranks of a tensor group above which it does not hold; left out: any number", optional=True
    )
    quantize_bytes: Number | None = quantity(
        "B",
        "read of an element of an operand to round it for both products that need it (`Trainer`); 0 where "
        "the kernel before does so",
        optional=True,
        minimum=0,
    )
    fused_adapters: Number | None = quantity(
        "1", "1 where adapters are added within their products", optional=True, minimum=0
    )

    def holds(self, run: MlperfRun) -> bool:
        """Whether a run is one of these; one that names no round is none."""
        return (
            round_order(run.round) >= round_order(self.since)
            and run.chip not in self.others.split(",")
            and self.trains in ("", run.trains)
            and (not self.precisions or run.precision in self.precisions.split(","))
            and (self.tensor is None or bool(run.tensor <= self.tensor))
        )


@dataclass(frozen=True)
class MlperfRun:
    """What decides which software a run had."""

    round: str
    chip: str
    trains: str
    precision: str
    tensor: float


@dataclass(frozen=True)
class FusedKernels:
    """What the software of a run does otherwise than its engine's file says."""

    quantize_bytes: float | None = None
    fused_adapters: bool = False


def fused_in_round(software: Sequence[RoundSoftware], run: MlperfRun) -> FusedKernels:
    """What the software of a run does: of each, the last that any record says.

    >>> fuser = RoundSoftware(source="", since="v5.1", tensor=1.0, fused_adapters=1.0)
    >>> run = MlperfRun("v5.1", "b200", "lora", "fp8", 1.0)
    >>> fused_in_round([fuser], run).fused_adapters
    True
    >>> fused_in_round([fuser], MlperfRun("v5.0", "b200", "lora", "fp8", 1.0)).fused_adapters
    False
    """
    found = FusedKernels()
    for one in software:
        if one.holds(run):
            read = found.quantize_bytes if one.quantize_bytes is None else float(one.quantize_bytes)
            adapters = found.fused_adapters if one.fused_adapters is None else bool(one.fused_adapters)
            found = FusedKernels(read, adapters)
    return found


def round_order(name: str) -> tuple[int, ...]:
    """A round as numbers that compare as rounds follow each other; none of a name without numbers.

    >>> round_order("v3.1") < round_order("v4.0") < round_order("v10.0"), round_order("")
    (True, ())
    """
    return tuple(int(number) for number in re.findall(r"\d+", name))
