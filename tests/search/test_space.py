"""Spaces: counted exactly, numbered without gaps, and refused in one line where they make no sense."""

import tomllib

import numpy as np
import pytest

from strata.base.errors import StrataError
from strata.params import find
from strata.search.points import case_of_points, evaluate_points
from strata.search.space import space

SMALL = """
name = "mine"
title = "a few stacks"

[question]
model = "llama-3-8b"
system = "1xstack-ref"
phase = "decode"

[[axis]]
name = "layers"
field = "chip.stack.layers"
values = [2, 4, 8]
source = "assumed: an example"

[[axis]]
name = "connected"
field = "chip.stack.connected_layers"
values = [1, 2, 4, 8]
source = "assumed: an example"

[[axis]]
name = "core"
source = "assumed: an example"
[axis.variants]
usual = {}
wide = { "chip.compute.vector_rate" = "7.5 TFLOP/s" }

[[axis]]
name = "batch"
field = "batch"
values = [1, 8]
source = "assumed: an example"

[[constraint]]
keep = "connected <= layers"
why = "a layer is connected once"

[[tie]]
field = "chip.energy.static_power"
value = "20 + layers"
source = "assumed: an example"
"""


@pytest.fixture(scope="module")
def whole():
    return space("deepstack-3d")


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return space(str(path))

    return write


def test_points_are_counted_and_numbered_without_gaps(written):
    made = written(SMALL)
    assert made.size == (2 + 3 + 4) * 2 * 2
    every = made.digits(np.arange(made.size))
    assert len(np.unique(every, axis=0)) == made.size and made.legal(every).all()
    assert made.index(every).tolist() == list(range(made.size))
    values = made.values(every)
    assert np.all(values["connected"] <= values["layers"])
    broken = every[0].copy()
    broken[:2] = (0, 3)
    assert made.index(broken).tolist() == [-1]


def test_the_shipped_space_is_as_large_as_the_published_one_and_holds_its_winners(whole):
    assert whole.size >= 2.5e14
    rng = np.random.default_rng(0)
    drawn = whole.random(rng, 500)
    np.testing.assert_array_equal(whole.digits(whole.index(drawn)), drawn)
    for batch, layers, sram, links in (
        (4, 10, "256 KiB", (0.7, 0.9, 1.9)),
        (1024, 7, "128 KiB", (1.9, 0.4, 1.7)),
    ):
        inner, middle, outer = links
        kept = space(
            "deepstack-3d",
            batch=batch,
            layers=layers,
            connected=layers,
            sram=sram,
            port="1873.92 GB/s",
            inner=inner,
            middle=middle,
            outer=outer,
            topology="torus-256",
            power="100 W",
        )
        assert [a.labels for a in kept.axes if len(a) > 1 and a.name not in ("core", "overlap", "plan")] == []


def test_fields_ties_and_variants_reach_the_system(written):
    made = written(SMALL)
    values = made.values(made.digits(np.arange(made.size)))
    case = case_of_points(made, made.digits(np.arange(made.size)))
    system, work = case.system, case.workload
    np.testing.assert_allclose(system.chip.energy.static_power, 20 + values["layers"])
    np.testing.assert_allclose(system.chip.stack.layers, values["layers"])
    np.testing.assert_allclose(work.batch, values["batch"])
    wide = values["core"] == "wide"
    per_core = system.chip.compute.vector_rate / system.chip.compute.cores
    np.testing.assert_allclose(per_core[wide], 7.5e12 / 8)
    np.testing.assert_allclose(per_core[~wide], 3.75e12 / 8)


def test_a_point_is_the_same_alone_and_among_others(whole):
    drawn = whole.random(np.random.default_rng(3), 60)
    many = evaluate_points(whole, drawn)
    for k in range(0, 60, 5):
        one = evaluate_points(whole, drawn[k])
        assert one.reason[0] == many.reason[k]
        np.testing.assert_allclose(one.columns["step_time"][0], many.columns["step_time"][k], rtol=1e-12)


def test_links_take_edge_power_and_money(whole):
    base = whole.random(np.random.default_rng(1), 1)
    few, many = base.copy(), base.copy()
    for name in ("inner", "middle", "outer"):
        few[0, whole.axis(name)], many[0, whole.axis(name)] = 0, 19
    a, b = (case_of_points(whole, digits).system for digits in (few, many))
    assert b.chip.silicon.floorplan.link_edge > a.chip.silicon.floorplan.link_edge
    assert b.chip.energy.static_power > a.chip.energy.static_power and b.chip.cores_fit < a.chip.cores_fit
    assert sum(d.price for d in b.fabric.dimension) > sum(d.price for d in a.fabric.dimension)


def test_a_space_is_told_apart_by_its_hash(written):
    made = written(SMALL)
    assert written(SMALL).hash == made.hash
    assert written(SMALL.replace("[2, 4, 8]", "[2, 4]")).hash != made.hash


def test_some_choices_are_kept_by_number_text_word_or_condition():
    kept = space(
        "deepstack-3d",
        batch=[4, 1024],
        sram="262144",
        plan="(ep == 1) & (cp == 1) & (zero == 0)",
        topology="switch-256",
    )
    assert [kept.axes[kept.axis(n)].labels for n in ("batch", "sram", "topology")] == [
        ("4", "1024"),
        ("256 KiB",),
        ("switch-256",),
    ]
    assert all("ep=" not in label and "cp=" not in label for label in kept.axes[kept.axis("plan")].labels)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            'field = "chip.stack.layers"',
            'field = "chip.stack.layer"',
            "no field of space mine called 'chip.stack.layer'; nearest: chip.stack.layers",
        ),
        ("values = [2, 4, 8]", "values = [2, 8, 4]", "axis layers lists rising numbers"),
        ("values = [2, 4, 8]", 'values = ["2 mm", "4 mm"]', "layers"),
        (
            'keep = "connected <= layers"',
            'keep = "connected > 2 * layers + 100"',
            "constraints leave no point",
        ),
        ('keep = "connected <= layers"', 'keep = "conected <= 3"', "a constraint names axes"),
        ('name = "connected"\n', 'name = "layers"\n', "each axis has a name of its own"),
        (
            'field = "chip.stack.connected_layers"',
            'field = "chip.stack.layers"',
            "each field follows from one axis",
        ),
        ('source = "assumed: an example"\n\n[[constraint]]', "\n[[constraint]]", "axis batch needs a source"),
        ("[[tie]]", "[[tye]]", "tye"),
        ('model = "llama-3-8b"', 'model = "llama-3-8c"', "llama-3-8b"),
    ],
)
def test_a_space_that_makes_no_sense_is_refused_in_one_line(written, old, new, said):
    assert old in SMALL
    with pytest.raises(StrataError) as error:
        case_of_points(made := written(SMALL.replace(old, new)), made.digits([0]))
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_choice_that_is_not_there_is_refused():
    with pytest.raises(StrataError, match="no choice of axis batch called '3'"):
        space("deepstack-3d", batch=[3])
    with pytest.raises(StrataError, match="no axis of space deepstack-3d called 'layer'; nearest: layers"):
        space("deepstack-3d", layer=[3])


def test_a_space_can_start_from_another(whole):
    prefill = space("deepstack-3d-prefill")
    assert prefill.scenario.phase == "prefill" and [a.name for a in prefill.axes] == [
        a.name for a in whole.axes
    ]
    assert "axis" not in tomllib.loads(find("space", "deepstack-3d-prefill").read_text(encoding="utf-8"))
