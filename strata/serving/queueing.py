"""Queues of requests: waiting for a reader, prompts read together. Pure, for numbers and arrays."""

from __future__ import annotations

from strata.base.arrays import Number, namespace


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


def reading_share(rate: Number, generating: Number, reading: Number) -> Number:
    r"""Share of an engine's steps that read a prompt, where a step reads what came during one before it.

    .. math:: q = (1 - q) (1 - e^{-\lambda T}) + q (1 - e^{-\lambda R})

    pieces of prompts that come at random at rate λ [1/s]; a step that only generates T [s], one that reads R.
    Long steps are followed by steps that read, more at once: prompts come in clusters.

    >>> round(float(reading_share(2.0, 0.01, 0.01)), 4), round(float(reading_share(2.0, 0.01, 0.2)), 4)
    (0.0198, 0.0287)
    """
    xp = namespace(rate, generating, reading)
    begins, ends = -xp.expm1(-rate * generating), xp.exp(-rate * reading)
    return begins / (begins + ends)


def fullest_rank(count: Number, ranks: Number) -> Number:
    r"""Pieces of prompts that the fullest of some ranks has.

    .. math:: m = \frac{1}{2} \left(\frac{1}{1 - (1 - 1/k)^R} + 1 + \frac{k - 1}{R}\right)

    k pieces on average, at least one, in clusters (geometric); R ranks. The mean of both: dealt out evenly,
    where a part of a piece is none, and at random. A rank whose requests end together gets as many at once
    again.

    >>> [round(float(fullest_rank(k, 8.0)), 3) for k in (1.0, 2.0, 8.0, 80.0)]
    [1.0, 1.064, 1.699, 10.66]
    """
    xp = namespace(count, ranks)
    some = xp.maximum(count, 1.0)
    return 0.5 * (1.0 / (1.0 - (1.0 - 1.0 / some) ** ranks) + 1.0 + (some - 1.0) / ranks)


def in_turn(came: Number, engines: Number) -> Number:
    r"""Requests that come to an engine soon after one, where each goes to the engine that has fewest.

    .. math:: x' = \frac{x^2}{x + 1 - 1/E}

    x that would come at random; E engines: one that has just got a request is the last to get another.

    >>> [round(float(in_turn(0.5, n)), 3) for n in (1.0, 2.0, 8.0)]
    [0.5, 0.25, 0.182]
    """
    xp = namespace(came, engines)
    return came * came / xp.maximum(came + 1.0 - 1.0 / engines, 1e-12)
