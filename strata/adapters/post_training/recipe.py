"""An iteration of reinforcement learning: prompts, samples, updates; and lengths of its responses."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from strata.base.arrays import Array, Number, register_pytree
from strata.base.errors import BadValue, require
from strata.base.records import readable
from strata.mapping.rules import divisors
from strata.params import Sources, override, quantity, remembered, sourced_record, text

NODES = 64  # middles of equal parts of the longest response, at which integrals are taken
HALVINGS = 80  # of an interval that holds the answer: a fixed number, whatever stands beside a point
EVEN = 1e-6  # spread below which lengths are taken for alike
WIDEST = 4.0  # spread: nine responses of ten within a factor of 700 of the median
FURTHEST = 6.0  # standard deviations of the logarithm beyond which no response is looked for

MOST_SAMPLES = 2**24  # whose divisors are looked for


@register_pytree
@readable("name", "batch", "group", "prompt", "response")
@dataclass(frozen=True, eq=False, kw_only=True)
class PostTrainingRecipe:
    """One iteration: `batch` prompts, `group` responses to each, and what is learnt from them."""

    name: str = text("what it is called")
    title: str = text("what it is")
    batch: Number = quantity("1", "prompts of an iteration", minimum=1)
    group: Number = quantity("1", "responses sampled for each prompt", minimum=1)
    prompt: Number = quantity("1", "tokens of a prompt", minimum=1)
    response: Number = quantity("1", "tokens of a response, on average, as cut off", minimum=1)
    longest: Number = quantity("1", "tokens at which a response is cut off", minimum=1)
    spread: Number = quantity(
        "1", "standard deviation of the logarithm of the tokens a model would write: 0 where all are alike"
    )
    minibatch: Number = quantity("1", "samples of one optimiser step", minimum=1)
    epochs: Number = quantity("1", "times each sample is trained on", minimum=1)
    packed: Number = quantity(
        "1", "tokens that are packed into one micro-batch of a rank; 0: the plan decides", optional=True
    )
    old_policy: Number = quantity(
        "1", "1 where the trainer computes the samples' probabilities anew before it changes its weights"
    )
    reference: Number = quantity("1", "1 where a frozen copy of the policy scores samples for a KL penalty")
    critic: Number = quantity(
        "1", "1 where a critic of the policy's size gives values and is trained (PPO), 0 without (GRPO)"
    )
    reward_model: Number = quantity(
        "1", "1 where a reward model of the policy's size scores samples, 0 where a rule does"
    )
    prefix_caching: Number = quantity("1", "1 where samples of one prompt share the reading of it")
    host_bandwidth: Number = quantity(
        "B/s", "between a device and its host's memory, one direction, for what is moved out", positive=True
    )
    wake: Number = quantity("s", "fixed time to put an engine to sleep and to wake it, an iteration")
    refit: Number = quantity(
        "s",
        "host time of each of a trainer's weight tensors where it shares devices with the engine: gathered "
        "from shards, renamed, handed over and loaded",
    )
    controller: Number = quantity(
        "s", "host time of the controller for a sample: gathered, judged, and scattered to ranks"
    )
    sources: Sources = field(default_factory=Sources)

    @property
    def samples(self) -> Number:
        return self.batch * self.group

    @property
    def length(self) -> Number:
        """Tokens of a sample, on average."""
        return self.prompt + self.response

    @property
    def pack(self) -> float:
        """Tokens of a pack of samples; 0 where a micro-batch has whole samples."""
        return 0.0 if self.packed is None else float(self.packed)

    @property
    def updates(self) -> Number:
        """Optimiser steps of an iteration."""
        return self.epochs * self.samples / self.minibatch

    @property
    def forwards(self) -> tuple[Number, Number]:
        """Forward passes over all samples: those that need probabilities of all tokens, and others."""
        return self.old_policy + self.reference, self.critic + self.reward_model


def post_training_recipe(name: str = "grpo", /, **changes: Any) -> PostTrainingRecipe:
    """A recipe by name or TOML path, with quantities replaced.

    >>> some = post_training_recipe("grpo", batch=64, group=32)
    >>> float(some.samples), float(some.updates)
    (2048.0, 4.0)
    """
    stated: PostTrainingRecipe = _stated_recipe(str(name))
    made = stated
    if changes:
        changed, given = override(stated, changes, "recipe")
        made = replace(changed, sources=stated.sources.updated(given))
    whole = float(made.samples) / float(made.minibatch)
    if whole != int(whole) or whole < 1:
        raise BadValue(
            f"recipe.minibatch must divide the samples of an iteration, batch x group = "
            f"{float(made.samples):g} (nearest: {_near(made)}), but got {float(made.minibatch):g}"
        )
    require(
        float(made.response) <= float(made.longest),
        "recipe.response, a mean, must not exceed recipe.longest",
        response=float(made.response),
        longest=float(made.longest),
    )
    return made


def _near(made: PostTrainingRecipe) -> str:
    """Mini-batches that divide the samples, nearest to the one asked for first."""
    samples, asked = float(made.samples), float(made.minibatch)
    if samples != int(samples) or samples > MOST_SAMPLES:
        return "1"
    return ", ".join(map(str, sorted(divisors(int(samples)), key=lambda d: abs(d - asked))[:3]))


@remembered
def _stated_recipe(name: str) -> PostTrainingRecipe:
    return sourced_record(PostTrainingRecipe, "recipe", name)


def clipped_mean(median: Number, spread: Number, longest: Number) -> Array:
    r"""Mean of lognormal lengths that are cut off at the longest allowed one [tokens].

    .. math:: E[\min(X, c)] = m e^{\sigma^2 / 2} \, \Phi\left(\frac{\ln(c/m)}{\sigma} - \sigma\right)
              + c \left(1 - \Phi\left(\frac{\ln(c/m)}{\sigma}\right)\right)

    median m of what a model would write; spread σ, the standard deviation of its logarithm; limit c.

    Johnson, Kotz & Balakrishnan, Continuous Univariate Distributions 1 (1994), ch. 14 (limited moments).

    >>> [round(float(clipped_mean(1000.0, s, 4096.0))) for s in (0.0, 0.5, 1.0)]
    [1000, 1131, 1411]
    """
    median, spread, longest = (np.asarray(v, float) for v in (median, spread, longest))
    wide = np.maximum(spread, 1e-9)
    edge = np.log(longest / median) / wide
    return median * np.exp(wide**2 / 2.0) * ndtr(edge - wide) + longest * ndtr(-edge)


def median_length(mean: Number, spread: Number, longest: Number) -> Array:
    """The median of lognormal lengths whose mean, cut off at the longest, is known [tokens].

    >>> round(float(median_length(clipped_mean(800.0, 0.7, 4096.0), 0.7, 4096.0)), 3)
    800.0
    """
    mean, spread, longest = (np.asarray(v, float) for v in (mean, spread, longest))
    # of the logarithm; the mean grows with the median, up to the longest
    low, high = np.log(mean) - 40.0, np.log(longest) + 40.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        short = clipped_mean(np.exp(middle), spread, longest) < mean
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return np.exp(0.5 * (low + high))


@dataclass(frozen=True, eq=False, kw_only=True)
class ResponseLengths:
    """Lengths of responses, with a last axis of places from 0 to the longest [tokens]."""

    places: Array  # middles of equal parts
    width: Array  # of a part
    running: Array  # share of responses longer than each place
    cut: Array  # share of them that is cut off at the longest allowed

    def integral(self, values: Array) -> Array:
        """Over all places."""
        total: Array = np.sum(values, axis=-1) * self.width
        return total

    @property
    def mean(self) -> Array:
        return self.integral(self.running)

    @property
    def residual(self) -> Array:
        r"""What a response still has before it at a random moment, and how old it is, on average [tokens].

        .. math:: \rho = \frac{E[L^2]}{2 E[L]}

        Cox, Renewal Theory (1962), sec. 5.4.

        >>> even = response_lengths(1000.0, 0.0, 4096.0)
        >>> round(float(even.residual))
        500
        """
        return self.integral(self.running * self.places) / self.mean

    def still_running(self, refilled: Number) -> tuple[Array, Array]:
        r"""Share of slots that still run each number of steps after the last prompt was let in, and how much
        older than that their responses are [tokens].

        .. math:: s(x) = (1 - w) S(x) + w \int_x^\infty \frac{S(t)}{E[L]} dt

        of the responses a share 1 - w began at that moment, and w (`refilled`) at random before it; S is the
        share of responses longer than x. Residual lives as in a renewal process, Cox (1962), sec. 5.

        >>> some = response_lengths(1000.0, 0.7, 8192.0)
        >>> all(abs(float(some.integral(some.still_running(w)[0])) / (1000 + w * (some.residual - 1000)) - 1)
        ...     < 0.01 for w in (0.0, 0.4, 1.0))
        True
        """
        w = np.asarray(refilled, float)[..., None]
        mean, width = self.mean[..., None], self.width[..., None]
        later = (_from_here(self.running) - 0.5 * self.running) * width / mean
        ages = (_from_here(later) - 0.5 * later) * width
        running = (1.0 - w) * self.running + w * later
        return running, w * ages / np.maximum(running, 1e-300)


def _from_here(values: Array) -> Array:
    """Sums from each place to the last."""
    summed: Array = np.flip(np.cumsum(np.flip(values, -1), -1), -1)
    return summed


def any_running(share: Array, count: Number) -> Array:
    r"""The chance that any of so many responses runs on, each with some chance of its own.

    .. math:: q = 1 - (1 - s)^n

    >>> round(float(any_running(np.array(0.01), 100.0)), 3)
    0.634
    """
    with np.errstate(divide="ignore"):
        found: Array = -np.expm1(count * np.log1p(-np.minimum(share, 1.0)))
    return found


def response_lengths(mean: Any, spread: Any, longest: Any, nodes: int = NODES) -> ResponseLengths:
    """Lengths whose mean is known, cut off at `longest` tokens; `spread` 0: all alike.

    >>> some = response_lengths(1019.0, 0.6, 4096.0)
    >>> round(float(some.mean)), round(float(some.cut), 3)
    (1019, 0.005)
    """
    mean, spread, longest = np.broadcast_arrays(*(np.asarray(v, float) for v in (mean, spread, longest)))
    require(bool(np.all(mean >= 1)), "a response has at least 1 token", response=float(np.min(mean)))
    require(
        bool(np.all((spread >= 0) & (spread <= WIDEST))),
        f"the spread of lengths must not be negative, nor more than {WIDEST:g}",
        spread=spread,
    )
    require(
        bool(np.all(mean <= longest)),
        "the mean response is not longer than the longest",
        response=float(np.max(mean)),
        longest=float(np.min(longest)),
    )
    even = (spread < EVEN) | (mean == longest)
    median = np.where(even, mean, median_length(np.where(even, 0.5 * longest, mean), spread, longest))
    wide = np.where(even, 1.0, spread)
    top = np.where(even, mean, np.minimum(longest, median * np.exp(FURTHEST * wide)))
    places = top[..., None] * (np.arange(nodes) + 0.5) / nodes
    running = ndtr(-np.log(places / median[..., None]) / wide[..., None])
    running = np.where(even[..., None], 1.0, running)
    width = top / nodes
    # the middles of parts leave out a little of where the curve bends: the mean is what was asked for
    places = places * (mean / (np.sum(running, axis=-1) * width))[..., None]
    width = width * mean / (np.sum(running, axis=-1) * width)
    cut = np.where(even, mean == longest, ndtr(-np.log(longest / median) / wide))
    return ResponseLengths(places=places, width=width, running=running, cut=cut)
