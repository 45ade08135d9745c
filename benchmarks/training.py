"""Rows on training: one evaluation, every plan of 512 GPUs, and the searches Calculon takes hours for."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import strata as st
from benchmarks.fusion import seconds_of
from strata.base.memo import forget
from strata.training.plan_search import search_training

PLAN = "tp=8,pp=4,dp=16,zero=1,sp=1,recompute=full,microbatches=64"
# Sizes of Calculon's exhaustive searches, and configurations a CPU-second of them as shipped, measured by us
# on one core (our study of peers, sec. 2.1): 175B on 64 A100 and 1T on 512.
CALCULON = (
    ("gpt3-175b", "64xa100-80", 64.0, 3_232_128, 72.0),
    ("gpt3-1t", "512xa100-80", 512.0, 5_882_400, 86.0),
)


def other_plans() -> list[str]:
    """Plans of 512 devices for 1,024 sequences, each another one."""
    found = []
    ways = itertools.product((2, 4, 8), (2, 4, 8), (0, 1, 3), (16, 32, 64), ("none", "selective", "full"))
    for tp, pp, zero, pieces, again in ways:
        copies = 512 // (tp * pp)
        if 1024 % (copies * pieces) == 0:
            found.append(
                f"tp={tp},pp={pp},dp={copies},zero={zero},sp=1,recompute={again},microbatches={pieces}"
            )
    return found


def add_training(add: Callable[..., None]) -> None:
    """Seconds on one core of one training step, of others one after another, of all plans of a 70B model on
    512 GPUs (meshes, micro-batches, recomputation, schedules, ZeRO, sequence parallelism, orders of the best
    on the fabric), and of Calculon's two searches.
    """
    system, model, work = st.system("512xh100"), st.model("llama-3-70b"), st.train(1024, 4096)
    plan, engine = st.plan(PLAN), st.engine("megatron")

    def some() -> None:
        for _ in range(20):
            st.evaluate(system, model, work, plan, engine)

    add("train_single", seconds_of(some, 3) / 20 * 1e3, "ms", "the target: 5 ms", 5.0, smaller=True)
    others = [st.plan(text) for text in other_plans()]

    def each() -> None:
        forget()  # kernels and collectives that plans share are priced once, those of this run alone
        for other in others:
            st.evaluate(system, model, work, other, engine)

    took = seconds_of(each, 3) / len(others) * 1e3
    add("train_other_plans", took, "ms", "the target: 5 ms", 5.0, smaller=True, points=len(others))
    found: dict[str, Any] = {}

    def search() -> None:
        found["search"] = search_training(system, model, work, engine)

    took = seconds_of(search, 3)
    plans = found["search"].considered
    add("train_plans_512", took, "s", "the target: 2 s on one core", 2.0, smaller=True, points=plans)
    for name, on, batch, size, rate in CALCULON:
        case = (st.system(on), st.model(name), st.train(batch, 2048))

        def repeat(case: tuple[Any, ...] = case) -> None:
            found["search"] = search_training(*case, engine)

        took = seconds_of(repeat, 2)
        said = f"Calculon, as shipped: {size:,} configurations at {rate:g} a CPU-second"
        points = found["search"].considered
        add(f"train_search_{name}", took, "s", said, size / rate, smaller=True, points=points)
