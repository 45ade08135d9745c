"""Steps of an engine in its steady state, as mean values.

With n sequences in flight that take G steps each, n/G of them end in a step and as many prompts come. Which
share of the steps then reads, how many prompts at once, and how long steps take follows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from strata.base.arrays import Array
from strata.serving.curve import Curve
from strata.serving.queueing import fullest_rank, in_turn, reading_share
from strata.serving.steps import lines_between
from strata.software.engine import request_time

SHARINGS = 26  # halvings of an interval that holds the share of steps that read


def engine_number(value: Any) -> float:
    """One number of an engine; the largest of several."""
    return float(np.max(np.asarray(value, float)))


@dataclass(frozen=True, eq=False, kw_only=True)
class EngineSteps:
    """Steps of one replica with so many sequences in flight, [plans, loads]."""

    curve: Curve
    active: Array  # sequences that a step has, of all replicas
    times: Array  # of steps that read, by the pieces of each rank [s], [plans, loads, prompts]
    generating: Array  # a step that only generates [s]
    pieces: Array  # of prompts that come in a step
    together: Array  # pieces in a step that reads any
    share: Array  # of the steps that read

    @cached_property
    def ranks(self) -> Array:
        return (self.curve.lanes / self.curve.replicas)[:, None]

    @cached_property
    def room(self) -> Array:
        """Pieces that steps of a replica can read."""
        c = self.curve
        beside = (1.0 + c.drafted) * self.active / c.lanes[:, None] if c.mixed else 0.0
        return self.ranks * np.maximum((c.chunk - beside) / self.length, 1.0)

    @cached_property
    def length(self) -> Array:
        """Tokens of a piece."""
        c = self.curve
        return c.requests.input / np.maximum(c.between(c.pieces, self.active), 1.0)

    def read_time(self, count: Array, evenly: bool = False) -> Array:
        """A step that reads so many pieces [s]; dealt out `evenly`, or as they come to the fullest rank."""
        c, ranks = self.curve, self.ranks
        each = np.maximum(count / ranks, 1.0)
        if not evenly:
            # prompts that wait until every rank has one find one each, and another where one more comes
            each = np.where(held_steps(c) > 0, each - np.expm1(-self.pieces), fullest_rank(count, ranks))
        saved = c.saved_time(count / (ranks * each)) * each * self.length / c.longest
        time = lines_between(c.prompts, self.times, each) - saved
        return np.where(c.mixed | (ranks > 1.0), np.maximum(time, self.generating), time)

    @cached_property
    def reading(self) -> Array:
        """A step that reads [s]."""
        return self.read_time(self.together)

    @cached_property
    def mean(self) -> Array:
        """Of all steps [s]."""
        return (1.0 - self.share) * self.generating + self.share * self.reading

    @property
    def biased(self) -> Array:
        """A step that reads, as an arrival meets it: the longer the more often [s]."""
        count, reading = self.together, self.reading
        slope = np.maximum(self.read_time(count + self.ranks) - reading, 0.0) / self.ranks
        return reading + slope**2 * count * np.maximum(count - 1.0, 0.0) / reading

    @cached_property
    def full(self) -> Array:
        """A step that reads as much as it may [s]."""
        return self.read_time(self.room)

    @property
    def progress(self) -> Array:
        """Tokens of a sequence in a step: less than 1 where it waits for steps that read."""
        idle = 0.0 if self.curve.mixed else self.pieces / np.maximum(self.together, self.ranks)
        return np.maximum(1.0 - idle, 1e-9)

    @property
    def tpot(self) -> Array:
        r"""Mean time between tokens of a sequence [s].

        .. math:: T = \frac{\bar t}{g} \left(1 + \frac{\phi^2}{n (1 - \phi)}\right)

        step t, tokens g of a sequence in it; φ the share of the time that reading adds. Arrivals of the time
        in which n sequences are served vary by one in the root of n, and with them φ.
        """
        added = self.share * (self.reading - (self.generating if self.curve.mixed else 0.0)) / self.mean
        bursts = added**2 / (self.active * np.maximum(1.0 - added, 0.1))
        return self.mean / self.progress / self.curve.gain * (1.0 + bursts)


def engine_steps(curve: Curve, active: Array, finishing: Array) -> EngineSteps:
    """Steps with so many sequences, of which `finishing` end in one and are followed by as many prompts."""
    c = curve
    asked = finishing / c.replicas[:, None] * c.between(c.pieces, active)
    nothing = np.zeros_like(asked)
    one = EngineSteps(
        curve=c,
        active=active,
        times=c.read_times(active),
        generating=c.between(c.step, active),
        pieces=asked,
        together=nothing + 1.0,
        share=nothing,
    )
    if not c.reads or not np.any(asked):
        return one
    looks = engine_number(c.engine.recv_interval)

    def came(share: Array) -> Array:
        """Pieces that come in a step, where a share of the steps reads: fewer where sequences wait."""
        return asked if c.mixed else np.maximum(asked * (1.0 - share), asked / (1.0 + asked / one.ranks))

    low, high = np.minimum(asked / one.room, 0.5), np.clip(asked, 1e-300, 1.0)
    for _ in range(SHARINGS):
        share = 0.5 * (low + high)
        pieces = came(share)
        reading = one.read_time(np.clip(pieces / share, 1.0, one.room))
        mean = (1.0 - share) * one.generating + share * reading
        more = share < reading_share(pieces * looks / mean, one.generating, reading)
        low, high = np.where(more, share, low), np.where(more, high, share)
    pieces = came(high)
    prompts = pieces / np.maximum(c.between(c.pieces, active), 1.0)
    held = np.minimum(one.ranks, 1.0 + held_steps(c) * prompts)
    dealt = 1.0 + in_turn(np.maximum(pieces / high - 1.0, 0.0), c.replicas[:, None])
    count = dealt if c.mixed else pieces / high  # where others are read alone, they pile up
    count = np.clip(np.maximum(count, held), 1.0, one.room)
    share = np.minimum(pieces / count, 1.0)
    pieces = came(share)
    return replace(one, pieces=pieces, together=count, share=np.minimum(pieces / count, 1.0))


def held_steps(curve: Curve) -> Array:
    """Steps that prompts wait for those of other attention ranks, each with a part of the experts."""
    together = (curve.plan.dp > curve.plan.moe_groups) & curve.model.has_experts
    return np.where(together, engine_number(curve.engine.attention_dp_wait), 0.0)[:, None]


def outside_steps(curve: Curve) -> float:
    """Of a request outside all steps, its prompt tokenised [s]."""
    return engine_number(request_time(curve.engine, curve.requests.input))
