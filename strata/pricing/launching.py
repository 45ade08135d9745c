"""The host beside the passes of a training step: it launches kernels ahead of the device, which waits where
launching takes longer than running them.
"""

from __future__ import annotations

from dataclasses import replace

from strata.arrays import Number, namespace
from strata.pricing.block import PricedBlock
from strata.pricing.given import Pricing
from strata.pricing.kernels.device import Device
from strata.pricing.price import Price
from strata.pricing.pricers import launched_kernels
from strata.pricing.stage_times import again_share
from strata.workload.graph import Block, Op, is_collective

FULL = 1.0  # recompute levels above this run layers again


def host_wait(device: Number, host: Number) -> Number:
    r"""Time that a device waits in a pass for a host that launches its kernels ahead [s].

    .. math:: w = \max(T_h - T_d, 0)

    device time T_d of the pass's kernels and host time T_h to launch them: what is queued is as long as the
    pass, so that the longer of both counts.

    PyTorch, CUDA semantics: calls return before their kernels have run.

    >>> [float(host_wait(3e-3, host)) for host in (2e-3, 4e-3)]
    [0.0, 0.001]
    """
    return namespace(device, host).maximum(host - device, 0.0)


def launch_bound(given: Pricing, device: Device, blocks: tuple[PricedBlock, ...]) -> tuple[PricedBlock, ...]:
    """Blocks of a training step with what the device waits for the host (`host_wait`), where the engine says
    how it trains.

    Passes are the layers forward, the head with the loss, and all backward. Each kernel takes the host the
    same time, of which the backward pass needs its own share; captured graphs need none. A layer that is
    recomputed is launched again before its backward pass, and checkpointing takes the host the time of some
    kernels more in each pass.
    """
    trainer = given.engine.training
    if not given.training or trainer is None or given.structure.for_bounds:
        return blocks
    each = trainer.host_kernel
    if each is None:
        each = given.engine.launches * device.chip.overhead.launch
    xp = namespace(each, given.engine.graphs)
    forward = xp.where(given.engine.graphs > 0, 0.0, each)
    backward = forward * (1.0 if trainer.host_backward is None else trainer.host_backward)
    again, share = _repeated(given, forward), again_share(given)
    host = [_kernels(b.block, given, device) * (forward if _is_forward(b) else backward) for b in blocks]
    extra = _checkpointing(given, forward)
    made = list(blocks)
    for places in _pools(given, blocks):
        first = blocks[places[0]]
        busy: Number = 0.0
        launched: Number = 0.0
        for i in places:
            busy = busy + blocks[i].block.times * blocks[i].price.time
            launched = launched + blocks[i].block.times * host[i]
        needed = launched if first.block.name in given.graph.sequence.last else launched + extra
        if not _is_forward(first):
            for i, b in enumerate(blocks):
                if _is_forward(b):
                    busy = busy + b.block.times * share * b.again.time
                    needed = needed + b.block.times * share * host[i] * again
        waited = host_wait(busy, needed)
        safe = namespace(launched).where(launched > 0.0, launched, 1.0)
        for i in places:
            made[i] = replace(blocks[i], price=_waiting(blocks[i].price, waited * host[i] / safe))
    return tuple(made)


def _pools(given: Pricing, blocks: tuple[PricedBlock, ...]) -> list[list[int]]:
    """Blocks over which the host runs ahead: those of the backward pass, which begins with the head's long
    kernels; the layers of the forward pass; and its head, which has no kernels before layers are launched.
    """
    last = given.graph.sequence.last
    pools: dict[str, list[int]] = {}
    for i, b in enumerate(blocks):
        ends = _is_forward(b) and b.block.name in last
        pools.setdefault("head" if ends else b.block.direction, []).append(i)
    return list(pools.values())


def _is_forward(b: PricedBlock) -> bool:
    return b.block.direction == "forward"


def _kernels(block: Block, given: Pricing, device: Device) -> Number:
    count: Number = 0.0
    for weight, ops in block.at_nodes():
        for op in ops:
            count = count + weight * launched_kernels(op, device) * _launched(op, given)
    return count


def _launched(op: Op, given: Pricing) -> Number:
    """1, but 0 for a collective that some points of a batch do not have."""
    if not is_collective(op):
        return 1.0
    ranks = given.sharding.degrees[op.group]
    return namespace(op.payload, ranks).where((op.payload > 0) & (ranks > 1), 1.0, 0.0)


def _repeated(given: Pricing, like: Number) -> Number:
    """1 where layers run again before their backward pass."""
    level = given.sharding.training.recompute
    return namespace(level, like).where(level > FULL, 1.0, 0.0)


def _checkpointing(given: Pricing, each: Number) -> Number:
    """Host time that checkpointing adds to a pass [s]."""
    trainer = given.engine.training
    assert trainer is not None
    kernels = 0.0 if trainer.host_checkpoint is None else trainer.host_checkpoint
    layers = again_share(given) * given.graph.sequence.layers / given.sharding.stages
    return _repeated(given, each) * layers * kernels * each


def _waiting(price: Price, wait: Number) -> Price:
    """A block with the part of its pass that it waits for the host."""
    return price.replaced(time=price.time + wait, overhead=price.overhead + wait, upper=price.upper + wait)
