"""The Mapping page's answers: what `strata map` finds, on the graph it is drawn on."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

import strata as st
from strata.app.terminal import plain_json
from strata.app.web.answers import mapping
from strata.base.errors import StrataError
from strata.optimise.joint import map_program, usual_layout


def test_partitions_are_those_of_map_program():
    told = mapping.fused({})
    code = st.program("gpt3-layer")
    found = map_program(code, "8xsn10", st.forward(1.0), plan=usual_layout(code, "tp=8"))
    assert told["step"] == found.best.step and told["optimal"] and told["gap"] == found.gap
    assert [p["kernels"] for p in told["partitions"]] == [
        list(p.kernels) for p in found.best.layer.blocks[0].fusion.partitions
    ]
    best, apart = told["totals"]
    assert apart["name"] == "kernel by kernel" and apart["time"] > best["time"]
    assert apart["traffic"] > best["traffic"] and best["sram"] <= told["sram_limit"] * (1 + 1e-9)


def test_every_op_stands_in_one_partition_and_on_the_page():
    told = plain_json(mapping.fused({"program": "mixtral-8x7b", "phase": "decode", "plan": "tp=8,ep=8"}))
    parts = told["partitions"]
    for block in told["graph"]:
        for node in block["nodes"]:
            assert 0 <= node["x"] <= block["width"] and 0 <= node["y"] <= block["height"]
            if node["kind"]:
                assert node["name"] in parts[node["partition"]]["kernels"]
    assert told["notes"] == [] and len(told["graph"]) > 2


def test_a_search_tells_how_it_closes_in():
    news: list[dict] = []
    told = mapping.searched({"program": "mlp-8192", "system": "8xsn40l", "seconds": 20}, news.append)
    assert told["optimal"] and told["bound"] <= told["step"]
    assert news and news[-1]["best"] >= told["step"] * (
        1 - 1e-9
    )  # of a division that was looked at on the way
    assert all(each["bound"] <= each["best"] * (1 + 1e-9) for each in news)


@pytest.mark.parametrize(
    "wrong",
    [
        {"program": "nonesuch"},
        {"system": "8xnone"},
        {"plan": ""},
        {"plan": "tp=3"},
        {"plan": "nonsense"},
        {"program": "dlrm-dcnv2", "system": "8xsn40l"},
    ],
)
def test_mistakes_are_one_line(wrong):
    with pytest.raises(StrataError) as error:
        mapping.fused(wrong)
    assert "\n" not in str(error.value)


def test_questions_have_ends():
    for wrong in ({"seconds": 1e9}, {"phase": "x"}, {"batch": 0}, {"program": "/etc/passwd"}):
        with pytest.raises(ValidationError):
            mapping.MappedProgram(**wrong)
