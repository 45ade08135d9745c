"""Collectives packet by packet: ns-3 itself against the closed forms, the same runs in both."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from strata.hardware.transport import packets
from strata.pricing.network.packet_runs import packet_collective_time

PROGRAM = "out/ns3/collective"
SKIPPED = (
    "ns3: skipped, no simulator at {}; `make ns3` builds it where ns-3 is installed "
    "(Debian: apt-get install ns3 libns3-dev)"
)
POINTS = 16384  # of a batch: payloads and links drawn anew, so that nothing is remembered


@dataclass(frozen=True)
class PacketRun:
    """One collective on a fabric with links of 128 GB/s and hops of 128 ns."""

    name: str
    topology: str
    sizes: tuple[int, ...]
    collective: str
    algorithm: str
    bytes: int


RUNS = (
    PacketRun("all_reduce_64", "switch", (8, 8), "all_reduce", "rabenseifner", 4_000_000),
    PacketRun("all_gather_64", "switch", (8, 8), "all_gather", "halving_doubling", 64_000),
    PacketRun("all_reduce_torus_64", "torus", (4, 4, 4), "all_reduce", "ring", 4_000_000),
    PacketRun("all_to_all_64", "switch", (8, 8), "all_to_all", "direct", 25_000),
)


def simulator_time(run: PacketRun, program: str = PROGRAM) -> tuple[float, float]:
    """Wall time of a run in ns-3, its start left out, and the time it found [s]."""
    sides = "x".join(map(str, run.sizes))
    line = f"{run.topology} {sides} 128x128 128x128 {run.collective} {run.algorithm} {run.bytes}\n"
    least = "switch 2 128x128 128x128 all_gather ring 1\n"
    spent = []
    for text in (least, line):
        start = time.perf_counter()
        done = subprocess.run([program, "--batch=1"], input=text, capture_output=True, text=True, check=True)
        spent.append(time.perf_counter() - start)
    return max(spent[1] - spent[0], 1e-9), int(done.stdout.split()[-1]) * 1e-9


def form_time(run: PacketRun, seed: int, count: int = POINTS) -> tuple[float, float]:
    """Wall time of one evaluation in a batch of closed forms, and the time that the run's own point takes
    [s].
    """
    rng = np.random.default_rng(seed)
    sides = (*run.sizes, 1, 1)[:3]
    columns = {
        name: np.full(count, float(side))
        for name, side in zip(("inner", "outer", "third"), sides, strict=True)
    }
    units = {"inner_rate": 1e9, "outer_rate": 1e9, "inner_hop": 1e-9, "outer_hop": 1e-9}
    drawn = {name: rng.uniform(32.0, 512.0, count) * unit for name, unit in units.items()}
    drawn["bytes"] = np.round(rng.uniform(0.5, 1.5, count) * run.bytes)
    for name, values in drawn.items():
        values[0] = run.bytes if name == "bytes" else 128.0 * units[name]
    start = time.perf_counter()
    found = packet_collective_time(
        run.topology, run.collective, run.algorithm, packets("ns3"), **columns, **drawn
    )
    return (time.perf_counter() - start) / count, float(np.asarray(found)[0])


def add_packets(add: Callable[..., None], program: str = PROGRAM, runs: Sequence[PacketRun] = RUNS) -> str:
    """Rows of closed forms over ns-3; where it is not installed, a line that says so."""
    if shutil.which(program) is None:
        return SKIPPED.format(program)
    for run in runs:
        theirs, measured = simulator_time(run, program)
        tries = [form_time(run, seed) for seed in range(5)]
        ours, found = min(tries)[0], tries[0][1]
        add(
            f"ns3_{run.name}",
            1.0 / ours,
            "evaluations/s",
            f"ns-3, one run of {run.bytes:,} B that takes it {theirs:.3g} s (its answer {measured:.4g} s, ours {found / measured - 1:+.2%})",
            1.0 / theirs,
            points=POINTS,
        )
    return ""
