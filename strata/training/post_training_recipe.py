"""What an iteration of reinforcement learning does: prompts, samples, lengths, models that score, updates."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from strata.arrays import Number, register_pytree
from strata.errors import BadValue, require
from strata.mapping.divisors import divisors
from strata.params import Sources, override, quantity, remembered, sourced_record, text
from strata.records import readable

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
