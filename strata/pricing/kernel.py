"""One kernel on one chip, asked for by name: the prices a step is made of, what was asked checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.base.arrays import Number, as_float, namespace
from strata.base.errors import BadValue, MissingQuantity, UnknownName, require
from strata.base.precision import bytes_of, check, rate_of, supports
from strata.hardware.chip import Chip
from strata.hardware.chip import chip as make_chip
from strata.hardware.fabric import Fabric, as_fabric, with_library
from strata.hardware.part_of_domain import sizes_of, used_part
from strata.hardware.system import usual_fabric
from strata.hardware.transport import LIBRARY
from strata.params import leaf_paths, override, value_at
from strata.pricing.kernel_kinds import KINDS
from strata.pricing.kernel_ops import product_bytes
from strata.pricing.kernel_request import SIZES, KernelRequest
from strata.pricing.kernels.device import device
from strata.pricing.kernels.vector import cache_miss_share
from strata.pricing.power_cap import host_paced, power_capped
from strata.pricing.price import RESOURCES, Price
from strata.pricing.served_kernels import mean_of_draws

# What two sizes of a kernel must be to each other.
RELATIONS: tuple[tuple[str, str, str, Callable[[Any, Any], Any]], ...] = (
    ("heads", "kv_heads", "heads must be a multiple of kv_heads", lambda heads, kv: heads % kv == 0),
    ("context", "queries", "context counts the new tokens and must not be below queries", np.greater_equal),
    ("top_k", "experts", "top_k must not exceed experts", np.less_equal),
    ("experts", "ranks", "experts must be a multiple of ranks", lambda experts, ranks: experts % ranks == 0),
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Kernel:
    """A kernel at the clock it holds [Hz] and the power drawn [W]; arrays where a size was one."""

    chip: Chip
    kind: str
    sizes: dict[str, Number]
    price: Price
    clock: Number
    power: Number
    run: KernelRequest

    @property
    def precision(self) -> str:
        return self.run.weight

    @property
    def time(self) -> Number:
        return self.price.time

    @property
    def bound_by(self) -> Any:
        """The resource the time is credited to; an array of names where sizes are arrays."""
        credited = (np.asarray(getattr(self.price, r), float) for r in RESOURCES)
        shares = np.stack(np.broadcast_arrays(*credited))
        most = np.argmax(shares, axis=0)
        return np.array(RESOURCES)[most] if shares.ndim > 1 else RESOURCES[int(most)]

    @property
    def flop_per_s(self) -> Number:
        """Useful operations a second."""
        return _each_second(self.price.flop, self.price.time)

    @property
    def memory_bandwidth(self) -> Number:
        """Bytes a second to and from DRAM."""
        return _each_second(self.price.memory_bytes, self.price.time)

    @property
    def bytes_until_end(self) -> Number:
        """Bytes to and from DRAM before it ends: results that the cache has room for are written later."""
        if self.kind != "gemm":
            return self.price.memory_bytes
        touched, result = product_bytes(self.sizes, self.run)
        return self.price.memory_bytes - result * (1.0 - cache_miss_share(touched, self.chip.cache.capacity))


def kernel(
    chip: str | Chip,
    kind: str,
    *,
    precision: str = "",
    activations: str = "",
    kv: str = "",
    op: str = "",
    phase: str = "",
    routing: str = "uniform",
    fabric: str | Fabric = "",
    weight_only: bool = False,
    causal: bool = True,
    resident: bool = False,
    kept: bool = False,
    served: bool = False,
    eager: bool = False,
    unaligned: bool = False,
    repeated: bool = True,
    briefly: bool = False,
    every: Number = 0.0,
    start: Number = 0.0,
    host: Number = 0.0,
    clock: Number | None = None,
    **sizes: Number,
) -> Kernel:
    """One kernel on one chip: a product, attention, a layer of experts, a pass over memory, a kernel of
    another program, or one that computes and communicates at once. Sizes may be arrays.
    `strata kernel KIND --help` says what they mean, as `kernel_kinds.KINDS` and `kernel_request` do.

    >>> import numpy as np
    >>> both = kernel("h200", "gemm", m=np.array([1, 8192]), n=8192, k=8192)
    >>> [str(b) for b in both.bound_by], bool(both.time[0] < both.time[1])
    (['memory', 'compute'], True)
    """
    _check_times(every=every, start=start, host=host)
    used = _locked(make_chip(chip) if isinstance(chip, str) else chip, clock)
    given, known = checked_sizes(kind, sizes), KINDS[kind]
    weight = check(precision or known.precision)
    widened = weight_only or (served and not supports(used.compute.matrix_rate, weight))  # as frameworks do
    if known.products:
        _check_rate(used, weight, widened)
    stored = check(activations or (weight if bytes_of(weight) >= bytes_of("bf16") else "bf16"))
    run = KernelRequest(
        weight=weight,
        activation=stored,
        kv=check(kv or stored),
        op=_word(kind, "op", op, known.ops),
        phase=_word(kind, "phase", phase, known.phases),
        routing=routing,
        fabric=_fabric(used, fabric, given["ranks"]) if "fabric" in known.options else None,
        **{"causal": causal, "kept": kept, "served": served, "eager": eager, "unaligned": unaligned},
    )
    warm = resident or kept or served or eager or known.warm
    price = known.price(given, device(used, resident=warm, weight_only=widened), run)
    held = _held(price, used, host_paced(price.time, every) if repeated else None, briefly)
    if known.drawn:
        held = mean_of_draws(held, np.shape(price.time), np.broadcast_shapes(*map(np.shape, given.values())))
    price = launched_by_host(held[0], used, start, host, given.get(known.launched, 1.0))
    return Kernel(chip=used, kind=kind, sizes=given, price=price, clock=held[1], power=held[2], run=run)


def _each_second(work: Number, time: Number) -> Number:
    """Work over the time it takes; none of a chip without any."""
    xp = namespace(work, time)
    return xp.where(time > 0.0, work / xp.where(time > 0.0, time, 1.0), 0.0)


def _held(price: Price, chip: Chip, idle: Number | None, briefly: bool) -> tuple[Price, Number, Number]:
    """A price, the clock and the power of a kernel: repeated with such waits, or once without."""
    highest = chip.compute.max_clock
    if idle is None:
        return price, highest, _each_second(price.energy, price.time) + chip.energy.static_power
    held = power_capped(price, chip, idle, briefly=briefly)
    return held.price, held.share * highest, held.power


# Rates of a chip that follow a locked clock, and times that are cycles of it.
_RATES = (
    "compute.matrix_rate",
    "compute.vector_rate",
    "compute.special_rate",
    "compute.sram_bandwidth",
    "cache.bandwidth",
    "cache.core_bandwidth",
)
_CYCLES = ("overhead.kernel", "overhead.tile", "overhead.step", "overhead.split")


def _locked(chip: Chip, clock: Number | None) -> Chip:
    """The chip at a locked clock, if any: cores, caches and cycles slow down, DRAM does not."""
    if clock is None:
        return chip
    highest, asked = chip.compute.max_clock, np.asarray(clock, float)
    rule = f"a locked clock must be above 0 and at most the {highest:g} Hz of {chip.name}"
    require(bool(np.all((asked > 0.0) & (asked <= highest))), rule, clock=clock)
    share, longer = clock / chip.compute.clock, chip.compute.max_clock / clock
    changes: dict[str, Number] = {"compute.clock": clock, "compute.max_clock": clock}
    for path in leaf_paths(chip):
        if path.startswith(_RATES) or (path.startswith("levels.") and path.endswith(".bandwidth")):
            changes[path] = value_at(chip, path) * share
        elif path.startswith(_CYCLES):
            changes[path] = value_at(chip, path) * longer
    return override(chip, changes, "chip")[0]


def _check_times(**times: Number) -> None:
    for name, time in times.items():
        kept = bool(np.all(np.asarray(time) >= 0.0))
        require(kept, f"{name} of a kernel must be at least 0 s", **{name: time})


def _word(kind: str, name: str, value: str, known: tuple[str, ...]) -> str:
    """A word that a kind of kernel knows, its first one where none is told."""
    if value and value not in known:
        raise UnknownName(f"{name} of {kind}", value, known, ", ".join(filter(None, known)) or "none")
    return value or (known[0] if known else "")


def _fabric(chip: Chip, named: str | Fabric, ranks: Number) -> Fabric:
    """The fabric that joins the ranks of a kernel, as a library of kernels uses it."""
    joined = as_fabric(named) if named else usual_fabric(chip)
    if any(d.size is None for d in joined.dimension):
        joined = used_part(joined, sizes_of(int(np.max(ranks)), None, joined, chip.name))
    return with_library(joined, LIBRARY)


def checked_sizes(kind: str, sizes: dict[str, Number]) -> dict[str, Number]:
    """Every size of a kernel as floats, with the usual values of those left out; what is wrong is said in one
    line.

    >>> checked_sizes("gemm", {"m": 8, "n": 0, "k": 8})
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: gemm n must be a positive whole number, but got 0
    """
    if kind not in KINDS:
        raise UnknownName("kernel", kind, KINDS, ", ".join(KINDS))
    needed, usual, known = KINDS[kind].needed, KINDS[kind].usual, KINDS[kind].sizes
    for name in sizes:
        if name not in known:
            raise UnknownName(f"size of {kind}", name, known, ", ".join(known))
    missing = [name for name in needed if name not in sizes]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise BadValue(f"{kind} needs {', '.join(needed)}, but {', '.join(missing)} {are} missing")
    given = {name: _checked(kind, name, sizes[name]) if name in sizes else usual[name] for name in known}
    shapes = {name: getattr(value, "shape", ()) for name, value in given.items()}
    try:
        np.broadcast_shapes(*shapes.values())
    except ValueError:
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items() if shape)
        raise BadValue(f"{kind} sizes must broadcast against each other, but got {told}") from None
    if kind == "attention":
        given["kv_heads"] = given["kv_heads"] if "kv_heads" in sizes else given["heads"]
    for first, second, relation, holds in RELATIONS:
        if first in given and second in given:
            _relation(given, first, second, f"{kind} {relation}", holds)
    return given


def _checked(kind: str, name: str, value: Number) -> Number:
    """A size as float, positive and whole, or not negative where it has a unit; traced arrays as they are."""
    try:
        seen = np.asarray(value, float)
    except (TypeError, ValueError) as error:
        if hasattr(value, "__array_namespace__"):
            return value
        raise BadValue(f"{kind} {name} must be a number, but got {value!r}") from error
    size = SIZES[name]
    if size.unit:
        most = f", at most {size.most:g}" if np.isfinite(size.most) else ""
        rule = f"a number of at least {size.least:g}{most}"
        good = (seen >= size.least) & (seen <= size.most) & np.isfinite(seen)
    else:
        rule, good = "a positive whole number", (seen >= 1) & (seen < 1e15) & (seen == np.floor(seen))
    if not np.all(good):
        raise BadValue(f"{kind} {name} must be {rule}, but got {np.ravel(seen)[np.argmin(np.ravel(good))]:g}")
    return as_float(seen if isinstance(value, (list, tuple)) else value)


def _relation(given: dict[str, Number], first: str, second: str, relation: str, holds: Any) -> None:
    try:
        a, b = np.broadcast_arrays(np.asarray(given[first], float), np.asarray(given[second], float))
    except TypeError:  # traced
        return
    broken = ~np.ravel(holds(a, b))
    if broken.any():
        at = int(np.argmax(broken))
        require(False, relation, **{first: int(np.ravel(a)[at]), second: int(np.ravel(b)[at])})


def _check_rate(chip: Chip, precision: str, weight_only: bool) -> None:
    """The chip computes in this precision, or widens its weights to one it has."""
    if weight_only:
        return
    try:
        rate_of(chip.compute.matrix_rate, precision, f"chip {chip.name}")
    except MissingQuantity as error:
        narrow = bytes_of(precision) < bytes_of("bf16") and supports(chip.compute.matrix_rate, "bf16")
        raise MissingQuantity(
            f"{error}" + ("; weight-only use widens such weights to bf16" if narrow else "")
        ) from None


def launched_by_host(price: Price, chip: Chip, start: Number, host: Number, launches: Number) -> Price:
    r"""A call whose kernels a host launches one by one, and waits for.

    .. math:: T = \max\left(T_h, s + \max\left(T_k, (l - 1) T_l + \frac{T_k}{l}\right)\right)

    l kernels that take T_k together, the first of which starts s after the call, the last not before all are
    launched, each in T_l of the host (`overhead.launch`); the host prepares the call for at least T_h.

    >>> from strata.hardware.chip import chip
    >>> kernel, h200 = Price(time=1e-5, compute=1e-5), chip("h200", **{"overhead.launch": "5 us"})
    >>> later = [launched_by_host(kernel, h200, s, h, 1.0).time for s, h in ((2e-6, 0.0), (0.0, 4e-5))]
    >>> [round(float(time) * 1e6) for time in later]
    [12, 40]
    """
    if not any(np.any(np.asarray(time) > 0.0) for time in (start, host)):
        return price
    xp = namespace(price.time, start, host, launches)
    last = (launches - 1.0) * chip.overhead.launch + price.time / launches
    time = xp.maximum(host, start + xp.maximum(price.time, last))
    return price.later(time - price.time)
