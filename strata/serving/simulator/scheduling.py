"""One request, what an engine lets into a step, in which order, and what it does where blocks run out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from heapq import heappop, heappush
from typing import Any

from strata.base.errors import UnknownName, require


@dataclass(slots=True, eq=False)
class Request:
    """A prompt of `input` tokens that wants `output` tokens; times are filled in as it is served [s].

    `prefix` names what its first tokens share with others: pairs of a key and how many tokens the prompt
    has up to there, the longest last.
    """

    key: Any
    arrival: float
    input: int
    output: int
    _: KW_ONLY
    prefix: tuple[tuple[Any, int], ...] = ()
    priority: float = 0.0
    session: Any = None
    turn: int = 0
    model: str = ""
    keep: Any = None  # the name its whole context is kept under when it is done, for a next turn
    own: int = 0  # blocks it holds alone, those begun while it generates not counted
    shared: int = 0  # of its named beginnings, how many it holds together with others
    scheduled: float = -1.0
    first: float = -1.0
    last: float = -1.0
    cached: int = 0  # tokens of the prompt found in the prefix cache
    read: int = 0  # tokens of the prompt, or of prompt and answer after a preemption, in the cache
    generated: int = 0  # tokens of the answer so far, where it is not running
    phase: int = 0  # decode steps of its rank at which it begins a block, modulo their period
    finish: int = 0  # the decode step of its rank at which it is done
    rounds: int = 0  # decode steps its remaining answer takes
    preempted: int = 0
    left: Any = None  # blocks it held when it had to make room
    sending: Any = None  # the pool and the blocks in which its cache lies until it has been sent
    seen: int = 0  # number of the first step of its engine that may have it
    rank_serial: int = 0  # its place among those that its rank let in
    state: str = ""

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


class WaitingRequests:
    """Those that came first, first; or those with the lowest number."""

    __slots__ = ("_backs", "_heap", "_line", "_serial")

    def __init__(self, priorities: bool) -> None:
        self._line: deque[Request] | None = None if priorities else deque()
        self._heap: list[tuple[float, int, Request]] = []
        self._serial = self._backs = 0

    def __len__(self) -> int:
        return len(self._heap) if self._line is None else len(self._line)

    def __iter__(self) -> Iterator[Request]:
        return iter([r for _, _, r in self._heap] if self._line is None else self._line)

    def add(self, request: Request) -> None:
        if self._line is None:
            self._serial += 1
            heappush(self._heap, (request.priority, self._serial, request))
        else:
            self._line.append(request)

    def back(self, request: Request) -> None:
        """To the front of its like: it has been let in before."""
        if self._line is None:
            self._backs += 1
            heappush(self._heap, (request.priority, -self._backs, request))
        else:
            self._line.appendleft(request)

    @property
    def head(self) -> Request | None:
        """Who is next; none where none waits."""
        if self._line:
            return self._line[0]
        return self._heap[0][2] if self._heap else None

    def next_seen(self, number: int) -> int:
        """The first step after that of a number that may have one that came too late for it."""
        found = NEVER
        for request in reversed(self._line or ()):
            if request.seen <= number:
                break
            found = min(found, request.seen)
        for _, _, request in self._heap:
            found = min(found, request.seen) if request.seen > number else found
        return found

    def pop(self) -> Request:
        return heappop(self._heap)[2] if self._line is None else self._line.popleft()
