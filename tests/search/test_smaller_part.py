"""Part of a system's devices that do more than all of them, and what is said of plans and intervals."""

import strata as st
from strata.search.what_if import Question
from strata.validation.accuracy.intervals import REPRICED, LikeCase, interval


def asked(system, plan=None):
    return Question(
        system=system,
        model="llama-3-70b",
        work=lambda _: st.serve(64.0, input=1024.0, output=1024.0),
        plan=plan,
    )


def test_a_part_that_does_more_is_found():
    whole, _ = asked("72xgb200").answer()
    part = asked("72xgb200").part_that_does_more(whole)
    assert part is not None and float(part.system.devices) == 64.0
    assert part.metrics.tokens_per_s > whole.metrics.tokens_per_s
    for system in ("8xh200", "24xh200", "2x72xgb200"):  # even, does less, said by domains
        assert asked(system).part_that_does_more(asked(system).answer()[0]) is None


def test_predict_points_at_the_part_unless_a_plan_is_told(answer):
    words = ("predict", "-m", "llama-3-70b", "-s", "72xgb200", "--batch", "64")
    assert "64 of the 72 devices do more" in answer(*words) and "--system 64xgb200" in answer(*words)
    assert "devices do more" not in answer(*words, "--plan", "tp=8,dp=9")


def test_one_plan_is_no_choice(answer):
    said = answer("predict", "-m", "llama-3-8b", "-s", "1xh200")
    assert "plan tp=1: the only legal plan" in said and "1 legal plans" not in said
    assert "of 1 plan\n" in answer("plan", "-m", "llama-3-8b", "-s", "1xh200").replace(" \n", "\n")


def test_rows_priced_with_an_engine_say_so_where_the_question_has_none():
    case = {"metric": "decode", "chip": "mi300x", "kind": "dense", "family": "llama"}
    assert "engines without their host" in interval(LikeCase(engine=REPRICED, **case)).like
    assert "without their host" not in interval(LikeCase(engine="vllm", **case)).like
