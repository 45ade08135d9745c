"""What more of a resource buys: what is moved is stated, what follows moves too, and every bound has a lever."""

import pytest
from cases import CHIPS, roomy

import strata as st
from strata.hardware.chip import changed_chip
from strata.params import leaf_paths, value_at
from strata.pricing.price import BOUNDS
from strata.search.levers import LEVERS
from strata.search.sensitivity import bound_share, sensitivity

DECODE, PREFILL = st.decode(64.0, 1536.0), st.prefill(16.0, 1024.0)
CASES = {
    "stack": (st.system("256xstack-ref"), "llama-3-70b", st.decode(64.0, 1536.0), "tp=32,dp=8"),
    "stack of experts": (
        st.system("256xstack-ref"),
        "deepseek-v3",
        st.decode(256, 1536),
        "tp=8,dp=16,pp=2,ep=128",
    ),
    "stack, prompts": (st.system("256xstack-ref"), "llama-3-70b", st.prefill(64.0, 1024.0), "tp=32,dp=8"),
    "hbm": (st.system("8xhbm-ref"), "llama-3-70b", DECODE, "tp=8"),
    "generated": (st.system("8xgpu-n3"), "llama-3-70b", DECODE, "tp=8"),
    "generated, prompts": (st.system("8xgpu-n3"), "llama-3-70b", PREFILL, "tp=8"),
    "dataflow": (st.system("16xsn40l"), "llama-3-70b", DECODE, "tp=16"),
    "arrays": (st.system("16xtpu-v6e"), "gemma-3-27b", DECODE, "tp=16"),
    "served": (st.system("8xh200"), "llama-3-70b", st.serve(64, 1024, 256), "tp=8", "vllm"),
    "in stages": (st.system("8xh200"), "llama-3-70b", PREFILL, "tp=2,pp=4", "trtllm"),
    "trained": (st.system("64xh200"), "llama-3-70b", st.train(512, 4096), "tp=8,pp=4,dp=2", "megatron"),
    "throttled": (st.system("8xh200", **{"energy.power_limit": 350.0}), "llama-3-70b", PREFILL, "tp=8"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_binds_has_levers_that_gain_about_its_share(case):
    r = st.evaluate(*CASES[case])
    assert r.fits, r.infeasible
    gains = sensitivity(r)
    for bound in BOUNDS:
        share = bound_share(r, (bound,))
        levers = [g for g in gains if bound in g.bounds]
        if share < 0.02:
            continue
        assert levers, (bound, share)
        finite = [g.speedup for g in levers if g.speedup == g.speedup]
        if share > 0.08 and bound != "bubble":
            # at least a third of what the share promises: a next roof may be near
            assert sum(s for s in finite if s > 0) > 0.33 * share * 0.1 / 1.1, (bound, share, levers)
    assert all(g.moved or g.note for g in gains)
    assert not any(g.speedup == 0.0 and not g.note for g in gains)  # never +0.0 % of what is not read


@pytest.mark.parametrize("case", ["stack", "hbm", "dataflow", "served"])
def test_dram_is_worth_its_share(case):
    r = st.evaluate(*CASES[case])
    share = bound_share(r, ("memory",))
    gain = next(g for g in sensitivity(r) if g.resource == "DRAM bandwidth")
    assert share > 0.2
    assert gain.speedup == pytest.approx(share * 0.1 / 1.1, rel=0.35)


def test_a_stack_is_moved_by_its_transfer_rate_and_all_follows():
    r = st.evaluate(*CASES["stack"])
    gain = next(g for g in sensitivity(r) if g.resource == "DRAM bandwidth")
    assert gain.moved.startswith("chip.stack.transfer_rate")
    faster = st.system("256xstack-ref", **{"stack.transfer_rate": 0.88e9})
    again = st.evaluate(faster, *CASES["stack"][1:])
    assert gain.speedup == pytest.approx(r.metrics.step_time / again.metrics.step_time - 1, rel=1e-9)


def test_a_generated_chip_is_made_again():
    r = st.evaluate(*CASES["generated"])
    gain = next(g for g in sensitivity(r) if g.resource == "power limit")
    again = st.evaluate(st.system("8xgpu-n3", **{"budget.power": 770.0}), *CASES["generated"][1:])
    assert gain.speedup == pytest.approx(r.metrics.step_time / again.metrics.step_time - 1, rel=1e-9)


def test_counts_that_cannot_grow_by_so_little_say_how_far_they_went():
    r = st.evaluate(*CASES["arrays"])  # four cores: a tenth more is a fifth one
    gain = next(g for g in sensitivity(r) if g.resource.startswith("cores"))
    assert gain.moved.startswith("chip.compute.cores 4 to 5 and") and gain.more == pytest.approx(0.25)


def test_rows_of_few_tokens_have_the_latency_of_the_cache_as_their_lever():
    """Norms took 12 % of a step and no lever shortened them."""
    r = st.evaluate(*CASES["arrays"])
    found = {g.resource: g.speedup for g in sensitivity(r) if "compute" in g.bounds}
    assert found["cache latency (less)"] > 0.5 * bound_share(r, ("compute",)) * 0.1 / 1.1


def test_what_a_caller_set_stays_when_a_lever_is_pulled():
    chip = st.chip("gpu-n3", **{"memory.latency": 1e-6, "budget.power": 600.0})
    moved = changed_chip(chip, {"recipe.device.access_energy": 1e-11})
    assert moved.memory.latency == 1e-6 and moved.recipe.budget.power == 600.0
    assert moved.recipe.device.access_energy == 1e-11


@pytest.mark.parametrize("name", CHIPS)
def test_a_chip_changed_in_nothing_is_the_same_chip(name):
    chip = st.chip(name)
    again = changed_chip(chip, {})
    for path in leaf_paths(chip):
        before, after = value_at(chip, path), value_at(again, path)
        assert before is after or before == pytest.approx(after, rel=1e-12), path


def test_every_bound_has_levers():
    assert {bound for lever in LEVERS for bound in lever.bounds} | {"bubble"} == set(BOUNDS)


@pytest.mark.parametrize("name", CHIPS)
def test_what_binds_any_shipped_chip_has_a_lever(name):
    narrow = "int8" if set(st.chip(name).compute.matrix_rate) == {"fp32", "int8"} else "bf16"
    model = st.model("llama-3-8b", weights=narrow, activations=narrow, kv=narrow)
    for work in (st.decode(8.0, 512.0), st.prefill(4.0, 512.0)):
        r = st.evaluate(roomy(f"1x{name}"), model, work)
        assert r.fits
        found = [g for g in sensitivity(r) if r.bound_by in g.bounds]
        assert found and any(g.speedup > 0.0 for g in found), (r.bound_by, found)
