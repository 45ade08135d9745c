"""Releases of engines as data: what kernels and hosts of the time took over what an engine's file says, by
date, platform and layout, with where each is from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.arrays import Array, Number
from strata.errors import BadValue
from strata.hardware.chip import Chip
from strata.params import quantity, text
from strata.validation.readers.closed_loop import EngineTimes

NARROWEST = ("fp4", "fp8", "other")  # formats by which generations of matrix units are told apart
USUAL_PLATFORM = "cuda"  # of chips that name none
ANY = "any"
# What a release takes that nothing is known of.
USUAL: dict[str, Any] = {"step": 0.0, "kernels": 1.0, "prompts": 1.0, "guessing": 0.0}


@dataclass(frozen=True, eq=False, kw_only=True)
class EngineRelease:
    """Runs of an engine up to a day, and what their release took over what the engine's file says."""

    title: str = text("what it is, and where from")
    engine: str = text("labels of the engine in the file, lower case with dashes, separated by spaces")
    when: str = text("the runs it counts for, like before 2026-01-20; left out: all", default="")
    chips: str = text("names of the chips whose scripts say so, or any", default=ANY)
    platform: str = text("software the chip's kernels are written for, cuda or rocm, or any", default=ANY)
    narrowest: str = text(
        "narrowest format the chip multiplies: kernels are written for a generation of matrix units, or any",
        choices=(ANY, *NARROWEST),
        default=ANY,
    )
    precision: str = text("format of the weights in the file, or any", default=ANY)
    experts: str = text(
        "whole: each rank holds a slice of every expert; dealt: experts dealt out over ranks; or any",
        choices=(ANY, "whole", "dealt"),
        default=ANY,
    )
    family: str = text("entries of a family differ by their step alone", default="")
    fitted: str = text("those of its quantities that are fitted to runs, separated by spaces", default="")
    step: Number = quantity("s", "time that each step takes more, however many sequences it has")
    kernels: Number = quantity(
        "1", "time of its other kernels in steps that generate, over ours", positive=True
    )
    prompts: Number = quantity("1", "time to read prompts over ours", positive=True)
    guessing: Number = quantity("s", "time that a round of guesses takes more, beside its steps")

    told_step: Number | None = quantity(
        "s", "what sources tell of its step, where no run does; left out: nothing more", optional=True
    )
    told_kernels: Number | None = quantity(
        "1", "the same of its kernels; left out: as the engine's file says", optional=True
    )

    @property
    def usual(self) -> dict[str, Any]:
        """Its quantities as long as no run tells them."""
        told = {"step": self.told_step, "kernels": self.told_kernels}
        return USUAL | {name: float(value) for name, value in told.items() if value is not None}

    @property
    def end(self) -> str:
        """Day of the first run that it no longer counts for; "" where there is none."""
        word, _, day = self.when.partition(" ")
        if self.when and not (word == "before" and re.fullmatch(r"\d{4}-\d{2}-\d{2}", day)):
            raise BadValue(f"a release counts for runs like 'before 2026-01-20', but got '{self.when}'")
        return day

    def covers(self, engine: str, chip: Chip, precision: str) -> bool:
        """Whether it may be the release of runs of an engine on a chip, whatever their date and layout."""
        told = (
            (self.platform, chip.platform or USUAL_PLATFORM),
            (self.narrowest, narrowest_format(chip)),
            (self.precision, precision),
        )
        named = self.chips == ANY or chip.name in self.chips.split()
        return engine in self.engine.split() and named and all(wanted in (ANY, has) for wanted, has in told)


def narrowest_format(chip: Chip) -> str:
    """The narrowest format that a chip's matrix units multiply, of those that tell generations apart.

    >>> from strata.hardware.chip import chip
    >>> [narrowest_format(chip(name)) for name in ("b200", "h200", "mi355x", "mi300x", "a100")]
    ['fp4', 'fp8', 'fp4', 'fp8', 'other']
    """
    rates = chip.compute.matrix_rate
    for width in NARROWEST[:-1]:
        if any(width in name and rate is not None and np.max(rate) > 0 for name, rate in rates.items()):
            return width
    return NARROWEST[-1]


@dataclass(frozen=True, eq=False, kw_only=True)
class ReleaseTimes:
    """What the releases of some rows took over what their engine's file says, an entry for each row."""

    step: Array  # time of each step more [s]
    kernels: Array
    prompts: Array
    guessing: Array  # time of a round of guesses more [s]

    def stepped(self, step: Any, rounds: Any = 0.0) -> Any:
        r"""A step that generates as the release has it [s].

        .. math:: T' = k T + s + g

        kernels k, step s, and g where it is a round of guesses.
        """
        return self.kernels * step + self.step + self.guessing * rounds

    def of(self, times: EngineTimes, guesses: Array) -> EngineTimes:
        """An engine's times as the release has them: a token takes its share of the step."""
        step = self.stepped(times.step, guesses > 0)
        return replace(
            times,
            step=step,
            token=times.token * step / times.step,
            reading=self.prompts * times.reading,
            own=self.prompts * times.own,
            launching=self.prompts * times.launching,
        )


def release_of(
    releases: Sequence[EngineRelease],
    engine: str,
    chip: Chip,
    precision: str,
    dates: Array,
    dealt: Array,
) -> Array:
    """Which release each row has, by its place: the first that covers it; -1 where none does."""
    found = np.full(len(dates), -1)
    for place, release in enumerate(releases):
        if not release.covers(engine, chip, precision):
            continue
        here = (found < 0) & ((release.end == "") | (dates < release.end))
        if release.experts != ANY:
            here &= dealt == (release.experts == "dealt")
        found = np.where(here, place, found)
    return found


def release_times(releases: Sequence[EngineRelease], place: Array) -> ReleaseTimes:
    """What the releases at some places took; as the engine's file says where it is -1."""
    taken = {
        name: np.array([float(getattr(r, name)) for r in releases] + [value])[place]
        for name, value in USUAL.items()
    }
    return ReleaseTimes(**taken)
