"""Questions about one pass of a program, or ops of one block of a model's step, as `strata predict`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from strata.base.errors import BadValue, UnknownName
from strata.evaluate import evaluate
from strata.mapping.plan import plan
from strata.one_step import priced_step
from strata.pricing.power_cap import power_capped
from strata.pricing.price import total_price
from strata.validation.questions.question import QuestionKind, number, word
from strata.validation.readers.labels import Catalogue
from strata.workload.model import Model, changed_model
from strata.workload.program import program
from strata.workload.tasks import decode, forward, prefill, train

PHASES = {"forward": forward, "train": lambda batch: train(batch, 1.0)}


def _changes(typed: str) -> dict[str, Any]:
    """Fields of a program as typed: `sequence=512,precision=fp32`."""
    pairs = [part.split("=", 1) for part in typed.replace(" ", "").split(",") if "=" in part]
    return {key: value if value[:1].isalpha() else float(value) for key, value in pairs}


def _pass(given: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    if given["phase"] not in PHASES:
        raise BadValue(f"phase must be forward or train, but got '{given['phase']}'")
    result = evaluate(
        catalogue.system(given["system"]),
        program(given["program"], **_changes(given["set"])),
        PHASES[given["phase"]](given["batch"]),
        given["plan"] or None,
        catalogue.engine(given["engine"]),
    )
    (step,) = result.steps  # whether or not it fits: a measured pass did
    return {"time": step.time, "passes": step.passes}


def _changed(before: Model, changes: dict[str, Any]) -> Model:
    """A model with some fields replaced; those of its mixer are written `mixer.heads`."""
    own = {key: value for key, value in changes.items() if not key.startswith("mixer.")}
    mixed = {key.removeprefix("mixer."): value for key, value in changes.items() if key not in own}
    changed = changed_model(before, **own)
    return replace(changed, mixer=replace(changed.mixer, **mixed)) if mixed and changed.mixer else changed


def _block(given: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    system = catalogue.system(f"1x{given['chip']}")
    asked = _changed(catalogue.model(given["model"]), _changes(given["set"]))
    read = prefill(given["batch"], given["tokens"], cached=given["cached"])
    work = read if given["phase"] == "prefill" else decode(given["batch"], given["cached"] + given["tokens"])
    step = priced_step(system, asked, work, plan(), catalogue.engine(given["engine"]))
    blocks = {one.block.name: one for one in step.blocks}
    if given["block"] not in blocks:
        raise UnknownName(f"block of {given['model']}", given["block"], blocks, ", ".join(blocks))
    ops = {op.name: price for op, price in blocks[given["block"]].ops}
    chosen = given["ops"].split() or [name for name in ops if name not in given["without"].split()]
    if unknown := [name for name in chosen if name not in ops]:
        raise UnknownName(f"op of {given['block']}", unknown[0], ops, ", ".join(ops))
    whole = total_price([(1.0, ops[name]) for name in chosen])
    return {"time": power_capped(whole, system.chip, briefly=True).price.time}


def _typed(given: dict[str, Any]) -> str:
    more = [f"--set model.{change}" for change in given["set"].replace(" ", "").split(",") if change]
    plan = [f"--plan {given['plan']}"] if given["plan"] else []
    return " ".join(
        [
            f"strata predict --model {given['program']} --system {given['system']} --phase {given['phase']}",
            f"--batch {given['batch']:g} --engine {given['engine']}",
            *plan,
            *more,
        ]
    )


QUESTIONS = {
    "program": QuestionKind(
        name="program",
        arguments={
            "program": word("name of a program or model, or path of its file"),
            "system": word("name of the system"),
            "phase": word("forward or train", "forward"),
            "plan": word("parallel degrees, like tp=4", ""),
            "engine": word("name of the engine", "ideal"),
            "set": word("fields of the program that differ, like sequence=512,precision=fp32", ""),
            "batch": number("items of a pass", default=1.0, alike=True),
        },
        answers={"time": "s", "passes": "s"},  # of the whole step, and without update and host
        ask=_pass,
        command=_typed,
    ),
    "block": QuestionKind(
        name="block",
        arguments={
            "model": word("name of the model"),
            "chip": word("name of the chip"),
            "block": word("name of a block of its step, like attention.sparse"),
            "ops": word("names of its ops that count; all where left out", ""),
            "without": word("names of ops that do not count", ""),
            "phase": word("prefill, or decode of one token a sequence", "decode"),
            "engine": word("whose kernels run", "ideal"),
            "set": word("fields of the model that differ, like heads=16,weights=fp8", ""),
            "batch": number("sequences"),
            "tokens": number("new tokens of a sequence", default=1.0),
            "cached": number("tokens before them", default=0.0),
        },
        answers={"time": "s"},
        ask=_block,
    ),
}
