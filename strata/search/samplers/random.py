"""Random search: legal points drawn evenly, none twice. The yardstick of every other sampler."""

from __future__ import annotations

import numpy as np

from strata.search.samplers import CHUNK, PointSampler

# fewest and most points of a round: work for several workers, and a part on disk worth its file
ROUND = (1024, 8 * CHUNK)
ROUNDS = 16  # of a search, where each has at least the fewest: so often there is news
# spaces up to this size are shuffled whole; in larger ones a repeat is rare and drawn again
SHUFFLED = 1 << 24


class Random(PointSampler):
    """Points drawn evenly from the legal ones; all of them, in random order, where the budget has room."""

    order: np.ndarray | None = None
    seen = np.empty(0, np.int64)

    def propose(self) -> np.ndarray:
        wanted = min(max(ROUND[0], min(ROUND[1], self.budget // ROUNDS)), self.budget - self.asked)
        if self.space.size <= SHUFFLED:
            if self.order is None:
                self.order = self.rng.permutation(self.space.size)
            return self.space.digits(self.order[self.asked : self.asked + wanted])
        drawn = self.space.random(self.rng, wanted)
        index, first = np.unique(self.space.index(drawn), return_index=True)
        new = np.isin(index, self.seen, assume_unique=True, invert=True)
        self.seen = np.concatenate([self.seen, index[new]])
        return drawn[np.sort(first[new])]


SAMPLER = Random
