"""Power of attention beside its products, against an H200 that runs it at its power limit."""

from dataclasses import replace

import pytest

from strata.hardware.chip import chip
from strata.pricing.kernels.attention import attention_backward, attention_kernel
from strata.pricing.kernels.attention_shape import AttentionShape
from strata.pricing.kernels.device import device
from strata.pricing.power_cap import power_capped

# Our runs on one H200: PyTorch 2.11, cuDNN 9.19, causal, heads of 128, each pass repeated for 2.5 s: tokens, heads,
# key heads, backward, time [s], board power [W]. The energy of a score was chosen with all
# of them in sight.
MEASURED = (
    (4096.0, 64.0, 8.0, False, 540.6e-6, 709.1),
    (4096.0, 64.0, 8.0, True, 1606.5e-6, 694.6),
    (16384.0, 16.0, 2.0, False, 1997.1e-6, 679.1),
    (16384.0, 16.0, 2.0, True, 5405.6e-6, 713.6),
    (32768.0, 8.0, 1.0, False, 3887.4e-6, 685.2),
    (32768.0, 8.0, 1.0, True, 10536.9e-6, 711.6),
)


def priced(tokens, heads, kv_heads, backward, on):
    shape = AttentionShape(
        sequences=1.0,
        queries=tokens,
        span=(tokens + 1.0) / 2.0,
        cached=tokens,
        heads=heads,
        kv_heads=kv_heads,
        key_dim=128.0,
        value_dim=128.0,
        kv_width=256.0,
        activation="bf16",
        kv="bf16",
        backward=backward,
    )
    return (attention_backward if backward else attention_kernel)(shape, device(on))


@pytest.mark.parametrize("row", MEASURED, ids=[f"{r[0]:g}-{r[3]}" for r in MEASURED])
def test_both_passes_of_attention_run_at_the_power_limit(row):
    h200 = chip("h200")
    held = power_capped(priced(*row[:4], h200), h200)
    assert float(held.power) == pytest.approx(row[5], rel=0.04)
    assert 0.85 < float(held.share) < 0.95
    assert float(held.price.time) == pytest.approx(row[4], rel=0.16)


def test_scores_draw_power_and_take_no_time():
    h200 = chip("h200")
    without = replace(h200, energy=replace(h200.energy, score=None))
    for row in MEASURED:
        one, other = priced(*row[:4], h200), priced(*row[:4], without)
        assert one.energy > other.energy and one.time == other.time


def test_what_ends_a_step_leaves_passes_no_faster_clock():
    from strata.pricing.power_cap import step_capped
    from strata.pricing.price import Price

    b200 = chip("b200")
    passes, end = Price(time=0.5, compute=0.5, energy=750.0), Price(time=0.06, network=0.06, energy=2.0)
    alone = step_capped(passes, b200, 0.5, 0.0)
    ended = step_capped(passes, b200, 0.56, 0.0, end)
    longer = step_capped(passes, b200, 1.1, 0.0, end.times(10.0))
    assert alone.share < ended.share < 1.05 * alone.share
    assert float(longer.share) == pytest.approx(float(ended.share), rel=1e-3)
