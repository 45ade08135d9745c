"""A deployment whose attention and feed-forwards run on devices apart."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from strata.errors import require
from strata.hardware.system import System, as_system
from strata.mapping.engine import USUAL_SERVER, Engine, as_engine
from strata.mapping.plan import Plan, plan_text
from strata.mapping.plan import plan as make_plan
from strata.serving.pools import pool
from strata.serving.priced_service import LONGEST, PricedService, engine_service
from strata.serving.steps import dollars_per_s
from strata.simulate.server.apart import apart_pricer
from strata.workload.model import Model
from strata.workload.model import model as make_model


@dataclass(frozen=True, eq=False, kw_only=True)
class ApartService(PricedService):
    """Attention on `system`, which has the caches, feed-forwards on `ffn_system`."""

    ffn_system: System
    ffn_plan: Plan

    @property
    def devices(self) -> float:
        return super().devices + self.copies * float(np.asarray(self.ffn_system.devices))

    @property
    def text(self) -> str:
        return f"{super().text} + {self.ffn_system.name} ffn ({plan_text(self.ffn_plan)})"

    def dollars(self, power: float) -> float:
        there = self.copies * float(dollars_per_s(self.ffn_system, np.asarray(0.0), self.economics))
        return super().dollars(power) + there


def attention_ffn_service(
    system: System | str,
    model: Model | str,
    plan: Plan | str,
    ffn_plan: Plan | str,
    engine: Engine | str = USUAL_SERVER,
    *,
    micro_batches: int = 2,
    context: int | None = None,
    kv_blocks: int | None = None,
    prefix_caching: bool = True,
    role: str = "both",
    replicas: int = 1,
    routed: dict[str, Any] | None = None,
    **limits: int,
) -> ApartService:
    """Parts of a system, each as large as its plan, of which the first runs attention and the second the
    feed-forwards, micro-batches taking turns. `limits`: `max_num_batched_tokens` and `max_num_seqs`.

    >>> made = attention_ffn_service("16xh200", "deepseek-v3", "dp=8", "dp=8,ep=8", max_num_seqs=32)
    >>> made.text, made.devices
    ('8 of 16xh200 (dp=8) + 8 of 16xh200 ffn (dp=8,ep=8)', 16.0)
    """
    whole, software = as_system(system), as_engine(engine)
    changes: dict[str, Any] = {k: float(v) for k, v in limits.items()}
    software = replace(software, **changes) if changes else software
    served = make_model(model) if isinstance(model, str) else model
    plans = [make_plan(p) if isinstance(p, str) else p for p in (plan, ffn_plan)]
    sizes = [int(float(p.devices)) for p in plans]
    require(
        sum(sizes) <= float(whole.devices),
        f"sides of {sizes[0]} and {sizes[1]} devices pass those of {whole.name}",
        devices=float(whole.devices),
    )
    here, there = (pool(whole, n) if n < float(whole.devices) else whole for n in sizes)
    pricer = apart_pricer(
        here, there, whole, served, plans[0], plans[1], software, pieces=micro_batches, routed=routed
    )
    found = engine_service(pricer, float(context or LONGEST), kv_blocks, prefix_caching)
    told = {f.name: getattr(found, f.name) for f in fields(PricedService)}
    told |= {"rules": replace(found.rules, role=role), "copies": replicas, "within": whole}
    return ApartService(**told, ffn_system=there, ffn_plan=plans[1])
