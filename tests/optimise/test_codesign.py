"""Co-design of generated chips: what is free, what is found, that it keeps budgets and memory, and errors."""

from dataclasses import replace

import numpy as np
import pytest

import strata as st
from deepflow.codesign import codesign, codesign_problem, model_shapes, system_sizes
from deepflow.design.problem import FREE
from strata.base.errors import BadValue, UnknownName
from strata.evaluate import evaluate_case

V100 = ("deepflow-v100", "deepflow-2021-capped", "deepflow-v100", "lstm-lm-v100", st.train(256, 1), 4)
SPLITS = ("area", "power", "perimeter")
HAND_MADE = 0.0311224487  # [s] DeepFlow's own time of its hand-made split: nanocad-lab/DeepFlow 566c192


@pytest.fixture(scope="module")
def found():
    free = (*SPLITS, "die_area", "devices")
    return codesign(*V100, strategies="d4", free=free, evaluations=2500, compare=("random",))


def test_deepflow_reference_v100_search(found):
    """Faster than the hand-made split in DeepFlow's terms, although gradients are added up in turn here."""
    assert found.value < HAND_MADE < found.start.metrics.step_time
    assert found.trace.cpu_seconds < 10.0
    assert found.generation.made.built.memory.devices > 4.0


def test_every_component_keeps_its_highest_voltage(found):
    made = found.generation.made
    points = [made.running.core.point, made.running.memory.point, *(n.point for n in made.running.networks)]
    parts = [made.logic, made.device, *made.links]
    for point, part in zip(points, parts, strict=True):
        assert float(point.voltage) <= float(part.max_voltage) * (1 + 1e-9)


def test_the_best_design_keeps_budgets_and_memory(found):
    for parts in found.generation.use.values():
        assert (
            sum(float(v) for name, v in parts.items() if name != "total") <= float(parts["total"]) * 1.000001
        )
    assert found.result.fits and found.result.metrics.memory_used <= found.result.metrics.memory_limit
    room = float(found.problem.budget.node_area) - float(found.result.system.chip.package.die_area)
    assert found.generation.made.built.memory.devices * found.problem.device.area <= room + 1e-12


def test_a_batch_of_designs_equals_single_evaluations(found):
    problem = found.problem
    designs = problem.variables.random(np.random.default_rng(3), 12)
    values, violation = problem(designs)
    for k in range(12):
        alone = evaluate_case(problem.case_of(designs[k]))
        assert (violation[k] == 0.0) == bool(alone.fits)
        if alone.fits:
            assert values[k] == pytest.approx(float(alone.metrics.step_time), rel=1e-9)


def test_the_stated_budget_is_a_design_of_the_problem(found):
    stated, start = found.start.metrics.step_time, found.problem.start
    assert found.problem(start[None])[0][0] == pytest.approx(stated, rel=1e-6)


def test_more_power_is_never_slower(found):
    assert found.worth["power"] >= -1e-9


def test_methods_are_compared_at_equal_evaluations(found):
    assert {t.evaluations for t in found.compared.values()} == {2500}
    assert found.gaps["gradient"] == 0.0 < found.gaps["random"]


def test_die_and_stacks_are_worth_it_and_equal_spending_still_wins():
    options = {"strategies": "d4", "evaluations": 1200}
    split = codesign(*V100, free=SPLITS, **options)
    same = codesign(*V100, free=(*SPLITS, "die_area", "devices"), spend="stated", **options)
    assert same.value < 0.5 * split.start.metrics.step_time
    for own in same.problem.variables.shares:
        members = [same.design[f"{own.name}.{m}"] for m in own.members]
        assert sum(members) <= own.total * (1 + 1e-9) < 1.01


def test_choices_alone_are_proven_and_the_best_of_all():
    ways = ("d4", "RC-2-2", "RC-1-4", "CR-4")
    found = codesign(*V100, strategies=ways, free=("strategy", "devices"))
    assert found.proven and found.trace.evaluations == len(ways) * len(
        found.problem.variables.choices[0].labels
    )
    times = [codesign(*V100, strategies=way, free=("devices",)).value for way in ways]
    assert (
        found.value == pytest.approx(min(times)) and found.design["strategy"] == ways[int(np.argmin(times))]
    )


def test_shapes_of_equal_parameters():
    lstm = st.program("lstm-lm-v100")
    work = st.train(256, 1)
    shapes = model_shapes(lstm, work, [4096, 3072, 2048])
    assert shapes[0].changes == {"hidden": 4096.0, "layers": 1.0} and len(shapes) > 1
    base = float(lstm.trace(work).parameters())
    for shape in shapes:
        own = replace(lstm, **shape.changes).trace(work)
        assert float(own.parameters()) == pytest.approx(base, rel=0.1)
    equal = model_shapes(lstm, work, [2048], keep="flop")
    for shape in equal:
        own = replace(lstm, **shape.changes).trace(replace(work, batch=shape.batch))
        assert float(own.flop()) == pytest.approx(float(lstm.trace(work).flop()), rel=0.02)
    found = codesign(*V100, strategies="d4", shapes=shapes, free=("shape",))
    assert found.proven and found.design["shape"] in [s.label for s in shapes]


def test_bad_input_gets_one_line():
    with pytest.raises(UnknownName, match="nearest: die_area"):
        codesign_problem(*V100, free=("die_aera",))
    with pytest.raises(BadValue, match="nothing is free"):
        codesign(*V100, strategies="d4", free=("strategy",))
    with pytest.raises(UnknownName, match="metric"):
        codesign_problem(*V100, metric="step_tim")
    with pytest.raises(BadValue, match="PACKAGESxDEVICES"):
        system_sizes("4x")
    assert set(SPLITS) < set(FREE)


def test_numbers_that_are_stated_stand_over_what_is_generated():
    """A network's bandwidth and a memory's capacity hold for every design, as a sweep sets them."""
    told = {"fabric.inter.bandwidth": "200 GB/s", "chip.memory.capacity": "1 TB", "budget.power": "250 W"}
    problem = codesign_problem(*V100, strategies="d4", changes=told, free=("power",))
    designs = problem.variables.random(np.random.default_rng(0), 3)
    case = problem.case_of(designs)
    assert float(case.system.fabric.dimension[-1].bandwidth) == 200e9
    assert float(case.system.chip.memory.capacity) == 1e12 and float(problem.budget.power) == 250.0


def test_a_batch_without_any_network_is_out_and_not_an_error():
    """One port asks for more edge than these shares have: no design of the batch joins its devices."""
    problem = codesign_problem(
        *V100, strategies="d4", links={"inter": "deepflow-gdr-x8"}, free=("perimeter",)
    )
    edge = problem.variables.column("perimeter.inter")
    designs = np.full((2, len(problem.variables.names)), 0.5)
    designs[:, edge] = 0.1
    value, violation = problem(designs)
    assert np.all(np.isinf(value)) and np.all(violation > 0.0)
    with pytest.raises(BadValue, match="several devices need a network"):
        problem.case_of(designs)


def test_shapes_of_equal_work_take_their_batch_from_it():
    lstm, work = st.program("lstm-lm-512"), st.train(16384, 1)
    for shape in model_shapes(lstm, work, [8192, 12288, 20480], keep="work"):
        changed = replace(lstm, **shape.changes).trace(st.train(shape.batch, 1))
        assert float(changed.flop()) == pytest.approx(float(lstm.trace(work).flop()), rel=1e-3)
        assert shape.changes["layers"] == lstm.layers
    with pytest.raises(BadValue, match="shapes keep one of"):
        model_shapes(lstm, work, [8192], keep="depth")
