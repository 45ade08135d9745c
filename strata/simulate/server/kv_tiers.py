"""Where caches go that a device has no room for: host memory, CXL, disk; loaded, or read again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strata.arrays import Number
from strata.hardware.system import System
from strata.params import Sources, override, quantity, read_record, remembered, text


@dataclass(frozen=True, eq=False, kw_only=True)
class KvTier:
    """A place for caches beside each device."""

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    capacity: Number = quantity("B", "of one device's caches", positive=True)
    read: Number = quantity("B/s", "rate to a device", positive=True)
    write: Number = quantity("B/s", "rate from a device", positive=True)
    latency: Number = quantity("s", "of one transfer")
    sources: Sources = field(default_factory=Sources)


def kv_tier(name: str, /, **changes: Any) -> KvTier:
    """A tier by name or TOML path, with quantities replaced.

    >>> float(kv_tier("disk").read)
    13000000000.0
    """
    stated: KvTier = _stated_tier(str(name))
    if not changes:
        return stated
    changed, given = override(stated, changes, "KV tier")
    return replace(changed, sources=stated.sources.updated(given))


@remembered
def _stated_tier(name: str) -> KvTier:
    stated, params, _ = read_record(KvTier, "kv-tiers", name)
    return replace(stated, sources=Sources(params))


def host_tier(system: System) -> KvTier:
    """The host memory of a system: its fabric's link where that is stated.

    >>> from strata.hardware.system import as_system
    >>> float(host_tier(as_system("8xh200")).read)
    55000000000.0
    """
    host = system.fabric.host
    if host is None or host.link is None:
        return kv_tier("host")
    return replace(kv_tier("host"), read=host.link, write=host.link)


class TierStore:
    """Caches of a rank in tiers behind its device: what no longer fits one goes, least recently used first,
    to the next.
    """

    __slots__ = ("_held", "_levels", "_swapped", "bytes", "recompute", "used")

    def __init__(
        self, tiers: Sequence[KvTier], bytes: float, recompute: Callable[[float, float], float] | None = None
    ) -> None:
        """`bytes`: of a block on one device; `recompute`: time to read so many tokens that attend to so many
        in all [s], to load only what is quicker to load.
        """
        self.bytes, self.recompute = bytes, recompute
        self.used = [0] * len(tiers)  # blocks in each
        self._swapped: dict[Any, int] = {}  # blocks of requests that wait to go on
        self._levels = [(t, int(float(t.capacity) // bytes)) for t in tiers]
        # blocks and tokens by name, in order of use
        self._held: list[OrderedDict[Any, tuple[int, int]]] = [OrderedDict() for _ in tiers]

    def put(self, key: Any, blocks: int, tokens: int, level: int = 0) -> None:
        """Caches that a device, or the tier before, has no room for."""
        while level < len(self._levels) and blocks > self._levels[level][1]:
            level += 1
        if level == len(self._levels):
            return
        held = self._held[level]
        self.used[level] += blocks - held.get(key, (0, 0))[0]
        held[key] = blocks, tokens
        held.move_to_end(key)
        self._make_room(level)

    def _make_room(self, level: int) -> None:
        held, room = self._held[level], self._levels[level][1]
        while held and self.used[level] > room:
            key, (blocks, tokens) = held.popitem(last=False)
            self.used[level] -= blocks
            self.put(key, blocks, tokens, level + 1)

    def swap_out(self, key: Any, blocks: int) -> float:
        """Move the caches of a request that is to go on later into the first tier: the time of that [s], or
        -1 where others that wait there leave no room.
        """
        if not self._levels or sum(self._swapped.values()) + blocks > self._levels[0][1]:
            return -1.0
        tier = self._levels[0][0]
        self._swapped[key] = blocks
        self.used[0] += blocks
        self._make_room(0)
        return float(tier.latency) + blocks * self.bytes / float(tier.write)

    def swap_in(self, key: Any) -> float:
        """The way back [s]."""
        tier, blocks = self._levels[0][0], self._swapped.pop(key)
        self.used[0] -= blocks
        return float(tier.latency) + blocks * self.bytes / float(tier.read)

    def find(self, prefix: Sequence[tuple[Any, int]], tokens: int, most: int) -> tuple[int, float]:
        """How far beginnings after the first `tokens` are here, up to less than `most`, and the time to load
        them [s]; as far as loading is quicker than reading again.
        """
        time, best = 0.0, (tokens, 0.0)
        for key, _ in prefix:
            level = next((i for i, held in enumerate(self._held) if key in held), -1)
            if level < 0 or self._held[level][key][1] >= most:
                break
            tier, (blocks, end) = self._levels[level][0], self._held[level][key]
            self._held[level].move_to_end(key)
            time += float(tier.latency) + blocks * self.bytes / float(tier.read)
            read = end - tokens
            if self.recompute is None or time < self.recompute(read, read * (tokens + 0.5 * read)):
                best = end, time
        return best
