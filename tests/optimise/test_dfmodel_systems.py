"""The closed forms of DFModel's 80-system study against what it logged, all systems in one call."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import strata as st
from dfmodel.linear_parts import linear_link, linear_memory
from dfmodel.systems import (
    dlrm_run,
    dlrm_times,
    fft_run,
    fft_times,
    hpl_run,
    hpl_times,
    study_machine,
    study_point,
)

LOGGED = json.loads((Path(__file__).parents[1] / "data" / "dfmodel" / "systems80.json").read_text())
CHIPS = [st.chip(f"dfmodel-{name}") for name in ("h100", "tpu-v4", "sn30", "wse-2")]
MEMORIES = [linear_memory(f"dfmodel-{name}") for name in ("ddr4", "hbm3")]
LINKS = [linear_link(f"dfmodel-{name}") for name in ("pcie4", "nvlink4")]
TOPOLOGIES = [
    (("ring", "ring"), (32.0, 32.0)),
    (("ring", "ring", "ring"), (8.0, 8.0, 16.0)),
    (("full", "full"), (32.0, 32.0)),
    (("ring", "switch"), (8.0, 128.0)),
    (("switch", "switch"), (8.0, 128.0)),
]
MACHINE = study_machine(CHIPS, TOPOLOGIES, MEMORIES, LINKS, grid=(32.0, 32.0))
WAFER = np.array([0.0, 0.0, 0.0, 1.0]).reshape(4, 1, 1, 1)  # holds all kernels as one partition


def as_run(workload):
    """Kernels and machine as DFModel ran them: HPL of two sizes, four FFT points with half an H100."""
    if workload == "HPL":
        small, whole = hpl_run(), hpl_run("dfmodel-hpl-paper")
        sizes = {k: np.where(WAFER > 0, getattr(whole, k), getattr(small, k)) for k in ("order", "block")}
        return hpl_times(replace(small, **sizes), MACHINE), MACHINE
    if workload == "DLRM":
        return dlrm_times(dlrm_run(), MACHINE), MACHINE
    halved = np.ones((4, 5, 1, 1))
    halved[0, 2] = 528 / 1056
    machine = replace(MACHINE, peak=MACHINE.peak * halved)
    return fft_times(fft_run(), machine), machine


# of 80 systems: the worst; DLRM's is TPU on a dragonfly with HBM and PCIe, where its solver seems to have stopped early
WORST = {"HPL": 1e-7, "FFT": 1e-7, "DLRM": 9e-4}


@pytest.mark.parametrize("workload", WORST)
def test_dfmodel_reference_utilisation_of_all_systems(workload):
    found = np.broadcast_to(study_point(*as_run(workload), WAFER).utilisation, (4, 5, 2, 2))
    off = np.abs(found / np.array(LOGGED[workload]["utilisation"]) - 1)
    assert off.shape == (4, 5, 2, 2) and off.max() < WORST[workload]
    assert (off > 1e-6).sum() <= (4 if workload == "DLRM" else 0)


@pytest.mark.parametrize("workload", WORST)
def test_dfmodel_reference_breakdown_without_overlap(workload):
    found, logged = study_point(*as_run(workload), WAFER, overlap="none"), LOGGED[workload]
    for part in ("compute", "memory", "network"):
        there = np.array(logged[f"nonoverlap_{part}"]) * 1e-9
        ours = np.broadcast_to(getattr(found, part), (4, 5, 2, 2))
        assert np.abs(ours - there).max() <= 3e-7 * there.max()
        assert ours[there > 0] == pytest.approx(there[there > 0], rel=3e-7)
    ours = np.broadcast_to(found.utilisation, (4, 5, 2, 2))
    assert ours == pytest.approx(np.array(logged["nonoverlap_utilisation"]), rel=2e-7)


def geometric(values):
    return np.exp(np.log(values).mean())


def test_dfmodel_reference_ratios_of_the_paper():
    """DLRM: NVLink 6.3 times PCIe; FFT: dragonfly 3.22 times the others, 2.75 with whole H100s."""
    dlrm = np.broadcast_to(study_point(*as_run("DLRM"), WAFER).utilisation, (4, 5, 2, 2))
    assert geometric(dlrm[..., 1]) / geometric(dlrm[..., 0]) == pytest.approx(6.3, abs=0.02)
    rest = [0, 1, 3, 4]
    halved, machine = as_run("FFT")
    run = np.broadcast_to(study_point(halved, machine, WAFER).utilisation, (4, 5, 2, 2))
    assert geometric(run[:, 2]) / geometric(run[:, rest]) == pytest.approx(3.22, abs=0.01)
    whole = np.broadcast_to(
        study_point(fft_times(fft_run(), MACHINE), MACHINE, WAFER).utilisation, (4, 5, 2, 2)
    )
    assert geometric(whole[:, 2]) / geometric(whole[:, rest]) == pytest.approx(2.75, abs=0.01)
    assert whole[0, 2].ravel() == pytest.approx([0.044, 0.155, 0.050, 0.369], abs=6e-4)


def test_at_the_papers_size_every_chip_is_busy_with_hpl():
    """A matrix of 5 x 2^20 has more to compute for each byte sent than one of 2^20."""
    run = hpl_run("dfmodel-hpl-paper")
    found = np.broadcast_to(study_point(hpl_times(run, MACHINE), MACHINE, WAFER).utilisation, (4, 5, 2, 2))
    assert found[:3] == pytest.approx(0.9, rel=1e-3)  # the last iterations wait for panels
    assert found[3, ..., 0] == pytest.approx(0.732574, rel=1e-5)  # a wafer on PCIe waits for panels
    apart = study_point(hpl_times(run, MACHINE), MACHINE, WAFER, overlap="none").utilisation
    small = study_point(*as_run("HPL"), WAFER, overlap="none").utilisation
    assert (apart >= small * (1 - 1e-12)).all()


def test_a_batch_is_its_points_and_more_of_anything_never_hurts():
    kernels = dlrm_times(dlrm_run(), MACHINE)
    every = study_point(kernels, MACHINE, WAFER).time
    for chip, torus, memory, link in ((0, 0, 0, 0), (2, 2, 1, 1), (3, 4, 0, 1)):
        one = study_machine([CHIPS[chip]], [TOPOLOGIES[torus]], [MEMORIES[memory]], [LINKS[link]])
        alone = study_point(dlrm_times(dlrm_run(), one), one, WAFER[chip]).time
        assert float(alone.squeeze()) == float(
            np.broadcast_to(every, (4, 5, 2, 2))[chip, torus, memory, link]
        )
    for what in ("peak", "memory", "link", "crossing"):
        more = replace(MACHINE, **{what: 2.0 * getattr(MACHINE, what)})
        for times in (dlrm_times(dlrm_run(), more), fft_times(fft_run(), more), hpl_times(hpl_run(), more)):
            assert np.isfinite(times.compute.sum())
        assert (study_point(dlrm_times(dlrm_run(), more), more, WAFER).time <= every).all()
