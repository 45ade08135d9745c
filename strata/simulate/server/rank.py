"""A rank of an engine: the requests it has, the blocks they hold, and what each step does to them.

All that generate gain one token a step (or as many as guesses bring), so that a rank counts its decode steps
and keeps, of each request, the count at which it ends: any number of steps is then one operation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil

from strata.errors import UnknownName, require
from strata.simulate.server.kv_pool import KvPool
from strata.simulate.server.request import Request

EVICTIONS = ("recompute", "none")
ROLES = ("both", "prefill", "decode")
NEVER = 2**62  # no step of this number is ever run


@dataclass(frozen=True, kw_only=True)
class Scheduling:
    """What an engine lets into a step."""

    tokens: int  # of a step, of all its sequences
    sequences: int  # that a rank runs at once
    mixed: bool = True  # prompts in the steps that generate; else these wait for steps that only read
    eviction: str = "recompute"  # or none: a request has blocks for its whole answer from the beginning
    role: str = "both"  # prefill: requests leave with their first token; decode: they come with it
    priorities: bool = False  # the lowest number first; else in order of arrival
    request_time: float = 0.0  # of a request outside all steps [s]
    tokens_per_step: float = 1.0  # of a sequence that generates: more than 1 where guesses are accepted
    ahead: bool = False  # a step is chosen while the one before it runs, and knows nothing of what that does
    looks: int = 1  # an engine looks for requests before steps whose numbers this divides
    # steps that prompts wait beside those that generate, unless so many tokens of prompts are there, or every
    # rank has some
    wait_steps: int = 0
    wait_tokens: int = 0
    whole_prompt: bool = False  # a request is let in where all of its prompt has blocks, not its first chunk

    def __post_init__(self) -> None:
        for kind, value, choices in (("eviction", self.eviction, EVICTIONS), ("role", self.role, ROLES)):
            if value not in choices:
                raise UnknownName(kind, value, choices)
        require(self.tokens >= 1, "a step must have room for a token", tokens=self.tokens)
        require(self.sequences >= 1, "a rank must run a sequence", sequences=self.sequences)


class EngineRank:
    """The requests of one rank, and the blocks they hold."""

    __slots__ = (
        "_evicted",
        "_heap",
        "_leaving",
        "_phases",
        "_serial",
        "_taken",
        "context",
        "count",
        "generating",
        "pool",
        "preemptions",
        "reading",
        "rules",
        "running",
        "waiting",
    )

    def __init__(self, pool: KvPool, rules: Scheduling) -> None:
        self.pool, self.rules = pool, rules
        self.waiting: deque[Request] | list[tuple[float, int, Request]] = [] if rules.priorities else deque()
        self.reading: list[tuple[Request, int]] = []  # prompts of this step, and how many tokens of each
        self.running: dict[int, Request] = {}  # all that hold blocks, in the order they came
        self.generating = 0
        self.context = 0.0  # tokens in the caches of those that generate
        self.count = 0  # decode steps so far
        self.preemptions = 0
        self._serial = 0
        self._taken = False  # whether blocks of the next decode step are taken
        self._evicted = False  # whether some made room for the next step: then it lets nobody in
        self._leaving: list[tuple[Request, int, int]] = []  # done, but their blocks are not known to be free
        self._heap: list[tuple[int, int, Request]] = []  # those that generate, by the step that ends them
        cycle = max(round(pool.page / rules.tokens_per_step), 1)
        # how many begin a block at steps of this number; none where nothing grows
        self._phases = [0] * (cycle if cycle < 2**20 and rules.eviction != "none" else 0)

    @property
    def outstanding(self) -> int:
        return len(self.waiting) + len(self.running)

    # -- what waits

    def enqueue(self, request: Request) -> None:
        request.state = "waiting"
        self._serial += 1
        if isinstance(self.waiting, deque):
            self.waiting.append(request)
        else:
            heappush(self.waiting, (request.priority, self._serial, request))

    def _back(self, request: Request) -> None:
        """To the front: it has been let in before."""
        if isinstance(self.waiting, deque):
            self.waiting.appendleft(request)
        else:
            heappush(self.waiting, (request.priority, -self._serial, request))

    # -- what the next step has

    def tokens_waiting(self, number: int, most: int) -> int:
        """Tokens of prompts that nobody has begun to read and the step of a number could have; to `most`."""
        tokens = 0
        for entry in self.waiting:
            request = entry if isinstance(entry, Request) else entry[2]
            if request.seen > number or tokens >= most:
                break
            tokens += request.prompt
        return tokens

    def read_prompts(self, clock: float, number: int = 0, admits: bool = True) -> tuple[int, float]:
        """Choose the prompts of the next step; their tokens, and the sum of what each of these attends to."""
        budget = self.rules.tokens - (self.generating if self.rules.mixed else 0)
        tokens, attended = 0, 0.0
        chosen: list[tuple[Request, int]] = []
        for request, _ in self.reading:  # begun before
            if request.state != "reading":  # made room for one before it
                continue
            chunk = max(min(request.prompt - request.read, budget), 0)
            chunk = chunk if self._grow(request, chunk) else 0
            chosen.append((request, chunk))
            budget, tokens = budget - chunk, tokens + chunk
            attended += chunk * (request.read + 0.5 * chunk)
        waiting = self.waiting
        places = 0 if self._evicted or not admits else self.rules.sequences - len(self._leaving)
        while waiting and budget > 0 and len(self.running) < places:
            head = waiting[0] if isinstance(waiting, deque) else waiting[0][2]
            chunk = self._admit(head, budget) if head.seen <= number else -1
            if chunk < 0:
                break
            if isinstance(waiting, deque):
                waiting.popleft()
            else:
                heappop(waiting)
            if head.scheduled < 0.0:
                head.scheduled = clock
            if chunk:
                chosen.append((head, chunk))
                budget, tokens = budget - chunk, tokens + chunk
                attended += chunk * (head.read + 0.5 * chunk)
        self.reading = [(r, c) for r, c in chosen if r.state == "reading"]
        return tokens, attended

    def _admit(self, request: Request, budget: int) -> int:
        """Let a request in: tokens of its prompt for this step, 0 where it brings its cache along, -1 where
        it must wait for blocks.
        """
        prompt = request.prompt
        brings = self.rules.role == "decode" and not request.preempted
        known = prompt if brings else self.pool.cached(request)
        chunk = min(prompt - known, budget)
        reach = request.input + request.output if self.rules.eviction == "none" else known + chunk
        found = self.pool.match(request, reach, prompt if self.rules.whole_prompt else 0)
        if found < 0:
            return -1
        request.read = known
        if request.first < 0.0:
            request.cached = found
        self._serial += 1
        request.rank_serial = self._serial
        self.running[self._serial] = request
        request.state = "reading"
        if brings:
            request.generated = 1
            self._generate(request)
        return chunk

    def _grow(self, request: Request, chunk: int) -> bool:
        if self.rules.eviction == "none" or not chunk:
            return True
        pool = self.pool
        more = pool.blocks_of(request.read + chunk) - pool.blocks_of(request.read)
        while not pool.take(more):
            if self.running[next(reversed(self.running))] is request:
                return False
            self._preempt_last()
        request.own += more
        return True

    def take_decode_blocks(self) -> None:
        """Blocks that the next decode step begins, at the cost of those that came last."""
        if self._phases:
            while self.generating and not self.pool.take(self._phases[self.count % len(self._phases)]):
                self._preempt_last()
            self._taken = self.generating > 0

    def _preempt_last(self) -> None:
        """Put the request that came last back to the waiting ones: its cache is to be computed again."""
        _, request = self.running.popitem()
        own, tokens = request.own, request.read
        if request.state == "generating":
            made = int((self.count - (request.finish - request.rounds)) * self.rules.tokens_per_step)
            own = self._held(request)
            self._stop(request)
            made = min(made, request.output - 1 - request.generated)
            request.generated, tokens = request.generated + made, tokens + made
        self.pool.leave(request, own, tokens)
        self._evicted = True
        request.preempted += 1
        self.preemptions += 1
        request.state, request.read = "waiting", 0
        self._back(request)

    # -- those that generate

    def _generate(self, request: Request) -> None:
        """From the next step on, a token a step until its answer is whole."""
        request.state = "generating"
        request.rounds = ceil((request.output - request.generated) / self.rules.tokens_per_step)
        request.finish = self.count + request.rounds
        heappush(self._heap, (request.finish, request.rank_serial, request))
        self.generating += 1
        self.context += request.read
        if self._phases:
            self._phases[self._phase(request)] += 1

    def _phase(self, request: Request) -> int:
        """The decode steps at which it begins a block, modulo their period."""
        free = -request.read % self.pool.page  # tokens its last block still takes
        return (request.finish - request.rounds + int(free / self.rules.tokens_per_step)) % len(self._phases)

    def _held(self, request: Request) -> int:
        """Blocks of its own that a request holds which generates."""
        if not self._phases:
            return request.own
        began, period = request.finish - request.rounds, len(self._phases)
        first = began + (self._phase(request) - began) % period  # the first step that begins a block
        count = self.count + self._taken
        begun = (count - first - 1) // period + 1 if count > first else 0
        return request.own + begun

    def _stop(self, request: Request) -> None:
        """It generates no longer."""
        done = self.count - (request.finish - request.rounds)
        self.generating -= 1
        self.context -= request.read + done * self.rules.tokens_per_step
        if self._phases:
            self._phases[self._phase(request)] -= 1
        if not self.generating:
            self.context = 0.0

    def steps_ahead(self) -> int:
        """Decode steps until one ends an answer or the blocks run out; those of the first are taken."""
        heap = self._heap
        while heap[0][2].rank_serial != heap[0][1] or heap[0][2].state != "generating":
            heappop(heap)
        most, room, period = heap[0][0] - self.count, self.pool.free + self.pool.evictable, len(self._phases)
        if not period or (most // period + 1) * self.generating <= room:
            return most
        cycles = max(room // self.generating - 1, 0)
        steps, room = 1 + cycles * period, room - cycles * self.generating
        while steps < most:
            room -= self._phases[(self.count + steps) % period]
            if room < 0:
                break
            steps += 1
        return min(steps, most)

    def advance(self, steps: int, clock: float, done: Callable[[Request], None]) -> None:
        """Some decode steps are over at `clock`, and with the last of them prompts are read so far."""
        self._taken = self._evicted = False
        if self.generating and steps:
            if steps > 1 and self._phases:
                self._take_later_blocks(steps)
            self.count += steps
            self.context += self.generating * steps * self.rules.tokens_per_step
            self._finish(clock, done)
        if self.reading:
            self._read_on(clock, done)

    def _take_later_blocks(self, steps: int) -> None:
        """Blocks that decode steps after the first began."""
        period = len(self._phases)
        whole, rest = divmod(steps - 1, period)
        begun = whole * self.generating
        begun += sum([self._phases[(self.count + 1 + i) % period] for i in range(rest)])
        taken = self.pool.take(begun)
        assert taken, "decode steps ran past the blocks there are"

    def _finish(self, clock: float, done: Callable[[Request], None]) -> None:
        heap = self._heap
        while heap and heap[0][0] <= self.count:
            _, serial, request = heappop(heap)
            if request.rank_serial == serial and request.state == "generating":
                own, tokens = self._held(request), request.input + request.output - 1
                self._stop(request)
                self._leave(request, own, tokens, clock, done)

    def _leave(
        self, request: Request, own: int, tokens: int, clock: float, done: Callable[[Request], None]
    ) -> None:
        del self.running[request.rank_serial]
        if self.rules.ahead:
            self._leaving.append((request, own, tokens))
        else:
            self.pool.release(request, own, tokens)
        request.state, request.last = "done", clock
        done(request)

    def catch_up(self, number: int) -> int:
        """After the step of a number was chosen: the number of the next that may let in somebody more, for
        what was not known to be free, or because it came too late for this one.
        """
        found = NEVER
        if self._leaving:
            found = number + 1
            for request, own, tokens in self._leaving:
                self.pool.release(request, own, tokens)
            self._leaving.clear()
        waiting = self.waiting
        for entry in reversed(waiting) if waiting else ():
            seen = entry.seen if isinstance(entry, Request) else entry[2].seen
            if seen <= number:
                break
            found = min(found, seen)
        return found

    def _read_on(self, clock: float, done: Callable[[Request], None]) -> None:
        still: list[tuple[Request, int]] = []
        for request, chunk in self.reading:
            request.read += chunk
            if request.read < request.prompt:
                still.append((request, chunk))
                continue
            self.pool.share(request)
            if request.first < 0.0:
                request.first = clock
            request.generated += 1  # the step that reads the last of a prompt brings a token
            if request.generated >= request.output or self.rules.role == "prefill":
                self._leave(request, request.own, request.read, clock, done)
            else:
                self._generate(request)
        self.reading = still
