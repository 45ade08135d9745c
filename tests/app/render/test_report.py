"""HTML reports: the right headings and numbers, nothing loaded from elsewhere, a line for every value of a
sweep.
"""

import html
import json
import re

import pytest

import strata as st
from strata.app.render.accuracy_pictures import accuracy_report
from strata.app.render.explanation import op_rows
from strata.app.render.prediction import headline_rows, metric_label
from strata.app.render.prediction_report import prediction_report
from strata.app.render.sweep import sweep_figure
from strata.search.sweep import sweep as run_sweep

ASKED = {
    "batch": 64.0,
    "input": 1024.0,
    "output": 1024.0,
    "phase": "serve",
    "plan": "tp=8",
    "engine": "ideal",
    "weights": "",
    "kv": "",
    "changes": [],
}


def own_text(page):
    """A page without its style and the plotting library it carries."""
    return re.sub(r"<(script|style).*?</\1>", "", page, flags=re.S)


def figures(page):
    """The data each chart draws, as JSON."""
    found = re.findall(r"<script type='application/json'>(.*?)</script>", page, flags=re.S)
    return [json.loads(text)["data"] for text in found]


def alone(page):
    """Nothing comes from the network: no script, style, picture or frame with an address but data of its own."""
    text = own_text(page)
    assert not re.search(r"<(script|link|img|iframe|object|embed)\b", text)
    assert all(link.startswith("data:") for link in re.findall(r"\s(?:src|href)\s*=\s*['\"]([^'\"#]+)", text))
    styles = "".join(re.findall(r"<style>(.*?)</style>", page, flags=re.S))
    assert "@import" not in styles and "url(" not in styles and "prefers-color-scheme: dark" in styles
    assert styles.count("--paper: #ffffff") == 2  # light on the screen, and always on paper
    assert "@media print" in styles and page.startswith("<!doctype html>") and page.count("<html") == 1


@pytest.fixture(scope="module")
def result():
    return st.evaluate("8xh200", "mixtral-8x7b", st.serve(64.0, 1024.0, 512.0), "tp=8")


def test_prediction_report(result, tmp_path):
    page = prediction_report(result, tmp_path / "new" / "p.html", ["a <note>"]).read_text(encoding="utf-8")
    alone(page)
    text = own_text(page)
    for heading in (
        "Strata prediction",
        "mixtral-8x7b on 8xh200, plan tp=8",
        "Where the last decode step (context 1536) goes",
        "What binds: ",
        "Memory of a device: ",
        "What 10 % more would buy",
        "Inputs, sources and assumptions",
    ):
        assert re.search(f"<h[12]>{re.escape(heading)}", text), heading
    for label, value, _ in headline_rows(result):
        assert f"<div class='label'>{label}</div><div class='value'>{value}</div>" in text
    assert "a &lt;note&gt;" in text
    assert "<script" not in page and len(page) < 300_000  # shown at once: nothing to be run
    names = re.findall(r"<span class='name'>([^<]*)</span>", text)
    ops = [f"{o['block']}.{o['op']}" for o in op_rows(result)[:16]]
    assert names[2 : 2 + len(ops)] == ops
    assert re.search(r"DRAM bandwidth</span>.*?\+\d", text, flags=re.S)
    assert html.escape(result.system.chip.sources["memory.bandwidth"].source) in text
    assert "<tr class=assumed>" in text and "<span class='mark assumed'>" in text


def test_prediction_report_of_the_command(strata, tmp_path):
    path = tmp_path / "p.html"
    got = strata("predict", "--model", "llama-3-8b", "--system", "1xh200", "--report", path)
    assert got.code == 0
    assert got.err == f"report: {path}\n"
    assert "the only legal plan" in own_text(path.read_text())


@pytest.mark.parametrize(
    ("vary", "lines"),
    [
        (["batch=1,8,64"], 1),
        (["batch=1,8,64", "fabric.bandwidth=100,200,400,900 GB/s"], 4),
        (["batch=8,64", "input=128,512", "output=16,32,64"], 6),
    ],
)
def test_sweep_picture_has_a_line_for_each_value(vary, lines):
    swept = run_sweep("8xh200", "llama-3-70b", vary, **ASKED, metric="tpot")
    figure = sweep_figure(swept)
    assert len(figure.data) == lines
    assert len({line.name for line in figure.data}) == lines
    assert [v for line in figure.data for v in line.y] == pytest.approx(
        swept.values.reshape(len(swept.axes[0].values), -1).T.ravel()
    )
    assert list(figure.data[0].x) == swept.axes[0].values.tolist()
    assert figure.layout.yaxis.title.text == metric_label("tpot")


def test_sweep_picture_leaves_gaps_where_nothing_fits():
    swept = run_sweep("8xh200", "llama-3.1-405b", ["chip.memory.capacity=40,80,160 GB"], **ASKED)
    (line,) = sweep_figure(swept).data
    assert list(line.y)[:2] == [None, None]
    assert line.y[2] > 0


def test_sweep_report(strata, tmp_path):
    path = tmp_path / "s.html"
    got = strata(
        "sweep",
        "--model",
        "llama-3-70b",
        "--system",
        "8xh200",
        "--plan",
        "tp=8",
        "--vary",
        "batch=1,64",
        "--vary",
        "chip.memory.bandwidth=2,8 TB/s",
        "--report",
        path,
    )
    assert got.code == 0
    page = path.read_text(encoding="utf-8")
    alone(page)
    text = own_text(page)
    assert "Strata sweep: tokens/s over batch and chip.memory.bandwidth" in text
    assert "The best point: batch 64, chip.memory.bandwidth 8 TB/s" in text
    assert "llama-3-70b on 8xh200, plan tp=8" in text
    assert [line["name"] for line in figures(page)[0]] == ["2 TB/s", "8 TB/s"]
    heat = re.search(r"<table class='heat'>.*?</table>", text, flags=re.S).group()
    assert len(re.findall("<td", heat)) == 4 and len(re.findall("<td class='best'", heat)) == 1
    assert page.index("</main>") < page.index("id='plotly'")  # the words stand before the library


def test_sweep_report_where_nothing_fits(strata, tmp_path):
    path = tmp_path / "s.html"
    got = strata(
        "sweep",
        "--model",
        "llama-3.1-405b",
        "--system",
        "1xrtx-4090",
        "--plan",
        "tp=1",
        "--vary",
        "batch=1,8",
        "--report",
        path,
    )
    assert got.code == 0
    text = own_text(path.read_text())
    assert "2 of 2 points are out: what a device holds must fit its memory" in text
    assert "The best point" not in text


def test_accuracy_report(tmp_path):
    figures_of = {
        "points": 3,
        "failed": 1,
        "mape": 0.4,
        "median": 0.1,
        "p90": 1.0,
        "worst": 1.0,
        "bias": -0.3,
        "weighted": 0.2,
    }
    outcome = {
        "files": [
            {"file": "h200/gemm.csv", **figures_of, "groups": {}},
            {"file": "x/empty.csv", **figures_of, "groups": {}},
        ],
        "not_yet": ["dram/a.csv"],
        "unknown": [],
    }
    rows = [
        ("bf16", 1e-3, 1.1e-3),
        ("bf16", 2e-3, 1.8e-3),
        ("fp8", 1e-3, 0.0),
        ("fp8", 1e-3, float("inf")),
        ("fp8", 4e-3, 4e-3),
    ]
    points = [
        {"file": "h200/gemm.csv", "row": i, "group": g, "measured": m, "predicted": p}
        for i, (g, m, p) in enumerate(rows)
    ]
    page = accuracy_report(outcome, points, tmp_path / "a.html").read_text(encoding="utf-8")
    alone(page)
    text = own_text(page)
    cells = "<td class=n>3</td><td class=n>1</td><td class=n>40.0%</td>"
    assert f"<td class=w>h200/gemm.csv</td>{cells}" in text
    assert "<div class='value'>10.0%</div>" in text
    assert "not predicted yet: dram/a.csv" in text
    (drawn,) = figures(page)
    assert [(line["name"], line["x"], line["y"]) for line in drawn] == [
        ("bf16", [1e-3, 2e-3], [1.1e-3, 1.8e-3]),
        ("fp8", [4e-3], [4e-3]),
        ("equal", [1e-3, 4e-3], [1e-3, 4e-3]),
    ]


def test_a_report_without_plotly_says_what_to_install(strata, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "plotly.graph_objects", None)
    asked = ("--model", "llama-3-8b", "--system", "1xh200", "--plan", "tp=1")
    got = strata("sweep", *asked, "--vary", "batch=1,2", "--report", tmp_path / "p.html")
    assert (got.code, got.err) == (
        2,
        "strata: a report with charts needs plotly: pip install 'strata[plots]'\n",
    )
    assert strata("predict", *asked, "--report", tmp_path / "p.html").code == 0  # bars need nothing
