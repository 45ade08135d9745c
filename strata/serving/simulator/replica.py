"""An engine that steps by itself: ranks that step together, and the time of what they do.

Between two events nothing but the length of the caches changes, so that many decode steps are one event; a
request that arrives in between cuts them at the end of the step under way.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING

from strata.serving.simulator.kv_pool import KvPool
from strata.serving.simulator.rank import EngineRank
from strata.serving.simulator.scheduling import NEVER, Request, Scheduling

if TYPE_CHECKING:
    from strata.serving.simulator.step_table import StepTable

BUSY = attrgetter("outstanding")
NOTHING = (0, 0.0)  # tokens that a rank reads, and what they attend to
SPREAD = 1.25  # times the mean load that a replica or rank may have and still get a request for its cache


class Replica:
    r"""Ranks that step together, each with its own cache.

    Of a step, each rank waits for the fullest in what it does for itself and in exchanges, and all share what
    experts do for each other's tokens:

    .. math:: t = \max_r \left(T_r - \Delta(\tau_r, \bar\tau)\right)

    T of a step in which every rank had what rank r has, Δ what experts save of it where ranks have
    :math:`\bar\tau` tokens on average instead of its :math:`\tau_r`. The fullest of those that generate is
    taken to have the most sequences and the most context of any. Lanes of a pipeline take turns, so that a
    round waits for the fullest of them too.
    """

    def __init__(self, index: int, table: StepTable, pools: list[KvPool], rules: Scheduling) -> None:
        self.index, self.table, self.rules = index, table, rules
        self._informed = not rules.ahead and not rules.wait_steps and rules.looks == 1  # of all before a step
        self.taken_in = 0.0  # when the last prompt that came is tokenised [s]
        self.ranks = [EngineRank(pool, rules) for pool in pools]
        self._share = len(pools) / max(table.lanes, len(pools))  # of the whole system
        self._energy = self._lead = 0.0  # of the event under way; before its first step [s]
        self._turn = -1  # the rank that took the last request, where each does in turn
        self.busy = self.energy = 0.0
        self.outstanding = 0  # requests that wait or run
        self.steps = 0  # of the event under way; 0: it waits for requests
        self.total_steps = 0
        self.started = self.until = 0.0
        self.number = 0  # of the next step
        self.held = NEVER  # number of the step since which prompts wait for more of them
        self.version = 0  # of the event under way: one that was cut is another

    def total_energy(self, end: float) -> float:
        """Of its share of the system up to `end` [J]: what its steps took, and idle power in between."""
        return self.energy + self.table.idle * self._share * max(end - self.busy, 0.0)

    def kv_use(self, end: float) -> tuple[float, float]:
        """Share of blocks held up to `end`, on average and at most of any rank."""
        blocks = sum([r.pool.blocks for r in self.ranks])
        most = max(r.kv_largest / r.pool.blocks for r in self.ranks)
        return (sum(r.kv_time for r in self.ranks) / (blocks * end) if end > 0.0 else 0.0), most

    def cached(self, request: Request) -> int:
        """Tokens of its prompt that one of the ranks has in its cache."""
        return max(r.pool.cached(request) for r in self.ranks)

    def fits(self, request: Request) -> bool:
        """Whether the blocks of a rank could hold it, prompt and answer, with nothing else."""
        pool = self.ranks[0].pool
        return pool.blocks_of(request.input + request.output) <= pool.blocks

    def enqueue(self, request: Request, now: float) -> None:
        """A request for a rank; decode steps under way end where the engine next looks for requests."""
        rank = self.ranks[0] if len(self.ranks) == 1 else self._rank_for(request)
        rank.enqueue(request)
        self.outstanding += 1
        request.seen = self.number
        if not self.steps:
            return
        running, looks = self._running(now), self.rules.looks
        later = self.number + max(running, 1) + (self.rules.ahead and running > 0)
        request.seen = -(-later // looks) * looks
        if request.seen - self.number < self.steps:
            self._end_with(request.seen - self.number)
            self.version += 1

    def _rank_for(self, request: Request) -> EngineRank:
        """The rank with the fewest; each in turn; or the one that has most of its prompt in its cache, unless
        it has far more to do than others.
        """
        ranks, policy = self.ranks, self.rules.rank_router
        if policy == "round-robin":
            self._turn = (self._turn + 1) % len(ranks)
            return ranks[self._turn]
        if policy == "prefix-aware" and request.prefix:
            best = max(ranks, key=lambda r: (r.pool.cached(request), -r.outstanding))
            if best.pool.cached(request) and best.outstanding <= SPREAD * (1 + self.outstanding / len(ranks)):
                return best
        return min(ranks, key=BUSY)

    def _running(self, now: float) -> int:
        """Which of the steps under way runs now; 0 where the first begins only now."""
        if self.steps == 1 or now <= self.started:
            return int(now > self.started)
        passed = now - self.started - self._lead
        steps = int(passed / (self.until - self.started - self._lead) * self.steps)
        steps = min(max(steps, 1), self.steps)
        while steps > 1 and self._decode(steps - 1)[0] >= passed:
            steps -= 1
        while steps < self.steps and self._decode(steps)[0] < passed:
            steps += 1
        return steps

    def _end_with(self, steps: int) -> None:
        time, self._energy = self._decode(steps)
        self.steps, self.until = steps, self.started + self._lead + time

    # -- prices

    def _decode(self, steps: int) -> tuple[float, float]:
        """Time and energy of some decode steps after one another."""
        ranks, table, growth = self.ranks, self.table, self.rules.tokens_per_step
        if len(ranks) == 1:
            return table.decode_steps(ranks[0].generating, ranks[0].context, steps, growth)
        running = [r for r in ranks if r.generating]
        most = max([r.generating for r in running])
        each, reach = (
            sum(v) / len(ranks) for v in zip(*[(r.generating, r.context) for r in ranks], strict=True)
        )
        time, left, passed = 0.0, steps, 0
        while left:
            here, rank = _longest(running, passed * growth, left, growth)
            context, pace = rank.context + rank.generating * passed * growth, rank.generating / most
            time += table.decode_steps(most, context, here, growth * pace)[0]
            passed, left = passed + here, left - here
        if table.shares:
            mean = self._fullest_lane([r.generating for r in ranks])
            each_step = 1 + self.rules.drafted
            time -= steps * table.saved(most * each_step, mean * each_step, False)
        return time, self._spent(time, table.decode_steps(each, reach, steps, growth))

    def _mixed(self, read: list[tuple[int, float]]) -> tuple[float, float]:
        """Time and energy of one step in which ranks read so many tokens that attend to so many in all."""
        ranks, table, mixed = self.ranks, self.table, self.rules.mixed
        if len(ranks) == 1:
            (tokens, attended), rank = read[0], ranks[0]
            return table.step(rank.generating, rank.context, tokens, attended, not mixed)
        each, longest, every = 1 + self.rules.drafted, 0.0, []
        total, reach, tokens_read, attends = 0, 0.0, 0, 0.0
        quiet, quiet_reach = 0, 0.0  # the fullest of those that only generate
        times: list[tuple[float, float]] = []  # of steps in which all had what a rank has, and its tokens
        for rank, (tokens, attended) in zip(ranks, read, strict=True):
            n, context = (0, 0.0) if tokens and not mixed else (rank.generating, rank.context)
            own = n * each + tokens
            every.append(own)
            total, reach = total + n, reach + context
            tokens_read, attends = tokens_read + tokens, attends + attended
            if tokens:
                times.append((table.step(n, context, tokens, attended)[0], own))
            else:
                quiet, quiet_reach = max(n, quiet), max(context, quiet_reach)
        if quiet:
            times.append((table.decode_steps(quiet, quiet_reach, 1)[0], quiet * each))
        shared, count = self._fullest_lane(every) if table.shares else 0.0, len(ranks)
        for time, here in times:
            if time > longest or here < shared:  # experts with fewer tokens than these save none of it
                longest = max(longest, time - (table.saved(here, shared, True) if shared else 0.0))
        mean = table.step(total / count, reach / count, tokens_read / count, attends / count)
        return longest, self._spent(longest, mean)

    def _fullest_lane(self, tokens: list[int]) -> float:
        """Tokens of a rank, on average over those that share experts; the most of any lane."""
        stages = self.table.stages
        if stages <= 1 or len(tokens) % stages:
            return sum(tokens) / len(tokens)
        return max([sum(tokens[i::stages]) for i in range(stages)]) * stages / len(tokens)

    def _spent(self, time: float, mean: tuple[float, float]) -> float:
        """Energy of what ranks do, and of waiting for the fullest."""
        return mean[1] + self.table.idle * max(time - mean[0], 0.0)

    # -- events

    def start(self, now: float) -> bool:
        """Begin the next step, or the decode steps until something changes; whether there is any."""
        rules, lead, load = self.rules, 0.0, 0.0
        while True:
            reads, read, settled = self._choose(now)
            told = NEVER if self._informed else min([r.catch_up(self.number) for r in self.ranks])
            told = min(told, self.held + rules.wait_steps)
            if reads or any([r.generating for r in self.ranks]):
                break
            alone = [r for r in self.ranks if r.made_room]  # for blocks that those before it left since
            for rank in alone:
                rank.made_room = False
            if told == NEVER and not alone:
                break
            # an engine that has nothing to do does not wait for a step to end
            self.number = min(told, self.number + 1) if alone else told
        for rank in self.ranks:
            if rank.swapping or rank.loading:
                lead, load = max(lead, rank.swapping), max(load, rank.loading)
                rank.swapping = rank.loading = 0.0
        self.started, self._lead = now, lead
        self.version += 1
        if reads:
            self.steps = 1
            time, self._energy = self._mixed(read)
            self.until = now + lead + (time if time > load else load)
            return True
        ahead = [r.steps_ahead() for r in self.ranks if r.generating]
        if not ahead:
            self.steps = 0
            return False
        self._end_with(min(told - self.number, *ahead) if settled else 1)
        return True

    def _choose(self, now: float) -> tuple[bool, list[tuple[int, float]], bool]:
        """Whether the next step reads, what each rank reads, whether the next may follow unchosen."""
        mixed, reads, read, settled = self.rules.mixed, False, [], not self.rules.single_steps
        admits = not self.rules.wait_steps or not self._holds()
        for rank in self.ranks:
            if mixed:
                rank.take_decode_blocks()
            nothing = not rank.reading and rank.outstanding == len(rank.running)
            chosen = NOTHING if nothing else rank.read_prompts(now, self.number, admits)
            read.append(chosen)
            if chosen[0]:
                reads = True
            elif not mixed:
                rank.take_decode_blocks()
            if rank.made_room:
                settled = False
        return reads, read, settled

    def _holds(self) -> bool:
        """Whether prompts wait for others to be read together with."""
        rules, since = self.rules, min(self.held, self.number)
        self.held = NEVER
        if not any([r.generating for r in self.ranks]):
            return False
        there = [any(r.seen <= self.number for r in rank.waiting) for rank in self.ranks]
        if not any(there) or all(there) or self.number - since >= rules.wait_steps:
            return False
        self.held = since
        return True

    def end(self, done: Callable[[Request], None]) -> None:
        """The event under way is over."""
        mixed, elapsed, left = self.rules.mixed, self.until - self.started, 0
        for rank in self.ranks:
            waits = not mixed and any([chunk for _, chunk in rank.reading])
            rank.advance(0 if waits else self.steps, self.until, elapsed, done)
            left += rank.outstanding
        self.outstanding = left
        self.busy += elapsed
        self.energy += self._energy * self._share
        if self._lead:
            self.energy += self.table.idle * self._share * self._lead
        self.total_steps += self.steps
        self.number += self.steps
        self.steps = 0


def _longest(ranks: list[EngineRank], grown: float, steps: int, growth: float) -> tuple[int, EngineRank]:
    """The rank with the most context after each sequence has `grown`, and for how many of the next steps it
    is that: contexts grow as lines, so that each rank has the most during one stretch of steps.
    """

    def ahead(more: float) -> EngineRank:
        return max(ranks, key=lambda r: (r.context + r.generating * (grown + more), r.generating))

    first = ahead(0.0)
    if steps == 1 or ahead(growth * (steps - 1)) is first:
        return steps, first
    low, high = 1, steps - 1
    while low < high:
        middle = (low + high + 1) // 2
        if ahead(growth * (middle - 1)) is first:
            low = middle
        else:
            high = middle - 1
    return low, first
