"""The question of one kernel of any kind on one chip, answered as `strata kernel` does."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import numpy as np

from strata.params import dashed, override
from strata.pricing.kernel import kernel
from strata.pricing.kernel_kinds import KINDS
from strata.pricing.kernel_request import ALWAYS, FLAGS, OPTIONS, SIZES
from strata.validation.questions.question import Argument, QuestionKind, number, set_words, word
from strata.validation.readers.labels import Catalogue, kernel_format

_IN_FORMAT = ("activations", "weight_only")  # options that the name of a kernel's format tells


def _argument(name: str) -> Argument:
    option = OPTIONS[name]
    if option.form == "flag":
        meaning = f"0: {option.meaning}" if option.off else option.meaning
        return number(meaning, default=None, alike=True)
    return (
        word(option.meaning, "")
        if option.form in ("word", "format")
        else number(option.meaning, option.form, None)
    )


_OPTIONS = {name: _argument(name) for name in OPTIONS if name not in _IN_FORMAT}
_SIZES = {name: number(size.meaning, size.unit or "1", None) for name, size in SIZES.items()}


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Options of a kernel as a row tells them, its formats among them."""
    options: dict[str, Any] = {
        name: bool(given[name]) if name in FLAGS else given[name]
        for name, one in _OPTIONS.items()
        if (bool(given[name]) if one.is_text else _is_told(given[name]))
    }
    if given["precision"]:
        used = kernel_format(given["precision"])
        options |= {"precision": used.weight, "activations": used.activation, "weight_only": used.weight_only}
    return options | ({"kv": kernel_format(given["kv"]).weight} if given["kv"] else {})


def _changes(given: dict[str, Any]) -> dict[str, str]:
    """Numbers of the chip that a row sets."""
    return {
        name.removeprefix("chip."): value
        for name, value in given.items()
        if name.startswith("chip.") and value
    }


def _kernel(given: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    chip, options = catalogue.chip(given["chip"]), _options(given)
    if given["kind"] in KINDS and "fabric" in KINDS[given["kind"]].options:
        name = options.get("fabric")
        options["fabric"] = catalogue.fabric(name) if name else catalogue.usual_fabric(given["chip"])
    if changed := _changes(given):
        chip = override(chip, changed, "chip")[0]
    sizes = {name: given[name] for name in _SIZES if _is_told(given[name])}
    priced = kernel(chip, given["kind"], **options, **sizes)
    work = {name: getattr(priced.price, name) for name in ("flop", "cache_bytes", "memory_bytes")}
    return {
        "time": priced.time,
        "power": priced.power,
        "clock": priced.clock,
        "memory_time": priced.price.memory,
        "bytes_until_end": priced.bytes_until_end,
    } | work


def _typed(given: dict[str, Any]) -> str:
    """The line of `strata kernel` that a row asks."""
    kind, options = str(given["kind"]), _options(given)
    words = ["strata", "kernel", kind, "--chip", dashed(str(given["chip"]))]
    for name, value in (options | {n: given[n] for n in _SIZES if _is_told(given[n])}).items():
        if name not in ("precision", *KINDS[kind].options, *ALWAYS, *_SIZES):
            continue  # a format that this kind of kernel does not look at
        typed = "--" + name.replace("_", "-")
        if name in FLAGS:
            off = OPTIONS[name].off
            words += ([f"--{off}"] if off else [typed]) if bool(value) != bool(off) else []
        else:
            words += [typed, value if isinstance(value, str) else f"{float(value):.12g}"]
    return shlex.join(words + set_words(_changes(given), {}))


def _is_told(value: Any) -> bool:
    """Whether a file gives a number for some of the rows."""
    return value is not None and not bool(np.all(np.isnan(value)))


_CHIP = word("name of the chip")
_FORMAT = word("format of the weights and the arithmetic, as usual where left out", "")
KERNEL = QuestionKind(
    name="kernel",
    arguments={
        "chip": _CHIP,
        "kind": word("kind of the kernel: " + ", ".join(KINDS)),
        "precision": _FORMAT,
        **_OPTIONS,
        **_SIZES,
    },
    answers={"time": "s", "power": "W", "clock": "Hz", "memory_time": "s", "flop": "FLOP"}
    | dict.fromkeys(("cache_bytes", "memory_bytes", "bytes_until_end"), "B"),
    ask=_kernel,
    command=_typed,
    sets="a number of the chip, as --set has it",
)


def _of_kind(kind: str) -> QuestionKind:
    """The same question of one kind alone, which takes what that looks at."""
    one = KINDS[kind]
    needed = {name: number(SIZES[name].meaning, SIZES[name].unit or "1") for name in one.needed}
    usual = {name: _SIZES[name] for name in one.usual}
    options = {name: _OPTIONS[name] for name in (*one.options, *ALWAYS) if name in _OPTIONS}
    rest = KERNEL.defaults | {"kind": kind}
    return replace(
        KERNEL,
        name=kind,
        arguments={"chip": _CHIP, **needed, "precision": _FORMAT, **usual, **options},
        answers={"time": "s", "power": "W"},
        ask=lambda given, catalogue: _kernel(rest | given, catalogue),
        command=lambda given: _typed(rest | given),
    )


QUESTIONS = {"kernel": KERNEL, **{kind: _of_kind(kind) for kind in KINDS}}
