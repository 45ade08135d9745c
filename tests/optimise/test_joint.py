"""Degrees, layouts and partitions together: brute force, laws, DFModel's table VI as special cases."""

import itertools
from dataclasses import replace

import pytest

import strata as st
from strata.base.errors import BadValue, UnknownName
from strata.mapping.layout import Layout
from strata.optimise import fuse
from strata.optimise.fuse import fuse_kernels
from strata.optimise.fusion.fusion_graph import TILES
from strata.optimise.joint import map_program, typed_degrees, usual_layout
from strata.optimise.layout import layout_setting
from strata.optimise.layouts.layout_options import layout_rules, module_options
from strata.optimise.mappings.joint_compare import compared_mappings, mapping_points
from strata.optimise.mappings.joint_layer import LayerSearch
from strata.optimise.mappings.joint_problem import MapSettings, fusion_blocks
from strata.pricing.fusion_rules import fusion_rules
from strata.workload.dataflow_builder import dataflow
from strata.workload.program import program


def mlp(rows=2048, hidden=4096):
    g = dataflow("mlp", hidden=hidden, inner=4 * hidden, rows=rows, stream="rows", layers=4)
    x = g.input("x", "rows hidden")
    up = g.gemm("up", x, weight="hidden inner", writes="rows inner")
    down = g.gemm("down", g.simd("act", up, flop=8), weight="inner hidden", writes="rows hidden")
    return g.program(output=g.simd("add", down, x))


def brute_force(code, system, work, rules, tiles):
    """Every layout of the mesh, each with its best partitions."""
    setting = layout_setting(system, code, work, {"tp": 4.0})
    told = MapSettings(rules=fusion_rules(rules), tiles=tiles)
    options = module_options(setting.graph, setting.mesh, layout_rules(rules), {})
    best = float("inf")
    for choice in itertools.product(*(range(len(o)) for o in options.values())):
        modules = tuple((m, o.axes(k)) for (m, o), k in zip(options.items(), choice, strict=True))
        try:
            blocks = fusion_blocks(setting, Layout(dict(setting.mesh), modules=modules), told)
        except BadValue:
            continue
        best = min(best, sum(b.times * fuse_kernels(b.problem).time for b in blocks))
    return best


def pair(rows=2048, hidden=4096):
    """Two products: the least program whose layouts convert."""
    g = dataflow("pair", hidden=hidden, inner=4 * hidden, rows=rows, stream="rows", layers=4)
    up = g.gemm("up", g.input("x", "rows hidden"), weight="hidden inner", writes="rows inner")
    return g.program(output=g.gemm("down", up, weight="inner hidden", writes="rows hidden"))


@pytest.mark.parametrize(("phase", "system"), [("forward", "4xsn10"), ("train", "4xsn40l")])
def test_no_layout_with_its_best_partitions_is_quicker(phase, system):
    code, work = pair(), st.forward(1.0) if phase == "forward" else st.train(1.0, 2048.0)
    tiles = (1, 64)
    found = map_program(code, system, work, plan="tp=4", tiles=tiles)
    assert found.optimal
    assert found.best.stage == pytest.approx(brute_force(code, system, work, "strata", tiles), rel=1e-6)


def test_gradients_are_part_of_the_proof():
    """Two replicas: the sum of gradients outlasts the only backward pass, and depends on layouts."""
    code, work, tiles = pair(), st.train(2.0, 2048.0), (1, 64)
    slow = linked("8xsn40l", 1e9)
    found = map_program(code, slow, work, plan="tp=4,dp=2", tiles=tiles)
    assert found.optimal and found.best.gradients > 0
    outer = found.best
    setting = layout_setting(slow, code, st.train(1.0, 2048.0), {"tp": 4.0})
    options = module_options(setting.graph, setting.mesh, layout_rules(), {})
    steps = []
    for choice in itertools.product(*(range(len(o)) for o in options.values())):
        modules = tuple((m, o.axes(k)) for (m, o), k in zip(options.items(), choice, strict=True))
        fixed = Layout({"tp": 4.0, "dp": 2.0}, modules=modules)
        given = map_program(code, slow, work, plan=fixed, tiles=tiles).best
        steps += [] if given is None else [given.step]
    assert min(steps) == pytest.approx(outer.step, rel=1e-6) and max(steps) > outer.step


def test_ctrl_c_keeps_the_best_so_far():
    told = []

    def stop(best, bound):
        told.append((best, bound))
        if len(told) == 3:
            raise KeyboardInterrupt

    code, work = program("gpt3-layer"), st.train(1.0, 2048.0)
    found = map_program(code, "8xsn10", work, plan="tp=8", tiles=(1, 32), progress=stop)
    assert found.interrupted and found.stopped and found.best is not None
    assert 0 < found.bound <= found.best.step <= told[-1][0] * (1 + 1e-9)
    assert found.bound >= told[-1][1] * (1 - 1e-9) and "within" in found.proof


def test_partitions_that_cp_sat_did_not_prove_count_with_their_bound(monkeypatch):
    monkeypatch.setattr(fuse, "IDEAL_LIMIT", 2)  # no shortest path: all blocks by CP-SAT
    code = program("gpt3-layer")
    plan = usual_layout(code, "tp=8")
    monkeypatch.setattr(LayerSearch, "_left", 0.01)
    found = map_program(code, "8xsn10", st.forward(1.0), plan=plan, tiles=(1, 8, 32))
    fused = found.best.layer.blocks[0].fusion
    assert fused.method == "cp-sat" and fused.gap > 1e-6
    assert not found.optimal and found.stopped and found.seconds < 30
    assert 0 < found.bound < found.best.step


@pytest.mark.parametrize("overlap", ["none", "network apart"])
def test_other_overlaps_agree_with_brute_force(overlap):
    code, work, tiles = pair(), st.forward(1.0), (1, 32)
    rules = fusion_rules("strata", overlap=overlap)
    found = map_program(code, "4xsn10", work, plan="tp=4", rules=rules, layouts="strata", tiles=tiles)
    setting = layout_setting("4xsn10", code, work, {"tp": 4.0})
    options = module_options(setting.graph, setting.mesh, layout_rules(), {})
    told, best = MapSettings(rules=rules, tiles=tiles), float("inf")
    for choice in itertools.product(*(range(len(o)) for o in options.values())):
        modules = tuple((m, o.axes(k)) for (m, o), k in zip(options.items(), choice, strict=True))
        blocks = fusion_blocks(setting, Layout(dict(setting.mesh), modules=modules), told)
        best = min(best, sum(b.times * fuse_kernels(b.problem).time for b in blocks))
    assert found.optimal and found.best.stage == pytest.approx(best, rel=1e-6)


def test_free_degrees_are_never_worse_than_fixed_ones():
    code, work = pair(), st.train(8.0, 2048.0)
    free = map_program(code, "8xsn10", work, tiles=(1, 16))
    assert free.optimal
    for plan in ("tp=8", "tp=4,dp=2", "tp=2,pp=4", "pp=4,dp=2"):
        fixed = map_program(code, "8xsn10", work, plan=plan, tiles=(1, 16))
        assert free.bound <= fixed.best.step * (1 + 1e-9)
        assert free.best.step <= fixed.best.step * (1 + 1e-6)


def test_free_layouts_are_never_worse_than_given_ones():
    code = program("gpt3-layer")
    given = map_program(code, "8xsn10", st.forward(1.0), plan=usual_layout(code, "tp=8"), tiles=(1, 32))
    free = map_program(code, "8xsn10", st.forward(1.0), plan="tp=8", tiles=(1, 32))
    assert free.optimal and free.best.step <= given.best.step * (1 + 1e-9)
    assert given.best.layer.options["q"] == ("heads",)


def test_more_sram_or_bandwidth_never_hurts():
    code, work = mlp(), st.forward(1.0)
    base = st.system("4xsn10")
    steps = []
    for sram, dram in ((1.0, 1.0), (2.0, 1.0), (2.0, 2.0)):
        chip = st.chip("sn10", **{"cache.capacity": sram * 335544320.0, "memory.bandwidth": dram * 153.6e9})
        made = map_program(code, st.system(chip, base.fabric), work, plan="tp=4", tiles=(1, 8, 64))
        steps.append(made.best.step)
    assert steps[0] >= steps[1] >= steps[2]


def test_other_mappings_lose_and_points_stand_at_one_height():
    code, system = program("gpt3-layer"), st.system("8xsn10")
    found = map_program(code, system, st.forward(1.0), plan=usual_layout(code, "tp=8"), tiles=(1, 32))
    every = compared_mappings(found.best, [["q", "k", "v"], ["up", "gelu"]], following=2)
    by_name = {each.name: each for each in every}
    assert by_name["best"].loss == 0 and by_name["kernel by kernel"].loss > 0.5
    assert by_name["pinned"].loss >= 0 and by_name["number 2"].loss <= by_name["number 3"].loss
    points = mapping_points(found.best, every, system)
    assert points[0].rate > points[1].rate and points[0].memory > points[1].memory
    assert points[0].network == pytest.approx(points[1].network)  # the same collectives
    with pytest.raises(UnknownName, match="pinned kernel"):
        compared_mappings(found.best, [["nobody"]])
    with pytest.raises(BadValue, match="break the order"):
        compared_mappings(found.best, [["up"], ["q"]])


def test_the_space_is_counted_exactly():
    code = mlp()
    found = map_program(code, "4xsn10", st.forward(1.0), plan="tp=4", tiles=(1, 8))
    options = module_options(
        layout_setting("4xsn10", code, st.forward(1.0), {"tp": 4.0}).graph, {"tp": 4.0}, layout_rules(), {}
    )
    layouts = 1
    for own in options.values():
        layouts *= len(own)
    # a chain of four kernels has 2^3 divisions into runs, each run with one of two numbers of tiles
    fusions = sum(2**parts * ways for parts, ways in ((1, 1), (2, 3), (3, 3), (4, 1)))
    assert found.space.layouts == layouts and found.space.fusions == fusions
    assert found.space.mappings == layouts * fusions


def test_what_does_not_fit_is_said():
    huge = mlp(hidden=262144)
    found = map_program(huge, "1xh100", st.forward(1.0), plan="tp=1")
    assert found.best is None and "DRAM" in found.reason


def test_plans_are_checked():
    assert typed_degrees("tp=4, pp=2") == {"tp": 4.0, "pp": 2.0}
    for plan, said in (("tp=3", "use all devices"), ("tp", "degrees like"), ("tp=1,pp=4", "no more stages")):
        with pytest.raises(BadValue, match=said):
            map_program(mlp().with_changes(layers=2), "4xsn10", st.forward(1.0), plan=plan)


def test_a_time_limit_leaves_a_mapping_and_its_gap():
    found = map_program(program("gpt3-layer"), "8xsn10", st.train(1.0, 2048.0), plan="tp=8", seconds=0.5)
    assert found.best is not None and 0 <= found.gap < 1
    assert found.bound <= found.best.step and TILES[0] == 1


def linked(name, bandwidth):
    """DFModel's chips with links of table VI: a ring of both directions."""
    made = st.system(name)
    links = tuple(replace(d, bandwidth=bandwidth) for d in made.fabric.dimension)
    return replace(made, fabric=replace(made.fabric, dimension=links))


@pytest.mark.parametrize(("chips", "speedup"), [(8, 5.59), (4, 6.17)])
def test_dfmodel_reference_table_6_is_a_special_case(chips, speedup):
    """8x1 and 4x2 (two replicas of four chips) at the layouts of the program, free partitions and tiles."""
    code = program("dfmodel-gpt-forward")
    system = linked(f"{chips}xdfmodel-sn10", 2 * 25e9)
    tiles = tuple(2**i for i in range(12))
    plan = usual_layout(code, f"tp={chips}")
    found = map_program(code, system, st.forward(1.0), plan=plan, rules="dfmodel-2024", tiles=tiles)
    assert found.optimal
    assert 22.138e-3 / found.best.step * 8 / chips == pytest.approx(speedup, rel=0.01)
    if chips == 8:
        kernels = compared_mappings(found.best)[1]
        assert kernels.time == pytest.approx(22.138e-3, rel=0.01)
