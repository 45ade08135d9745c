# SPDX-License-Identifier: Apache-2.0
"""Write schedules.csv: any schedule on any fabric of 4 to 64 devices, simulated packet by packet by `collective` (see README.md).

Use: python schedules.py PATH_TO_COLLECTIVE > schedules.csv        (some minutes on one core)
     python schedules.py PATH_TO_COLLECTIVE --check schedules.csv  runs cheap rows again and compares
"""

import csv
import itertools
import sys

from strata.hardware.transport import packets
from strata.pricing.network.packet_runs import scheduled_job
from strata.pricing.network.packets import packet_count
from strata.pricing.network.routes import route
from strata.pricing.network.collective_schedules import legal_schedules
from strata.measure.ns3 import simulated

COLUMNS = [
    "topology", "levels", "members", "case", "collective", "algorithm", "bytes", "skew",
    "other_collective", "other_algorithm", "other_bytes", "other_members", "ns3_ns",
]  # fmt: skip
# (link GB/s inner, others), (hop ns inner, others): as in runs.py.
CASES = {
    "near": ((32, 32), (32, 32)),
    "even": ((128, 128), (128, 128)),
    "two-speed": ((256, 32), (128, 512)),
    "odd": ((46, 37), (75, 310)),
}
SHAPES = {
    "switch": ["switch:8", "switch:12", "switch:16"],
    "tree": ["switch:4 tree:4", "switch:8 tree:4", "switch:4 tree:2 tree:3"],
    "ring": ["ring:8", "ring:5", "ring:16"],
    "full": ["full:8", "full:6"],
    "mesh": ["chain:4 chain:4", "chain:3 chain:5", "chain:3 chain:3 chain:3", "chain:8"],
    "torus": ["ring:4 ring:4", "ring:3 ring:5", "ring:4 ring:4 ring:4", "ring:8 ring:8"],
    "composed": ["switch:8 switch:2", "full:4 ring:4", "ring:3 switch:2 tree:2"],
}
WAYS = [
    ("all_reduce", "halving_doubling"), ("all_reduce", "bidirectional_ring"), ("all_reduce", "double_tree"), ("all_reduce", "one_shot"),
    ("all_reduce", "hierarchical"), ("all_gather", "bidirectional_ring"), ("all_gather", "direct"), ("reduce_scatter", "halving_doubling"),
    ("reduce_scatter", "by_dimension"), ("all_to_all", "direct"), ("all_to_all", "pairwise"), ("broadcast", "tree"), ("broadcast", "pipeline"),
]  # fmt: skip
SIZES = (512, 6000, 50_000, 400_000, 3_000_000, 16_000_000)
MOST_PACKETS = 3_000_000  # packets x links of one run
CHEAP = 5_000


def row(topology, shape, case, collective, algorithm, size, **more):
    rates, hops = CASES[case]
    levels = " ".join(f"{part}:{rates[min(i, 1)]}:{hops[min(i, 1)]}" for i, part in enumerate(shape.split()))
    made = dict.fromkeys(COLUMNS, "")
    made |= {
        "topology": topology,
        "levels": levels,
        "case": case,
        "collective": collective,
        "algorithm": algorithm,
        "bytes": str(size),
    }
    return made | {key: str(value) for key, value in more.items()}


def sizes_of(shape):
    return tuple(int(part.split(":")[1]) for part in shape.split())


def work(cell):
    """Packets times links of a run."""
    schedules, levels = scheduled_job(cell)
    how, total, known = packets("ns3"), 0, {}
    for step in itertools.chain(*schedules):
        for source, target, count in zip(
            step.source.tolist(), step.target.tolist(), packet_count(step.bytes, how).tolist(), strict=True
        ):
            if (source, target) not in known:
                known[source, target] = len(route(source, target, levels))
            total += count * known[source, target]
    return total


def plain(turn):
    """Every topology and way on one of its shapes, sizes and cases in turn."""
    for topology, shapes in SHAPES.items():
        for way, (collective, algorithm) in enumerate(WAYS):
            legal = [s for s in shapes if algorithm in legal_schedules(collective, sizes_of(s))]
            if legal:
                for _ in range(2 if collective == "all_to_all" or topology in ("mesh", "torus") else 1):
                    yield fitting(topology, legal[(way + turn) % len(legal)], turn, collective, algorithm)
                    turn += 1


def fitting(topology, shape, turn, collective, algorithm, **more):
    """The size in turn, or the largest below it that is not too much work."""
    names = list(CASES)
    for size in reversed(SIZES[: turn % len(SIZES) + 1]):
        made = row(
            topology,
            shape,
            names[(turn + turn // len(SIZES)) % len(names)],
            collective,
            algorithm,
            size,
            **more,
        )
        if work(made) <= MOST_PACKETS:
            break
    return made


def special(turn):
    """Skewed all-to-all, parts of a fabric, and two collectives at once."""
    for topology, shapes in SHAPES.items():
        shape, ranks = shapes[0], 1
        for n in sizes_of(shape):
            ranks *= n
        half, apart = f"0:{ranks // 2}:1", f"0:{ranks // 2}:2"
        yield fitting(topology, shape, turn + 2, "all_to_all", "direct", skew=0.5)
        yield fitting(topology, shape, turn + 3, "all_to_all", "direct", skew=1.2)
        yield fitting(topology, shape, turn + 1, "all_reduce", "ring", members=apart)
        yield fitting(topology, shape, turn + 4, "all_to_all", "direct", members=half)
        everyone = {"other_collective": "all_to_all", "other_algorithm": "direct", "other_bytes": 40_000}
        yield fitting(topology, shape, turn + 3, "all_reduce", "ring", **everyone)
        others = {
            "other_collective": "all_reduce",
            "other_algorithm": "ring",
            "other_bytes": 300_000,
            "other_members": f"1:{ranks // 2}:2",
        }
        yield fitting(topology, shape, turn + 5, "all_gather", "ring", members=apart, **others)
        turn += 1


def many():
    """All pairs of 64 devices at once: so many packets that the router sends them in trains."""
    shapes = [
        ("torus", "ring:8 ring:8"),
        ("mesh", "chain:8 chain:8"),
        ("tree", "switch:8 tree:8"),
        ("composed", "switch:8 switch:8"),
    ]
    for (topology, shape), case in zip(shapes, CASES, strict=True):
        for pair in (20_000, 100_000):
            yield row(topology, shape, case, "all_to_all", "direct", 64 * pair)
        yield row(topology, shape, case, "all_to_all", "direct", 64 * 50_000, skew=0.8)


def main():
    program, how = sys.argv[1], packets("ns3")
    if len(sys.argv) > 3:
        with open(sys.argv[3], encoding="utf-8", newline="") as stream:
            cheap = [
                (line, cell) for line, cell in enumerate(csv.DictReader(stream), 2) if work(cell) < CHEAP
            ]
        again = simulated([scheduled_job(cell) for _, cell in cheap], how, program)
        different = [
            line
            for (line, cell), times in zip(cheap, again, strict=True)
            if round(times[0] * 1e9) != int(cell["ns3_ns"])
        ]
        print(
            f"{len(cheap)} schedules repeated, {len(different)} differ"
            + (f": lines {different}" if different else "")
        )
        sys.exit(bool(different))
    rows = [*plain(0), *special(0), *many()]
    out = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    out.writeheader()
    for cell in rows:
        time = simulated([scheduled_job(cell)], how, program)[0][0]
        out.writerow(cell | {"ns3_ns": round(time * 1e9)})
        sys.stdout.flush()


if __name__ == "__main__":
    main()
