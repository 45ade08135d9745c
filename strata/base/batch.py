"""Boxes: arrays anywhere in the inputs, priced in chunks that keep their axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, is_dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from strata.base.arrays import Number, as_float, has_axes, leaves, map_leaves
from strata.base.errors import BadValue
from strata.base.memo import kept_by_identity, settled_record
from strata.base.units import box_shape
from strata.params import Sources

MOST_MEMORY = 2 << 30  # bytes of a box's results: all of them are kept until the last chunk is priced
CHUNK = 65536  # points of a box priced at once; more do not fit the caches, fewer waste time between calls


def as_float64_box(record: Any) -> tuple[Any, tuple[int, ...]]:
    """Records as float64 (integer products of sizes would wrap), and the shape quantities broadcast to."""
    parts = {f.name: _as_float64(getattr(record, f.name)) for f in fields(record)}
    shape = box_shape([shape for _, shapes in parts.values() for shape in shapes])
    return replace(record, **{name: tree for name, (tree, _) in parts.items()}), shape


# Parts without arrays, as they were last converted: a system or a model serves many evaluations.
_CONVERTED: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def _as_float64(tree: Any) -> tuple[Any, list[tuple[int, ...]]]:
    """A part of the inputs as float64, and the shapes of its arrays."""
    remembered = kept_by_identity(tree.__class__)
    if remembered and tree in _CONVERTED:
        known, single = _CONVERTED[tree]
        known = tree if known is None else known
        return settled_record(known) if single else known, []
    found = leaves(tree)
    # NumPy's own scalars become plain floats: equations on single numbers are then several times quicker.
    plain = all(v.__class__ is float or (v.__class__ is np.ndarray and v.dtype == np.float64) for v in found)
    made = tree if plain else map_leaves(as_float, tree)
    shapes = [tuple(v.shape) for v in found if has_axes(v)]
    if remembered and not any(isinstance(v, np.ndarray) for v in found):
        single = all(v.__class__ is float for v in (found if made is tree else leaves(made)))
        _CONVERTED[tree] = (None if made is tree else made, single)  # one that held itself would never go
    return made, shapes


def unlabelled(tree: Any) -> Any:
    """Inputs without names and sources: a compiler that hashes structure then compiles once for all chips."""

    def bare(node: Any) -> Any:
        if is_dataclass(node) and not isinstance(node, type):
            old = {f.name: getattr(node, f.name) for f in fields(node)}
            new = {k: bare(v) for k, v in old.items()}
            for label in ("name", "title", "note", "aliases"):
                # Names stay that others refer by: whose links a dimension uses, what a kernel reads.
                referred = label == "name" and not {"shares_links_of", "reads"}.isdisjoint(new)
                if label in new and isinstance(new[label], str) and not referred:
                    new[label] = ""
            for record in ("sources", "published", "generated", "recipe"):
                # what a chip was generated from is no input of equations: the chip is
                if record in new:
                    new[record] = _NO_SOURCES if record == "sources" else None
            return replace(node, **new)
        if isinstance(node, tuple) and not isinstance(node, str):
            return tuple(bare(v) for v in node)
        return node

    return bare(tree)


_NO_SOURCES = Sources()


def pieces(shape: tuple[int, ...], limit: int = CHUNK, even: bool = False) -> Iterator[tuple[slice, ...]]:
    """Cut a box into sub-boxes of at most `limit` points by its longest axes, the last among equals first.

    Where a compiler needs them `even`, all have the same shape; the last of an axis then overlaps the one
    before it.

    >>> [tuple(s.stop - s.start for s in p) for p in pieces((3, 5), 8)]
    [(3, 2), (3, 2), (3, 1)]
    >>> [(p[1].start, p[1].stop) for p in pieces((3, 5), 8, even=True)]
    [(0, 2), (2, 4), (3, 5)]
    """
    sizes = list(shape)
    while math.prod(sizes) > limit:
        longest = max(range(len(sizes)), key=lambda i: (sizes[i], i))
        rest = math.prod(sizes) // sizes[longest]
        sizes[longest] = max(1, limit // rest) if rest <= limit else max(1, sizes[longest] // 2)
    if even:  # as many pieces, but no larger than they must be
        sizes = [-(-n // -(-n // step)) for n, step in zip(shape, sizes, strict=True)]
    cuts = []
    for n, step in zip(shape, sizes, strict=True):
        starts = (min(i, n - step) if even else i for i in range(0, n, step))
        cuts.append([slice(i, min(i + step, n)) for i in starts])
    return itertools.product(*cuts)


def take(tree: Any, where: tuple[Any, ...], dimensions: int) -> Any:
    """The part of every quantity that lies in a sub-box, or at a point; axes of size 1 are kept whole."""

    def cut(value: Number) -> Number:
        if not has_axes(value):
            return value
        chosen = where[dimensions - value.ndim :]
        index = tuple(
            w if n > 1 else (slice(None) if isinstance(w, slice) else 0)
            for n, w in zip(value.shape, chosen, strict=True)
        )
        return value[index]

    return map_leaves(cut, tree)


def is_list(shape: tuple[int, ...]) -> bool:
    """Whether points lie on one axis: a list prices every op at every point, a box most at few of them."""
    return sum(n > 1 for n in shape) < 2


def chunk_size(shape: tuple[int, ...]) -> int:
    """Points to price at once."""
    return CHUNK // 4 if is_list(shape) else CHUNK


def check_box_memory(shape: tuple[int, ...], quantities: int) -> None:
    """Refuse a box whose results take more memory than `MOST_MEMORY`, before any is taken.

    >>> check_box_memory((1000, 1000, 1000), 40)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: a box of 1000 x 1000 x 1000 = 1e+09 points needs 320 GB for its 40 results...
    """
    points = math.prod(shape)
    needed = 8.0 * points * quantities
    if needed > MOST_MEMORY:
        size = " x ".join(f"{n}" for n in shape) + (f" = {points:.3g}" if len(shape) > 1 else "")
        raise BadValue(
            f"a box of {size} points needs {needed / 1e9:.3g} GB for its {quantities} results, and may have "
            f"{MOST_MEMORY / 1e9:.2g} GB: shorten or cut an axis, or search a space with --out, which keeps "
            "its points on disk"
        )


def run_box(
    function: Callable[[Any], Any],
    tree: Any,
    shape: tuple[int, ...],
    limit: int | None = None,
    even: bool = False,
    workers: int = 1,
) -> Any:
    """Apply a pure function to a box by chunks, several `workers` side by side; results have its shape."""
    limit = limit or chunk_size(shape)
    if math.prod(shape) <= limit:
        return map_leaves(lambda v: np.broadcast_to(v, shape), function(tree))

    def part(where: tuple[slice, ...]) -> tuple[tuple[slice, ...], Any]:
        return where, function(take(tree, where, len(shape)))

    places, result, flat = pieces(shape, limit, even), None, list[np.ndarray]()
    with ThreadPoolExecutor(workers) as pool:
        for where, found in map(part, places) if workers == 1 else pool.map(part, places):
            if result is None:
                check_box_memory(shape, len(leaves(found)))
                result, flat = found, [np.empty(shape) for _ in leaves(found)]
            for whole, value in zip(flat, leaves(found), strict=True):
                whole[where] = value
    filled = iter(flat)
    return map_leaves(lambda _: next(filled), result)
