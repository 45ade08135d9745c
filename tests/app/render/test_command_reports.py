"""`--report` of the commands: a page that opens offline with the answer's own numbers, names as text."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_report import alone, figures, own_text

import strata as st
from strata.app.render import page as pages
from strata.app.render.prediction_report import prediction_report
from strata.app.render.search_figures import _spread
from strata.app.render.training import days_text

EVIL = "<script>alert(1)</script>"


def page_of(strata, tmp_path, *words):
    """What a command answers for machines, and the words of its page."""
    path = tmp_path / "new" / "report.html"
    got = strata(*words, "--json", "--report", path)
    assert got.code == 0, got.err
    page = path.read_text(encoding="utf-8")
    alone(page)
    assert "<h1>" in page and "Inputs, sources and assumptions" in page and "mark assumed" in page
    return json.loads(got.out), page


def values(page):
    return re.findall(r"<div class='value'>([^<]*)</div>", own_text(page))


def test_plan(strata, tmp_path):
    told, page = page_of(
        strata, tmp_path, "plan", "-m", "llama-3-8b", "-s", "2xh200", "--tpot", "20ms", "--top", "3"
    )
    best = told["plans"][0]
    assert values(page)[0] == best["question"]["plan"]
    assert f"{best['metrics']['tokens_per_s']:,.0f}" in values(page)
    assert all(p["question"]["plan"] in own_text(page) for p in told["plans"])
    assert "<script" not in page


def test_plan_of_a_phase(strata, tmp_path):
    asked = ("plan", "-m", "llama-3-8b", "-s", "2xh200", "--phase", "decode", "--batch", "8")
    told, page = page_of(strata, tmp_path, *asked)
    assert values(page)[0] == told["plans"][0]["question"]["plan"]
    assert "The best plan, closer" in page


def test_serving(strata, tmp_path):
    asked = ("serving", "-m", "llama-3-8b", "-s", "1xh200", "-i", "256", "-o", "64")
    told, page = page_of(strata, tmp_path, *asked, "--tpot", "20ms")
    first = told["plans"][0]
    assert values(page)[:2] == [first["plan"], f"{first['batch']:g}"]
    ttft, tpot, frontier = figures(page)
    assert [line["name"] for line in ttft] == ["mean", "95 % within"]
    assert [line["name"] for line in tpot] == ["mean", "limit"] and tpot[1]["y"] == [0.02, 0.02]
    assert tpot[0]["y"] == sorted(tpot[0]["y"])  # more load, longer
    assert len(frontier[-1]["x"]) == len(told["frontier"]["best"])
    _, page = page_of(strata, tmp_path, *asked, "--rate", "2")
    assert values(page)[0] == "2 requests/s"


def test_train(strata, tmp_path):
    asked = ("train", "-m", "llama-3-8b", "-s", "8xh100", "--tokens", "10B")
    told, page = page_of(strata, tmp_path, *asked, "--plan", "dp=8,zero=3", "--scale", "8,16")
    assert f"{told['mfu']:.1%}" in values(page) and days_text(told["days"]) in values(page)
    text = own_text(page)
    assert "Memory of a device" in text and "Where a step of" in text and "What a month loses" in text
    assert [line["name"] for line in figures(page)[1]] == ["strong", "weak"]
    assert "strong scaling: the same batch for all" in text


def test_train_tells_other_plans(strata, tmp_path):
    asked = ("train", "-m", "llama-3-8b", "-s", "8xh100", "--tokens", "10B", "--where", "pp == 1")
    told, page = page_of(strata, tmp_path, *asked, "--top", "2")
    assert all(p["plan"] in own_text(page) for p in told["search"]["plans"])
    assert "<script" not in page and "loss against the best" in page


def test_compare(strata, tmp_path):
    told, page = page_of(
        strata, tmp_path, "compare", "-m", "llama-3-8b", "-s", "1xh200", "1xh100", "-i", "256"
    )
    assert values(page)[0] == told["ranking"][0]
    assert "<tr class=best>" in page and "Why they differ" in page and "<script" not in page
    names = re.findall(r"<span class='name'>([^<]*)</span>", page)
    assert names[:2] == ["1xh200", "1xh100"]


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_pictures_for_papers_have_the_same_bytes_each_time(strata, tmp_path, suffix):
    starts = {".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}
    paths = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for path in paths:
        got = strata("fabric", "hgx-h200", "--picture", path)
        assert got.code == 0, got.err
    first, second = (path.read_bytes() for path in paths)
    assert first == second and first.startswith(starts[suffix])


def test_names_are_text(tmp_path):
    """A name that is markup stands in the page as the characters it has."""
    result = st.evaluate("1xh200", replace(st.model("llama-3-8b"), name=EVIL), st.decode(1.0, 128.0), "tp=1")
    page = prediction_report(result, tmp_path / "p.html").read_text(encoding="utf-8")
    assert EVIL not in page and "&lt;script&gt;alert(1)" in page


def test_every_part_escapes():
    figure = pages.plotly_graphs().Figure()
    figure.add_scatter(x=[1], y=[1], name=EVIL, text=[f"one<br>{EVIL}"])
    heat = pages.heat_html((EVIL, [EVIL]), (EVIL, [EVIL]), np.ones((1, 1)), [[EVIL]])
    parts = [
        pages.cards_html([(EVIL, EVIL, EVIL)]),
        pages.bars_html([(EVIL, 1.0, EVIL)]),
        pages.stacked_html([EVIL], {EVIL: [1.0]}, [EVIL], 1.0, says={EVIL: EVIL}),
        heat,
        pages.figure_html(figure, name=EVIL),
    ]
    page = pages.html_page(EVIL, parts, EVIL)
    assert EVIL not in page and "<script>alert" not in page
    ((line,),) = figures(page)
    assert line["text"] == ["one<br>&lt;script&gt;alert(1)&lt;/script&gt;"]


def test_a_heat_map_marks_the_best_and_what_is_out():
    cells = np.array([[1.0, 2.0], [np.nan, 4.0]])
    for more, best in ((True, "4"), (False, "1")):
        told = pages.heat_html(("x", "ab"), ("y", "cd"), cells, [["1", "2"], ["", "4"]], more=more)
        assert re.findall(r"class='best'[^>]*>(\d)", told) == [best]
        assert told.count("class='out'") == 1
    large = pages.heat_html(
        ("x", [str(i) for i in range(30)]), ("y", "ab"), np.ones((2, 30)), [[""] * 30] * 2
    )
    assert "class='figure'" in large


def test_the_frontier_is_not_squeezed_by_far_points():
    values = np.concatenate([np.linspace(1.0, 2.0, 99), [1e6]])
    axis = _spread(values, np.array([1.2, 1.8]))
    assert axis["range"][1] < 3 and "type" not in axis


def test_a_picture_takes_the_theme_and_can_be_saved():
    drawn = '<?xml version="1.0"?><svg width="10pt" height="5pt"><path style="fill: #ffffff"/><text style="fill: #333333">a</text></svg>'
    told = pages.picture_html(drawn)
    assert "fill: var(--raised)" in told and "fill: var(--ink)" in told and "10pt" not in told
    assert "download=" in told and "href='data:image/svg+xml" in told


def test_charts_of_the_page_stand_alone():
    """Reports carry the page's charts: that module may take nothing from another."""
    assert "import " not in (pages.STATIC / "charts.js").read_text(encoding="utf-8")
    assert Path(pages.STATIC / "strata.css").is_file()
