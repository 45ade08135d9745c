"""Whole servers at the plug: nothing is fitted to them, so that every row judges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from strata.errors import BadValue, UnknownName
from strata.validation.readers.benchmark_conditions import read_conditions
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.mlperf_prompts import mlperf_prompts
from strata.validation.readers.registry import reader_of
from strata.validation.readers.server_power import (
    ServerPowerConditions,
    machine_named,
    server_power_range,
)
from strata.validation.readers.tables import read_table

FOLDER = Path(__file__).parents[3] / "validation"
FILE = "serving/mlperf_power.csv"
CATALOGUE = Catalogue()


def read(folder=FOLDER):
    return reader_of(FILE, CATALOGUE)(read_table(folder, FILE), CATALOGUE)


@pytest.fixture(scope="module")
def known():
    return read_conditions(ServerPowerConditions, read_table(FOLDER, FILE), "serving/mlperf_power.toml")


def test_every_server_is_within_fifteen_per_cent_and_all_of_them_within_five_on_average():
    points = read()
    error = np.abs(points.predicted / points.measured - 1.0)
    assert len(points) == 20 and not points.why
    assert error.max() < 0.15 and error.mean() < 0.05
    assert "power/H200-SXM-141GBx8_TRT_MaxQ/llama2-70b-99.9" in set(points.group)


@pytest.mark.parametrize(
    ("name", "machine"),
    [
        ("H200-SXM-141GBx8_TRT_MaxQ", ("h200", 8)),
        ("DGX-H100_H100-SXM-80GBx8_TRT_MaxQ", ("h100", 8)),
        ("XE9680_H100_SXM_80GBx8_TRT_MaxQ", ("h100", 8)),
        ("ESC4000_H100-NVL-94GBx4_TRT", ("h100-nvl", 4)),
        ("L40Sx8_TRT", ("l40s", 8)),
        ("8xMI300X_2xEPYC_9374F", ("mi300x", 8)),
    ],
)
def test_systems_are_read_from_the_names_of_submissions(name, machine):
    assert machine_named(name, CATALOGUE) == machine


def test_a_limit_that_nobody_published_is_a_range_from_half_to_all_of_the_chips_own(known):
    chip = CATALOGUE.chip("b200")
    assert known.power_limits_of(chip, "llama2-70b", "B200x8_MaxQ") == (500.0, 1000.0)
    assert known.power_limits_of(chip, "llama2-70b", "B200x8") == (1000.0, 1000.0)
    low, high = server_power_range("B200-SXM-180GBx8_TRT_MaxQ", "llama2-70b-99", known, CATALOGUE)
    assert 1.2 * low < high
    # one whose limit is published has only the range of its prompts
    low, high = server_power_range("H200-SXM-141GBx8_TRT_MaxQ", "llama2-70b-99", known, CATALOGUE)
    assert low <= high < 1.1 * low


def test_a_lower_limit_draws_less_at_the_plug_and_never_more_than_devices_at_it(known):
    lowered, full = (
        server_power_range(f"H200-SXM-141GBx8_TRT{more}", "llama2-70b", known, CATALOGUE)
        for more in ("_MaxQ", "")
    )
    assert max(lowered) < min(full)
    assert 8 * 500.0 < lowered[1] < 8 * 500.0 * 1.3 + 8 * 144.0 * 1.3


def test_rows_that_cannot_be_read_are_listed_and_the_others_are_predicted(tmp_path):
    (tmp_path / "serving").mkdir()
    head = "round,submitter,system,benchmark,scenario,watts_in_window,tokens_per_s\n"
    rows = [
        "4.1,A,H200-SXM-141GBx8_TRT_MaxQ,gptj-99,Offline,4700,13000",
        "4.1,A,Abacus-9000x8,gptj-99,Offline,4700,13000",
        "4.1,A,H200-SXM-141GBx8_TRT_MaxQ,bert-99,Offline,4700,13000",
        "4.1,A,,gptj-99,Offline,4700,13000",
        "4.1,A,H200-SXM-141GBx8_TRT_MaxQ,gptj-99,Offline,,13000",
    ]
    (tmp_path / FILE).write_text(head + "\n".join(rows) + "\n")
    points = read(tmp_path)
    assert len(points) == 4 and sorted(points.why) == [3, 4, 5]
    assert (points.predicted > 0).sum() == 1


def test_benchmarks_without_lengths_say_which_have_them(known):
    with pytest.raises(BadValue, match="llama2-70b, gptj"):
        known.served("bert-99")
    assert known.served("llama2-70b-interactive-99.9").model == "llama-2-70b"


def test_both_files_of_mlperf_rest_on_one_table_of_prompts(known):
    prompts = mlperf_prompts()
    assert set(prompts.likely) == set(prompts.least) == set(prompts.most)
    for model, likely in prompts.likely.items():
        least, most = prompts.interval(model)
        assert least <= likely <= most
    assert {b.model for b in known.benchmark} <= set(prompts.likely)
    with pytest.raises(UnknownName, match="bert"):
        prompts.interval("bert")
