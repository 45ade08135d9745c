"""Collectives on real nodes: laws of every way there is, and how near the transports come to measured ones."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hy

import strata as st
from strata.base.arrays import enable_jax
from strata.base.errors import BadFile, BadValue, UnknownName
from strata.hardware.fabric import with_library
from strata.hardware.transport import transport
from strata.mapping.place import GroupLayout, spread
from strata.params import unfitted
from strata.pricing.network.collectives import PATTERNS, algorithm_times, chosen_algorithms, price_collective
from strata.pricing.network.transport_times import expert_exchange
from strata.validation.fit.calibrate import calibrate, fitted_entries, overlay_toml
from strata.validation.measured.reader import reader_of
from strata.validation.readers.comparison import held_out
from strata.validation.readers.labels import Catalogue
from strata.validation.readers.tables import read_table
from strata.workload.graph import Collective

DATA = Path(__file__).parents[3] / "validation"
NODES = ("hgx-a100", "hgx-h100", "hgx-h200", "hgx-b200")
SPEAKS = ("ideal", "library", "any", "vllm", "sglang", "trtllm")
SIZES = 2.0 ** np.arange(0.0, 31.0, 0.5)


def fabric(name="hgx-h200", speaks="any"):
    return with_library(st.hardware.sized(st.fabric(name), (8.0, 1.0)), speaks)


def time_of(pattern, payload, ranks, where):
    return price_collective(
        Collective(pattern=pattern, group="tp", payload=payload), spread(1.0, ranks, where), where
    ).time


@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("speaks", SPEAKS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_time_grows_with_size_and_stays_above_its_bounds(name, speaks, pattern):
    where = fabric(name, speaks)
    link = where.dimension[0]
    for ranks in (2.0, 3.0, 4.0, 7.0, 8.0):
        op = Collective(pattern=pattern, group="tp", payload=SIZES)
        price = price_collective(op, spread(1.0, ranks, where), where)
        assert np.all(np.diff(price.time) >= -1e-18)
        assert np.all(price.time >= price.lower)
        assert np.all(price.time >= link.latency)


@pytest.mark.parametrize("name", NODES)
def test_every_way_moves_at_least_what_must_cross_the_link(name):
    """Not the cheapest way only: no way is faster than a link at its peak."""
    link = fabric(name).dimension[0]
    for ranks in (2.0, 5.0, 8.0):
        for pattern in PATTERNS[:4]:
            crossing = (ranks - 1.0) / ranks * SIZES / link.bandwidth
            for way, time in algorithm_times(pattern, SIZES, GroupLayout(ranks, 1.0), link).items():
                passes = 2.0 if pattern == "all_reduce" and way != "in switch" else 1.0
                assert np.all(time >= passes * crossing), way


@given(
    hy.sampled_from(NODES), hy.sampled_from(SPEAKS), hy.sampled_from(PATTERNS),
    hy.lists(hy.tuples(hy.floats(0.0, 31.0), hy.sampled_from([1.0, 2.0, 3.0, 4.0, 8.0])), min_size=2, max_size=6),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_a_batch_equals_its_singles(name, speaks, pattern, points):
    where = fabric(name, speaks)
    sizes, ranks = 2.0 ** np.array([p[0] for p in points]), np.array([p[1] for p in points])
    batch = np.broadcast_to(time_of(pattern, sizes, ranks, where), sizes.shape)
    for i in range(len(points)):
        assert time_of(pattern, float(sizes[i]), float(ranks[i]), where) == pytest.approx(batch[i], rel=1e-12)


def test_jax_prices_the_same():
    pytest.importorskip("jax")
    jax = enable_jax()
    where = fabric()
    for pattern in PATTERNS:
        traced = jax.jit(lambda n, f, pattern=pattern: time_of(pattern, n, 8.0, f))(
            jax.numpy.asarray(SIZES), where
        )
        assert np.allclose(np.asarray(traced), time_of(pattern, SIZES, 8.0, where), rtol=1e-12)


def test_a_group_of_one_and_nothing_to_send_take_no_time():
    where = fabric()
    for pattern in PATTERNS:
        assert time_of(pattern, 1e6, 1.0, where) == 0.0
        assert np.array_equal(
            time_of(pattern, np.array([0.0, 1.0]), 8.0, where) > 0, [pattern == "send", True]
        )


def test_a_better_link_is_faster_under_every_transport():
    """Shares and steps are relative to the link, so that a sweep of its bandwidth or latency means something."""
    for pattern in PATTERNS:
        slow, fast = (
            time_of(pattern, 2.0**30, 8.0, st.hardware.sized(st.fabric("hgx-h200", bandwidth=b), (8.0, 1.0)))
            for b in (450e9, 900e9)
        )
        assert fast < 0.8 * slow
    near, far = (
        time_of("all_gather", 1024.0, 8.0, st.hardware.sized(st.fabric("hgx-h200", latency=a), (8.0, 1.0)))
        for a in (1.25e-6, 2.5e-6)
    )
    assert far > near


@pytest.mark.parametrize(
    ("speaks", "pattern", "payload", "way"),
    [
        ("library", "all_gather", 1024.0, "ring ll"),
        ("library", "all_gather", 2.0**19, "ring ll128"),
        ("library", "all_gather", 2.0**29, "ring simple"),
        ("library", "all_reduce", 2.0**29, "in switch"),
        ("library", "all_to_all", 4096.0, "pairs ll"),
        ("library", "send", 2.0**26, "send simple"),
        ("vllm", "all_reduce", 4096.0, "one-shot vllm"),
        ("vllm", "all_reduce", 2.0**22, "two-shot vllm"),
        ("trtllm", "all_reduce", 2.0**22, "ring simple"),  # it has no two-shot kernel
        ("ideal", "all_reduce", 2.0**29, "in switch"),
    ],
)
def test_the_cheapest_way_has_a_name(speaks, pattern, payload, way):
    where = fabric(speaks=speaks)
    op = Collective(pattern=pattern, group="tp", payload=payload)
    assert chosen_algorithms(op, spread(1.0, 8.0, where), where) == (way, "")


def test_a_switch_that_does_not_add_up_leaves_it_to_rings():
    where = fabric("hgx-h200", "library")
    none = replace(where, dimension=tuple(replace(d, reduction=0.0) for d in where.dimension))
    assert (
        chosen_algorithms(
            Collective(pattern="all_reduce", group="tp", payload=2.0**29), spread(1.0, 8.0, none), none
        )[0]
        == "ring simple"
    )
    with pytest.raises(BadValue, match="must be one of all_reduce"):
        chosen_algorithms(
            Collective(pattern="gossip", group="tp", payload=1.0), spread(1.0, 8.0, where), where
        )


def test_engines_speak_their_own_collectives():
    work, how = st.decode(batch=8, context=1024), st.plan(tp=8)
    step = {
        e: st.evaluate("8xh200", "llama-3-70b", work, how, engine=e).summary.time_by_kind["collective"]
        for e in ("megatron", "vllm", "ideal")
    }
    assert step["ideal"] <= step["vllm"] < 0.6 * step["megatron"]


def test_few_experts_receive_slowly():
    link = Catalogue().system("8xh200").fabric.dimension[0]
    few, many = (
        expert_exchange(8e6, 8.0, e, link.bandwidth, "dispatch", link.transport_model.experts)
        for e in (8.0, 128.0)
    )
    assert few > 3.0 * many


# ------------------------------------------------------------------------------------------------- measured


@pytest.mark.parametrize("name", ["ops/nccl.csv", "ops/custom_allreduce.csv", "ops/deepep_low_latency.csv"])
def test_measured_collectives_that_no_fit_has_seen(name):
    """15 % or less of each file and of each system in it, rows with the host's launch apart."""
    found = held_out(reader_of(name, Catalogue())(read_table(DATA, name), Catalogue()))
    error = np.abs(found.predicted / found.measured - 1.0)
    systems = np.array([g.split("/")[0] for g in found.group])
    assert error[found.headline].mean() <= 0.10
    for system in np.unique(systems):
        assert error[found.headline & (systems == system)].mean() <= 0.15, system


def test_a_transport_is_fitted_and_written(tmp_path):
    (tmp_path / "ops").mkdir()
    rows = (DATA / "ops/deepep_low_latency.csv").read_text()
    (tmp_path / "ops/deepep_low_latency.csv").write_text(rows)
    with unfitted():
        made, (outcome,) = calibrate("nvlink5", tmp_path, kind="transport", date="2026-01-01")
        assert made.rings.own == transport("nvlink5").rings.own
    assert set(outcome.values) == {p for p in outcome.values if p.startswith("experts.")}
    assert "rows of nodes with nvlink5" in outcome.source
    assert "[experts.share]" in overlay_toml(fitted_entries(made, [outcome]))
    (tmp_path / "ops/deepep_low_latency.csv").write_text(rows.splitlines()[0] + "\n")
    with pytest.raises(BadFile, match="nothing to fit nvlink5 on"):
        calibrate("nvlink5", tmp_path, kind="transport")


def test_a_transport_nobody_knows(tmp_path):
    text = (
        (Path(st.__file__).parent / "data/fabrics/hgx-h200.toml")
        .read_text()
        .replace('"nvlink4"', '"nvlink44"')
    )
    (tmp_path / "node.toml").write_text(text)
    with pytest.raises(UnknownName, match="nvlink4"):
        st.fabric(str(tmp_path / "node.toml"))
