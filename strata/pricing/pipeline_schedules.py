"""Schedules of a pipeline's passes in training: the time of a step by closed forms, stages alike or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from strata.base.arrays import Number, namespace
from strata.mapping.training_plan import SCHEDULE

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe")
_, GPIPE, ZERO_BUBBLE, DUALPIPE = SCHEDULE


@dataclass(frozen=True, eq=False, kw_only=True)
class StagePasses:
    """Passes of one micro-batch [s] in stages that can be slowest (leading axis), and over all stages."""

    forward: Number
    inputs: Number  # gradients to inputs, with what is recomputed for them
    weights: Number  # gradients to weights
    before: Number  # passes of all stages before each
    behind: Number  # how many stages follow each
    every: tuple[Number, Number, Number]  # forward, inputs and weights over all stages
    mirrored: Number = 0.0  # passes of the stage as far from the other end (DualPipe)
    saved: Number = 0.0  # mean stage: by a forward beside a backward pass, not one after the other (DualPipe)

    @cached_property
    def back(self) -> Number:
        return self.inputs if _none(self.weights) else self.inputs + self.weights

    @cached_property
    def whole(self) -> Number:
        return self.forward + self.back

    @cached_property
    def slowest(self) -> Number:
        return namespace(self.whole).max(self.whole, axis=0)


def _none(time: Number) -> bool:
    return isinstance(time, float) and time == 0.0


def listed_passes(
    forward: Sequence[float], inputs: Sequence[float], weights: Sequence[float], stages: int
) -> StagePasses:
    """Passes from times of every chunk of the model, of which stage j holds every P-th from j on.

    >>> made = listed_passes((1.0, 2.0, 1.0, 1.0), (1.0,) * 4, (0.0,) * 4, 2)
    >>> made.whole.tolist(), made.before.tolist()
    ([4.0, 5.0], [0.0, 4.0])
    """
    every = (forward, inputs, weights)
    parts = [np.reshape(np.asarray(part, float), (-1, stages)).sum(axis=0) for part in every]
    whole = sum(parts)
    return StagePasses(
        forward=parts[0],
        inputs=parts[1],
        weights=parts[2],
        before=np.cumsum(whole) - whole,
        behind=np.arange(stages)[::-1] * 1.0,
        every=(parts[0].sum(), parts[1].sum(), parts[2].sum()),
        mirrored=whole[::-1],
    )


def with_hand_overs(passes: StagePasses, one_way: Number, stages: Number, held: Number = 0.0) -> StagePasses:
    r"""Passes with what each stage waits for: activations to the stage behind it and gradients to the one
    before it, each `one_way` a micro-batch [s]; and messages that hold the stage at either end for a time h =
    `held`: a stage between two others meets four of them a micro-batch, while what passes through a line of
    stages meets each once,

    .. math:: F_j' = F_j + h ([j > 0] + [j < P - 1]), \quad D_j' = D_j + h ([j > 0] + [j < P - 1]), \quad
        \sum_j t_j' = \sum_j t_j + 2 h (P - 1)

    >>> four = listed_passes((1.0,) * 4, (1.0,) * 4, (0.0,) * 4, 4)
    >>> [float(one_f_one_b_time(with_hand_overs(four, 0.0, 4.0, h), 8.0)) for h in (0.0, 0.5)]
    [22.0, 37.0]
    """
    forward, inputs, weights = passes.every
    places = stages - 1.0 - passes.behind
    xp = namespace(passes.behind, one_way, held)
    inner, outer = (xp.where(where > 0.0, one_way, 0.0) for where in (places, passes.behind))
    # each message holds a stage at either end; before it count those it does not meet
    ends = xp.where(places > 0.0, held, 0.0) + xp.where(passes.behind > 0.0, held, 0.0)
    line, through = (stages - 1.0) * one_way, (stages - 1.0) * held
    met = 2.0 * held * xp.maximum(places - 1.0, 0.0)
    return replace(
        passes,
        forward=passes.forward + outer + ends,
        inputs=passes.inputs + inner + ends,
        before=passes.before + 2.0 * places * one_way - inner + met,
        every=(forward + line + through, inputs + line + through, weights),
        mirrored=passes.mirrored if _none(passes.mirrored) else passes.mirrored + inner + outer + 2.0 * ends,
    )


def gpipe_time(passes: StagePasses, microbatches: Number) -> Number:
    r"""Time of a step under GPipe: all forward passes, then all backward passes [s].

    .. math:: T = \sum_j F_j + (m - 1) \max_j F_j + \sum_j D_j + (m - 1) \max_j D_j

    forward pass F and backward pass D of each stage, m micro-batches: two lines of deterministic servers,
    exact for any stages.

    Huang et al., GPipe, arXiv 1811.06965, sec. 2.3.

    >>> float(gpipe_time(listed_passes(*[(1.0,) * 4] * 3, 4), 8.0))
    33.0
    """
    xp = namespace(passes.forward, microbatches)
    most = xp.max(passes.forward, axis=0) + xp.max(passes.back, axis=0)
    return sum(passes.every) + (microbatches - 1.0) * most


def one_f_one_b_time(passes: StagePasses, microbatches: Number) -> Number:
    r"""Time of a step under 1F1B [s].

    .. math:: T = \max_j \Big[ \sum_{i<j} t_i + m t_j + \min\big(A_j,\;
        \max(0, A_j - n_j F_j) + \max(0, A_j - n_j D_j)\big) \Big]

    passes :math:`t_j = F_j + D_j` of each stage (forward, backward), :math:`A_j = \sum_{i>j} t_i`, m
    micro-batches, :math:`n_j = \min(P - 1 - j, m - 1)`. The stage that sets the pace waits for its first
    micro-batch, then for the stages behind it as far as its n forward passes ahead, and at the end its last n
    backward passes, do not fill the time. Alike stages: :math:`(m + P - 1) t`, exactly; else within 1 % of
    the simulated order in the mean and 10 % at worst (tests/simulate/test_pipeline_schedules.py).

    Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters (SC 2021), sec. 2.2, for
    stages alike.

    >>> stages = __import__("numpy").array([2.0, 2.0, 4.0, 2.0])
    >>> half, none = stages / 2.0, 0.0 * stages
    >>> made = StagePasses(forward=half, inputs=half, weights=none, before=stages.cumsum() - stages,
    ...                    behind=none + [3.0, 2.0, 1.0, 0.0], every=(5.0, 5.0, 0.0))
    >>> float(one_f_one_b_time(made, 8.0))
    36.0
    """
    whole, back = passes.whole, passes.back
    xp = namespace(whole, microbatches, passes.before)
    after = xp.maximum(sum(passes.every) - passes.before - whole, 0.0)
    ahead = xp.minimum(passes.behind, microbatches - 1.0)
    waits = xp.maximum(after - ahead * passes.forward, 0.0) + xp.maximum(after - ahead * back, 0.0)
    return xp.max(passes.before + microbatches * whole + xp.minimum(after, waits), axis=0)


def interleaved_time(passes: StagePasses, microbatches: Number, virtual_stages: Number) -> Number:
    r"""Time of a step under interleaved 1F1B [s].

    .. math:: T = m \max_j t_j + \frac{1}{v} \Big(\sum_j t_j - \max_j t_j\Big)

    passes t of all v chunks of a stage, m micro-batches, in multiples of the stages. Fill and drain pass one
    chunk of every stage. Exact for stages alike; where ends make the first and last chunk longer, within 4 %
    of the simulated order in the mean and 12 % at worst.

    Narayanan et al. (SC 2021), sec. 2.2.2.

    >>> float(interleaved_time(listed_passes(*[(1.0,) * 4] * 3, 4), 8.0, 2.0))
    28.5
    """
    slowest = passes.slowest
    return microbatches * slowest + (sum(passes.every) - slowest) / virtual_stages


def zero_bubble_time(passes: StagePasses, microbatches: Number) -> Number:
    r"""Time of a step under the zero-bubble schedule ZB-H1 [s].

    .. math:: T = \max\Big[\max_j \Big(m t_j + \max\big(0, \sum_{i \ne j} (F_i + B_i)
        - \min(P - 1, m) W_j\big)\Big),\;
        (m - 1) \max_j (F_j + B_j) + \sum_j (F_j + B_j) + W_0\Big]

    forward pass F, gradients to inputs B and to weights W of each stage, t = F + B + W, m micro-batches. A
    stage's own weights' gradients fill what the others would leave idle; memory is that of 1F1B. For stages
    alike and m at least 2P this is the paper's :math:`m (F + B + W) + (P - 1)(F + B - W)`; fewer
    micro-batches leave too few W to fill with (the second term).

    Qi, Wan, Huang & Lin, Zero Bubble Pipeline Parallelism, arXiv 2401.10241, table 2.

    >>> float(zero_bubble_time(listed_passes(*[(1.0,) * 4] * 3, 4), 8.0))
    27.0
    """
    forward, inputs, _ = passes.every
    thin = passes.forward + passes.inputs
    xp = namespace(thin, microbatches, forward)
    others = xp.minimum(xp.asarray(passes.behind)[0], microbatches)
    idle = xp.maximum(forward + inputs - thin - others * passes.weights, 0.0)
    filled = xp.max(microbatches * passes.whole + idle, axis=0)
    chained = (microbatches - 1.0) * xp.max(thin, axis=0) + forward + inputs + xp.asarray(passes.weights)[0]
    return xp.maximum(filled, chained)


def dualpipe_time(passes: StagePasses, microbatches: Number, stages: Number) -> Number:
    r"""Time of a step under DualPipe, which feeds micro-batches from both ends of a pipeline [s].

    .. math:: T = \max\Big[\frac{m}{2} \max_j (t_j + t_{P-1-j}),\;
        m t + \left(\tfrac{P}{2} - 1\right)\big(F + B + \min(F, B) - W\big)\Big]
        - \left(m - \tfrac{P}{2} - 2\right) s

    forward pass F, gradients to inputs B and to weights W of the mean stage, t all of its passes: a device
    holds stage j of the one direction and P - 1 - j of the other. Stages P, even; micro-batches m, even, at
    least 2P. A forward and a backward pass beside each other take s less than one after the other: exchanges
    of either run beside kernels of the other (`beside_other_batch`), but not while the pipeline fills and
    drains. The paper writes the bubble :math:`(P/2 - 1)(C + B' - 3W)`, with B' = B + W and C = F + B' - s.
    Exact where F = B; else within 3 % of the simulated order in the mean, 10 % at worst.

    DeepSeek-AI, DeepSeek-V3 Technical Report, arXiv 2412.19437, table 2.

    >>> float(dualpipe_time(listed_passes(*[(1.0,) * 8] * 3, 8), 20.0, 8.0))
    66.0
    """
    forward, inputs, weights = (part / stages for part in passes.every)
    xp = namespace(forward, inputs, weights, stages)
    pair = passes.whole + passes.mirrored
    bubble = xp.maximum(stages / 2.0 - 1.0, 0.0) * (forward + inputs + xp.minimum(forward, inputs) - weights)
    mean = microbatches * (forward + inputs + weights) + xp.maximum(bubble, 0.0)
    pairs = xp.maximum(microbatches - 0.5 * stages - 2.0, 0.0)
    apart = xp.maximum(0.5 * microbatches * namespace(pair).max(pair, axis=0), mean)
    return apart if _none(passes.saved) else apart - pairs * passes.saved


def scheduled_time(
    passes: StagePasses,
    schedule: Number,
    stages: Number,
    microbatches: Number,
    virtual_stages: Number,
    among: frozenset[str] = frozenset(SCHEDULE),
) -> Number:
    """Time of a step under the schedules of plans, places in SCHEDULE; `among`: those that any of them has.

    >>> codes = __import__("numpy").arange(4.0)
    >>> scheduled_time(listed_passes(*[(1.0,) * 4] * 3, 4), codes, 4.0, 8.0, 1.0).tolist()
    [33.0, 33.0, 27.0, 26.0]
    """
    xp = namespace(passes.forward, schedule, stages, microbatches, virtual_stages)
    plain = one_f_one_b_time(passes, microbatches)
    found = xp.where(virtual_stages > 1.0, interleaved_time(passes, microbatches, virtual_stages), plain)
    others = {
        GPIPE: lambda: gpipe_time(passes, microbatches),
        ZERO_BUBBLE: lambda: zero_bubble_time(passes, microbatches),
        DUALPIPE: lambda: dualpipe_time(passes, microbatches, stages),
    }
    for name, priced in others.items():
        if name in among:
            found = xp.where(schedule == float(SCHEDULE.index(name)), priced(), found)
    return found


def filled_time(
    passes: StagePasses,
    schedule: Number,
    stages: Number,
    microbatches: Number,
    virtual_stages: Number,
    one_way: Number,
    waits: Number,
    among: frozenset[str] = frozenset(SCHEDULE),
    held: Number = 0.0,
) -> Number:
    r"""Time of a step with hand-overs: in line with the passes where stages wait for them (`waits` = 1), else
    beside them but for :math:`2 (P - 1) s / v` while the pipeline fills and drains [s].

    one_way: activations of all v chunks of a stage, s; `held`: what their messages hold both stages for.

    >>> float(filled_time(listed_passes(*[(1.0,) * 4] * 3, 4), 0.0, 4.0, 8.0, 2.0, 0.1, 0.0))
    28.8
    """
    joined = with_hand_overs(passes, waits * one_way, stages, held)
    fill = fill_of_hand_overs(one_way, waits, stages, virtual_stages)
    return scheduled_time(joined, schedule, stages, microbatches, virtual_stages, among) + fill


def fill_of_hand_overs(one_way: Number, waits: Number, stages: Number, virtual_stages: Number) -> Number:
    """What hand-overs beside the passes add while a pipeline fills and drains (`filled_time`) [s]."""
    return (1.0 - waits) * 2.0 * (stages - 1.0) * one_way / virtual_stages


def waits_for_hand_overs(schedule: Number, virtual_stages: Number, overlap_p2p: Number) -> Number:
    """1 where stages wait for each other's activations between passes, 0 where these cross beside the work.

    1F1B and its zero-bubble form send and receive between two passes, both ways at once (Megatron-LM's
    forward_backward_pipelining_without_interleaving); interleaved chunks, GPipe and DualPipe have another
    pass to run meanwhile, if the software lets them.

    >>> waits_for_hand_overs(0.0, 1.0, 1.0), waits_for_hand_overs(0.0, 2.0, 1.0)
    (1.0, 0.0)
    """
    xp = namespace(schedule, virtual_stages, overlap_p2p)
    other = (schedule == float(SCHEDULE.index(GPIPE))) | (schedule == float(SCHEDULE.index(DUALPIPE)))
    beside = (virtual_stages > 1.0) | other
    return xp.where(beside & (overlap_p2p > 0.0), 0.0, 1.0)


def bubble_share(time: Number, work: Number) -> Number:
    r"""Share of a step in which the mean stage waits.

    .. math:: \beta = 1 - w / T

    time T of the step; w that the mean stage computes in it [s].

    >>> float(bubble_share(11.0, 8.0)) == 3.0 / 11.0
    True
    """
    xp = namespace(time, work)
    return xp.maximum(1.0 - work / time, 0.0)
