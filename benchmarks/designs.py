"""Random designs to price: a 3D-stacked system of 256 devices that decodes DeepSeek-V3, and single products;
distinct at every draw.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

import strata as st
from strata.base.arrays import map_leaves
from strata.mapping.place import GroupLayout
from strata.pricing.kernels.device import Device, device
from strata.workload.graph import Collective

MODEL = "deepseek-v3"
DEVICES = 256
NODES = 512  # of DeepFlow's case studies


def flat(count: int, seed: int) -> tuple[st.System, st.Model, st.Workload, st.Plan]:
    """A flat list: every point has its own chip, fabric, plan and batch, so every op is priced at every
    point.
    """
    rng = np.random.default_rng(seed)
    model = st.model(MODEL)
    every = st.plans(devices=DEVICES, model=model)
    pick = rng.integers(0, every.tp.size, count)
    plans = replace(
        every,
        **{
            f.name: getattr(every, f.name)[pick]
            for f in fields(every)
            if isinstance(getattr(every, f.name), np.ndarray)
        },
    )
    chips = st.chip(
        "stack-ref",
        layers=rng.integers(1, 13, count) * 1.0,
        transfer_rate=rng.uniform(5e8, 2e9, count),
        **{
            "cache.over_memory": rng.uniform(1.5, 4.0, count),
            "compute.sram_bandwidth": rng.uniform(2e11, 2e12, count),
        },
    )
    links = st.fabric("torus-256", bandwidth=rng.uniform(5e10, 1e12, count))
    return (
        st.system(chips, links),
        model,
        st.decode(batch=2.0 ** rng.integers(2, 12, count), context=rng.uniform(1024, 4096, count)),
        plans,
    )


def box(seed: int, layers: int = 12, links: int = 8) -> tuple[st.System, st.Model, st.Workload, st.Plan]:
    """A box: layers x link bandwidths x every legal plan; each independent field on its own axis."""
    rng = np.random.default_rng(seed)
    model = st.model(MODEL)
    chips = st.chip(
        "stack-ref", layers=np.arange(1, layers + 1)[:, None, None] * 1.0, transfer_rate=rng.uniform(5e8, 2e9)
    )
    fabric = st.fabric("torus-256", bandwidth=np.sort(rng.uniform(5e10, 1e12, links))[:, None])
    return (
        st.system(chips, fabric),
        model,
        st.decode(batch=float(rng.integers(256, 2048)), context=float(rng.integers(1024, 4096))),
        st.plans(DEVICES, model),
    )


def every_plan(seed: int, batches: int = 12) -> tuple[st.System, st.Model, st.Workload, st.Plan]:
    """Every legal plan of 256 devices, with weights whole and sharded, at so many batches each."""
    rng = np.random.default_rng(seed)
    model = st.model(MODEL)
    work = st.decode(batch=2.0 ** np.arange(batches)[:, None], context=float(rng.integers(1024, 4096)))
    return st.system("256xstack-ref"), model, work, st.plans(DEVICES, model, zero=(0, 3))


def single(seed: int) -> tuple[st.System, st.Model, st.Workload, st.Plan]:
    """One design with one plan."""
    system, model, work, plan = flat(1, seed)
    first = [
        map_leaves(lambda v: float(v[0]) if getattr(v, "ndim", 0) else v, t)
        for t in (system, model, work, plan)
    ]
    return tuple(first)  # type: ignore[return-value]


# Rows, columns and depth of products as models have them: powers of two of these ranges, not rounded to a
# tile.
RANGES = {"m": (0.0, 14.0), "n": (8.0, 15.0), "k": (8.0, 14.0)}


def _sizes(rng: np.random.Generator, name: str, count: int) -> np.ndarray:
    return np.exp2(rng.uniform(*RANGES[name], count)).round()


def _gpus(rng: np.random.Generator, cores: int, bandwidths: int, own_axis: bool) -> Device:
    """GPUs like an H200 with other numbers of cores and DRAM bandwidths, each on its own axis or in one list."""
    drawn = {
        "compute.cores": rng.integers(64, 256, cores) * 1.0,
        "memory.bandwidth": rng.uniform(2e12, 8e12, bandwidths),
    }
    if own_axis:
        drawn["compute.cores"] = drawn["compute.cores"][:, None]
    return device(st.chip("h200", **drawn), resident=False)


def product_box(
    seed: int, sides: tuple[int, int, int] = (8, 8, 8), cores: int = 4, bandwidths: int = 8
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Device]:
    """A box of products: m x n x k x cores x DRAM bandwidths, each on its own axis."""
    rng = np.random.default_rng(seed)
    m, n, k = (_sizes(rng, name, count) for name, count in zip(RANGES, sides, strict=True))
    return (
        m[:, None, None, None, None],
        n[:, None, None, None],
        k[:, None, None],
        _gpus(rng, cores, bandwidths, True),
    )


def product_list(seed: int, count: int = 2048) -> tuple[np.ndarray, np.ndarray, np.ndarray, Device]:
    """A flat list of products, each with its own sizes and its own GPU."""
    rng = np.random.default_rng(seed)
    m, n, k = (_sizes(rng, name, count) for name in RANGES)
    return m, n, k, _gpus(rng, count, count, False)


def collective_list(
    seed: int, count: int = 16384, nodes: int = 1
) -> tuple[Collective, tuple[GroupLayout, ...], st.hardware.Fabric]:
    """All-reduces of random sizes over random groups of NVLink nodes with random bandwidths, joined by
    InfiniBand where there are several.
    """
    rng = np.random.default_rng(seed)
    links = st.hardware.sized(
        st.fabric("hgx-h200", bandwidth=rng.uniform(2e11, 1e12, count)), (8.0, float(nodes))
    )
    op = Collective(name="sum", pattern="all_reduce", group="tp", payload=np.exp2(rng.uniform(9, 30, count)))
    return op, (GroupLayout(2.0 ** rng.integers(1, 4, count), 1.0), GroupLayout(float(nodes), 1.0)), links


def generated(count: int, seed: int) -> st.Generation:
    """Chips made from technology: every one with a power and a die area of its own."""
    rng = np.random.default_rng(seed)
    power, area = (rng.uniform(low, 2.0 * low, count) for low in (300.0, 600e-6))
    free = {"power": power, "die_area": area} if count > 1 else {"power": float(power[0])}
    return st.generation("n7", "a100", "gpu", **free)


def language_model(made: st.Generation) -> tuple[st.System, Any, st.Workload, str]:
    """DeepFlow's LSTM language model, trained on 512 generated chips in eight groups of 64."""
    assert made.fabric is not None
    joined = st.system(made.chip, st.hardware.sized(made.fabric, (float(NODES),)))
    return joined, st.program("lstm-lm-512"), st.train(16384.0, 1.0), "RC-8-8-d8"
