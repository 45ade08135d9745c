"""Rows of memories and dies: the line that a row stands for gives the same number."""

import shlex

import pytest

from strata.base.shipped import shipped_folder
from strata.validation.measured.reader import row_points


@pytest.mark.parametrize(
    ("name", "line", "number"),
    [
        ("dram/channel.csv", 7, lambda told: told["runs"][0]["bandwidth_B_per_s"]),
        ("dram/channel.csv", 200, lambda told: told["runs"][0]["bandwidth_B_per_s"]),
        ("area/deepstack_cores.csv", 5, lambda told: told["cores"]),
    ],
)
def test_the_line_of_a_row_gives_its_prediction(answer, name, line, number):
    (point,) = row_points(shipped_folder("validation"), name, line)
    told = answer(*shlex.split(point["command"])[1:], "--json")
    assert number(told) == pytest.approx(point["predicted"], rel=1e-9)
