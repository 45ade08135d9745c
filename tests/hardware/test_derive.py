"""What follows from a chip's numbers: rows read what they declare, the order follows, sources say so."""

import pickle
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest

import strata as st
from strata.base.arrays import enable_jax, leaves, map_leaves
from strata.base.errors import BadValue, MissingQuantity
from strata.hardware.chip import Chip, as_chip, finished, read_chip
from strata.hardware.derive import DERIVATIONS, ORDER, Derivation, derivation_order
from strata.hardware.thermal.compact import ThermalModel, UnsolvedHeat, heat_of
from strata.params import leaf_paths, names, stated, value_at, with_value

CHIPS = names("chip")
STACKED = [name for name in CHIPS if st.chip(name).stack is not None and st.chip(name).cooling is not None]


class Reading:
    """A record that notes the path of whatever is read from it."""

    def __init__(self, record, seen, path=""):
        self.__dict__.update(_record=record, _seen=seen, _path=path)

    def __getattr__(self, name):
        value, path = getattr(self._record, name), f"{self._path}{name}"
        self._seen.add(path)
        return Reading(value, self._seen, path + ".") if is_dataclass(value) else value


def held_unsolved(chip):
    return isinstance(chip.__dict__["heat"], UnsolvedHeat)


@pytest.mark.parametrize("row", [r for r in DERIVATIONS if not r.later], ids=lambda r: r.path)
def test_a_row_reads_what_it_declares_and_nothing_else(row):
    seen: set[str] = set()
    row.function(Reading(st.chip("stack-ref"), seen))
    declared = (row.path, *row.inputs, *row.uses)
    for path in seen:
        near = any(p == path or p.startswith(path + ".") or path.startswith(p + ".") for p in declared)
        assert near, f"{row.path} reads {path}"


def test_rows_come_after_those_that_give_what_they_need():
    place = {row.path: i for i, row in enumerate(ORDER)}
    assert len(place) == len(ORDER) == len(DERIVATIONS)
    for row in ORDER:
        for other in ORDER:
            if any(other.path == p or other.path.startswith(p + ".") for p in (*row.inputs, *row.uses)):
                assert place[other.path] < place[row.path], (other.path, row.path)


def test_the_order_does_not_depend_on_how_the_table_is_written():
    turned = derivation_order(DERIVATIONS[::-1])
    place = {row.path: i for i, row in enumerate(turned)}
    assert place["cores_fit"] < place["compute.cores"] < place["compute.vector_rate"]
    assert place["memory.bandwidth"] < place["cache.bandwidth"]


def test_a_circle_of_derivations_is_refused():
    def row(path, needed):
        return Derivation(path=path, inputs=(needed,), function=lambda chip: 0.0, source="a test")

    with pytest.raises(ValueError, match="cycle"):
        derivation_order(
            (row("memory.bandwidth", "memory.capacity"), row("memory.capacity", "memory.bandwidth"))
        )


@pytest.mark.parametrize("name", CHIPS)
def test_sources_say_what_was_derived(name):
    chip = st.chip(name)
    told = {path: param.source for path, param in stated(chip).items()}
    assert not any("other numbers" in source for source in told.values())
    follows = {path for path, source in told.items() if "derived: " in source}
    if chip.stack is not None:
        assert {"memory.bandwidth", "memory.capacity"} <= follows
        assert told["memory.bandwidth"].startswith("derived: connected layers")
    if chip.compute.peak_cores is not None:
        assert {f"compute.matrix_rate.{k}" for k in chip.compute.matrix_rate} <= follows
        # what was only scaled still says where it was stated
        assert not told["compute.vector_rate"].startswith("derived")
    for path in follows:
        assert value_at(chip, path) == chip.sources[path].value and path in leaf_paths(chip)


def test_what_follows_may_not_be_stated_too_and_what_is_missing_is_named():
    for changes, words in (
        ({"memory.bandwidth": "1 TB/s"}, "memory.bandwidth follows from the stack"),
        ({"memory.capacity": "1 GB"}, "memory.capacity follows from the stack"),
        ({"cache.bandwidth": "1 TB/s"}, "cache.bandwidth follows DRAM's by cache.over_memory"),
        ({"energy.memory": "1 pJ/B"}, "energy.memory follows from energy.memory_array"),
    ):
        with pytest.raises(BadValue, match=words):
            st.chip("stack-ref", **changes)
    made, params, file = read_chip("h200")
    for path in ("memory.bandwidth", "memory.capacity", "cache.bandwidth", "energy.memory"):
        with pytest.raises(BadValue, match=f"h200.toml: {path} is missing"):
            finished(with_value(made, path, None), params, file, {})
    with pytest.raises(MissingQuantity, match=r"energy.memory_array needs a \[stack\]"):
        bare = with_value(with_value(made, "energy.memory", None), "energy.memory_array", 1e-11)
        finished(bare, params, file, {})


# ------------------------------------------------------------------------------------ heat on first use


@pytest.mark.parametrize("name", STACKED)
def test_heat_is_solved_when_it_is_first_read_and_only_then(name):
    chip = finished(*read_chip(name), {})
    assert held_unsolved(chip)
    st.system(chip)
    stated(chip), leaf_paths(chip), st.hardware.area(chip), st.hardware.cost(chip)
    assert held_unsolved(chip)
    found = chip.heat
    assert isinstance(found, ThermalModel) and chip.heat is found and not held_unsolved(chip)
    again = heat_of(chip.stack, chip.cooling, chip.package.die_area)
    assert leaves(again) == leaves(found)


def test_a_chip_that_cannot_be_built_is_refused_when_it_is_read():
    for changes, words in (
        ({"layers": 2.5}, "whole numbers"),
        ({"layers": 120}, "has room for"),
        ({"die_area": "900 mm2"}, "lid_side must be at least the side of the dies"),
        ({"source_depth": "1 mm"}, "less than a die is thick"),
    ):
        with pytest.raises(BadValue, match=words):
            st.chip("stack-ref", **changes)


def test_an_unsolved_chip_can_be_copied_pickled_and_replaced():
    chip = finished(*read_chip("stack-ref"), {"layers": 3})
    sent = pickle.loads(pickle.dumps(chip))
    assert held_unsolved(sent) and held_unsolved(chip)
    renamed = replace(chip, name="mine")
    for other in (sent, renamed, map_leaves(lambda v: v, chip)):
        assert leaves(other.heat) == leaves(chip.heat)
    assert replace(chip, heat=None).heat is None
    cold = replace(chip.heat, ambient=300.0)
    assert replace(chip, heat=cold).heat is cold
    with pytest.raises(AttributeError):
        chip.heat = None


def test_leaves_of_a_chip_hold_its_heat_for_arrays_and_compilers():
    many = st.chip("stack-ref", layers=np.array([2.0, 4.0]))
    assert any(np.shape(v) == (2,) for v in leaves(many.heat))
    jax = enable_jax()
    flat, tree = jax.tree_util.tree_flatten(many)
    again = jax.tree_util.tree_unflatten(tree, flat)
    assert isinstance(again, Chip) and len(leaves(again)) == len(leaves(many))
    for one, other in zip(leaves(again.heat), leaves(many.heat), strict=True):
        assert np.all(one == other)


def test_a_name_or_a_chip_is_a_chip():
    chip = st.chip("h200")
    assert as_chip(chip) is chip and as_chip("h200").name == "h200"
    assert as_chip("h200", **{"memory.bandwidth": 1e12}).memory.bandwidth == 1e12
    with pytest.raises(BadValue, match="change a chip's numbers where it is made"):
        as_chip(chip, clock=1e9)


def test_every_field_of_a_chip_is_of_its_file_or_derived():
    beside = {f.name for f in fields(Chip) if not f.metadata} - {"sources"}
    generated = {"networks"}  # of a chip that is generated with networks of its own
    assert beside - generated == {"heat", "cores_fit"} <= {row.path for row in DERIVATIONS}
