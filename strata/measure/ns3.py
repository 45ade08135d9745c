"""Schedules in ns-3, packet by packet: any of our steps on any levels, by the harness as a process of its own
(`make ns3` builds it: validation/ns3, GPLv2); nothing here links with it.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from strata.base.errors import BadFile, require
from strata.hardware.transport import Packets
from strata.pricing.network.collective_schedules import ScheduleStep
from strata.pricing.network.packet_runs import Job
from strata.pricing.network.routes import PART_OF_A_BYTE, RouteLevel

PROGRAM = "out/ns3/collective"


def simulated(
    jobs: Sequence[Job], network: Packets, program: Path | str = PROGRAM
) -> list[tuple[float, ...]]:
    """Times of jobs in ns-3, all in one process [s]: until all schedules are done, and each one's own."""
    path = shutil.which(str(program))
    if path is None:
        raise BadFile(
            f"no packet simulator at {program}; `make ns3` builds it where ns-3 is installed "
            "(Debian: apt-get install ns3 libns3-dev)"
        )
    require(
        network.tick == 1e-9 and network.reply == network.header,
        "the harness counts nanoseconds and answers with a header",
        tick=network.tick,
        reply=network.reply,
    )
    asked = "\n".join(job_text(*job) for job in jobs)
    command = [path, "--jobs=1", f"--payload={network.payload:.0f}", f"--header={network.header:.0f}"]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != len(jobs):
        told = (done.stderr.strip().splitlines() or ["it said nothing"])[0]
        raise BadFile(f"the packet simulator {program} gave {len(lines)} of {len(jobs)} times: {told}")
    return [tuple(int(t) * 1e-9 for t in line.split()) for line in lines]


def job_text(schedules: Sequence[Sequence[ScheduleStep]], levels: Sequence[RouteLevel]) -> str:
    """A job as the harness reads it.

    >>> one = (ScheduleStep(np.array([0]), np.array([1]), np.array([99.5])),)
    >>> print(job_text((one,), (RouteLevel("ring", 2, 32e9, 50e-9),)))
    levels ring:2:32:50
    schedule
    step
    0 1 100
    run
    """
    words = (f"{x.kind}:{x.size}:{x.bandwidth / 1e9:.9g}:{round(x.latency * 1e9)}" for x in levels)
    lines = [f"levels {' '.join(words)}"]
    for steps in schedules:
        lines.append("schedule")
        for step in steps:
            lines.append("step")
            sizes = np.ceil(np.asarray(step.bytes, float) - PART_OF_A_BYTE).astype(int)
            rows = zip(step.source.tolist(), step.target.tolist(), sizes.tolist(), strict=True)
            lines += [
                f"{source} {target} {size}" for source, target, size in rows if size > 0 and source != target
            ]
    return "\n".join([*lines, "run"])
