"""A training step whose host launches kernels beside the device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strata.mapping.engine import engine
from strata.mapping.plan import plan
from strata.validation.readers.catalogue import Catalogue
from strata.validation.readers.steps import dense_model, priced_step
from strata.workload.tasks import train

LAYERS = 4.0


def step(name="pytorch", tokens=2048.0, recompute="none", graphs=0.0, **host):
    sizes = {"heads": 4.0, "kv_heads": 1.0, "head_dim": 128.0, "ffn": 1792.0, "vocab": 16032.0}
    model = dense_model("small", layers=LAYERS, hidden=4096.0, **sizes)
    used = engine(name)
    used = replace(used, graphs=graphs, training=replace(used.training, **host))
    given = plan(recompute=recompute, microbatches=1)
    return priced_step(Catalogue().system("1xh200"), model, train(1.0, tokens), given, used)


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
