"""Rules of fusion inside a chip: what a partition of fused kernels pays for and what it must hold.

A paper's semantics are switches here, read from ``data/fusion``; the equations (`pricing/fusion.py`) and the
solvers (`optimise/fuse.py`) are the same for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from strata.params import Sources, sourced_record, text

YES_NO = ("yes", "no")


@dataclass(frozen=True, eq=False, kw_only=True)
class FusionRules:
    """Switches of the cost of a fused partition; each is a word of its file."""

    name: str = text("short name, as in the file's name")
    title: str = text("whose rules they are")
    compute: str = text(
        "cores: whole cores shared out between the kernels of a partition, lanes times stages; utilisation: "
        "FLOP at a stated share of the peak; priced: each kernel's own time on the chip, cores shared in "
        "proportion to work",
        choices=("cores", "utilisation", "priced"),
    )
    overlap: str = text(
        "which of compute, DRAM and network run beside one another in a partition",
        choices=("all", "network apart", "none"),
    )
    weight_traffic: str = text(
        "whether weights are read from DRAM, once for all micro-batches that stream through a partition, or "
        "cost no time",
        choices=("read", "free"),
    )
    weight_tiling: str = text(
        "a kernel whose weights exceed the SRAM runs alone in f passes: all tensors it streams move f times, "
        "only what it reads does, or it does not fit",
        choices=("all", "inputs", "none"),
    )
    shared_tensors: str = text(
        "a tensor with several consumers is stored and written once, or has a copy for each of them",
        choices=("once", "replicated"),
    )
    whole_operands: str = text(
        "yes: operands that every tile needs whole (keys and values of attention) are held whole; no: a tile",
        choices=YES_NO,
    )
    fill: str = text("yes: the tile pipeline of a partition fills and drains", choices=YES_NO)
    tiles: str = text(
        "one number of tiles for all partitions, or one of its own for each", choices=("one", "each")
    )
    directions_apart: str = text(
        "yes: no partition holds both forward and backward kernels, and all forward ones come first",
        choices=YES_NO,
    )
    boundary: str = text(
        "yes: what a graph takes in and hands on goes through DRAM; no: it is free",
        choices=YES_NO,
        default="yes",
    )
    start: str = text("yes: the start of a kernel is paid once for each partition", choices=YES_NO)
    sources: Sources = field(default_factory=Sources, compare=False, repr=False)


def fusion_rules(name: str | FusionRules = "strata", /, **changes: Any) -> FusionRules:
    """The rules of a shipped name or a TOML path, with some switches changed.

    >>> fusion_rules().overlap, fusion_rules("dfmodel-2024", overlap="none").overlap
    ('all', 'none')
    """
    if isinstance(name, FusionRules):
        return replace(name, **changes)
    return sourced_record(FusionRules, "fusion", name, **changes)
