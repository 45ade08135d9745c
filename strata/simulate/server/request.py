"""One request: what it brings, and what has become of it so far."""

from __future__ import annotations

from typing import Any


class Request:
    """A prompt of `input` tokens that wants `output` tokens; times are filled in as it is served [s].

    `prefix` names what its first tokens share with others: pairs of a key and how many tokens the prompt
    has up to there, the longest last.
    """

    __slots__ = (
        "arrival",
        "cached",
        "finish",
        "first",
        "generated",
        "input",
        "keep",
        "key",
        "last",
        "left",
        "model",
        "output",
        "own",
        "phase",
        "preempted",
        "prefix",
        "priority",
        "rank_serial",
        "read",
        "rounds",
        "scheduled",
        "seen",
        "sending",
        "session",
        "shared",
        "state",
        "turn",
    )

    def __init__(
        self,
        key: Any,
        arrival: float,
        input: int,
        output: int,
        *,
        prefix: tuple[tuple[Any, int], ...] = (),
        priority: float = 0.0,
        session: Any = None,
        turn: int = 0,
        model: str = "",
        keep: Any = None,
    ) -> None:
        self.key, self.arrival, self.input, self.output = key, arrival, input, output
        self.prefix, self.priority, self.session, self.turn = prefix, priority, session, turn
        self.model = model
        self.keep = keep  # the name its whole context is kept under when it is done, for a next turn
        self.own = 0  # blocks it holds alone, those begun while it generates not counted
        self.shared = 0  # of its named beginnings, how many it holds together with others
        self.scheduled = self.first = self.last = -1.0
        self.cached = 0  # tokens of the prompt found in the prefix cache
        self.read = 0  # tokens of the prompt, or of prompt and answer after a preemption, in the cache
        self.generated = 0  # tokens of the answer so far, where it is not running
        self.phase = 0  # decode steps of its rank at which it begins a block, modulo their period
        self.finish = 0  # the decode step of its rank at which it is done
        self.rounds = 0  # decode steps its remaining answer takes
        self.preempted = 0
        self.left: Any = None  # blocks it held when it had to make room
        self.sending: Any = None  # the pool and the blocks in which its cache lies until it has been sent
        self.seen = 0  # number of the first step of its engine that may have it
        self.rank_serial = 0  # its place among those that its rank let in
        self.state = ""

    @property
    def prompt(self) -> int:
        """Tokens to be in the cache before it generates: after a preemption, its own answer so far too."""
        return self.input + self.generated

    @property
    def ttft(self) -> float:
        return self.first - self.arrival

    @property
    def tpot(self) -> float:
        """Mean time between its tokens after the first [s]; 0 for an answer of one token."""
        return (self.last - self.first) / (self.output - 1) if self.output > 1 else 0.0

    @property
    def latency(self) -> float:
        """From arrival to the last token [s]."""
        return self.last - self.arrival

    @property
    def queued(self) -> float:
        """From arrival until a step first has it [s]."""
        return self.scheduled - self.arrival
