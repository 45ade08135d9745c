"""What the memory of a rank has room for: blocks of its cache, and what each sequence holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from strata.arrays import ceil_div
from strata.evaluate import evaluate
from strata.simulate.server.step_pricer import StepPricer

UNBOUNDED = 2**40  # blocks, or tokens of one, where nothing grows


@dataclass(frozen=True, kw_only=True)
class KvRoom:
    """What the memory of a rank has room for: blocks of `page` tokens, and how many a sequence holds whatever
    its length (states of linear attention, windows).
    """

    blocks: int
    page: int
    fixed: int


def kv_room(pricer: StepPricer, *, context: float) -> KvRoom:
    r"""Blocks of the cache of one rank, from what devices hold with one sequence, two, and a longer one.

    .. math:: M(n, c) = M_0 + n (a + b c), \qquad B = \lfloor (M_{max} - M_0) / (b\,page) \rfloor

    Prompts of a whole step are in M_0: their activations must fit beside the caches. `context`: a length
    that is usual. Windows make a cache grow less the longer it is, so that a line which touches it there is
    right there and no less than it anywhere else.
    """
    engine = pricer.engine
    page = int(np.asarray(engine.kv_block_size))
    chunk = float(np.asarray(engine.max_num_batched_tokens))
    near = page * float(ceil_div(max(context, 2.0 * page), page))
    far = near + page * float(ceil_div(near / 8.0, page))
    work = pricer.reading(
        np.array([1.0, 2.0, 2.0]), np.array([near, near, far]), np.full(3, chunk), chunk / 2
    )
    metrics = evaluate(pricer.system, pricer.model, work, pricer.plan, engine).metrics
    used = np.broadcast_to(np.asarray(metrics.memory_used, float), (3,))
    if pricer.draft_bytes is not None:  # which has a cache of its own
        used = used + pricer.draft_bytes(
            pricer.lanes * np.array([1.0, 2.0, 2.0]), np.array([near, near, far])
        )
    limit = float(np.max(np.asarray(metrics.memory_limit, float)))
    each, token = used[1] - used[0], (used[2] - used[1]) / (2.0 * (far - near))
    room = limit - (used[0] - each)
    if not token > 1e-9 * each / near:  # nothing grows with a sequence: a block is its whole state
        blocks = int(room // each) if each > 0 else UNBOUNDED
        fixed, page = 0, UNBOUNDED
    else:
        size = float(token * page)
        blocks, fixed = int(room // size), int(max(round((each - token * near) / size), 0))
    return KvRoom(blocks=max(blocks, 0), page=page, fixed=fixed)
