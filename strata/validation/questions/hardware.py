"""Questions about hardware, answered as `strata dram`, `strata area` and `strata heat` do: a channel of
memory, the cores that fit a die, and the temperatures of a stack. Quantities of a record are arguments by
their paths, as `--set` takes them.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

import numpy as np

from strata.base.errors import BadValue
from strata.hardware.chip import chip
from strata.hardware.dram.channel import Stream, dram_channel, sustained_channel
from strata.hardware.making import area
from strata.hardware.thermal.cooling import ARRANGEMENTS, assembly, cooling, dram_die
from strata.hardware.thermal.grid import as_single_nodes
from strata.hardware.thermal.solve import steady
from strata.params import leaf_paths
from strata.validation.questions.question import Argument, QuestionKind, number, set_words, word
from strata.validation.readers.labels import Catalogue


def settings(record: Any, alike: bool = False) -> dict[str, Argument]:
    """Every quantity of a record as an argument that need not be given."""
    paths = leaf_paths(record)
    return {path: number(meta["doc"], meta["unit"], None, alike) for path, meta in paths.items()}


def _set(given: dict[str, Any], names: dict[str, Argument]) -> dict[str, Any]:
    return {name: given[name] for name in names if given[name] is not None}


def _typed_settings(given: dict[str, Any], names: dict[str, Argument]) -> list[str]:
    return set_words(_set(given, names), {path: one.unit for path, one in names.items()})


def _dram_typed(given: dict[str, Any]) -> str:
    words = ["strata", "dram", given["memory"], "--run", f"{given['run']:g}"]
    words += ["--read-share", f"{given['read_share']:.12g}"]
    words += ["--banks", f"{given['banks']:g}"] if given["banks"] is not None else []
    return shlex.join(words + _typed_settings(given, _CHANNEL))


def _area_typed(given: dict[str, Any]) -> str:
    return shlex.join(["strata", "area", given["chip"], *_typed_settings(given, _CHIP)])


def _dram(given: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    stream = Stream(run=given["run"], read_share=given["read_share"], banks=given["banks"])
    channel = dram_channel(given["memory"], **_set(given, _CHANNEL))
    return {"bandwidth": sustained_channel(channel, stream).bandwidth}


def _area(given: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    return {"cores": area(given["chip"], **_set(given, _CHIP)).cores}


def _stack(given: dict[str, Any], catalogue: Catalogue) -> dict[str, Any]:
    """Rises of the dies of one stack; each row is of one of them."""
    cooled = cooling(given["cooling"], arrangement=given["arrangement"], **_set(given, _COOLING))
    layers = int(given["layers"])
    whole = assembly(cooled, layers, given["side"] ** 2, int(given["cells"]), int(given["lid_slices"]))
    powers = {dram_die(i): given["dram_power"] for i in range(layers)} | {"logic": _blocks(given["power"])}
    names = ["logic" if die < 0 else dram_die(int(die)) for die in given["die"]]
    solved, lumped = steady(whole, powers), steady(as_single_nodes(whole), powers)
    rises = {
        "rise": solved.hottest,
        "mean_rise": solved.mean,
        "least_rise": solved.coolest,
        "single_node_rise": lumped.hottest,
    }
    return {name: np.array([of(die) for die in names]) - cooled.ambient for name, of in rises.items()}


def _blocks(written: str) -> Any:
    """Powers of equal blocks of a die [W], a square of them, from a list row by row."""
    blocks = np.array(json.loads(written), float)
    side = round(blocks.size**0.5)
    if side * side != blocks.size:
        raise BadValue(f"powers of a die are those of a square of blocks, but got {blocks.size}")
    return blocks.reshape(side, side)


_CHANNEL = settings(dram_channel("hbm2"))
_CHIP = settings(chip("stack-ref"))
_COOLING = settings(cooling("air"), alike=True)

QUESTIONS = {
    "dram": QuestionKind(
        name="dram",
        arguments={
            "memory": word("name of the memory"),
            "run": number("bytes in a row at each visit to a bank", "B"),
            "read_share": number("share of the visits that read", default=1.0),
            "banks": number("banks it spreads over; all where left out", default=None),
            **_CHANNEL,
        },
        answers={"bandwidth": "B/s"},
        ask=_dram,
        command=_dram_typed,
        rates=("bandwidth",),
    ),
    "area": QuestionKind(
        name="area",
        arguments={"chip": word("name of the chip"), **_CHIP},
        answers={"cores": "1"},
        ask=_area,
        command=_area_typed,
    ),
    "stack": QuestionKind(
        name="stack",
        arguments={
            "cooling": word("name of a way of cooling, whose other quantities hold"),
            "arrangement": word(" or ".join(ARRANGEMENTS)),
            "power": word("powers of equal blocks of the logic die, a list in W"),
            "dram_power": number("power of each DRAM die", "W", alike=True),
            "layers": number("DRAM dies", alike=True),
            "die": number("which die is told of: -1 the logic die, 0 the DRAM die on it, ..."),
            "side": number("side of the dies", "m", alike=True),
            "cells": number("cells across a die", default=32.0, alike=True),
            "lid_slices": number("slices that the lid is cut into", default=2.0, alike=True),
            **_COOLING,
        },
        answers=dict.fromkeys(("rise", "mean_rise", "least_rise", "single_node_rise"), "K"),
        ask=_stack,
    ),
}
