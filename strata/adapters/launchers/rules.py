"""How an engine is started: the command lines of a version, as data, and which plans it runs as priced."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from strata.base.arrays import map_leaves, register_pytree
from strata.base.errors import BadValue
from strata.base.expression import holds_at
from strata.base.records import readable
from strata.mapping.plan import Plan, order_text, plan_text
from strata.mapping.plans import plans, taken
from strata.params import Sources, names, read_record, remembered, text, texts
from strata.software.engine import Engine
from strata.workload.model import Model
from strata.workload.tasks import Workload

DEGREES = ("tp", "cp", "dp", "pp", "ep", "moe_tp", "redundant_experts", "zero", "sp", "order", "microbatches")
# of a server's degrees, what no flag of any engine says otherwise
EVERY_ENGINE = {
    "cp == 1": "a sequence lies on the devices of one rank (cp=1)",
    "(zero == 0) & (sp == 0) & (microbatches == 0)": "each rank holds its weights whole and steps as usual",
    "order == 0": "ranks lie in the usual order on the fabric",
    "expert_copies == 1": "a server has its experts once",
    "(nodes == 1) | (devices % per_node == 0)": "a server fills whole machines",
}


@register_pytree
@readable("name", "version")
@dataclass(frozen=True, eq=False, kw_only=True)
class Launcher:
    """Flags of one version of an engine by what they say; {braces} hold numbers of the deployment.

    `attention_dp`: data parallel attention whose ranks share experts, with the flag of the tensor degree in
    it (`attention_dp_whole`: only where each such rank is one device). `ep`: any number of parts of the
    experts; `ep_all`: over all ranks or not at all. `mixed_on` and `mixed_off`: prompts in the steps that
    generate, where that is not, or is, what the engine does unasked. `config`: the same for lines of a
    configuration file, keys within keys joined by dots. `nodes`: a server in several machines, and
    `other_nodes` of those after the first beside it; `dp_nodes` and `other_dp_nodes`: where each has whole
    data parallel ranks. `runs`: conditions on the degrees of one server, in words of a plan, with `ranks` (tp
    x dp), `rank_devices`, `nodes`, `per_node`, `draft_tokens` and `chunked_prefill`.
    """

    name: str = text("short name, as in the file's name")
    engine: str = text("the engine it starts, a file of engines/")
    title: str = text("what it is")
    version: str = text("the engine and the version whose flags these are")
    command: str = text("what is called, with the {checkpoint}")
    several_nodes: str = text(
        "what calls the command where a server lies in several machines, if something must", default=""
    )
    config_file: str = text("flag of a configuration file, where there is one", default="")
    flags: dict[str, str] = texts("flags of the command line, by what they say")
    config: dict[str, str] = texts("lines of the configuration file, by what they say")
    weights: dict[str, str] = texts("flags of weight formats that any checkpoint can be loaded in")
    checkpoints: dict[str, str] = texts("weight formats that a checkpoint must have itself: which that is")
    runs: dict[str, str] = texts("conditions under which it runs a plan as priced, and what they mean")
    cache: dict[str, str] = texts("flags, or lines of the configuration, of formats of the KV cache")
    sources: Sources = field(default_factory=Sources)


@remembered
def launcher(engine: str) -> Launcher | None:
    """How an engine is started; None where no file says it.

    >>> launcher("vllm").flags["tp"], launcher("ideal")
    ('--tensor-parallel-size {tp}', None)
    """
    for name in names("launchers"):
        stated, params, _ = read_record(Launcher, "launchers", name)
        if stated.engine == engine:
            return replace(stated, sources=Sources(params))
    return None


@dataclass(frozen=True, eq=False)
class LaunchRules:
    """A model and an engine, and which plans its servers run as priced."""

    engine: Engine
    model: Model
    per_node: int
    window: int

    @property
    def by(self) -> Launcher:
        starts = launcher(self.engine.name)
        if starts is None:
            raise BadValue(f"no launcher starts engine {self.engine.name}")
        return starts

    def servers(self, plan: Plan) -> dict[str, Any]:
        """How many servers a plan is, and the degrees of each: ranks that share no experts are servers of
        their own; of plans on an axis, of each.
        """
        n = {name: np.asarray(getattr(plan, name), float) for name in DEGREES}
        n["order"] = np.asarray(bool(np.any(n["order"]) and order_text(plan)), float)
        within = not self.per_node or "dp_nodes" in self.by.flags
        near = within | (n["tp"] * n["pp"] * n["dp"] <= self.per_node)
        servers = np.where(("dp" in self.by.flags) & near, 1.0, n["dp"])
        groups = servers
        if self.model.has_experts:
            groups = np.asarray(plan.moe_groups, float)
            servers = np.where(groups >= n["dp"], n["dp"], np.where(n["dp"] % groups == 0, groups, 1.0))
        n |= {"servers": servers, "expert_copies": groups / servers, "dp": n["dp"] / servers}
        n["ranks"], n["rank_devices"] = n["tp"] * n["dp"], n["tp"] * n["cp"] * n["pp"]
        devices = n["rank_devices"] * n["dp"]
        per_node = np.maximum(self.per_node or devices, 1.0)
        return n | {"devices": devices, "per_node": per_node, "nodes": np.ceil(devices / per_node)}

    def why_not(self, plan: Plan) -> str:
        """What of a plan the engine does not run as priced; empty where it runs it."""
        return next((words for holds, words in self._rules(plan) if not holds.all()), "")

    def _rules(self, plan: Plan) -> list[tuple[Any, str]]:
        n = self.servers(plan) | {"draft_tokens": float(self.window)}
        n["chunked_prefill"] = float(np.asarray(self.engine.chunked_prefill))
        count = np.size(np.asarray(plan.tp))
        rules = {**EVERY_ENGINE, **self.by.runs}
        return [(holds_at(rule, n, count, self.by.version), words) for rule, words in rules.items()]

    def check(self, plan: Plan) -> None:
        """Refuse a plan that the engine does not run as priced, with the nearest that it does."""
        devices = float(plan.devices)
        for rule, broken, *_ in plan.violations(
            self.model.units, Workload("decode", 2.0**40, 1.0, 1.0), devices
        ):
            if np.any(broken):
                raise BadValue(f"plan {plan_text(plan)} of {self.model.name} is not legal: {rule.relation}")
        why = self.why_not(plan)
        if not why:
            return
        every = plans(int(devices), self.model, freely=False, redundant=True)
        every = taken(every, np.logical_and.reduce([holds for holds, _ in self._rules(every)]))
        near = "no plan of as many devices is one that it does"
        if np.size(every.tp):
            far = sum(abs(np.log2(getattr(every, d) / getattr(plan, d))) for d in DEGREES[:6])
            one = map_leaves(lambda v: float(np.ravel(v)[0]), taken(every, [int(np.argmin(far))]))
            near = f"the nearest that it does: {plan_text(one)}"
        raise BadValue(f"{self.by.version} does not run plan {plan_text(plan)} as priced: {why}; {near}")


def whole_number(value: Any) -> int:
    """A degree or a limit as it is typed."""
    return int(np.asarray(value))
