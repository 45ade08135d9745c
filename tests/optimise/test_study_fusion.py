"""Fusion as a run of a study: axes, points of a table, what follows, what was kept, and DFModel's logs."""

import shutil

import numpy as np
import pytest

from dfmodel.study_fusion import run_fusion
from strata import studies
from strata.base.errors import StrataError

LAYER = {
    "program": "dfmodel-gpt-forward",
    "chip": "dfmodel-sn10",
    "tp": 8,
    "link": "25 GB/s",
    "layers": 96,
    "batch": 2304,
}
BOTH = {"kernel by kernel": {"partitions": "kernels"}, "fused": {}}


def entry_of(study, name):
    table = studies.study(study).table
    return next(dict(run) for run in table["run"] if run["name"] == name)


def folder_of(study):
    return studies.study(study).folder


def test_axes_and_columns(tmp_path):
    entry = {
        "name": "run",
        "fusion": LAYER,
        "mappings": BOTH,
        "vary": {"sram": ["200 MB", "320 MB"], "overlap": ["all", "none"]},
    }
    found = run_fusion(entry, "study", tmp_path)
    assert found["axes"] == ["mapping", "sram", "overlap"] and found["sram"].tolist() == [200e6, 320e6]
    assert found["time"].shape == (2, 2, 2) and found["overlap"].tolist() == ["all", "none"]
    assert np.all(found["speedup"][0] == 1.0) and np.all(found["speedup"][1] > 1.0)
    assert np.all(found["optimal"][1]) and not np.any(found["optimal"][0])
    np.testing.assert_allclose(np.nansum(found["part_time"], -1), found["interval"], rtol=1e-12)
    sums = found["compute"] + found["memory"] + found["network"]
    np.testing.assert_allclose(found["interval"][..., 1], sums[..., 1], rtol=1e-12)
    assert found["kernels"][1, 1, 0].count("|") == found["partitions"][1, 1, 0] - 1
    np.testing.assert_allclose(found["rate"], found["utilisation"] * found["peak"])


def test_what_follows_and_what_was_kept(tmp_path):
    entry = {
        "name": "run",
        "keep": True,
        "fusion": LAYER | {"tiles": [8, 16]},
        "mappings": BOTH,
        "vary": {"share": [0.25, 0.5]},
        "let": {"cores": "640 * share", "sram": "640e6 * (1 - share)"},
    }
    found = run_fusion(entry, "study", tmp_path)
    assert found["peak"][0].tolist() == [76.8e12, 153.6e12]
    again = run_fusion(entry, "study", tmp_path, known=found["kept"])
    np.testing.assert_array_equal(again["time"], found["time"])
    np.testing.assert_array_equal(again["optimal"], found["optimal"])
    more = entry | {"vary": {"share": [0.25, 0.5, 0.75]}}
    with pytest.raises(StrataError, match="another number of mappings"):
        run_fusion(more, "study", tmp_path, known=found["kept"])


def test_points_of_a_table_and_what_does_not_fit(tmp_path):
    (tmp_path / "points.csv").write_text("# from nowhere\nroom,counts\n320e6,8\n1e6,\n", encoding="utf-8")
    entry = {
        "name": "run",
        "fusion": LAYER,
        "mappings": {"one": {"partitions": "one"}, "best": {}},
        "points": "points.csv",
        "let": {"sram": "room", "tiles": "counts"},
    }
    found = run_fusion(entry, "study", tmp_path)
    assert found["axes"] == ["mapping", "line"] and found["room"].tolist() == [320e6, 1e6]
    assert found["tiles"][1, 0] == 8 and found["fits"][:, 0].tolist() == [False, True]
    assert np.isnan(found["rate"][0, 0]) and found["speedup"][0, 0] == 0.0
    with pytest.raises(StrataError, match="points or vary"):
        run_fusion(entry | {"vary": {"tp": [1]}}, "study", tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fusion": {"program": "dfmodel-gpt-forward"}}, "needs a program and a chip"),
        ({"fusion": LAYER | {"colour": 1}}, "unknown key"),
        ({"fusion": LAYER | {"tiles": "many"}}, "powers, lengths"),
        ({"mappings": {"mine": {"partitions": [["Q"]]}}}, "must be in one partition"),
        ({"points": "none.csv"}, "no such table"),
        ({"sorted": True}, "unknown key"),
    ],
)
def test_bad_runs_are_told_in_one_line(change, said, tmp_path):
    with pytest.raises(StrataError, match=said):
        run_fusion({"name": "run", "fusion": LAYER} | change, "study", tmp_path)


def test_dfmodel_reference_nine_memory_systems():
    """Figure 19: kernel by kernel within 3 % at its tiles, fused equal where its solver finished."""
    folder = folder_of("dfmodel-memory")
    apart = run_fusion(entry_of("dfmodel-memory", "as_run"), "study", folder)
    error = 1e3 * apart["interval"][0] / apart["kbk_ms"] - 1
    assert np.abs(error).max() < 0.012 and np.all(error < 0)
    fused = run_fusion(entry_of("dfmodel-memory", "as_run_fused"), "study", folder)
    ratio = fused["df_ms"] / (1e3 * fused["interval"][0])
    assert np.sum(np.abs(ratio - 1) < 2e-4) == 4 and np.all(ratio > 1 - 2e-4) and np.all(fused["optimal"])


def test_dfmodel_reference_3d_memory_as_run():
    """Figure 22 at its tiles: 15 points, eleven within 1.5 %, none more than 1 % slower."""
    found = run_fusion(entry_of("dfmodel-3d", "as_run"), "study", folder_of("dfmodel-3d"))
    error = 1e3 * found["interval"][0] / found["ms"] - 1
    assert len(error) == 15 and np.sum(np.abs(error) < 0.015) == 11
    assert error.max() < 0.01 and error.min() > -0.08


def test_dfmodel_reference_mappings_without_overlap():
    """Table VI's runs without overlap: ours at most what was logged, kernel by kernel equal."""
    entry = entry_of("dfmodel-table6", "table") | {"vary": {"overlap": ["none"]}}
    found = 1e3 * run_fusion(entry, "study", folder_of("dfmodel-table6"))["time"][:, 0]
    logged = {0: 26.43857408, 1: 10.94320128, 2: 10.01652224, 4: 15.39833856 / 2}
    assert found[0] == pytest.approx(logged[0], rel=1e-9)
    assert all(found[i] <= time for i, time in logged.items() if i)


def test_more_memory_is_never_slower_in_a_study(tmp_path):
    sizes = {"sram": [1e8, 2e8, 4e8], "dram_bandwidth": [1e11, 3e11]}
    found = run_fusion({"name": "run", "fusion": LAYER, "mappings": BOTH, "vary": sizes}, "study", tmp_path)
    assert np.all(np.diff(found["time"][1], axis=0) <= 1e-15)
    assert np.all(np.diff(found["time"], axis=2) <= 1e-15)


def test_a_study_with_a_roofline_is_drawn(tmp_path):
    from strata.app.render.study import draw_study

    made = tmp_path / "mappings"
    made.mkdir()
    text = """
title = "two mappings"
paper = "nobody"
[[run]]
name = "table"
fusion = { program = "dfmodel-gpt-forward", chip = "dfmodel-sn10", tp = 8, tiles = [8] }
mappings = { "kernel by kernel" = { partitions = "kernels" }, "fused" = {} }
[[claim]]
id = "faster"
says = "fusion is faster"
ours = "table.speedup[1]"
holds = "ours > 1"
[[picture]]
file = "roofline.svg"
mappings = "table.mapping"
y = "table.rate"
memory = "table.memory_intensity"
network = "table.network_intensity"
roofs = { "DDR" = 100e9, "PCIe" = 25e9 }
limit = 307.2e12
"""
    (made / "study.toml").write_text(text, encoding="utf-8")
    outcome = studies.run_study(made)
    assert outcome.claims[0]["holds"]
    drawn = draw_study(outcome, tmp_path)[0].read_text(encoding="utf-8")
    assert "kernel by kernel" in drawn and "PCIe 25 GB/s" in drawn and "peak 307 TFLOP/s" in drawn
    broken = text.replace('roofs = { "DDR" = 100e9, "PCIe" = 25e9 }', 'roofs = { "DDR" = 100e9 }')
    shutil.rmtree(made)
    made.mkdir()
    (made / "study.toml").write_text(broken, encoding="utf-8")
    with pytest.raises(StrataError, match="those of memory and network"):
        draw_study(studies.run_study(made), tmp_path)
