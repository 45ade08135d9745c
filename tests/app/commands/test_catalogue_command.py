"""`strata list`, `strata show` and `strata schema`: every name loads, every number has a source."""

import json
from xml.etree import ElementTree

import pytest

import strata as st
from strata.app.render.catalogue import FILES, LISTED, SHOWN, catalogue
from strata.base.shipped import paper_data
from strata.base.units import parse
from strata.hardware.chip import Chip
from strata.hardware.short_chip import written_chip
from strata.hardware.transport import packets, transport
from strata.params import KINDS, data_folder, file_model, load_table, names

LLAMA = ("--model", "llama-3-70b", "--system", "8xh200", "--batch", "64")


def test_every_listed_name_loads(answer):
    found = answer("list", "--json")
    assert set(found) == set(LISTED)
    loaders = {
        "chips": st.chip,
        "models": st.model,
        "fabrics": st.fabric,
        "engines": st.engine,
        "systems": st.system,
        "transports": transport,
        "packets": packets,
    }
    for kind, load in loaders.items():
        assert found[kind]
        for entry in found[kind]:
            assert entry["title"]
            if entry["name"] != "COUNTxCHIP":
                load(entry["name"])


def of_a_paper(name, kind):
    return any((data / KINDS.get(kind, kind) / f"{name}.toml").exists() for data in paper_data())


@pytest.mark.parametrize("kind", [*LISTED, "chip"])
def test_list_prints_each_name(answer, kind):
    text, own = answer("list", kind, "--papers"), answer("list", kind)
    for entry in next(iter(catalogue(kind).values())):
        assert entry["name"] in text
        assert (f" {entry['name']} " in own) is not of_a_paper(entry["name"], kind)


SHOWABLE = [
    (kind, name)
    for kind in (
        *("chip", "fabric", "memory", "engine", "transport", "packets"),
        *("technology", "device", "link", "bonding", "packaging"),
    )
    for name in names(kind)
]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *SHOWABLE,
        ("economics", "default"),
        ("reliability", "default"),
        ("system", "4x8xh100"),
        ("model", "deepseek-v3"),
        ("model", "gpt3-1t"),
    ],
)
def test_show_gives_every_number_a_source(answer, kind, name):
    got = answer("show", kind, name, "--json")
    assert len(got["numbers"]) >= 4
    for path, entry in got["numbers"].items():
        assert len(entry["source"]) >= 8, path
        assert entry["shown"], path
    if kind in FILES and kind != "system":
        written = written_chip(Chip) if kind == "chip" else None
        table = load_table(kind, name, written=written)
        releases = table.pop("versions", [])
        assert sorted(v["version"] for v in got.get("versions", [])) == sorted(v["version"] for v in releases)
        for path, value in file_quantities(table).items():
            entry = got["numbers"][path]
            if "; scaled" not in entry["source"]:
                assert entry["value"] == pytest.approx(parse(value["value"], entry["unit"]))
            assert entry["source"].startswith(value["source"])  # a scaled one says so after it


def file_quantities(table, prefix=""):
    """Each quantity of a data file by its dotted path; memories of a die by their names."""
    found = {}
    named = isinstance(table, list) and prefix == "on_chip."
    for key, value in table.items() if isinstance(table, dict) else enumerate(table):
        key = value["name"] if named else key
        if isinstance(value, dict) and "value" in value:
            found[f"{prefix}{key}"] = value
        elif isinstance(value, (dict, list)):
            found |= file_quantities(value, f"{prefix}{key}.")
    return found


def test_show_prints_numbers_sources_and_marks_what_is_assumed(answer):
    text = answer("show", "chip", "h200")
    flat = " ".join(text.split())
    for entry in answer("show", "chip", "h200", "--json")["numbers"].values():
        assert entry["shown"] in flat
    assert " assumed assumed:" in flat
    assert "own: stated for this very thing" in flat
    assert max(map(len, text.splitlines())) <= 140


@pytest.mark.parametrize("kind", FILES)
def test_schema_describes_the_shipped_files(answer, kind):
    schema = json.loads(answer("schema", kind))
    model = file_model(FILES[kind])
    added = {"$comment", "examples"} if kind == "chip" else set()
    assert {k: v for k, v in schema.items() if k not in added} == json.loads(
        json.dumps(model.model_json_schema())
    )
    for name in names(kind):
        written = written_chip(Chip) if kind == "chip" else None
        table = load_table(kind, name, written=written)
        if "generated" in table:  # what the file leaves out is generated
            assert set(table) <= set(schema["properties"])
            continue
        if kind == "template":
            table.pop("chip", None)  # laid over its kind, not a part of the record
        model.model_validate(table)
        assert set(schema["required"]) <= set(table) <= set(schema["properties"])


def test_the_schema_of_chips_tells_of_the_short_form_and_its_example_is_one(answer, tmp_path):
    schema = json.loads(answer("schema", "chip"))
    assert "like" in schema["$comment"] and "tdp is energy.power_limit" in schema["$comment"]
    file = tmp_path / "brief.toml"
    file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in schema["examples"][0].items()))
    assert st.chip(str(file)).memory.bandwidth == 8e12


def test_schema_of_models_describes_the_shipped_configs(answer):
    schema = json.loads(answer("schema", "model"))
    for name in names("models"):
        config = json.loads((data_folder("models") / f"{name}.json").read_text())
        assert config["model_type"] in schema["properties"]["model_type"]["enum"], name
        for key, value in (config | config.get("text_config", {})).items():
            limits = schema["properties"].get(key, {})
            if "minimum" in limits and value is not None:
                assert limits["minimum"] <= value <= limits["maximum"], (name, key)


def test_things_are_shown_as_they_are_listed(answer):
    """What `strata list` calls them is understood by `show` and `schema` too."""
    listed = answer("list", "--json")
    for kind in set(listed) - {"precisions"}:
        name = listed[kind][0]["name"]
        assert answer("show", kind, name if "COUNT" not in name else "8xh100", "--json")["numbers"], kind
    for called in ("recipes", "recipe", "post_training", "post-training"):
        assert answer("show", called, "grpo", "--json")["name"] == "grpo"
        assert answer("schema", called) == answer("schema", "recipe")
        assert answer("list", called, "--json").keys() == {"recipes"}


def test_every_kind_is_shown_and_described():
    assert set(SHOWN) == {
        "chip",
        "fabric",
        "transport",
        "packets",
        "memory",
        "engine",
        "economics",
        "reliability",
        "system",
        "model",
        "program",
        "space",
        "technology",
        "device",
        "link",
        "bonding",
        "packaging",
        "template",
        "budget",
        "recipe",
    }


@pytest.mark.parametrize("name", names("programs"))
def test_programs_are_listed_and_shown_with_their_sources(answer, name):
    listed = answer("list", "programs", "--papers", "--json")["programs"]
    assert name in [entry["name"] for entry in listed] and all(entry["title"] for entry in listed)
    shown = answer("show", "program", name, "--json")
    assert "--plan" in shown["note"]
    assert all(len(entry["source"]) > 20 for entry in shown["numbers"].values())
    assert name in answer("show", "program", name)


@pytest.mark.parametrize("kind", ["technologies", "devices", "links"])
def test_pictures_of_technology(answer, tmp_path, kind):
    first, second = tmp_path / "new" / "one.svg", tmp_path / "two.svg"
    for path in (first, second):
        answer("list", kind, "--svg", path)
    assert first.read_bytes() == second.read_bytes()
    text = first.read_text()
    assert ElementTree.fromstring(text).tag.endswith("svg") and "nan" not in text
    shown = ("n16", "a14", "SRAM cell of a bit") if kind == "technologies" else ("hbm4e", "ucie-advanced")
    assert all(word in text for word in shown)


def test_no_picture_of_what_has_none(strata, tmp_path):
    got = strata("list", "chips", "--svg", tmp_path / "no.svg")
    assert got.code == 2 and "--svg draws technologies, devices or links, but got 'chips'" in got.err


def test_memories_of_a_node_are_shown_by_name(answer):
    numbers = answer("show", "technology", "n5", "--json")["numbers"]
    assert numbers["on_chip.sram-dense.port_width"]["value"] == 64.0
    assert (
        "follows: bumps of si-if"
        in answer("show", "link", "siif", "--json")["numbers"]["lanes_per_edge"]["source"]
    )


def test_show_model_lists_keys_that_were_not_read_and_counts_the_vision_tower(answer, tmp_path):
    shown = answer("show", "model", "google/gemma-3-27b-it", "--json")
    assert shown["family"] == "gemma3_text" and shown["unread"] == []
    assert shown["numbers"]["tower_parameters"]["value"] == 416_866_032  # SigLIP of Gemma 3
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(
            {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
            | {"intermediate_size": 128, "vocab_size": 100, "strange_heads": 7}
        )
    )
    assert answer("show", "model", str(path), "--json")["unread"] == ["strange_heads"]
    assert "not read from the config: strange_heads" in answer("show", "model", str(path))
    assert "strange_heads" in answer("predict", "-m", str(path), "-s", "1xh200")
