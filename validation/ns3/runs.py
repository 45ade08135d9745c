# SPDX-License-Identifier: GPL-2.0-only
"""Write runs.csv: collectives on fabrics of 4 to 64 nodes, simulated packet by packet by `collective` (see README.md).

Use: python runs.py PATH_TO_COLLECTIVE > runs.csv      (about ten minutes on one core)
     python runs.py PATH_TO_COLLECTIVE --check runs.csv  runs a few cheap rows again and compares
"""

import csv
import itertools
import subprocess
import sys

COLUMNS = (
    "topology,nodes_inner,nodes_outer,nodes_third,link_GBps_inner,link_GBps_outer,hop_ns_inner,hop_ns_outer,case,collective,algorithm,bytes,ns3_ns"
).split(",")
# (link GB/s inner, outer), (hop ns inner, outer): slow and near, NVLink-like with a slower outer level, fast, and odd numbers.
CASES = {
    "near": ((32, 32), (32, 32)),
    "even": ((128, 128), (128, 128)),
    "fast": ((512, 512), (128, 128)),
    "two-speed": ((256, 32), (128, 512)),
    "tapered": ((400, 50), (250, 700)),
    "odd": ((46, 37), (75, 310)),
}
SHAPES = {
    "switch": [(4,), (8,), (16,), (12,), (4, 4), (8, 4), (8, 8)],
    "torus": [(4,), (8,), (16,), (2, 2), (4, 4), (8, 8), (3, 5), (6, 4), (2, 2, 2), (4, 4, 2), (4, 4, 4), (3, 2, 5)],
    "mesh": [(4,), (8,), (2, 3), (4, 4), (5, 3), (2, 2, 4), (3, 3, 3)],
}
SIZES = (512, 3000, 16384, 131072, 1000000, 8388608, 67108864)
MOST_PACKETS = 1_500_000  # packets x hops of one run


def ways(topology, sizes, ranks):
    """Collectives and algorithms of a topology."""
    if topology == "switch":
        if ranks & (ranks - 1) == 0:
            gather = "halving_doubling" if len(sizes) == 1 else "halving_doubling_inner_first"
            yield from (("all_gather", gather), ("all_reduce", "rabenseifner"))
        yield from (("all_gather", "ring"), ("all_reduce", "ring"), ("all_to_all", "direct"))
    else:
        yield from (("all_gather", "ring"), ("all_reduce", "ring"), ("all_to_all", "relay"), ("all_to_all", "direct"))


def work(sizes, topology, collective, algorithm, size):
    """Packets times hops of a run, roughly."""
    ranks = 1
    for n in sizes:
        ranks *= n
    hops = 1 if topology != "switch" else 2 * len(sizes)
    packets = 1 + size // 1000
    steps = {"all_gather": ranks, "all_reduce": 2, "all_to_all": ranks}[collective]
    if algorithm == "relay":
        steps = ranks * sum(sizes) / 2
    elif collective == "all_to_all" and topology != "switch":
        steps = sum(n * n for n in sizes) / 2
    return ranks * hops * (steps * packets + ranks)


def jobs():
    """Rows without their time: every shape and way, cases and sizes in turn, so that each meets each within few runs."""
    turn = 0
    for topology, shapes in SHAPES.items():
        for sizes in shapes:
            ranks = 1
            for n in sizes:
                ranks *= n
            for collective, algorithm in ways(topology, sizes, ranks):
                fitting = [b for b in SIZES if work(sizes, topology, collective, algorithm, b) <= MOST_PACKETS]
                for size, name in itertools.islice(zip(fitting, itertools.cycle(rotated(list(CASES), turn))), 7):
                    yield topology, sizes, name, collective, algorithm, size
                turn += 1
    yield from outer_first(turn)


def outer_first(turn):
    """Two levels of switches again, their all-gather in the other order: the outer level first."""
    for sizes in [s for s in SHAPES["switch"] if len(s) > 1]:
        fitting = [b for b in SIZES if work(sizes, "switch", "all_gather", "halving_doubling", b) <= MOST_PACKETS]
        for size, name in itertools.product(fitting, CASES):
            yield "switch", sizes, name, "all_gather", "halving_doubling", size


def rotated(items, by):
    by %= len(items)
    return items[by:] + items[:by]


def simulate(program, rows):
    """Times of rows in nanoseconds, in one process."""

    def joined(values):
        return "x".join(str(v) for v in values)

    lines = [f"{t} {joined(s)} {joined(CASES[n][0])} {joined(CASES[n][1])} {c} {a} {b}" for t, s, n, c, a, b in rows]
    done = subprocess.run([program, "--batch=1"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


def main():
    program = sys.argv[1]
    rows = list(jobs())
    if len(sys.argv) > 3:
        with open(sys.argv[3], encoding="utf-8", newline="") as stream:
            stored = [int(row["ns3_ns"]) for row in csv.DictReader(stream)]
        cheap = [i for i, (t, s, _, c, a, b) in enumerate(rows) if work(s, t, c, a, b) < 20_000][::5]
        again = simulate(program, [rows[i] for i in cheap])
        different = [i + 2 for i, time in zip(cheap, again) if stored[i] != time]
        print(f"{len(cheap)} runs repeated, {len(different)} differ" + (f": lines {different}" if different else ""))
        sys.exit(bool(different))
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(COLUMNS)
    for (topology, sizes, name, collective, algorithm, size), time in zip(rows, simulate(program, rows), strict=True):
        sides = (*sizes, 1, 1)[:3]
        out.writerow([topology, *sides, *CASES[name][0], *CASES[name][1], name, collective, algorithm, size, time])


if __name__ == "__main__":
    main()
