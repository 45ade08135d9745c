"""The optimiser's update of the weights that a rank owns, on the device or beside it."""

from __future__ import annotations

from strata.base.arrays import Number, has_axes, namespace
from strata.base.errors import BadValue
from strata.base.precision import bytes_of
from strata.mapping.plan_layout import HOST_STATE
from strata.pricing.block import PricedBlocks
from strata.pricing.kernels.device import WIDENED, Device, quantized_format
from strata.pricing.kernels.graph_product import quantize_weights
from strata.pricing.kernels.vector import vector_kernel
from strata.pricing.price import ZERO, Price, price_where
from strata.pricing.pricers import Pricing, Rank
from strata.software.trainer import Trainer
from strata.workload.ops import is_product

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
    read, written = (gradient + state) * owned, (state + weight) * owned
    return _streamed(vector_kernel(read, written, ADAM_FLOP * owned, ADAM_ROOTS * owned, device), rate)


def _streamed(price: Price, rate: Number) -> Price:
    """A kernel that streams at a share of the rate of others: what memory binds takes longer."""
    more = price.memory * (1.0 / rate - 1.0)
    return price.replaced(time=price.time + more, memory=price.memory + more, upper=price.upper + more)


def host_update(
    owned: Number, gradient: Number, state: Number, weight: Number, link: Number, stream: Number
) -> tuple[Number, Number]:
    r"""Time of gradients on their way to the host's memory, and of an update there that sends weights back
    [s].

    .. math:: T_g = \frac{N g}{l}, \quad T = \max\left(\frac{N (g + 2 s + e)}{B}, \frac{N e}{l}\right)

    N parameters with gradients of g bytes, state of s that lies in the host's memory, and weights of e; link
    l one way; processors that stream their memory at B. Weights go up while the next are updated.

    Ren et al., ZeRO-Offload, arXiv 2101.06840, sec. 4.

    >>> [round(float(t), 3) for t in host_update(1e9, 2.0, 12.0, 2.0, 50e9, 100e9)]
    [0.04, 0.28]
    """
    worked, sent = owned * (gradient + 2.0 * state + weight) / stream, owned * weight / link
    return owned * gradient / link, namespace(worked, sent).maximum(worked, sent)


def _offloaded(owned: Number, trainer: Trainer, given: Pricing) -> Price:
    """The update in the host's memory; gradients go there beside the backward pass where they overlap."""
    host = given.system.fabric.host
    if host is None or host.link is None or host.stream_rate is None:
        name = given.system.fabric.name
        raise BadValue(f"offload needs host.link and host.stream_rate, which fabric '{name}' does not state")
    gradient, weight = bytes_of(trainer.main_gradients), bytes_of(trainer.gathered_parameters)
    sizes = (gradient, trainer.optimizer_bytes, weight)
    down, update = host_update(owned, *sizes, host.link, host.stream_rate)
    flag = trainer.overlap_grad_reduce
    seen = namespace(flag, down).where(flag > 0, 0.0, down) + update
    return Price(time=seen, overhead=seen, upper=down + update)


def optimiser_price(owned: Number, trainer: Trainer, given: Pricing, rank: Rank) -> Price:
    """The update of so many parameters, after gradients were read once for the norm that clips them."""
    gradient, weight = bytes_of(trainer.main_gradients), bytes_of(trainer.gathered_parameters)
    rate: Number = 1.0 if trainer.update_rate is None else trainer.update_rate
    update = adam_kernel(owned, gradient, trainer.optimizer_bytes, weight, rank.device, rate)
    norm = vector_kernel(gradient * owned, 0.0, 2.0 * owned, 0.0, rank.device)
    if HOST_STATE not in given.structure.active:
        return _streamed(norm, rate) + update
    there = (given.sharding.training.offload % 2) > 0
    return _streamed(norm, rate) + price_where(there, _offloaded(owned, trainer, given), update)


def rounded_weights(
    given: Pricing, rank: Rank, trainer: Trainer, blocks: PricedBlocks, counts: list[Number] | None
) -> Price:
    """Updated weights rounded for narrow products, where gathered wider; of the fullest or a mean stage."""
    found: dict[str, Number] = {}
    often = [b.block.count for b in blocks] if counts is None else counts
    for b, count in zip(blocks, often, strict=True):
        for op in b.block.ops if b.block.direction == "forward" else ():
            if not is_product(op) or not op.stored or op.frozen:
                continue
            to = quantized_format(rank.device, op.weight, op.activation)
            if to not in ("", WIDENED) and bytes_of(to) < bytes_of(trainer.gathered_parameters):
                found[to] = found.get(to, 0.0) + count * op.weight_elements()
    price = ZERO
    for to, elements in found.items():
        held = elements
        if counts is None:
            held = elements / given.sharding.stages
        elif given.structure.pipelined and has_axes(elements):
            held = namespace(elements).max(elements, axis=0)
        price = price + quantize_weights(held, to, rank.device)
    return price
