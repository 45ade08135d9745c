"""Order ideals of a partial order: sets of kernels that hold, with each kernel, all that must come before it.

Partitions that run one after the other are the steps of a chain of ideals, from the empty one to all kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from strata.arrays import Array


def order_ideals(before: Sequence[frozenset[int]], limit: int) -> list[int] | None:
    """All ideals as bit masks, smaller ones first; None where there are more than `limit`.

    >>> [bin(i)[2:] for i in order_ideals([frozenset(), frozenset({0}), frozenset({0})], 10)]
    ['0', '1', '11', '101', '111']
    >>> order_ideals([frozenset()] * 4, 15) is None  # 2^4
    True
    """
    needs = [sum(1 << b for b in found) for found in before]
    level, every = {0}, [0]
    while level:
        grown = set()
        for ideal in level:
            for i, need in enumerate(needs):
                if not ideal >> i & 1 and need & ~ideal == 0:
                    grown.add(ideal | 1 << i)
        every += sorted(grown)
        if len(every) > limit:
            return None
        level = grown
    return every


def as_rows(masks: Sequence[int], count: int) -> Array:
    """Bit masks as rows of zeros and ones, one column for each kernel.

    >>> as_rows([1, 6], 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]]
    """
    width = (count + 7) // 8
    packed = b"".join(mask.to_bytes(width, "little") for mask in masks)
    raw = np.frombuffer(packed, dtype=np.uint8).reshape(len(masks), width)
    rows: Array = np.unpackbits(raw, axis=1, count=count, bitorder="little").astype(np.float32)
    return rows


def nested_pairs(
    rows: Array, heaviest: float, weights: Array, limit: int, block: int = 512
) -> tuple[Array, Array] | None:
    """Places (i, j) of ideals with the first inside of the second and what lies between them at most so
    heavy, unless it is one kernel; None where there are more than `limit`.

    >>> first, second = nested_pairs(as_rows([0, 1, 3], 2), 1.0, np.array([1.0, 1.0]), 10)
    >>> list(zip(first.tolist(), second.tolist()))
    [(0, 1), (1, 2)]
    """
    size, load = rows.sum(1), rows @ weights.astype(np.float64)
    found_i, found_j, count = [], [], 0
    for start in range(0, len(rows), block):
        part = slice(start, start + block)
        inside = rows @ rows[part].T == size[:, None]
        added = size[None, part] - size[:, None]
        inside &= (added > 0) & ((load[None, part] - load[:, None] <= heaviest) | (added == 1))
        j, i = np.nonzero(inside.T)
        found_i.append(i.astype(np.int32))
        found_j.append((j + start).astype(np.int32))
        count += len(i)
        if count > limit:
            return None
    return np.concatenate(found_i), np.concatenate(found_j)
