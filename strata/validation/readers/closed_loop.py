r"""What clients of a closed loop see of an engine's steps.

Times of steps come from `steps`; this module says how they become what clients see:

* every request brings one prompt, which the tokens of the others wait for, so a token's time is
  :math:`d + (N - r) p / L` (step d of N sequences; prompt p of one request, r of them at once; L output
  tokens);
* a request waits for half a step, for prompts that came just before it,
  :math:`\frac{\rho}{1-\rho} \frac{p}{2}` with :math:`\rho / (1 - \rho) = (N - r) p / (L d)`
  (Pollaczek-Khinchine), and for what its engine does outside all steps. All clients start together, so that
  in the first of R rounds the prompts wait for half of the others';
* where a step is chosen while the one before it runs, a request also waits for the one that was chosen before
  it came;
* where attention ranks run beside one another (r > 1), some engines hold a prompt back until all ranks have
  one;
* clients beyond what memory holds or the engine takes wait for a place: of N clients n run, and the others
  wait :math:`(N/n - 1)` times a request's whole time;
* a benchmark that looks for requests every k steps makes them wait for half of these, and for all that came
  meanwhile;
* a prompt that the engine has read before is not read again.

Rough, and stated: engines differ in how they mix prompts into decode steps, and benchmarks in how their
clients start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.mapping.engine import Engine, request_time
from strata.serving.queueing import shared_launching
from strata.validation.readers.online_conditions import RunConditions


@dataclass(frozen=True, eq=False, kw_only=True)
class EngineTimes:
    """Times of an engine with so many sequences [s]: a step, a token of each sequence, reading a prompt on
    every attention rank.
    """

    step: Any
    token: Any
    reading: Any  # what it adds to a step, or takes by itself
    own: Any  # until a prompt that nobody was before has its first token
    launching: Any = 0.0  # of reading, what only the host's launching of its kernels adds


def shared_reading(times: EngineTimes, running: Array, at_once: Array, output: Array) -> Any:
    """Time of reading with what launching adds shared by the prompts of a step: those that come while it
    reads, to each rank.
    """
    came = running * times.own / (output * times.token) / at_once
    return shared_launching(times.reading, times.launching, came)


def client_times(
    times: EngineTimes, clients: Array, running: Array, at_once: Array, run: RunConditions, engine: Engine
) -> tuple[Any, Any]:
    """TTFT and TPOT clients of a closed loop see (the rules at the top of this module) [s]."""
    each = shared_reading(times, running, at_once, run.output) / at_once
    all_fresh = np.maximum(running - at_once, 0.0) * each  # of the others, one after another
    prompts = run.fresh * all_fresh
    tpot = times.token + prompts / run.output
    met = np.minimum(prompts / (run.output * times.token) * each, prompts) / 2.0
    # prompts that came since the last look
    came = run.polled * running * times.step / (run.output * times.token)
    behind = 0.5 * (came + np.minimum(came, run.burst) - 2.0) * each
    waited = np.where(run.polled > 1.0, np.maximum(met, behind), met)
    balanced = np.where(at_once > 1.0, engine.balance * times.step, 0.0)
    ahead = 0.0 if engine.asynchronous is None else np.where(engine.asynchronous > 0, times.step, 0.0)
    start = (run.first + all_fresh / 2.0) / run.start_rounds
    ttft = (
        request_time(engine, run.input)
        + run.outside
        + balanced
        + run.fresh * times.own
        + (1.0 - run.fresh) * times.step
        + 0.5 * run.polled * times.step
        + ahead
        + waited
        + start
    )
    return ttft + (clients / running - 1.0) * (ttft + run.output * tpot), tpot
