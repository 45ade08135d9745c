"""What an engine lets into a step, in which order, and what it does where blocks run out."""

from __future__ import annotations

from dataclasses import dataclass

from strata.errors import UnknownName, require

EVICTIONS = ("recompute", "swap", "none")
NEVER = 2**62  # no step of this number is ever run
ROLES = ("both", "prefill", "decode")
RANK_ROUTERS = ("least-loaded", "round-robin", "prefix-aware")


@dataclass(frozen=True, kw_only=True)
class Scheduling:
    """What an engine lets into a step."""

    tokens: int  # of a step, of all its sequences
    sequences: int  # that a rank runs at once
    mixed: bool = True  # prompts in the steps that generate; else these wait for steps that only read
    # swap: to the first tier behind the device; none: blocks for the whole answer are held from the beginning
    eviction: str = "recompute"
    role: str = "both"  # prefill: requests leave with their first token; decode: they come with it
    priorities: bool = False  # the lowest number first; else in order of arrival
    request_time: float = 0.0  # of a request outside all steps [s]
    token_time: float = 0.0  # of a prompt's token before its engine has it, one request after another [s]
    tokens_per_step: float = 1.0  # of a sequence that generates: more than 1 where guesses are accepted
    drafted: int = 0  # guesses that a step verifies of each sequence, beside the token that is sure
    rank_router: str = "least-loaded"  # which of several ranks of a replica takes a request
    ahead: bool = False  # a step is chosen while the one before it runs, and knows nothing of what that does
    looks: int = 1  # an engine looks for requests before steps whose numbers this divides
    wait_steps: int = 0  # that prompts wait beside those that generate, unless every rank has some
    single_steps: bool = False  # one event a step: slow, to compare with

    def __post_init__(self) -> None:
        for kind, value, choices in (
            ("eviction", self.eviction, EVICTIONS),
            ("role", self.role, ROLES),
            ("router of ranks", self.rank_router, RANK_ROUTERS),
        ):
            if value not in choices:
                raise UnknownName(kind, value, choices)
        require(
            self.tokens >= 1 + self.drafted,
            "a step must have room for a token and guesses",
            tokens=self.tokens,
        )
        require(self.sequences >= 1, "a rank must run a sequence", sequences=self.sequences)
        require(self.tokens_per_step >= 1.0, "a step brings a token", tokens_per_step=self.tokens_per_step)
