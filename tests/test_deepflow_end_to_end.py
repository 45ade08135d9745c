"""DeepFlow's recorded end-to-end times through generate and evaluate, with its program's rules switched on,
and what each correction changes.
"""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import strata as st
from strata.hardware.fabric import sized
from strata.mapping.kernel_parallel import layout_of, parse_strategy
from strata.mapping.layout import DEEPFLOW

DATA = json.loads((Path(__file__).parent / "data/deepflow/end_to_end.json").read_text(encoding="utf-8"))
ALONE = json.loads((Path(__file__).parent / "data/deepflow/gemm_single.json").read_text(encoding="utf-8"))
SINGLE = [(chip, case) for chip, cases in ALONE["gemm"].items() for case in cases]
GENERATED = {"v100": ("deepflow-v100", "deepflow-v100", "deepflow-2021"), "p4": ("deepflow-p4",) * 3}
MODELS = {row["label"]: row for row in DATA["language_models"]}


def joined(found, devices):
    """So many generated chips on their own network; the usual one of their kind where they have none."""
    if found.fabric is None:
        return st.system(found.chip)
    return st.system(found.chip, sized(found.fabric, (float(devices),)))


def made_system(row, template=None):
    technology, budget, own = row["generate"]
    return joined(st.generation(technology, budget, template or own, **row["changes"]), row["devices"])


def language_model(row, **changes):
    """Its model as its program times it: no projection, looked-up rows over the host's link."""
    sizes = {name: row[name] for name in ("vocab", "layers", "hidden", "steps")}
    said = {"projection": 0, "host_link": DATA["host_link_Bps"], **sizes, **changes}
    return st.program("lstm-lm-v100", **said)


def step_time(row, system=None, program=None, rules=DEEPFLOW, engine=DEEPFLOW):
    program = program or language_model(row)
    layout = layout_of(parse_strategy(row["strategy"]), program, rules=rules)
    work = st.train(row["batch"], 1)
    return st.evaluate(system or made_system(row), program, work, layout, engine).steps[0].time


def with_kernels(system, model):
    return replace(system, chip=replace(system.chip, kernel_model=model))


@pytest.mark.parametrize(
    ("chip", "case"), SINGLE, ids=lambda x: x if isinstance(x, str) else f"{x['m']}x{x['n']}"
)
def test_deepflow_reference_single_gemm(chip, case):
    """The 22 products on generated chips: at most 0.4 % off (128 x 8192 x 8192), the others to 1e-8."""
    made = st.generate(*GENERATED[chip])
    product = st.program("gemm-8192", m=case["m"], k=case["k"], n=case["n"])
    found = st.evaluate(st.system(made), product, st.forward(1), "d1", DEEPFLOW)
    assert found.steps[0].time == pytest.approx(case["time_s"], rel=5e-3)


@pytest.mark.parametrize("case", DATA["distributed_products"], ids=lambda c: f"{c['strategy']}-{c['m']}")
def test_deepflow_reference_distributed_gemm(case):
    """Communication to 1e-6; products at most 4.2e-4 off (CR: of two equal sides another is the reused one),
    totals 7.2e-5.
    """
    found = st.generation("deepflow-v100", "deepflow-v100", "deepflow-2021-dgx1")
    product = st.program("gemm-8192", m=case["m"], k=case["k"], n=case["n"])
    layout = layout_of(parse_strategy(case["strategy"]), product, rules=DEEPFLOW)
    step = st.evaluate(joined(found, case["N"]), product, st.forward(1), layout, DEEPFLOW).steps[0]
    assert step.time_by_kind.get("collective", 0.0) == pytest.approx(case["comm_time_s"], rel=1e-6)
    assert step.time_by_kind["matmul"] == pytest.approx(case["gemm_time_s"], rel=1e-3)
    assert step.time == pytest.approx(case["total_s"], rel=1e-4)


@pytest.mark.parametrize("label", MODELS)
def test_deepflow_reference_language_model(label):
    """The issue asks for 10 %; at most 2.2 % off (RC-4-2), 0.9 % in the mean."""
    row = MODELS[label]
    assert step_time(row) == pytest.approx(row["time_s"], rel=0.025)


@pytest.mark.parametrize("row", DATA["die_sweep"], ids=lambda r: r["label"])
def test_deepflow_reference_die_sweep(row):
    """Four replicas on dies of 815 to 1130 mm2, and the shipped split: at most 1.1 % off."""
    assert step_time(row) == pytest.approx(row["time_s"], rel=0.015)
    if "stacks" in row:
        made = st.generation(*row["generate"], **row["changes"]).made
        assert made.built.memory.devices == row["stacks"]


def test_a_box_of_dies_is_each_by_itself():
    areas, row = np.array([815.0, 830.0, 850.0, 930.0]) * 1e-6, DATA["die_sweep"][0]
    program = language_model(row)
    layout = layout_of(parse_strategy(row["strategy"]), program, rules=DEEPFLOW)
    system = made_system(dict(row, changes={"die_area": areas}))
    box = st.evaluate(system, program, st.train(row["batch"], 1), layout, DEEPFLOW).metrics.step_time
    alone = [step_time(dict(row, changes={"die_area": area})) for area in areas]
    np.testing.assert_allclose(box, alone, rtol=1e-12)
    assert np.all(np.diff(box) >= 0)  # each stack less costs time


def test_a_batch_of_strategies_under_its_rules_is_each_by_itself():
    row = MODELS["LM 8192/65536 p4"]
    program, system = language_model(row), made_system(dict(row, devices=4))
    every = st.strategies(4, program)
    many = replace(every, lp=np.append(every.lp, 4.0), dp=np.append(every.dp, 1.0))
    many = replace(
        many,
        split=replace(
            every.split,
            rows=np.append(every.split.rows, 1.0),
            columns=np.append(every.split.columns, 1.0),
            depth=np.append(every.split.depth, 1.0),
        ),
    )
    work, layout = st.train(row["batch"], 1), layout_of(many, program, rules=DEEPFLOW)
    box = st.evaluate(system, program, work, layout, DEEPFLOW).metrics.step_time
    for i in range(many.dp.size):
        one = layout_of(many.at(i), program, rules=DEEPFLOW)
        alone = st.evaluate(system, program, work, one, DEEPFLOW).metrics.step_time
        assert box[i] == pytest.approx(alone, rel=1e-12)
    traced = st.evaluate(system, program, work, layout, DEEPFLOW, backend="jax").metrics.step_time
    np.testing.assert_allclose(traced, box, rtol=1e-9)


def corrections(row):
    """Times of a step as its program has it, and after each correction on top of those before."""
    system = made_system(row)
    yield "its program", step_time(row)
    yield "fused", step_time(row, engine="ideal")
    own = language_model(row, host_link=None)
    yield "embedding in device memory", step_time(row, program=own, engine="ideal")
    whole = language_model(row, host_link=None, projection=row["projection"])
    yield "projection", step_time(row, program=whole, engine="ideal")
    paper = with_kernels(system, "hierarchical")
    yield "hierarchical", step_time(row, paper, whole, engine="ideal")
    yield "payloads", step_time(row, paper, whole, rules="", engine="ideal")


# label: change in % of each correction, on top of those before
CHANGES = {
    "v100 shipped config": (-5.0, -3.8, 4.1, 140.5, 0.0),
    "LM V100 B2048 D2048 V2048": (-1.8, -21.6, 11.2, 71.8, 0.0),
    "LM 8192/65536 none": (-0.1, -2.6, 1.0, 67.6, 0.0),
    "LM 8192/65536 d8": (-0.4, -2.6, 1.1, 83.0, 1.2),
    "LM 8192/65536 RC-4-2": (-0.3, -5.9, 1.2, 90.2, -10.7),
    "LM 8192/65536 RC-2-4": (-0.4, -3.5, 1.2, 91.5, -14.2),
    "LM 8192/65536 CR-8": (-0.4, -2.4, 1.4, 82.6, 1.8),
    "LM 8192/65536 p4": (-0.1, -0.4, 2.9, 68.6, 0.1),
}


@pytest.mark.parametrize("label", CHANGES)
def test_what_each_correction_changes(label):
    """The table of docs/deepflow.md, to half a percent."""
    times = [time for _, time in corrections(MODELS[label])]
    found = [100.0 * (b / a - 1.0) for a, b in pairwise(times)]
    assert found == pytest.approx(CHANGES[label], abs=0.5)
