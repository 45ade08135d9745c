"""Attention on some devices, feed-forwards and experts on others: a step as two sides that hand micro-batches
to each other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from strata.arrays import Array
from strata.errors import BadValue, require
from strata.evaluate import evaluate
from strata.hardware.system import System
from strata.mapping.engine import Engine
from strata.mapping.plan import Plan, plan_text
from strata.pricing.network.collective_cost import collective
from strata.simulate.server.step_pricer import ROOM, StepPricer
from strata.workload.model import Model
from strata.workload.tasks import Workload

SIDES = ("attention", "ffn")


def model_side(model: Model, side: str) -> Model:
    """The part of a model that one side runs: attention with embedding and head, or feed-forwards alone.

    >>> from strata.workload.model import model
    >>> whole, parts = model("deepseek-v3"), [model_side(model("deepseek-v3"), side) for side in SIDES]
    >>> [part.pattern.kinds(0) for part in parts], [part.has_experts for part in parts]
    ([('full',), ()], [False, True])
    """
    part = SIDES.index(side)

    def kept(pair: tuple[str, ...]) -> tuple[str, str]:
        return (pair[0], "none") if part == 0 else ("none", pair[1])

    pattern = model.pattern
    for pair in pattern.pairs():
        if "none" in pair or model.parallel_residual:
            raise BadValue(
                f"{model.name} has layers without attention or feed-forward, or both side by side: its sides "
                "do not take turns"
            )
    prefix = kept(pattern.prefix) if pattern.prefix else ()
    period = tuple(kept(pair) for pair in pattern.period)
    changed: dict[str, Any] = {} if part == 0 else {"vocab": 1.0, "tower_parameters": 0.0}
    return replace(
        model,
        name=f"{model.name} ({side})",
        pattern=replace(pattern, prefix=prefix, period=period),
        **changed,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class ApartPricer(StepPricer):
    r"""An engine whose attention and feed-forwards run on devices of their own.

    `system`, `plan` and `engine` are those of the attention side, which has the caches; `model` is its part.
    With a micro-batch that takes A on one side, F on the other and X on the way there or back, over all L
    layers, and m micro-batches that take turns,

    .. math:: T = \max\left(A + F + 2X,\; m\,\max(A, F, X) + \frac{A + F + 2X - \max(A, F, X)}{L}\right)

    the slower side without a pause, and the first and last layer of the others; or one micro-batch after the
    other where there are too few to fill the pauses (Zhu et al., MegaScale-Infer, 2025, arXiv:2504.02263,
    section 4.1). A and F are steps of `evaluate` on the two parts of the graph, so that each side has its own
    host time; feed-forwards whose plan spreads experts pay their exchange among themselves beside X.
    """

    whole: Model
    ffn_system: System
    ffn_plan: Plan
    across: System  # in which both sides lie, attention first
    pieces: int = 2  # micro-batches

    def __post_init__(self) -> None:
        require(self.pieces >= 1, "a step has at least one micro-batch", pieces=self.pieces)
        devices = [int(float(s.devices)) for s in (self.system, self.ffn_system, self.across)]
        require(
            devices[0] + devices[1] <= devices[2],
            "both sides lie within the system around them",
            attention=devices[0],
            ffn=devices[1],
            around=devices[2],
        )

    @property
    def ffn_model(self) -> Model:
        return model_side(self.whole, "ffn")

    def exchange(self, tokens: Array) -> Array:
        """Time to bring what so many tokens hand on from one side to the other in all layers, the slower way
        [s]: each device takes the tokens of its lane.
        """
        lanes = min(float(self.plan.dp), float(self.ffn_plan.dp))
        graph = self.whole.trace(self.generating(np.asarray(1.0), np.asarray(1.0)))
        handed = next(
            b.entry for b in graph.blocks if b.entry is not None and graph.sequence.in_layers(b.name)
        )
        sent = tokens * float(np.asarray(handed.bytes())) / (self.lanes * lanes)
        apart = int(float(self.system.devices))
        cost = collective(self.across, "send", bytes=sent, ranks=2, stride=apart, engine=self.engine)
        return np.asarray(cost.time, float) * float(np.asarray(self.whole.layers))

    def micro_batches(self, work: Workload) -> Array:
        """Micro-batches of a step: as many as told, where each lane has a sequence for each of them."""
        return np.clip(np.asarray(work.batch, float) / self.lanes, 1.0, float(self.pieces))

    def sides(self, work: Workload) -> tuple[Array, Array, Array, Array]:
        """Times of a micro-batch: on each side, and on the way from one to the other [s]; power of both [W].

        Of prompts that are read beside, each has a part of the chunk.
        """
        pieces = self.micro_batches(work)
        part = replace(work, batch=work.batch / pieces)
        if work.prompts is not None:
            chunk = work.chunk / pieces
            part = replace(part, chunk=chunk, reached=work.reached - 0.5 * (work.chunk - chunk))
        here = self.evaluated(part).metrics
        roomy = replace(self.engine, gpu_memory_utilization=self.engine.gpu_memory_utilization * ROOM)
        there = evaluate(self.ffn_system, self.ffn_model, part, self.ffn_plan, roomy).metrics
        times = [np.asarray(m.step_time, float) for m in (here, there)]
        power = np.asarray(here.power, float) + np.asarray(there.power, float)
        return times[0], times[1], self.exchange(np.asarray(part.batch * part.sequence, float)), power

    def priced(self, work: Workload) -> tuple[Array, Array]:
        here, there, way, power = self.sides(work)
        time = taken_in_turn(here, there, way, self.micro_batches(work), np.asarray(self.whole.layers, float))
        return time, time * power

    def check_room(self) -> None:
        """Raise where feed-forwards do not fit on their devices."""
        work = self.generating(np.asarray(1.0), np.asarray(1.0))
        found = evaluate(self.ffn_system, self.ffn_model, work, self.ffn_plan, self.engine)
        if not bool(np.all(found.fits)):
            where = f"{self.ffn_system.name} with {plan_text(self.ffn_plan)}"
            raise BadValue(f"feed-forwards of {self.whole.name} do not fit on {where}")


def taken_in_turn(here: Array, there: Array, way: Array, pieces: Array, layers: Array) -> Array:
    """A step of micro-batches that two sides take in turn, by the times of one over all layers.

    >>> [float(taken_in_turn(1.0, 1.0, 0.0, m, np.array(10.0))) for m in (1.0, 2.0, 3.0)]
    [2.0, 2.1, 3.1]
    """
    alone = here + there + 2.0 * way
    slowest = np.maximum(np.maximum(here, there), way)
    return np.maximum(alone, pieces * slowest + (alone - slowest) / layers)


def apart_pricer(
    system: System,
    ffn_system: System,
    across: System,
    model: Model,
    plan: Plan,
    ffn_plan: Plan,
    engine: Engine,
    *,
    pieces: int = 2,
    routed: dict[str, Any] | None = None,
) -> ApartPricer:
    """Steps of a model whose attention runs on `system` and whose feed-forwards run on `ffn_system`."""
    pricer = ApartPricer(
        system=system,
        model=model_side(model, "attention"),
        plan=plan,
        engine=engine,
        routed=routed or {},
        whole=model,
        ffn_system=ffn_system,
        ffn_plan=ffn_plan,
        across=across,
        pieces=pieces,
    )
    pricer.check_room()
    return pricer
