"""Queues of requests: waiting for a reader, sequences in flight, steps shared with prompts. Pure, for numbers
and arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

from strata.arrays import Array, Number, namespace


def mean_wait(rate: Number, service: Number, servers: Number, variation: Number = 0.0) -> Number:
    r"""Mean time a request waits until one of several equal servers is free [s]; infinite where they cannot
    keep up.

    .. math:: W = \frac{1 + c^2}{2} \; \frac{S}{m} \; \frac{\rho^{\sqrt{2(m+1)} - 1}}{1 - \rho},
        \quad \rho = \frac{\lambda S}{m}

    Poisson arrivals at rate λ [1/s]; service time S [s] with squared coefficient of variation c²; m servers.
    Exact for one server (Pollaczek-Khinchine); for more within a few per cent in heavy traffic, and within 4
    % of S where waits are short (against Erlang C).

    Sakasegawa, Ann. Inst. Statist. Math. 29 (1977) 67; Whitt, Approximations for the GI/G/m queue, Prod.
    Oper. Manag. 2 (1993) 114.

    >>> mean_wait(0.5, 1.0, 1.0, 1.0), mean_wait(0.5, 1.0, 1.0, 0.0), mean_wait(2.0, 1.0, 1.0)
    (1.0, 0.5, inf)
    """
    xp = namespace(rate, service, servers, variation)
    load = rate * service / servers
    kept, time = (xp.where(load < 1.0, v, 0.0) for v in (load, service))
    wait = 0.5 * (1.0 + variation) * time / servers * chance_to_wait(kept, servers) / (1.0 - kept)
    return xp.where(load < 1.0, wait, xp.inf)


def chance_to_wait(load: Number, servers: Number) -> Number:
    r"""Chance that a request finds no server free.

    .. math:: P = \min(\rho, 1)^{\sqrt{2(m+1)} - 1}

    load ρ of m equal servers: the part of `mean_wait` that is no service. Exact for one server; for more
    within a few per cent in heavy traffic (against Erlang C).

    Sakasegawa, Ann. Inst. Statist. Math. 29 (1977) 67.

    >>> chance_to_wait(0.5, 1.0), chance_to_wait(2.0, 1.0)
    (0.5, 1.0)
    """
    xp = namespace(load, servers)
    return xp.minimum(load, 1.0) ** ((2.0 * (servers + 1.0)) ** 0.5 - 1.0)


def wait_within_share(mean: Number, chance: Number, share: Number) -> Number:
    r"""The wait that a share of all requests does not exceed [s], where those who wait do so for times that
    fall off exponentially.

    .. math:: t_q = \max\left(0, \; \frac{W}{P} \ln \frac{P}{1 - q}\right)

    mean wait W of all; chance P to wait at all; share q. Exact for one server with exponential service, a
    limit for others in heavy traffic.

    Kingman, The heavy traffic approximation in the theory of queues (1965).

    >>> round(float(wait_within_share(1.0, 0.5, 0.95)), 3)  # M/M/1 at half load
    4.605
    >>> float(wait_within_share(1.0, 0.5, 0.4))
    0.0
    """
    xp = namespace(mean, chance, share)
    some = xp.maximum(chance, 1e-12)
    return xp.maximum(mean / some * xp.log(some / (1.0 - share)), 0.0)


def shared_step(step: Number, extra: Number, chunks: Number) -> Number:
    r"""Mean time between steps of an engine some of whose steps also read a piece of a prompt [s]; infinite
    where reading takes all.

    .. math:: \bar T = \frac{T}{1 - \kappa \, \Delta}

    a step alone T; what a piece of prompt adds to it Δ; pieces κ [1/s]. In a second κ steps take T + Δ, and
    the others fill what is left of it: :math:`1 = \kappa (T + \Delta) + (1 / \bar T - \kappa) T`.

    >>> round(float(shared_step(0.010, 0.020, 25.0)), 6)  # half the time goes to prompts
    0.02
    """
    xp = namespace(step, extra, chunks)
    left = 1.0 - chunks * extra
    return xp.where(left > 1e-9, step / xp.where(left > 1e-9, left, 1.0), xp.inf)


def shared_launching(extra: Number, launching: Number, came: Number) -> Number:
    r"""What a prompt adds to a step [s] where prompts of one step share what launching their kernels takes.

    .. math:: \Delta' = \Delta - \Delta_l \left(1 - \frac{1 - e^{-x}}{x}\right)

    Δ what a prompt alone adds, of that Δ_l only because the host launches kernels; x prompts that come during
    a step that reads, on average: of steps that read any, one then has :math:`x / (1 - e^{-x})`. What the
    device does grows with them, what the host does not.

    >>> [round(float(shared_launching(0.060, 0.040, x)), 4) for x in (0.0, 1.0, 20.0)]
    [0.06, 0.0453, 0.022]
    """
    xp = namespace(extra, launching, came)
    some = xp.maximum(came, 1e-9)
    return extra - launching * (1.0 + xp.expm1(-some) / some)


@dataclass(frozen=True, eq=False, kw_only=True)
class SequencesInFlight:
    """Sequences being generated in the steady state, by number (last axis: 0 to the slots there are), and
    those that wait for a slot.
    """

    chance: Array  # of each number in flight; all slots taken includes those who wait
    mean: Array  # sequences in flight
    wait: Array  # mean time an arrival waits for a slot [s]
    full: Array  # chance that it does
    load: Array  # arrivals over what full slots complete; 1 and more has no steady state


def sequences_in_flight(rate: Number, token: Array, tokens: Number, slots: Number) -> SequencesInFlight:
    r"""Stationary number of sequences in flight where a step serves all of them at once, each at the same
    pace.

    .. math:: \pi_n \propto \prod_{k=1}^{n} \frac{\lambda}{\mu_k},
        \quad \mu_k = \frac{k}{G\,t_k} \; (k \le N), \; \mu_k = \mu_N \; (k > N)

    Poisson arrivals λ [1/s]; time between a sequence's tokens t_n with n in flight (last axis of `token`: n =
    1, 2, ...) [s]; tokens G of a sequence; N slots. Requests beyond them wait in turn. This is processor
    sharing with a rate that depends on the state: the law of n holds for any distribution of G as long as
    nobody waits, and for a geometric one also beyond.

    Kelly, Reversibility and Stochastic Networks (1979), symmetric queues; Cohen, Acta Informatica 12 (1979)
    245.

    >>> import numpy as np
    >>> alone = sequences_in_flight(0.5, np.array([1.0]), 1.0, 1.0)  # M/M/1 at half load
    >>> round(float(alone.mean), 6), round(float(alone.wait), 6), round(float(alone.load), 6)
    (0.5, 1.0, 0.5)
    >>> # a pace that does not suffer from company: M/G/infinity
    >>> free = sequences_in_flight(5.0, np.full(60, 0.01), 100.0, 60.0)
    >>> round(float(free.mean), 6)
    5.0
    """
    xp = namespace(rate, token, tokens, slots)
    number = xp.arange(1.0, token.shape[-1] + 1.0)
    rate, tokens, slots = (xp.asarray(v)[..., None] for v in (rate, tokens, slots))
    inside = number <= slots
    pace = xp.where(inside & (token < xp.inf), token, 1.0)
    held = xp.cumsum(xp.log(xp.maximum(rate, 1e-300) * tokens * pace / number), axis=-1)
    last = xp.where(number == slots, 1.0, 0.0)
    full = xp.sum(last * xp.where(token < xp.inf, token, 0.0), axis=-1, keepdims=True)
    never = xp.any((last > 0) & (token == xp.inf), axis=-1, keepdims=True) | (slots < 1.0)
    load = xp.where(never, xp.inf, rate * tokens * full / xp.maximum(slots, 1.0))
    kept = xp.where(load < 1.0, load, 0.0)
    held = xp.concat([xp.zeros_like(held[..., :1]), held], axis=-1)
    inside = xp.concat([xp.ones_like(inside[..., :1]), inside], axis=-1)
    last = xp.concat([xp.zeros_like(last[..., :1]), last], axis=-1)
    top = xp.max(xp.where(inside, held, -xp.inf), axis=-1, keepdims=True)
    weight = xp.where(inside, xp.exp(xp.minimum(held - top, 0.0)), 0.0)
    at_full = xp.sum(weight * last, axis=-1, keepdims=True)
    weight = weight * (1.0 + last * kept / (1.0 - kept))
    total = xp.sum(weight, axis=-1, keepdims=True)
    chance = weight / total
    count = xp.concat([xp.zeros_like(number[:1]), number], axis=-1)
    queue = at_full / total * kept / (1.0 - kept) ** 2
    stable = load < 1.0
    wait = xp.where(stable, queue / xp.maximum(rate, 1e-300), xp.inf)
    mean = xp.where(stable, xp.sum(chance * count, axis=-1, keepdims=True), slots)
    full = xp.where(stable, xp.sum(chance * last, axis=-1, keepdims=True), 1.0)
    return SequencesInFlight(
        chance=chance, mean=mean[..., 0], wait=wait[..., 0], full=full[..., 0], load=load[..., 0]
    )


def closed_rate(active: Number, step: Number, extra: Number, tokens: Number, pieces: Number) -> Number:
    r"""Requests a second that an engine completes with a steady number of sequences in flight.

    .. math:: X = \frac{n}{G T + n\, p\, \Delta}

    sequences n; a step T that gives each a token; tokens G of a request; pieces p of its prompt, as steps of
    the whole engine, each of which makes a step longer by Δ. It is `shared_step` with :math:`\kappa = X p`
    and Little's law :math:`n = X G \bar T`.

    >>> closed_rate(10.0, 0.010, 0.0, 100.0, 1.0), round(closed_rate(10.0, 0.010, 0.1, 100.0, 1.0), 6)
    (10.0, 5.0)
    """
    return active / (tokens * step + active * pieces * extra)
