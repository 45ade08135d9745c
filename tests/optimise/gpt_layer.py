"""The GPT layer of DFModel's Table VI as a fusion problem: its kernels on one chip of tensor parallel ones."""

import json
from functools import cache
from pathlib import Path

from strata.optimise.fusion.fusion_problem import FusionChip, FusionKernel, FusionProblem, FusionTensor
from strata.pricing.fusion_rules import fusion_rules

FILE = Path(__file__).parents[1] / "data" / "dfmodel" / "gpt_layer.json"
POWERS = tuple(2**i for i in range(12))


@cache
def table():
    return json.loads(FILE.read_text(encoding="utf-8"))


def gpt_layer(tp, *, dram=100e9, backward=False, rules="dfmodel-2024", tiles=POWERS, sram=None, **more):
    """Forward (18 kernels) or forward and backward (41) of GPT3 175B, sharded over tp chips."""
    given = table()
    sizes, chip = given["sizes"], given["chip"]
    kernels, made = [], {}
    for k in given["kernels"] if backward else given["kernels"][:18]:
        rows, depth, columns, weights = (
            float(eval(k[part], {}, dict(sizes))) for part in ("rows", "depth", "columns", "weights")
        )
        split = k["sharded"] in ("head", "M")
        made[k["name"]] = rows * columns * sizes["word"] / (tp if split else 1)
        reduced = made[k["name"]] * (tp - 1) / tp / chip["link"]
        rows, depth = rows / (tp if split else 1), depth / (tp if k["sharded"] == "K" else 1)
        flop = rows * columns * (2.0 * depth if k["product"] else 1.0)
        kernels.append(
            FusionKernel(
                name=k["name"],
                rows=rows,
                columns=columns,
                depth=depth if k["product"] else 0.0,
                flop=flop,
                time=flop / 307.2e12,
                weight_bytes=weights * sizes["word"] / tp,
                network=(reduced,) if k["all_reduce"] else (),
                backward="bwd" in k["name"],
            )
        )
    return FusionProblem(
        kernels=tuple(kernels),
        tensors=tuple(
            FusionTensor(name=a, source=a, target=b, bytes=made[a], whole=whole(a, b))
            for a, b in given["tensors"]
            if a in made and b in made
        ),
        chip=FusionChip(
            sram=chip["sram"] if sram is None else sram,
            dram_bandwidth=dram,
            dram_capacity=chip["dram_capacity"],
            cores=chip["cores"],
            array=(float(chip["width"]), float(chip["height"])),
            clock=chip["clock"],
            peak=307.2e12,
            utilisation=0.9,
        ),
        tiles=tiles,
        rules=fusion_rules(rules),
        **{"layers": 96.0} | more,
    )


def whole(source, target):
    """Keys and values: every tile of queries needs all of them."""
    return source in ("K", "V") and target.startswith("MHA")
