"""Sweeps of generated chips: a box is its points one by one, words and numbers stand in the order told."""

from itertools import permutations

import numpy as np
import pytest

import strata as st
from deepflow.generated import generated_system, sweep_generated
from strata.base.errors import StrataError
from strata.hardware.generate.recipe import generation
from strata.search.plans import best_strategies

WORK = st.train(64.0, 1.0)
OLD = ("deepflow-v100", "deepflow-v100", "deepflow-2021", "lstm-lm-v100")
HBM = ("deepflow-hbm2", "deepflow-hbm2e", "deepflow-hbm3", "deepflow-hbm4")


def single(device, power, hidden, template="deepflow-2021"):
    made = generation("deepflow-v100", "deepflow-v100", template, device=device, power=power)
    program = st.program("lstm-lm-v100", hidden=hidden)
    return st.evaluate(generated_system(made, 8), program, WORK, "d8")


@pytest.mark.parametrize("template", ["deepflow-2021", "deepflow"])
def test_a_box_is_its_points(template):
    found = sweep_generated(
        *OLD[:2],
        template,
        OLD[3],
        workload=WORK,
        devices=8,
        plan="d8",
        vary=["model.hidden=2048,4096", "device=deepflow-hbm2,deepflow-hbm4", "budget.power=150,300 W"],
    )
    assert found.shape == (2, 2, 2)
    for i, hidden in enumerate((2048.0, 4096.0)):
        for j, device in enumerate(("deepflow-hbm2", "deepflow-hbm4")):
            for k, power in enumerate((150.0, 300.0)):
                alone = single(device, power, hidden, template)
                assert found["step_time"][i, j, k] == pytest.approx(float(alone.metrics.step_time), rel=1e-12)
                assert found["bound_by"][i, j, k] == alone.bound_by
                bandwidth = float(alone.system.chip.memory.bandwidth)
                assert found["memory_bandwidth"][i, j, k] == pytest.approx(bandwidth, rel=1e-12)


def test_the_best_division_of_each_point_is_the_best_of_its_system():
    found = sweep_generated(
        *OLD, workload=WORK, devices=8, metric="items_per_s", vary=["budget.power=150,300 W"]
    )
    for i, power in enumerate((150.0, 300.0)):
        made = generation(*OLD[:3], power=power)
        first = best_strategies(generated_system(made, 8), "lstm-lm-v100", WORK, top=1)[0].result
        assert found["step_time"][i] == pytest.approx(float(first.metrics.step_time), rel=1e-12)
        assert found["plan"][i] == st.mapping.plan.division_text(first.plan)


def test_gains_of_parts_and_fixed_times_make_up_the_step():
    """Time is a sum of terms, each inverse to one part's speed, and of fixed ones."""
    found = sweep_generated(
        *OLD, workload=WORK, devices=8, plan="d8", gains=True, vary=["budget.power=100,300 W"]
    )
    parts = ("compute", "registers", "l1", "l2", "memory", "network")
    gained = sum(found[f"gain_{part}"] for part in parts)
    fixed = found["share_overhead"] + sum(found[f"share_{wait}"] for wait in ("throttling", "bubble", "host"))
    np.testing.assert_allclose(gained + fixed, 1.0, atol=0.05)
    assert (found["gain_network"] <= found["share_network"] + 1e-9).all()


def test_numbers_of_the_chip_and_the_fabric_may_be_stated():
    found = sweep_generated(
        *OLD,
        workload=WORK,
        devices=8,
        plan="d8",
        changes=["chip.memory.capacity=1 TB"],
        vary=["chip.memory.bandwidth=1,3 TB/s", "fabric.inter.bandwidth=100,400 GB/s"],
    )
    assert found["memory_capacity"].min() == 1e12
    np.testing.assert_allclose(found["inter_bandwidth"][0], [100e9, 400e9])
    assert (np.diff(found["step_time"], axis=1) < 0).all()


@pytest.mark.parametrize("template", ["deepflow-2021", "deepflow"])
def test_memories_and_networks_of_the_case_studies_reach_what_the_paper_states(template):
    """Section 9: 1, 2, 2.6, 3.3 TB/s and 100, 200, 400 GB/s a node, of 300 W and 850 mm2."""
    for device, stated in zip(HBM, (1.0, 2.0, 2.6, 3.3), strict=True):
        made = generation("deepflow-n12", "deepflow-casestudy", template, device=device)
        assert float(made.chip.memory.bandwidth) / 1e12 == pytest.approx(stated, rel=0.02)
    for speed, stated in (("ndr", 100.0), ("xdr", 200.0), ("gdr", 400.0)):
        link = f"deepflow-{speed}-x8"
        made = generation("deepflow-n12", "deepflow-casestudy", template, links={"inter": link})
        assert float(made.fabric.dimension[-1].bandwidth) / 1e9 == pytest.approx(stated, rel=1e-3)


def test_scaling_factors_of_a_node_are_changed_before_it_is_scaled():
    follows, stays = (
        generation("deepflow-n1", "deepflow-v100", "deepflow-2021", **{"technology.scaling.sram_power": x})
        for x in (1.3, 1.0)
    )
    first = generation("deepflow-n12", "deepflow-v100", "deepflow-2021")
    l2 = [made.made.running.levels[2].bandwidth for made in (first, stays, follows)]
    assert float(l2[1]) == pytest.approx(float(l2[0]), rel=1e-3)
    assert float(l2[2] / l2[0]) == pytest.approx(1.3**6, rel=1e-3)
    steps = {"technology.scaling.generations": np.array([0.0, 6.0])}
    both = generation("deepflow-n12", "deepflow-v100", "deepflow-2021", **steps)
    np.testing.assert_allclose(both.made.running.levels[2].bandwidth, [float(l2[0]), float(l2[2])], rtol=1e-9)


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        (["tecnology=n5,n3"], "tecnology"),
        (["technology="], "an axis is written like"),
        (["budget.power=100,200 W", "budget.power=300 W"], "each axis varies something else"),
        (["links.outer=nvlink4"], "outer"),
        (["sizes.intra=4"], "inner network with bandwidth"),
        (["fabric.outer.bandwidth=1 GB/s"], "fabric.outer.bandwidth"),
    ],
)
def test_what_cannot_vary_says_so_in_one_line(vary, said):
    with pytest.raises(StrataError) as error:
        sweep_generated(*OLD, workload=WORK, devices=8, plan="d8", vary=vary)
    assert said in str(error.value) and "\n" not in str(error.value)


PACKAGES = [
    "chip.memory.capacity=1 TB",
    "budget.area_share.intra=0.02",
    "budget.power_share.intra=0.004",
    "budget.perimeter_share.inter=0.3",
    "budget.perimeter_share.intra=0.2",
    "fabric.intra.bandwidth=4 TB/s",
]


@pytest.mark.parametrize("template", ["deepflow-2021-packages", "deepflow-2021-line"])
def test_every_order_is_no_worse_than_the_usual_one_and_counts_in_packages(template):
    told = {"workload": WORK, "devices": 64, "where": "pp == 1", "vary": ["sizes.intra=1,4,16"]}
    names = ("deepflow-v100", "deepflow-v100", template, "lstm-lm-v100")
    usual = sweep_generated(*names, changes=PACKAGES, **told)
    every = sweep_generated(*names, changes=PACKAGES, orders=True, **told)
    assert np.all(every["step_time"] <= usual["step_time"] * (1 + 1e-12))
    assert np.all(np.diff(every["step_time"]) <= 0.0)
    if template == "deepflow-2021-packages":  # on one switch no order is better
        assert every["step_time"][0] == pytest.approx(usual["step_time"][0], rel=1e-12)


def test_an_order_is_the_layout_with_its_dimensions_in_that_order():
    from deepflow.device_mapping import in_every_mesh_order
    from strata.mapping.kernel_parallel import layout_of
    from strata.search.plans import candidate_strategies

    lstm, system = st.program("lstm-lm-v100"), st.system("16xh200")
    many = candidate_strategies(system, lstm, "(pp == 1) & (depth == 1) & (dp == 4)")
    layouts, told = in_every_mesh_order(layout_of(many, lstm), ["a", "b", "c"])
    assert len(layouts) == 6 and len(told) == 18
    assert {layout.dimensions[:3] for layout in layouts} == set(permutations(("kp1", "kp2", "dp")))
    results = [st.evaluate(system, lstm, WORK, layout) for layout in layouts]
    assert all(r.fits.all() for r in results)
