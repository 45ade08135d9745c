"""Collectives follow from layouts: published schemes on graphs written by hand, and what must hold for
any.
"""

from dataclasses import replace

import numpy as np
import pytest
from cases import collectives, kernels
from hypothesis import given, settings
from hypothesis import strategies as hy
from programs import elementwise, extent, one_block, product

import strata as st
from strata.base.errors import BadValue
from strata.mapping.layout import conversions
from strata.mapping.place import place
from strata.mapping.shard import shard
from strata.pricing.network.collectives import price_collective
from strata.workload.backward import with_backward

WORK = st.forward(1.0)
S, T, H, N, F = extent(4096, "s"), extent(4096, "t"), extent(8192), extent(64, "n"), extent(28672, "f")
ROWS = 2.0 * 4096 * 8192  # bytes of the stream
TP = {"n": "tp", "f": "tp"}


def divided(graph, layout):
    return shard(graph, layout.sharding(graph, WORK, layout.active()))


def found(graph, layout):
    """Collectives as (pattern, group, payload), in order."""
    return [
        (op.pattern, op.group, op.payload) for op in collectives(op for _, op in divided(graph, layout).ops())
    ]


def layer():
    """A transformer layer on named axes: s rows, n heads, f feed-forward; heads are mixed element by
    element.
    """
    heads = extent(64, "n")
    return one_block(
        elementwise("norm1", "x", "a", m=S, n=H, module="norm"),
        product("q_proj", "a", "q", m=S, n=replace(heads, unit=128.0), k=H, module="attn"),
        elementwise("mix", "q", "o", m=S, n=replace(heads, unit=128.0), module="attn"),
        product("o_proj", "o", "y", m=S, n=H, k=replace(heads, unit=128.0), module="attn"),
        elementwise("norm2", "y", "b", m=S, n=H, module="norm"),
        product("up", "b", "u", m=S, n=F, k=H, module="ffn"),
        product("down", "u", "z", m=S, n=H, k=F, module="ffn"),
        elementwise("add", "z", "out", m=S, n=H, module="norm"),
    )


def self_attention():
    """Queries of s rows over keys and values of the same rows, which attention knows as t: one coordinate
    of a tensor under two names.
    """
    wide, depth = replace(N, unit=128.0), extent(128)
    graph = one_block(
        elementwise("norm", "x", "a", m=S, n=H, module="proj"),
        product("q_proj", "a", "q", m=S, n=wide, k=H, module="proj"),
        product("kv_proj", "a", "kv", m=T, n=wide, k=H, module="proj"),
        product("scores", ("q", "kv"), "p", m=S, n=T, k=depth, batch=N, stored=False, module="attention"),
        product("mix", ("p", "kv"), "o", m=S, n=depth, k=T, batch=N, stored=False, module="attention"),
        product("o_proj", "o", "y", m=S, n=H, k=wide, module="proj"),
    )
    return replace(graph, coordinates={"t": "s"})


# --------------------------------------------------------------------------------------------- published ones


def test_megatron_tensor_parallelism_sums_twice_forward_and_twice_backward():
    """Shoeybi et al., arXiv 1909.08053, figure 3: one all-reduce after each of the two row-parallel products,
    and one before each of the two column-parallel ones in the backward pass.
    """
    division = st.layout({"tp": 8}, TP)
    assert found(layer(), division) == [("all_reduce", "tp", ROWS)] * 2
    assert found(with_backward(layer()), division) == [("all_reduce", "tp", ROWS)] * 4


def test_degrees_are_arrays_in_one_call():
    many = st.layout({"tp": np.array([1.0, 2.0, 8.0])}, TP)
    part = divided(layer(), many)
    assert [(op.pattern, op.group) for op in collectives(part.blocks[0].ops)] == [("all_reduce", "tp")] * 2
    sizes = [op.n[0].size for op in part.blocks[0].ops if op.name == "up"]
    assert np.array_equal(sizes[0], [28672.0, 14336.0, 3584.0])


def test_gradients_of_weights_are_summed_over_ranks_with_other_rows():
    """Data parallelism: each weight's gradient once; products divided over tp sum only their own part."""
    weights = {"q_proj": 8192 * 8192, "o_proj": 8192 * 8192, "up": 8192 * 28672, "down": 8192 * 28672}
    both = st.layout({"tp": 8, "dp": 4}, TP | {"s": "dp"})
    sums = [c for c in found(with_backward(layer()), both) if c[1] == "dp"]
    assert sorted(sums) == sorted(("all_reduce", "dp", 2.0 * size / 8) for size in weights.values())
    assert [c[2] for c in found(with_backward(layer()), both) if c[1] == "tp"] == [ROWS / 4] * 4


def test_sequence_parallel_norms_gather_and_scatter():
    """Korthikanti et al., arXiv 2205.05198, figure 5: the all-reduce becomes a reduce-scatter after and an
    all-gather before.
    """
    division = st.layout({"tp": 8}, TP, norm={"s": "tp"})
    gather, scatter = ("all_gather", "tp", ROWS), ("reduce_scatter", "tp", ROWS)
    assert found(layer(), division) == [gather, scatter, gather, scatter]
    (norm, *_) = kernels(divided(layer(), division).blocks[0].ops)
    assert norm.m.size == 4096 / 8


def test_ulysses_exchanges_all_with_all_before_and_after_attention():
    """Jacobs et al., arXiv 2309.14509, sec. 3.1: queries, keys with values, and results, each 1/cp of it
    whole.
    """
    division = st.layout({"cp": 8}, {"s": "cp", "t": "cp"}, attention={"s": (), "t": (), "n": "cp"})
    assert found(self_attention(), division) == [("all_to_all", "cp", ROWS / 8)] * 3


def test_context_parallelism_gathers_keys_and_values_once():
    division = st.layout({"cp": 8}, {"s": "cp", "t": "cp"}, attention={"t": ()})
    assert found(self_attention(), division) == [("all_gather", "cp", ROWS)]


def test_divided_keys_leave_partial_sums():
    """Keys and values stay where they are: what queries gather from each part is added up."""
    division = st.layout({"cp": 8}, {"t": "cp"})
    assert found(self_attention(), division) == [("all_reduce", "cp", ROWS)]


def test_experts_get_their_slots_and_give_them_back():
    """GShard (arXiv 2006.16668), algorithm 1: two all-to-alls around the experts."""
    e, c, h = extent(64, "e"), extent(1024, "c"), extent(512)
    slots = replace(e, unit=512.0)
    graph = one_block(
        elementwise("dispatch", "x", "slots", m=c, n=slots, module="route"),
        product("up", "slots", "mid", m=c, n=extent(2048), k=h, batch=e, module="expert"),
        product("down", "mid", "done", m=c, n=h, k=extent(2048), batch=e, module="expert"),
        elementwise("combine", "done", "y", m=c, n=slots, module="route"),
    )
    division = st.layout({"ep": 32}, route={"c": "ep"}, expert={"e": "ep"})
    assert found(graph, division) == [("all_to_all", "ep", 2.0 * 64 * 1024 * 512 / 32)] * 2


def gemm(after):
    m, n, k = extent(4096, "m"), extent(2048, "n"), extent(1024, "k")
    return one_block(
        product("gemm", "x", "out", m=m, n=n, k=k, module="g"),
        elementwise("next", "out", "use", m=m, n=n, module=after),
    )


def test_deepflow_rows_and_columns():
    """RC-{KP1}-{KP2}: local (m / KP1, k, n / KP2); rows are gathered along their columns, m / KP1 x n
    over KP2.
    """
    division = st.layout({"kp1": 4, "kp2": 2}, {"m": "kp1"}, g={"n": "kp2"})
    assert found(gemm("n"), division) == [("all_gather", "kp2", 2.0 * 4096 / 4 * 2048)]
    op = kernels(divided(gemm("n"), division).blocks[0].ops)[0]
    assert (op.m.size, op.k.size, op.n[0].size) == (1024.0, 1024.0, 1024.0)
    assert found(gemm("g"), division) == []  # what reads it may take it as it is


def test_deepflow_columns_and_rows():
    """CR-{KP1}: local (m, k / KP1, n), then a reduce-scatter of m x n where pieces are wanted, else an
    all-reduce.
    """
    whole, pieces = (st.layout({"kp1": 4}, g={"k": "kp1"}, n=n) for n in ({}, {"m": "kp1"}))
    assert found(gemm("n"), whole) == [("all_reduce", "kp1", 2.0 * 4096 * 2048)]
    assert found(gemm("n"), pieces) == [("reduce_scatter", "kp1", 2.0 * 4096 * 2048)]
    assert kernels(divided(gemm("n"), whole).blocks[0].ops)[0].k.size == 256.0


def test_pencils_of_a_transform_are_turned_twice():
    """A 3-D FFT on a p x q grid, as products with a matrix of roots: one turn over p, one over q."""
    x, y, z = (extent(512, axis) for axis in "xyz")
    graph = one_block(
        product("fft_x", "x", "a", batch=y, m=z, n=x, k=x, module="fx"),
        product("fft_y", "a", "b", batch=x, m=z, n=y, k=y, module="fy"),
        product("fft_z", "b", "c", batch=x, m=y, n=z, k=z, module="fz"),
    )
    division = st.layout(
        {"p": 16, "q": 8},
        fx={"y": "p", "z": "q"}, fy={"x": "p", "z": "q"}, fz={"x": "p", "y": "q"},
    )  # fmt: skip
    share = 2.0 * 512**3 / 128
    assert found(graph, division) == [("all_to_all", "p", share), ("all_to_all", "q", share)]


def test_tables_of_a_recommender_meet_its_dense_part_in_one_exchange():
    """Naumov et al., arXiv 1906.00091, sec. 4: model parallel tables, data parallel MLPs, one all-to-all."""
    rows, tables = extent(2048, "b"), replace(extent(26, "g"), unit=128.0)
    graph = one_block(
        elementwise("lookup", "x", "embedded", m=rows, n=tables, module="tables"),
        elementwise("interact", "embedded", "pairs", m=rows, n=tables, module="mlp"),
    )
    division = st.layout({"all": 13}, tables={"g": "all"}, mlp={"b": "all"})
    assert found(graph, division) == [("all_to_all", "all", 2.0 * 2048 * 26 * 128 / 13)]


# ------------------------------------------------------------------------------------------------------- laws

AXES, GROUPS = ("m", "n", "k"), ("p", "q", "r")


@hy.composite
def layouts(draw):
    """A mesh of one to three dimensions, and each of them on at most one axis of a module."""
    mesh = {group: 2 ** draw(hy.integers(0, 3)) for group in GROUPS[: draw(hy.integers(1, 3))]}

    def axes():
        lying = {}
        for group in mesh:
            axis = draw(hy.sampled_from((*AXES, "")))
            if axis:
                lying.setdefault(axis, []).append(group)
        return {axis: tuple(groups) for axis, groups in lying.items()}

    return st.layout(mesh, g=axes(), n=axes())


def ranks(layout, op, axes):
    """Ranks that divide some axes of an op."""
    own = dict(dict(layout.modules).get(op.module, ()))
    return np.prod([layout.mesh[group] for axis in axes for group in own.get(axis, ())] or [1.0])


@given(layouts())
@settings(max_examples=120)
def test_ranks_together_do_the_work_and_hold_the_weights_of_the_whole(layout):
    whole = gemm("n")
    for before, after in zip(whole.blocks[0].ops, kernels(divided(whole, layout).blocks[0].ops), strict=True):
        every = ranks(layout, before, AXES)
        assert after.flop() * every == before.flop()
        assert after.weight_bytes() * ranks(layout, before, ("n", "k")) == before.weight_bytes()
        assert after.output_bytes() * ranks(layout, before, ("m", "n")) == before.output_bytes()


@given(layouts(), layouts())
@settings(max_examples=60)
def test_a_batch_of_degrees_is_each_of_them_and_one_rank_carries_nothing(one, other):
    """Which collectives exist follows from the groups with more than one rank anywhere; what a group of one
    rank would carry takes no time and no energy.
    """
    other = replace(one, mesh=dict(zip(one.mesh, (*other.mesh.values(), 2.0, 4.0), strict=False)))
    many = replace(one, mesh={g: np.array([one.mesh[g], other.mesh[g]]) for g in one.mesh})
    graph, active = gemm("n"), many.active()
    together = divided(graph, many).blocks[0].ops
    fabric = st.hardware.sized(st.fabric("hgx-h200"), (8.0, 64.0))
    for i, single in enumerate((one, other)):
        alone = shard(graph, single.sharding(graph, WORK, active)).blocks[0].ops
        assert [(o.name, o.kind, o.inputs, o.output) for o in alone] == [
            (o.name, o.kind, o.inputs, o.output) for o in together
        ]
        placed = place(single, fabric, active).groups
        for a, b in zip(alone, together, strict=True):
            if a.kind != "collective":
                assert np.broadcast_to(b.flop(), (2,))[i] == a.flop()
                assert np.broadcast_to(b.output_bytes(), (2,))[i] == a.output_bytes()
                continue
            assert np.broadcast_to(b.payload, (2,))[i] == a.payload
            price = price_collective(a, placed[a.group], fabric)
            if single.mesh[a.group] == 1:
                assert price.time == price.energy == 0.0
            else:
                assert price.time > 0.0
        # Alone it has those collectives only whose group has more than one rank.
        groups = [c[1] for c in found(graph, single)]
        assert groups == [op.group for op in collectives(alone) if single.mesh[op.group] > 1]


@given(layouts())
@settings(max_examples=60)
def test_a_layout_of_one_rank_leaves_the_graph_as_it_is(layout):
    one = replace(layout, mesh=dict.fromkeys(layout.mesh, 1.0))
    for graph in (gemm("n"), layer(), with_backward(layer())):
        assert divided(graph, one) is graph


COORDINATES, MESH = ("x", "y", "z"), ("p", "q")
LIES = hy.dictionaries(hy.sampled_from(MESH), hy.sampled_from(COORDINATES)).map(
    lambda on: {c: tuple(g for g, at in on.items() if at == c) for c in set(on.values())}
)


@given(LIES, LIES, hy.sets(hy.sampled_from(MESH)))
def test_conversions_bring_every_group_from_where_it_is_to_where_it_is_wanted(have, want, partial):
    """No group is used twice for one thing; nothing is done where nothing differs; sums and moves are
    told apart.
    """
    have = {c: kept for c, groups in have.items() if (kept := tuple(g for g in groups if g not in partial))}
    made = conversions(have, tuple(sorted(partial)), want)
    assert conversions(have, (), have) == []
    at = {g: c for c, groups in have.items() for g in groups}
    to = {g: c for c, groups in want.items() for g in groups}
    for group in MESH:
        mine = [c.pattern for c in made if c.group == group]
        if group in partial:
            assert mine == ["reduce_scatter" if group in to else "all_reduce"]
        elif group in at and at[group] != to.get(group):
            assert mine == ["all_to_all" if group in to else "all_gather"]
        else:
            assert mine == []  # where it is wanted already, or whole and only sliced
    assert all(c.gathered == (c.pattern == "all_gather") for c in made)


def test_padding_is_counted_where_parts_are_uneven():
    """Five heads on two ranks: the busiest has three."""
    graph = one_block(product("p", "x", "y", m=S, n=extent(5, "n"), k=H))
    (op,) = divided(graph, st.layout({"tp": 2}, {"n": "tp"})).blocks[0].ops
    assert op.n[0].size == 3.0


def test_what_a_layout_may_not_say():
    with pytest.raises(BadValue, match="axis n lies on a dimension of the mesh"):
        st.layout({"tp": 2}, {"n": "dp"})
    with pytest.raises(BadValue, match="tp must have at least one rank"):
        st.layout({"tp": 0})


def test_a_compiler_keeps_the_order_of_a_mesh():
    """Compilers sort dictionaries; dimensions lie on the fabric as they were told."""
    mlp, axes = st.program("mlp-8192"), {"rows": "z", "columns": "a"}
    batch = np.array([4096.0, 8192.0])
    for mesh in ({"z": 8, "a": 2}, {"a": 2, "z": 8}):
        layout = st.layout(mesh, axes)
        plain, compiled = (
            st.evaluate("2x8xh200", mlp, st.forward(batch), layout, backend=b).metrics.step_time
            for b in ("numpy", "jax")
        )
        np.testing.assert_allclose(compiled, plain, rtol=1e-9)
