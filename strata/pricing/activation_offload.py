"""Activations that wait for their backward pass in the host's memory, and what passes wait for them."""

from __future__ import annotations

from strata.arrays import Number, namespace
from strata.errors import BadValue
from strata.mapping.engine import trainer_of
from strata.mapping.plan_layout import HOST_ACTIVATIONS
from strata.pricing.block import PricedBlock
from strata.pricing.given import Pricing
from strata.pricing.price import ZERO, Price
from strata.pricing.training_memory import held_blocks, layer_activations


def offload_wait(kept: Number, link: Number, forward: Number, backward: Number) -> Number:
    r"""Time that the passes of a micro-batch wait for activations on their way [s].

    .. math:: T = \max\left(\frac{k}{l} - f, 0\right) + \max\left(\frac{k}{l} - b, 0\right)

    bytes k that layers keep; link l to the host's memory, one way; forward pass f, beside which they leave,
    and backward pass b, beside which they come back.

    Rhu et al., vDNN, arXiv 1602.08124, sec. 3.2.

    >>> [float(offload_wait(k, 50e9, 1.0, 2.0)) for k in (40e9, 75e9, 125e9)]
    [0.0, 0.5, 2.0]
    """
    xp, sent = namespace(kept, link, forward, backward), kept / link
    return xp.maximum(sent - forward, 0.0) + xp.maximum(sent - backward, 0.0)


def activations_away(
    given: Pricing, blocks: tuple[PricedBlock, ...], counts: list[Number], forward: Number, backward: Number
) -> Price:
    """What a step waits for activations in the host's memory, where its plan keeps them there; the stage that
    keeps most rules. `forward`, `backward`: passes of one micro-batch.
    """
    if HOST_ACTIVATIONS not in given.structure.active:
        return ZERO
    fabric, sharding = given.system.fabric, given.sharding
    if fabric.host is None or fabric.host.link is None:
        raise BadValue(f"offload needs host.link, which fabric '{fabric.name}' does not state")
    held = held_blocks([(b.block, b.held) for b in blocks], counts, given.graph.sequence)
    kept, _ = layer_activations(held, sharding, trainer_of(given.engine))
    xp = namespace(kept, forward, backward, sharding.microbatches)
    if given.structure.pipelined:
        kept = xp.max(kept, axis=0)
    wait = sharding.microbatches * offload_wait(kept, fabric.host.link, forward, backward)
    seen = xp.where(sharding.training.offload > 1, wait, 0.0)
    return Price(time=seen, overhead=seen, upper=seen)
