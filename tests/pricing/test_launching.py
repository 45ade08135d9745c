"""Steps whose host launches kernels beside the device: passes of training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from strata.mapping.plan import plan
from strata.one_step import priced_step
from strata.software.engine import engine
from strata.software.trainer import ExpertBias
from strata.validation.readers.labels import Catalogue
from strata.workload.model import model as named_model
from strata.workload.tasks import train

LAYERS = 4.0


def step(name="pytorch", tokens=2048.0, recompute="none", graphs=0.0, pp=1, gpt=False, **host):
    sizes = {"heads": 4.0, "kv_heads": 1.0, "head_dim": 128.0, "ffn": 1792.0, "vocab": 16032.0}
    told = {"gated": False, "learned_positions": True, "positions": tokens} if gpt else {}
    model = named_model("llama-2-7b", layers=LAYERS, hidden=4096.0, v_head_dim=128.0, **sizes, **told)
    used = engine(name)
    used = replace(used, cuda_graphs=graphs, training=replace(used.training, **host))
    given = plan(recompute=recompute, microbatches=1, pp=pp)
    return priced_step(Catalogue().system(f"{pp}xh200"), model, train(1.0, tokens), given, used)


def forward(found):
    layers = [b for b in found.blocks if b.block.role in ("attention", "ffn")]
    return float(sum(b.block.times * b.price.time for b in layers if b.block.direction == "forward"))


def test_a_pass_takes_the_longer_of_device_and_host():
    bare = forward(step(host_kernel=0.0))
    # 4 products, attention, two norms of 2 kernels, rotations of 10, an activation of 2: 21 kernels a layer,
    # and the lookup before them
    slow = forward(step(host_kernel=1e-4))
    assert slow == pytest.approx((21 * LAYERS + 1) * 1e-4, rel=0.02)
    assert forward(step(host_kernel=1e-7)) == pytest.approx(bare)


def test_more_tokens_hide_a_host_that_is_not_the_longer():
    few, many = (step(host_kernel=2e-5, tokens=n).time - step(host_kernel=0.0, tokens=n).time
                 for n in (256.0, 16384.0))  # fmt: skip
    assert float(few) > 1e-4 and abs(float(many)) < 1e-9


def test_captured_graphs_need_no_host():
    assert forward(step(host_kernel=1e-3, graphs=1.0)) == pytest.approx(forward(step(host_kernel=0.0)))


def test_fused_kernels_are_fewer_to_launch():
    eager, compiled = (forward(step(name, host_kernel=1e-4)) for name in ("pytorch", "torch-compile"))
    assert compiled < 0.5 * eager


def test_layers_that_run_again_are_launched_again():
    kept, again = (step(recompute=r, host_kernel=1e-4, host_checkpoint=0.0) for r in ("none", "full"))
    # without the head: 21 kernels of each layer, and the lookup
    assert float(again.time - kept.time) >= 21 * LAYERS * 1e-4 * 0.99


def test_backward_kernels_take_their_share_of_the_host():
    one, half = (step(host_kernel=1e-4, host_backward=b) for b in (1.0, 0.5))
    assert forward(one) == pytest.approx(forward(half)) and float(half.time) < float(one.time)


LATE = {"host_collective": 3e-4, "host_stall": 2e-4, "collective_skew": 5e-5}


def parallel_step(gpus, tp=1, pp=1, sequence=2048.0, microbatches=4.0, recompute="none", **host):
    """A step of a small model over tensor ranks, stages and copies; the rest of the devices are copies."""
    sizes = {"heads": 32.0, "kv_heads": 32.0, "head_dim": 64.0, "ffn": 8192.0, "vocab": 32768.0}
    model = named_model("llama-2-7b", layers=8.0, hidden=2048.0, v_head_dim=sizes["head_dim"], **sizes)
    used = engine("nanotron")
    bare = {"host_collective": 0.0, "host_stall": None, "collective_skew": None, "host_kernel": 0.0}
    bare["stalls"] = "stages"
    used = replace(used, training=replace(used.training, **(bare | host)))
    copies = gpus / tp / pp
    given = plan(tp=tp, pp=pp, dp=copies, zero=0, sp=1, microbatches=microbatches, recompute=recompute)
    system = Catalogue().system(f"{gpus}xh100")
    return float(priced_step(system, model, train(copies * microbatches, sequence), given, used).passes)


def test_collectives_of_a_tensor_group_take_their_host_time_at_any_of_its_sizes():
    # four forward and six backward of each of 8 layers, one of the embedding each way, four of the head
    floors = [parallel_step(8, tp=tp, sequence=64.0, host_collective=1e-2) for tp in (2, 4, 8)]
    assert floors[0] == pytest.approx(4 * 86 * 1e-2, rel=0.02)
    assert floors == pytest.approx([floors[0]] * 3, rel=1e-3)
    one = [parallel_step(8, sequence=64.0, host_collective=h) for h in (0.0, 1e-2)]
    assert one[0] == one[1]


def test_a_long_pass_hides_the_host_time_of_its_collectives():
    short, long = (
        parallel_step(8, tp=8, sequence=n, host_collective=3e-4) - parallel_step(8, tp=8, sequence=n)
        for n in (256.0, 65536.0)
    )
    assert short > 1e-2 and long == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("gpus", "tp", "pp"), [(8, 4, 2), (16, 8, 1), (16, 1, 2), (32, 16, 1)])
def test_hosts_stall_only_where_stages_hand_over_between_nodes(gpus, tp, pp):
    calm, stalled = (parallel_step(gpus, tp=tp, pp=pp, sequence=64.0, host_stall=s) for s in (None, 1e-3))
    assert calm == stalled


@pytest.mark.parametrize(
    ("gpus", "tp", "more"), [(8, 4, False), (16, 1, False), (16, 8, True), (32, 16, True)]
)
def test_hosts_of_jobs_on_several_nodes_stall_without_stages(gpus, tp, more):
    calm, stalled = (
        parallel_step(gpus, tp=tp, sequence=64.0, host_stall=s, stalls="nodes") for s in (None, 1e-3)
    )
    assert stalled == (pytest.approx(4 * 86 * tp * 1e-3, rel=0.02) if more else calm)


def test_ranks_come_late_to_collectives_over_nodes_after_their_stall():
    late = {"host_stall": 1e-3, "collective_skew": 1e-4, "stalls": "nodes"}
    inside, over = (parallel_step(gpus, tp=tp, sequence=64.0, **late) for gpus, tp in ((16, 8), (32, 16)))
    assert inside == pytest.approx(4 * 86 * 8 * 1e-3, rel=0.02)
    assert over == pytest.approx(4 * 86 * 16 * 1.1e-3, rel=0.02)


@pytest.mark.parametrize(("gpus", "pp", "messages"), [(8, 2, 2 * 16), (16, 2, 2 * 16), (32, 4, 4 * 16 + 2)])
def test_messages_hold_both_stages(gpus, pp, messages):
    """Two a micro-batch at two stages, four between two others; what fills the line meets each once."""
    plain, held = (
        parallel_step(gpus, tp=8 if gpus > 8 else 4, pp=pp, sequence=64.0, microbatches=16.0, message_hold=h)
        for h in (None, 0.5)
    )
    assert held - plain == pytest.approx(0.5 * messages, rel=0.02)


def test_stalls_grow_with_the_ranks_of_a_tensor_group():
    found = [
        parallel_step(gpus, tp=tp, pp=2, sequence=64.0, host_stall=1e-2) for gpus, tp in ((16, 2), (16, 8))
    ]
    assert found[1] == pytest.approx(4.0 * found[0], rel=0.05)


def test_ranks_come_late_to_collectives_over_nodes_alone():
    inside, over = (
        [parallel_step(gpus, tp=tp, collective_skew=s) for s in (None, 5e-5)]
        for gpus, tp in ((16, 8), (32, 16))
    )
    assert inside[0] == inside[1]
    # 86 collectives of a micro-batch, each with 16 ranks, beside whatever the device does
    assert over[1] - over[0] == pytest.approx(4 * 86 * 16 * 5e-5, rel=1e-6)


def test_ranks_come_late_again_to_layers_that_run_again():
    found = [parallel_step(32, tp=16, recompute="full", collective_skew=s) for s in (None, 5e-5)]
    # the four forward of each layer once more
    assert found[1] - found[0] == pytest.approx(4 * (86 + 32) * 16 * 5e-5, rel=1e-6)


def test_lateness_of_a_batch_is_that_of_its_points():
    sizes = {"heads": 32.0, "kv_heads": 32.0, "head_dim": 64.0, "ffn": 8192.0, "vocab": 32768.0}
    model = named_model("llama-2-7b", layers=8.0, hidden=2048.0, v_head_dim=sizes["head_dim"], **sizes)
    used = engine("nanotron")
    used = replace(used, training=replace(used.training, **LATE))
    tp, pp, dp = np.array([16.0, 4.0, 1.0]), np.array([1.0, 2.0, 2.0]), np.array([1.0, 2.0, 8.0])

    def time(tp, pp, dp):
        given = plan(tp=tp, pp=pp, dp=dp, zero=0.0 * tp, sp=1.0 + 0.0 * tp, microbatches=4.0 + 0.0 * tp)
        system = Catalogue().system("16xh100")
        return priced_step(system, model, train(4.0 * dp, 2048.0 + 0.0 * dp), given, used).time

    singles = [float(time(*(np.array([x]) for x in point))[0]) for point in zip(tp, pp, dp, strict=True)]
    assert time(tp, pp, dp) == pytest.approx(singles, rel=1e-12)


# ------------------------------------------------------------------------------------- narrow formats


def layers_of(weights, **host):
    """A pass of the layers of a model, forward and with the backward pass."""
    used = engine("megatron")
    used = replace(used, cuda_graphs=host.pop("graphs", 0.0), training=replace(used.training, **host))
    model = Catalogue().model("llama-3-8b", weights=weights, kv="bf16")
    found = priced_step(Catalogue().system("1xh100"), model, train(1.0, 128.0), plan(microbatches=1), used)
    layers = [b for b in found.blocks if b.block.role in ("attention", "ffn")]
    return forward(found), float(sum(b.block.times * b.price.time for b in layers))


def test_narrow_products_take_their_host_longer():
    """Four products a layer forward, and eight backward."""
    bare = layers_of("fp8", host_kernel=1e-3)
    slow = layers_of("fp8", host_kernel=1e-3, host_narrow=1e-2)
    layers = float(Catalogue().model("llama-3-8b").layers)
    assert slow[0] - bare[0] == pytest.approx(layers * 4e-2, rel=1e-3)
    assert slow[1] - bare[1] == pytest.approx(layers * 12e-2, rel=1e-3)


def test_wide_products_and_graphs_do_not():
    for weights, graphs in (("bf16", 0.0), ("fp8", 1.0)):
        told = [layers_of(weights, graphs=graphs, host_kernel=1e-3, host_narrow=n) for n in (None, 1e-2)]
        assert told[0] == pytest.approx(told[1])


# ------------------------------------------------------------------------------------- experts


def mixture(name="qwen3-30b-a3b", **host):
    """A layer pass forward of a mixture on 8 devices, whose experts are divided over them."""
    used = engine("megatron")
    used = replace(used, training=replace(used.training, **host))
    given = plan(dp=8, ep=8, moe_tp=1, microbatches=1)
    found = priced_step(Catalogue().system("8xh100"), Catalogue().model(name), train(8.0, 64.0), given, used)
    return forward(found)


def test_products_of_experts_are_launched_expert_by_expert():
    bare = mixture(host_kernel=0.0, host_expert=0.0)
    # 128 experts over 8 ranks, two products in each of 48 layers
    assert mixture(host_kernel=0.0, host_expert=1e-3) == pytest.approx(48 * 2 * 16 * 1e-3)
    assert mixture(host_kernel=0.0, host_expert=None) == pytest.approx(bare)


def test_biases_of_experts_are_launched_expert_by_expert():
    """Of 32 experts over 8 ranks in each of 24 layers; a model without biases has none of it."""
    bare = {"host_kernel": 0.0, "host_expert": 0.0, "captured": "static"}
    kernels = ExpertBias(moved=0.0, moved_back=0.0, host=1e-2, host_back=0.0)
    assert mixture("gpt-oss-20b", **bare, expert_bias=kernels) == pytest.approx(24 * 4 * 1e-2, rel=1e-4)
    assert mixture(**bare, expert_bias=kernels) == mixture(**bare, expert_bias=None)


def test_graphs_hold_what_routing_does_not_change():
    eager, static, full = (
        mixture(host_kernel=1e-3, host_expert=1e-3, captured=c) for c in ("none", "static", "all")
    )
    # products of experts, rows there and back with their exchanges, and the activation between: 37 ms a layer
    assert static == pytest.approx(48 * (2 * 16 + 5) * 1e-3, rel=0.01)
    assert eager > static + 48 * 5e-3 and full == pytest.approx(mixture(host_kernel=0.0, host_expert=0.0))


def test_kernels_of_a_gpt_before_fused_attention():
    # 4 products, four kernels of attention and one that lays heads side by side, two norms of 2, an
    # activation: 14 kernels a layer
    slow = forward(step("megatron-deepspeed", gpt=True, host_kernel=1e-3))
    assert slow == pytest.approx(14 * LAYERS * 1e-3, rel=0.01)


def test_stages_share_what_checkpointing_takes():
    one, two = (
        forward(step(recompute="full", pp=pp, host_kernel=1e-3, host_checkpoint=20.0)) for pp in (1, 2)
    )
    assert one == pytest.approx((41 * LAYERS + 1) * 1e-3, rel=0.02) and two == pytest.approx(one, rel=1e-3)
