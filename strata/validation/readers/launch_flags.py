"""What benchmarks tell engines when they launch them, and what an engine was in a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from strata.arrays import Number
from strata.mapping.engine import Engine, at_version
from strata.params import quantity, text


@dataclass(frozen=True, eq=False, kw_only=True)
class LaunchFlags:
    """What a benchmark tells an engine on a chip to do that its version does not do by itself."""

    engine: str = text("the engine's name in the file")
    chip: str = text("the chip's name in the file; left out: any", default="")
    asynchronous: Number | None = quantity("1", "1 where the host works beside the device", optional=True)
    separate_quantize_share: Number | None = quantity(
        "1", "narrow products before which a kernel of its own rounds", optional=True
    )
    weight_only_experts: str = text(
        "kernels for experts in a format the chip has no arithmetic for; left out: the engine's",
        choices=("", "measured", "fused"),
        default="",
    )

    def on(self, engine: Engine, newest: Engine) -> Engine:
        """An engine of some version told so; what it is told to do early it does as the newest does."""
        new: dict[str, Any] = {}
        if self.weight_only_experts:
            new["weight_only_experts"] = self.weight_only_experts
        if self.separate_quantize_share is not None:
            new["separate_quantize_share"] = self.separate_quantize_share
        if self.asynchronous is not None:
            new |= {"asynchronous": self.asynchronous, "gap": newest.gap}
        return replace(engine, **new) if new else engine


def launched_engine(
    newest: Engine, version: str, date: str, chip: str = "", flags: Sequence[LaunchFlags] = ()
) -> Engine:
    """An engine as it was in a row: of its version, or of its date where that is no number, on a chip, told
    what a benchmark tells.

    >>> from strata.mapping.engine import engine
    >>> told = LaunchFlags(engine="vllm", chip="", asynchronous=1.0, weight_only_experts="")
    >>> plain, ahead = (launched_engine(engine("vllm"), "", "2025-10-29", flags=f) for f in ((), (told,)))
    >>> float(plain.asynchronous), float(ahead.asynchronous)
    (0.0, 1.0)
    """
    then = at_version(newest, version if version[:1].isdigit() else date)
    for one in flags:
        if one.engine == newest.name and one.chip in ("", chip):
            then = one.on(then, newest)
    return then
