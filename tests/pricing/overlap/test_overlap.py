"""Laws of communication beside computation: bounded by its parts, off where it loses, the same in a
batch.
"""

from dataclasses import fields, replace

import numpy as np
import pytest
from cases import rank_graph
from hypothesis import given, settings
from hypothesis import strategies as draw

import strata as st
from strata.hardware.fabric import fabric, sized
from strata.mapping.place import place, spread
from strata.mapping.plan import Plan
from strata.params import names
from strata.pricing.kernels.device import device
from strata.pricing.kernels.matmul import matmul
from strata.pricing.overlap.tiles import fuse, overlap_by_tile, pairs, tile_link
from strata.pricing.price import Price, in_pieces, own_first, slowed, while_sending
from strata.pricing.pricers import Rank
from strata.software.engine import engine
from strata.workload.graph import Collective, is_collective

TIME = draw.floats(0.0, 1e3)
PIECES = draw.floats(1.0, 1e4)
CASES = {
    "tensor prefill": ("8xh100", "llama-3-70b", st.prefill(8, 4096), "tp=8"),
    "tensor decode": ("8xh200", "llama-3-70b", st.decode(batch=64, context=2048), "tp=8"),
    "experts prefill": ("8xh200", "deepseek-v3", st.prefill(32, 1024), "dp=8,ep=8"),
    "experts decode": ("8xh200", "deepseek-v3", st.decode(batch=1024, context=1536), "dp=8,ep=8"),
    "tensor experts": ("8xh200", "deepseek-v3", st.prefill(32, 1024), "tp=8"),
    "many nodes": ("32xh200", "deepseek-v3", st.prefill(64, 1024), "dp=32,ep=32"),
    "ideal links": (
        "256xstack-ref",
        "deepseek-v3",
        st.decode(batch=1024, context=1536),
        "tp=4,dp=32,pp=2,ep=32",
    ),
    "served": ("8xh200", "llama-3-70b", st.serve(batch=32, input=2048, output=128), "tp=8"),
}
HOW = ("tiles", "dual_batch")
QUIET, BUSY = Price(), Price(time=1.0, compute=1.0)
NODE, H200 = sized(fabric("hgx-h200"), (8.0, 1.0)), device(st.chip("h200"))


def asked(case, how):
    system, model, work, plan = CASES[case]
    return st.evaluate(st.system(system), st.model(model), work, st.plan(plan), engine("ideal", overlap=how))


@given(TIME, TIME, PIECES)
def test_pieces_take_at_least_the_larger_stage_and_at_most_both(a, b, w):
    near = 1e-9 * (a + b)
    assert max(a, b) - near <= float(in_pieces(a, b, w)) <= a + b + near
    assert max(a, b) - near <= float(own_first(a, b, w)) <= a + b + near
    assert float(in_pieces(a, b, 2.0 * w)) <= float(in_pieces(a, b, w)) + near


@given(TIME, TIME, draw.floats(0.0, 0.9))
def test_cores_taken_while_sending_are_bounded(work, sending, share):
    mean = float(while_sending(share, work, sending))
    assert 0.0 <= mean <= share


@given(TIME, TIME, draw.floats(0.0, 0.9), draw.floats(0.0, 1e12))
def test_work_beside_communication_is_never_quicker_and_its_parts_add_up(compute, memory, share, moved):
    alone = Price(
        time=compute + memory + 1.0,
        compute=compute,
        memory=memory,
        core_time_under_dram=0.5 * memory,
        overhead=1.0,
        memory_bytes=memory * 1e12,
    )
    beside = slowed(alone, share, moved, 1e12)
    assert float(beside.time) >= float(alone.time) * (1 - 1e-12)
    assert float(beside.compute + beside.cache + beside.memory + beside.overhead) == pytest.approx(
        float(beside.time)
    )
    assert beside.flop == alone.flop and beside.memory_bytes == alone.memory_bytes
    assert float(slowed(alone, 0.0, 0.0, 1e12).time) == pytest.approx(float(alone.time))


@settings(deadline=None, max_examples=40)
@given(
    draw.integers(6, 15),
    draw.integers(8, 15),
    draw.integers(8, 15),
    draw.sampled_from(("all_gather", "reduce_scatter", "all_reduce")),
)
def test_a_fused_kernel_is_never_quicker_than_its_links_or_its_product(m, n, k, pattern):
    m, n, k = 2.0**m, 2.0**n, 2.0**k
    node, dev = NODE, H200
    op = Collective(pattern=pattern, group="tp", payload=2.0 * m * n)
    link = tile_link(op, spread(1.0, 8.0, node), node)
    product = matmul(m, n, k, dev, "bf16", "bf16")
    work, added = fuse(op, link, [product], 4.0, pattern != "all_gather", dev)
    whole = float(work[0].time + added)
    assert whole >= max(float(product.time), float(link.sending)) * (1 - 1e-12)
    crossing = (2.0 if pattern == "all_reduce" else 1.0) * 7 / 8 * 2.0 * m * n
    assert float(link.sending) >= crossing / node.dimension[0].bandwidth


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("case", CASES)
def test_a_step_is_never_slower_with_overlap_and_says_what_it_saved(case, how):
    plain, hidden = asked(case, "none"), asked(case, how)
    assert hidden.fits == plain.fits and float(plain.summary.overlap) == 0.0
    assert float(hidden.metrics.step_time) <= float(plain.metrics.step_time) * (1 + 1e-12)
    before, after = (sum(float(v) for v in r.summary.time_by_kind.values()) for r in (plain, hidden))
    assert before - after == pytest.approx(float(hidden.summary.overlap), abs=1e-9 * before)
    # The same work, the same answer, the same memory; never less than the communication or the kernels alone
    # could take.
    assert float(hidden.metrics.memory_used) == float(plain.metrics.memory_used)
    assert hidden.steps[-1].flop == plain.steps[-1].flop
    assert after >= before - float(plain.summary.time_by_kind["collective"]) * (1 + 1e-9)
    for part in (hidden.summary.time_by_kind, hidden.summary.resources):
        assert all(float(v) >= -1e-12 for v in part.values())
    assert hidden.timeline.time <= plain.timeline.time * (1 + 1e-12)


def test_overlap_gains_where_there_is_much_to_send_and_long_kernels():
    assert float(asked("tensor prefill", "tiles").summary.overlap) > 0.0
    for case in ("tensor prefill", "experts prefill"):
        plain, halves = asked(case, "none"), asked(case, "dual_batch")
        assert float(halves.summary.overlap) > 0.3 * float(plain.summary.time_by_kind["collective"])
    # A short step has no kernel long enough: the whole batch in one piece stays.
    assert float(asked("tensor decode", "dual_batch").summary.overlap) == 0.0


def test_tiles_move_the_same_bytes():
    plain, hidden = (asked("tensor prefill", how).steps[-1].price for how in ("none", "tiles"))
    assert float(hidden.memory_bytes) == pytest.approx(float(plain.memory_bytes), rel=1e-12)


@pytest.mark.parametrize("how", HOW)
def test_one_device_has_nothing_to_hide(how):
    work = st.prefill(2, 1024)
    plain, hidden = (
        st.evaluate("1xh200", "llama-3-8b", work, "tp=1", engine("ideal", overlap=o)) for o in ("none", how)
    )
    assert (
        float(hidden.metrics.step_time) == float(plain.metrics.step_time)
        and float(hidden.summary.overlap) == 0.0
    )


@pytest.mark.parametrize(
    ("model", "plan", "how", "backend"),
    [
        ("llama-3-70b", "tp=8", "tiles", "numpy"),
        ("llama-3-70b", "tp=8", "dual_batch", "numpy"),
        ("deepseek-v3", "dp=8,ep=8", "tiles", "numpy"),
        ("deepseek-v3", "dp=8,ep=8", "dual_batch", "numpy"),
        ("llama-3-8b", "tp=8", "dual_batch", "jax"),
        ("mixtral-8x7b", "dp=8,ep=8", "tiles", "jax"),
    ],
)
def test_a_batch_equals_single_points(model, plan, how, backend):
    if backend == "jax":
        pytest.importorskip("jax")
    batches, by = np.array([8.0, 64.0, 512.0]), engine("ideal", overlap=how)
    work = replace(st.prefill(8, 512), batch=batches)
    box = st.evaluate("8xh200", model, work, plan, by, backend=backend)
    for i, batch in enumerate(batches):
        one = st.evaluate("8xh200", model, st.prefill(float(batch), 512), plan, by)
        assert float(box.summary.overlap[i]) == pytest.approx(float(one.summary.overlap), rel=1e-9, abs=1e-12)
        for kind, time in one.summary.time_by_kind.items():
            assert float(box.summary.time_by_kind[kind][i]) == pytest.approx(float(time), rel=1e-9)


@pytest.mark.parametrize("how", ["tiles", "dual_batch"])
def test_plans_of_unlike_communication_are_the_same_in_a_batch_and_alone(how):
    """A batch has every collective that one of its plans needs; the others' prices must not know of it."""
    texts = (
        "tp=16",
        "dp=16,ep=16",
        "tp=4,dp=4,ep=16",
        "tp=4,dp=4,ep=4,moe_tp=4",
        "tp=8,dp=2,ep=2",
        "tp=2,cp=2,dp=4,ep=16",
        "dp=16,moe_tp=16",
        "tp=4,dp=2,pp=2,ep=8",
    )
    plans, by = [st.plan(t) for t in texts], engine("ideal", overlap=how)
    many = Plan(**{f.name: np.array([float(getattr(p, f.name)) for p in plans]) for f in fields(Plan)})
    where, work = (
        st.system("16xstack-ref", **{"stack.capacity_per_layer": 1e12}),
        st.decode(batch=1024, context=1536),
    )
    box = st.evaluate(where, "deepseek-v3", work, many, by)
    for i, text in enumerate(texts):
        one = st.evaluate(where, "deepseek-v3", work, text, by)
        assert float(box.metrics.step_time[i]) == pytest.approx(float(one.metrics.step_time), rel=1e-9), text


def test_collectives_find_their_neighbours():
    found = {}
    for model, plan in (("llama-3-70b", "tp=8"), ("deepseek-v3", "dp=8,ep=8"), ("deepseek-v3", "tp=8")):
        for block in rank_graph(model, st.prefill(8, 512), plan).blocks:
            for pair in pairs(block.ops):
                beside = tuple(block.ops[j].name for j in pair.beside)
                found[model, plan, block.ops[pair.collective].name] = (pair.role, beside)
    assert found["llama-3-70b", "tp=8", "o_sum"] == ("feeds", ("o",))
    assert found["llama-3-70b", "tp=8", "down_sum"] == ("feeds", ("down",))
    assert found["deepseek-v3", "dp=8,ep=8", "dispatch_exchange"] == (
        "apart",
        ("shared_up", "shared_activation", "shared_down"),
    )
    assert found["deepseek-v3", "dp=8,ep=8", "combine_exchange"] == ("feeds", ("experts_down",))
    summed = [
        v
        for (m, p, name), v in found.items()
        if (m, p) == ("deepseek-v3", "tp=8") and v[1] == ("experts_down", "combine")
    ]
    assert summed == [("feeds", ("experts_down", "combine"))]


def test_nothing_to_send_leaves_prices_as_they_are():
    plan, where = st.plan("tp=8"), st.system("8xh200")
    graph = rank_graph("llama-3-70b", st.prefill(8, 512), plan)
    block = next(b for b in graph.blocks if any(op.name == "down_sum" for op in b.ops))
    placement = place(plan, where.fabric, plan.active())
    rank = Rank(device=device(where.chip), placement=placement, fabric=where.fabric)
    quiet = [(replace(op, payload=0.0), QUIET) if is_collective(op) else (op, BUSY) for op in block.ops]
    for (_, before), (_, after) in zip(quiet, overlap_by_tile(quiet, rank), strict=True):
        assert after.time == before.time and after.saved == 0.0


def test_shipped_engines_do_not_overlap_unless_told():
    assert {engine(name).overlap for name in names("engine")} == {"none"}
    with pytest.raises(st.StrataError, match="none, tiles, dual_batch"):
        engine("ideal", overlap="tile")


@pytest.mark.parametrize("pattern", ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"])
def test_tiles_over_nodes_are_on_all_levels_at_once(pattern):
    """Where a group reaches over nodes the slower level rules; a box of groups is its points."""
    nodes = sized(fabric("hgx-h100"), (8, 4))
    op = Collective(pattern=pattern, group="tp", payload=1e9)
    inside, over = (tile_link(op, spread(1.0, ranks, nodes), nodes) for ranks in (8.0, 32.0))
    passes = 2.0 if pattern == "all_reduce" else 1.0
    sent = passes * 1e9 * (24 / 32 if pattern == "all_to_all" else 3 / 4 / 8)
    tiles = [d.transport_model.tiles for d in nodes.dimension]
    within = passes * 1e9 * (7 / 32 if pattern == "all_to_all" else 7 / 8) / (tiles[0].share * 450e9)
    assert float(over.sending) == pytest.approx(max(sent / (tiles[1].share * 50e9), within))
    assert float(over.waiting) == pytest.approx(float(inside.waiting), rel=0.5)  # they meet once, not twice
    both = tile_link(op, spread(1.0, np.array([8.0, 32.0]), nodes), nodes)
    for name in ("sending", "waiting", "cores", "moved"):
        alone = [float(getattr(one, name)) for one in (inside, over)]
        assert np.broadcast_to(getattr(both, name), (2,)) == pytest.approx(alone)
