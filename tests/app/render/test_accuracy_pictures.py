"""Pictures of accuracy, and the page that shows them."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from test_docs import script

from strata.app.cli import run_command
from strata.app.render.accuracy_pictures import draw_accuracy, picture_name, short_groups
from strata.base.errors import StrataError
from strata.validation.accuracy.headline import HELD_OUT
from strata.validation.fit.table import is_fitted
from strata.validation.readers.tables import matches

ROOT = Path(__file__).resolve().parents[3]
PAGE = script("accuracy_page")
OUTCOME = json.loads((ROOT / "validation" / "accuracy.json").read_text(encoding="utf-8"))


def some_points(count=60):
    rng = np.random.default_rng(0)
    measured, off = np.exp(rng.uniform(-12, -4, count)), np.exp(rng.normal(0, 0.1, count))
    made = [
        {
            "file": "h200/gemm.csv",
            "row": i,
            "group": "bf16" if i % 2 else "fp8",
            "measured": m,
            "predicted": m * o,
            "headline": True,
        }
        for i, (m, o) in enumerate(zip(measured, off, strict=True))
    ]
    extra = {"power/idle": (127.0, 130.0), "clock/idle": (1.98e9, 1.9e9), "power/failed": (500.0, 0.0)}
    made += [
        {
            "file": "h200/power.csv",
            "row": 2,
            "group": g,
            "measured": m,
            "predicted": p,
            "headline": "power" in g,
        }
        for g, (m, p) in extra.items()
    ]
    return made


def test_every_file_gets_a_picture_and_there_is_one_of_all(tmp_path):
    written = draw_accuracy(some_points(), tmp_path)
    assert sorted(p.name for p in written) == ["h200-gemm.svg", "h200-power.svg", "overview.svg"]
    text = (tmp_path / "h200-gemm.svg").read_text()
    assert "h200/gemm.csv: 60 points, MAPE" in text and "bf16" in text and "10 µs" in text
    power = (tmp_path / "h200-power.svg").read_text()
    # watts and hertz do not share an axis
    assert "power: 1 points" in power and "clock: 1 points" in power and "GHz" in power
    overview = (tmp_path / "overview.svg").read_text()
    # (2.4 % + 100 % for the failed point) / 2, as in the table
    assert "h200/power.csv" in overview and "51.2%" in overview


def test_the_same_points_give_the_same_bytes(tmp_path):
    many = some_points(700)  # drawn as pixels
    for name in ("a", "b"):
        draw_accuracy(many, tmp_path / name, lambda file: file == "h200/gemm.csv")
    assert (tmp_path / "a" / "h200-gemm.svg").read_bytes() == (tmp_path / "b" / "h200-gemm.svg").read_bytes()
    assert not (tmp_path / "a" / "h200-power.svg").exists()
    assert "data:image/png;base64" in (tmp_path / "a" / "h200-gemm.svg").read_text()


def test_names_of_groups_are_cut_until_colours_suffice():
    assert short_groups(["a/x", "a/y"]) == ["a/x", "a/y"]
    assert set(short_groups([f"s{i % 3}/d{i % 4}/p{i}" for i in range(100)])) == {"s0", "s1", "s2"}


def test_the_command_draws_them(tmp_path, capsys):
    (tmp_path / "mine" / "h200").mkdir(parents=True)
    (tmp_path / "mine" / "h200" / "gemm.csv").write_text(
        "name,dtype,m,n,k,median_s,min_s,max_s\na,bf16,4096,4096,4096,2.1e-4,2e-4,2.2e-4\n"
    )
    assert (
        run_command(["validate", "--data", str(tmp_path / "mine"), "--pictures", str(tmp_path / "pictures")])
        == 0
    )
    assert "pictures: " in capsys.readouterr().err
    assert {p.name for p in (tmp_path / "pictures").iterdir()} == {"h200-gemm.svg", "overview.svg"}


def test_without_matplotlib_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(StrataError, match=r"a picture needs matplotlib: pip install 'strata\[plots\]'"):
        draw_accuracy(some_points(), tmp_path)


def test_the_page_shows_families_left_out_first_and_what_was_seen():
    page = PAGE.accuracy_page(OUTCOME)
    places = [page.index(head) for head in ("## On something new", "## Families left out", "## All files")]
    assert places == sorted(places)
    for entry in OUTCOME["files"]:
        mark = f" ({entry['seen']})" if entry["seen"] else ""
        assert f"| {entry['file']}{mark} |" in page
        assert (entry["seen"] == HELD_OUT) == is_fitted(entry["file"])
        if matches(entry["file"], *PAGE.PICTURED):
            assert (ROOT / "docs" / "accuracy" / f"{picture_name(entry['file'])}.svg").exists(), (
                "run: python docs/scripts/accuracy_page.py"
            )
    for one in OUTCOME["quantities"]:
        assert f"| {one['group']} | {one['record']} | `{one['path']}` |" in page


def test_pictures_under_version_control_are_small():
    sizes = {p.name: p.stat().st_size for p in (ROOT / "docs" / "accuracy").glob("*.svg")}
    assert sizes and max(sizes.values()) < 400_000 and sum(sizes.values()) < 3_000_000, sizes
