"""The passes of a priced step: what a stage computes and sends for a micro-batch, by op, block or whole."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

from strata.base.errors import UnknownName, require
from strata.mapping.training_plan import recomputed_layers
from strata.pricing.block import DATA_GROUP, PricedBlock
from strata.pricing.pipeline import block_runs, stage_bounds, stage_send, stage_split
from strata.pricing.power_cap import price_at_clock
from strata.pricing.price import Price, share_links
from strata.pricing.pricers import Pricing, Rank, rank_in_step
from strata.pricing.stage_costs import exchange_saved, is_dualpipe, weight_time
from strata.pricing.step import Step
from strata.pricing.update import update_parts
from strata.simulate.events import TaskWork
from strata.simulate.orders import Pass
from strata.simulate.pipelines import Groups, Segment, StageTimes
from strata.software.engine import trainer_of
from strata.workload.graph import is_collective

DETAILS = ("op", "block", "stage")
OF_CORES = {"F": "forward", "B": "backward", "D": "backward", "W": "weight"}


@dataclass(frozen=True, eq=False)
class PlacedBlock:
    """A block at its place in the program, with its gradient where there is one."""

    forward: PricedBlock
    backward: PricedBlock | None
    layer: int  # -1 before all layers
    runs: float  # how often it runs there
    again: float = 1.0  # share of it that is recomputed where anything is


@dataclass(frozen=True, eq=False)
class StepPasses:
    """A priced step taken apart again, at the clock it holds: every op is stretched as the step is."""

    given: Pricing
    step: Step
    rank: Rank

    @cached_property
    def stages(self) -> int:
        return _whole(self.given.sharding.stages, "stages")

    @cached_property
    def microbatches(self) -> int:
        return _whole(self.given.sharding.microbatches, "micro-batches")

    @cached_property
    def send(self) -> float:
        """One micro-batch's activations to the next stage, or their gradients back [s]."""
        both = float(stage_send(self.given, self.rank).time)
        return self.stretch * (both / 2.0 if self.given.training else both)

    @cached_property
    def send_bytes(self) -> float:
        """Bytes of one micro-batch's activations between stages."""
        order = self.given.graph.sequence
        every = (b for b in self.given.graph.blocks if b.entry is not None and order.starts_layer(b.name))
        return next((float(b.entry.bytes()) for b in every if b.entry is not None), 0.0)

    @cached_property
    def host(self) -> float:
        """Time of the host that no kernel hides [s]."""
        return float(self.step.time_by_bound["host"])

    @cached_property
    def placed(self) -> tuple[PlacedBlock, ...]:
        """Blocks in the order of the program, each as often as it stands there."""
        order, blocks = self.given.graph.sequence, self.step.blocks
        by_name = {b.block.name: b for b in blocks}
        back = {b.block.gradient_of: b for b in blocks if b.block.gradient_of}
        layers = int(float(order.layers))
        names = [(name, -1) for name in order.first]
        names += [(name, i) for i in range(layers) for name in order.layer_blocks(i)]
        names += [(name, layers) for name in order.last]
        often = Counter(name for name, _ in names)
        found = []
        for name, layer in names:
            b = by_name[name]
            copies = 1.0 if self.given.structure.pipelined else float(b.block.count) / often[name]
            found.append(PlacedBlock(b, back.get(name), layer, float(block_runs(b, copies))))
        return tuple(found)

    def chunk_blocks(self, chunks: int) -> list[list[PlacedBlock]]:
        """The blocks of each chunk of the model, split as `pricing.pipeline.stage_bounds` splits layers; of
        what is recomputed the part that its chunk's layers do.
        """
        layers = int(float(self.given.graph.sequence.layers))
        counted, head = stage_split(self.given) if self.given.training else (0.0, None)
        found: list[list[PlacedBlock]] = []
        for chunk in range(chunks):
            bounds = stage_bounds(float(layers), float(chunks), float(chunk), counted, head)
            start, size = (float(v) for v in bounds)
            inside = range(int(start), int(start + size))
            ends = [-1] * (chunk == 0) + [layers] * (chunk == chunks - 1)
            again = float(recomputed_layers(size, 1.0, self.given.sharding.training))
            here = [p for p in self.placed if p.layer in inside or p.layer in ends]
            found.append([replace(p, again=again) for p in here])
        return found

    @property
    def stretch(self) -> float:
        """How much longer the step takes at the clock it holds than at the highest."""
        return float(self.step.stretch)

    def stage_times(self, chunks: int) -> StageTimes:
        """Times of each chunk for one micro-batch, without hand-overs; of DualPipe's as they are where no
        other pass runs beside them, and what the mean chunk saves where one does.
        """
        paired = float(is_dualpipe(self.given))
        placed = self.chunk_blocks(chunks)
        every = [tuple(self.stretch * t for t in _pass_times(blocks, paired)) for blocks in placed]
        forward, inputs, weights = zip(*every, strict=True)
        hidden = (sum(_hidden(blocks)) for blocks in placed) if paired else ()
        return StageTimes(
            forward=forward,
            inputs=inputs,
            weights=weights,
            send=self.send,
            send_back=self.send,
            saved=self.stretch * sum(hidden) / chunks,
        )

    @cached_property
    def shared_links(self) -> dict[str, str]:
        """The links of each group of ranks; groups that have links in common share one name."""
        groups = self.rank.placement.groups
        joined: list[list[str]] = []
        for name in groups:
            mine = [
                j
                for j in joined
                if any(float(share_links(groups[name], groups[o], self.rank.fabric)) for o in j)
            ]
            joined = [j for j in joined if j not in mine] + [[*(n for j in mine for n in j), name]]
        return {name: "+".join(j) for j in joined for name in j}

    # ------------------------------------------------------------------------------- parts of a pass

    def groups(
        self, p: Pass, device: int, chunks: list[list[PlacedBlock]], how: Parts, *, final: bool = False
    ) -> Groups:
        """A pass of a device in parts: one group a block, in order. Where it makes a chunk's gradients
        `final`, blocks sum them over data parallel ranks as they end, and nothing waits for that.
        """
        blocks = chunks[p.chunk] if p.what == "F" else chunks[p.chunk][::-1]
        whole = sum(_parameters(b) for chunk in chunks for b in chunk) if final else 0.0
        found: Groups = []
        for b in blocks:
            group = self._block(p.what, b, device, how)
            if whole and self.optimiser[1]:
                time = self.optimiser[1] * self.stages * _parameters(b) / whole
                link = (f"stage {device} links {self.shared_links[DATA_GROUP]}",)
                name = f"{b.layer} {b.forward.block.name} sum"
                group.append(Segment(name, time, link, True, detached=True, kind="collective"))
            if group:
                found.append(group)
        return found

    def _block(self, what: str, placed: PlacedBlock, device: int, how: Parts) -> list[Segment]:
        kind, often = OF_CORES[what], placed.runs * self.stretch
        label = f"{placed.layer} {placed.forward.block.name}"
        if what == "F":
            return self._ops(label, placed.forward, device, how, often, kind)
        found = []
        again = float(placed.forward.again.time) * often * placed.again
        if again and what != "W":
            work = self._work(placed.forward.again, placed.runs * placed.again)
            found.append(Segment(f"{label} again", again, kind="recompute", work=work))
        if placed.backward is not None:
            found += self._ops(label, placed.backward, device, how, often, kind, of=what)
        return found

    def _ops(
        self, label: str, b: PricedBlock, device: int, how: Parts, often: float, kind: str, of: str = ""
    ) -> list[Segment]:
        """The ops of a block; as a whole where its sizes change over iterations, or where nobody looks."""
        if how.detail == "block" or b.block.nodes:
            time = {"W": float(weight_time(b)), "B": float(b.price.time) - float(weight_time(b))}.get(
                of, float(b.price.time)
            )
            share = time / float(b.price.time) if time > 0.0 else 0.0
            work = self._work(b.price, often / self.stretch * share)
            return [Segment(label, time * often, kind=kind, work=work)] if time > 0.0 else []
        raw = {op.name: price for node in b.raw for op, price in node.ops}
        found = []
        for i, (op, shown) in enumerate(b.ops):
            if of in ("B", "W") and op.weight_gradient != (of == "W"):
                continue
            name, time = f"{label} {op.name} {i}", float(shown.time) * often
            if is_collective(op):
                beside = op.prefetch and not how.serial
                time = float(raw[op.name].time) * often if beside else time
                links = (f"stage {device} links {self.shared_links[op.group]}",)
                work = self._work(raw[op.name] if beside else shown, often / self.stretch)
                found.append(Segment(name, time, links, True, beside, kind="collective", work=work))
            else:
                dram = (f"stage {device} DRAM",) if float(shown.memory) > 0.5 * float(shown.time) else ()
                work = self._work(shown, often / self.stretch)
                found.append(Segment(name, time, dram, kind=kind, work=work))
        return found

    def _work(self, price: Price, often: float) -> TaskWork:
        """What so many of a load do, at the clock that is held."""
        held = price_at_clock(price, self.step.clock, self.given.system.chip)
        flop, moved, energy = (float(v) * often for v in (held.flop, held.memory_bytes, held.energy))
        return TaskWork(flop, moved, energy)

    # --------------------------------------------------------------------------------- the update

    @cached_property
    def optimiser(self) -> tuple[float, float]:
        """The optimiser on a mean stage, and the whole sum of its gradients over ranks [s]."""
        if not self.given.training:
            return 0.0, 0.0
        parts = update_parts(self.given, self.rank, self.step.blocks)
        beside = float(trainer_of(self.given.engine).overlap_grad_reduce) > 0
        summed = float(parts.often) * float(parts.sums.gradients.time)
        alone = float(parts.optimiser.time + parts.ends.time) + float(self.step.exposed["parameters"])
        alone += 0.0 if beside else summed
        return alone * self.stretch, summed * self.stretch if beside else 0.0


def _parameters(placed: PlacedBlock) -> float:
    return float(placed.forward.held.trained)


@dataclass(frozen=True)
class Parts:
    """How finely passes are simulated, and whether anything runs beside anything."""

    detail: str
    serial: bool

    def __post_init__(self) -> None:
        if self.detail not in DETAILS:
            raise UnknownName("detail", self.detail, DETAILS, ", ".join(DETAILS))


def step_passes(given: Pricing, step: Step) -> StepPasses:
    """A priced step and what it was priced with, as passes."""
    return StepPasses(given, step, rank_in_step(given))


def _pass_times(blocks: list[PlacedBlock], paired: float = 0.0) -> tuple[float, float, float]:
    """Forward pass, gradients to inputs and to weights [s]; `paired`: with what another pass hides."""
    ahead, behind = (paired * time for time in _hidden(blocks))
    forward = sum(p.runs * float(p.forward.price.time) for p in blocks)
    again = sum(p.runs * p.again * float(p.forward.again.time) for p in blocks)
    back = [(p.runs, p.backward) for p in blocks if p.backward is not None]
    weights = sum(runs * float(weight_time(b)) for runs, b in back)
    inputs = again + sum(runs * float(b.price.time) for runs, b in back) - weights
    return forward + ahead, inputs + behind, weights


def _hidden(blocks: list[PlacedBlock]) -> tuple[float, float]:
    """What another micro-batch's pass hides of exchanges, forward and backward [s]."""
    forward = sum(p.runs * float(exchange_saved(p.forward)) for p in blocks)
    back = (p.runs * float(exchange_saved(p.backward)) for p in blocks if p.backward is not None)
    return forward, sum(back)


def _whole(value: object, what: str) -> int:
    found = float(value)  # type: ignore[arg-type]
    require(found == int(found), f"a simulation needs a whole number of {what}", given=found)
    return int(found)
