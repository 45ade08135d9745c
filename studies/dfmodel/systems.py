"""DFModel's 80-system study of HPL, FFT and DLRM in closed form, by its own semantics.

Kernels follow one another; each is a partition of its own, or all are one (a wafer holds them). A partition
takes the longest of its compute, memory and network times, or their sum where nothing overlaps. Every number
of a machine may be an array; the axis of kernels is the last one and stays inside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dfmodel.linear_parts import LinearLink, LinearMemory
from dfmodel.network import bisection_all_to_all, bisection_links, panel_broadcast
from strata.base.arrays import Array, Number, namespace, register_pytree
from strata.hardware.chip import Chip
from strata.params import Sources, quantity, sourced_record, text
from strata.pricing.fusion import critical_time, utilised_time

KIND = "closed-forms"
NANOSECOND = 1e-9


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class StudyMachine:
    """What the closed forms know of a system."""

    peak: Number  # FLOP/s of one chip
    utilisation: Number  # DFModel's compute_util: share of the peak that a kernel reaches
    memory: Number  # B/s of its DRAM
    link: Number  # B/s of one link
    devices: Number
    crossing: Number = 1.0  # links that an all-to-all of all chips crosses (`bisection_links`)
    rows: Number = 1.0  # of the process grid of HPL
    columns: Number = 1.0


Topology = tuple[Sequence[str], Sequence[Number]]  # kinds and sizes of its dimensions, innermost first


def along(place: int, values: Iterable[Any]) -> Array:
    """Numbers along one of the four axes of systems: chip, topology, memory, link.

    >>> along(1, [1.0, 2.0]).shape
    (1, 2, 1, 1)
    """
    return np.array([float(v) for v in values]).reshape([-1 if i == place else 1 for i in range(4)])


def study_machine(
    chips: Sequence[Chip],
    topologies: Sequence[Topology],
    memories: Sequence[LinearMemory],
    links: Sequence[LinearLink],
    grid: tuple[float, float] = (1.0, 1.0),
) -> StudyMachine:
    """All systems of some technologies at once: axes chip, topology, memory, link; `grid` is HPL's.

    >>> from strata.hardware.chip import chip
    >>> from dfmodel.linear_parts import linear_link, linear_memory
    >>> torus = (("ring", "ring"), (32.0, 32.0))
    >>> made = study_machine([chip("dfmodel-sn30")], [torus], [linear_memory("dfmodel-ddr4")],
    ...                      [linear_link("dfmodel-pcie4"), linear_link("dfmodel-nvlink4")])
    >>> made.link.shape, made.crossing.shape, float(made.devices[0, 0, 0, 0])
    ((1, 1, 1, 2), (1, 1, 1, 1), 1024.0)
    """
    rates = [next(iter(c.compute.matrix_rate)) for c in chips]
    return StudyMachine(
        peak=along(0, [c.compute.matrix_rate[r] for c, r in zip(chips, rates, strict=True)]),
        utilisation=along(0, [c.compute.matrix_efficiency[r] for c, r in zip(chips, rates, strict=True)]),
        crossing=along(1, [bisection_links(*t) for t in topologies]),
        devices=along(1, [math.prod(sizes) for _, sizes in topologies]),
        memory=along(2, [m.bandwidth for m in memories]),
        link=along(3, [each.bandwidth for each in links]),
        rows=grid[0],
        columns=grid[1],
    )


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class KernelTimes:
    """Kernels of one chip, along the last axis: operations, and seconds of compute, memory and network.

    `inside` is the memory time that is left where all kernels are one partition.
    """

    flop: Number
    compute: Number
    memory: Number
    network: Number
    inside: Number


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class StudyPoint:
    """What one system takes: sums of compute, memory and network times, the time of all partitions [s], and
    the share of its peak that it reaches.
    """

    compute: Number
    memory: Number
    network: Number
    time: Number
    utilisation: Number


def study_point(
    kernels: KernelTimes, machine: StudyMachine, fused: Number = 0.0, overlap: str = "all"
) -> StudyPoint:
    r"""Time and utilisation of a program whose kernels are partitions of their own, or all one (fused = 1).

    .. math:: T = \sum_k \max(C_k, M_k, N_k) \quad\text{or}\quad
              T = \max\left(\sum_k C_k, M, \sum_k N_k\right), \qquad u = \frac{\sum_k F_k}{R\, T}

    C, M, N compute, memory and network times of kernel k, M what is left of memory where all are fused; F
    operations, R the peak of a chip. Without overlap sums stand for the
    maxima (`critical_time`).

    Ko et al., DFModel (2024), sec. 4 of our study.

    >>> times = KernelTimes(flop=np.ones(2), compute=np.ones(2), memory=np.array([0.0, 3.0]),
    ...                     network=np.array([2.0, 0.0]), inside=np.zeros(2))
    >>> machine = StudyMachine(peak=1.0, utilisation=1.0, memory=1.0, link=1.0, devices=1.0)
    >>> [float(study_point(times, machine, f, how).time) for f in (0.0, 1.0) for how in ("all", "none")]
    [5.0, 7.0, 2.0, 4.0]
    """
    xp = namespace(kernels.compute, kernels.memory, kernels.network, fused)
    compute, network = _total(kernels.compute), _total(kernels.network)
    memory = xp.where(fused > 0.0, _total(kernels.inside), _total(kernels.memory))
    apart = _total(critical_time(kernels.compute, kernels.memory, kernels.network, overlap))
    time = xp.where(fused > 0.0, critical_time(compute, memory, network, overlap), apart)
    useful = _total(kernels.flop) / machine.peak
    return StudyPoint(compute=compute, memory=memory, network=network, time=time, utilisation=useful / time)


def _total(values: Number) -> Number:
    """Over all kernels."""
    found: Number = namespace(values).sum(values, axis=-1)
    return found


def _compute(flop: Number, machine: StudyMachine) -> Number:
    return utilised_time(flop, last_axis(machine.peak), last_axis(machine.utilisation))


def last_axis(value: Number) -> Number:
    """A number of a machine beside the axis of kernels."""
    return namespace(value).asarray(value)[..., None] if not isinstance(value, float) else value


# ------------------------------------------------------------------------------------------------------ HPL


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class HplRun:
    """An LU factorisation as DFModel has it: iterations of one product each."""

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    order: Number = quantity("1", "rows and columns of the matrix", minimum=1)
    block: Number = quantity("1", "columns of a panel", minimum=1)
    iterations: Number = quantity("1", "iterations that are run, from the first", minimum=1)
    word: Number = quantity("B", "one number", positive=True)
    sources: Sources = field(default_factory=Sources)


def hpl_run(name: str = "dfmodel-hpl") -> HplRun:
    """An LU factorisation of DFModel's, by name or TOML path."""
    return sourced_record(HplRun, KIND, name)


def hpl_times(run: HplRun, machine: StudyMachine) -> KernelTimes:
    r"""Iterations of HPL on one of X x Y chips.

    .. math:: s_i = n - i B, \quad C_i = \frac{2 s_i^2 B}{P\, u R}, \quad
              M_i = \frac{(s_{i-1} + s_i) B w}{X b_m}, \quad
              N_i = \max\left(\frac{s_i B w}{X b}, \frac{s_i B w}{Y b}\right)

    order n, blocks of B columns, w bytes of a number; what an iteration hands to the next is written and read
    (the first reads none, the last writes none). Panels are sent along rows and columns beside each other.

    Ko et al., DFModel (2024), sec. 3 and 8 of our study.

    >>> sizes = {"devices": 1024.0, "rows": 32.0, "columns": 32.0}
    >>> point = StudyMachine(peak=993.214464e12, utilisation=0.9, memory=300e9, link=50e9, **sizes)
    >>> round(float(hpl_times(hpl_run(), point).compute.sum()), 6)  # logged: 277,742,624 ns
    0.277743
    """
    order, block, word = last_axis(run.order), last_axis(run.block), run.word
    steps = np.arange(float(np.max(run.iterations)))
    side = order - block * steps
    flop = 2.0 * side * side * block / last_axis(machine.devices)
    rows, columns, link = last_axis(machine.rows), last_axis(machine.columns), last_axis(machine.link)
    handed = side * block * word / rows
    before = handed + block * block * word / rows  # of the iteration before: one block wider
    traffic = before * (steps > 0) + handed * (steps < steps[-1])
    xp = namespace(side, rows, link)
    network = xp.maximum(
        panel_broadcast(side, block, word, rows, link), panel_broadcast(side, block, word, columns, link)
    )
    return KernelTimes(
        flop=flop, compute=_compute(flop, machine),
        memory=traffic / last_axis(machine.memory), network=network, inside=0.0 * side,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------ FFT


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class FftRun:
    """A one-dimensional transform as DFModel has it: two products with an all-to-all before the second."""

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    points: Number = quantity("1", "length of the transform", minimum=1)
    depth: Number = quantity("1", "depth of its products", minimum=1)
    word: Number = quantity("B", "one point", positive=True)
    sources: Sources = field(default_factory=Sources)


def fft_run(name: str = "dfmodel-fft") -> FftRun:
    """A transform of DFModel's, by name or TOML path."""
    return sourced_record(FftRun, KIND, name)


def fft_times(run: FftRun, machine: StudyMachine) -> KernelTimes:
    r"""The two steps of an FFT on one of P chips.

    .. math:: C_k = \frac{2 L K}{P\, u R}, \quad M_k = \frac{L w}{P b_m}, \quad N_1 = 0, \quad
              N_2 = \frac{L w}{4 l b}

    length L, products of depth K along each side of a square of sqrt(L), w bytes of a point; l links that the
    all-to-all crosses. The grid is written by the first step and read by the second.

    Ko et al., DFModel (2024), sec. 3 and 7 of our study.

    >>> wires = {"devices": 1024.0, "crossing": 32.0}
    >>> point = StudyMachine(peak=993.214464e12, utilisation=0.9, memory=300e9, link=50e9, **wires)
    >>> round(1e3 * float(fft_times(fft_run(), point).compute.sum()), 6)  # logged: 2,460,052 ns
    2.460052
    """
    second = np.array([0.0, 1.0])
    devices = last_axis(machine.devices)
    points = last_axis(run.points) / devices
    flop = 2.0 * points * last_axis(run.depth) * np.ones(2)
    held = points * run.word
    exchange = bisection_all_to_all(
        held / devices, devices, last_axis(machine.crossing), last_axis(machine.link)
    )
    return KernelTimes(
        flop=flop, compute=_compute(flop, machine),
        memory=held / last_axis(machine.memory) * np.ones(2), network=exchange * second,
        inside=0.0 * flop,
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------------- DLRM


@register_pytree
@dataclass(frozen=True, eq=False, kw_only=True)
class DlrmRun:
    """A recommender as DFModel has it: equal dense layers, tables read and exchanged once each way."""

    name: str = text("short name, as in the file's name")
    title: str = text("what it is")
    width: Number = quantity("1", "inputs and outputs of a layer", minimum=1)
    samples: Number = quantity("1", "of a micro-batch on one chip", minimum=1)
    layers: Number = quantity("1", "dense layers", minimum=1)
    exchange_after: Number = quantity("1", "layer at which embeddings are read and exchanged", minimum=1)
    looked_up: Number = quantity("B", "read from tables for one sample")
    microbatches: Number = quantity("1", "over which gradients' sums are spread", minimum=1)
    passes: Number = quantity("1", "of an all-reduce", minimum=1)
    word: Number = quantity("B", "one number", positive=True)
    sources: Sources = field(default_factory=Sources)


def dlrm_run(name: str = "dfmodel-dlrm") -> DlrmRun:
    """A recommender of DFModel's, by name or TOML path."""
    return sourced_record(DlrmRun, KIND, name)


def dlrm_tensors(layers: int) -> np.ndarray:
    """Activations that each kernel reads or writes: forward layers, their gradients, weight gradients.

    Layers are a chain there and back. A weight's gradient reads what the layer before made and, but for the
    layer before the last, the gradient of the one after it: 76 tensors for 20 layers, as many as the logged
    memory times tell; which one is missing is inferred.

    >>> int(dlrm_tensors(20).sum()) // 2
    76
    """
    ends = np.zeros(3 * layers)
    chain = [(k, k + 1) for k in range(2 * layers - 1)]
    forward = [(k, 3 * layers - 2 - k) for k in range(layers - 1)]  # layer k to the weights of k + 1
    backward = [(2 * layers - 1 - k, 3 * layers - k) for k in range(1, layers - 1)]
    for source, reader in (*chain, *forward, *backward):
        ends[source] += 1.0
        ends[reader] += 1.0
    return ends


def dlrm_times(run: DlrmRun, machine: StudyMachine) -> KernelTimes:
    r"""Kernels of a recommender's training step on one of P chips, for one micro-batch.

    .. math:: C_k = \frac{2 d^2 m}{u R}, \quad M_k = \frac{t_k d m w + E_k}{b_m}, \quad
              N_{exchange} = \frac{E P}{4 l b}, \quad N_{gradient} = \frac{c\, d^2 w}{B}\,\text{ns}

    width d, m samples, w bytes of a number, t_k tensors of a kernel (`dlrm_tensors`); E bytes looked up where
    embeddings are exchanged, there and back; l links that cross. DFModel takes the bytes of a weight's
    gradient, c times and spread over B micro-batches, as nanoseconds: no bandwidth enters.

    Ko et al., DFModel (2024), sec. 3, 7 and 8 of our study.

    >>> wires = {"devices": 1024.0, "crossing": 32.0}
    >>> point = StudyMachine(peak=993.214464e12, utilisation=0.9, memory=300e9, link=50e9, **wires)
    >>> round(1e3 * float(dlrm_times(dlrm_run(), point).network.sum()), 3)  # logged: 274,297,344 ns
    274.297
    """
    layers, last = int(run.layers), int(run.exchange_after)
    exchanged = np.zeros(3 * layers)
    exchanged[[last - 1, 2 * layers - last]] = run.looked_up * run.samples
    updates = np.arange(3 * layers) >= 2 * layers
    flop = 2.0 * run.width**2 * run.samples * np.ones(3 * layers)
    tensor = run.width * run.samples * run.word
    devices, link = last_axis(machine.devices), last_axis(machine.link)
    sums = run.passes * run.width**2 * run.word / run.microbatches * NANOSECOND
    sent = bisection_all_to_all(exchanged / devices, devices, last_axis(machine.crossing), link)
    return KernelTimes(
        flop=flop, compute=_compute(flop, machine),
        memory=(dlrm_tensors(layers) * tensor + exchanged) / last_axis(machine.memory),
        network=sent + sums * updates, inside=exchanged / last_axis(machine.memory),
    )  # fmt: skip
