"""Adapters of a served model: their bytes, what they take of the caches and of the steps."""

from dataclasses import replace

import numpy as np
import pytest

from strata.base.errors import StrataError
from strata.evaluate import evaluate
from strata.serving.deployment import Deployment
from strata.serving.pools import cache_bytes
from strata.serving.simulated import with_adapters
from strata.workload.adapted_model import adapted_model, adapter_bytes
from strata.workload.lora import Lora
from strata.workload.model import model
from strata.workload.tasks import decode

LORA = Lora(rank=16.0)


@pytest.fixture(scope="module")
def service():
    return Deployment(
        "1xh200", "llama-3-8b", "tp=1", "vllm", context=4096, max_num_seqs=16, max_num_batched_tokens=512
    ).priced()[0]


def test_adapters_take_blocks_of_the_cache(service):
    held, rules = with_adapters(service, ["a", "b"], LORA, slots=32, bandwidth=50e9)
    size = adapter_bytes(service.model, LORA)
    page = float(cache_bytes(service.model, float(service.room.page)))
    lost = service.room.blocks - held.room.blocks
    assert lost * page == pytest.approx(32 * size, rel=0.01)
    assert rules.fetch_time == pytest.approx(size / 50e9)
    assert rules.names == {"a", "b"}


def test_adapters_that_do_not_fit_are_told(service):
    small = replace(service, room=replace(service.room, blocks=10))
    with pytest.raises(StrataError, match=r"take \d+ blocks of the cache"):
        with_adapters(small, ["a"], LORA, slots=32, bandwidth=50e9)
    with pytest.raises(StrataError, match="positive bandwidth"):
        with_adapters(service, ["a"], LORA, slots=32, bandwidth=0.0)
    with pytest.raises(StrataError, match="at least one adapter"):
        adapted_model(service.model, LORA, 0)


def test_steps_with_adapters_take_longer_the_more_there_are_and_the_higher_their_rank():
    base = model("llama-3-8b")
    batch = np.array([1.0, 16.0, 64.0])

    def steps(program):
        return np.asarray(
            evaluate("1xh200", program, decode(batch, 2048.0), "tp=1", "vllm").metrics.step_time
        )

    plain, one = steps(base), steps(adapted_model(base, LORA))
    many, high = steps(adapted_model(base, LORA, 32)), steps(adapted_model(base, Lora(rank=256.0)))
    assert (plain < one).all() and (one <= many).all() and (one < high).all()
    assert many[0] == pytest.approx(one[0])  # one sequence has one adapter
    assert many[2] > one[2]
