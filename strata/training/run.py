"""train_run(): so many tokens of training on a system, under the best plan or a given one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from strata.base.arrays import Number, map_leaves
from strata.base.errors import BadValue, UnknownName, require
from strata.base.units import finite_number, show
from strata.evaluate import evaluate
from strata.hardware.system import System, as_system
from strata.mapping.plan import Plan, plan_text
from strata.mapping.plan import plan as make_plan
from strata.mapping.rules import MEMORY
from strata.result import Result, why_infeasible
from strata.software.engine import Engine, as_engine
from strata.training.checks import check_trainable, check_training_plan
from strata.training.plan_search import DIVIDED, TrainingSearch, search_training
from strata.training.reliability import Goodput, Reliability, reliability, training_goodput
from strata.workload.lora import Lora
from strata.workload.model import Model
from strata.workload.model import model as make_model
from strata.workload.tasks import Workload, train

DAY, HOUR = 86400.0, 3600.0
# Tokens of a step unless told: Llama 3 405B began with 4M (arXiv 2407.21783, sec. 3.4.1).
USUAL_STEP_TOKENS = 2.0**22
USUAL_LENGTH = 4096.0
COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
TRAINING_GOALS = {
    "throughput": "tokens_per_s",
    "cheapest": "cost_per_mtoken",
    "efficient": "energy_per_token",
}
# Adam's state beside bf16 weights in a checkpoint, where an engine states none (ZeRO, arXiv 1910.02054, sec.
# 3.1)
OPTIMIZER_BYTES, WEIGHT_BYTES = 12.0, 2.0


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TrainRun:
    """A run of training: its step, how many of them, and what they take with all that comes between."""

    result: Result  # of a step
    tokens: float
    steps: float
    time: float  # of the whole run, stops included [s]
    cost: float  # USD; nan where the devices have no price
    energy: float  # at the meter of the site [J]
    goodput: Goodput
    hfu: float  # operations that run, recomputed ones included, over the matrix peak
    parameters: float
    search: TrainingSearch | None = None  # where the plan was chosen

    @property
    def plan(self) -> Plan:
        found: Plan = self.result.plan
        return found

    @property
    def days(self) -> float:
        return self.time / DAY

    @property
    def mwh(self) -> float:
        return self.energy / (HOUR * 1e6)

    @property
    def mfu(self) -> float:
        """Of a step: useful operations over the matrix peak."""
        return float(self.result.metrics.mfu)

    @property
    def tokens_per_s_per_device(self) -> float:
        """Of a step; the run as a whole has the goodput's share of it."""
        return float(self.result.metrics.tokens_per_s_per_device)

    @property
    def micro_batch(self) -> float:
        """Sequences of a micro-batch."""
        step = self.result.steps[-1]
        return float(self.result.workload.batch) / float(self.plan.dp) / float(step.microbatches)

    @property
    def waits(self) -> dict[str, float]:
        """What a step waits for, by name [s]: bubble, exposed collectives, host, a lowered clock."""
        step = self.result.steps[-1]
        parts = {name: float(step.time_by_bound[name]) for name in ("bubble", "throttling", "host")}
        exposed: dict[str, Any] = getattr(step, "exposed", None) or {}
        named = {name: float(time) for name, time in exposed.items()}
        other = float(step.time_by_bound["network"]) - sum(named.values())
        rest = "other communication" if named else "communication"
        parts |= named | ({rest: other} if other > 1e-4 * float(step.time) else {})
        return {name: time for name, time in sorted(parts.items(), key=lambda p: -p[1]) if time > 0}

    def __repr__(self) -> str:
        case = f"{self.result.model.name} on {self.result.system.name}, {plan_text(self.plan)}"
        takes = f"{count_text(self.tokens)} tokens in {self.days:.3g} days"
        return f"TrainRun({case}: {takes}, goodput {float(self.goodput.share):.1%})"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words, in SI units."""
        m = self.result.metrics
        return {
            "tokens": self.tokens,
            "steps": self.steps,
            "time_s": self.time,
            "days": self.days,
            "cost_USD": self.cost,
            "energy_J": self.energy,
            "mwh": self.mwh,
            "goodput_share": float(self.goodput.share),
            "goodput_lost": {name: float(share) for name, share in self.goodput.lost.items()},
            "mtbf_s": float(self.goodput.mtbf),
            "checkpoint_interval_s": float(self.goodput.interval),
            "checkpoint_stall_s": float(self.goodput.stall),
            "checkpoint_B": float(self.goodput.state),
            "recovery_s": float(self.goodput.recovery),
            "failures_per_month": float(self.goodput.failures),
            "mfu": self.mfu,
            "hfu": self.hfu,
            "step_time_s": float(m.step_time),
            "tokens_per_s": float(m.tokens_per_s),
            "tokens_per_s_per_device": self.tokens_per_s_per_device,
            "plan": plan_text(self.plan),
            "micro_batch": self.micro_batch,
            "batch": float(self.result.workload.batch),
            "length": float(self.result.workload.sequence),
            "parameters": self.parameters,
            "memory_B": {k: float(v) for k, v in self.result.summary.memory.items()},
            "memory_limit_B": float(m.memory_limit),
            "waits_s": self.waits,
        }


def train_run(
    system: System | str,
    model: Model | str,
    tokens: float | str,
    *,
    batch: float | None = None,
    length: float = USUAL_LENGTH,
    plan: Plan | str | None = None,
    engine: Engine | str = "megatron",
    reliability: Reliability | None = None,
    interval: float | None = None,
    goal: str = "throughput",
    where: str = "",
    top: int = 5,
    adapters: Lora | None = None,
    frozen: tuple[str, ...] = (),
) -> TrainRun:
    """Train a model on so many tokens ("2T"), `batch` sequences of `length` tokens a step, under a plan or
    the best one.

    `reliability` states failures, checkpoints and slow machines (`st.training.reliability`), `interval` the
    seconds between checkpoints (the best ones where none are given), `goal` what the best plan is
    (throughput, cheapest or efficient), `where` keeps some plans by a condition over their degrees,
    `adapters` and `frozen` say what is not trained (`st.train`). Without a batch a step takes about four
    million tokens.

    >>> run = train_run("8xh100", "llama-3-8b", "1B", batch=64, plan="tp=2,dp=4,zero=1,sp=1,recompute=full")
    >>> run.steps, run.days < 1, 0.3 < run.mfu < run.hfu < 0.7, 0.95 < run.goodput.share < 1
    (3815.0, True, True, True)
    """
    hardware, software = as_system(system), as_engine(engine)
    trained = make_model(model) if isinstance(model, str) else model
    if not isinstance(trained, Model):
        raise BadValue(f"runs of training are of language models, but got {trained!r}")
    count, devices = token_count(tokens), float(hardware.devices)
    size = usual_batch(devices, length) if batch is None else float(batch)
    work = train(size, float(length), adapters=adapters, frozen=frozen)
    require(
        count >= size * length,
        f"a run has at least one step, of {count_text(size * length)} tokens (batch {size:g} x {length:g}); "
        f"nearest: a batch of {max(np.floor(count / length), 1.0):g}",
        tokens=count,
    )
    check_trainable(software, trained, work)
    if plan is None or plan == "":
        found = search_training(
            hardware, trained, work, software, metric=training_metric(goal), top=top, where=where
        )
        if not found.choices:
            raise BadValue(why_nothing_fits(found))
        return run_of_step(found.nearest, count, reliability, interval, found)
    result = step_under_plan(hardware, trained, work, plan, software)
    if not result.fits:
        raise BadValue(_what_would_fit(result))
    return run_of_step(result, count, reliability, interval)


def step_under_plan(system: System, model: Model, work: Workload, plan: Plan | str, engine: Engine) -> Result:
    """One optimiser step under a legal plan, whether or not it fits the memory of a device."""
    check_trainable(engine, model, work)
    chosen = make_plan(plan) if isinstance(plan, str) else plan
    check_training_plan(chosen, model, work, float(system.devices))
    return evaluate(system, model, work, chosen, engine)


def run_of_step(
    result: Result,
    tokens: float,
    given: Reliability | None = None,
    interval: float | None = None,
    search: TrainingSearch | None = None,
) -> TrainRun:
    r"""The run that one evaluated step makes.

    .. math:: T = \frac{\lceil n / n_s \rceil \, t}{G}, \qquad E = \mathrm{PUE} \, (P (1 - w) + P_0 w) \, T

    tokens n, of a step n_s, its time t, goodput G, power P of the system while it trains and P_0 while it
    waits, for the share w of the time.
    """
    m, step, devices = result.metrics, result.steps[-1], float(result.system.devices)
    steps = float(np.ceil(tokens / float(step.items)))
    graph = result.program.trace(result.workload)
    forward = [(block, op) for block, op in graph.ops() if block.direction == "forward"]
    trained = sum(float(block.count) * float(op.trained_elements()) for block, op in forward)
    state = trained * checkpoint_bytes(result.engine)
    kept = map_leaves(float, training_goodput(state, devices, given or reliability(), interval))
    time = steps * float(m.step_time) / float(kept.share)
    stopped = float(kept.stopped)
    power = float(m.power) * (1.0 - stopped) + waiting_power(result) * stopped
    return TrainRun(
        result=result,
        tokens=tokens,
        steps=steps,
        time=time,
        cost=float(m.cost_per_device_hour) * devices * time / HOUR,
        energy=power * time * float(result.economics.overhead),
        goodput=kept,
        hfu=float(m.mfu) * float(step.price.flop) * devices / float(step.flop),
        parameters=float(graph.parameters()),
        search=search,
    )


def checkpoint_bytes(engine: Engine) -> Number:
    """Bytes of a checkpoint for a parameter: its weight and the optimiser's state.

    >>> from strata.software.engine import engine
    >>> float(checkpoint_bytes(engine("megatron")))
    14.0
    """
    optimizer = OPTIMIZER_BYTES if engine.training is None else engine.training.optimizer_bytes
    return WEIGHT_BYTES + optimizer


def waiting_power(result: Result) -> float:
    """Power of a system that waits [W]: static, hosts, and their share of fans and supplies."""
    parts = {name: float(joules) for name, joules in result.summary.energy.items()}
    kept = parts["static"] + parts["hosts"]
    beside = parts["cooling and supply"] / (sum(parts.values()) - parts["cooling and supply"])
    return kept * (1.0 + beside) * float(result.metrics.tokens_per_s)


def token_count(tokens: float | str) -> float:
    """A number of tokens, as written.

    >>> token_count("2T"), token_count("300B"), token_count("1.5e12"), token_count(4096)
    (2000000000000.0, 300000000000.0, 1500000000000.0, 4096.0)
    """
    match = re.fullmatch(r"\s*([0-9.eE+_-]+)\s*([kKmMbBgGtT]?)\s*", str(tokens))
    if not match:
        raise BadValue(f"tokens are a number like 2T, 300B or 1.5e12, but got '{tokens}'")
    count = finite_number(match[1], "tokens") * COUNTS[match[2].lower()]
    require(count >= 1, "a run has at least one token", tokens=tokens)
    return count


def count_text(count: float) -> str:
    """A number of tokens or parameters as people write it.

    >>> count_text(2e12), count_text(4194304), count_text(512)
    ('2T', '4.19M', '512')
    """
    for letter in "TBMk":
        if count >= COUNTS[letter.lower()]:
            return f"{count / COUNTS[letter.lower()]:.3g}{letter}"
    return f"{count:g}"


def usual_batch(devices: float, length: float) -> float:
    """Sequences of a step that takes about four million tokens, and that so many devices divide well.

    >>> usual_batch(512, 4096), usual_batch(24, 4096), usual_batch(8, 2.0**23)
    (1024.0, 768.0, 1.0)
    """
    odd = float(devices)
    while odd % 2 == 0:
        odd /= 2.0
    wanted = max(USUAL_STEP_TOKENS / float(length), 1.0)
    odd = odd if odd <= wanted else 1.0
    return float(odd * 2.0 ** np.floor(np.log2(wanted / odd)))


def training_metric(goal: str) -> str:
    """The metric by which plans are ranked for a goal."""
    if goal not in TRAINING_GOALS:
        raise UnknownName("goal", goal, TRAINING_GOALS, ", ".join(TRAINING_GOALS))
    return TRAINING_GOALS[goal]


def why_nothing_fits(found: TrainingSearch) -> str:
    """Why no plan fits, in one line: what the smallest needs, and how many devices would be enough."""
    least = found.nearest
    if not least.reason & MEMORY.bit:
        return why_infeasible(least)
    need, have = float(least.metrics.memory_used), float(least.metrics.memory_limit)
    more = 2.0 ** np.ceil(np.log2(need / have)) * float(least.system.devices)
    away = "" if least.plan.offload else ", offload=optimizer"
    return (
        f"{least.model.name} does not train on {least.system.name} under any of {found.considered:,} plans: "
        f"the smallest ({plan_text(least.plan)}) needs {show(need, 'B')} of {show(have, 'B')} a device; "
        f"levers: about {more:g} devices, a shorter length{away}"
    )


def _what_would_fit(result: Result) -> str:
    """Why a plan does not fit, and the best plan of the same mesh that does."""
    said = why_infeasible(result)
    if result.reason != MEMORY.bit:
        return said
    p = result.plan
    same = " & ".join(f"({name} == {float(getattr(p, name)):g})" for name in DIVIDED)
    near = search_training(result.system, result.model, result.workload, result.engine, where=same, top=1)
    more = (
        f"with the same mesh {plan_text(near.nearest.plan)} fits"
        if near.choices
        else "no micro-batch, recomputation or ZeRO level of this mesh fits: raise tp or pp"
    )
    return f"{said.partition('; levers')[0]}; {more}"
