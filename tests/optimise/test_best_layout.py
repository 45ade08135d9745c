"""Layouts between chips: the sum of tables is the price of the sharded graph, and known schemes come out."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from layout_programs import gpt_layer, kernel

import strata as st
from strata.base.errors import BadValue
from strata.mapping.layout import Layout
from strata.mapping.shard import shard
from strata.optimise.layout import best_layout, layout_setting
from strata.optimise.layouts.factor_graph import eliminated, restricted
from strata.optimise.layouts.layout_factors import layout_tables
from strata.optimise.layouts.layout_options import layout_rules, module_options
from strata.pricing.pricers import price_op
from strata.workload.dataflow import Dataflow

NODE = "8xh200"
REFERENCE = json.loads((Path(__file__).parents[1] / "data/dfmodel/gpt_sharding.json").read_text())
SHORT, LONG = st.prefill(batch=1, length=2048), st.prefill(batch=1, length=65536)


def best_of(system, program, work, mesh, **how):
    return best_layout(layout_setting(system, program, work, mesh), **how)


def patterns(choice, block=None):
    return [op.pattern for name, op in choice.collectives if block in (None, name)]


def chain(widths, layers=1.0):
    """Products one after the other: axis a0 to a1 to a2 and so on."""
    sizes = {f"a{i}": float(w) for i, w in enumerate(widths)}
    kernels = tuple(
        kernel(f"g{i}", "gemm", f"g{i - 1}" if i else "x", f"rows a{i + 1}", f"a{i} a{i + 1}")
        for i in range(len(widths) - 1)
    )
    return Dataflow(
        name="chain", sizes=sizes, derived=(("rows", "batch*sequence"),), inputs=(("x", ("rows", "a0")),),
        kernels=kernels, stream="rows", layers=layers,
    )  # fmt: skip


def priced(setting, layout):
    """Seconds of a sharded graph, op by op."""
    graph = shard(setting.graph, layout.sharding(setting.graph, setting.work, layout.active()))
    return sum(
        float(b.times) * float(w if b.nodes else 1.0) * float(price_op(op, setting.rank).time)
        for b in graph.blocks
        for w, ops in b.at_nodes()
        for op in ops
    )


PROGRAMS = {
    "layer": (gpt_layer(), SHORT, {"tp": 8}),
    "layer in training": (gpt_layer(), st.train(batch=1, length=2048), {"tp": 4, "cp": 2}),
    "layer in training, one dimension": (gpt_layer(), st.train(batch=1, length=2048), {"tp": 8}),
    "both passes written out": (gpt_layer(backward=True), SHORT, {"tp": 8}),
    "fft": ("fft-1024", st.prefill(batch=8, length=1), {"p": 4, "q": 2}),
    "recommender": ("dlrm-mlperf", st.train(batch=8192, length=1), {"all": 2}),
    "llama": ("llama-3-8b", st.train(batch=8, length=2048), {"tp": 4, "cp": 2}),
    "moe layer": ("mixtral-moe-layer", st.train(batch=8, length=2048), {"tp": 8}),
    "mlp": ("mlp-8192", st.train(batch=8192, length=1), {"p": 4, "q": 2}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_sum_of_tables_is_the_price_of_the_sharded_graph(name):
    program, work, mesh = PROGRAMS[name]
    setting, rules = layout_setting(NODE, program, work, mesh), layout_rules()
    options = module_options(setting.graph, setting.mesh, rules, {})
    tables = layout_tables(setting.graph, setting.work, setting.mesh, setting.rank, rules, options)
    best = best_layout(setting)
    assert best.proved
    assert best.value == pytest.approx(priced(setting, best.layout), rel=1e-9)
    assert best.value == pytest.approx(best.time, rel=1e-9)
    taken = {m: o.choices.index(best.options[m]) for m, o in options.items()}
    random = np.random.default_rng(1)
    for changed in (1, 1, 2, 2, 3, 3, 4, 4, 6, 8, 12, 20, 99) * 3:
        others = random.choice(list(options), size=min(changed, len(options)), replace=False)
        choice = taken | {m: int(random.integers(len(options[m]))) for m in others}
        layout = Layout(setting.mesh, modules=tuple((m, o.axes(choice[m])) for m, o in options.items()))
        value = value_of(tables, choice)
        assert value == pytest.approx(priced(setting, layout), rel=1e-9)
        assert value >= best.value * (1 - 1e-12)


def value_of(tables, choice):
    """The tables' sum where modules are chosen; states follow."""
    alive = {
        v: np.array([choice[v]]) if v in choice else np.arange(n) for v, n in tables.factors.domains.items()
    }
    return eliminated(restricted(tables.factors, alive)).value


def test_the_best_is_the_best_of_all_layouts():
    program = chain((512, 1024, 512))
    setting, rules = layout_setting(NODE, program, SHORT, {"p": 8}), layout_rules()
    options = module_options(setting.graph, setting.mesh, rules, {})
    every = (
        Layout(
            setting.mesh, modules=tuple((m, o.axes(k)) for (m, o), k in zip(options.items(), c, strict=True))
        )
        for c in itertools.product(*(range(len(o)) for o in options.values()))
    )
    best = best_layout(setting)
    assert best.value == pytest.approx(min(priced(setting, layout) for layout in every))


def test_evaluate_takes_the_layout_as_it_is():
    program = gpt_layer()
    best = best_of(NODE, program, SHORT, {"tp": 8})
    usual = best_of(NODE, program, SHORT, {"tp": 8}, pinned={"layer": {"tp": ""}, "FFN0": {"tp": "mlp"}})
    result = st.evaluate(NODE, program, SHORT, best.layout)
    step = result.steps[0]  # before its clock is held at the limit of power
    assert sum(b.block.times * b.price.time for b in step.blocks) == pytest.approx(best.time, rel=1e-9)
    assert result.metrics.step_time == pytest.approx(step.stage, rel=1e-9)
    assert best.value <= usual.value


def test_the_four_all_reduces_of_a_layer_in_training_come_out():
    """Norms pinned whole, as Megatron has them: sums after PROJ and FFN1, and of the gradients of FFN0 and QKV."""
    pinned = {m: {"tp": ""} for m in NORMS}
    best = best_of(NODE, gpt_layer(), st.train(batch=1, length=2048), {"tp": 8}, pinned=pinned)
    assert patterns(best) == ["all_reduce"] * 4
    assert [op.output for _, op in best.collectives][:2] == ["PROJ_GEMM", "FFN1"]
    assert patterns(best, "layer.backward") == ["all_reduce"] * 2
    assert {best.options[m] for m in "QKV"} == {("heads",)}
    assert best.options["FFN0"] == best.options["FFN1"] == ("mlp",)


PRODUCTS = {
    "heads": ("Q", "K", "V", "MHA_GEMM_1", "SOFTMAX", "DropOut_1", "MHA_GEMM_2", "PROJ_GEMM"),
    "mlp": ("FFN0", "GeLU", "FFN1"),
}
NORMS = ("Add_Prev_Layer", "LayerNorm_1", "DropOut_2", "Add_1", "LayerNorm_2", "DropOut_3", "Add_2", "layer")


@pytest.mark.parametrize("length", [2048, 65536])
def test_sequence_parallelism_of_megatron_comes_out(length):
    """Norms along tokens, products by heads and columns (pinned where a sequence is so long that its weights
    are the lesser load): gathers and scatters in both passes, half an all-reduce each, four in all.
    """
    program, work = gpt_layer(), st.train(batch=1, length=length)
    setting = layout_setting(NODE, program, work, {"tp": 8})
    pins = {m: {"tp": axis} for axis, modules in PRODUCTS.items() for m in modules}
    best = best_layout(setting, pinned=pins if length > 2048 else None)
    assert best.proved
    for axis, modules in (*PRODUCTS.items(), ("tokens", NORMS)):
        assert {best.options[m] for m in modules} == {(axis,)}  # no norm runs twice
    assert patterns(best, "layer") == ["all_gather", "reduce_scatter"] * 2
    assert patterns(best, "layer.backward") == ["all_gather", "reduce_scatter"] * 2
    stream = length * 12288 * 2.0
    assert [float(op.payload) for _, op in best.collectives] == [stream] * 8
    # Of the gradients of Q, K and V one sum is scattered.
    scattered = [op.output for _, op in best.collectives if op.pattern == "reduce_scatter"]
    assert scattered == ["PROJ_GEMM", "FFN1", "d_LayerNorm_2@FFN0", "d_LayerNorm_1@Q"]
    summed = best_layout(setting, pinned=pins | {m: {"tp": ""} for m in NORMS})
    assert [float(op.payload) for _, op in summed.collectives] == [stream] * 4
    assert best.compute < summed.compute
    assert best.value < summed.value


def test_the_exchanges_of_ulysses_come_out():
    """Tokens everywhere, heads in attention: four all-to-alls, as weights are few and the sequence is long."""
    best = best_of(NODE, gpt_layer(hidden=1024.0, heads=16.0), LONG, {"cp": 8})
    assert patterns(best) == ["all_to_all"] * 4
    assert [op.output for _, op in best.collectives] == ["Q", "K", "V", "MHA_GEMM_2"]
    assert best.options["MHA_GEMM_1"] == ("heads",)
    assert best.options["Q"] == best.options["FFN0"] == ("tokens",)


def test_a_transposed_grid_comes_out_without_limits_where_links_are_quick():
    best = best_of("gb200-nvl72", "fft-1024", st.prefill(batch=1, length=1), {"p": 8, "q": 8})
    assert patterns(best) == ["all_to_all"] * 2
    slow = best_of("64xh200", "fft-1024", st.prefill(batch=1, length=1), {"p": 8, "q": 8})
    assert len(patterns(slow)) < 2  # one transform twice over costs less than an exchange between nodes


def test_the_exchange_of_a_recommender_comes_out():
    """Tables too large for one device are divided, networks are data parallel: one all-to-all between."""
    work, program = st.prefill(batch=8192, length=1), "dlrm-mlperf"
    best = best_of(NODE, program, work, {"all": 2}, pinned={"tables": {"all": "tables"}})
    assert patterns(best) == ["all_to_all"]
    assert best.options["ranking"] == ("samples",)


def test_rows_columns_and_depth_of_a_chain_come_out():
    """Two products with weights that must be divided: columns, then depth, and one sum between ranks."""
    program = chain((4096, 16384, 4096))
    pinned = {"layer": {"p": ""}}
    free = best_of(NODE, program, st.prefill(batch=1, length=256), {"p": 8}, pinned=pinned)
    assert free.options["g0"] == ("a1",)
    assert free.options["g1"] == ("a1",)
    assert patterns(free) == ["all_reduce"]
    rows = best_of(NODE, chain((512, 512, 512)), LONG, {"p": 8})
    assert rows.options["g0"] == rows.options["g1"] == ("rows",)
    assert patterns(rows) == []


def test_pins_hold_and_never_help():
    setting = layout_setting(NODE, gpt_layer(), SHORT, {"tp": 8})
    best = best_layout(setting)
    again = best_layout(setting, pinned={m: {"tp": axes[0]} for m, axes in best.options.items()})
    assert again.value == pytest.approx(best.value)
    for module, axis in (("Q", "heads"), ("FFN0", "hidden"), ("LayerNorm_1", "")):
        held = best_layout(setting, pinned={module: {"tp": axis}})
        assert held.options[module] == (axis,)
        assert held.value >= best.value * (1 - 1e-12)


def test_bad_pins_are_told():
    with pytest.raises(BadValue, match="dimension of the mesh"):
        best_of(NODE, gpt_layer(), SHORT, {"tp": 8}, pinned={"Q": {"xp": "heads"}})
    with pytest.raises(BadValue, match="no layout"):
        best_of(NODE, gpt_layer(), SHORT, {"tp": 8}, pinned={"Q": {"tp": "mlp"}})


def test_both_passes_written_out_on_two_dimensions_are_proved():
    best = best_of(NODE, gpt_layer(backward=True), SHORT, {"tp": 4, "cp": 2})
    assert best.proved
    assert best.method == "cutset conditioning"
    assert best.value == pytest.approx(best.time, rel=1e-9)


def test_out_of_time_the_best_so_far_comes_with_its_gap():
    best = best_of(NODE, gpt_layer(backward=True), SHORT, {"tp": 4, "cp": 2}, time_limit=0.05)
    assert best.bound <= best.value
    assert best.gap == pytest.approx(1 - best.bound / best.value)
    assert best.value == pytest.approx(best.time, rel=1e-9)


def test_dfmodel_reference_sharding_of_a_gpt_layer():
    """Every kernel as its program found it; V_bwd's product ties with gathering its operand."""
    program = gpt_layer(backward=True)
    best = best_of(NODE, program, SHORT, {"tp": 8}, rules="dfmodel-2024")
    graph = program.trace(SHORT)
    ops = {op.name: op for _, op in graph.ops()}
    summed = []
    for name, found in REFERENCE["sharding"].items():
        (axis,), op = best.options[name], ops[name]
        said = {"": "none", "heads": "head"}.get(axis, "M")
        if axis and axis in op.contracted_axes():
            said = "K"
            summed.append(name)
        # Columns made by heads are M there, where a weight has them as one axis.
        assert said == found or (said, found) == ("head", "M"), name
    assert summed == REFERENCE["all_reduces"]
    # Bytes of four all-reduces of tokens x hidden in bf16, four layers.
    assert best.value == 4 * 4 * 2048 * 12288 * 2
    assert best.proved


def test_dfmodel_reference_four_all_reduces_of_the_shipped_layer():
    """With gradients of Q, K and V that are added up once, `shard` finds the same four."""
    best = best_of(NODE, "dfmodel-gpt-training", SHORT, {"tp": 8}, rules="dfmodel-2024")
    assert patterns(best) == ["all_reduce"] * 4
    assert [op.output for _, op in best.collectives][:3] == ["PROJ_GEMM", "FFN1", "FFN0_bwd"]


def test_too_many_states_are_told(monkeypatch):
    monkeypatch.setattr("strata.optimise.layouts.layout_states.STATES_LIMIT", 100)
    with pytest.raises(BadValue, match="too many ways"):
        best_of(NODE, gpt_layer(), SHORT, {"tp": 8})


def test_replicated_consumers_pay_for_every_reader():
    """K and V whole for tokens divided: one tensor read by three products is gathered once, or three times."""
    pinned = {"LayerNorm_1": {"tp": "tokens"}, **{m: {"tp": "heads"} for m in "QKV"}}
    once, thrice = (
        best_of(NODE, gpt_layer(), SHORT, {"tp": 8}, pinned=pinned,
                    rules=layout_rules(objective="bytes", consumers=consumers)).value
        for consumers in ("shared", "replicated")
    )  # fmt: skip
    assert thrice - once == pytest.approx(2 * 4 * 2048 * 12288 * 2)
