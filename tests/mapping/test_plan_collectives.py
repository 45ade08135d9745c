"""Collectives of transformers under random plans, against formulas written down here: bytes of what the
field says is sent, block by block.
"""

import math
from dataclasses import replace

import pytest
from cases import collectives, count, kernels, legal_plans, model, pick, rank_graph, shown, workload
from hypothesis import assume, given, settings
from hypothesis import strategies as hy

import strata as st
from strata.base.precision import bytes_of

GROUPED = ["llama-3-8b", "gpt3-175b", "mixtral-8x7b", "qwen3-30b-a3b"]
LATENT = "deepseek-v3"
GATHER, RING, ULYSSES = 0.0, 1.0, 2.0


class Rank:
    """Sizes of one rank's part of a step, by hand."""

    def __init__(self, made, work, plan):
        self.made, self.work, self.plan = made, work, plan
        decoding = work.phase == "decode"
        sequences = max(work.batch / plan.dp, 1.0)
        alone = sequences if work.phase == "train" or plan.pp > 1 else 1.0
        pieces = min(plan.pp if decoding else alone, math.floor(sequences))
        self.rows = plan.dp * pieces  # parts that the sequences of a batch are dealt to
        self.sequences = math.ceil(work.batch / self.rows - 1e-9)
        self.inside = 1.0 if decoding else plan.cp  # ranks that divide the new tokens of a sequence
        self.tokens = self.sequences * work.sequence / self.inside
        self.element = bytes_of(made.activations)
        self.stream = self.tokens * made.hidden * self.element  # the residual stream of a rank

    def heads(self, of, ranks):
        return math.ceil(of / ranks - 1e-9)

    def keys(self, ranks):
        """Keys and values of all tokens of a rank's sequences, as its key-value heads hold them."""
        made, work = self.made, self.work
        if made.attention == "mla":
            width = made.kv_rank + made.rope_dim
        else:
            width = self.heads(made.kv_heads, ranks) * 2.0 * made.head_dim
        return self.sequences * work.context * width * self.element


def attention_collectives(rank):
    made, work, plan = rank.made, rank.work, rank.plan
    found = []
    ranks = plan.tp * plan.cp
    rows = rank.sequences * work.sequence * rank.heads(made.heads, ranks) * rank.element
    value = made.kv_rank if made.attention == "mla" and work.phase == "decode" else made.head_dim
    if plan.cp > 1 and work.phase == "decode" and plan.cp_mode != ULYSSES:
        # Parts of the cache on each rank: partial results with one sum of exponentials each.
        local = rank.sequences * work.sequence * rank.heads(made.heads, plan.tp) * rank.element
        found.append(("all_reduce", "cp", local * (value + 1.0)))
    elif plan.cp > 1 and work.phase == "decode":
        found.append(("all_gather", "cp", rows * made.head_dim * plan.cp))
    elif plan.cp > 1 and plan.cp_mode == GATHER:
        found.append(("all_gather", "cp", rank.keys(plan.tp)))
    elif plan.cp > 1 and plan.cp_mode == RING:
        found.append(("send", "cp", rank.keys(plan.tp) / plan.cp))
    elif plan.cp > 1:
        new = rank.sequences * work.sequence * rank.heads(made.kv_heads, ranks) * 2.0 * made.head_dim
        found.append(("all_to_all", "cp", rows * made.head_dim + new * rank.element))
        found.append(("all_to_all", "cp", rows * made.head_dim))
    return [*gathers(rank), *found, *sums(rank, rank.stream)]


def in_parts(rank):
    """Whether tensor ranks hold parts of sequences between products (Megatron's sequence parallelism)."""
    return rank.work.phase == "train" and rank.plan.sp > 0


def sums(rank, payload):
    """A sum over a tensor group, whole; of a residual in parts the scatter of it."""
    pattern = "reduce_scatter" if in_parts(rank) else "all_reduce"
    return [(pattern, "tp", payload)] if rank.plan.tp > 1 else []


def gathers(rank, count=1):
    """Gathers of a residual in parts before the products that read it."""
    return [("all_gather", "tp", rank.stream)] * int(count) if in_parts(rank) and rank.plan.tp > 1 else []


def expert_collectives(rank):
    """One copy of a token to each distinct rank that holds one of its experts, and one result back."""
    made, plan = rank.made, rank.plan
    ranks = max(plan.ep * plan.moe_tp / max(plan.tp, plan.moe_tp), 1.0)
    there, back = [], []
    if ranks > 1:
        copies = ranks * (1.0 - (1.0 - 1.0 / ranks) ** made.top_k)
        sent = rank.tokens / plan.tp * copies * made.hidden * rank.element
        there, back = [("all_to_all", "ep", sent)], [("all_to_all", "ep", sent)]
        if plan.moe_tp > 1:
            there += [("all_gather", "expert_tp", sent * plan.moe_tp)]
            back = [("reduce_scatter", "expert_tp", sent * plan.moe_tp), *back]
    elif plan.moe_tp > plan.tp:  # experts cut over data parallel ranks, whose tokens they all need
        groups = plan.moe_tp / plan.tp
        together, within = max(groups / plan.cp, 1.0), min(groups, rank.inside)
        sequences = math.ceil(rank.work.batch / (rank.rows / together) - 1e-9)
        every = sequences * rank.work.sequence / (rank.inside / within) * made.hidden * rank.element
        there, back = [("all_gather", "expert_tp_dp", every)], [("reduce_scatter", "expert_tp_dp", every)]
    if not in_parts(rank):
        return [*there, *back, *sums(rank, rank.stream)]
    # tensor ranks route their own tokens, unless all experts lie inside the group; shared experts see all
    inside = int(ranks <= 1)
    shared = [*gathers(rank), *sums(rank, rank.stream)] if made.shared_experts else []
    there += gathers(rank, inside)
    return [*there, *sums(rank, rank.stream) * inside, *back, *shared]


def head_collectives(rank):
    """Greedy choice wants every logit in one place; a loss adds up three numbers of a token in fp32."""
    made, work, plan = rank.made, rank.work, rank.plan
    if plan.tp == 1:
        return []
    if work.phase == "train":
        return [*gathers(rank), ("all_reduce", "tp", rank.tokens * 3 * 4.0)]
    read = rank.sequences * (work.sequence if work.phase == "decode" else 1.0) / rank.inside
    return [("all_gather", "tp", read * math.ceil(made.vocab / plan.tp) * plan.tp * rank.element)]


def expected(rank, block):
    made = rank.made
    if block.role == "embedding":
        found = sums(rank, rank.tokens * made.hidden * bytes_of(made.embedding_dtype))
        # learned positions are added to whole sums
        return [("all_reduce", *one[1:]) for one in found] if made.learned_positions else found
    if block.role == "attention":
        return attention_collectives(rank)
    if block.role == "head":
        return head_collectives(rank)
    if block.name == "ffn.moe":
        return expert_collectives(rank)
    return [*gathers(rank), *sums(rank, rank.stream)]


def carried(block):
    """What a block sends, without its gathered weights: pattern, group and bytes, where there are any."""
    sent = [op for op in collectives(block.ops) if op.payload > 0 and not op.prefetch]
    return [(op.pattern, op.group, op.payload) for op in sent]


def assert_sent(found, formula, said):
    assert [f[:2] for f in found] == [f[:2] for f in formula], said
    assert [f[2] for f in found] == pytest.approx([f[2] for f in formula], rel=1e-12), said


@hy.composite
def divided_steps(draw, names, phases=("decode", "prefill", "train")):
    name = draw(hy.sampled_from(names))
    options = legal_plans(16, name)
    plan = pick(options, draw(hy.integers(0, count(options) - 1)))
    mode = draw(hy.sampled_from([GATHER, RING, ULYSSES])) if name != LATENT else GATHER
    assume(mode != ULYSSES or float(model(name).heads) % float(plan.tp * plan.cp) == 0)
    plan = replace(plan, sp=draw(hy.sampled_from([0.0, 1.0])), cp_mode=mode if plan.cp > 1 else 0.0)
    work = workload(draw(hy.sampled_from(phases)), float(plan.dp) * draw(hy.sampled_from([1.0, 6.0])), 1024.0)
    return model(name), work, plan


@given(divided_steps([*GROUPED, LATENT]))
@settings(max_examples=200)
def test_forward_collectives_are_those_of_the_formulas(step):
    """In inference sequence parallelism changes nothing here: the scatter and the gather around norms are the
    two halves of the tensor group's all-reduce. In training they stand apart.
    """
    made, work, plan = step
    rank = Rank(made, work, plan)
    for block in rank_graph(made, work, plan).blocks:
        if block.direction == "forward":
            assert_sent(carried(block), expected(rank, block), (block.name, shown(plan), work.phase))


@given(divided_steps([*GROUPED, LATENT], phases=("train",)))
@settings(max_examples=80)
def test_backward_collectives_are_those_of_the_formulas(step):
    """A tensor group sums twice a layer again; keys and values come once more, with their gradients; what
    went to experts comes back.
    """
    made, work, plan = step
    rank = Rank(made, work, plan)
    blocks = {b.name: b for b in rank_graph(made, work, plan).blocks}
    for name, block in blocks.items():
        if block.direction == "forward":
            continue
        sent, said = carried(block), (name, shown(plan))
        over_tp = [c for c in sent if c[1] == "tp"]
        if block.role == "attention" and made.attention == "mla":
            # Down-projections are not divided: what is summed are gradients of latents.
            latents = [rank.tokens * r * rank.element for r in (made.kv_rank, made.q_rank)]
            summed = [("all_reduce", "tp", size) for size in latents] if plan.tp > 1 else []
            assert_sent(over_tp, [*gathers(rank), *summed, *gathers(rank)], said)
        elif block.role == "embedding":
            assert_sent(over_tp, gathers(rank), said)
        elif block.role == "head":
            assert_sent(over_tp, [*gathers(rank), *sums(rank, rank.stream)], said)
        elif block.name.startswith("ffn.moe") and in_parts(rank):
            inside = int(plan.ep * plan.moe_tp <= max(plan.tp, plan.moe_tp))
            count = inside + made.shared_experts
            backward = [*gathers(rank, inside + 2 * made.shared_experts), *sums(rank, rank.stream) * count]
            assert_sent(sorted(over_tp), sorted(backward), said)
        else:
            assert_sent(over_tp, [*gathers(rank, 2), *sums(rank, rank.stream)], said)
        ahead = carried(blocks[block.gradient_of])
        over_cp, before = ([c for c in found if c[1] == "cp"] for found in (sent, ahead))
        if plan.cp_mode == ULYSSES:
            assert sum(c[2] for c in over_cp) == pytest.approx(sum(c[2] for c in before)), said
        else:
            assert_sent(over_cp, [(pattern, group, 2.0 * size) for pattern, group, size in before], said)
        apart, there = ([c for c in found if c[1] not in ("tp", "cp")] for found in (sent, ahead))
        assert_sent(apart, there, said)  # as many bytes come back from experts as went there


@given(divided_steps([*GROUPED, LATENT], phases=("decode", "train")))
@settings(max_examples=60)
def test_sharded_weights_are_gathered_before_each_pass(step):
    """ZeRO-3: the weights of a block over dp, those of its experts over the ranks that hold the same ones; of a
    step that trains over all ranks that hold the same weights, context ranks too.
    """
    made, work, plan = step
    plan = replace(plan, zero=3.0)
    blocks = {b.name: b for b in rank_graph(made, work, plan).blocks}
    for block in blocks.values():
        own = kernels(blocks[block.gradient_of or block.name].ops)
        experts = sum(op.weight_bytes() for op in own if op.kind == "experts")
        rest = sum(op.weight_bytes() for op in own if op.kind != "experts")
        fetched = [op for op in collectives(block.ops) if op.prefetch and op.payload > 0]
        found = [(op.pattern, op.group, op.payload) for op in fetched]
        trains = work.phase == "train"
        ranks = plan.dp * plan.cp if trains else plan.dp
        formula = [("all_gather", "dp_shard" if trains else "dp", rest)] if ranks > 1 else []
        if ranks > 1 and plan.moe_groups > 1 and experts:
            apart = "expert_shard" if plan.ep * plan.moe_tp != plan.tp else "dp_shard"
            formula.append(("all_gather", apart if trains else "expert_dp", experts))
        assert_sent(found, formula, (block.name, shown(plan)))


@given(divided_steps([*GROUPED, LATENT]), hy.integers(0, 10**6))
@settings(max_examples=60)
def test_which_collectives_exist_depends_on_active_groups_only(step, seed):
    """Another plan under the same active groups has the same ops with the same edges, whatever its
    degrees.
    """
    made, work, plan = step
    options = legal_plans(16, made.name)
    other = replace(pick(options, seed % count(options)), cp_mode=plan.cp_mode, zero=3.0)
    active = replace(plan, zero=3.0).active() | other.active()
    one, two = (rank_graph(made, work, p, active) for p in (plan, other))
    names = [[(b.name, op.name, op.kind, op.inputs, op.output) for b, op in g.ops()] for g in (one, two)]
    assert names[0] == names[1]


def test_sends_of_a_ring_are_one_fewer_than_its_ranks():
    graph = rank_graph("llama-3-8b", st.prefill(1.0, 4096.0), "cp=8,cp_mode=ring")
    sends = [op for _, op in graph.ops() if op.kind == "collective" and op.pattern == "send"]
    assert [(op.steps, op.overlaps) for op in sends] == [(7.0, "attention")]
