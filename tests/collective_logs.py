"""Logs in the format that nccl-tests and rccl-tests print (their public READMEs), with numbers made up here: a
start of some microseconds and a rate.
"""

from strata.validation.readers.collective_files import WIDTHS

NEW = [
    "size",
    "count",
    "type",
    "redop",
    "root",
    "time",
    "algbw",
    "busbw",
    "#wrong",
    "time",
    "algbw",
    "busbw",
    "#wrong",
]
OLD = ["size", "count", "type", "redop", "time", "algbw", "busbw", "error", "time", "algbw", "busbw", "error"]
UNITS = "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)"
POWERS = tuple(1 << n for n in range(3, 31))


def made_time(size, start=20.0, rate=300e3):
    """Microseconds of a made-up collective; `rate` in bytes a microsecond."""
    return start + size / rate


def printed(time):
    """A time as these programs print it: about four digits."""
    return f"{time:.2f}" if time < 100 else f"{time:.1f}" if time < 1e4 else f"{time:.0f}"


def row_of(
    size, *, op="all_reduce", gpus=8, dtype="float", old=False, in_place=True, time=made_time, checked=True
):
    shared = 1 if op == "all_reduce" else gpus
    count = size // WIDTHS[dtype] // shared
    size = count * WIDTHS[dtype] * shared
    factor = (2 if op == "all_reduce" else 1) * (gpus - 1) / gpus
    words = [str(size), str(count), dtype, "sum" if "reduce" in op else "none", *(() if old else ("-1",))]
    wrong = ("1e-07" if old else "0") if checked else "N/A"
    for slower in (1.0, 1.03):
        took = time(size) * slower
        rate = size / took * 1e-3
        words += [printed(took), f"{rate:.2f}", f"{rate * factor:.2f}", wrong]
    if not in_place:
        words[-4:] = ["N/A"] * 4
    return words


def made_log(
    *,
    op="all_reduce",
    hosts=("node1",),
    per_host=8,
    gpu="NVIDIA H100 80GB HBM3",
    sizes=POWERS,
    old=False,
    units=True,
    ranks=True,
    title=True,
    ends=True,
    before=(),
    **row,
):
    """A whole log as text."""
    gpus, lines = len(hosts) * per_host, list(before)
    if title and not old:
        lines += [f"# Collective test starting: {op.replace('_to_', 'to')}_perf"]
    lines += [
        f"# nThread 1 nGpus 1 minBytes {sizes[0]} maxBytes {sizes[-1]} step: 2(factor) warmup iters: 5 iters: 20 "
        + ("validation: 1" if old else "agg iters: 1 validation: 1 graph: 0"),
        "#",
        "# Using devices",
    ]
    for rank in range(gpus if ranks else 0):
        host, device = hosts[rank // per_host], rank % per_host
        group, bus = ("", f"0x{device + 7:02x}") if old else ("Group  0 ", f"0000:{device + 7:02x}:00")
        lines += [f"#  Rank {rank:2} {group}Pid {4000 + rank} on {host:>10} device {device:2} [{bus}] {gpu}"]
    columns = OLD if old else NEW
    lines += ["#", "#" + " " * 55 + "out-of-place" + " " * 23 + "in-place", "#  " + "   ".join(columns)]
    lines += [UNITS] if units else []
    made = [row_of(size, op=op, gpus=gpus, old=old, **row) for size in sizes]
    lines += ["  ".join(f"{word:>10}" for word in words) for words in made]
    if ends:
        lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 123.456", "#"]
    return "\n".join(lines) + "\n"
