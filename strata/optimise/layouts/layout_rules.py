"""Rules of the choice of layouts between chips: what is counted and what is allowed.

A paper's semantics are switches here, read from ``data/layout-rules``; options, tables and solvers are the
same for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from strata.params import Sources, sourced_record, text


@dataclass(frozen=True, eq=False, kw_only=True)
class LayoutRules:
    """Switches of the choice of layouts; each is a word of its file."""

    name: str = text("short name, as in the file's name")
    title: str = text("whose rules they are")
    objective: str = text(
        "time: kernels and collectives on the fabric; bytes: the bytes of all collectives",
        choices=("time", "bytes"),
    )
    consumers: str = text(
        "a tensor with several consumers is converted once for each layout it is wanted in, or for every "
        "consumer anew",
        choices=("shared", "replicated"),
    )
    sums: str = text(
        "partial sums are added up where they are read, in pieces if wanted so, or where they are made",
        choices=("at reader", "at kernel"),
    )
    exchanged: str = text(
        "bytes of an all-to-all: what one rank holds, or the whole tensor", choices=("share", "tensor")
    )
    stream: str = text("whether the axis that tiles pass along may be divided", choices=("divided", "whole"))
    outer: str = text(
        "a kernel with a batch axis (heads) may be divided anywhere, or must be along that axis",
        choices=("free", "forced"),
    )
    weights: str = text(
        "a kernel with a weight may run undivided, or must be divided", choices=("free", "divided")
    )
    placement: str = text(
        "mesh dimensions lie on fabric dimensions in any order and may share or span them, or each fills "
        "fabric dimensions of its own",
        choices=("any", "one each"),
    )
    step: str = text(
        "time of a training step: priced as any layout is, or by the formula of the pipeline of layers",
        choices=("priced", "formula"),
    )
    sources: Sources = field(default_factory=Sources, compare=False, repr=False)


def layout_rules(name: str | LayoutRules = "strata", /, **changes: Any) -> LayoutRules:
    """The rules of a shipped name or a TOML path, with some switches changed.

    >>> layout_rules().objective, layout_rules("dfmodel-2024", objective="time").objective
    ('time', 'time')
    """
    if isinstance(name, LayoutRules):
        return replace(name, **changes)
    return sourced_record(LayoutRules, "layout-rules", name, **changes)
