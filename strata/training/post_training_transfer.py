"""New weights from the layout that trains to the layout that samples: on the same devices, or across to
others; and state that is moved out to the host and back.
"""

from __future__ import annotations

import numpy as np

from strata.arrays import Number, namespace
from strata.hardware.system import System
from strata.mapping.divisors import divisors
from strata.mapping.engine import Engine
from strata.pricing.network.collective_cost import collective
from strata.serving.pools import send_time
from strata.workload.expert_ops import is_expert_product
from strata.workload.model import Model
from strata.workload.tasks import train


def resharded_bytes(model_bytes: Number, sampling_shards: Number, training_shards: Number) -> Number:
    r"""Bytes of weights that a device receives where training and sampling share devices.

    .. math:: V = M \max\left(\frac{1}{s_g} - \frac{1}{s_t}, 0\right)

    model M [B] in s_g shards where it samples and s_t where it trains; what a device holds already is not
    sent. Sheng et al., HybridFlow, arXiv 2409.19256, table 2 (the 3D-HybridEngine's row).

    >>> float(resharded_bytes(16e9, 2.0, 8.0)) / 1e9
    6.0
    """
    xp = namespace(model_bytes, sampling_shards, training_shards)
    return model_bytes * xp.maximum(1.0 / sampling_shards - 1.0 / training_shards, 0.0)


def colocated_transfer(system: System, sampling: float, training: float, engine: Engine) -> float:
    """Time to bring the weights of a device (`sampling` bytes) together from shards of `training` bytes on
    devices beside it [s]: an all-gather of what it lacks, and a copy in its own memory.
    """
    copied = 2.0 * sampling / float(np.min(np.asarray(system.chip.memory.bandwidth, float)))
    devices = int(float(system.devices))
    wanted = sampling / max(training, 1.0)
    ranks = next((d for d in divisors(devices) if d >= wanted * (1.0 - 1e-9)), devices)
    if ranks <= 1:
        return copied
    lacks = float(resharded_bytes(sampling, 1.0, max(wanted, 1.0)))
    payload = lacks * ranks / (ranks - 1.0)  # of which a rank holds one part already
    gathered = collective(system, "all_gather", bytes=payload, ranks=ranks, engine=engine).time
    return copied + float(gathered)


def weight_tensors(model: Model, expert_ranks: float) -> float:
    """Weight tensors that a trainer gathers one by one: those of experts as often as a rank holds experts.

    >>> from strata.workload.model import model
    >>> weight_tensors(model("llama-3.1-8b"), 1.0), weight_tensors(model("qwen3-30b-a3b"), 8.0)
    (195.0, 1827.0)
    """
    graph = model.trace(train(1.0, 8.0))
    found = 0.0
    for block, op in graph.ops():
        if block.direction == "forward" and float(op.trained_elements()) > 0:
            each = float(op.experts.size) / expert_ranks if is_expert_product(op) else 1.0
            found += float(block.count) * max(each, 1.0)
    return found


def separate_transfer(system: System, sampling: float, engine: Engine) -> float:
    """Time to bring weights from a pool that trains to one that samples [s]: every device of the latter
    receives its share, the first replica from the trainers and the others from each other as it arrives.
    """
    return send_time(system, sampling, 1.0, engine)


def moved_time(bytes: Number, bandwidth: Number) -> Number:
    r"""Time to move what lies on a device to its host's memory or back [s].

    .. math:: T = n / \beta

    >>> moved_time(60e9, 50e9)
    1.2
    """
    return bytes / bandwidth
