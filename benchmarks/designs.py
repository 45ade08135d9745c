"""Random designs to price: a 3D-stacked system of 256 devices that decodes DeepSeek-V3, distinct at every draw."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

import strata as st
from strata.arrays import map_leaves

MODEL = "deepseek-v3"
DEVICES = 256


def flat(count: int, seed: int) -> tuple[st.System, st.Model, st.Workload, st.Plan]:
    """A flat list: every point has its own chip, fabric, plan and batch, so every op is priced at every point."""
    rng = np.random.default_rng(seed)
    model = st.model(MODEL)
    every = st.plans(devices=DEVICES, model=model)
    pick = rng.integers(0, every.tp.size, count)
    plans = replace(every, **{f.name: getattr(every, f.name)[pick] for f in fields(every) if isinstance(getattr(every, f.name), np.ndarray)})
    chips = st.chip(
        "stack-ref",
        layers=rng.integers(1, 13, count) * 1.0,
        cores=rng.integers(4, 17, count) * 1.0,
        transfer_rate=rng.uniform(5e8, 2e9, count),
        **{"cache.bandwidth": rng.uniform(2e12, 8e12, count)},
    )
    links = st.fabric("torus-256", bandwidth=rng.uniform(5e10, 1e12, count))
    return st.system(chips, links), model, st.decode(batch=2.0 ** rng.integers(2, 12, count), context=rng.uniform(1024, 4096, count)), plans


def box(seed: int, layers: int = 12, links: int = 8) -> tuple[st.System, st.Model, st.Workload, st.Plan]:
    """A box: layers x link bandwidths x every legal plan; each independent field on its own axis."""
    rng = np.random.default_rng(seed)
    model = st.model(MODEL)
    chips = st.chip("stack-ref", layers=np.arange(1, layers + 1)[:, None, None] * 1.0, transfer_rate=rng.uniform(5e8, 2e9))
    fabric = st.fabric("torus-256", bandwidth=np.sort(rng.uniform(5e10, 1e12, links))[:, None])
    return (
        st.system(chips, fabric),
        model,
        st.decode(batch=float(rng.integers(256, 2048)), context=float(rng.integers(1024, 4096))),
        st.plans(DEVICES, model),
    )


def single(seed: int) -> tuple[st.System, st.Model, st.Workload, st.Plan]:
    """One design with one plan."""
    system, model, work, plan = flat(1, seed)
    first = [map_leaves(lambda v: float(v[0]) if getattr(v, "ndim", 0) else v, t) for t in (system, model, work, plan)]
    return tuple(first)  # type: ignore[return-value]
