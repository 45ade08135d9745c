"""What training software hides of a block's collectives: those of a tensor group beside products of gradients
or tile by tile, and tokens on their way to experts beside another micro-batch.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from strata.arrays import Number, namespace
from strata.mapping.layout import Sharding
from strata.mapping.plan_layout import TENSOR_GROUP
from strata.mapping.trainer import Trainer
from strata.mapping.training_plan import SCHEDULE
from strata.pricing.overlap.fused import tile_link
from strata.pricing.overlap.tiles import Pair, hidden_bound, kernels_apart, overlap_by_tile, pairs
from strata.pricing.price import price_where
from strata.pricing.pricers import PricedOp, Rank
from strata.workload.graph import Collective, Op, is_collective

DUALPIPE = SCHEDULE[-1]


def overlap_of_trainer(priced: list[PricedOp], rank: Rank, trainer: Trainer) -> list[PricedOp]:
    """The ops of a training block with its collectives beside kernels, as far as the software has them so."""
    ops = tuple(op for op, _ in priced)
    bulk = 1.0 if trainer.async_tp is None else trainer.async_tp
    chosen = [] if switched_off(bulk) else [(pair, bulk) for pair in _beside_gradients(ops)]
    if not switched_off(trainer.tp_comm_overlap):
        tiles = (pair for pair in pairs(ops) if _of_tensor_group(ops[pair.collective]))
        chosen += [(pair, trainer.tp_comm_overlap) for pair in tiles]
    return overlap_by_tile(priced, rank, chosen) if chosen else priced


def paired_passes(sharding: Sharding) -> Number:
    """1 where a forward pass of one micro-batch runs beside a backward pass of another: DualPipe's plans, and
    software that does so under any schedule.
    """
    trainer, schedule = sharding.trainer, sharding.training.schedule
    flag = 0.0 if trainer is None else trainer.overlap_moe_expert_parallel_comm
    flag = 0.0 if flag is None else flag
    if DUALPIPE not in sharding.active:
        return flag
    xp = namespace(schedule, flag)
    return xp.maximum(flag, xp.where(schedule == float(SCHEDULE.index(DUALPIPE)), 1.0, 0.0))


def switched_off(switch: Number) -> bool:
    """Whether no point of a batch has it: then it need not be priced. Numbers of a compiler are open."""
    if switch.__class__ is float:
        return switch == 0.0
    return isinstance(switch, float | int | np.ndarray | np.number) and not np.any(switch)


def _of_tensor_group(op: Op) -> bool:
    return is_collective(op) and op.group == TENSOR_GROUP


def _beside_gradients(ops: tuple[Op, ...]) -> list[Pair]:
    """Collectives of a tensor group with the product of a gradient that does not wait for them: sums of an
    input's gradient with the product for the weight, a gather of the saved input with that for the input.

    Megatron-LM, core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication.
    """
    found = []
    for i, op in enumerate(ops):
        if not (_of_tensor_group(op) and is_collective(op)) or not op.inputs:
            continue
        other = _other_gradient(op, ops)
        if other >= 0:
            found.append(Pair(i, (other,), "apart"))
    return found


def _other_gradient(op: Collective, ops: tuple[Op, ...]) -> int:
    """The product of a gradient beside which a collective may run: of the same result's gradient as the
    product that made what is summed, or that reads what is gathered; -1 where there is none.
    """
    saved = ":" in op.output  # left by the forward pass
    for mine in ops:
        if is_collective(mine) or not mine.backward or mine.category != "matmul":
            continue
        if saved and not (mine.weight_gradient and op.output in mine.inputs):
            continue
        if not saved and (mine.weight_gradient or mine.output != op.inputs[0]):
            continue
        arrives = {tensor for tensor in mine.inputs if ":" not in tensor}
        for place, kernel in enumerate(ops):
            pair = kernel.category == "matmul" and kernel.backward
            if pair and kernel.weight_gradient != mine.weight_gradient and arrives & set(kernel.inputs):
                return place
    return -1


def is_exchange(op: Op) -> bool:
    """Whether it carries tokens to experts or back."""
    return is_collective(op) and op.exchange is not None


def beside_other_batch(priced: list[PricedOp], rank: Rank, on: Number) -> list[PricedOp]:
    """A block of experts whose exchanges run beside kernels of another micro-batch's pass over such a block,
    as long as its own and slowed by the cores and bytes that exchanges take; `on` where passes run so
    (`paired_passes`). What an exchange `saved` is net of what kernels lose by it: without, both take so much
    longer.

    Megatron-LM, --overlap-moe-expert-parallel-comm: forward of one micro-batch and backward of another;
    DeepSeek-AI, DeepSeek-V3 Technical Report, arXiv 2412.19437, sec. 3.2.1 and fig. 4 (DualPipe). All of a
    layer's kernels, attention's too, would hide more: measured runs that set the flag are slower than that.
    """
    kernels = [place for place, (op, _) in enumerate(priced) if not is_collective(op)]
    sent: Number = 0.0
    cores: Number = 0.0
    moved: Number = 0.0
    for op, price in priced:
        if is_collective(op) and op.exchange is not None:
            link = tile_link(op, rank.placement.groups[op.group], rank.fabric)
            xp = namespace(cores, link.cores, link.moved)
            sent, moved = sent + price.time, moved + link.moved
            cores = xp.maximum(cores, link.cores)
    if isinstance(sent, float) and sent == 0.0:
        return priced
    work = [priced[place][1] for place in kernels]
    slower, left = kernels_apart(sent, cores, moved, work, rank.device)
    before, after = (sum((p.time for p in some), 0.0) for some in (work, slower))
    bound = sum((p.lower for p in work), 0.0)
    xp = namespace(sent, left, before, after)
    better = (on > 0.0) & (after + left < before + sent)
    safe = xp.where(sent > 0.0, sent, 1.0)
    share, gain = left / safe, (before + sent - after - left) / safe
    made = list(priced)
    for place, new in zip(kernels, slower, strict=True):
        made[place] = (priced[place][0], price_where(better, new, priced[place][1]))
    for place, (op, price) in enumerate(priced):
        if is_collective(op) and op.exchange is not None:
            seen = price.time * share
            lower = hidden_bound(price.lower, bound, seen)
            saved = gain * price.time
            hidden = replace(price, time=seen, network=seen, lower=lower, saved=saved)
            made[place] = (op, price_where(better, hidden, price))
    return made
