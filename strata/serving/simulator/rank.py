"""A rank of an engine: the requests it has, the blocks they hold, and what each step does to them.

All that generate gain one token a step (or as many as guesses bring), so that a rank counts its decode steps
and keeps, of each request, the count at which it ends: any number of steps is then one operation.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import ceil

from strata.serving.simulator.kv_pool import KvPool, block_cycle
from strata.serving.simulator.scheduling import NEVER, Request, Scheduling, WaitingRequests


class EngineRank:
    """The requests of one rank, and the blocks they hold."""

    def __init__(self, pool: KvPool, rules: Scheduling) -> None:
        self.pool, self.rules = pool, rules
        self.waiting = WaitingRequests(rules.priorities)
        self.reading: list[tuple[Request, int]] = []  # prompts of this step, and how many tokens of each
        self.running: dict[int, Request] = {}  # all that hold blocks, in the order they came
        self.generating = self._serial = self.outstanding = 0  # the last: all that wait or run
        self.context = 0.0  # tokens in the caches of those that generate
        self.count = 0  # decode steps so far
        self.preemptions = 0
        self.made_room = False  # whether one made room for others since the last step
        self.loading = self.swapping = 0.0  # of the next step, from tiers; from and to them [s]
        self.kv_time, self.kv_largest = 0.0, 0  # blocks held, times seconds; and at most
        self._leaving: list[tuple[Request, int, int]] = []  # done, but their blocks are not known to be free
        self._swapped: dict[Request, int] = {}  # tokens in the caches of those that a tier keeps
        self._taken = False  # whether blocks of the next decode step are taken
        self._heap: list[tuple[int, int, Request]] = []  # those that generate, by the step that ends them
        cycle, self._stride = block_cycle(pool.page, rules.tokens_per_step)
        # how many begin blocks at steps of this number; none where nothing grows
        self._phases = [0] * (cycle if cycle < 2**20 and rules.eviction != "none" else 0)
        self._full: set[Request] = set()  # those that generate and have blocks for their whole answer

    # -- what waits

    def enqueue(self, request: Request) -> None:
        request.state = "waiting"
        self.outstanding += 1
        self.waiting.add(request)

    # -- what the next step has

    def read_prompts(self, clock: float, number: int = 0, admits: bool = True) -> tuple[int, float]:
        """Choose the prompts of a step; their tokens, and the sum of what each of these attends to."""
        rules, waiting = self.rules, self.waiting
        each, came = 1 + rules.drafted, False
        budget = rules.tokens - (self.generating * each if rules.mixed else 0)
        chosen: list[tuple[Request, int]] = []
        for request, _ in self.reading:  # begun before
            if request.state != "reading":  # made room for one before it
                continue
            chunk = max(min(request.prompt - request.read, budget), 0)
            chosen.append((request, chunk := chunk if self._grow(request, chunk) else 0))
            budget -= chunk
        places = rules.sequences - len(self._leaving)
        while budget > 0 and admits and not self.made_room:
            head = waiting.head
            if head is None or head.seen > number:
                break
            chunk = self._admit(head, budget) if len(self.running) < places else -1
            if chunk < 0:
                break
            waiting.pop()
            if head.scheduled < 0.0:
                head.scheduled = clock
            if chunk:
                chosen.append((head, chunk))
            else:
                came = True
                head.first = head.first if head.first >= 0.0 else clock
            budget -= chunk or (each if rules.mixed else 0)
        tokens, attended, self.reading = 0, 0.0, []
        for request, chunk in chosen:
            if request.state != "reading":
                continue
            self.reading.append((request, chunk))
            tokens += chunk
            attended += chunk * (request.read + 0.5 * chunk)
            if not chunk and came:  # one that came after it, whose blocks it may have in the next step
                self.made_room = True
        return tokens, attended

    def _admit(self, request: Request, budget: int) -> int:
        """Let a request in: tokens of its prompt to read, 0 if it brings its cache, -1 if it must wait."""
        swapped = request in self._swapped
        prompt = request.prompt
        brings = self.rules.role == "decode" and not request.preempted
        if (swapped or brings) and self.rules.mixed and budget < 1 + self.rules.drafted:
            return -1
        if swapped:
            return self._resume(request)
        known, load = (prompt, 0.0) if brings else self.pool.found(request)
        chunk = min(prompt - known, budget)
        reach = request.input + request.output if self.rules.eviction == "none" else known + chunk
        if (brings and not self._has_room(request, reach)) or self.pool.match(request, reach, prompt) < 0:
            return -1
        self.loading += load
        request.read = known
        if request.first < 0.0 and not brings:
            request.cached = known
        self._enter(request)
        request.state = "reading"
        if brings:
            request.generated = max(request.generated, 1)
            self._generate(request)
        return chunk

    def _has_room(self, request: Request, tokens: int) -> bool:
        """Whether a cache of so many tokens may come and grow in the same step."""
        pool = self.pool
        blocks, most = pool.blocks_of(tokens), pool.blocks_of(request.input + request.output)
        return min(blocks + self._stride, most) <= pool.free + pool.evictable

    def _enter(self, request: Request) -> None:
        self._serial += 1
        request.rank_serial = self._serial
        self.running[self._serial] = request

    def _resume(self, request: Request) -> int:
        """Bring the cache of a request back that made room, so that it goes on: 0, or -1 without blocks."""
        tokens, tiers = self._swapped[request], self.pool.tiers
        if not self._has_room(request, tokens):
            return -1
        assert tiers is not None
        self.pool.take(blocks := self.pool.blocks_of(tokens))
        self.swapping += tiers.swap_in(request)
        del self._swapped[request]
        request.read, request.own, request.shared = tokens, blocks, 0
        self._enter(request)
        self._generate(request)
        return 0

    def _grow(self, request: Request, chunk: int) -> bool:
        if self.rules.eviction == "none" or not chunk:
            return True
        pool = self.pool
        more = pool.blocks_of(request.read + chunk) - pool.blocks_of(request.read)
        while not pool.take(more):
            other = self._victim()
            if other is request:
                return False
            self._preempt(other)
        request.own += more
        return True

    def take_decode_blocks(self) -> None:
        """Blocks that the next decode step begins, at the cost of those that came last."""
        if self._phases:
            at, stride, kept = self.count % len(self._phases), self._stride, self.pool.evictable
            while self.generating and not self.pool.take(self._phases[at] * stride):
                self._preempt(self._victim())
            self._taken = True
            if self.pool.evictable < kept and not self.rules.mixed:  # what waits finds another cache now
                self.made_room = True

    def _victim(self) -> Request:
        """Who is to make room: the one that came last, of those with the highest number."""
        if self.rules.priorities:
            return max(self.running.values(), key=lambda r: (r.priority, r.rank_serial))
        return self.running[next(reversed(self.running))]

    def _preempt(self, request: Request) -> None:
        """Put a request back to the waiting ones: its cache is to be computed again, or kept in a tier."""
        del self.running[request.rank_serial]
        own, tokens = request.own, request.read
        if request.state == "generating":
            done = (self.count - (request.finish - request.rounds)) * self.rules.tokens_per_step
            own = self._held(request)
            self._stop(request)
            request.generated = min(request.generated + int(done), request.output - 1)
            tokens = request.prompt - 1  # its last token is not in the cache yet
            if self.rules.eviction == "swap":
                self._swap_out(request, own)
        self.pool.leave(request, own, 0 if request in self._swapped else tokens)
        request.preempted += 1
        self.preemptions += 1
        self.made_room = True
        request.state, request.read = "waiting", 0
        self.waiting.back(request)

    def _swap_out(self, request: Request, own: int) -> None:
        pool = self.pool
        tokens = request.input + request.generated - 1  # its last token is not in the cache yet
        time = -1.0 if pool.tiers is None else pool.tiers.swap_out(request, own + pool.shared_blocks(request))
        if time >= 0.0:
            self.swapping += time
            self._swapped[request] = tokens

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
            self._begin_growing(request)

    def _begin_growing(self, request: Request) -> None:
        """Blocks that it begins from now on are those of a phase, until it has all it may need."""
        period = len(self._phases)
        free = -request.read % self.pool.page  # tokens its last block still takes
        phase = request.phase = (self.count + int(free / self.rules.tokens_per_step)) % period
        if self.rules.tokens_per_step != 1.0:
            most = self._begins(request)
            full = self.count + (phase - self.count) % period + most * period
            if full < request.finish:
                if not most:
                    self._full.add(request)
                    return
                heappush(self._heap, (full, request.rank_serial, request))
        self._phases[phase] += 1
        if self._taken and phase == self.count % period:  # it comes after the others took theirs
            taken = self.pool.take(self._stride)
            assert taken, "a request came in without room to grow"

    def _begins(self, request: Request) -> int:
        """How often it may begin blocks until it has those of its whole prompt and answer."""
        pool = self.pool
        most = pool.blocks_of(request.input + request.output) - pool.shared_blocks(request)
        return max(most - request.own, 0) // self._stride

    def _held(self, request: Request) -> int:
        """Blocks of its own that a request holds which generates."""
        if not self._phases:
            return request.own
        began, period = request.finish - request.rounds, len(self._phases)
        first = began + (request.phase - began) % period  # the first step that begins a block
        count = self.count + self._taken
        begun = (count - first - 1) // period + 1 if count > first else 0
        if self.rules.tokens_per_step != 1.0:
            begun = min(begun, self._begins(request))
        return request.own + begun * self._stride

    def _stop(self, request: Request) -> None:
        """It generates no longer."""
        done = self.count - (request.finish - request.rounds)
        self.generating -= 1
        self.context -= request.read + done * self.rules.tokens_per_step
        if self._full and request in self._full:
            self._full.remove(request)
        elif self._phases:
            self._phases[request.phase] -= 1
        if not self.generating:
            self.context = 0.0

    def steps_ahead(self) -> int:
        """Decode steps until one ends an answer or the blocks run out; those of the first are taken."""
        heap = self._heap
        while heap[0][2].rank_serial != heap[0][1] or heap[0][2].state != "generating":
            heappop(heap)
        most, period, stride = heap[0][0] - self.count, len(self._phases), self._stride
        room = self.pool.free + (0 if self.waiting else self.pool.evictable)
        if not period or (most // period + 1) * self.generating * stride <= room:
            return most
        cycles = max(room // (self.generating * stride) - 1, 0)
        steps, room = 1 + cycles * period, room - cycles * self.generating * stride
        while steps < most:
            room -= self._phases[(self.count + steps) % period] * stride
            if room < 0:
                break
            steps += 1
        return min(steps, most)

    def advance(self, steps: int, clock: float, elapsed: float, done: Callable[[Request], None]) -> None:
        """Decode steps are over at `clock`, `elapsed` after they began, and prompts are read so far."""
        pool, self._taken, self.made_room = self.pool, False, False
        used = pool.used
        begun = self._take_later_blocks(steps) if steps > 1 and self._phases and self.generating else 0
        self.kv_time += elapsed * (used + 0.5 * begun)
        self.kv_largest = max(self.kv_largest, used + begun)
        if steps and self.generating:
            self.count += steps
            self.context += self.generating * steps * self.rules.tokens_per_step
            self._finish(clock, done)
        if self.reading:
            self._read_on(clock, done)

    def _take_later_blocks(self, steps: int) -> int:
        """Blocks that decode steps after the first began."""
        period = len(self._phases)
        whole, rest = divmod(steps - 1, period)
        begun = whole * (self.generating - len(self._full))
        if rest:
            first = (self.count + 1) % period
            begun += sum(self._phases[first : first + rest]) + sum(
                self._phases[: max(first + rest - period, 0)]
            )
        begun *= self._stride
        taken = self.pool.take(begun)
        assert taken, "decode steps ran past the blocks there are"
        return begun

    def _finish(self, clock: float, done: Callable[[Request], None]) -> None:
        heap = self._heap
        while heap and heap[0][0] <= self.count:
            _, serial, request = heappop(heap)
            if request.rank_serial == serial and request.state == "generating":
                if request.finish > self.count:
                    self._phases[request.phase] -= 1
                    self._full.add(request)
                    continue
                own, tokens = self._held(request), request.input + request.output - 1
                self._stop(request)
                self._leave(request, own, tokens, clock, done)

    def _leave(
        self, request: Request, own: int, tokens: int, clock: float, done: Callable[[Request], None]
    ) -> None:
        del self.running[request.rank_serial]
        self.outstanding -= 1
        if self.rules.role == "prefill" and request.output > 1:  # it goes on elsewhere, with its cache
            request.sending = self.pool, own, tokens
        elif self.rules.ahead:
            self._leaving.append((request, own, tokens))
        else:
            self.pool.release(request, own, tokens)
        request.state, request.last = "done", clock
        done(request)

    def catch_up(self, number: int) -> int:
        """The number of the next step that may let in more than that of a number, which was chosen."""
        if not self._leaving:
            return NEVER if self.outstanding == len(self.running) else self.waiting.next_seen(number)
        while self._leaving:
            self.pool.release(*self._leaving.pop())
        return number + 1

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
