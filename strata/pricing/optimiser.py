"""The optimiser's update of the weights that a rank owns, on the device or beside it."""

from __future__ import annotations

from strata.arrays import Number
from strata.mapping.trainer import Trainer
from strata.precision import bytes_of
from strata.pricing.given import Pricing
from strata.pricing.kernels.device import Device
from strata.pricing.kernels.vector import vector_kernel
from strata.pricing.price import Price
from strata.pricing.pricers import Rank

ADAM_FLOP = 12.0  # of a parameter: two moments, their square root, decay and step
ADAM_ROOTS = 1.0  # and of these on special function units


def adam_kernel(
    owned: Number, gradient: Number, state: Number, weight: Number, device: Device, rate: Number = 1.0
) -> Price:
    r"""One fused update of weights by Adam.

    .. math:: r = N (g + s), \quad w = N (s + e)

    bytes read and written of N parameters: gradients of g bytes, state of s (a full-precision copy and two
    moments, read and written), and the copy of e bytes that the next forward pass reads; at `rate` times the
    rate of a stream.

    Kingma & Ba, Adam, arXiv 1412.6980, algorithm 1; Loshchilov & Hutter, AdamW, arXiv 1711.05101.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> float(adam_kernel(1e9, 4.0, 12.0, 2.0, device(chip("h200"))).memory_bytes)
    30000000000.0
    """
    read, written = (gradient + state) * owned / rate, (state + weight) * owned / rate
    found = vector_kernel(read, written, ADAM_FLOP * owned, ADAM_ROOTS * owned, device)
    return found.replaced(memory_bytes=found.memory_bytes * rate)


def optimiser_price(owned: Number, trainer: Trainer, given: Pricing, rank: Rank) -> Price:
    """The update of so many parameters, after the gradients were read once for their norm, by which they are
    clipped.
    """
    gradient, weight = bytes_of(trainer.main_gradients), bytes_of(trainer.gathered_parameters)
    rate: Number = 1.0 if trainer.update_rate is None else trainer.update_rate
    update = adam_kernel(owned, gradient, trainer.optimizer_bytes, weight, rank.device, rate)
    return vector_kernel(gradient * owned, 0.0, 2.0 * owned, 0.0, rank.device) + update
