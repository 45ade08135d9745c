"""Blocks of a rank's KV cache, held by requests or kept for prompts that begin alike; tiers behind them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from strata.base.arrays import Number
from strata.hardware.system import System
from strata.params import Sources, override, quantity, read_record, remembered, text
from strata.serving.simulator.scheduling import Request


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
    """Caches of a rank in tiers behind its device; what does not fit goes on, least recently used first."""

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
        """Move caches of a request that waits into the first tier: the time [s], -1 without room."""
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


MOST_AT_ONCE = 8  # blocks that a sequence begins together


def block_cycle(page: int, tokens_per_step: float) -> tuple[int, int]:
    """Decode steps after which a sequence begins blocks, and how many: whole numbers, as nearly as a few
    blocks allow.

    >>> block_cycle(16, 1.0), block_cycle(16, 1.7), block_cycle(1, 1.75)
    ((16, 1), (47, 5), (4, 7))
    """
    tries = [(round(k * page / tokens_per_step), k) for k in range(1, MOST_AT_ONCE + 1)]
    kept = [t for t in tries if t[0] >= 1]
    return min(kept, key=lambda t: (round(abs(t[0] * tokens_per_step / (t[1] * page) - 1.0), 2), t[1]))


class _Prefix:
    """Blocks that requests with the same beginning share, or that one has left and may come back for."""

    __slots__ = ("blocks", "holders", "tokens")

    def __init__(self, blocks: int, tokens: int) -> None:
        self.blocks, self.tokens, self.holders = blocks, tokens, 0


class KvPool:
    """A number of blocks of `page` tokens each; a sequence holds `fixed` beside those of its tokens.

    What is shared stays after the last request that holds it, and goes, least recently used first, where
    blocks are wanted: into `tiers` behind the device, where there are any. So does what a request leaves
    that must make room and will come back, its last blocks first.
    """

    def __init__(
        self, blocks: int, page: int, fixed: int = 0, reuses: bool = True, tiers: TierStore | None = None
    ) -> None:
        self.tiers = tiers
        self.blocks = self.free = blocks
        self.page, self.fixed, self.reuses = page, fixed, reuses
        self.evictable = 0  # blocks of prefixes that nobody holds
        self._prefixes: dict[Any, _Prefix] = {}
        self._idle: OrderedDict[Any, _Prefix] = OrderedDict()
        self._left = 0  # requests that may come back for blocks they left

    @property
    def used(self) -> int:
        return self.blocks - self.free - self.evictable

    def blocks_of(self, tokens: int) -> int:
        return -(-tokens // self.page) + self.fixed

    def take(self, blocks: int) -> bool:
        """Whether so many blocks could be had; prefixes nobody holds make room."""
        if blocks > self.free:
            if blocks > self.free + self.evictable:
                return False
            while blocks > self.free:
                key, prefix = next(iter(self._idle.items()))
                part = min(prefix.blocks, blocks - self.free) if key is prefix else prefix.blocks
                self.evictable -= part
                self.free += part
                if key is not prefix:
                    del self._prefixes[key], self._idle[key]
                    if self.tiers is not None:
                        self.tiers.put(key, prefix.blocks, prefix.tokens)
                    continue
                prefix.blocks, prefix.tokens = prefix.blocks - part, prefix.tokens - part * self.page
                if not prefix.blocks:
                    del self._idle[key]
                    self._left += prefix.holders  # -1 where somebody may come back
        self.free -= blocks
        return True

    def _shared(self, request: Request) -> list[tuple[Any, _Prefix]]:
        """Beginnings of a prompt that are in the cache; not its last token: a step must have one to read."""
        held: list[tuple[Any, _Prefix]] = []
        for key, _ in request.prefix if self.reuses else ():
            prefix = self._prefixes.get(key)
            if prefix is None or prefix.tokens >= request.prompt:
                break
            held.append((key, prefix))
        return held

    def match(self, request: Request, tokens: int, fits: int = 0) -> int:
        """Let a request in with blocks for so many tokens, shared ones among them: tokens of its prompt that
        the cache has already, or -1 where there is no room, or none for as many as are to fit.
        """
        held = self._shared(request)
        found = held[-1][1].tokens if held else 0
        own = self.blocks_of(tokens) - found // self.page
        idle = sum([p.blocks for _, p in held if not p.holders]) if held else 0
        more = max(self.blocks_of(fits) - found // self.page, own)
        if more > self.free + self.evictable - idle:
            return -1
        found = self._come_back(request, found)
        for key, prefix in held:
            if not prefix.holders:
                del self._idle[key]
                self.evictable -= prefix.blocks
            prefix.holders += 1
        request.shared, request.own = len(held), own
        self.take(own)
        return found

    def _come_back(self, request: Request, found: int) -> int:
        """Blocks that a request left and nobody took since are its own again: tokens it has with them."""
        left, request.left = request.left, None
        if left is None or not left.blocks:
            return found
        del self._idle[left]
        self._left -= 1
        self.evictable -= left.blocks
        self.free += left.blocks
        begins = left.tokens - left.blocks * self.page  # what it shared then must still be there
        return max(left.tokens, found) if begins <= found else found

    def cached(self, request: Request) -> int:
        """Tokens of a prompt that are in the cache, without holding them: for a router."""
        held, left = self._shared(request), request.left
        found = held[-1][1].tokens if held else 0
        if left is not None and left.tokens - left.blocks * self.page <= found:
            found = max(left.tokens, found)
        return found

    def found(self, request: Request) -> tuple[int, float]:
        """Tokens of a prompt in the cache, or quicker to load from a tier; the time to load these [s]."""
        here = self.cached(request) if request.prefix or request.left is not None else 0
        if self.tiers is None or not self.reuses:
            return here, 0.0
        rest = [named for named in request.prefix if named[1] > here and named[0] not in self._prefixes]
        return self.tiers.find(rest, here, request.prompt) if rest else (here, 0.0)

    def shared_blocks(self, request: Request) -> int:
        """Blocks that it holds together with others: whole ones only."""
        return request.prefix[request.shared - 1][1] // self.page if request.shared else 0

    def share(self, request: Request) -> None:
        """What others may find from now on: a request has read its prompt, and its own blocks of named
        beginnings become shared ones that it holds.
        """
        if not self.reuses:
            return
        for key, tokens in request.prefix[request.shared :]:
            if key in self._prefixes:  # another read it at the same time: its own copy stays its own
                break
            before = self.shared_blocks(request)
            whole = tokens // self.page
            prefix = _Prefix(whole - before, whole * self.page)
            prefix.holders = 1
            request.own -= prefix.blocks
            self._prefixes[key] = prefix
            request.shared += 1

    def leave(self, request: Request, own: int, tokens: int) -> None:
        """A request goes that will come back: whole blocks stay its own, if nobody takes them."""
        whole = min(tokens // self.page - self.shared_blocks(request), own) if self.reuses else 0
        whole = max(whole, 0)
        self.release(request, own - whole, 0, keeps=False)
        if whole:
            left = request.left = _Prefix(whole, tokens // self.page * self.page)
            left.holders = -1
            self._idle[left] = left
            self._left += 1
            self.evictable += whole

    def release(self, request: Request, own: int, tokens: int, keeps: bool = True) -> None:
        """A request goes: its own blocks are free, shared ones stay, and under the name it may have for that,
        its whole context of so many tokens, to be the beginning of a next turn.
        """
        kept = None
        if keeps and self.reuses and request.keep is not None and request.keep not in self._prefixes:
            whole = min(tokens // self.page - self.shared_blocks(request), own)
            if whole > 0:
                kept = _Prefix(whole, tokens // self.page * self.page)
                own -= whole
        if self._left and own:  # blocks left before these are taken before these
            others = _Prefix(own, 0)
            self._idle[others] = others
            self.evictable += own
        else:
            self.free += own
        if kept is not None:  # older than its beginnings: it goes first
            self._prefixes[request.keep] = self._idle[request.keep] = kept
            self.evictable += kept.blocks
        for key, _ in reversed(request.prefix[: request.shared]):
            prefix = self._prefixes[key]
            prefix.holders -= 1
            if not prefix.holders:
                self._idle[key] = prefix
                self.evictable += prefix.blocks
        request.shared = 0
