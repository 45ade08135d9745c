"""Points as learners see them: small genes that each mean something, a gene an axis, and a gene for each
degree of a plan.

A plan axis may have tens of thousands of choices, of which each is seen once or never; its degrees (tensor,
expert, pipeline parallel, ...) have a few choices each, and what is learned of them holds for every plan that
has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.search.space import Space

# choices without order up to which each is learned for itself; longer lists are searched along their order
CATEGORIES = 64
# how far apart two plans are that differ in a word, where degrees at both ends of their range are 1 apart
UNLIKE = 0.5


@dataclass(frozen=True)
class Gene:
    """One thing to choose: how many choices, and whether they have an order."""

    axis: int
    count: int
    ordered: bool


class Genes:
    """Between digits [N, axes] and genes [N, G]; axes without a choice have no gene."""

    def __init__(self, space: Space):
        self.space = space
        self.fixed = np.zeros(len(space.axes), np.int64)
        self.genes: list[Gene] = []
        # axis: its genes, codes of its plans, tree, scale
        self.plans: dict[int, tuple[list[int], np.ndarray, Any, np.ndarray]] = {}
        for i, axis in enumerate(space.axes):
            if len(axis) > 1 and axis.kind == "plan":
                self._split(i, np.array(axis.values, float))
            elif len(axis) > 1:
                self.genes.append(Gene(i, len(axis), axis.ordered or len(axis) > CATEGORIES))

    def _split(self, i: int, table: np.ndarray) -> None:
        """Genes of a plan axis: its fields that vary; those that start at 1 are degrees and have an order."""
        from scipy.spatial import cKDTree

        columns = [np.unique(column, return_inverse=True) for column in table.T]
        # a field that follows another tells nothing new
        first = {codes.tobytes(): k for k, (_, codes) in reversed(list(enumerate(columns)))}
        varied = [
            (values, codes)
            for k, (values, codes) in enumerate(columns)
            if len(values) > 1 and first[codes.tobytes()] == k
        ]
        own = list(range(len(self.genes), len(self.genes) + len(varied)))
        ordered = [float(values.min()) >= 1.0 or len(values) > CATEGORIES for values, _ in varied]
        self.genes += [Gene(i, len(values), o) for (values, _), o in zip(varied, ordered, strict=True)]
        codes = np.stack([c for _, c in varied], axis=1)
        scale = np.array(
            [
                (1.0 if o else UNLIKE) / (len(values) - 1)
                for (values, _), o in zip(varied, ordered, strict=True)
            ]
        )
        self.plans[i] = (own, codes, cKDTree(codes * scale), scale)

    def __len__(self) -> int:
        return len(self.genes)

    def digits(self, genes: np.ndarray) -> np.ndarray:
        """The points of some genes; degrees that no plan has become those of the nearest plan."""
        made = np.repeat(self.fixed[None], len(genes), axis=0)
        for place, gene in enumerate(self.genes):
            if gene.axis not in self.plans:
                made[:, gene.axis] = genes[:, place]
        for axis, (own, _, tree, scale) in self.plans.items():
            made[:, axis] = tree.query(genes[:, own] * scale)[1]
        return made

    def of(self, digits: np.ndarray) -> np.ndarray:
        """The genes of some points."""
        made = np.empty((len(digits), len(self.genes)), np.int64)
        for place, gene in enumerate(self.genes):
            if gene.axis not in self.plans:
                made[:, place] = digits[:, gene.axis]
        for axis, (own, codes, _, _) in self.plans.items():
            made[:, own] = codes[digits[:, axis]]
        return made
