"""Random small fusion problems, and all mappings of one."""

import itertools

import numpy as np

from strata.optimise.fusion.fusion_problem import FusionChip, FusionKernel, FusionProblem, FusionTensor
from strata.pricing.fusion_rules import fusion_rules

SWITCHES = {
    "compute": ("cores", "utilisation", "priced"),
    "overlap": ("all", "network apart", "none"),
    "weight_traffic": ("read", "free"),
    "weight_tiling": ("all", "inputs", "none"),
    "shared_tensors": ("once", "replicated"),
    "whole_operands": ("yes", "no"),
    "fill": ("yes", "no"),
    "tiles": ("one", "each"),
    "directions_apart": ("yes", "no"),
    "start": ("yes", "no"),
}


def random_rules(rng):
    changes = {name: str(rng.choice(choices)) for name, choices in SWITCHES.items()}
    return fusion_rules("dfmodel-2024", **changes)


def random_problem(seed, *, rules=None, kernels=None, tiles=(2, 4), outside=True):
    """Three to five kernels, some tensors with several readers, an SRAM that often binds."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 6)) if kernels is None else kernels
    names = [f"k{i}" for i in range(count)]
    heavy = 4.0 if rules is None and seed % 4 == 1 else 1.0  # more than the SRAM holds
    nodes = tuple(
        FusionKernel(
            name=name,
            rows=float(rng.integers(1, 9) * 8),
            columns=float(rng.integers(1, 5) * 8),
            depth=float(rng.integers(0, 3) * 16),
            time=float(rng.integers(1, 30)) * 1e-6,
            flop=float(rng.integers(1, 30)) * 1e6,
            weight_bytes=float(rng.integers(0, 4) * 100) * heavy,
            network=(float(rng.integers(0, 3)) * 5e-6,),
            extra_bytes=float(rng.integers(0, 2) * 50),
            backward=i >= count - 2 and seed % 3 == 0,
        )
        for i, name in enumerate(names)
    )
    made = [float(rng.integers(1, 20) * 20) for _ in names]
    edges = [(i, j) for i, j in itertools.combinations(range(count), 2) if rng.random() < 0.5]
    tensors = [
        FusionTensor(
            name=names[i], source=names[i], target=names[j], bytes=made[i], whole=bool(rng.random() < 0.2)
        )
        for i, j in edges
    ]
    if outside:
        tensors.append(FusionTensor(name="x", source="", target=names[0], bytes=160.0))
        tensors.append(FusionTensor(name=names[-1], source=names[-1], target="", bytes=made[-1]))
    chip = FusionChip(
        sram=float(rng.integers(4, 16) * 100),
        dram_bandwidth=float(rng.integers(1, 5)) * 2e7,
        dram_capacity=float(rng.integers(15, 60) * 100),
        cores=12,
        array=(4.0, 2.0),
        clock=1e8,
        peak=1e12,
        utilisation=0.9,
        start=2e-6,
    )
    return FusionProblem(
        kernels=nodes,
        tensors=tuple(tensors),
        chip=chip,
        tiles=tiles,
        rules=random_rules(rng) if rules is None else rules,
        micro_batches=float(rng.integers(1, 4)),
    )


def mappings(problem):
    """Every ordered partition of the kernels that the graph and the rules allow."""
    count = len(problem.kernels)
    for places in itertools.product(range(count), repeat=count):
        if set(places) != set(range(max(places) + 1)):
            continue
        if any(places[s] > places[t] for t in range(count) for s in problem.before[t]):
            continue
        parts = [
            tuple(k.name for k, p in zip(problem.kernels, places, strict=True) if p == i)
            for i in range(max(places) + 1)
        ]
        back = {k.name for k in problem.kernels if k.backward}
        if problem.apart and any(back & set(p) and set(p) - back for p in parts):
            continue
        yield parts
