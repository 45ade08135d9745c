"""Traces for Perfetto are what the trace event format says, and add up to the step."""

import json
from collections import defaultdict

import pytest

import strata as st
from strata.simulate.gantt import tracks_of
from strata.simulate.step import simulate_step

TRAINED = st.evaluate(
    "4x8xh200", "llama-3-70b", st.train(batch=32, length=4096), "tp=8,pp=4,dp=1,microbatches=8,zero=1"
)
DECODED = st.evaluate("8xh200", "llama-3-8b", st.decode(batch=64, context=2048), "tp=4,dp=2")


def traces(folder):
    for name, made in (
        ("ops", simulate_step(DECODED)),
        ("blocks", simulate_step(TRAINED, detail="block")),
        ("stages", simulate_step(TRAINED, "zero-bubble", detail="stage")),
        ("line", DECODED.timeline),
    ):
        yield name, made, json.loads(made.to_perfetto(folder / f"{name}.json").read_text())


def check(trace):
    """The laws of the format; raises where one is broken."""
    assert trace["displayTimeUnit"] == "ms"
    rows, last = trace["traceEvents"], 0.0
    processes = {r["pid"] for r in rows if r["name"] == "process_name"}
    threads = {(r["pid"], r["tid"]) for r in rows if r["name"] == "thread_name"}
    bars, open_flows, ends = defaultdict(list), {}, defaultdict(float)
    timed = [r for r in rows if r["ph"] != "M"]
    assert rows[: len(rows) - len(timed)] == [r for r in rows if r["ph"] == "M"]
    for r in timed:
        assert r["ts"] >= last and r["pid"] in processes, r
        last = r["ts"]
        if r["ph"] == "X":
            assert r["dur"] >= 0.0 and (r["pid"], r["tid"]) in threads and r["name"] and r["cat"]
            place = (r["pid"], r["tid"])
            assert r["ts"] >= ends[place] - 1e-6 * (1 + abs(r["ts"]))  # bars of a track do not cross
            ends[place] = r["ts"] + r["dur"]
            bars[place].append((r["ts"], r["ts"] + r["dur"]))
        elif r["ph"] == "C":
            assert all(isinstance(v, float) and v >= 0.0 for v in r["args"].values())
        elif r["ph"] == "s":
            assert r["id"] not in open_flows
            open_flows[r["id"]] = r
        else:
            assert r["ph"] == "f" and r["bp"] == "e" and open_flows.pop(r["id"])["ts"] <= r["ts"]
            assert any(a <= r["ts"] <= b for a, b in bars[r["pid"], r["tid"]] or [(r["ts"], r["ts"])])
    assert not open_flows
    return rows


def test_traces_keep_the_format(tmp_path):
    seen = {name: check(trace) for name, _, trace in traces(tmp_path)}
    kinds = {name: {r["ph"] for r in rows} for name, rows in seen.items()}
    assert kinds["blocks"] == {"M", "X", "C", "s", "f"}  # bars, counters and arrows of a pipeline
    assert kinds["ops"] == kinds["line"] == {"M", "X", "C"}
    assert kinds["stages"] == {"M", "X", "s", "f"}  # a whole pass does not know its work


def flowed(rows, name, end):
    """What a counter counts over time, for each process [unit x s]."""
    by_process = defaultdict(list)
    for r in rows:
        if r["ph"] == "C" and r["name"] == name:
            by_process[r["pid"]].append((r["ts"] * 1e-6, r["args"][name]))
    return {
        pid: sum(
            v * ((points[i + 1][0] if i + 1 < len(points) else end) - t) for i, (t, v) in enumerate(points)
        )
        for pid, points in by_process.items()
    }


def test_counters_add_up_to_the_work_of_the_step(tmp_path):
    rows = json.loads(DECODED.timeline.to_perfetto(tmp_path / "a.json").read_text())["traceEvents"]
    step, whole = DECODED.steps[-1], DECODED.timeline.time
    assert flowed(rows, "TFLOP/s", whole)[0] == pytest.approx(float(step.price.flop) / 1e12, rel=1e-4)
    assert flowed(rows, "DRAM GB/s", whole)[0] == pytest.approx(
        float(step.price.memory_bytes) / 1e9, rel=1e-4
    )
    drawn = flowed(rows, "power [W]", whole)[0] / whole
    assert drawn == pytest.approx(DECODED.metrics.device_power, rel=1e-3)


def test_stages_of_a_pipeline_compute_what_the_step_does(tmp_path):
    found = simulate_step(TRAINED, detail="block")
    rows = json.loads(found.to_perfetto(tmp_path / "a.json").read_text())["traceEvents"]
    each = flowed(rows, "TFLOP/s", found.time)
    assert set(each) == {0, 1, 2, 3}
    tensor = 8  # ranks of a stage
    assert sum(each.values()) * tensor == pytest.approx(float(TRAINED.steps[-1].flop) / 1e12, rel=1e-3)
    names = {r["args"]["name"] for r in rows if r["name"] == "thread_name"}
    assert names == set(tracks_of(found.events))
    links = [n for n in names if n.startswith("link")]
    arrows = [r for r in rows if r["ph"] == "s"]
    assert len(links) == 6 and len(arrows) == 2 * 3 * 8  # both ways between four stages, of eight pieces
