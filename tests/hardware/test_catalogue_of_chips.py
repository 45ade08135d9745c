"""Chips and fabrics as data: peaks of the data sheets, every number marked, every chip evaluates."""

from dataclasses import replace

import pytest

import strata as st
from strata.app.render.catalogue import describe
from strata.base import precision
from strata.params import KINDS, MARKS, find, names, stated
from strata.params.files import plain_name

TERA = 1e12
# Dense matrix peaks [TFLOP/s], DRAM bandwidth [GB/s] and capacity [GiB, 1e9 B for SRAM], power [W], link [GB/s, one
# direction, innermost dimension], as the sheets that the files name state them: vendors' product pages and data
# sheets, Cloud TPU and AWS Neuron documentation, Hot Chips 2024 for Gaudi, announcements for VR200 and MI455X.
SHEETS = {
    "mi300x": ({"bf16": 1307.4, "fp8": 2614.9, "fp64": 163.4}, 5300, 192, 750, 448),
    "mi350x": ({"bf16": 2306.9, "fp8": 4613.7, "mxfp4": 9227.5, "mxfp6": 9227.5}, 8000, 288, 1000, 537.6),
    "mi355x": ({"bf16": 2516.6, "fp8": 5033.2, "mxfp4": 10066.3, "mxfp6": 10066.3}, 8000, 288, 1400, 537.6),
    "mi455x": ({"fp8": 20000, "mxfp4": 40000}, 19600, 432, None, 1800),
    "b300": ({"bf16": 2250, "fp8": 4500, "fp4": 13125}, 8000, 279, 1100, 900),
    "gb300": ({"bf16": 2500, "fp8": 5000, "fp4": 15000}, 8000, 279, 1400, 900),
    "vr200": ({"bf16": 4000, "fp8": 17500, "fp4": 35000}, 22000, 288, None, 1800),
    "l40s": ({"bf16": 362.05, "fp8": 733, "tf32": 183}, 864, 48, 350, 31.5),
    "h100-pcie": ({"bf16": 756, "fp8": 1513, "tf32": 378}, 2000, 80, 350, 63),
    "h100-nvl": ({"bf16": 835.5, "fp8": 1670.5}, 3900, 94, 400, 300),
    "h200-nvl": ({"bf16": 835.5, "fp8": 1670.5}, 4800, 141, 600, 450),
    "gh200": ({"bf16": 989.4, "fp8": 1978.9}, 4000, 96, None, 450),
    "h800": ({"bf16": 989.4, "fp8": 1978.9, "fp64": 1}, 3350, 80, 700, 200),
    "gaudi2": ({"bf16": 432, "fp8": 865}, 2460, 96, 600, 262.5),
    "gaudi3": ({"bf16": 1835, "fp8": 1835}, 3670, 128, 900, 525),
    "tpu-v5e": ({"bf16": 197, "int8": 393}, 819, 16, None, 100),
    "tpu-v5p": ({"bf16": 459, "fp8": 459}, 2765, 95, None, 200),
    "tpu-v6e": ({"bf16": 918, "int8": 1836}, 1638, 32, None, 200),
    "tpu-v7x": ({"bf16": 2307, "fp8": 4614}, 7380, 192, None, 200),
    "trainium2": ({"bf16": 667, "fp8": 1299, "fp32": 181}, 2900, 96, None, 256),
    "trainium3": ({"bf16": 671, "mxfp8": 2517, "mxfp4": 2517}, 4900, 144, None, 1280),
    "groq-lpu": ({"bf16": 188, "int8": 750}, 80000, 230e6 / 2**30, None, 105),
    "rtx-pro-4500": ({"bf16": 219.7, "fp4": 879}, 896, 32, 200, 63),
}
# Devices of the domain or node it is usually built into.
DOMAINS = {
    "vr200": 72, "gb300": 72, "mi455x": 72, "gh200": 32, "trainium3": 144, "trainium2": 64,
    "tpu-v5e": 256, "tpu-v6e": 256, "tpu-v5p": 6144, "tpu-v7x": 9216,
}  # fmt: skip
NEW = sorted(SHEETS)


@pytest.mark.parametrize("name", NEW)
def test_peaks_are_the_data_sheets(name):
    rates, bandwidth, capacity, power, link = SHEETS[name]
    chip = st.chip(name)
    for form, rate in rates.items():
        assert chip.compute.matrix_rate[form] == pytest.approx(rate * TERA)
    assert chip.memory.bandwidth == pytest.approx(bandwidth * 1e9)
    assert chip.memory.capacity == pytest.approx(capacity * 2**30)
    assert power is None or chip.energy.power_limit == power
    fabric = st.fabric(chip.fabric)
    assert fabric.dimension[0].bandwidth == pytest.approx(link * 1e9)
    inner = 1.0
    for dimension in fabric.dimension:
        inner *= dimension.size or 1.0
    assert inner == DOMAINS.get(name, 8)


@pytest.mark.parametrize("name", NEW)
def test_it_evaluates_and_keeps_below_its_peaks(name):
    devices, plan = (64, "tp=8,pp=8") if name == "groq-lpu" else (8, "tp=8")
    model = "llama-3.2-1b" if name == "groq-lpu" else "llama-3-8b"
    where = st.system(f"{devices}x{name}")
    for work in (st.decode(batch=4, context=512), st.prefill(batch=1, length=512)):
        got = st.evaluate(where, model, work, plan)
        assert not got.infeasible
        assert 0 < float(got.metrics.tokens_per_s) < float("inf")
        assert float(got.metrics.mfu) <= 1


@pytest.mark.parametrize("name", names("chip"))
def test_every_number_has_a_mark(name):
    numbers = describe("chip", name)["numbers"]
    assert numbers
    for path, entry in numbers.items():
        assert entry["mark"] in MARKS, path
        assert bool(entry["from"]) == (entry["mark"] == "inherited"), path
        if entry["mark"] == "own":
            assert not entry["source"].lower().startswith(("assumed", "derived", "fitted", "inherited"))


def test_amd_chips_take_nothing_from_serving_runs():
    for name in ("mi300x", "mi350x", "mi355x", "mi455x"):
        told = [p.source for p in stated(st.chip(name)).values()]
        assert not [source for source in told if "serving/" in source]


def test_formats_use_the_rates_that_a_chip_states():
    amd, nvidia = st.chip("mi355x").compute.matrix_rate, st.chip("b200").compute.matrix_rate
    rate = precision.rate_of
    assert rate(amd, "mxfp6") == rate(amd, "mxfp4") == pytest.approx(2 * rate(amd, "mxfp8"), rel=1e-4)
    assert rate(nvidia, "nvfp4") == rate(nvidia, "mxfp4") == rate(nvidia, "fp4")
    assert rate(nvidia, "mxfp6") == rate(nvidia, "mxfp8") == rate(nvidia, "fp8")
    assert not precision.supports(amd, "nvfp4")  # widened, as other formats a chip has no units for


@pytest.mark.parametrize("engine", ["ideal", "vllm"])
def test_formats_by_name_for_weights_activations_and_caches(engine):
    base = st.model("llama-3-8b")
    work = st.decode(batch=64, context=4096)

    def memory(**formats):
        return st.evaluate(
            "8xb200", replace(base, **formats), work, "tp=8", engine=engine
        ).metrics.memory_used

    at = {
        name: float(memory(weights=name, kv=name))
        for name in ("nvfp4", "fp4", "mxfp4", "mxfp6", "mxfp8", "fp8")
    }
    assert at["nvfp4"] == at["fp4"]
    assert at["mxfp4"] < at["nvfp4"] < at["mxfp6"] < at["fp8"] < at["mxfp8"]
    for name in ("nvfp4", "mxfp4", "mxfp6", "mxfp8"):
        memory(activations=name, weights=name)


@pytest.mark.parametrize(
    ("spelled", "system"),
    [
        ("b200_sxm", "1xb200"),
        ("B200SXMx8", "8xb200"),
        ("H100-SXM-80GBx8", "8xh100"),
        ("H100-SXM-80GB x 8", "8xh100"),
        ("8xMI300X", "8xmi300x"),
        ("MI300Xx8", "8xmi300x"),
        ("8x H100 NVL", "8xh100-nvl"),
        ("H100 NVL", "1xh100-nvl"),
        ("gb200", "1xgb200"),
        ("72x GB200-186GB_aarch64", "72xgb200"),
        ("GB200 NVL72", "gb200-nvl72"),
        ("b300_sxm", "1xb300"),
        ("AMD Instinct MI355X OAM", "1xmi355x"),
        ("MI325X-256GB", "1xmi325x"),
        ("NVIDIA A100-SXM4-80GB", "1xa100-80"),
        ("NVIDIA H100 80GB HBM3", "1xh100"),
        ("rtx 4090", "1xrtx-4090"),
        ("TPU v5e", "1xtpu-v5e"),
    ],
)
def test_systems_as_publishers_spell_them(spelled, system):
    assert st.system(spelled).name == system


def test_a_spelling_means_one_thing_of_its_kind_and_an_unknown_one_none():
    for kind in KINDS:
        assert len({plain_name(name) for name in names(kind)}) == len(names(kind))
    assert [st.chip(n).name for n in ("H100 NVL", "h200_sxm", "MI355X")] == ["h100-nvl", "h200", "mi355x"]
    assert find("engine", "TensorRT-LLM").stem == "trtllm"
    for wrong in ("a100-20gb", "H100 SXX", "sxm", "8x", "x8", "", "NVIDIA"):
        with pytest.raises(ValueError, match="no chip called"):
            st.chip(wrong)
        with pytest.raises(ValueError, match="no system called"):
            st.system(wrong)
