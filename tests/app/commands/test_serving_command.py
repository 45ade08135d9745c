"""`strata serving`: the numbers of the Python API, pictures that are valid, and one line for each mistake."""

import xml.etree.ElementTree as tree

import pytest

import strata as st

ASKED = (
    "serving",
    "-m",
    "llama-3-8b",
    "-s",
    "4xh200",
    "-i",
    "1024",
    "-o",
    "256",
    "--engine",
    "vllm",
    "--sequences",
    "128",
)


def test_the_best_plans_are_told(answer):
    said = answer(*ASKED, "--ttft", "500ms", "--tpot", "15ms")
    for word in ("plan", "requests/s", "TTFT", "TPOT", "slots", "TTFT at most 500 ms", "TPOT at most 15 ms"):
        assert word in said, word
    assert max(map(len, said.splitlines())) <= 140


def test_json_has_the_numbers_of_the_python_api(answer):
    data = answer(
        *ASKED,
        "--ttft",
        "500ms",
        "--tpot",
        "15ms",
        "--rate",
        "5/s",
        "--plan",
        "tp=2,dp=2",
        "--json",
        "--quick",
    )
    curve = st.serving.curve(
        "4xh200", "llama-3-8b", st.serving.Requests(1024, 256), "tp=2,dp=2", "vllm", sequences=128
    )
    assert data["plans"][0]["goodput"] == pytest.approx(float(st.serving.goodput(curve, 0.5, 0.015)[0]))
    seen = st.serving.open_load(curve, 5.0).at(0)
    for name in ("ttft", "tpot", "active", "utilisation", "tokens_per_s"):
        assert data["load"][name] == pytest.approx(float(getattr(seen, name))), name
    assert data["load"]["plan"] == "tp=2,dp=2" and data["pools"] is None and data["frontier"] is None


@pytest.mark.parametrize("load", [("--rate", 2), ("--clients", 8)])
def test_intervals_are_those_of_the_load_that_was_asked_for(answer, load):
    """With a rate they were those of the most clients a plan takes: 84 to 958 s beside 61 ms."""
    data = answer(*ASKED, "--plan", "tp=4", *load, "--json")
    for metric in ("ttft", "tpot"):
        found = data["interval"][metric]
        assert found["low"] <= data["load"][metric] <= found["high"] < 30 * data["load"][metric]
    said = answer(*ASKED, "--plan", "tp=4", *load)
    assert said.index("with plan") < said.index("measured runs") and "e+0" not in said


def test_a_rate_is_read_with_its_unit(answer):
    per = {
        text: answer(*ASKED, "--plan", "tp=4", "--rate", text, "--json")["load"]["rate"]
        for text in ("2", "2/s", "7200/h")
    }
    assert set(per.values()) == {2.0}


def test_uneven_experts_take_fewer_requests(answer, tmp_path):
    """By a skew or by a trace, as in Python."""
    typed = (
        "serving",
        "-m",
        "mixtral-8x7b",
        "-s",
        "8xh200",
        "-o",
        "256",
        "--plan",
        "dp=8,ep=8",
        "--sequences",
        "64",
        "--tpot",
        "20ms",
        "--json",
        "--quick",
    )
    picks = tmp_path / "picks.json"
    picks.write_text("[[9, 1, 1, 1, 1, 1, 1, 1]]", encoding="utf-8")
    ways = (("--skew", "0"), (), ("--routing", picks))
    rates = [answer(*typed, *more)["plans"][0]["goodput"] for more in ways]
    assert rates[1] < 0.9 * rates[0] and rates[2] < 0.9 * rates[0]
    asked = st.serving.Requests(1024, 256, routing=st.routing([[9.0] + [1.0] * 7]))
    curve = st.serving.curve("8xh200", "mixtral-8x7b", asked, "dp=8,ep=8", "vllm", sequences=64)
    assert rates[2] == pytest.approx(float(st.serving.goodput(curve, tpot=0.02)[0]))


def test_clients_see_what_a_closed_loop_gives(answer):
    data = answer(*ASKED, "--plan", "tp=4", "--clients", "32", "--json", "--quick")["load"]
    curve = st.serving.curve(
        "4xh200", "llama-3-8b", st.serving.Requests(1024, 256), "tp=4", "vllm", sequences=128
    )
    assert (
        data["tpot"] == pytest.approx(float(st.serving.closed_load(curve, 32).tpot[0, 0]))
        and data["clients"] == 32
    )
    assert "32 clients with plan tp=4" in answer(*ASKED, "--plan", "tp=4", "--clients", "32")


def test_pools_and_guesses_are_told(answer):
    said = answer(
        *ASKED,
        "--ttft",
        "1s",
        "--tpot",
        "20ms",
        "--disaggregated",
        "--speculative",
        "draft=llama-3.2-1b,acceptance=0.7,window=best",
    )
    for word in (
        "devices apart",
        "readers take",
        "of cache",
        "guesses of llama-3.2-1b",
        "breaks even at",
        "speed-up",
    ):
        assert word in said, word
    data = answer(
        *ASKED,
        "--prefill-devices",
        "2",
        "--speculative",
        "draft=llama-3.2-1b,acceptance=0.7,branches=2,window=2,plan=tp=2,dp=2",
        "--clients",
        "4",
        "--json",
    )
    assert [p["readers"] for p in data["pools"]] == [2] and data["pools"][0]["sent_bytes"] == 1024 * 131072
    assert data["speculation"]["verified"] == 7 and data["speculation"]["tokens"] == pytest.approx(
        1 + 0.91 + 0.91**2
    )


def test_the_frontier_is_drawn(answer, tmp_path):
    svg, page = tmp_path / "deep" / "f.svg", tmp_path / "f.html"
    data = answer(*ASKED, "--frontier", svg, "--disaggregated", "--json")
    assert len(data["frontier"]["best"]) > 3
    text = svg.read_text(encoding="utf-8")
    assert (
        tree.parse(svg).getroot().tag.endswith("svg")
        and "tokens/s a user sees" in text
        and "frontier without pools" in text
    )
    answer(*ASKED, "--frontier", page)
    assert "tokens/s of a device" in page.read_text(encoding="utf-8") and "The frontier" in page.read_text(
        encoding="utf-8"
    )
    again = tmp_path / "again.svg"
    answer(*ASKED, "--frontier", again, "--disaggregated")
    assert again.read_text(encoding="utf-8") == text


BAD = [
    (("--rate", "0"), "--rate must be positive"),
    (("--rate", "5/s", "--clients", "3"), "two kinds of load"),
    (("--rate", "5 m"), "--rate"),
    (("--rate", "1e6"), "completes at most"),
    (("--ttft", "1ns"), "no plan keeps the limits, TTFT at most 1 ns"),
    (("--ttft", "-1s"), "--ttft must be a positive time"),
    (("--share", "20%"), "--share"),
    (("--output", "1"), "at least 2 tokens"),
    (("--chunk", "0"), "--chunk must be a positive whole number"),
    (("--variation", "-1"), "--variation"),
    (("--skew", "1"), "llama-3-8b has no experts to pick"),
    (("--routing", "picks.json"), "llama-3-8b has no experts to route to"),
    (("--prefill-devices", "9"), "pools of 4xh200 have 1, 2, 3 devices"),
    (("--speculative", "draft=llama-3.2-1b"), "--speculative needs acceptance"),
    (("--speculative", "llama-3.2-1b"), "is written like"),
    (("--speculative", "draft=llama-3.2-1b,acceptance=2"), "acceptance must lie between 0 and 1"),
    (("--speculative", "draft=llama-3.2-1b,acceptance=0.5,windw=3"), "nearest: window"),
    (("--speculative", "draft=llama-3.2-1b,acceptance=0.5,window=1.5"), "window must be a whole number"),
    (("--speculative", "draft=lama,acceptance=0.5"), "no model called 'lama'"),
    (("--frontier", "f.gif"), "--frontier writes .html, .svg, .png, .pdf"),
    (("--plan", "tp=3"), "must divide heads"),
]


@pytest.mark.parametrize("words, said", BAD, ids=[" ".join(w) for w, _ in BAD])
def test_a_mistake_is_one_line(strata, words, said):
    got = strata(*ASKED, *words)
    assert got.code == 2 and said in got.err and len(got.err.strip().splitlines()) == 1, got.err


def test_a_model_that_does_not_fit_is_told_with_levers(strata):
    got = strata("serving", "-m", "llama-3-70b", "-s", "1xh100")
    assert got.code == 2 and "levers" in got.err and "GB" in got.err
