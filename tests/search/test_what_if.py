"""Relative changes, the difference they make, and another fabric: against the same asked in absolute numbers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as hy

import strata as st
from strata.base.errors import BadValue, StrataError, UnknownName
from strata.search.inputs import named_inputs, relative_factor, set_tables
from strata.search.what_if import what_if

WORK = st.decode(8.0, 2048.0)
ASKED = ("predict", "-m", "llama-3-70b", "--phase", "decode", "--batch", 8, "--plan", "tp=8")


def changed(*items, system="8xh200", engine="ideal"):
    return named_inputs("llama-3-70b", system, engine, "", "", list(items))


@pytest.mark.parametrize(
    ("system", "path", "at"),
    [
        ("8xh200", "memory.bandwidth", lambda c: c.memory.bandwidth),
        ("8xstack-ref", "stack.transfer_rate", lambda c: c.memory.bandwidth),
        ("8xstack-ref", "compute.matrix_rate.fp8", lambda c: c.compute.matrix_rate["fp8"]),
        ("8xstack-ref", "cache.over_memory", lambda c: c.cache.bandwidth),
        ("8xgpu-n3", "budget.power", lambda c: c.recipe.budget.power),
        ("8xgpu-n3", "recipe.budget.power", lambda c: c.energy.power_limit),
    ],
)
@pytest.mark.parametrize(("text", "times"), [("x2", 2.0), ("x0.5", 0.5), ("+10%", 1.1), ("-20%", 0.8)])
def test_a_relative_change_is_so_many_times_what_it_is(system, path, at, text, times):
    before, after = changed(system=system)[0].chip, changed(f"chip.{path}={text}", system=system)[0].chip
    assert at(after) == pytest.approx(times * at(before), rel=1e-12)


def test_relative_changes_of_fabrics_engines_and_models():
    system, model, engine = changed(
        "fabric.latency=x0.5",
        "fabric.infiniband.bandwidth=x2",
        "engine.host_step=+50%",
        "model.vocab=x2",
        engine="vllm",
    )
    plain = changed(engine="vllm")
    assert system.fabric.dimension[0].latency == 0.5 * plain[0].fabric.dimension[0].latency
    assert system.fabric.dimension[1].bandwidth == 2.0 * plain[0].fabric.dimension[1].bandwidth
    assert engine.host_step == pytest.approx(1.5 * plain[2].host_step)
    assert model.vocab == 2.0 * plain[1].vocab


@given(times=hy.floats(1e-3, 1e3))
def test_any_factor_and_its_percentage_mean_the_same(times):
    assert relative_factor(f"x{times!r}") == times
    assert relative_factor(f"{100 * (times - 1):+.12f}%") == pytest.approx(times, rel=1e-9)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("chip.memory.bandwidth=x0", "must be positive and finite"),
        ("chip.memory.bandwidth=-100%", "must be positive and finite"),
        ("chip.memory.bandwidth=x-2", "must be positive and finite"),
        ("chip.memory.bandwidth=x1e999", "must be positive and finite"),
        ("chip.memory.bandwith=x2", "nearest: memory.bandwidth"),
        ("fabric.nvlnk.latency=x2", "no fabric quantity"),
        ("model.kv=x2", "is no number"),
        ("model.layrs=x2", "no model field"),
        ("engine.collectives=x2", "no engine quantity"),
    ],
)
def test_relative_changes_that_cannot_be(item, said):
    with pytest.raises(StrataError, match=said) as error:
        set_tables("llama-3-70b", "8xh200", "ideal", [item])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("system", "item", "instead"),
    [
        ("8xstack-ref", "chip.memory.bandwidth=x2", "set chip.stack.transfer_rate=x2 instead"),
        ("8xstack-ref", "chip.memory.capacity=+10%", "set chip.stack.capacity_per_layer=+10% instead"),
        ("8xstack-ref", "chip.cache.bandwidth=x2", "set chip.cache.over_memory=x2 instead"),
        ("8xstack-ref", "chip.memory.bandwidth=6 TB/s", "set stack.transfer_rate instead"),
        ("8xgpu-n3", "chip.memory.bandwidth=x2", "set chip.device.pin_rate=x2 or chip.budget.power=x2"),
    ],
)
def test_what_follows_says_what_to_set_instead(system, item, instead):
    with pytest.raises(BadValue) as error:
        changed(item, system=system)
    assert "follows" in str(error.value) and instead in str(error.value)


def test_the_difference_is_that_of_two_evaluations():
    found = what_if("8xh200", "llama-3-70b", WORK, ["chip.memory.bandwidth=x2"], "tp=8", "vllm")
    before, after = (
        st.evaluate(system, "llama-3-70b", WORK, "tp=8", "vllm")
        for system in ("8xh200", st.system("8xh200", **{"memory.bandwidth": 9.6e12}))
    )
    assert [(c.name, c.before, c.after, c.ratio) for c in found.fields] == [
        ("chip.memory.bandwidth", 4.8e12, 9.6e12, 2.0)
    ]
    for one in found.metrics:
        assert one.before == float(getattr(before.metrics, one.name))
        assert one.after == float(getattr(after.metrics, one.name))
    tpot = next(one for one in found.metrics if one.name == "tpot")
    assert 0.5 < tpot.ratio < 0.9


def test_predict_prints_the_difference(answer):
    got = answer(*ASKED, "-s", "8xh200", "--set", "chip.memory.bandwidth=x2", "--json")
    assert got["difference"]["set"]["chip.memory.bandwidth"]["ratio"] == 2.0
    change = got["difference"]["metrics"]["tpot"]
    assert change["after"] == got["metrics"]["tpot"] and change["unit"] == "s"
    assert change["ratio"] == pytest.approx(change["after"] / change["before"])
    plain = answer(*ASKED, "-s", "8xh200", "--json")
    assert "difference" not in plain and change["before"] == plain["metrics"]["tpot"]
    text = answer(*ASKED, "-s", "8xh200", "--set", "chip.memory.bandwidth=x2", "--set", "model.kv=fp8")
    assert "Against the unchanged design" in text and "x2.000" in text and "bf16" in text


def test_sweep_and_plan_take_relative_changes(answer):
    rows = [
        answer("sweep", "-m", "llama-3-8b", "-s", "8xh200", "--vary", "batch=1,8", "--plan", "tp=8",
               "--set", f"chip.memory.bandwidth={value}", "--json")
        for value in ("x2", "9.6 TB/s")
    ]  # fmt: skip
    assert json.dumps(rows[0]) == json.dumps(rows[1])


def test_a_system_on_another_fabric(answer, strata):
    got = answer(*ASKED[:-2], "-s", "16xh200", "--fabric", "nvl72", "--plan", "tp=16", "--json")
    assert got["inputs"]["fabric"]["name"] == "nvl72" and got["question"]["devices"] == 16
    moved, usual = (st.system("16xh200", on) for on in ("nvl72", None))
    times = [float(st.evaluate(s, "llama-3-70b", WORK, "tp=16").metrics.step_time) for s in (moved, usual)]
    assert times[0] < times[1]
    assert [float(d.size) for d in st.system("4x8xh200", "nvl72").fabric.dimension] == [8.0, 4.0]
    for words, said in (
        (("-s", "8xh200", "--fabric", "nvl7"), "no fabric called 'nvl7'; nearest: nvl72"),
        (("-s", "8xh200", "--fabric", "none.toml"), "none.toml"),
        (("-s", "512xh200", "--fabric", "torus-256"), "torus-256 has 256 devices"),
    ):
        done = strata(*ASKED, *words)
        assert done.code == 2 and said in done.err and done.err.count("\n") == 1
    with pytest.raises(UnknownName, match="no fabric called"):
        st.system("8xh200", "nvl7")
