"""Closed forms of pipeline schedules: the time of a training step where all stages are alike and links cost
nothing.
"""

from __future__ import annotations

from strata.arrays import Number, namespace
from strata.errors import UnknownName
from strata.pricing.pipeline import pipeline_time

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe")


def zero_bubble_time(
    forward: Number, inputs: Number, weights: Number, stages: Number, microbatches: Number
) -> Number:
    r"""Time of a step under the zero-bubble schedule ZB-H1 [s].

    .. math:: T = m (F + B + W) + (P - 1)(F + B - W)

    forward pass F, gradients to inputs B and to weights W of one stage and micro-batch, W at most F and B;
    stages P; micro-batches m, at least 2P. Weights' gradients fill what the backward pass would leave
    idle; memory is that of 1F1B.

    Qi, Wan, Huang & Lin, Zero Bubble Pipeline Parallelism, arXiv 2401.10241, table 2.

    >>> zero_bubble_time(1.0, 1.0, 1.0, 4.0, 8.0)
    27.0
    """
    return microbatches * (forward + inputs + weights) + (stages - 1.0) * (forward + inputs - weights)


def dualpipe_time(
    forward: Number, inputs: Number, weights: Number, stages: Number, microbatches: Number
) -> Number:
    r"""Time of a step under DualPipe, which feeds micro-batches from both ends of a pipeline [s].

    .. math:: T = m (F + B + W) + \left(\tfrac{P}{2} - 1\right)(F + 2 B - W)

    forward pass F, gradients to inputs B and to weights W of one stage and micro-batch, F = B and W at most
    F; stages P, even; micro-batches m, even, at least 2P. The paper writes the bubble
    :math:`(P/2 - 1)(C + B' - 3W)`, with B' = B + W and C for a forward and a backward pass beside each other;
    here C = F + B', nothing gained by that. Where F and B differ the simulation says what holds.

    DeepSeek-AI, DeepSeek-V3 Technical Report, arXiv 2412.19437, table 2.

    >>> dualpipe_time(1.0, 1.0, 1.0, 8.0, 20.0)
    66.0
    """
    bubble = (stages / 2.0 - 1.0) * (forward + 2.0 * inputs - weights)
    return microbatches * (forward + inputs + weights) + bubble


def schedule_time(
    schedule: str,
    forward: Number,
    inputs: Number,
    weights: Number,
    stages: Number,
    microbatches: Number,
    virtual_stages: Number = 1.0,
) -> Number:
    """Time of a step by a schedule's closed form: all stages alike, links for nothing [s].

    >>> [schedule_time(name, 1.0, 1.0, 1.0, 4.0, 8.0, 2.0) for name in SCHEDULES]
    [33.0, 33.0, 28.5, 27.0, 26.0]
    """
    if schedule not in SCHEDULES:
        raise UnknownName("schedule", schedule, SCHEDULES, ", ".join(SCHEDULES))
    if schedule == "zero-bubble":
        return zero_bubble_time(forward, inputs, weights, stages, microbatches)
    if schedule == "dualpipe":
        return dualpipe_time(forward, inputs, weights, stages, microbatches)
    chunks = virtual_stages if schedule == "interleaved" else 1.0
    return pipeline_time(forward + inputs + weights, stages, microbatches, chunks)


def bubble_share(time: Number, work: Number) -> Number:
    r"""Share of a step in which the mean stage waits.

    .. math:: \beta = 1 - w / T

    time T of the step; w that the mean stage computes in it [s].

    >>> float(bubble_share(11.0, 8.0)) == 3.0 / 11.0
    True
    """
    xp = namespace(time, work)
    return xp.maximum(1.0 - work / time, 0.0)
