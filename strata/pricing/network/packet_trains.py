"""Trains: messages as trains of packets through links that serve first come, first served.

The event model below `strata.pricing.network.routes`: it knows links, paths and steps, not fabrics. Few
packets go one by one, which is what a packet simulator does; many go in trains, with the first and the last
packet of a message alone, so that its start and its end are those of single packets and the work does not
grow with bytes.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from strata.base.errors import BadValue

# trains times links of one run: a tenth of a second; five times as many halve the error against ns-3
MOST_EVENTS = 40_000
# of the longest message, whatever its run takes: with half as many, errors against ns-3 reach a tenth
FEWEST_TRAINS = 12


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainPath:
    """Links in series by number: time of a full packet and of the last on each, and latency, in ticks."""

    links: tuple[int, ...]
    full: tuple[float, ...]
    last: tuple[float, ...]
    latency: tuple[float, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Message:
    """A message: ranks, schedule, step, bytes, packets, path, and the path back of its acknowledgement."""

    source: int
    target: int
    schedule: int
    step: int
    size: float
    packets: int
    there: TrainPath
    back: TrainPath


@lru_cache(maxsize=4096)
def train_sizes(packets: int, longest: int) -> tuple[int, ...]:
    """Packets of each train of a message: the first and the last packet alone, equal trains between them.

    >>> train_sizes(3, 1), train_sizes(20, 4), train_sizes(2, 8)
    ((1, 1, 1), (1, 4, 4, 4, 3, 3, 1), (1, 1))
    """
    if longest == 1 or packets <= 2:
        return (1,) * packets
    count = -(-(packets - 2) // longest)
    size, more = divmod(packets - 2, count)
    return (1, *[size + 1] * more, *[size] * (count - more), 1)


def longest_train(messages: Sequence[Message]) -> int:
    """Packets of the longest train: `MOST_EVENTS` in all, or `FEWEST_TRAINS` of the longest message."""
    lengths: dict[int, int] = {}
    for m in messages:
        lengths[m.packets] = lengths.get(m.packets, 0) + len(m.there.links)
    longest, most = 1, max(lengths, default=1)
    while (
        most > FEWEST_TRAINS * longest
        and sum(hops * min(n, n / longest + 2.0) for n, hops in lengths.items()) > MOST_EVENTS
    ):
        longest += 1 + longest // 8
    return longest


@dataclass(eq=False, kw_only=True)
class TrainSimulation:
    """The state of a run: when links are free, which messages wait for their turn, and how far each rank is.

    Rules: a rank begins a step of a schedule when all it sent in the one before is acknowledged and all it
    waits for is in; the messages it sends at once over a link take turns, one train of its own at a time in
    the link's queue; links serve first come, first served; nodes store a packet before they forward it; a
    whole message is acknowledged by one packet.
    """

    messages: Sequence[Message]
    links: int
    ranks: int
    steps: Sequence[int]  # of each schedule
    longest: int
    done: list[float] = field(default_factory=list)  # of each schedule, in ticks

    def __post_init__(self) -> None:
        # an acknowledgement's number is its message's and all messages'
        self._paths = [m.there for m in self.messages] + [m.back for m in self.messages]
        self._free = [0.0] * self.links
        # of the train last queued: when its first and last packet come, and its time
        self._train = [(0.0, 0.0, 0.0)] * self.links
        self._turns: list[deque[int]] = [deque() for _ in range(self.links)]
        # Whole trains to one target from all at once would be a convoy that single packets are not: after the
        # first packets, which go in the order given, each rank goes on with the target that is next after
        # itself.
        self._later: list[list[int]] = [[] for _ in range(self.links)]
        self._ahead = [(m.target - m.source) % self.ranks for m in self.messages]
        self._waiting = [False] * self.links
        self._plan = [train_sizes(m.packets, self.longest) for m in self.messages]
        self._sent = [0] * len(self.messages)
        self._events: list[tuple[float, float, int, int, int, int, float]] = []
        self._number = 0
        self.done = [0.0] * len(self.steps)
        self._sends: list[list[dict[int, list[int]]]] = [[{} for _ in range(n)] for n in self.steps]
        self._waits: list[list[dict[int, int]]] = [[{} for _ in range(n)] for n in self.steps]
        for i, m in enumerate(self.messages):
            self._sends[m.schedule][m.step].setdefault(m.source, []).append(i)
            waits = self._waits[m.schedule][m.step]
            waits[m.target] = waits.get(m.target, 0) + 1
        self._at = [[-1] * self.ranks for _ in self.steps]
        self._open = [[0] * self.ranks for _ in self.steps]

    def run(self) -> None:
        """Play all events; `done` then holds when the last rank has finished each schedule."""
        for schedule in range(len(self.steps)):
            for rank in range(self.ranks):
                self._advance(schedule, rank, 0.0)
        events, paths, serve = self._events, self._paths, self._serve
        while events:
            now, _, _, item, hop, count, until = heapq.heappop(events)
            if hop < 0:  # a train of a rank's own has begun: the next may queue
                self._waiting[item] = False
                self._inject(item, now)
            elif hop == len(paths[item].links):
                self._arrive(item, now)
            else:
                serve(item, paths[item], hop, count, now, until)
        stuck = [(s, r) for s, at in enumerate(self._at) for r, step in enumerate(at) if step < self.steps[s]]
        if stuck:
            schedule, rank = stuck[0]
            raise BadValue(
                f"schedule {schedule} never ends: rank {rank} waits in step {self._at[schedule][rank]}"
            )

    def _serve(self, item: int, path: TrainPath, hop: int, count: int, now: float, until: float) -> float:
        """Queue a train (0: the last packet), there from now to `until`; returns when it begins."""
        link = path.links[hop]
        slot = path.full[hop] if count else path.last[hop]
        start, end = max(self._free[link], now), max(self._free[link], now) + (count or 1) * slot
        since, last, work = self._train[link]
        if last > now and (hop or item >= len(self.messages)):
            # What is still to come of the train before does not hold up a packet that is there.
            start = max(now, start - work * (last - now) / (last - since))
        if count > 1:
            self._train[link] = (
                (now, until, count * slot) if hop else (end - count * slot, end - slot, count * slot)
            )
        else:
            self._train[link] = (now, now, 0.0)
        self._free[link] = end
        if count and hop + 1 == len(path.links):
            return start  # only its last packet matters to who gets a message
        away = path.latency[hop]
        self._number += 1
        # The next link may begin when the first packet is there; the last leaves no earlier than it came.
        left = until + slot if until + slot > end else end
        heapq.heappush(
            self._events, (start + slot + away, start, self._number, item, hop + 1, count, left + away)
        )
        return start

    def _arrive(self, item: int, now: float) -> None:
        count = len(self.messages)
        if item >= count:
            m = self.messages[item - count]
            self._open[m.schedule][m.source] -= 1
            self._advance(m.schedule, m.source, now)
            return
        m = self.messages[item]
        self._waits[m.schedule][m.step][m.target] -= 1
        self._serve(item + count, m.back, 0, 0, now, now)
        self._advance(m.schedule, m.target, now)

    def _advance(self, schedule: int, rank: int, now: float) -> None:
        at, steps, opened = self._at[schedule], self.steps[schedule], self._open[schedule]
        waits, sends = self._waits[schedule], self._sends[schedule]
        while at[rank] < steps and opened[rank] == 0 and (at[rank] < 0 or not waits[at[rank]].get(rank)):
            at[rank] += 1
            if at[rank] == steps:
                self.done[schedule] = max(self.done[schedule], now)
                return
            begun = sends[at[rank]].get(rank, ())
            opened[rank] = len(begun)
            ports = [self.messages[i].there.links[0] for i in begun]
            for i, port in zip(begun, ports, strict=True):
                self._turns[port].append(i)
            for port in ports:
                self._inject(port, now)

    def _inject(self, port: int, now: float) -> None:
        """Queue the next train of a rank's own on a link, and the one after it if that begins at once."""
        turns = self._turns[port]
        later = self._later[port]
        while (turns or later) and not self._waiting[port]:
            if later and (not turns or self._sent[turns[0]]):
                turns.extend(sorted(later, key=self._ahead.__getitem__))
                later.clear()
            item = turns.popleft()
            plan, sent = self._plan[item], self._sent[item]
            self._sent[item] = sent + 1
            if sent + 1 < len(plan):
                (turns if sent or self.longest == 1 else later).append(item)
            # The last train is one packet, perhaps a shorter one: count 0 stands for it.
            count = plan[sent] if sent + 1 < len(plan) else 0
            path = self._paths[item]
            start = self._serve(item, path, 0, count, now, now)
            if start > now:
                self._waiting[port] = True
                self._number += 1
                heapq.heappush(self._events, (start, start - path.full[0], self._number, port, -1, 0, 0.0))
