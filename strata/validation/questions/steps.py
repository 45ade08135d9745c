"""Questions about whole steps, priced as `strata predict` and `strata train` do, whether or not they fit: a
run that was measured did. Quantities of the chip and the engine, sizes of the model and degrees of the plan
are arguments by their paths, as `--set` and `--plan` take them.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from strata.base.errors import BadValue, require
from strata.hardware.chip import chip
from strata.hardware.system import System, systems
from strata.mapping.plan import FLAGS, WORDS, Plan, plan, plan_text
from strata.one_step import priced_step, step_pricing
from strata.params import dashed, leaf_paths, override, word_paths
from strata.pricing.stage_costs import first_stage_at_update, kept_by_layers, training_passes
from strata.pricing.step import Step
from strata.pricing.training_memory import OUTSIDE
from strata.search.inputs import model_value
from strata.software.engine import Engine, engine
from strata.validation.questions.question import Argument, QuestionKind, number, set_words, word
from strata.validation.readers.labels import Catalogue, trained_format
from strata.workload.lora import Lora
from strata.workload.model import LAYERS, Model, changed_model
from strata.workload.tasks import Workload, decode, prefill, train

WRONG = 1e-12  # a wrong call: an error of 1 that is not a failed row


def _record_settings(prefix: str, record: Any) -> dict[str, Argument]:
    """Quantities and words of a record as arguments that need not be given."""
    numbers = {path: number(meta["doc"], meta["unit"], None) for path, meta in leaf_paths(record).items()}
    words = {path: word(meta["doc"], "") for path, meta in word_paths(record).items()}
    return {f"{prefix}.{path}": one for path, one in (numbers | words).items()}


def _plan_settings() -> dict[str, Argument]:
    worded = {*WORDS, *FLAGS, "order"}
    every = {f.name: f.metadata["divides"] for f in fields(Plan)}
    return {
        f"plan.{name}": word(meaning, "") if name in worded else number(meaning, default=None)
        for name, meaning in every.items()
    }


def _model_settings() -> dict[str, Argument]:
    known = {
        f.name: f.default for f in fields(Model) if f.name not in ("name", "pattern", "published", "mixer")
    }
    return {
        f"model.{name}": word(f"{name} of the model", "")
        if isinstance(default, bool | str)
        else number(f"{name} of the model", default=None)
        for name, default in (known | {LAYERS: None}).items()
    }


_CHIP, _ENGINE = _record_settings("chip", chip("h200")), _record_settings("engine", engine("megatron"))
_MODEL, _PLAN = _model_settings(), _plan_settings()
_INPUTS = {
    "system": word("the system, like 8xh100, in place of chip and devices", ""),
    "chip": word("name of the chip", ""),
    "devices": number("devices of the system", default=1.0),
    "domain": number("devices of each scale-up domain that a job may use", default=None),
    "fabric": word("name of the fabric, where it is not the chip's usual one", ""),
    "link_rate": number("rate of a device between domains", "B/s", None),
    "model": word("name of the model"),
    "precision": word("format of weights and products, where it is not the model's own", ""),
    "engine": word("name of the engine"),
    "batch": number("sequences of a step"),
    "plan": word("the plan, like tp=4,dp=2, beside degrees of their own", ""),
    **_MODEL,
    **_PLAN,
    **_ENGINE,
    **_CHIP,
}


def _settings(given: dict[str, Any], names: dict[str, Argument]) -> dict[str, Any]:
    """Arguments that are given, by their paths without what they are of; equal numbers as one."""
    return {
        name.partition(".")[2]: _one_value(given[name])
        for name in names
        if given[name] is not None and (not isinstance(given[name], str) or given[name])
    }


def _one_value(value: Any) -> Any:
    if isinstance(value, str | float):
        return value
    return float(value[0]) if np.all(value == value[0]) else value


@dataclass(frozen=True, eq=False)
class AskedStep:
    """A step that rows ask about: its inputs, and its price whether or not it fits."""

    system: System
    model: Model
    plan: Plan
    engine: Engine
    work: Workload

    @cached_property
    def step(self) -> Step:
        return priced_step(self.system, self.model, self.work, self.plan, self.engine)

    def memory(self, *outside: str) -> Any:
        """Bytes of the fullest device, without those of some purposes."""
        return sum((size for purpose, size in self.step.memory.items() if purpose not in outside), 0.0)

    @property
    def fits(self) -> Any:
        return self.memory() <= self.system.chip.memory.capacity

    def at_update(self) -> Any:
        """Bytes allocated on the first stage while optimiser state is updated."""
        inputs = self.system, self.model, self.work, self.plan, self.engine
        return first_stage_at_update(step_pricing(*inputs))


def _asked(given: dict[str, Any], catalogue: Catalogue, work: Workload) -> AskedStep:
    on = catalogue.fabric(given["fabric"]) if given["fabric"] else None
    count = _one_value(given["devices"])
    domain = None if given["domain"] is None else _one_value(given["domain"])
    require(bool(given["system"] or given["chip"]), "a step needs a system, or a chip and devices")
    joined = (
        catalogue.system(given["system"])
        if given["system"]
        else systems(dashed(given["chip"]), count, domain, on, given["link_rate"], catalogue.system)
    )
    if changed := _settings(given, _CHIP):
        joined = System(joined.name, override(joined.chip, changed, "chip")[0], joined.fabric)
    formats = {"weights": trained_format(given["precision"]), "kv": "bf16"} if given["precision"] else {}
    sizes = {
        name: model_value(name, v) if isinstance(v, str) else v
        for name, v in _settings(given, _MODEL).items()
    }
    software = override(catalogue.engine(given["engine"]), _settings(given, _ENGINE), "engine")[0]
    model = changed_model(catalogue.model(given["model"], **formats), **sizes)
    return AskedStep(joined, model, plan(given["plan"], **_settings(given, _PLAN)), software, work)


def _typed(phase: str, given: dict[str, Any], input: float) -> str:
    """The line of `strata predict` that a row asks; "" where it says what no option takes."""
    if any(given[name] is not None for name in ("domain", "link_rate")) or given["precision"]:
        return ""
    system = given["system"] or f"{float(given['devices']):g}x{dashed(given['chip'])}"
    degrees = plan(given["plan"], **_settings(given, _PLAN))
    words = ["strata", "predict", "--phase", phase, "--model", given["model"], "--system", system]
    words += ["--plan", plan_text(degrees), "--engine", given["engine"], "--batch", f"{given['batch']:g}"]
    words += ["--input", f"{input:g}"] + (["--fabric", given["fabric"]] if given["fabric"] else [])
    for prefix, names in (("chip", _CHIP), ("engine", _ENGINE), ("model", _MODEL)):
        values = {f"{prefix}.{path}": value for path, value in _settings(given, names).items()}
        words += set_words(values, {name: one.unit for name, one in names.items()})
    return shlex.join(str(word) for word in words)


def _train_typed(given: dict[str, Any]) -> str:
    return "" if given["trains"] != "all" or given["start"] else _typed("train", given, given["sequence"])


def _step_typed(given: dict[str, Any]) -> str:
    """A whole prompt or one token of decode; other steps have no line."""
    tokens, context = float(given["tokens"]), float(given["context"])
    if given["phase"] == "prefill":
        return _typed("prefill", given, tokens) if tokens == context else ""
    line = _typed("decode", given, context) if tokens == 1 else ""
    return f"{line} --output 0" if line else ""


def _step(given: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    batch, tokens, context = (given[name] for name in ("batch", "tokens", "context"))
    if given["phase"] not in ("prefill", "decode"):
        raise BadValue(f"phase must be prefill or decode, but got '{given['phase']}'")
    reads = given["phase"] == "prefill"
    work = prefill(batch, tokens, cached=context - tokens) if reads else decode(batch, context, tokens=tokens)
    asked = _asked(given, catalogue, work)
    step, clock = asked.step, asked.system.chip.compute.max_clock
    return {
        "time": step.time,
        "power": step.power,
        "clock": step.clock * clock,
        "energy": step.power * step.time,
    }


def _train(given: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    batch, length = _one_value(given["batch"]), _one_value(given["sequence"])
    asked = _asked(given, catalogue, train(batch, length, adapters=_adapters(given)))
    step, devices = asked.step, asked.system.devices

    def passes(which: int) -> Any:
        return training_passes(step, asked.system.chip)[which]

    return {
        "time": step.time,
        "tokens_per_s_per_device": batch * length / step.time / devices,
        "memory": asked.memory(*OUTSIDE),
        "memory_at_update": asked.at_update,
        "fits": np.where(asked.fits, 1.0, WRONG),
        "does_not_fit": np.where(asked.fits, WRONG, 1.0),
        "forward": lambda: passes(0) + given["start"],
        "loss": lambda: passes(1),
        "backward": lambda: passes(2),
        "kept": lambda: kept_by_layers(step, bool(np.all(asked.plan.recompute > 1)), asked.engine),
    }


def _adapters(given: dict[str, Any]) -> Lora | None:
    """The adapters of a run that trains those alone."""
    if given["trains"] == "all":
        return None
    require(given["trains"] == "lora", "trains must be all or lora", trains=given["trains"])
    require(given["lora.rank"] is not None, "a run of adapters needs their rank", trains="lora")
    return Lora(
        rank=_one_value(given["lora.rank"]),
        modules=tuple(given["lora.modules"].split(",")),
        dropout=bool(given["lora.dropout"]),
        fused=bool(given["lora.fused"]),
    )


QUESTIONS = {
    "step": QuestionKind(
        name="step",
        arguments={
            "phase": word("prefill or decode"),
            "tokens": number("tokens of each sequence in the step"),
            "context": number("tokens that a sequence attends to, those of the step among them"),
            **_INPUTS,
        },
        answers={"time": "s", "power": "W", "clock": "Hz", "energy": "J"},
        ask=_step,
        command=_step_typed,
    ),
    "train": QuestionKind(
        name="train",
        arguments={
            "sequence": number("tokens of a sequence"),
            "trains": word("all weights, or lora: adapters beside a frozen base", "all"),
            "lora.rank": number("rank of adapters", default=None),
            "lora.modules": word("modules with adapters, with commas", "attention,ffn"),
            "lora.dropout": number("1 where their inputs are dropped at random", default=0.0, alike=True),
            "lora.fused": number("1 where they are added within their products", default=0.0, alike=True),
            "start": number("time until the first kernel of a step reaches the device", "s", 0.0),
            **_INPUTS,
        },
        answers={
            "time": "s",
            "tokens_per_s_per_device": "1/s",
            "memory": "B",
            "memory_at_update": "B",
            "fits": "1",
            "does_not_fit": "1",
            "forward": "s",
            "loss": "s",
            "backward": "s",
            "kept": "B",
        },
        ask=_train,
        command=_train_typed,
        rates=("tokens_per_s_per_device",),
    ),
}
