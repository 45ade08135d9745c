"""Of mappings that take equally long, one that sends less: what hides behind compute costs no time, but
energy, and links that others could use.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from strata.mapping.layout import Layout
from strata.optimise.mappings.joint_certificate import LayerMapping, RankRoom
from strata.optimise.mappings.joint_layer import LayerSearch
from strata.optimise.mappings.joint_problem import BlockProblem, fusion_blocks

EQUAL = 1 + 1e-12  # seconds that are the same but for rounding


def quieter(search: LayerSearch, found: LayerMapping, room: RankRoom, deadline: float) -> LayerMapping:
    """A mapping of a layer that takes no longer and communicates less, changed module by module as long as
    one change does both; the mapping itself where none does.
    """
    best, least = found, sent_seconds([b.problem for b in found.blocks])
    changed = True
    while changed and time.perf_counter() < deadline:
        changed = False
        for module, own in search.layer.options.items():
            now = {m: o.choices.index(best.options[m]) for m, o in search.layer.options.items()}
            for place in range(len(own.choices)):
                choice = {**now, module: place}
                modules = tuple((m, o.axes(choice[m])) for m, o in search.layer.options.items())
                blocks = fusion_blocks(
                    search.setting, Layout(dict(search.setting.mesh), modules=modules), search.told
                )
                if place == now[module] or sent_seconds(blocks) >= least * (1 - 1e-9):
                    continue
                made = search.price(choice, room, best.time * EQUAL)
                if made is not None and made.time <= best.time * EQUAL:
                    best, least, changed = made, sent_seconds(blocks), True
                    break
    return best


def sent_seconds(blocks: Sequence[BlockProblem]) -> float:
    """Time of all communication of blocks, hidden or not [s]."""
    return float(sum(b.times * sum(sum(k.network) for k in b.problem.kernels) for b in blocks))
