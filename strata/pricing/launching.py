"""The host beside the kernels of a step: it launches them ahead of the device, which waits where launching
takes longer than running them (pass by pass in training, over a whole step of serving); and what captured
graphs take off it.
"""

from __future__ import annotations

from dataclasses import replace

from strata.base.arrays import Number, namespace
from strata.mapping.layout import Sharding
from strata.mapping.plan_layout import STAGES, TENSOR_GROUP
from strata.pricing.block import PricedBlock, PricedBlocks
from strata.pricing.kernels.device import WIDENED, Device, quantized_format
from strata.pricing.pipeline import again_share, reaches_over_nodes
from strata.pricing.price import ZERO, exposed
from strata.pricing.pricers import Pricing, Rank, launched_kernels
from strata.software.engine import Engine, trainer_of
from strata.software.trainer import CAPTURES, STALLS, Trainer
from strata.workload.expert_ops import EXPERT_ROWS, is_expert_product, is_routed
from strata.workload.graph import Block, Op, is_collective
from strata.workload.ops import is_product
from strata.workload.tasks import Workload


def step_gap(fixed: Number, each: Number, sequences: Number) -> Number:
    r"""Time between the kernels of two steps that nothing hides [s]: inputs copied, tokens drawn and sent.

    .. math:: T_g = g + n s

    fixed time g; n sequences of the rank, s each.

    >>> round(step_gap(4e-4, 2e-5, 64.0) * 1e3, 2)
    1.68
    """
    return fixed + sequences * each


def beside_host(device: Number, host: Number, async_scheduling: Number) -> Number:
    r"""Time of a step [s] whose host schedules it after the device is done, or beside it, a step ahead.

    .. math:: T = \begin{cases} T_d + T_h & \text{one after the other} \\
        \max(T_d, T_h) & \text{beside each other} \end{cases}

    device time T_d; host time T_h.

    >>> [float(beside_host(d, 4.0, a)) for d, a in ((10.0, 0.0), (10.0, 1.0), (2.0, 1.0))]
    [14.0, 10.0, 4.0]
    """
    xp = namespace(device, host, async_scheduling)
    return xp.where(async_scheduling > 0, xp.maximum(device, host), device + host)


def with_host(time: Number, launching: Number, engine: Engine, work: Workload, sharding: Sharding) -> Number:
    """A step with launching ahead of the device, then the host (a scheduler a replica) beside or after it."""
    gap = step_gap(engine.step_gap, engine.sequence_gap, work.batch / sharding.replicas)
    return beside_host(time + exposed(launching, time) + gap, engine.host_step, engine.async_scheduling)


FULL = 1.0  # recompute levels above this run layers again


def slowest_of_group(own: Number, late: Number, ranks: Number) -> Number:
    r"""Time of a collective that cannot begin before the last of its ranks comes [s].

    .. math:: T = T_c + \sigma t

    its own time T_c; t ranks, any of which is late now and then, by σ on average: as long as such delays are
    rare, they seldom meet, and a group waits for the sum of them.

    Hoefler et al., Characterizing the Influence of System Noise on Large-Scale Applications, SC 2010 (delays
    of one rank reach all others through collectives).

    >>> [round(float(slowest_of_group(0.4e-3, 0.25e-3, ranks)), 6) for ranks in (2.0, 8.0)]
    [0.0009, 0.0024]
    """
    return own + late * ranks


def launch_bound(given: Pricing, rank: Rank, blocks: PricedBlocks) -> PricedBlocks:
    """Blocks of a training step with what the device waits for the host (`exposed`) and for the last rank of
    a tensor group, where the engine says how it trains.

    Passes are the layers forward, the head with the loss, and all backward. Each kernel takes the host the
    same time, of which the backward pass needs its own share, and a collective of a tensor group its own;
    products of experts may be launched expert by expert (`Trainer.host_expert`); captured graphs need none
    (`Trainer.captured`). A layer that is recomputed is launched again before its backward pass, and
    checkpointing takes the host the time of some kernels more in each pass.
    """
    trainer = given.engine.training
    if given.structure.for_bounds or not given.training or trainer is None:
        return blocks
    device, blocks = rank.device, _with_skew(given, rank, blocks)
    each = trainer.host_kernel
    if each is None:
        each = given.engine.launches * device.chip.overhead.launch
    xp = namespace(each, given.engine.cuda_graphs)
    eager = xp.where((given.engine.cuda_graphs > 0) | (trainer.captured == CAPTURES[2]), 0.0, 1.0)
    forward, slower = eager * each, 1.0 if trainer.host_backward is None else trainer.host_backward
    again, share = _repeated(given, forward), again_share(given)
    call = _host_collective(given, rank, forward)
    host = [
        _host_time(b.block, given, device, each) * eager * (1.0 if _is_forward(b) else slower)
        + _collectives(b.block, given) * call
        for b in blocks
    ]
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
        waited = exposed(needed, busy)
        safe = namespace(launched).where(launched > 0.0, launched, 1.0)
        for i in places:
            made[i] = replace(blocks[i], price=blocks[i].price.later(waited * host[i] / safe))
    return tuple(made)


def launch_time(given: Pricing, rank: Rank) -> Number:
    """Host time to launch the kernels of a step that no captured graph holds [s]; none of a training step,
    whose passes are launched one by one (`launch_bound`). The engine launches so often for each kernel of the
    graph (`Engine.launches`). Blocks that a dataflow chip fuses are one kernel.
    """
    engine, software = given.engine, rank.device.software
    if given.training and engine.training is not None:
        return 0.0
    kernels: Number = 0.0
    for block in given.graph.blocks:
        count: Number = 0.0
        for weight, op in _each_op(block):
            calls = software.routed_launches if _is_dynamic(op) else 1.0
            count = count + weight * calls * launched_kernels(op, rank.device) * _launched(op, given)
        kernels = kernels + block.times * (1.0 if rank.device.fuses else count)
    time = engine.launches * rank.device.chip.overhead.launch * kernels
    reads_prompts = given.work.phase == "prefill" or given.work.prompts is not None
    captured = engine.cuda_graphs > (1.0 if reads_prompts else 0.0)
    return namespace(time, engine.cuda_graphs).where(captured, 0.0, time)


def _pools(given: Pricing, blocks: PricedBlocks) -> list[list[int]]:
    """Blocks over which the host runs ahead: all backward ones, the layers forward, and their head."""
    last = given.graph.sequence.last
    pools: dict[str, list[int]] = {}
    for i, b in enumerate(blocks):
        ends = _is_forward(b) and b.block.name in last
        pools.setdefault("head" if ends else b.block.direction, []).append(i)
    return list(pools.values())


def _is_forward(b: PricedBlock) -> bool:
    return b.block.direction == "forward"


def _host_time(block: Block, given: Pricing, device: Device, each: Number) -> Number:
    """Host time to launch the kernels of a block that no graph holds [s]; those of a product of experts
    expert by expert where the trainer does so: rounding its rows, laying out their scales, its own product
    (Transformer Engine, GroupedLinear: a list of products over several streams).
    """
    time: Number = 0.0
    trainer = trainer_of(given.engine)
    for weight, op in _each_op(block):
        if trainer.captured != CAPTURES[0] and not _is_dynamic(op):
            continue
        if trainer.host_expert is not None and is_expert_product(op):
            each_expert = trainer.host_expert + _bias_host(op, trainer)
            time = time + weight * op.experts.size * each_expert
        else:
            kernels = launched_kernels(op, device) * _launched(op, given)
            time = time + weight * (kernels * each + _narrow(op, trainer, device))
    return time


def _each_op(block: Block) -> list[tuple[Number, Op]]:
    """Ops of a block with how many iterations each stands for."""
    return [(weight, op) for weight, ops in block.at_nodes() for op in ops]


def _narrow(op: Op, trainer: Trainer, device: Device) -> Number:
    """Host time that an op adds as a product in a narrow format [s]: modules that round their operands launch
    casts, keep scales and the history of largest values, and take several times as long as plain ones,
    whatever the size of the product.

    NVIDIA/TransformerEngine, issue 761 (a module's forward pass in fp8 takes the host more than twice that in
    bf16) and issue 445 (2.07 ms against 0.57 ms for one module on H100, October 2023).
    """
    if trainer.host_narrow is None or not is_product(op):
        return 0.0
    return 0.0 if quantized_format(device, op.weight, op.activation) in ("", WIDENED) else trainer.host_narrow


def _bias_host(op: Op, trainer: Trainer) -> Number:
    """Host time of kernels that add the bias of an expert [s]."""
    kernels = trainer.expert_bias
    if kernels is None or not is_expert_product(op) or not op.weighted_bias:
        return 0.0
    return kernels.host_back if op.backward else kernels.host


def _is_dynamic(op: Op) -> bool:
    """Whether routing decides the shapes of an op: no graph holds it unless tokens are dropped or padded."""
    sent = is_collective(op) and op.exchange is not None
    return is_expert_product(op) or is_routed(op) or op.role == EXPERT_ROWS or sent


def _launched(op: Op, given: Pricing) -> Number:
    """1, but 0 for a collective that some points of a batch do not have."""
    if not is_collective(op):
        return 1.0
    ranks = given.sharding.degrees[op.group]
    return namespace(op.payload, ranks).where((op.payload > 0) & (ranks > 1), 1.0, 0.0)


def _collectives(block: Block, given: Pricing) -> Number:
    """Collectives of a tensor group in a block."""
    every = ((w, op) for w, op in _each_op(block) if is_collective(op) and op.group == TENSOR_GROUP)
    return sum((weight * _launched(op, given) for weight, op in every), 0.0)


def _host_collective(given: Pricing, rank: Rank, each: Number) -> Number:
    """Host time of a collective of a tensor group over that of a kernel [s]; none of captured graphs."""
    trainer, ranks = given.engine.training, given.sharding.degrees.get(TENSOR_GROUP, 1.0)
    assert trainer is not None
    own, stall, skew = trainer.host_collective, trainer.host_stall, trainer.collective_skew
    if own is None and stall is None:
        return 0.0
    late: Number = 0.0
    if stall is not None:
        # hosts that stall come as late to a collective over nodes as those that do not, after their stall
        more = 0.0 if skew is None else skew * reaches_over_nodes(rank, TENSOR_GROUP)
        late = (stall + more) * reaches_over_nodes(rank, *((STAGES,) if trainer.stalls == STALLS[0] else ()))
    time = slowest_of_group(each if own is None else own, late, ranks) - each
    if trainer.captured != CAPTURES[0]:
        return 0.0
    return namespace(time, given.engine.cuda_graphs).where(given.engine.cuda_graphs <= 0, time, 0.0)


def _with_skew(given: Pricing, rank: Rank, blocks: PricedBlocks) -> PricedBlocks:
    """Blocks whose collectives of a tensor group over nodes wait for the last rank."""
    trainer = given.engine.training
    if trainer is None or trainer.collective_skew is None or TENSOR_GROUP not in rank.placement.groups:
        return blocks
    ranks = given.sharding.degrees.get(TENSOR_GROUP, 1.0)
    late = slowest_of_group(0.0, trainer.collective_skew * reaches_over_nodes(rank, TENSOR_GROUP), ranks)
    made = []
    for b in blocks:
        wait = _collectives(b.block, given) * late
        again = b.again if b.again is ZERO else b.again.later(wait * _repeated(given, wait))
        made.append(replace(b, price=b.price.later(wait), again=again))
    return tuple(made)


def _repeated(given: Pricing, like: Number) -> Number:
    """1 where layers run again before their backward pass."""
    level = given.sharding.training.recompute
    return namespace(level, like).where(level > FULL, 1.0, 0.0)


def _checkpointing(given: Pricing, each: Number) -> Number:
    """Host time that checkpointing adds to a pass of all layers [s]; stages share both with their layers."""
    trainer = given.engine.training
    assert trainer is not None
    kernels = 0.0 if trainer.host_checkpoint is None else trainer.host_checkpoint
    layers = again_share(given) * given.graph.sequence.layers
    return _repeated(given, each) * layers * kernels * each
