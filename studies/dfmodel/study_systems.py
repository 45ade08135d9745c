"""DFModel's 80 systems as runs of a study: what each reaches of its peak, for a dollar and for a watt."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from dfmodel.linear_parts import LinearLink, LinearMemory, linear_link, linear_memory
from dfmodel.power import linear_cost, linear_counts, linear_system_cost, linear_system_power
from dfmodel.systems import (
    KernelTimes,
    StudyMachine,
    along,
    dlrm_run,
    dlrm_times,
    fft_run,
    fft_times,
    hpl_run,
    hpl_times,
    study_machine,
    study_point,
)
from dfmodel.training_systems import (
    ONE,
    TrainingSystems,
    free_degrees,
    train_systems,
    training_degrees,
)
from strata.base.arrays import Array, Number
from strata.base.errors import UnknownName, require
from strata.base.reading import json_file, known_keys
from strata.hardware.chip import Chip, chip
from strata.workload.dataflow import Dataflow
from strata.workload.program import program

SYSTEM_KEYS = (
    "dfmodel_systems", "like", "chips", "topologies", "memories", "links", "outer", "partitions", "overlap",
    "work", "grid", "slowed", "model", "layers", "batch", "tiles", "published", "free",
)  # fmt: skip
WORKLOADS = ("LLM", "DLRM", "HPL", "FFT")
AXES = ("chip", "topology", "memory", "link")


class _Systems:
    """The systems of a run: axes chip, topology, memory, link."""

    def __init__(self, told: dict[str, Any], where: str):
        for key in ("chips", "topologies", "memories", "links", "partitions", "work"):
            said = f"{where} needs chips, topologies, memories, links, partitions and work"
            require(key in told, said, missing=key)
        self.told, self.where = told, where
        self.chips: list[Chip] = [chip(n) for n in told["chips"]]
        self.memories: list[LinearMemory] = [linear_memory(n) for n in told["memories"]]
        self.links: list[LinearLink] = [linear_link(n) for n in told["links"]]
        self.outer = linear_link(told["outer"]) if "outer" in told else None
        self.topologies = [
            (tuple(t["kinds"]), tuple(float(s) for s in t["sizes"])) for t in told["topologies"].values()
        ]
        self.shape = (len(self.chips), len(self.topologies), len(self.memories), len(self.links))
        self.peak = along(0, [next(iter(c.compute.matrix_rate.values())) for c in self.chips])

    def machine(self) -> StudyMachine:
        rows, columns = (float(v) for v in self.told.get("grid", (1, 1)))
        made = study_machine(self.chips, self.topologies, self.memories, self.links, grid=(rows, columns))
        slowed = self.told.get("slowed")
        if slowed is None:
            return made
        share = np.ones((*self.shape[:2], 1, 1))
        at = self.told["chips"].index(slowed["chip"]), list(self.told["topologies"]).index(slowed["topology"])
        share[at] = float(slowed["share"])
        return replace(made, peak=made.peak * share)

    def cost_and_power(self) -> tuple[Array, Array]:
        """Dollars and watts of every system by DFModel's counts and prices."""
        prices, cost, power = linear_cost(), np.empty(self.shape), np.empty(self.shape)
        link = np.array([float(v.bandwidth) for v in self.links])
        energy = np.array([float(v.energy) for v in self.links])
        prices_of = [c.package.price for c in self.chips]
        for known, told in zip(prices_of, self.told["chips"], strict=True):
            require(known is not None, f"{self.where}: a chip has a price", chip=told)
        price = np.array([float(p) for p in prices_of if p is not None]).reshape(-1, 1, 1)
        watts = np.array([float(c.energy.static_power) for c in self.chips]).reshape(-1, 1, 1)
        memory = np.array([float(m.bandwidth) for m in self.memories]).reshape(1, -1, 1)
        each = np.array([float(m.energy) for m in self.memories]).reshape(1, -1, 1)
        for place, (kinds, sizes) in enumerate(self.topologies):
            rest = len(sizes) - 1
            rates: list[Number] = [link, *[link if self.outer is None else self.outer.bandwidth] * rest]
            joules: list[Number] = [energy, *[energy if self.outer is None else self.outer.energy] * rest]
            counts, devices = linear_counts(kinds, sizes, rates, joules), math.prod(sizes)
            cost[:, place] = linear_system_cost(prices, devices, price, memory, counts.links, counts.ports)
            power[:, place] = linear_system_power(prices, devices, watts, memory, each, counts)
        return cost, power

    def told_with(self, utilisation: Array, **more: Array) -> dict[str, Any]:
        """What a claim may ask of the run."""
        cost, power = self.cost_and_power()
        devices = along(1, [math.prod(s) for _, s in self.topologies])
        reached = utilisation * self.peak * devices
        names = [list(self.told["topologies"]), *([v.name for v in p] for p in (self.memories, self.links))]
        return {
            "utilisation": utilisation, "cost": cost, "power": power, "reached": reached,
            "cost_efficiency": reached / cost, "power_efficiency": reached / power,
            **{name: np.broadcast_to(value, self.shape) for name, value in more.items()},
            "chip": np.array([c.name for c in self.chips]), "topology": np.array(names[0]),
            "memory_kind": np.array(names[1]), "link_kind": np.array(names[2]), "axes": list(AXES),
            "entry": self.told,
        }  # fmt: skip


def run_systems(
    entry: dict[str, Any],
    where: str,
    folder: Path,
    runs: dict[str, dict[str, Any]],
    stored: dict[str, Any] | None,
) -> dict[str, Any]:
    """All systems of some chips, topologies, memories and links on one workload, along these four axes:
    `utilisation`, `cost_efficiency` and `power_efficiency` [FLOP/s for each USD and W], `cost`, `power`, and
    the sums of `compute`, `memory` and `network` times [s].

    `like`: an earlier run, whose keys hold where this one says nothing. `published`: a file of the study's
    folder with numbers to compare with, each as `logged_...`. `free`: TP, PP and DP of so many devices are
    searched. A fusion that was `stored` is priced anew instead of solved.
    """
    known_keys(entry, ("name", *SYSTEM_KEYS), where)
    told = dict(entry)
    if "like" in entry:
        if "entry" not in runs.get(entry["like"], {}):
            raise UnknownName(f"run that {where} is like", entry["like"], runs)
        told = {**runs[entry["like"]]["entry"], **entry}
    workload = told["dfmodel_systems"]
    if workload not in WORKLOADS:
        raise UnknownName(f"workload of {where}", workload, WORKLOADS, ", ".join(WORKLOADS))
    systems = _Systems(told, where)
    found = _trained(systems, stored) if workload == "LLM" else _closed(systems, workload)
    if "published" in told:
        found |= {f"logged_{k}": v for k, v in _published(folder / told["published"], workload).items()}
    return found


def _published(path: Path, workload: str) -> dict[str, Array]:
    table = json_file(path)
    if workload not in table:
        raise UnknownName(f"workload of {path.name}", workload, table)
    return {key: np.array(value, float) for key, value in table[workload].items()}


def _closed(systems: _Systems, workload: str) -> dict[str, Any]:
    """HPL, FFT and DLRM by their closed forms."""
    machine, told = systems.machine(), systems.told
    whole = along(0, [p == ONE for p in told["partitions"]])
    point = study_point(_kernels(systems, workload, machine), machine, whole, told.get("overlap", "all"))
    times = {f.name: np.asarray(getattr(point, f.name)) for f in fields(point)}
    reached = np.broadcast_to(times.pop("utilisation"), systems.shape)
    return systems.told_with(np.array(reached), **times)


def _kernels(systems: _Systems, workload: str, machine: StudyMachine) -> KernelTimes:
    work = systems.told["work"]
    if workload == "DLRM":
        return dlrm_times(dlrm_run(work), machine)
    if workload == "FFT":
        return fft_times(fft_run(work), machine)
    each = [hpl_run(name) for name in (work if isinstance(work, list) else [work] * len(systems.chips))]
    require(
        len(each) == len(systems.chips), f"{systems.where}: work has a name for each chip", work=len(each)
    )
    sizes: dict[str, Any] = {k: along(0, [getattr(run, k) for run in each]) for k in ("order", "block")}
    return hpl_times(replace(each[0], **sizes), machine)


def _trained(systems: _Systems, stored: dict[str, Any] | None) -> dict[str, Any]:
    """Training of a language model, degrees as the topologies have them or free."""
    told = systems.told
    code = program(told["work"], **told.get("model", {}))
    require(isinstance(code, Dataflow), f"{systems.where}: work is a program of kernels", work=told["work"])
    assert isinstance(code, Dataflow)
    outer = systems.outer
    require(outer is not None, f"{systems.where} needs outer, the link of stages")
    assert outer is not None
    options = {k: told[k] for k in ("layers", "batch", "overlap", "tiles") if k in told}
    made = TrainingSystems(
        chips=systems.chips, topologies=systems.topologies, memories=systems.memories, links=systems.links,
        outer=outer, partitions=told["partitions"], **options,
    )  # fmt: skip
    known = {k: tuple(int(p) for p in v.split()) for k, v in (stored or {}).get("mappings", {}).items()}
    degrees, solved = made.degrees(), 0
    if "free" in told and stored is not None:
        first, second, third = (np.array(d, float) for d in stored["degrees"])
        degrees = first, second, third
    elif "free" in told:
        choices = training_degrees(int(told["free"]), int(code.sizes["heads"]), int(made.layers))
        best = free_degrees(code, made, choices)
        degrees, known, solved = (best.tp * 1.0, best.pp * 1.0, best.dp * 1.0), best.mappings, best.solved
    found = train_systems(code, made, degrees, known)
    tp, pp, dp = (np.broadcast_to(d, systems.shape) for d in degrees)
    plans = np.array(
        [f"{t:g} x {p:g} x {d:g}" for t, p, d in zip(tp.ravel(), pp.ravel(), dp.ravel(), strict=True)]
    )
    kept: dict[str, Any] = {
        "bound": None,
        "mappings": {k: " ".join(str(p) for p in v) for k, v in sorted(found.mappings.items())},
    }
    if "free" in told:
        kept |= {"degrees": [d.astype(int).tolist() for d in (tp, pp, dp)], "solved": solved}
    parts = {k: getattr(found, k) for k in ("compute", "memory", "network", "time", "partitions")}
    return systems.told_with(np.array(found.utilisation), **parts) | {
        "tp": tp, "pp": pp, "dp": dp, "plans": plans.reshape(systems.shape), "kept": kept,
    }  # fmt: skip
