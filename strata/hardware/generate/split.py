"""How a power budget is split where it does not say."""

from __future__ import annotations

from collections.abc import Collection, Mapping

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
    r"""Power of each component [W] where a budget leaves it open: loads come in turn, and each keeps the
    budget.

    .. math::
        P_i = p_i + \frac{e_i}{\sum e} \left(P - P_0 - \sum p\right), \quad P_j = \min(w_j, m_j P)

    i: units and levels on the die in a large product, with p_i at rest and e_i an operation [J/FLOP]: half a
    multiply-add, or the bytes that an operation moves through a level times their energy. Memory takes part
    in the sums, with the few bytes of a product. P_0: what the rest of the die leaks. j: memory and networks
    when all their pins and lanes run, which wants w_j and gets at most the share m_j, and together no more
    than all others at rest leave. Stated shares come first.

    Ours: in a product every component runs out of power at the same rate of operations; datasheets, too,
    state peaks that do not come at once.

    >>> power_split(100.0, {}, rest=10.0, wanted={"memory": 40.0}, most={"memory": 0.3},
    ...             at_rest={"core": 10.0, "l2": 0.0, "memory": 0.0},
    ...             weights={"core": 2.0, "l2": 1.0, "memory": 1.0})
    {'core': 50.0, 'l2': 20.0, 'memory': 30.0}
    """
    xp = namespace(total, rest, *stated.values(), *wanted.values(), *at_rest.values(), *weights.values())
    given = {name: stated[name] * total for name in weights if name in stated and name not in wanted}
    left = xp.maximum(total - rest - sum(given.values(), 0.0), 0.0)
    pool = [name for name in weights if name not in given]
    idle = sum((at_rest[name] for name in pool), 0.0)
    some = idle > 0.0
    kept = xp.where(some, xp.minimum(1.0, left / xp.where(some, idle, 1.0)), 0.0)
    switching = xp.maximum(left - idle, 0.0)
    whole = sum((weights[name] for name in pool), 0.0)
    for name in pool:
        if name not in wanted:
            given[name] = at_rest[name] * kept + switching * (weights[name] / whole)
    asked = {
        name: xp.minimum(want, most.get(name, 1.0) * total)
        for name, want in wanted.items()
        if name not in stated
    }
    given |= {name: stated[name] * total for name in wanted if name in stated}
    others = sum((at_rest[name] for name in at_rest if name not in wanted), 0.0)
    spent = sum((given[name] for name in wanted if name in stated), 0.0)
    room = xp.maximum(total - rest - others - spent, 0.0)
    sum_asked = sum(asked.values(), 0.0)
    some = sum_asked > 0.0
    cut = xp.where(some, xp.minimum(1.0, room / xp.where(some, sum_asked, 1.0)), 1.0)
    return given | {name: want * cut for name, want in asked.items()}


def peak_power(
    total: Number,
    *,
    rest: Number,
    at_rest: Mapping[str, Number],
    weights: Mapping[str, Number],
    busy: Collection[str],
    of: str,
) -> Number:
    r"""Power of a component when only some are busy and all others at rest [W].

    .. math:: P = p_i + \frac{e_i}{\sum_{busy} e} \left(P - P_0 - \sum p\right)

    The load that peaks are quoted for: multiply-adds on operands in registers, without the traffic of a
    product from further memories; a product then runs at the clock that the power leaves it.

    >>> peak_power(100.0, rest=10.0, at_rest={"core": 10.0, "l2": 0.0}, weights={"core": 2.0, "l2": 1.0},
    ...            busy=("core",), of="core")
    90.0
    """
    left = total - rest - sum(at_rest.values(), 0.0)
    xp = namespace(left)
    whole = sum((weights[name] for name in busy), 0.0)
    return at_rest[of] + xp.maximum(left, 0.0) * (weights[of] / whole)
