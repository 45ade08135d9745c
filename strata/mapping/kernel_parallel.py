"""Kernel parallelism: DeepFlow's notation of how a matrix product, data and layers are divided, as layouts.

A (m x k) times W (k x n). `RC-4-2` cuts A's rows in 4 and W's columns in 2; `CR-8` cuts the k that is summed
over in 8; `d8` is data parallel, `p2` cuts layers into stages. One for all modules of a program, or one by
module.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from strata.base.arrays import Number, map_leaves, namespace, register_pytree
from strata.base.errors import BadValue, UnknownName, require
from strata.base.units import finite_number
from strata.mapping.layout import DEEPFLOW, GRADIENTS, STAGES, WEIGHT_GRADIENTS, Layout, layout
from strata.mapping.rules import bounded_degree, bounded_devices, bounded_plans, divisors
from strata.workload.protocol import member

WRITTEN = "RC-4-2-d8-p2, CR-8, d8, or hidden=RC-4-2,softmax=CR-8,d8,p2"
KERNEL_MESH = ("kp1", "kp2", "depth", "dp", STAGES)  # the mesh of a strategy for all modules, innermost first
MAIN = "hidden"  # whose division activations between blocks have, where modules differ
GRADIENT_SCHEMES = ("gather", "sum")
_SPLIT = re.compile(r"(?a)(?:RC-(\d+)-(\d+)|CR-(\d+))")
_WHOLE = re.compile(r"(?a)(?:(RC-\d+-\d+|CR-\d+)(?:-|$))?(?:d(\d+)(?:-|$))?(?:p(\d+))?")


@register_pytree
@dataclass(frozen=True, eq=False, repr=False)
class KernelSplit:
    """A's rows and W's columns (RC), or what is summed over (CR), divided; degrees may be arrays."""

    rows: Number = 1.0
    columns: Number = 1.0
    depth: Number = 1.0

    @property
    def devices(self) -> Number:
        return self.rows * self.columns * self.depth

    @property
    def kind(self) -> Any:
        """RC, CR or none."""
        found = np.where(np.asarray(self.depth) > 1, "CR", "RC")
        found = np.where(np.asarray(self.devices) > 1, found, "none")
        return found if found.ndim else str(found)

    @property
    def kp1(self) -> Number:
        return namespace(self.rows, self.depth).maximum(self.rows, self.depth)

    @property
    def kp2(self) -> Number:
        return self.columns

    def __repr__(self) -> str:
        if np.ndim(self.devices):
            return object.__repr__(self)
        return f"KernelSplit({_split_text(self) or 'none'})"


@register_pytree
@dataclass(frozen=True, eq=False, repr=False)
class Strategy:
    """A split of every product, or one by module, with data parallel replicas and stages of a pipeline; every
    degree may be an array: many strategies at once.
    """

    split: KernelSplit = KernelSplit()
    dp: Number = 1.0
    lp: Number = 1.0
    modules: tuple[tuple[str, KernelSplit], ...] = ()  # where modules differ; then all that a program has

    @property
    def kind(self) -> Any:
        return self.split.kind

    @property
    def kp1(self) -> Number:
        return self.split.kp1

    @property
    def kp2(self) -> Number:
        return self.split.kp2

    @property
    def devices(self) -> Number:
        return self.split.devices * self.dp * self.lp

    def at(self, which: Any) -> Strategy:
        """One of an array of strategies, or some of them."""
        shape = np.broadcast_shapes(*(np.shape(degree) for degree in self._degrees()))
        one = map_leaves(lambda v: np.broadcast_to(v, shape)[which] if shape else v, self)
        return map_leaves(float, one) if np.ndim(one.dp) == 0 else one

    def _degrees(self) -> list[Number]:
        splits = (self.split, *(split for _, split in self.modules))
        return [self.dp, self.lp, *(getattr(s, f.name) for s in splits for f in fields(s))]

    def __repr__(self) -> str:
        if any(np.ndim(degree) for degree in self._degrees()):
            return f"Strategy of {max(np.size(d) for d in self._degrees())}"
        return f"strategy({strategy_text(self)!r})"


def parse_strategy(text: str) -> Strategy:
    """A strategy from the paper's notation, one for all modules or one by module.

    >>> one = parse_strategy("RC-4-2-d8-p2")
    >>> one.kind, one.kp1, one.kp2, one.dp, one.lp, one.devices
    ('RC', 4.0, 2.0, 8.0, 2.0, 128.0)
    >>> parse_strategy("hidden=RC-4-2,softmax=CR-8,d8").modules
    (('hidden', KernelSplit(RC-4-2)), ('softmax', KernelSplit(CR-8)))
    """
    given = text.strip()
    if "=" not in given:
        return _one_for_all(given)
    modules: dict[str, KernelSplit] = {}
    degrees = {"d": 1.0, "p": 1.0}
    for item in filter(None, re.split(r"[,\s]+", given)):
        module, equals, split = item.partition("=")
        if equals:
            require(module not in modules, "a strategy says each module once", strategy=text, twice=module)
            modules[module] = _split(split, text)
        elif re.fullmatch(r"[dp]\d+", item):
            degrees[item[0]] = _degree(item[1:], text)
        else:
            raise BadValue(f"a strategy is written like {WRITTEN}, but got '{text}'")
    first = next(iter(modules.values()))
    for module, split in modules.items():
        same = split.devices == first.devices
        told = {module: _split_text(split) or "none"}
        require(same, "all modules of a strategy use the same devices", **told)
    return Strategy(modules.get(MAIN, first), degrees["d"], degrees["p"], tuple(modules.items()))


def is_strategy(text: str) -> bool:
    """Whether text is written in the paper's notation.

    >>> [is_strategy(t) for t in ("RC-4-2", "d8-p2", "hidden=CR-8,softmax=RC-4-2", "kp1=4,kp2=2", "tp=8", "")]
    [True, True, True, False, False, False]
    """
    given = text.strip()
    return bool(given) and (bool(_WHOLE.fullmatch(given)) or bool(re.search(r"=(RC|CR)-", given)))


def _one_for_all(text: str) -> Strategy:
    match = _WHOLE.fullmatch(text)
    if not text or match is None or text.endswith("-"):
        raise BadValue(f"a strategy is written like {WRITTEN}, but got '{text}'")
    split, dp, lp = match.groups()
    made = _split(split, text) if split else KernelSplit()
    return Strategy(made, _degree(dp or "1", text), _degree(lp or "1", text))


def _split(text: str, whole: str) -> KernelSplit:
    match = _SPLIT.fullmatch(text)
    if match is None:
        raise BadValue(f"a strategy is written like {WRITTEN}, but got '{whole}'")
    return KernelSplit(*(_degree(part or "1", whole) for part in match.groups()))


def _degree(text: str, whole: str) -> float:
    require(text.strip("0") != "", "degrees of a strategy must be at least 1", strategy=whole)
    return float(bounded_degree(finite_number(text, "a degree"), "a degree of a strategy"))


def _split_text(split: KernelSplit) -> str:
    if float(split.depth) > 1:
        return f"CR-{split.depth:g}"
    return f"RC-{split.rows:g}-{split.columns:g}" if float(split.rows * split.columns) > 1 else ""


def strategy_text(strategy: Strategy) -> str:
    """One strategy as the paper writes it; "d1" where nothing is divided.

    >>> told = "RC-4-2-d8-p2", "CR-8", "d8", "p4", "RC-2-2-d2", "hidden=RC-4-2,softmax=CR-8,d8,p2"
    >>> [strategy_text(parse_strategy(text)) == text for text in told]
    [True, True, True, True, True, True]
    """
    degrees = [f"{sign}{n:g}" for sign, n in (("d", strategy.dp), ("p", strategy.lp)) if n > 1]
    if strategy.modules:
        return ",".join([*(f"{m}={_split_text(s) or 'RC-1-1'}" for m, s in strategy.modules), *degrees])
    return "-".join(filter(None, (_split_text(strategy.split), *degrees))) or "d1"


def from_mesh(degrees: dict[str, Any]) -> Strategy:
    """A strategy for all modules from degrees of its mesh: KP1 and KP2 of RC, `depth` of CR.

    >>> strategy_text(from_mesh({"kp1": 4, "kp2": 2, "dp": 8})), strategy_text(from_mesh({"depth": 8}))
    ('RC-4-2-d8', 'CR-8')
    """
    rows, columns, depth, dp, lp = (degrees.get(name, 1.0) for name in KERNEL_MESH)
    return Strategy(KernelSplit(rows, columns, depth), dp, lp)


def with_degrees(strategy: Strategy, degrees: dict[str, Any]) -> Strategy:
    """A strategy with some degrees of its mesh changed, such as those that a sweep varies.

    >>> strategy_text(with_degrees(parse_strategy("RC-4-2"), {"dp": 8.0}))
    'RC-4-2-d8'
    """
    if not degrees:
        return strategy
    dp, lp = degrees.get("dp", strategy.dp), degrees.get(STAGES, strategy.lp)
    changed = replace(strategy, dp=dp, lp=lp)
    names = dict(zip(KERNEL_MESH, ("rows", "columns", "depth"), strict=False))
    split = {names[name]: value for name, value in degrees.items() if name in names}
    require(not (split and strategy.modules), "splits by module do not vary by degrees", degrees=list(split))
    return replace(changed, split=replace(strategy.split, **split)) if split else changed


def mesh_text(mesh: dict[str, Number]) -> str:
    """The strategy of a mesh that has its dimensions; "" of any other mesh.

    >>> mesh_text({"kp1": 4.0, "kp2": 2.0, "depth": 1.0, "dp": 8.0, "pp": 1.0})
    'RC-4-2-d8'
    """
    if tuple(mesh) != KERNEL_MESH:
        return ""
    rows, columns, depth, dp, lp = (float(degree) for degree in mesh.values())
    if depth > 1 and rows * columns > 1:
        return ""
    return strategy_text(Strategy(KernelSplit(rows, columns, depth), dp, lp))


def layout_of(strategy: Strategy, program: Any, *, backward: str = "gather", rules: str = "") -> Layout:
    """The layout of a strategy for a program that names its `kernel_modules`.

    RC forward gathers what products made along their columns; CR scatters sums. Backward, `gather` is the
    paper's: both gradients of an RC product are divided anew (W's in rows of KP1, A's in columns of KP2), for
    which gradients are gathered and A and W exchanged; `sum` leaves A and W where they lie and adds up
    partial gradients, of weights once for all time steps. `rules="deepflow-2021"` repeats the program behind
    the paper (`Layout`).

    >>> from strata.workload.program import program
    >>> made = layout_of(parse_strategy("RC-4-2-d8"), program("gemm-8192"))
    >>> made.mesh["kp1"], made.mesh["dp"], float(made.devices)
    (4.0, 8.0, 64.0)
    """
    known = f"backward is one of {', '.join(GRADIENT_SCHEMES)}"
    require(backward in GRADIENT_SCHEMES, known, backward=backward)
    require(rules in ("", DEEPFLOW), f"rules are {DEEPFLOW}, or left out", rules=rules)
    names = _products(program)
    if not strategy.modules:
        mesh, places = _one_mesh(strategy)
        on, name = dict.fromkeys(names, places), ""
    else:
        mesh, on = _common_mesh(strategy, program)
        single = all(np.ndim(degree) == 0 for degree in mesh.values())
        name = strategy_text(strategy) if single else ""
    modules: dict[str, Any] = {}
    for module, place in on.items():
        modules |= _module_axes(module, place, backward, rules)
    rows, columns, depth = on.get(MAIN) or next(iter(on.values()))
    modules["stream"] = {"rows": (*rows, "dp"), "depth": depth}
    modules["stream" + GRADIENTS] = {"depth": (*columns, *depth)}
    return replace(layout(mesh, None, **modules), name=name, rules=rules)


_Places = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]  # of rows, columns and depth


def _module_axes(
    module: str, place: _Places, backward: str, rules: str
) -> dict[str, dict[str, tuple[str, ...]]]:
    """Axes of a module's products and of element-wise work on their results, and of their gradients."""
    rows, columns, depth = place
    own = {"rows": (*rows, "dp"), "columns": columns, "depth": depth, "entries": depth}
    own["width"], own["units"] = columns, (*columns, *depth)
    if backward == "sum":
        return {module: own}
    of_input = {"columns": (), "depth": (*columns, *depth)}
    if rules == DEEPFLOW:  # results are gathered before element-wise work: all gates, all words
        of_input["units"], own["units"] = own["units"], depth
        own["width"], own["entries"] = (*columns, *depth), ()  # a table is cut by columns
    of_weight = {"rows": ("dp",), "depth": (*rows, *depth)}
    return {module: own, module + GRADIENTS: of_input, module + WEIGHT_GRADIENTS: of_weight}


def _one_mesh(strategy: Strategy) -> tuple[dict[str, Number], _Places]:
    split = strategy.split
    degrees = (split.rows, split.columns, split.depth, strategy.dp, strategy.lp)
    return dict(zip(KERNEL_MESH, degrees, strict=True)), (("kp1",), ("kp2",), ("depth",))


def _common_mesh(strategy: Strategy, program: Any) -> tuple[dict[str, Number], dict[str, _Places]]:
    """A mesh that every module's split is made of, with the dimensions of each: cut where any of them is.
    Arrays of strategies must be cut in one order, as `by_structure` shares them out.
    """
    said, names = dict(strategy.modules), member(program, "kernel_modules")
    for module in said:
        if module not in names:
            raise UnknownName(f"module of {program.name}", module, names, ", ".join(names))
    splits = {module: said.get(module, strategy.split) for module in names}
    cuts = {m: s.rows for m, s in splits.items() if np.any(np.asarray(s.depth) == 1)}
    ordered = sorted(cuts, key=lambda m: tuple(np.ravel(cuts[m]).tolist()))
    mesh: dict[str, Number] = {}
    below: Number = 1.0
    place: dict[str, int] = {}
    for module in [*ordered, ""]:
        above = cuts[module] if module else strategy.split.devices
        step = above / below
        whole = bool(np.all((np.asarray(step) >= 1) & (np.asarray(step) == np.floor(step))))
        require(whole, "splits of modules must be cut at multiples of each other", strategy=repr(strategy))
        if bool(np.any(np.asarray(step) > 1)):
            mesh[f"kp{len(mesh) + 1}"] = step
        place[module], below = len(mesh), above
    every = tuple(mesh)
    on: dict[str, _Places] = {}
    for module in names:
        at = place.get(module)
        on[module] = ((), (), every) if at is None else (every[:at], every[at:], ())
    return {**mesh, "dp": strategy.dp, STAGES: strategy.lp}, on


def _products(program: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = member(program, "kernel_modules")
    require(bool(names), f"{getattr(program, 'name', program)} has no products that a strategy divides")
    return names


def strategies(
    devices: int, program: Any, *, kinds: tuple[str, ...] = ("RC", "CR"), per_module: bool = False
) -> Strategy:
    """Every legal strategy of a device count, as one whose degrees are arrays: all factorisations into KP1,
    KP2, replicas and stages, of either kind; with `per_module` also every split of each module by itself.

    >>> from strata.workload.program import program
    >>> every = strategies(8, program("lstm-lm-512"))
    >>> every.dp.shape, strategy_text(every.at(0)), strategy_text(every.at(-1))
    ((21,), 'd8', 'CR-4-p2')
    """
    bounded_devices(devices)
    names = _products(program)
    layers = float(np.max(program.units.get("layers", 1.0)))
    rows: list[tuple[float, ...]] = []
    for lp in (p for p in divisors(devices) if p <= layers):
        for dp in divisors(devices // lp):
            splits = _splits(devices // lp // dp, kinds)
            alike = [(s,) * len(names) for s in splits]
            for chosen in _per_module(splits, len(names)) if per_module else alike:
                bounded_plans(len(rows), devices)
                rows.append((dp, lp, *(degree for split in chosen for degree in split)))
    rows.sort(key=lambda row: (row[1], -row[0]))
    table = np.array(rows, float).T
    splits_of = [KernelSplit(*table[2 + 3 * i : 5 + 3 * i]) for i in range(len(names))]
    modules = tuple(zip(names, splits_of, strict=True)) if per_module else ()
    return Strategy(splits_of[0], table[0], table[1], modules)


def _splits(devices: int, kinds: tuple[str, ...]) -> list[tuple[int, int, int]]:
    if devices == 1:
        return [(1, 1, 1)]
    found = [(d, devices // d, 1) for d in divisors(devices)] if "RC" in kinds else []
    return found + ([(1, 1, devices)] if "CR" in kinds else [])


def _per_module(splits: list[tuple[int, int, int]], modules: int) -> list[tuple[tuple[int, int, int], ...]]:
    """A split for each module, out of those whose cuts are multiples of each other."""

    def nested(chosen: tuple[tuple[int, int, int], ...]) -> bool:
        cuts = sorted({rows for rows, _, depth in chosen if depth == 1})
        return all(b % a == 0 for a, b in itertools.pairwise(cuts))

    return [chosen for chosen in itertools.product(splits, repeat=modules) if nested(chosen)]


def by_structure(many: Strategy) -> list[tuple[np.ndarray, Strategy]]:
    """Arrays of strategies shared out so that each part has one structure (which modules are CR, and the
    order of the others' cuts), with where each came from; one part where all modules are divided alike.
    """
    count = max(np.size(degree) for degree in many._degrees())
    if not many.modules:
        return [(np.arange(count), many)]
    splits = [s for _, s in many.modules]
    depth = np.stack([np.broadcast_to(s.depth, count) for s in splits])
    rows = np.stack([np.broadcast_to(s.rows, count) for s in splits])
    cuts = np.where(depth > 1, math.inf, rows)
    order = np.concatenate([np.argsort(cuts, axis=0, kind="stable"), depth > 1])
    _, which = np.unique(order, axis=1, return_inverse=True)
    parts = [np.flatnonzero(np.ravel(which) == part) for part in range(int(np.max(which)) + 1)]
    return [(part, many.at(part)) for part in parts]
