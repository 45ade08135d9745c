"""`strata mapping`: the table, JSON, picture and one line for what is typed wrong."""

import json

import pytest

from strata.app.cli import run_command

MESH = ["mapping", "--mesh", "tp=4,dp=2,pp=2:chain"]


def test_the_table_marks_the_best_order(capsys):
    assert run_command([*MESH, "--package", "2x2", "--packages", "4"]) == 0
    said = capsys.readouterr().out
    assert "tp 4 (ring) x dp 2 (ring) x pp 2 (chain) on 4 packages of 2 x 2" in said
    assert said.count(" *  ") == 1
    assert "the best leaves to an edge of" in said


def test_a_strategy_is_the_mesh_of_its_degrees(capsys):
    on = ["--package", "4x4", "--packages", "2", "--json"]
    assert run_command(["mapping", "RC-4-2-d2-p2", *on]) == 0
    by_strategy = json.loads(capsys.readouterr().out)
    assert run_command(["mapping", "--mesh", "kp1=4,kp2=2,dp=2,lp=2:chain", *on]) == 0
    assert by_strategy == json.loads(capsys.readouterr().out)


def test_json_has_every_order_with_its_places(capsys):
    words = [*MESH, "--fabric", "hgx-h200", "--sizes", "8,2", "--volumes", "tp=1GB,dp=1MB,pp=1kB", "--json"]
    assert run_command(words) == 0
    told = json.loads(capsys.readouterr().out)
    best, *others = told["mappings"]
    assert best["order"][0] == "tp"
    assert best["networks_used"]["tp"] == ["nvlink"]
    assert len(best["devices"]) == 16
    assert all(best["time_s"] <= other["time_s"] for other in others)


def test_the_picture_names_devices_and_dimensions(tmp_path, capsys):
    picture = tmp_path / "mapping.svg"
    assert run_command([*MESH, "--package", "2x2", "--packages", "4", "--svg", str(picture)]) == 0
    drawn = picture.read_text(encoding="utf-8")
    assert "devices carry (tp, dp, pp)" in drawn
    assert drawn.count(">3,1,1<") == 1
    assert run_command([*MESH, "--fabric", "torus-256", "--svg", str(picture)]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mesh", "tp4", "--package", "4x4"], "--mesh needs NAME=N or NAME=N:chain"),
        (["--mesh", "tp=4"], "--fabric NAME or --package WxW"),
        (["--mesh", "tp=4", "--package", "4x2"], "--package must be a square"),
        (["--mesh", "tp=64", "--package", "4x4"], "(shards=64, devices=16)"),
        (["--mesh", "tp=4", "--package", "4x4", "--volumes", "ep=1"], "--volumes needs NAME=BYTES of tp"),
        (["--package", "4x4"], "a strategy like RC-4-2-d8-p2 or --mesh"),
        (["--mesh", "tp=4:star", "--package", "4x4"], "one of ring, chain, full"),
    ],
)
def test_what_is_wrong_is_one_line(words, said, capsys):
    assert run_command(["mapping", *words]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
