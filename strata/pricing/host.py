"""What the host adds to the kernels of a step, and what captured graphs take off them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from strata.arrays import Mask, Number, namespace
from strata.hardware.chip import Chip
from strata.mapping.engine import Engine, KernelLibrary
from strata.mapping.layout import Sharding
from strata.memo import Memo, is_settled, settled_record, value_key
from strata.pricing.overlap.equations import exposed
from strata.pricing.price import Price
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


def launched_by_host(price: Price, chip: Chip, start: Number, host: Number, launches: Number) -> Price:
    r"""A call whose kernels a host launches one by one, and waits for.

    .. math:: T = \max\left(T_h, s + \max\left(T_k, (l - 1) T_l + \frac{T_k}{l}\right)\right)

    l kernels that take T_k together, the first of which starts s after the call, the last not before all are
    launched, each in T_l of the host (`overhead.launch`); the host prepares the call for at least T_h.

    >>> from strata.hardware.chip import chip
    >>> kernel, h200 = Price(time=1e-5, compute=1e-5), chip("h200", **{"overhead.launch": "5 us"})
    >>> later = [launched_by_host(kernel, h200, s, h, 1.0).time for s, h in ((2e-6, 0.0), (0.0, 4e-5))]
    >>> [round(float(time) * 1e6) for time in later]
    [12, 40]
    """
    if not any(np.any(np.asarray(time) > 0.0) for time in (start, host)):
        return price
    xp = namespace(price.time, start, host, launches)
    last = (launches - 1.0) * chip.overhead.launch + price.time / launches
    time = xp.maximum(host, start + xp.maximum(price.time, last))
    return price.later(time - price.time)


def reads_prompts(work: Workload) -> bool:
    """Whether a step reads prompts, alone or beside tokens that it generates."""
    return work.phase == "prefill" or work.prompts is not None


def is_captured(engine: Engine, work: Workload) -> Mask:
    """Whether a captured graph holds the kernels of a step."""
    return engine.cuda_graphs > (1.0 if reads_prompts(work) else 0.0)


def with_host(time: Number, launching: Number, engine: Engine, work: Workload, sharding: Sharding) -> Number:
    """A step of kernels with its engine's host time: launching them ahead of the device, then what runs
    beside the device or after it. Data-parallel ranks have schedulers of their own.
    """
    gap = step_gap(engine.step_gap, engine.sequence_gap, work.batch / sharding.replicas)
    return beside_host(time + exposed(launching, time) + gap, engine.host_step, engine.async_scheduling)


def chip_under_library(chip: Chip, library: KernelLibrary, engine: Engine) -> Chip:
    r"""A chip whose products run as a library has them: at its share of the best kernels' rate, with least
    loop times :math:`q t (1 - p)`, q times those of the best kernels.

    Kernels were timed one by one. In a captured graph the weights of the next are fetched while one ends
    (programmatic dependent launch), which hides the share p of the time a loop takes however few its tokens.

    >>> from strata.hardware.chip import chip
    >>> from strata.mapping.engine import engine
    >>> from strata.mapping.engine import kernel_library
    >>> half = replace(kernel_library("bare"), pdl_overlap=0.5)
    >>> under = chip_under_library(chip("b200"), half, engine("ideal"))
    >>> round(float(under.overhead.step["bf16"] / chip("b200").overhead.step["bf16"]), 3)
    0.5
    """
    xp = namespace(engine.cuda_graphs, library.pdl_overlap)
    left = 1.0 - xp.where(engine.cuda_graphs > 0, library.pdl_overlap, 0.0)
    loop = left * library.product_loop
    key = value_key(loop, library.product_rate) if is_settled(chip) else None
    if key is None:
        return _with_rates(chip, loop, library.product_rate)
    return _CHIPS.of((chip, key), lambda: settled_record(_with_rates(chip, loop, library.product_rate)))


_CHIPS = Memo(128)


def _with_rates(chip: Chip, loop: Number, rate: Number) -> Chip:
    """A chip with `loop` times its least loop times, and a share of its rate of products, which wait for
    sums of blocks being scaled as for anything else.
    """
    overhead = replace(chip.overhead, step={name: time * loop for name, time in chip.overhead.step.items()})
    shares = {name: share * rate for name, share in chip.compute.matrix_efficiency.items()}
    scaling = chip.compute.rescale
    slower = None if scaling is None else {name: q / rate for name, q in scaling.items()}
    compute = replace(chip.compute, matrix_efficiency=shares, rescale=slower)
    return replace(chip, overhead=overhead, compute=compute)
