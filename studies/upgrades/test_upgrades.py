"""Upgrades of generated systems: spans, draws that all recipes share, gains, and what cannot be asked."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from strata.base.arrays import map_leaves
from strata.base.errors import StrataError
from strata.evaluate import evaluate
from strata.hardware.components import memory_device
from strata.search.inputs import make_workload
from strata.search.plans import best_plans
from strata.studies import studies_folder
from upgrades.recipes import made_system
from upgrades.spans import Draws, Span, SpanTable, drawn_within, read_spans, spearman
from upgrades.study_upgrades import read_recipes, run_upgrades, upgrade_values
from upgrades.work import plans_by_size, plans_of, spent_by, upgrade_work

STUDY = studies_folder() / "next-technology"
BASE, UPGRADES, WORKS, _ = read_recipes(STUDY / "recipes.toml")
SPANS = read_spans(STUDY / "spans.toml")
SMALL = upgrade_work(
    name="small", model="llama-3-8b", phase="decode", packages=2, input=1024, output=512, batch=64,
    plans=["tp=2", "dp=2"],
)  # fmt: skip
TIMED = replace(SMALL, name="timed", batch=0.0, tpot=0.005)


def only(path, common, step):
    """Spans in which one number may move, and no other."""
    return SpanTable(rules=((path, Span(common=common, step=step)), ("*", Span(common=1.0, step=1.0))))


def spent(made, work):
    """What a token takes under the plans of a system's size."""
    return spent_by(made, work, plans_by_size(work, [made])[1.0])


def test_the_same_name_draws_the_same_numbers_one_in_each_stratum():
    one, other = Draws(samples=64), Draws(samples=64)
    first, second = one.factor("a", 2.0), other.factor("a", 2.0)
    assert np.array_equal(first, second) and not np.array_equal(first, one.factor("b", 2.0))
    strata = np.sort(np.floor((np.log2(first) + 1.0) * 32.0))
    assert np.array_equal(strata, np.arange(64.0))


def test_a_part_of_its_own_has_what_all_share_and_its_own_step():
    table = only("device.price", 1.5, 1.2)
    hbm4, hbm4e = memory_device("hbm4"), memory_device("hbm4e")
    draws = Draws(samples=50)
    shared = drawn_within(hbm4, "device", table, draws).price / hbm4.price
    moved = drawn_within(hbm4e, "device", table, draws, own="hbm4e", moved=None).price / hbm4e.price
    assert shared.min() < 0.7 and shared.max() > 1.4
    step = moved / shared
    assert step.min() >= 1 / 1.2 - 1e-12 and step.max() <= 1.2 + 1e-12
    assert abs(spearman(step, shared)) < 0.4
    assert drawn_within(hbm4, "device", table, draws).pin_rate == hbm4.pin_rate


def test_a_span_of_the_rest_keeps_a_share_below_one():
    table = SpanTable(rules=(("device.*", Span(common=1.5, step=1.0, rest=True)),))
    device = replace(memory_device("hbm4"), controller_area=0.9)
    varied = drawn_within(device, "device", table, Draws(samples=40)).controller_area
    assert varied.max() < 1.0 and varied.min() == pytest.approx(0.85, abs=0.005)


def test_every_span_of_the_study_has_a_reason_and_assumed_numbers_vary_by_half():
    assert (SPANS.assumed.common, SPANS.cited.common) == (1.5, 1.1)
    draws = Draws(samples=4)
    made_system(BASE, BASE, SPANS, draws)
    assert len(draws.drawn) > 50 and not any(" of " in name for name in draws.drawn)
    made_system(UPGRADES[0], BASE, SPANS, draws)
    assert all(name.endswith(" of n2") for name in draws.drawn if " of " in name)


def test_an_upgrade_of_nothing_gains_nothing_in_any_sample():
    same = replace(BASE, name="same")
    found = upgrade_values(BASE, [same], [SMALL, TIMED], spans=SPANS, samples=6)
    for of in found.gains.values():
        for gain in of.values():
            np.testing.assert_allclose(gain, 1.0, rtol=1e-12)


def test_dearer_memory_costs_dollars_and_nothing_else():
    dear = BASE.with_({"name": "dear", "times": {"device.price": 2.0}})
    found = upgrade_values(BASE, [dear], [SMALL], spans=only("*", 1.0, 1.0), samples=2)
    gains = found.gains["small"]
    assert gains["dollar"].max() < 0.8
    np.testing.assert_allclose([gains["speed"], gains["watt"]], 1.0, rtol=1e-12)


def test_a_batch_of_samples_is_as_many_singles():
    draws = Draws(samples=5)
    made = made_system(UPGRADES[1], BASE, SPANS, draws)
    work = make_workload("decode", 64.0, 1024.0, 512.0)
    many = evaluate(made.system(2.0), SMALL.model, work, "tp=2", economics=made.economics).metrics
    for i in range(5):

        def single(value, i=i):
            return float(np.ravel(value)[i]) if np.size(value) == 5 else value

        system, money = map_leaves(single, made.system(2.0)), map_leaves(single, made.economics)
        one = evaluate(system, SMALL.model, work, "tp=2", economics=money).metrics
        for name in ("step_time", "cost_per_mtoken", "energy_per_token"):
            assert float(getattr(many, name)[i, 0]) == pytest.approx(getattr(one, name), rel=1e-9)


def test_the_quickest_batch_is_in_time_and_few_of_all_batches_are_better():
    made = made_system(BASE)
    found = spent(made, TIMED)
    every = np.arange(2.0, 1200.0, 2.0)
    for column, text in enumerate(TIMED.plans):
        batches = np.array([float(found.batch[0, column]), *every])
        work = make_workload("decode", batches, 1024.0, 512.0)
        many = evaluate(made.system(2.0), TIMED.model, work, text).metrics
        assert many.tpot[0] <= TIMED.tpot
        assert found.speed[0, column] == pytest.approx(1.0 / many.tokens_per_s[0], rel=1e-9)
        best = np.max(np.where(many.tpot <= TIMED.tpot, many.tokens_per_s, 0.0))
        assert many.tokens_per_s[0] > 0.85 * best


def test_a_limit_that_no_batch_keeps_is_no_plan_at_all():
    late = replace(TIMED, tpot=1e-5)
    made = made_system(BASE)
    assert np.all(np.isinf(spent(made, late).speed))
    with pytest.raises(StrataError, match="never in time"):
        plans_of(made, replace(late, plans=()))


def test_memory_on_top_is_bonded_and_lanes_are_paid():
    stacked = next(u for u in UPGRADES if u.name == "stacked")
    made = made_system(stacked)
    free = made_system(
        replace(stacked, set=stacked.set | {"bonding.step_price": "0 USD", "bonding.step_yield": 1.0})
    )
    paid = (made.generation.chip.package.price - free.generation.chip.package.price) / made.economics.markup
    assert paid > 16 * 15  # sixteen bonds at 15 USD, and dies lost with them
    lanes = made.generation.made.running.networks[0].lanes
    assert lanes == 36.0 and float(made.fabric.dimension[0].price) == 36 * 80.0


@pytest.mark.parametrize("work", WORKS, ids=lambda w: w.name)
def test_the_plans_of_the_study_hold_the_best_of_its_base(work):
    """What is listed loses at most 3 % to the best plan at stated numbers."""
    if work.name in ("train", "long"):
        pytest.skip("searched by hand: some 4,000 devices take long")
    made = made_system(BASE)
    listed = float(spent(made, work).best().speed[0])
    batches = [work.batch or float(spent(made, work).best().batch[0])]
    best = best_plans(
        made.system(work.packages), work.model,
        make_workload(work.phase, np.array(batches), work.input, work.output),
        where="(cp == 1) & (pp <= 2) & (zero == 0) & (tp <= 8)", tpot=work.tpot or np.inf, top=1,
    )  # fmt: skip
    assert 1.0 / best[0].result.metrics.tokens_per_s > 0.97 * listed


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: BASE.with_({"tecnology": "n2"}), "tecnology"),
        (lambda: made_system(BASE.with_({"set": {"chip.power": "1 W"}})), "numbers of its parts"),
        (lambda: made_system(replace(BASE, parts={"technology": "n3"})), "a recipe names"),
        (lambda: upgrade_work(name="x", model="llama-3-8b", phase="decode", packages=1, input=1), "tpot"),
        (lambda: upgrade_work(name="x", model="llama-3-8b", phase="decode", batch=1, input=1), "packages"),
        (lambda: made_system(BASE).system(96.0), "whole domains"),
        (lambda: run_upgrades({"name": "v", "sample": 3}, "here", STUDY), "sample"),
        (lambda: plans_by_size(replace(SMALL, plans=("tp=4",)), [made_system(BASE)]), "no plan"),
    ],
)
def test_what_cannot_be_asked_is_said_in_one_line(ask, said):
    with pytest.raises(StrataError) as error:
        ask()
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_table_of_spans_without_reasons_or_below_one_is_refused(tmp_path):
    file = Path(tmp_path) / "spans.toml"
    for text, said in (('[[span]]\nof = "a"', "of and why"), ("[assumed]\ncommon = 0.5", "at least 1")):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(StrataError, match=said):
            read_spans(file)


def test_movers_name_what_decides_between_two_kinds():
    dear = replace(BASE, name="dear", kind="memory", times=BASE.times | {"device.price": 1.2})
    quick = BASE.with_({"name": "quick", "kind": "link", "link": "nvlink6"})
    found = upgrade_values(BASE, [dear, quick], [SMALL], spans=only("device.price", 1.5, 1.5), samples=32)
    name, strength = found.movers("small", "dollar")[0]
    assert name == "device.price of dear" and abs(strength) > 0.7
    assert found.best("small", "dollar").sum() == pytest.approx(1.0)


def test_samples_without_a_base_are_left_out_and_too_many_of_them_are_said():
    wide = only("device.capacity", 40.0, 1.0)
    same = replace(BASE, name="same")
    tight = replace(SMALL, plans=("dp=2",))
    found = upgrade_values(BASE, [same], [tight], spans=wide, samples=30)
    left = found.gains["small"]["speed"].shape[1]
    assert 15 < left < 30 and found.draws.samples == left == found.draws.drawn["device.capacity"].size
    assert np.all(np.isfinite(found.gains["small"]["dollar"]))
    with pytest.raises(StrataError, match="the base cannot be built or does not do the work"):
        small = BASE.with_({"name": "base", "set": {"device.capacity": "1 GB"}})
        upgrade_values(small, [same], [tight], spans=wide, samples=30)


def test_where_even_the_fewest_waves_do_not_fit_the_batch_that_does_is_found():
    tight = BASE.with_({"name": "tight", "set": {"device.capacity": "1.2 GB"}})
    work = replace(TIMED, input=16384.0, plans=("tp=2",))
    made = made_system(tight)
    found = spent(made, work)
    assert 0.0 < found.speed[0, 0] < np.inf
    more = make_workload("decode", float(found.batch[0, 0]) + 1.0, work.input, work.output)
    assert not evaluate(made.system(2.0), work.model, more, "tp=2").fits
