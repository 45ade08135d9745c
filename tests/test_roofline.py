"""Roofs of a chip and the ops of a step under them, as numbers and as a picture."""

import pytest

import strata as st
from strata.app.render.roofline_picture import named_groups
from strata.base.errors import BadValue
from strata.hardware.hierarchy import memory_levels
from strata.roofline import roofline_of


@pytest.fixture(scope="module")
def decoded():
    return st.evaluate("8xh200", "llama-3-70b", st.decode(batch=64, context=2048), "tp=8")


def test_roofs_are_the_levels_of_the_chip(decoded):
    found, chip = roofline_of(decoded), decoded.system.chip
    assert [roof.name for roof in found.roofs] == [level.name for level in memory_levels(chip)]
    assert all(roof.bandwidth <= roof.peak for roof in found.roofs)
    assert found.ceilings[0].name == "bf16" and found.ceilings[-1].name == "vector"


def test_points_lie_under_the_roof_of_their_level_and_under_a_ceiling(decoded):
    found = roofline_of(decoded)
    peaks = {roof.name: roof.peak for roof in found.roofs}
    for point in found.points:
        assert point.rate <= peaks[point.level] * point.intensity * (1 + 1e-9)
        assert point.rate <= found.ceilings[0].peak
        assert point.intensity * point.moved == pytest.approx(point.flop)


def test_shares_add_up_with_what_computes_nothing(decoded):
    found = roofline_of(decoded)
    assert sum(p.share for p in found.points) + found.hidden == pytest.approx(1.0)
    assert sum(p.time for p in found.points) == pytest.approx((1 - found.hidden) * decoded.timeline.time)
    assert [p.time for p in found.points] == sorted((p.time for p in found.points), reverse=True)


def test_a_product_stands_where_its_bytes_put_it(decoded):
    """Few rows against many weights: about one operation for each byte and row."""
    [up] = [p for p in roofline_of(decoded).points if p.op == "up"]
    assert up.intensity == pytest.approx(64.0, rel=0.05) and up.bound_by == "memory" and up.count == 80


def test_dots_of_one_place_share_a_name(decoded):
    groups = named_groups(roofline_of(decoded))
    assert {"up", "down"} <= {point.op for point in groups[0]}


def test_a_box_has_no_roofline():
    import numpy as np

    box = st.evaluate("8xh200", "llama-3-8b", st.decode(batch=np.array([1.0, 8.0]), context=512), "tp=8")
    with pytest.raises(BadValue, match="single point"):
        roofline_of(box)


@pytest.mark.parametrize("system", ["8xh200", "1xtpu-v4"])
def test_the_command_draws_it(answer, tmp_path, system):
    picture = tmp_path / "roofs.svg"
    answer(
        "predict", "-m", "llama-3-8b", "-s", system, "--batch", 4, "--phase", "prefill", "--roofline", picture
    )
    text = picture.read_text(encoding="utf-8")
    assert "Roofline of" in text and "bound by compute" in text and "cache" in text


def test_other_formats_are_one_line(strata, tmp_path):
    got = strata("predict", "-m", "llama-3-8b", "-s", "8xh200", "--roofline", tmp_path / "roofs.gif")
    assert got.code == 2 and "ends in .svg" in got.err
