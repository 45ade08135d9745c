"""Chips from data sheets alone: a later or larger one of a family is never slower than what its kernels were
taken from, and no framework's kernel is better than the best bare one where none was measured.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import strata as st
from strata.one_step import priced_step
from strata.params import names
from strata.software.engine import engine

# a chip, and one with no less of anything: the same architecture or the next, on a fabric of the same shape
SUCCESSORS = (
    ("b200", "b300"),
    ("gb200", "gb300"),
    ("h100", "h200"),
    ("h100-nvl", "h200-nvl"),
    ("mi308x", "mi300x"),
    ("mi300x", "mi325x"),
    ("mi350x", "mi355x"),
    ("mi355x", "mi455x"),
    ("gaudi2", "gaudi3"),
    ("tpu-v5p", "tpu-v7x"),
    ("trainium2", "trainium3"),
)
MODELS = ("llama-3-8b", "deepseek-v3", "gpt-oss-120b")
BATCHES = np.array([1.0, 32.0, 256.0])
WORK = {
    "decode": lambda length: st.decode(batch=BATCHES, context=length),
    "prefill": lambda length: st.prefill(BATCHES, length),
}


@settings(max_examples=25, deadline=None)
@given(
    pair=some.sampled_from(SUCCESSORS),
    software=some.sampled_from(["ideal", "vllm", "sglang", "trtllm"]),
    model=some.sampled_from(MODELS),
    phase=some.sampled_from(sorted(WORK)),
    length=some.sampled_from([1024.0, 8192.0]),
)
def test_a_successor_is_never_slower(pair, software, model, phase, length):
    before, after = (
        np.asarray(
            priced_step(
                st.system(f"8x{name}"),
                st.model(model),
                WORK[phase](length),
                st.plan(tp=8),
                engine(software),
            ).time
        )
        for name in pair
    )
    # a core of a B300 draws a little less from its caches than one of a B200: a thousandth of a step
    assert np.all(after <= before * 1.0025), (pair, (after / before).tolist())


@pytest.mark.parametrize("name", [n for n in names("chip") if st.chip(n).platform == "rocm"])
def test_no_frameworks_attention_is_better_than_the_best_bare_one(name):
    chip = st.chip(name)
    for kernels in (chip.paged, chip.latent):
        assert kernels.efficiency <= chip.compute.attention_efficiency
        assert max(kernels.step_efficiency.values()) <= chip.compute.attention_efficiency
        assert kernels.memory_efficiency <= chip.memory.efficiency
