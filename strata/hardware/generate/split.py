"""How a power budget is split where it does not say."""

from __future__ import annotations

from collections.abc import Mapping

from strata.arrays import Number, namespace


def power_split(
    total: Number,
    stated: Mapping[str, Number],
    *,
    rest: Number,
    wanted: Mapping[str, Number],
    most: Mapping[str, Number],
    at_rest: Mapping[str, Number],
    weights: Mapping[str, Number],
) -> dict[str, Number]:
    r"""Power of each component [W]: as stated; else what memory and networks want, and what is left in
    proportion to what an operation takes.

    .. math::
        P_j = \min(w_j, m_j P), \quad
        P_i = p_i + \frac{e_i}{\sum e} \left(P - P_0 - \sum_j P_j - \sum_i p_i\right)

    j: memory and networks, which want w_j (all their pins and lanes at the nominal voltage) and get at most
    the share m_j; i: units and levels on the die, with p_i at rest and e_i an operation [J/FLOP]: a
    multiply-add's half, or the bytes that an operation moves through a level times their energy; P_0: what
    the rest of the die leaks. Stated shares of P come first. A component that wants nothing gets nothing.

    Ours: every component runs out of power at the same rate of operations.

    >>> power_split(100.0, {}, rest=10.0, wanted={"memory": 40.0}, most={"memory": 0.3},
    ...             at_rest={"core": 10.0, "l2": 0.0}, weights={"core": 3.0, "l2": 1.0})
    {'memory': 30.0, 'core': 47.5, 'l2': 12.5}
    """
    xp = namespace(total, rest, *stated.values(), *wanted.values(), *at_rest.values(), *weights.values())
    given = {name: share * total for name, share in stated.items()}
    for name, want in wanted.items():
        if name not in given:
            given[name] = xp.minimum(want, most.get(name, 1.0) * total)
    left = xp.maximum(total - rest - sum(given.values(), 0.0), 0.0)
    open_ones = [name for name in weights if name not in given]
    idle = sum((at_rest[name] for name in open_ones), 0.0)
    some = idle > 0.0
    kept = xp.where(some, xp.minimum(1.0, left / xp.where(some, idle, 1.0)), 0.0)
    switching = xp.maximum(left - idle, 0.0)
    whole = sum((weights[name] for name in open_ones), 0.0)
    for name in open_ones:
        given[name] = at_rest[name] * kept + switching * (weights[name] / whole)
    return given
