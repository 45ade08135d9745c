"""Data files: a value with a source each, exact keys, base files, overrides, and provenance that follows
them.
"""

import os
import tomllib
from dataclasses import dataclass

import numpy as np
import pytest

import strata as st
from strata.base.errors import BadFile, BadUnit, BadValue, MissingQuantity, UnknownName
from strata.params import (
    Param,
    build,
    files,
    leaf_paths,
    load_table,
    names,
    override,
    part,
    quantity,
    read_record,
    text,
)


@dataclass(frozen=True, eq=False)
class Tank:
    volume: float = quantity("B", "how much it holds")
    flow: float = quantity("B/s", "how fast it fills", optional=True)


@dataclass(frozen=True, eq=False)
class Plant:
    name: str = text("what it is called")
    left: Tank = part(Tank, "one tank")
    right: Tank = part(Tank, "another tank")
    kind: str = text("how it works", choices=("wet", "dry"), default="wet")


GOOD = """
name = "plant"
left = { volume = { value = "3 GB", source = "a book, p. 3" } }
[right]
volume = { value = "4 GB", source = "@book: p. 4" }
flow = { value = "5 MB/s", source = "assumed: a pump" }
[sources]
book = "The Book of Tanks (1999)"
"""


def written(folder, content, name="plant.toml"):
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def read(folder, content):
    return build(Plant, load_table("plant", written(folder, content)), "plant.toml")


def test_a_file_gives_plain_numbers_and_a_param_for_each(tmp_path):
    plant, params = read(tmp_path, GOOD)
    assert (plant.left.volume, plant.right.volume, plant.right.flow, plant.left.flow) == (3e9, 4e9, 5e6, None)
    assert params["right.volume"] == Param(4e9, "B", "The Book of Tanks (1999), p. 4")
    assert set(params) == {"left.volume", "right.volume", "right.flow"}
    assert params["right.flow"].assumed and not params["right.volume"].assumed
    assert str(params["left.volume"]) == "3 GB  [a book, p. 3]"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"a book, p. 3"', '"p. 3"', "source"),
        (', source = "a book, p. 3"', "", "missing key 'left.volume.source'"),
        ('value = "3 GB", ', "", "missing key 'left.volume.value'"),
        ("left = { volume", "left = { volumes", "nearest: volume"),
        ("left =", "leff =", "unknown key 'leff'; nearest: left"),
        ('name = "plant"', "", "missing key 'name'"),
        ('name = "plant"', "name = 3", "'name'"),
        ('name = "plant"', 'name = "plant"\nkind = "hot"', "must be one of wet, dry, but got 'hot'"),
        ("@book", "@bok", "source '@bok' is not under [sources]; there: book"),
        ("@book", "@", "not under [sources]"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path, old, new, said):
    with pytest.raises(BadFile) as error:
        read(tmp_path, GOOD.replace(old, new))
    assert said in str(error.value) and "plant.toml" in str(error.value) and "\n" not in str(error.value)


def test_a_duplicate_key_is_refused(tmp_path):
    with pytest.raises(BadFile, match="is not TOML"):
        read(tmp_path, 'name = "plant"\n' + GOOD)


def test_wrong_units_and_negative_values_name_their_path(tmp_path):
    with pytest.raises(BadUnit, match=r"plant.toml: left.volume is measured in B, but got '3 GB/s'"):
        read(tmp_path, GOOD.replace("3 GB", "3 GB/s"))
    with pytest.raises(BadUnit, match="needs its unit written out"):
        read(tmp_path, GOOD.replace('"3 GB"', "3"))
    with pytest.raises(BadValue, match=r"left\.volume must be at least 0, but got '-3 GB'"):
        read(tmp_path, GOOD.replace("3 GB", "-3 GB"))
    with pytest.raises(BadUnit):
        read(tmp_path, GOOD.replace("3 GB", "nan GB"))


def test_base_is_merged_under_a_file_with_its_sources(tmp_path):
    written(tmp_path, GOOD, "base.toml")
    plant, params = read(
        tmp_path,
        'base = "base.toml"\nname = "bigger"\n[left]\nvolume = { value = "9 GB", source = "another book" }\n',
    )
    assert (plant.name, plant.left.volume, plant.right.volume) == ("bigger", 9e9, 4e9)
    assert params["left.volume"].source == "another book"
    assert params["right.volume"].source == "The Book of Tanks (1999), p. 4"


def test_a_circle_of_bases_is_refused(tmp_path):
    written(tmp_path, 'base = "plant.toml"\n', "other.toml")
    with pytest.raises(BadFile, match="base files form a circle: plant -> other -> plant"):
        read(tmp_path, 'base = "other.toml"\n' + GOOD)


def test_missing_and_broken_files_are_named(tmp_path):
    with pytest.raises(BadFile, match=r"no chip file at .*absent\.toml"):
        st.chip(str(tmp_path / "absent.toml"))
    with pytest.raises(BadFile, match="is not TOML"):
        st.chip(str(written(tmp_path, "name = = 3")))
    with pytest.raises(BadFile, match=r"plant\.toml: missing key"):
        st.chip(str(written(tmp_path, 'name = "x"')))


@pytest.mark.parametrize("kind", ["chip", "fabric", "engine"])
def test_every_shipped_file_builds_and_its_name_is_its_own(kind):
    for name in names(kind):
        made = getattr(st, kind)(name)
        assert made.name == name
        assert all(len(p.source) >= 8 for p in made.sources.values())


@pytest.mark.parametrize("kind", ["chip", "fabric"])
def test_every_quantity_of_a_record_has_its_source(kind):
    for name in names(kind):
        made = getattr(st, kind)(name)
        held = {path for path in leaf_paths(made) if _value(made, path) is not None}
        assert held == set(made.sources), name


def _value(node, path):
    for key in path.split("."):
        node = (
            node[key]
            if isinstance(node, dict)
            else node[int(key)]
            if isinstance(node, tuple)
            else getattr(node, key)
        )
    return node


# ------------------------------------------------------------------------------------------------- overrides


def test_an_override_changes_one_quantity_and_its_source():
    base, made = st.chip("h200"), st.chip("h200", **{"memory.bandwidth": "6 TB/s"})
    assert (made.memory.bandwidth, made.sources["memory.bandwidth"].source) == (6e12, "given by the caller")
    assert base.sources["memory.bandwidth"].source.startswith("NVIDIA H200")
    assert [p for p in base.sources if made.sources[p] != base.sources[p]] == ["memory.bandwidth"]
    assert [p for p in leaf_paths(base) if _value(made, p) != _value(base, p)] == ["memory.bandwidth"]


def test_an_override_may_be_named_shortly_where_only_one_fits():
    assert st.chip("h200", cores=100).compute.cores == 100
    assert st.chip("h200", matrix_rate__bf16="500 TFLOP/s").compute.matrix_rate["bf16"] == 5e14
    assert st.chip("stack-ref", layers=np.arange(1.0, 4.0)).memory.capacity.tolist() == [1.5e9, 3e9, 4.5e9]


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        (
            {"bandwidth": 1e12},
            BadValue,
            "'bandwidth' names several chip quantities: cache.bandwidth, memory.bandwidth",
        ),
        ({"coers": 3}, UnknownName, "nearest: cores"),
        ({"memory.bandwith": 3}, UnknownName, "nearest: memory.bandwidth"),
        ({"memory.bandwidth": -1.0}, BadValue, "memory.bandwidth must be positive, but got -1"),
        ({"memory.bandwidth": float("nan")}, BadValue, "must be"),
        ({"memory.bandwidth": np.array([1e12, -1e12])}, BadValue, "must be"),
        ({"memory.bandwidth": "6 TB"}, BadUnit, "is measured in B/s"),
        ({"memory.bandwidth": None}, BadValue, "is a number, an array or text with a unit"),
        ({"cores": 0}, BadValue, "must be at least 1"),
        ({"memory.efficiency": 1.2}, BadValue, "at most 1"),
    ],
)
def test_a_wrong_override_is_refused_in_one_line(changes, error, said):
    with pytest.raises(error) as caught:
        st.chip("h200", **changes)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_fabric_override_means_the_innermost_dimension_or_a_named_one():
    made = st.fabric("hgx-h200", bandwidth="900 GB/s", **{"1.bandwidth": "100 GB/s"})
    assert [d.bandwidth for d in made.dimension] == [9e11, 1e11]
    outer = made.dimension[1].name
    assert st.fabric("hgx-h200", **{f"{outer}.latency": "1 us"}).dimension[1].latency == pytest.approx(1e-6)
    assert made.sources["dimension.0.bandwidth"].source == "given by the caller"
    with pytest.raises(UnknownName, match="no fabric quantity"):
        st.fabric("hgx-h200", bandwith=1.0)


def test_an_override_leaves_the_original_alone():
    base = st.chip("h200")
    made, noted = override(base, {"memory.bandwidth": 1e12}, "chip")
    assert (base.memory.bandwidth, made.memory.bandwidth, list(noted)) == (4.8e12, 1e12, ["memory.bandwidth"])


def test_a_needed_quantity_is_named_never_borrowed():
    with pytest.raises(MissingQuantity, match="chip sn10 has no fp64 matrix rate; it has: bf16"):
        st.evaluate("sn10", st.model("llama-3-8b", activations="fp64"), st.decode(1, 128))


# ------------------------------------------------------------------------------------------ what is kept


def aged(path, seconds=60.0):
    """A file as if it had been written some time ago; what is younger than a tick is not kept."""
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))
    return path


def test_a_file_is_read_once_until_it_changes(tmp_path, monkeypatch):
    parsed = []
    loads = tomllib.loads
    monkeypatch.setattr(tomllib, "loads", lambda text: parsed.append(1) or loads(text))
    path = aged(written(tmp_path, GOOD))
    first = read_record(Plant, "plant", path)
    assert read_record(Plant, "plant", path) is first and len(parsed) == 1
    aged(written(tmp_path, GOOD.replace("3 GB", "7 GB")), 30.0)
    assert read_record(Plant, "plant", path)[0].left.volume == 7e9 and len(parsed) == 2


def test_a_file_that_was_just_written_is_read_again(tmp_path):
    for size in range(1, 6):  # faster than the clock of the file system may tick
        path = written(tmp_path, GOOD.replace("3 GB", f"{size} GB"))
        assert read_record(Plant, "plant", path)[0].left.volume == size * 1e9


def test_a_base_that_changes_or_comes_to_be_is_noticed(tmp_path):
    base = aged(written(tmp_path, GOOD, "base.toml"))
    path = aged(written(tmp_path, 'base = "base.toml"\nkind = "dry"', "mine.toml"))
    assert read_record(Plant, "plant", path)[0].left.volume == 3e9
    aged(written(tmp_path, GOOD.replace("3 GB", "8 GB"), "base.toml"), 30.0)
    assert read_record(Plant, "plant", path)[0].left.volume == 8e9
    base.unlink()
    with pytest.raises(BadFile):
        read_record(Plant, "plant", path)


def test_a_table_is_the_callers_own():
    table = load_table("economics", "default")
    table["lifetime"]["value"] = "1 s"
    table.clear()
    assert load_table("economics", "default")["lifetime"]["value"] != "1 s"
    assert st.hardware.economics().lifetime > 1e6


def test_names_come_with_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "DATA", tmp_path)
    folder = tmp_path / "plants_of_a_test"
    folder.mkdir()
    (folder / "one.toml").write_text("")
    aged(folder)
    assert names("plants_of_a_test") == ["one"]
    (folder / "two.toml").write_text("")
    assert names("plants_of_a_test") == ["one", "two"]


def test_records_of_shipped_files_are_shared_and_changed_ones_are_not():
    assert st.chip("h200") is st.chip("h200") and st.hardware.economics() is st.hardware.economics()
    wider = st.chip("h200", **{"memory.bandwidth": "6 TB/s"})
    assert st.chip("h200").memory.bandwidth != wider.memory.bandwidth == 6e12
    assert st.fabric("hgx-h200", bandwidth=1e9) is not st.fabric("hgx-h200") is st.fabric("hgx-h200")


@pytest.mark.parametrize(("part", "other"), [("memory", "energy.memory"), ("cache", "energy.cache")])
def test_a_part_is_not_taken_for_a_quantity_of_its_name(part, other):
    """`memory=3` set the energy of DRAM to 3 J a byte."""
    with pytest.raises(BadValue, match=f"'{part}' is a part of a chip that holds .*{other}"):
        st.chip("h200", **{part: 3.0})
