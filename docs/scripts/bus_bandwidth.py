"""docs/fabrics/bus-bandwidth.svg: bus bandwidth of all-reduces between nodes, measured and predicted.

Run as `python docs/scripts/bus_bandwidth.py` in the project's folder.
"""

from pathlib import Path

import numpy as np

from strata.base.drawing import pyplot_of, save
from strata.validation.measured.reader import reader_of
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import read_table

RUNS = (
    ("h100", "infiniband", 2, "2 x 8 H100, InfiniBand"),
    ("h100", "infiniband", 4, "4 x 8 H100, InfiniBand"),
    ("a100-80", "efa", 2, "2 x 8 A100, EFA (4 x 100 Gb/s)"),
    ("gb200", "nvlink+roce", 32, "2 x 64 GB200, RoCE"),
)


def main() -> None:
    root = Path(__file__).resolve().parents[2]
    name = "network/multinode.csv"
    table = read_table(root / "validation", name)
    points = reader_of(name, Catalogue())(table, Catalogue())
    size = dict(zip(table.lines, table.number("bytes"), strict=True))
    ranks = dict(zip(table.lines, table.number("gpus"), strict=True))
    pyplot = pyplot_of()
    figure, axes = pyplot.subplots(figsize=(8, 4.6))
    for i, (gpu, network, nodes, title) in enumerate(RUNS):
        keep = np.flatnonzero(points.group == f"all_reduce/{gpu}/{network}/{nodes}")
        lines = points.line[keep]
        x = np.array([size[line] for line in lines])
        factor = np.array([2 * (ranks[line] - 1) / ranks[line] for line in lines]) * x / 1e9
        axes.plot(x, factor / points.measured[keep], "o", color=f"C{i}", markersize=4)
        axes.plot(x, factor / points.predicted[keep], color=f"C{i}", label=title)
    axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="bus bandwidth [GB/s]", ylim=(1e-2, 1e3))
    axes.set_title("all-reduce between nodes: measured (dots) and predicted (lines)")
    axes.legend()
    save(pyplot, figure, root / "docs/fabrics/bus-bandwidth.svg")


if __name__ == "__main__":
    main()
