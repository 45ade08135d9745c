"""Kernel libraries: how the kernels that an engine calls run on any chip of a platform. A few numbers each,
as data; a chip knows no library, and a library no chip.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from strata.arrays import Number, register_pytree
from strata.params import Sources, names, quantity, remembered, sourced_record, text
from strata.records import readable

KIND = "kernel-libraries"


@register_pytree
@readable("name", "measured")
@dataclass(frozen=True, eq=False, kw_only=True)
class KernelLibrary:
    """How kernels run: which of a chip's measured ones they are, what is fused, and what runs beside what."""

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    measured: str = text(
        "which of a chip's measured kernels they are: bare, or those of serving frameworks, with attention "
        "over pages",
        choices=("bare", "served"),
        default="bare",
    )
    expert_inputs: str = text(
        "format to which activations of experts in a narrow microscaling format (mxfp4) are rounded where "
        "the chip has that arithmetic; left out: 16 bits, by kernels measured so",
        choices=("", "fp8"),
        default="",
    )
    fusion: str = text(
        "kernels fused on the chip: wherever that is quicker on chips that execute dataflow, or none",
        choices=("dataflow", "none"),
        default="dataflow",
    )
    fused: Number = quantity(
        "1",
        "1 where residuals, norms, rotations, cache writes and gated activations are fused kernels, 0 where "
        "each is several",
    )
    separate_quantize_share: Number = quantity(
        "1", "share of narrow products whose activations a kernel of its own rounds"
    )
    shared_expert_stream: Number = quantity(
        "1", "1 where experts that all tokens share run on a stream of their own, beside the routed ones"
    )
    expert_block_rate: Number = quantity(
        "1",
        "rate of grouped products of expert-parallel experts in scaled blocks, over that of tuned kernels",
        positive=True,
    )
    weight_only_rate: Number = quantity(
        "1",
        "rate of the arithmetic of grouped products that widen 4-bit weights inside, again for each tile of "
        "rows, over that of products in the activations' format",
        positive=True,
    )
    routed_launches: Number = quantity(
        "1", "launches of an op on routed rows that no graph holds, over those of any other", positive=True
    )
    pdl_overlap: Number = quantity(
        "1",
        "share of a product's least loop time that captured graphs hide: weights are fetched while the "
        "kernel before ends (programmatic dependent launch)",
    )
    product_rate: Number = quantity(
        "1", "rate of its products over that of a chip's best tuned kernels", positive=True
    )
    product_loop: Number = quantity(
        "1", "least loop time of its products over that of tuned kernels", positive=True
    )
    sources: Sources = field(default_factory=Sources)


@remembered
def kernel_library(name: str, platform: str = "") -> KernelLibrary:
    """A library by name or TOML path, as it is on a platform where it has a file of its own there.

    >>> [float(kernel_library("served", on).pdl_overlap) > 0 for on in ("", "rocm")]
    [True, False]
    """
    stem, dot, ending = name.partition(".toml")
    there = f"{stem}-{platform}{dot}{ending}"
    known = Path(there).is_file() if dot else there in names(KIND)
    return sourced_record(KernelLibrary, KIND, there if known else name)
