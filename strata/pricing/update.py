"""The end of a training step: gradients summed over ranks that hold the same weights, and the optimiser."""

from __future__ import annotations

from strata.arrays import Number, namespace
from strata.mapping.layout import Sharding
from strata.pricing.block import PricedBlock
from strata.pricing.footprint import GRADIENT_BYTES
from strata.pricing.given import Pricing, Structure
from strata.pricing.kernels.vector import vector_kernel
from strata.pricing.network.collectives import price_collective
from strata.pricing.overlap.equations import beside
from strata.pricing.price import ZERO, Price, network_price
from strata.pricing.pricers import Rank
from strata.pricing.stage_times import block_runs
from strata.workload.graph import Collective


def busy_backward(
    blocks: tuple[PricedBlock, ...], counts: list[Number], sharding: Sharding, structure: Structure
) -> Number:
    """Time of a backward pass in which the links that gradients need are taken: its own collectives and those
    of recomputed layers.
    """
    again = namespace(sharding.training.recompute).where(sharding.training.recompute > 1, 1.0, 0.0)
    busy: Number = 0.0
    for b, count in zip(blocks, counts, strict=True):
        busy = busy + block_runs(b, count) * b.busy * (1.0 if b.block.direction == "backward" else again)
    return namespace(busy).max(busy, axis=0) if structure.pipelined else busy


def update_price(
    given: Pricing, rank: Rank, blocks: tuple[PricedBlock, ...], backward: Number, busy: Number
) -> Price:
    """Gradients summed over data parallel ranks, and the optimiser.

    The sum runs beside the last backward pass, as far as that pass leaves the links free.
    """
    update, sent = update_parts(given, rank, blocks)
    if sent is ZERO:
        return update
    left = beside(sent.time, backward, busy)
    return update + network_price(left, sent.energy, upper=sent.time)


def update_parts(given: Pricing, rank: Rank, blocks: tuple[PricedBlock, ...]) -> tuple[Price, Price]:
    """The optimiser on a mean device, and the whole sum of its gradients over data parallel ranks."""
    sharding = given.sharding
    forward = [b for b in blocks if b.block.direction == "forward"]
    held = sum((b.block.count * b.held.trained for b in forward), 0.0) / sharding.stages
    experts = sum((b.block.count * b.held.trained_experts for b in forward), 0.0)
    experts = experts / sharding.stages
    zero, groups = sharding.zero, sharding.expert_replicas
    xp = namespace(zero, groups)
    copies, expert_copies = (xp.where(zero > 0, c, 1.0) for c in (sharding.state_replicas, groups))
    owned = (held - experts) / copies + experts / expert_copies
    # Adam reads gradient, weight copy and two moments and writes three of them and the working weight: 16 +
    # 14 bytes.
    update = vector_kernel(16.0 * owned, 14.0 * owned, 12.0 * owned, owned, rank.device)
    if "dp" not in given.structure.active or sharding.gradient_sums:
        return update, ZERO
    summed = (held - xp.where(groups > 1, 0.0, experts)) * GRADIENT_BYTES
    op = Collective(name="sum_gradients", pattern="all_reduce", group="dp", payload=summed)
    return update, price_collective(op, rank.placement.groups["dp"], rank.fabric)
