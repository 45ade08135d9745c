"""Lower bounds of a layer's time while layouts are still open: fusion at the least of every quantity, and
sums of compute, weights and communication over all layouts at once.

Fusion time never falls as any kernel's time, weight, tensor or collective grows, so that the fusion problem
of the least values over the open options is below every layout of them. The longest of compute, memory and
network of each partition is at least any weighted mean of them, whose sum over partitions no longer knows the
partitions: its least value over layouts is exact by bucket elimination.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from strata.base.arrays import Array
from strata.mapping.layout import PartitionSpec
from strata.optimise.fusion.fusion_problem import FusionProblem
from strata.optimise.layout import LayoutSetting
from strata.optimise.layouts.factor_graph import (
    Assignment,
    Factor,
    FactorGraph,
    eliminated,
    min_marginals,
    restricted,
)
from strata.optimise.layouts.layout_factors import layout_tables
from strata.optimise.layouts.layout_options import LayoutRules, ModuleOptions
from strata.optimise.layouts.layout_states import LayoutTables
from strata.optimise.mappings.joint_block import Open, OpenBlock
from strata.optimise.mappings.joint_problem import MapSettings, block_problems, node_blocks, streamed_axes
from strata.pricing.pricers import on_chip
from strata.workload.graph import Op

ELIMINATION_LIMIT = 3_000_000


class OpenLayer:
    """All blocks of a layer with all layouts of a mesh."""

    def __init__(
        self, setting: LayoutSetting, rules: LayoutRules, told: MapSettings, options: dict[str, ModuleOptions]
    ):
        self.setting, self.told = setting, told
        # Leaves are priced as `shard` divides them: sums where they are read, conversions once for all.
        self.rules = replace(rules, objective="time", consumers="shared", sums="at reader")
        self.options = options
        inside = {d: n for d, n in setting.mesh.items()}
        self.ranks = float(np.prod([float(n) for n in inside.values()]))
        fast = replace(setting.rank, device=on_chip(setting.rank.device))
        self.tables: LayoutTables = layout_tables(
            setting.graph, setting.work, inside, fast, self.rules, options
        )
        self.axes = streamed_axes(setting.graph)
        base = {b.block: b.problem for b in block_problems(setting.graph, setting, told)}
        self.blocks = [
            OpenBlock(name, times, block, base[name], self)
            for name, times, block in node_blocks(setting.graph)
        ]

    def left_behind(self, reader: OpenBlock, alive: Open) -> dict[str, float]:
        """The least bytes of tensors of other blocks that a block reads."""
        found: dict[str, float] = {}
        prefixes = (t.name.partition(":") for t in reader.base.tensors)
        wanted = {prefix for prefix, colon, _ in prefixes if colon}
        for block in self.blocks:
            made = block.block.name
            if block is not reader and wanted & {made}:
                found |= block.left_behind(alive)
        return found

    def left(self, op: Op, option: int) -> tuple[PartitionSpec, tuple[str, ...]]:
        """How an option leaves an op's result: its layout, and groups over which it is partial."""
        return self.tables.left(op.module, op.result_axes(), op.contracted_axes(), option)

    @property
    def whole(self) -> Open:
        return {m: np.arange(len(o)) for m, o in self.options.items()}

    @cached_property
    def sums(self) -> tuple[dict[str, Array], dict[str, Array], dict[str, Array]]:
        """By module and option, over all blocks: seconds on the chip, those of tables, those of weights."""
        compute, counted, weights = ({m: np.zeros(len(o)) for m, o in self.options.items()} for _ in range(3))
        bandwidth = float(self.setting.rank.device.bandwidth)
        utilised = self.told.rules.compute
        for block in self.blocks:
            for kernel, values in block.values.items():
                module = block.module[kernel]
                if module not in self.options:
                    continue
                counted[module] += block.times * block.full[kernel]
                if utilised == "priced":
                    compute[module] += block.times * values["time"]
                elif utilised == "utilisation":
                    chip = block.base.chip
                    compute[module] += block.times * values["flop"] / (chip.peak * chip.utilisation)
                else:
                    compute[module] += block.times * full_array_time(values, block.base)
                if self.told.rules.weight_traffic == "read":
                    read = values["weight_bytes"] / self.told.together / bandwidth
                    weights[module] += block.times * read
        return compute, counted, weights

    def weighted(self, shares: tuple[float, float, float], alive: Open) -> FactorGraph:
        """The sum of shares of compute, memory and network over all blocks, as tables over open layouts."""
        compute, counted, weights = self.sums
        part = shares[2]
        graph = FactorGraph(
            dict(self.tables.factors.domains),
            [Factor(f.scope, part * f.table) for f in self.tables.factors.factors],
        )
        for m in self.options:
            own = shares[0] * compute[m] + shares[1] * weights[m] - part * counted[m]
            graph.factors.append(Factor((m,), own))
        keep = {v: alive.get(v, np.arange(n)) for v, n in graph.domains.items()}
        return restricted(graph, keep)

    def sum_bound(self, shares: tuple[float, float, float], alive: Open) -> Assignment | None:
        """The least weighted sum, with its layout; None where tables are too large."""
        found = eliminated(self.weighted(shares, alive), ELIMINATION_LIMIT)
        if found is None:
            return None
        choice = {m: int(alive[m][found.choice[m]]) for m in self.options}
        return replace(found, choice=choice)

    def sum_marginals(self, shares: tuple[float, float, float], alive: Open, module: str) -> Array:
        graph = self.weighted(shares, alive)
        return min_marginals(graph.factors, graph.domains, module)


def full_array_time(values: dict[str, Array], problem: FusionProblem) -> Array:
    """Seconds of a kernel with every multiplier of all cores at work, which no share of cores is below."""
    chip = problem.chip
    width, height = chip.array
    product = values["depth"] > 0
    cycles = values["rows"] * values["columns"] * np.where(product, values["depth"] / height, 1.0) / width
    found: Array = cycles / (chip.cores * chip.clock)
    return found


def shares_grid(overlap: str) -> tuple[tuple[float, float, float], ...]:
    """Weights of compute, memory and network that bounds are tried with; each weighted sum is below the time
    of a partition with this overlap.

    >>> shares_grid("none")
    ((1.0, 1.0, 1.0),)
    """
    if overlap == "none":
        return ((1.0, 1.0, 1.0),)
    if overlap == "network apart":
        return tuple((share, 1.0 - share, 1.0) for share in (1.0, 0.5, 0.0))
    found: list[tuple[float, float, float]] = []
    for network in (0.98, 0.75, 0.5, 0.25, 0.02):
        rest = 1.0 - network
        found += [(rest, 0.0, network), (0.5 * rest, 0.5 * rest, network), (0.0, rest, network)]
    return tuple(found)
