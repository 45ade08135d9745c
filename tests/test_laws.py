"""Laws that hold for every chip, model, phase and plan. The law of batches stands in test_batch.py."""

import re
from dataclasses import fields, replace

import numpy as np
import pytest
from cases import (
    CHIPS,
    FABRICS,
    FAMILIES,
    METRICS,
    MODELS,
    PHASES,
    WIDE_CHIPS,
    count,
    legal_plans,
    model,
    pick,
    roomy,
    same,
    system,
    workload,
)
from hypothesis import given, settings
from hypothesis import strategies as hy

import strata as st
from strata.arrays import leaves
from strata.hardware.fabric import Dimension
from strata.mapping.place import ORDERED, GroupLayout, exchange_ranks, place
from strata.mapping.plan import (
    BATCH,
    DEVICES,
    DIMENSIONS,
    EXPERTS,
    HEADS,
    KV_HEADS,
    LAYERS,
    MEMORY,
    MICRO,
    MOE_GRID,
    ORDERS,
    Plan,
    violations,
)
from strata.mapping.shard import active_groups, microbatches, shard
from strata.params import data_folder, names
from strata.pricing.network.collectives import PATTERNS, price_collective
from strata.pricing.pipeline import stage_bounds, stage_counts
from strata.workload.graph import Attention, Collective, ExpertMatMul, MatMul, Op, check_graph
from strata.workload.moe import chance, expert_shares, load_of
from strata.workload.transformer import attended

# ------------------------------------------------------------------------------------------- points at random


class Point(tuple):
    """System, model, workload and plan, in one line when a law fails."""

    def __repr__(self):
        where, made, work, plan = self
        return f"{where.name} {made.name} {work.phase}(batch={work.batch:g}, sequence={work.sequence:g}, context={work.context:g}) {shown(plan)}"


def shown(plan):
    """A plan for people: what differs from the identity."""
    values = {f.name: getattr(plan, f.name) for f in fields(plan)}
    return ",".join(f"{k}={float(v):g}" for k, v in values.items() if v != getattr(Plan, k))


@hy.composite
def points(draw, models=MODELS, chips=WIDE_CHIPS, phases=PHASES, sizes=(1, 2, 8, 16, 64)):
    """A system with room for the model, and a legal plan of it with its finer choices."""
    name, devices = draw(hy.sampled_from(models)), draw(hy.sampled_from(sizes))
    where = roomy(f"{devices}x{draw(hy.sampled_from(chips))}")
    phase = draw(hy.sampled_from(phases))
    options = legal_plans(devices, name)
    plan = pick(options, draw(hy.integers(0, count(options) - 1)))
    finer = {
        "sp": float(draw(hy.booleans())),
        "zero": float(draw(hy.integers(0, 3))),
        "order": float(draw(hy.integers(0, len(ORDERS) - 1))),
    }
    if phase == "train":
        finer["recompute"] = float(draw(hy.integers(0, 2)))
    batch = float(plan.dp) * draw(hy.sampled_from([1.0, 3.0, 8.0, 64.0]))
    work = workload(phase, batch, float(draw(hy.sampled_from([8, 130, 1024, 4096]))))
    return Point((where, model(name), work, replace(plan, **finer)))


@given(points())
@settings(max_examples=120)
def test_durations_bytes_and_joules_are_never_negative_nor_nan(point):
    r = st.evaluate(*point)
    quantities = [
        *leaves(r.summary),
        *(
            v
            for s in r.steps
            for b in s.blocks
            for _, p in b.ops
            for v in leaves(tuple(getattr(p, f.name) for f in fields(p)))
        ),
    ]
    assert r.fits
    # waiting is a difference of sums
    assert len(quantities) > 100 and min(float(q) for q in quantities) >= -1e-12 * r.metrics.step_time


@given(points())
@settings(max_examples=120)
def test_a_time_lies_between_its_bounds(point):
    r = st.evaluate(*point)
    assert r.metrics.lower <= r.metrics.step_time * (1 + 1e-12) and r.metrics.step_time <= r.metrics.upper * (
        1 + 1e-12
    )
    for step in r.steps:
        # The bound of a mean device is not clipped to the time: it must hold by itself.
        assert step.price.lower <= step.time * (1 + 1e-12) and step.price.time <= step.price.upper * (
            1 + 1e-9
        )
        for block in step.blocks:
            for op, price in block.ops:
                hidden = isinstance(op, Collective) and op.prefetch
                assert hidden or price.lower <= price.time * (1 + 1e-12), op.name
                assert price.time <= price.upper * (1 + 1e-12), op.name


@given(points())
@settings(max_examples=120)
def test_no_device_does_more_than_its_peaks(point):
    r = st.evaluate(*point)
    assert 0 < r.metrics.mfu <= 1
    assert 0 < r.metrics.mbu <= 1


@given(points())
@settings(max_examples=60)
def test_energy_parts_add_up(point):
    """Power is energy over time: static and dynamic, devices and hosts, tokens and steps."""
    where, _, work, plan = point
    r = st.evaluate(*point)
    m, host = r.metrics, where.fabric.host
    assert m.power == pytest.approx(
        float(where.devices) * (m.device_power + (host.power if host else 0.0)), rel=1e-12
    )
    assert m.energy_per_token * m.tokens_per_s == pytest.approx(m.power, rel=1e-12)
    if work.phase != "serve":
        (step,) = r.steps
        dynamic = (m.device_power - step.static) * step.time
        assert dynamic == pytest.approx(step.price.energy, rel=1e-9)
        if plan.pp == 1 and work.phase != "train" and step.clock == 1.0:
            ops = sum(b.block.count * price.energy for b in step.blocks for _, price in b.ops)
            assert dynamic == pytest.approx(ops * step.pieces, rel=1e-9)


@given(points())
@settings(max_examples=60)
def test_energy_by_level_adds_up_and_no_level_gives_energy_back(point):
    r = st.evaluate(*point)
    parts = r.summary.energy
    assert min(parts.values()) >= -1e-12 * max(parts.values())
    if r.fits:
        assert sum(parts.values()) == pytest.approx(r.metrics.energy_per_token, rel=1e-9)


@given(points())
@settings(max_examples=60)
def test_time_by_kind_of_op_adds_up_to_the_mean_device(point):
    r = st.evaluate(*point)
    for step in r.steps:
        assert sum(step.kinds.values()) == pytest.approx(step.price.time, rel=1e-9)
        assert step.price.time <= step.time * (1 + 1e-12)


@given(points(sizes=(1, 2, 8)))
@settings(max_examples=60)
def test_without_a_pipeline_the_mean_device_is_busy_all_the_time(point):
    """Nothing waits for another stage, so the times by kind of op are the whole step: recomputed layers and
    the optimiser included.
    """
    if point[3].pp == 1:
        for step in st.evaluate(*point).steps:
            assert sum(step.kinds.values()) == pytest.approx(step.time, rel=1e-9)


# ------------------------------------------------------------------------------------------------- monotone

BETTER = [
    "memory.bandwidth",
    "cache.bandwidth",
    "cache.capacity",
    "compute.matrix_rate.*",
    "compute.vector_rate",
    "compute.special_rate",
    "link.bandwidth",
    "link.latency",
    "overhead.kernel",
    "overhead.launch",
    "memory.capacity",
    "memory.latency",
]
FACTORS = np.array([1.0, 1.01, 1.3, 2.0, 5.0, 40.0])


def improved(where, what):
    """The system with one quantity better by each of FACTORS: times divided, everything else multiplied."""
    owner, _, field = what.partition(".")
    factor = 1 / FACTORS if owner == "overhead" or field == "latency" else FACTORS
    if owner == "link":
        dimensions = tuple(replace(d, **{field: getattr(d, field) * factor}) for d in where.fabric.dimension)
        return replace(where, fabric=replace(where.fabric, dimension=dimensions))
    part = getattr(where.chip, owner)
    if field.endswith(".*"):
        changed = {field[:-2]: {k: v * factor for k, v in getattr(part, field[:-2]).items()}}
    else:
        changed = {field: getattr(part, field) * factor}
    return replace(where, chip=replace(where.chip, **{owner: replace(part, **changed)}))


def uncapped(where):
    """The system without limits on power."""
    return replace(where, chip=replace(where.chip, energy=replace(where.chip.energy, power_limit=1e12)))


@pytest.mark.parametrize("what", BETTER)
@given(point=points(models=FAMILIES))
@settings(max_examples=25)
def test_more_of_anything_is_never_slower(what, point):
    """Without a power limit: under one, more of a thing may draw more and lower the clock."""
    where, *rest = point
    where = uncapped(where)
    r = st.evaluate(improved(where, what), *rest, engine="vllm")
    times = np.broadcast_to(r.metrics.step_time, FACTORS.shape)
    assert np.all(times[1:] <= times[:-1] * (1 + 1e-7))  # choices between equals are made to 1e-9 each


@pytest.mark.parametrize(
    "what", ["memory.bandwidth", "compute.matrix_rate.*", "link.bandwidth", "overhead.kernel"]
)
def test_more_of_what_binds_is_faster(what):
    """The law above is not kept by ignoring the quantity."""
    where, plan = uncapped(roomy("8xh200")), st.plan(tp=8)
    work = st.prefill(8, 4096) if "matrix" in what or "link" in what else st.decode(8, 4096)
    times = st.evaluate(improved(where, what), "llama-3-70b", work, plan).metrics.step_time
    assert times[2] < 0.98 * times[0]  # 30 % more


@given(points(models=FAMILIES))
@settings(max_examples=40)
def test_more_work_is_never_faster(point):
    """Four times the sequences, or four times the tokens of each, on the same plan."""
    where, made, work, plan = point
    plan = replace(plan, microbatches=1.0)
    scale = np.array([1.0, 4.0])
    for field in ("batch", "sequence", "context"):
        if work.phase == "decode" and field == "sequence":
            continue
        if field == "context" and work.phase != "decode":
            continue
        grown = {field: getattr(work, field) * scale} | (
            {"context": work.context * scale} if field == "sequence" else {}
        )
        times = st.evaluate(where, made, replace(work, **grown), plan).metrics.step_time
        # A larger piece may fill cores better: the same bytes then flow a little faster.
        assert times[0] <= times[1] * 1.02, field


# ---------------------------------------------------------------------------------------------------- units

SMALLER = {
    "TB/s": "GB/s",
    "GB/s": "MB/s",
    "TFLOP/s": "GFLOP/s",
    "TOP/s": "GOP/s",
    "PFLOP/s": "TFLOP/s",
    "GHz": "MHz",
    "MHz": "kHz",
    "TB": "GB",
    "GB": "MB",
    "us": "ns",
    "ns": "ps",
    "ms": "us",
    "s": "ms",
    "pJ/FLOP": "fJ/FLOP",
    "pJ/OP": "fJ/OP",
    "pJ/B": "fJ/B",
    "pJ/bit": "fJ/bit",
    "W": "mW",
    "kW": "W",
    "USD": "mUSD",
    "USD/kWh": "mUSD/kWh",
    "MB": "kB",
    "B": "mB",
    "PB/s": "TB/s",
    "Tbit/s": "Gbit/s",
    "Gbit/s": "Mbit/s",
}
OTHERS = {
    "GiB": ("MiB", 1024.0),
    "MiB": ("KiB", 1024.0),
    "KiB": ("B", 1024.0),
    "mm2": ("um2", 1e6),
    "year": ("h", 8766.0),
    "ps": ("s", 1e-12),
    "fJ/FLOP": ("J/FLOP", 1e-15),
}


def rescaled(text):
    """A data file with every value in another unit, and how many were changed."""

    def change(match):
        number, unit = float(match.group(1)), match.group(2)
        new, scale = (SMALLER[unit], 1000.0) if unit in SMALLER else OTHERS[unit]
        return f'value = "{number * scale!r} {new}"'

    return re.subn(r'value = "([-+\d.eE]+) ?([^"]+)"', change, text)


def copied(kind, name, folder):
    """The rescaled copy of a shipped file; a base beside it is copied, too."""
    content = (data_folder(kind) / f"{name}.toml").read_text(encoding="utf-8")
    base = re.search(r'^base = "([^"]+)"', content, re.M)
    content, changed = rescaled(content)
    if base:
        copied(kind, base.group(1), folder)
        content = content.replace(base.group(), f'base = "{base.group(1)}.toml"')
    path = folder / f"{name}.toml"
    fitted = data_folder("calibration") / f"{name}.toml"
    if kind == "chip" and fitted.exists():  # what was fitted lies over the chip's own file
        (folder / f"{name}-own.toml").write_text(content, encoding="utf-8")
        content = f'base = "{name}-own.toml"\n' + rescaled(fitted.read_text(encoding="utf-8"))[0]
    path.write_text(content, encoding="utf-8")
    assert changed >= 2
    return str(path)


def metrics_of(result):
    return {name: float(np.asarray(getattr(result.metrics, name))) for name in METRICS}


def question(where, **more):
    """Metrics of a small model in a format the chip has."""
    rates = where.chip.compute.matrix_rate
    activations = next(p for p in ("bf16", "fp16", "fp32") if p in rates)
    small = st.model("llama-3-8b", weights=activations, activations=activations)
    return metrics_of(st.evaluate(where, small, st.serve(8, 512, 64), st.plan(tp=where.devices), **more))


def assert_same_metrics(one, other):
    assert {k: v for k, v in one.items() if not same(v, other[k], 1e-9)} == {}
    assert np.isfinite(one["step_time"]) or one["memory_used"] > one["memory_limit"]


@pytest.mark.parametrize("name", CHIPS)
def test_rescaling_the_units_of_a_chip_changes_no_metric(name, tmp_path):
    chips = st.chip(name), st.chip(copied("chip", name, tmp_path))
    node = st.sized(st.fabric("hgx-h200"), (2.0, 1.0))
    assert_same_metrics(*(question(st.system(c, node)) for c in chips))


@pytest.mark.parametrize("name", FABRICS)
def test_rescaling_the_units_of_a_fabric_changes_no_metric(name, tmp_path):
    fabrics = st.fabric(name), st.fabric(copied("fabric", name, tmp_path))
    sizes = (2.0,) * len(fabrics[0].dimension)
    assert_same_metrics(*(question(st.system(st.chip("h200"), st.sized(f, sizes))) for f in fabrics))


@pytest.mark.parametrize("name", names("engine"))
def test_rescaling_the_units_of_an_engine_changes_no_metric(name, tmp_path):
    assert_same_metrics(
        *(question(system("2xh200"), engine=e) for e in (name, copied("engine", name, tmp_path)))
    )


def test_rescaling_the_units_of_prices_changes_no_metric(tmp_path):
    assert_same_metrics(
        *(
            question(system("2xh200"), money=st.economics(e))
            for e in ("default", copied("economics", "default", tmp_path))
        )
    )


# ---------------------------------------------------------------------------------------------------- graphs


@pytest.mark.parametrize("name", MODELS)
def test_graphs_obey_their_laws_whole_and_sharded(name):
    options = legal_plans(16, name)
    for phase in ("decode", "prefill", "train"):
        work = workload(phase, 64.0, 256.0)
        whole = st.trace(model(name), work)
        check_graph(whole)
        for plan in (pick(options, i) for i in range(0, count(options), max(1, count(options) // 12))):
            check_graph(shard(whole, replace(plan, zero=3.0, sp=1.0), work, active_groups(plan)))


@pytest.mark.parametrize("name", MODELS)
def test_the_identity_plan_leaves_the_graph_unchanged(name):
    for phase in ("decode", "prefill", "train"):
        work = workload(phase, 4.0, 256.0)
        whole = st.trace(model(name), work)
        one = Plan(microbatches=1.0)  # training goes sequence by sequence unless told
        assert active_groups(one) == frozenset()
        alone = shard(whole, one, work, frozenset())
        assert phase == "train" or alone is whole
        assert not any(isinstance(op, Collective) for _, op in alone.ops())
        # In a batch the identity stands beside other plans: collectives exist there, but its sizes are those
        # of the whole.
        many = st.plan(tp=np.array([1.0, 2.0]), dp=np.array([1.0, 2.0]), microbatches=1.0)
        for part in (alone, shard(whole, many, work, active_groups(many))):
            for before, after in zip(whole.blocks, part.blocks, strict=True):
                kept = [op for op in after.ops if not isinstance(op, Collective)]
                for op, cut in zip(before.ops, kept, strict=True):
                    assert [float(v) for v in sizes(op)] == [
                        float(np.broadcast_to(v, (2,))[0]) for v in sizes(cut)
                    ], op.name


def sizes(op):
    """Every quantity of an op, extents included."""
    values = (getattr(op, f.name) for f in fields(op))
    return [q for v in values for q in (leaves(v) if not isinstance(v, (str, bool)) else [])]


def test_the_identity_plan_has_no_communication():
    for name in FAMILIES:
        r = st.evaluate(roomy("h200"), model(name), st.decode(4, 256))
        assert r.summary.kinds["collective"] == 0 and r.summary.resources["network"] == 0


def ranks_share(op: Op, plan: Plan, phase: str) -> float:
    """Ranks among which an op's work is divided; the others repeat it. In decode, context parallel ranks hold
    the same tokens: they divide the work of experts only as far as these are dealt out over them.
    """
    axes = {
        e.axis
        for f in fields(op)
        for v in [getattr(op, f.name)]
        for e in (v if isinstance(v, tuple) else (v,))
        if hasattr(e, "axis")
    }
    tensor = isinstance(op, ExpertMatMul) or axes & {"heads", "ffn", "shared_ffn", "vocab"}
    context = plan.cp if phase != "decode" or "span" in axes else 1.0
    if isinstance(op, ExpertMatMul) and phase == "decode":
        context = min(max(plan.ep * plan.moe_tp / plan.tp, 1.0), plan.cp)
    return float(plan.dp * (plan.tp if tensor else 1.0) * context)


@pytest.mark.parametrize("name", MODELS)
def test_shard_conserves_operations(name):
    """Over all ranks and micro-batches the operations of each op are those of the whole; ops without a
    divided axis are repeated on each rank of a tensor group, counted apart. Degrees divide evenly and do not
    exceed the key-value heads.
    """
    made = model(name)
    heads = float(made.heads if made.attention == "mla" else made.kv_heads)
    for phase in ("decode", "prefill", "train"):
        work = workload(phase, 64.0, 1024.0)
        whole = st.trace(made, work)
        options = legal_plans(16, name)
        even = [
            p
            for p in (pick(options, i) for i in range(count(options)))
            if heads % float(p.tp) == 0 and not float(made.heads) % float(p.tp)
        ]
        for plan in even:
            if float(made.vocab) % float(plan.tp) or plan.moe_groups % 1:
                continue
            if any(
                size % degree
                for size, degree in (
                    (made.ffn, plan.tp),
                    (made.shared_ffn, plan.tp),
                    (made.expert_ffn, plan.moe_tp),
                )
            ):
                continue
            part = shard(whole, plan, work, active_groups(plan))
            pieces = microbatches(plan, work)
            for before, after in zip(whole.blocks, part.blocks, strict=True):
                own = [op for op in after.ops if not isinstance(op, Collective)]
                for op, cut in zip(before.ops, own, strict=True):
                    if isinstance(op, (MatMul, ExpertMatMul, Attention)):
                        over_all = cut.flop() * pieces * ranks_share(op, plan, phase)
                        assert over_all == pytest.approx(op.flop(), rel=1e-9), (phase, op.name, shown(plan))


# an added bias is repeated on each rank
@pytest.mark.parametrize("name", [n for n in MODELS if not model(n).output_bias])
def test_shard_conserves_parameters(name):
    """Weights of a rank times the ranks that divide them are the whole; weights without a divided axis are
    repeated, counted apart.
    """
    made, work = model(name), st.decode(64, 128)
    whole = st.trace(made, work)
    heads = float(made.heads if made.attention == "mla" else made.kv_heads)
    divided = {"heads", "kv_heads", "ffn", "shared_ffn", "vocab"}
    for plan in (pick(legal_plans(16, name), i) for i in range(count(legal_plans(16, name)))):
        if heads % float(plan.tp) or any(
            float(s) % float(d)
            for s, d in (
                (made.ffn, plan.tp),
                (made.vocab, plan.tp),
                (made.shared_ffn, plan.tp),
                (made.expert_ffn, plan.moe_tp),
            )
        ):
            continue
        part = shard(whole, plan, work, active_groups(plan))
        for before, after in zip(whole.blocks, part.blocks, strict=True):
            own = [op for op in after.ops if not isinstance(op, Collective)]
            for op, cut in zip(before.ops, own, strict=True):
                if isinstance(op, ExpertMatMul):
                    ways = plan.ep * plan.moe_tp
                else:
                    held = (
                        op.parameters
                        if hasattr(op, "parameters")
                        else (*op.n, op.k, op.batch)
                        if isinstance(op, MatMul)
                        else ()
                    )
                    ways = plan.tp if any(e.axis in divided for e in held) else 1.0
                assert cut.weight_elements() * ways == pytest.approx(op.weight_elements(), rel=1e-9), (
                    op.name,
                    shown(plan),
                )


@given(points())
@settings(max_examples=60)
def test_devices_together_hold_every_weight(point):
    """No plan loses weights: what all devices hold is at least the model, unless ZeRO-3 keeps one copy over
    dp.
    """
    where, made, work, plan = point
    if work.phase == "train":
        return
    held = st.evaluate(where, made, work, replace(plan, zero=0.0)).summary.memory["weights"]
    whole = sum(b.count * op.weight_bytes() for b, op in st.trace(made, st.decode(1, 1)).ops())
    assert held * plan.devices >= whole * (1 - 1e-9)


# ---------------------------------------------------------------------------------------------------- plans


@given(hy.sampled_from(MODELS), hy.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 32, 64]))
@settings(max_examples=60)
def test_all_plans_are_legal_whole_and_different(name, devices):
    made = st.plans(devices, model(name))
    assert count(made) >= 1
    assert np.all(made.devices == devices)
    assert np.all(made.moe_groups == np.floor(made.moe_groups))
    for rule, broken, _, _ in violations(made, model(name), st.decode(1e9, 1), float(devices)):
        assert not np.any(broken), rule.relation
    rows = {
        tuple(float(getattr(pick(made, i), f)) for f in ("tp", "cp", "dp", "pp", "ep", "moe_tp", "zero"))
        for i in range(count(made))
    }
    assert len(rows) == count(made)


@pytest.mark.parametrize("name", ["llama-3-8b", "qwen2.5-7b", "qwen2.5-14b", "gpt3-175b"])
def test_no_legal_plan_of_a_dense_model_is_left_out(name):
    made = model(name)
    for devices in (1, 6, 8, 16, 28):
        degrees = [d for d in range(1, devices + 1) if devices % d == 0]

        def shares(units, tp):
            return units % tp == 0 or tp % units == 0

        by_hand = {
            (tp, cp, dp, devices // (tp * cp * dp))
            for tp in degrees
            for cp in degrees
            for dp in degrees
            if devices % (tp * cp * dp) == 0
            and shares(made.heads, tp)
            and shares(made.kv_heads, tp)
            and devices // (tp * cp * dp) <= made.layers
        }
        found = st.plans(devices, made)
        assert {
            tuple(int(v[i]) for v in (found.tp, found.cp, found.dp, found.pp)) for i in range(count(found))
        } == by_hand


ILLEGAL = [
    ("llama-3-8b", "tp=4", DEVICES),
    ("llama-3-8b", "tp=8,dp=8", DEVICES),
    ("qwen2.5-14b", "tp=3", HEADS),  # 40 heads, 8 kv heads
    ("qwen2.5-7b", "tp=7", KV_HEADS),  # 28 heads, 4 kv heads
    ("mixtral-8x7b", "dp=8,ep=16,moe_tp=1", EXPERTS),
    ("llama-3-8b", "dp=8,ep=8,moe_tp=1", EXPERTS),
    ("deepseek-v3", "tp=8,ep=8,moe_tp=8", MOE_GRID),
    ("deepseek-v3", "dp=4,ep=8,moe_tp=1", MOE_GRID),
    ("llama-3-8b", "pp=33", LAYERS),
    ("llama-3-8b", "pp=8,virtual_stages=5", LAYERS),
    ("llama-3-8b", "dp=64", BATCH),
    # ranks that share experts may lack sequences: 32 pairs of them for 16 sequences
    ("deepseek-v3", "dp=64,ep=2", BATCH),
    ("llama-3-8b", "dp=8,microbatches=3", MICRO),
]


@pytest.mark.parametrize(("name", "plan", "rule"), ILLEGAL, ids=[f"{n}: {p}" for n, p, _ in ILLEGAL])
@pytest.mark.parametrize("phase", PHASES)
def test_every_illegal_plan_gets_the_bit_of_its_rule(name, plan, rule, phase):
    r = st.evaluate(roomy("8xh200"), model(name), workload(phase, 16.0, 128.0), plan)
    assert r.reason & rule.bit
    assert rule.relation in st.reasons(r.reason) and rule.relation in {w.what for w in r.infeasible}


@given(
    points(sizes=(8, 16)),
    hy.sampled_from(["tp", "cp", "dp", "pp", "ep", "moe_tp", "virtual_stages", "microbatches"]),
    hy.sampled_from([3.0, 11.0, 1000.0]),
)
@settings(max_examples=60)
def test_a_legal_plan_pushed_out_is_infeasible_never_nan(point, degree, factor):
    where, made, work, plan = point
    # A thousand of anything is too much for these systems and models.
    moved = replace(
        plan,
        **{
            degree: (getattr(plan, degree) or 1.0)
            * (1000.0 if degree in ("virtual_stages", "microbatches") else factor)
        },
    )
    r = st.evaluate(where, made, work, moved)
    illegal = degree not in ("ep", "moe_tp") or factor == 1000.0
    assert r.reason > 0 or not illegal
    if r.reason:
        assert_infeasible(r)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", FAMILIES)
def test_what_does_not_fit_is_infinitely_slow_never_nan(name, phase):
    tiny = replace(system("8xh200"), chip=st.chip("h200", **{"memory.capacity": 1e9}))
    r = st.evaluate(tiny, model(name), workload(phase, 64.0, 1024.0), "tp=8")
    assert r.reason & MEMORY.bit
    assert_infeasible(r)


def assert_infeasible(r):
    m = r.metrics
    assert all(
        np.isinf(getattr(m, f))
        for f in ("step_time", "ttft", "tpot", "energy_per_token", "cost_per_mtoken", "lower", "upper")
    )
    assert all(
        getattr(m, f) == 0
        for f in (
            "tokens_per_s",
            "tokens_per_s_per_user",
            "tokens_per_s_per_device",
            "mfu",
            "mbu",
            "power",
            "device_power",
        )
    )
    assert np.isfinite(m.memory_used) and np.isfinite(m.memory_limit)
    assert all(w.levers and w.demand >= 0 for w in r.infeasible) and r.infeasible


# ------------------------------------------------------------------------------------------------ pipelines


@given(hy.integers(1, 130), hy.integers(1, 130))
def test_stages_are_contiguous_even_and_hold_every_layer(layers, stages):
    stages = min(stages, layers)
    start, size = stage_bounds(float(layers), float(stages), np.arange(float(stages)))
    assert size.sum() == layers
    assert size.max() == -(-layers // stages) and size.max() - size.min() <= 1
    assert np.array_equal(start, np.concatenate([[0.0], np.cumsum(size)[:-1]]))


@pytest.mark.parametrize("name", MODELS)
def test_kinds_of_layers_add_up_over_stages(name):
    pattern = model(name).pattern
    for stages in range(1, int(pattern.layers) + 1):
        start, size = stage_bounds(pattern.layers, float(stages), np.arange(float(stages)))
        for part in (0, 1):
            counts = {kind: stage_counts(pattern, part, kind, start, size) for kind in pattern.kinds(part)}
            assert all(np.all(c >= 0) and c.sum() == pattern.total(part, kind) for kind, c in counts.items())
            assert np.array_equal(sum(counts.values()), size)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_pipeline_goes_at_the_pace_of_its_slowest_stage(name):
    """Only a few stages are priced: they must contain the slowest of all, for any number of stages."""
    made = model(name)
    pattern = made.pattern
    links = replace(
        system("8xh200").fabric,
        dimension=tuple(
            replace(d, bandwidth=1e30, latency=0.0, transport_model=None)
            for d in system("8xh200").fabric.dimension
        ),
    )
    # too small for most of these plans: they are priced, and called illegal
    where = uncapped(replace(roomy("8xh200"), fabric=links))
    missed = {}
    for stages in range(2, int(pattern.layers) + 1):
        for work in (st.decode(256, 64), st.decode(256, 32768)):
            (step,) = st.evaluate(where, made, work, st.plan(pp=stages)).steps
            nodes = np.arange(float(stages))
            start, size = stage_bounds(pattern.layers, float(stages), nodes)
            held = {-1: 1.0 * (nodes == 0), -2: 1.0 * (nodes == stages - 1)}
            time = sum(
                b.price.time
                * (
                    held[b.block.part]
                    if b.block.part < 0
                    else stage_counts(pattern, b.block.part, b.block.layer, start, size)
                )
                for b in step.blocks
            )
            if not same(step.stage, time.max(), 1e-9):
                missed[stages] = round(float(step.stage / time.max()), 3)
    assert missed == {}


# ------------------------------------------------------------------------------------------------ placement


@given(hy.lists(hy.integers(0, 3), min_size=1, max_size=4), hy.data())
@settings(max_examples=80)
def test_a_group_lies_on_the_fabric_with_all_its_members(exponents, data):
    dimension = st.fabric("hgx-h200").dimension[0]
    fabric = replace(
        st.fabric("hgx-h200"), dimension=tuple(replace(dimension, size=2.0**e) for e in exponents)
    )
    left, degrees = sum(exponents), []
    for _ in range(3):
        degrees.append(data.draw(hy.integers(0, left)))
        left -= degrees[-1]
    tp, cp, dp, pp = (2.0**e for e in (*degrees, left))
    order = data.draw(hy.sampled_from(ORDERS))
    ep = 2.0 ** data.draw(hy.integers(0, sum(degrees)))
    plan = st.plan(tp=tp, cp=cp, dp=dp, pp=pp, ep=ep, order=order)
    placed = place(plan, fabric, frozenset(("tp", "cp", "dp", "pp", "ep", "copies", ORDERED))).groups
    for name in DIMENSIONS:
        assert np.prod([s.size for s in placed[name]]) == getattr(plan, name), name
        assert all(
            s.size >= 1 and s.stride >= 1 and s.size * s.stride <= d.size
            for s, d in zip(placed[name], fabric.dimension, strict=True)
        )
    # Groups of one plan share the fabric out: each dimension is filled exactly once.
    for i, d in enumerate(fabric.dimension):
        assert np.prod([placed[name][i].size for name in DIMENSIONS]) == d.size
    if plan.ep * plan.moe_tp <= tp * cp * dp:
        assert np.prod([s.size for s in placed["ep"]]) == exchange_ranks(plan)
        assert np.prod([s.size for s in placed["copies"]]) == plan.moe_groups
    if order == DIMENSIONS:  # in the usual order the two ways to lay a plan down are one
        usual = place(plan, fabric, frozenset(("tp", "cp", "dp", "pp", "ep", "copies"))).groups
        for name, lies in usual.items():
            assert [(s.size, s.members) for s in placed[name]] == [(s.size, s.members) for s in lies], name
            assert [s.stride for s in placed[name] if s.size > 1] == [s.stride for s in lies if s.size > 1], (
                name
            )


# -------------------------------------------------------------------------------------- attention and experts


@given(hy.integers(1, 300), hy.integers(1, 300), hy.integers(1, 400))
@settings(max_examples=150)
def test_attended_tokens_are_those_of_the_sum(context, sequence, window):
    sequence = min(sequence, context)
    by_hand = np.mean([min(position, window) for position in range(context - sequence + 1, context + 1)])
    assert attended(float(context), float(sequence), float(window)) == pytest.approx(by_hand, rel=1e-12)


@given(
    hy.integers(1, 8192), hy.sampled_from([(8, 2), (16, 1), (128, 8), (256, 8), (384, 8), (128, 1), (32, 4)])
)
@settings(max_examples=150)
def test_experts_together_get_every_token(tokens, shape):
    experts, top_k = shape
    load, touched = load_of(
        float(tokens), chance(expert_shares(float(experts), 0.0), float(experts), float(top_k))
    )
    assert np.all(load >= 1) and np.all((touched > 0) & (touched <= 1))
    assert np.mean(load * touched) == pytest.approx(tokens * top_k / experts, rel=0.03)


@given(
    hy.integers(1, 8192), hy.sampled_from([(8, 2), (128, 8), (256, 8)]), hy.sampled_from([0.3, 0.6, 1.0, 1.2])
)
@settings(max_examples=60)
def test_skewed_experts_together_get_every_token(tokens, shape, skew):
    """An expert takes a token at most once, so strong skew moves picks to others; where it does not, none is
    lost.
    """
    experts, top_k = shape
    load, touched = load_of(
        float(tokens), chance(expert_shares(float(experts), skew), float(experts), float(top_k))
    )
    assert np.mean(load * touched) == pytest.approx(tokens * top_k / experts, rel=0.1)


@pytest.mark.parametrize(("experts", "top_k"), [(8, 2), (128, 8), (256, 8), (128, 1)])
@pytest.mark.parametrize("tokens", [1, 7, 64, 500])
def test_touched_experts_agree_with_drawing_them(tokens, experts, top_k):
    rng = np.random.default_rng(0)
    draws = 400
    picked = (
        rng.random((draws, tokens, experts)).argpartition(top_k - 1, axis=-1)[..., :top_k].reshape(draws, -1)
    )
    found = np.array([len(np.unique(row)) for row in picked])
    _, touched = load_of(
        float(tokens), chance(expert_shares(float(experts), 0.0), float(experts), float(top_k))
    )
    assert np.mean(touched) * experts == pytest.approx(
        found.mean(), abs=max(5 * found.std() / draws**0.5, 1e-3)
    )


# ---------------------------------------------------------------------------------------------- collectives


def dimension_of(kind, size, bandwidth, latency, reduction):
    return Dimension(
        name="d",
        kind=kind,
        size=size,
        bandwidth=bandwidth,
        efficiency=0.8,
        latency=latency,
        energy=1e-11,
        reduction=reduction,
    )


@hy.composite
def networks(draw):
    """One to three dimensions of any kind, and a group that lies on them."""
    made, spreads = [], []
    for _ in range(draw(hy.integers(1, 3))):
        size = 2.0 ** draw(hy.integers(0, 4))
        group = 2.0 ** draw(hy.integers(0, int(np.log2(size))))
        stride = 2.0 ** draw(hy.integers(0, int(np.log2(size / group))))
        kind, reduction = draw(
            hy.sampled_from(
                [("switch", None), ("switch", 1.0), ("ring", None), ("chain", None), ("full", None)]
            )
        )
        made.append(
            dimension_of(
                kind,
                size,
                draw(hy.sampled_from([5e10, 4.5e11])),
                draw(hy.sampled_from([0.0, 1e-6])),
                reduction,
            )
        )
        spreads.append(GroupLayout(group, stride))
    return replace(st.fabric("hgx-h200"), dimension=tuple(made)), tuple(spreads)


def priced(pattern, payload, network):
    fabric, spreads = network
    return price_collective(Collective("c", "m", (), "x", pattern, "tp", payload), spreads, fabric)


@given(networks(), hy.sampled_from(PATTERNS))
@settings(max_examples=150)
def test_larger_messages_take_longer(network, pattern):
    price = priced(pattern, np.geomspace(1.0, 1e10, 60), network)
    for value in (price.time, price.energy, price.lower):
        assert np.all(np.diff(np.broadcast_to(value, (60,))) >= 0)


@given(networks(), hy.sampled_from(PATTERNS))
@settings(max_examples=60)
def test_a_group_of_one_does_not_communicate(network, pattern):
    fabric, spreads = network
    price = priced(pattern, 1e6, (fabric, tuple(GroupLayout(1.0, s.stride) for s in spreads)))
    assert (price.time, price.network, price.energy, price.lower) == (0, 0, 0, 0)


@given(networks(), hy.sampled_from(PATTERNS), hy.floats(1.0, 1e10))
@settings(max_examples=200)
def test_no_collective_beats_the_bandwidth_of_its_links(network, pattern, payload):
    """Each rank must get what it does not have yet through its own links at their peak."""
    fabric, spreads = network
    price = priced(pattern, payload, network)
    ranks = np.prod([s.size for s in spreads])
    fastest = max(
        (d.bandwidth for s, d in zip(spreads, fabric.dimension, strict=True) if s.size > 1), default=np.inf
    )
    missing = payload if pattern == "send" and ranks > 1 else (ranks - 1) / ranks * payload
    assert price.time >= missing / fastest * (1 - 1e-12)
    assert price.time >= price.lower * (1 - 1e-12)


@given(networks(), hy.floats(1.0, 1e10))
@settings(max_examples=100)
def test_an_all_reduce_costs_at_most_a_reduce_scatter_and_an_all_gather(network, payload):
    whole, scatter, gather = (
        priced(p, payload, network).time for p in ("all_reduce", "reduce_scatter", "all_gather")
    )
    assert whole <= (scatter + gather) * (1 + 1e-12)
    assert whole >= max(scatter, gather) * (1 - 1e-12) or any(
        d.reduction or d.kind in ("switch", "full") for d in network[0].dimension
    )
