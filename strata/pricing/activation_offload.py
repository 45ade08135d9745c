"""Activations that wait for their backward pass in the host's memory, and what passes wait for them."""

from __future__ import annotations

from strata.arrays import Number, namespace
from strata.errors import BadValue
from strata.mapping.engine import trainer_of
from strata.mapping.plan_layout import HOST_ACTIVATIONS
from strata.pricing.block import PricedBlock
from strata.pricing.given import Pricing
from strata.pricing.training_memory import held_blocks, layer_activations


def offload_wait(kept: Number, link: Number, work: Number) -> Number:
    r"""Time that a pass of a micro-batch waits for activations on their way [s].

    .. math:: T = \max\left(\frac{k}{l} - w, 0\right)

    bytes k that layers keep; link l to the host's memory, one way; forward pass w, beside which they leave,
    or backward pass, beside which they come back.

    Rhu et al., vDNN, arXiv 1602.08124, sec. 3.2.

    >>> [float(offload_wait(k, 50e9, 1.0)) for k in (40e9, 75e9, 125e9)]
    [0.0, 0.5, 1.5]
    """
    xp, sent = namespace(kept, link, work), kept / link
    return xp.maximum(sent - work, 0.0)


def activations_away(
    given: Pricing, blocks: tuple[PricedBlock, ...], counts: list[Number], forward: Number, backward: Number
) -> tuple[Number, Number]:
    """What the passes of one micro-batch, forward and backward, wait for activations in the host's memory,
    where the plan keeps them there; the stage that keeps most rules.
    """
    if HOST_ACTIVATIONS not in given.structure.active:
        return 0.0, 0.0
    fabric, sharding = given.system.fabric, given.sharding
    if fabric.host is None or fabric.host.link is None:
        raise BadValue(f"offload needs host.link, which fabric '{fabric.name}' does not state")
    held = held_blocks([(b.block, b.held) for b in blocks], counts, given.graph.sequence)
    kept, _ = layer_activations(held, sharding, trainer_of(given.engine))
    if given.structure.pipelined:
        kept = namespace(kept).max(kept, axis=0)
    away = namespace(kept).where(sharding.training.offload > 1, kept, 0.0)
    return offload_wait(away, fabric.host.link, forward), offload_wait(away, fabric.host.link, backward)
