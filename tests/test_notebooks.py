"""Answers in notebooks: HTML that holds together, the same rows in every library, and a notebook that runs."""

import builtins
import importlib.util
import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import strata as st
from strata.base.errors import StrataError
from strata.base.rich_html import bar_html, rich_cards, scatter_svg, table_html
from strata.optimise.joint import map_program
from strata.search.run import search
from strata.simulate.step import simulate_step

DOCS = Path(__file__).parents[1] / "docs"


class Page(HTMLParser):
    """Elements that are open, what was seen, and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text += data


def checked(html):
    """A page that is whole, fetches nothing and runs nothing."""
    page = Page(html)
    assert not page.open
    names = {tag for tag, _ in page.seen}
    assert not names & {"script", "style", "link", "img", "iframe", "object"}
    for _, attributes in page.seen:
        assert not any(key.startswith("on") or key in ("src", "href", "id") for key in attributes)
    assert "nan" not in page.text.lower().split() and "http" not in html
    return page


@pytest.fixture(scope="module")
def answers():
    one = st.evaluate("8xh200", "llama-3-70b", st.decode(batch=64, context=2048), "tp=8")
    box = st.evaluate("8xh200", "llama-3-70b", st.decode(batch=2.0 ** np.arange(4), context=2048), "tp=8")
    out = st.evaluate("1xh200", "llama-3-70b", st.decode(batch=64, context=2048))
    trained = st.evaluate(
        "8x8xh200", "llama-3-70b", st.train(64, 4096), "tp=8,pp=4,dp=2,microbatches=8,zero=1"
    )
    swept = st.sweep("8xh200", "llama-3-70b", ["batch=1,8,64", "plan=tp=8"], phase="decode")
    found = search("next-node", ["tokens_per_s", "energy_per_token"], sampler="random", budget=500)
    mapped = map_program("gpt3-layer", "8xsn10", st.forward(1.0), plan="tp=8")
    return {
        "one": one,
        "box": box,
        "out": out,
        "program": st.evaluate("8xh200", "dlrm-mlperf", st.forward(batch=32768), "all=8"),
        "trained": trained,
        "simulated": simulate_step(trained, detail="stage"),
        "swept": swept,
        "found": found,
        "mapped": mapped,
    }


def test_every_answer_is_a_whole_page(answers):
    for name, answer in answers.items():
        page = checked(answer._repr_html_())
        assert page.text, name
        assert len(repr(answer)) < 400, name


def test_a_result_shows_its_numbers_and_where_time_goes(answers):
    page = checked(answers["one"]._repr_html_())
    for words in ("time per output token", "9.91 ms", "MFU", "memory a device"):
        assert words in page.text
    bars = [a for tag, a in page.seen if tag == "rect"]
    whole = sum(float(a["width"]) for a in bars)
    assert whole == pytest.approx(2000.0, rel=0.02)  # two bars of parts
    assert "details" in {tag for tag, _ in page.seen}
    assert "levers" in checked(answers["out"]._repr_html_()).text
    assert "best point" in checked(answers["box"]._repr_html_()).text


def test_a_frontier_and_a_mapping_are_drawn(answers):
    found = checked(answers["found"]._repr_html_())
    dots = [a for tag, a in found.seen if tag == "circle"]
    assert len(dots) == len(answers["found"].frontier) >= 2
    mapped = checked(answers["mapped"]._repr_html_())
    blocks = [a for tag, a in mapped.seen if tag == "rect"]
    assert len(blocks) == len(answers["mapped"].to_pandas())


def test_names_are_text(answers):
    bad = '<script>alert("x")</script>'
    for html in (
        rich_cards([(bad, bad, bad)]),
        bar_html(bad, {bad: 1.0, "b": 2.0}, "s"),
        table_html([bad], [[bad]], said=bad),
        scatter_svg([(1.0, 2.0, bad), (2.0, 3.0, bad)], bad, bad),
    ):
        checked(html)


def test_rows_are_the_same_in_every_library(answers):
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    for name in ("one", "box", "swept", "found", "simulated", "mapped"):
        answer = answers[name]
        frame, other, table = answer.to_pandas(), answer.to_polars(), answer.to_table()
        assert list(frame.columns) == other.columns == table.column_names, name
        assert len(frame) == other.height == table.num_rows > 0, name
        for column in frame.columns:
            if frame[column].dtype.kind == "f":
                np.testing.assert_array_equal(frame[column].to_numpy(), other[column].to_numpy())
    box = answers["box"].to_pandas()
    assert box["axis_0"].tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(box["tpot"], answers["box"].metrics.tpot)
    swept = answers["swept"].to_pandas()
    assert swept["batch"].tolist() == [1.0, 8.0, 64.0] and swept["fits"].all()
    np.testing.assert_array_equal(
        swept["tokens_per_s"], answers["swept"].metric_values("tokens_per_s").ravel()
    )
    found = answers["found"].to_pandas()
    assert found["tokens_per_s"][0] == answers["found"].best["metrics"]["tokens_per_s"]


def test_requests_of_a_simulated_service_are_rows():
    pytest.importorskip("pandas")
    sizes = {"input": st.serving.Lengths(mean=512), "output": st.serving.Lengths(mean=32)}
    load = st.serving.OpenLoad(rate=2.0, count=50, seed=1, **sizes)
    run = st.simulate("8xh200", "llama-3-70b", load, "tp=8", "vllm", keep=True)
    frame = run.to_pandas()
    assert len(frame) == len(list(run.rows())) > 0 and {"ttft", "tpot", "arrival"} <= set(frame.columns)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_library_that_is_missing_is_a_line(answers, monkeypatch, library):
    import sys

    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == library:
            raise ImportError(f"No module named '{library}'", name=library)
        return real(name, *args, **kwargs)

    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setattr(builtins, "__import__", without)
    ask = {"pandas": "to_pandas", "polars": "to_polars", "pyarrow": "to_table"}[library]
    with pytest.raises(StrataError, match=rf"needs {library}: pip install 'strata\[") as caught:
        getattr(answers["one"], ask)()
    assert "\n" not in str(caught.value)


def script():
    spec = importlib.util.spec_from_file_location("notebook", DOCS / "scripts" / "notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_notebook_of_the_docs_is_that_of_its_script_and_was_executed():
    kept = json.loads((DOCS / "notebooks" / "explore.ipynb").read_text())["cells"]
    assert [(c["cell_type"], "".join(c["source"])) for c in kept] == list(script().CELLS)
    for cell in kept:
        if cell["cell_type"] == "code":
            assert cell["execution_count"] is not None
            assert all(out["output_type"] == "execute_result" for out in cell["outputs"])
            for out in cell["outputs"]:
                shown = "".join(out["data"]["text/html"])
                assert "<script" not in shown


def test_its_cells_still_run():
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    names = {}
    for kind, text in script().CELLS:
        if kind == "code":
            exec(compile(text, "explore.ipynb", "exec"), names)
    assert names["r"].fits and len(names["frame"]) == 27
