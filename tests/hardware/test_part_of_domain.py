"""Part of a domain: 64 of 72 GPUs, links of a mesh that lead to nobody, slices of tori."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as strat

import strata as st
from strata.base.errors import StrataError
from strata.hardware.part_of_domain import used_part


def sizes(name):
    return [d.size for d in st.system(name).fabric.dimension]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("64xgb200", [64, 1]),
        ("64of72xgb200", [64, 1]),
        ("2x64of72xgb200", [64, 2]),
        ("128xgb300", [64, 2]),
        ("1024xgb200", [64, 16]),
        ("144xgb200", [72, 2]),
        ("36of72xvr200", [36, 1]),
        ("6of8xh200", [6, 1]),
        ("8xtpu-v5e", [4, 2, 1]),
        ("64xtpu-v6e", [8, 8, 1]),
        ("128xtpu-v5p", [8, 4, 4, 1]),
        ("512xtpu-v7x", [8, 8, 8, 1]),
        ("512xtpu-v5e", [16, 16, 2]),
        ("16xtrainium2", [4, 4, 1, 1]),
        ("64xtrainium2", [4, 4, 4, 1]),
    ],
)
def test_names_of_parts(name, expected):
    assert sizes(name) == expected


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("64of70xgb200", "a domain of fabric nvl72 has 72 devices"),
        ("80of72xgb200", "at most 72"),
        ("100xgb200", "2x50x"),
        ("9xh200", "whole nodes of 8"),
        ("0of72xgb200", "at least one device"),
        ("257xtpu-v5p", "no slice"),
    ],
)
def test_what_is_no_part(name, said):
    with pytest.raises(StrataError, match=said):
        st.system(name)


@settings(max_examples=25, deadline=None)
@given(
    strat.sampled_from(["llama-3-8b", "llama-3-70b", "qwen3-30b-a3b"]),
    strat.sampled_from([(8, 8, 1), (16, 4, 1), (8, 8, 8), (64, 1, 1), (2, 32, 1), (32, 2, 64)]),
    strat.sampled_from([64, 512]),
    strat.booleans(),
)
def test_64_of_72_are_never_slower_than_64_on_nodes_of_8(model, degrees, batch, prompt):
    """The same chips in one domain of a slower switch step, or eight nodes: at equal links of the node."""
    tp, dp, ep = degrees
    if tp == 32 and ep > 1 and model != "qwen3-30b-a3b":
        ep = 1
    plan = f"tp={tp},dp={dp}" + (f",ep={ep}" if ep > 1 and model == "qwen3-30b-a3b" else "")
    chip = st.chip("gb200")
    rack = st.hardware.sized(st.fabric("nvl72"), (64, 1))
    nodes = st.hardware.sized(st.fabric("nvl72"), (8, 8))
    work = st.prefill(batch=batch, length=256) if prompt else st.decode(batch=batch, context=1024)
    try:
        one = st.evaluate(st.system(chip, rack), model, work, plan)
        other = st.evaluate(st.system(chip, nodes), model, work, plan)
    except StrataError:  # a plan that does not divide the model is refused on both
        return
    assert float(one.metrics.tokens_per_s) >= float(other.metrics.tokens_per_s) * (1 - 1e-9)


def test_a_group_inside_one_domain_stays_there():
    """Two racks of 64: expert groups of 64 lie inside a rack, and take as long as in one rack alone."""
    work = st.decode(batch=1024, context=1024)
    one = st.evaluate("64of72xgb200", "qwen3-30b-a3b", work, "tp=1,dp=64,ep=64")
    two = st.evaluate(
        "2x64of72xgb200", "qwen3-30b-a3b", st.decode(batch=2048, context=1024), "tp=1,dp=128,ep=64"
    )
    assert float(two.metrics.tokens_per_s) == pytest.approx(2 * float(one.metrics.tokens_per_s), rel=1e-6)


def test_half_a_mesh_has_the_links_between_its_members():
    """Four of eight GPUs with a link for each pair: three links of seven, as a group of four of all eight has."""
    half = st.evaluate("4xmi325x", "llama-3-8b", st.prefill(batch=4, length=2048), "tp=4")
    both = st.evaluate("8xmi325x", "llama-3-8b", st.prefill(batch=8, length=2048), "tp=4,dp=2")
    assert st.system("4xmi325x").fabric.dimension[0].bandwidth == pytest.approx(3 * 64e9)
    assert float(both.metrics.tokens_per_s) == pytest.approx(2 * float(half.metrics.tokens_per_s), rel=1e-9)
    assert "3 of 7" in st.system("4xmi325x").fabric.sources["dimension.0.bandwidth"].source


def test_slices_of_a_torus_close_only_where_they_wrap():
    kinds = {
        n: [d.kind for d in st.system(n).fabric.dimension[:2]]
        for n in ("256xtpu-v5e", "128xtpu-v5e", "64xtpu-v5e")
    }
    assert kinds["256xtpu-v5e"] == ["ring", "ring"]
    assert kinds["128xtpu-v5e"] == ["ring", "chain"]
    assert kinds["64xtpu-v5e"] == ["chain", "chain"]
    assert [d.kind for d in used_part(st.fabric("tpu-v5p-torus"), (4.0, 4.0, 2.0)).dimension[:3]] == [
        "ring",
        "ring",
        "chain",
    ]
