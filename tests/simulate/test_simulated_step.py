"""Simulated steps: equal to the evaluation where nothing runs beside anything, and accounted for where not."""

import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import strata as st
from strata.base.errors import BadValue, StrataError, UnknownName
from strata.pricing.pipeline_schedules import SCHEDULES
from strata.simulate.gantt import gantt_page, tracks_of
from strata.simulate.step import passes_of, simulate_schedules, simulate_step

TRAINED = (
    "8x8xh200",
    "llama-3-70b",
    st.train(batch=64, length=4096),
    "tp=8,pp=4,dp=2,microbatches=16,zero=1",
)
UNPIPED = [
    ("8xh200", "llama-3-70b", st.decode(batch=64, context=2048), "tp=8"),
    ("8xh200", "llama-3-70b", st.prefill(batch=4, length=2048), "tp=8"),
    ("16xh200", "deepseek-v3", st.decode(batch=64, context=2048), "tp=8,dp=2,ep=16"),
    ("8xh100", "llama-3-8b", st.train(batch=8, length=2048), "tp=8"),
    ("8xh100", "llama-3-8b", st.train(batch=16, length=2048), "dp=8,zero=3"),
    ("8xh100", "llama-3-8b", st.train(batch=16, length=2048), "tp=2,dp=4,microbatches=4,recompute=full"),
]


@pytest.fixture(scope="module")
def trained():
    return st.evaluate(*TRAINED)


@pytest.mark.parametrize("detail", ["op", "block", "stage"])
@pytest.mark.parametrize("case", UNPIPED, ids=lambda c: f"{c[1]}-{c[2].phase}-{c[3]}")
def test_without_a_pipeline_a_serial_step_is_the_evaluations(case, detail):
    result = st.evaluate(*case)
    found = simulate_step(result, serial=True, detail=detail)
    assert found.time == pytest.approx(float(result.steps[-1].time), rel=1e-9)


@pytest.mark.parametrize("plan", ["tp=8,pp=4,dp=2,microbatches=16", "tp=4,pp=8,dp=2,microbatches=16"])
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zero-bubble", "dualpipe"])
def test_a_plans_schedule_is_evaluated_as_it_is_simulated(plan, name):
    """The evaluation is the closed form of the plan's own schedule, and the events are near it."""
    asked = f"{plan},schedule={name}"
    result = st.evaluate("8x8xh200", "llama-3-70b", st.train(batch=64, length=4096), asked)
    found = simulate_step(result, detail="stage")
    assert found.schedule == name
    assert found.closed_form == pytest.approx(found.step_time, rel=1e-9)
    assert (
        abs(dict(found.why)["passes as events"])
        < {"dualpipe": 0.06, "zero-bubble": 0.03}.get(name, 0.01) * found.time
    )


def test_a_plan_with_virtual_stages_is_interleaved():
    plan = "tp=8,pp=4,dp=2,microbatches=16,virtual_stages=2"
    result = st.evaluate("8x8xh200", "llama-3-70b", st.train(batch=64, length=4096), plan)
    found = simulate_step(result, detail="stage")
    assert found.schedule == "interleaved"
    assert found.closed_form == pytest.approx(float(result.steps[-1].time), rel=1e-9)


@pytest.mark.parametrize("serial", [True, False])
@pytest.mark.parametrize("name", SCHEDULES)
def test_why_adds_up(trained, name, serial):
    if name == "dualpipe":
        trained = st.evaluate(*TRAINED[:3], "tp=8,pp=4,dp=2,microbatches=32,zero=1")
    found = simulate_step(trained, name, serial=serial, detail="stage")
    assert found.step_time + sum(s for _, s in found.why) == pytest.approx(found.time, rel=1e-9)
    if serial:
        assert found.why[-1][1] == pytest.approx(0.0, abs=1e-9 * found.time)


def test_detail_does_not_move_a_serial_step(trained):
    times = [simulate_step(trained, serial=True, detail=d).time for d in ("block", "stage")]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


def test_the_stage_without_a_head_waits(trained):
    used = simulate_step(trained, detail="stage").utilisation
    assert used["stage 3"] > used["stage 1"]
    assert all(0.0 <= v <= 1.0 for v in used.values())


def test_sums_of_gradients_run_beside_the_last_backward_pass(trained):
    found = simulate_step(trained, detail="block")
    sums = [t for t in found.events.tasks if t.task.name.endswith(" sum")]
    whole = passes_of(trained).optimiser[1] * found.stages
    assert sum(t.task.duration for t in sums) == pytest.approx(whole, rel=1e-6)
    update = found.events.by_name["update 0"]
    assert max(t.end for t in sums) <= update.start
    assert min(t.start for t in sums) < found.events.by_name["D15.0"].start


def test_decoding_through_a_pipeline_is_a_cycle():
    result = st.evaluate("8xh200", "llama-3-70b", st.decode(batch=64, context=2048), "tp=4,pp=2")
    found = simulate_step(result, detail="stage")
    assert found.schedule == "forward"
    assert found.time == pytest.approx(found.step_time, rel=0.02) and found.time < found.step_time


def test_schedules_side_by_side(trained):
    found = simulate_schedules(trained)
    assert list(found) == list(SCHEDULES)
    assert found["zero-bubble"].time < found["1f1b"].time
    assert found["interleaved"].bubble < found["1f1b"].bubble
    odd = simulate_schedules(st.evaluate(*TRAINED[:3], "tp=8,pp=8,microbatches=9,zero=1,dp=1"))
    assert "even number" in odd["dualpipe"] and "multiples of the stages" in odd["interleaved"]


def test_a_case_is_as_good_as_its_result(trained):
    again = simulate_step(trained.case, detail="stage")
    assert again.time == simulate_step(trained, detail="stage").time


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.bars, self.titles, self.far = 0, 0, []

    def handle_starttag(self, tag, attrs):
        self.bars += tag == "rect"
        self.titles += tag == "title"
        self.far += [v for k, v in attrs if k in ("src", "href")]


def test_the_chart_is_one_file_with_a_bar_a_task(trained, tmp_path):
    found = simulate_step(trained, detail="stage")
    page = found.to_html(tmp_path / "made" / "gantt.html").read_text()
    seen = Tags()
    seen.feed(page)
    shown = [t for t in found.events.tasks if t.end > t.start]
    assert seen.bars == len(shown) and seen.titles == len(shown) + 1 and not seen.far
    assert page == gantt_page(found.events, f"{found.title}, {found.schedule}")
    lines = tracks_of(found.events)
    assert lines[:4] == [f"stage {i}" for i in range(4)] and lines[4] == "link 0>1"


def test_the_picture_of_the_docs_is_up_to_date(trained, tmp_path):
    page = Path(__file__).parents[2] / "docs" / "simulation" / "zero-bubble.svg"
    made = simulate_step(trained, "zero-bubble", detail="stage").to_svg(tmp_path / "a.svg")
    assert made.read_text() == page.read_text()


def test_the_trace_has_a_track_a_stage_and_link(trained, tmp_path):
    found = simulate_step(trained, detail="stage")
    rows = json.loads(found.to_perfetto(tmp_path / "t.json").read_text())["traceEvents"]
    names = {r["args"]["name"] for r in rows if r["name"] == "thread_name"}
    assert names == set(tracks_of(found.events))
    assert max(r["ts"] + r["dur"] for r in rows if r["ph"] == "X") == pytest.approx(found.time * 1e6)


def test_what_cannot_be_simulated_is_said_in_a_line(trained):
    box = st.evaluate("8xh200", "llama-3-8b", st.decode(batch=np.array([1.0, 2.0]), context=1024), "tp=8")
    with pytest.raises(BadValue, match="one point"):
        simulate_step(box)
    with pytest.raises(UnknownName, match="nearest: gpipe"):
        simulate_step(trained, "gpip")
    with pytest.raises(UnknownName, match="detail"):
        simulate_step(trained, detail="ops")
    with pytest.raises(BadValue, match="backward passes"):
        simulate_step(st.evaluate(*UNPIPED[0]), "1f1b")
    with pytest.raises(StrataError, match="layer for each chunk"):
        plan = "pp=8,tp=8,microbatches=8,virtual_stages=2"
        simulate_step(st.evaluate("8x8xh200", "llama-3-8b", TRAINED[2], plan.replace("=2", "=5")))
