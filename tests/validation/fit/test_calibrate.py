"""Calibration: it finds what made the data, says what it rests on, and refuses what it cannot know."""

import csv
import tomllib
from pathlib import Path

import numpy as np
import pytest

import strata as st
from strata.base.errors import BadFile, UnknownName
from strata.params import data_folder
from strata.pricing.kernels.device import device
from strata.pricing.kernels.matmul import matmul
from strata.validation.fit.calibrate import calibrate, carried, fitted_entries, overlay_toml
from strata.validation.fit.shipped import Calibration, calibrate_all, shipped_calibration, stale_numbers
from strata.validation.fit.table import fit_table

DATA = Path(__file__).parents[3] / "validation"
TRUTH = {"overhead.kernel": 4.2e-6, "memory.efficiency": 0.7, "compute.matrix_efficiency.bf16": 0.62}


def write_products(folder, chip, rows=150, noise=0.02):
    """Products of random shapes timed by our own equations with other quantities, and some noise."""
    rng = np.random.default_rng(1)
    m, n, k = (np.exp2(rng.uniform(low, high, rows)).round() for low, high in ((0, 13), (9, 15), (9, 14)))
    time = matmul(m, n, k, device(chip, resident=False), "bf16", "bf16").time * np.exp(
        rng.normal(0, noise, rows)
    )
    (folder / "h200").mkdir()
    with (folder / "h200" / "gemm.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["name", "dtype", "m", "n", "k", "median_s", "min_s", "max_s"])
        writer.writerows(
            [f"r{i}", "bf16", *map(float, row), row[-1], row[-1]]
            for i, row in enumerate(zip(m, n, k, time, strict=True))
        )


def test_it_finds_the_quantities_behind_the_data(tmp_path):
    write_products(tmp_path, st.chip("h200", **TRUTH))
    made, (found,) = calibrate("h200", tmp_path, only=("products",), date="2026-01-01")
    assert found.after < 0.03 < found.before
    for path, value in TRUTH.items():
        assert found.values[path] == pytest.approx(value, rel=0.1), path
    assert "compute.matrix_efficiency.fp8" not in found.values  # no row of that format
    source = made.sources["memory.efficiency"].source
    assert (
        source.startswith("fitted: h200/gemm.csv")
        and "2026-01-01" in source
        and f"{found.held_out} rows" in source
    )


def test_what_it_writes_is_a_chip(tmp_path):
    write_products(tmp_path, st.chip("h200", **TRUTH))
    made, outcomes = calibrate("h200", tmp_path, only=("products",), date="2026-01-01")
    path = tmp_path / "mine.toml"
    path.write_text('base = "h200"\nname = "mine"\n\n' + overlay_toml(fitted_entries(made, outcomes)))
    again = st.chip(str(path))
    assert again.name == "mine" and again.memory.efficiency == pytest.approx(made.memory.efficiency)
    assert again.sources["overhead.kernel"].source.startswith("fitted: ")


def test_too_few_rows_rows_of_another_chip_and_unknown_families_are_refused(tmp_path):
    write_products(tmp_path, st.chip("h200"), rows=10)
    with pytest.raises(
        BadFile, match=r"nothing to fit h200 on: it needs at least 12 rows .* products: 10 rows"
    ):
        calibrate("h200", tmp_path)
    with pytest.raises(BadFile, match=r"nothing to fit b200 on: .* products: 0 rows of b200"):
        calibrate("b200", tmp_path)
    with pytest.raises(UnknownName, match="nearest: products"):
        calibrate("h200", tmp_path, only=("product",))
    with pytest.raises(BadFile, match="no data folder"):
        calibrate("h200", tmp_path / "nowhere")


def test_shipped_numbers_are_what_the_fit_gives_and_a_changed_one_is_found(tmp_path, monkeypatch):
    """Quick fits here; `make proof` makes every number anew."""
    made = calibrate_all(DATA, ["a100-80", "nvlink3", "megatron"])
    assert {one.name for one in made} == {"a100-80", "nvlink3", "megatron"}
    assert [line for one in made for line in stale_numbers(one)] == []
    changed = tmp_path / "nvlink3.toml"
    text = (data_folder("calibration") / "transports" / "nvlink3.toml").read_text(encoding="utf-8")
    (nvlink3,) = (one for one in made if one.name == "nvlink3")
    value = nvlink3.entries["rings.start.flagged"].value * 1e6
    changed.write_text(text.replace(f'"{value:.3g} us"', f'"{value * 1.001:.5g} us"', 1))
    monkeypatch.setattr(Calibration, "path", property(lambda one: tmp_path / f"{one.name}.toml"))
    (line,) = stale_numbers(nvlink3)
    assert line.startswith("nvlink3.toml: rings.start.flagged: ") and f"the fit gives {value:.3g} us" in line


def test_shipped_fits_say_what_they_rest_on():
    for name in ("h200", "a100-80", "b200"):
        fitted = [p for p in st.chip(name).sources.values() if p.source.startswith("fitted: ")]
        assert len(fitted) >= 7 and all(
            "held-out third" in p.source or "none to spare" in p.source for p in fitted
        )
    assert all(not p.source.startswith("fitted") for p in st.chip("h100").sources.values())


def test_products_that_dram_does_not_bind_tell_no_energy_of_it(tmp_path):
    """Thirteen such rows gave B200 a third of the energy its DRAM takes."""
    (tmp_path / "ops").mkdir()
    head = "system,framework,gemm_dtype,m,n,k,latency_ms,power_w,power_limit_w"
    rows = [
        f"b200_sxm,trtllm,bfloat16,{m},2048,12288,{m / 26800},{690 + m / 400},1000"
        for m in range(8192, 16384, 512)
    ]
    (tmp_path / "ops" / "gemm_power.csv").write_text("\n".join((head, *rows)) + "\n")
    with pytest.raises(BadFile, match="nothing to fit b200 on"):
        calibrate("b200", tmp_path, only=("power",), date="2026-01-01")


def test_what_dram_takes_is_carried_only_to_chips_with_the_same_kind_of_it():
    """A refit wrote H200's HBM3e over what H100 says of its HBM3."""
    h200 = shipped_calibration("h200", "chip")
    for name, kept in (("h100", False), ("h200-nvl", True)):
        taken = carried(h200.entries, h200.record, st.chip(name), "the same die")
        assert "energy.cache" in taken and ("energy.memory" in taken) == kept
    for name, rule in fit_table().siblings.items():
        if st.chip(name).memory.kind.lower() != st.chip(rule["of"]).memory.kind.lower():
            shipped = (data_folder("calibration") / "chips" / f"{name}.toml").read_text(encoding="utf-8")
            assert "memory" not in tomllib.loads(shipped).get("energy", {})
