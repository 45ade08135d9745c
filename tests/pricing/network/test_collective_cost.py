"""One collective asked for by name: the same price as inside a step, and one line for each thing a user can
get wrong.
"""

import re

import numpy as np
import pytest

import strata as st
from strata.base.arrays import enable_jax
from strata.hardware.fabric import with_library
from strata.mapping.place import spread
from strata.params import names
from strata.pricing.network.collective_cost import bus_factor
from strata.pricing.network.collectives import PATTERNS, chosen_algorithms, price_collective
from strata.workload.graph import Collective

TWO_LEVELS = st.hardware.sized(st.fabric("hgx-h200"), (8, 4))


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("name", names("fabric"))
def test_every_collective_runs_on_every_fabric(name, pattern):
    made = st.fabric(name)
    found = st.network.collective(
        st.hardware.sized(made, (4.0,) * len(made.dimension)), pattern, bytes=np.array([1.0, 1e6, 1e10])
    )
    assert (
        np.all(found.time > 0)
        and np.all(np.diff(found.time) > 0)
        and np.all(found.lower <= found.time * (1 + 1e-12))
    )
    assert (
        np.all(found.energy >= 0)
        and np.all(np.isfinite(found.bus_bandwidth))
        and float(np.max(found.ranks)) == 4.0 ** len(made.dimension)
    )


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("engine", ["ideal", "vllm", "megatron"])
def test_it_is_priced_as_in_a_step(pattern, engine):
    spoken = with_library(TWO_LEVELS, st.engine(engine).collectives)
    op, where = Collective(pattern=pattern, group="tp", payload=3e6), spread(2.0, 8.0, spoken)
    found = st.network.collective(TWO_LEVELS, pattern, bytes=3e6, ranks=8, stride=2, engine=engine)
    assert found.time == price_collective(op, where, spoken).time and found.algorithms == chosen_algorithms(
        op, where, spoken
    )


@pytest.mark.parametrize("pattern", PATTERNS)
def test_arrays_are_single_answers(pattern):
    sizes, ranks = np.array([100.0, 1e5, 1e9]), np.array([2, 8, 32])[:, None]
    box = st.network.collective(TWO_LEVELS, pattern, bytes=sizes, ranks=ranks, engine="vllm")
    assert box.time.shape == (3, 3) and all(a.shape == (3, 3) for a in box.algorithms)
    for i, j in np.ndindex(3, 3):
        one = st.network.collective(
            TWO_LEVELS, pattern, bytes=float(sizes[j]), ranks=int(ranks[i, 0]), engine="vllm"
        )
        assert float(one.time) == pytest.approx(float(box.time[i, j]), rel=1e-12) and float(
            one.lower
        ) == pytest.approx(float(box.lower[i, j]))
        assert float(one.bus_bandwidth) == pytest.approx(float(box.bus_bandwidth[i, j]), rel=1e-12)
        assert one.algorithms == tuple(str(a[i, j]) for a in box.algorithms)


def test_a_fabric_of_arrays_names_its_ways():
    made = st.hardware.sized(st.fabric("torus-256", **{"0.bandwidth": np.array([1e10, 1e12])}), (4,))
    found = st.network.collective(made, "all_reduce", bytes=1e6)
    assert (
        found.time.shape == (2,)
        and found.algorithms[0].shape == (2,)
        and set(found.algorithms[0]) == {"bidirectional ring"}
    )


def test_bandwidths_are_those_of_nccl_tests():
    found = st.network.collective("8xh200", "all_reduce", bytes=1e9, ranks=8)
    assert found.algorithm_bandwidth == pytest.approx(
        1e9 / found.time
    ) and found.bus_bandwidth == pytest.approx(1.75e9 / found.time)
    ring = st.network.collective("8xh200", "all_gather", bytes=1e10, ranks=8)
    assert 0.5 * 450e9 < ring.bus_bandwidth <= 450e9
    assert (
        bus_factor("all_to_all", 4.0) == 0.75
        and bus_factor("send", 4.0) == bus_factor("broadcast", 4.0) == 1.0
    )


def test_systems_names_and_fabrics_are_the_same_question():
    times = {
        float(st.network.collective(on, "all_to_all", bytes=1e7).time)
        for on in ("4x8xh200", st.system("32xh200"), TWO_LEVELS)
    }
    assert len(times) == 1
    assert (
        st.network.collective(st.fabric("hgx-h200"), "send", bytes=1).ranks == 8
    )  # open dimensions count as 1
    assert st.network.collective("4x8xh200", "all_reduce", bytes=1, stride=8).ranks == 4
    assert st.network.collective("8xh200", "all_reduce", bytes=[1, 2], ranks=(2, 4)).time.shape == (2,)


def test_the_engine_decides_whose_ways_there_are():
    ways = {
        name: st.network.collective("8xh200", "all_reduce", bytes=8e3, engine=name).algorithms[0]
        for name in ("vllm", "sglang", "megatron")
    }
    assert "vllm" in ways["vllm"] and "sglang" in ways["sglang"] and "shot" not in ways["megatron"]
    assert st.network.collective("8xh200", "all_reduce", bytes=8e3, engine=st.engine("vllm")).engine == "vllm"


def test_a_compiler_may_trace_it():
    jax = pytest.importorskip("jax")
    enable_jax()
    sizes = np.array([1e4, 1e8])
    traced = jax.jit(lambda b, r: st.network.collective(TWO_LEVELS, "all_reduce", bytes=b, ranks=r).time)(
        sizes, 16.0
    )
    np.testing.assert_allclose(
        traced, st.network.collective(TWO_LEVELS, "all_reduce", bytes=sizes, ranks=16).time, rtol=1e-12
    )


BAD = {
    "pattern": ({"pattern": "allreduce"}, "no collective called 'allreduce'; nearest: all_reduce"),
    "zero": ({"bytes": 0}, "collective bytes must be a positive number, but got 0"),
    "negative": ({"bytes": np.array([4, -3])}, "collective bytes must be a positive number, but got -3"),
    "not a number": (
        {"bytes": float("nan")},
        "collective: bytes is a number or an array or list of numbers, but got nan",
    ),
    "text": (
        {"bytes": "1 MB"},
        "collective: bytes is a number or an array or list of numbers, but got '1 MB'",
    ),
    "one rank": (
        {"ranks": 1},
        "a collective on fabric hgx-h200 needs 2 ranks or more, but got (ranks=1, stride=1)",
    ),
    "no rank": ({"ranks": 0}, "collective ranks must be a positive whole number, but got 0"),
    "part of a rank": ({"ranks": 2.5}, "collective ranks must be a positive whole number, but got 2.5"),
    "too many": (
        {"ranks": np.array([4, 64])},
        "a group on fabric hgx-h200 (8 nvlink x 4 infiniband) has 1 to 32 ranks, but got (ranks=64)",
    ),
    "too far apart": (
        {"ranks": 8, "stride": 8},
        "ranks x stride must not exceed the 32 devices of fabric hgx-h200, but got (ranks=8, stride=8)",
    ),
    "uneven": (
        {"ranks": 12},
        "a group must fill the inner dimensions of fabric hgx-h200 (8 nvlink x 4 infiniband) evenly, but got (ranks=12",
    ),
    "stride": ({"stride": 0}, "collective stride must be a positive whole number, but got 0"),
    "no room for two": (
        {"stride": 32},
        "a collective on fabric hgx-h200 needs 2 ranks or more, but got (ranks=1, stride=32)",
    ),
    "beyond": (
        {"stride": 64},
        "a collective on fabric hgx-h200 needs 2 ranks or more, but got (ranks=0, stride=64)",
    ),
    "shapes": (
        {"bytes": np.ones(2), "ranks": np.full(3, 2)},
        "collective sizes must broadcast against each other, but got bytes (2,), ranks (3,)",
    ),
    "engine": ({"engine": "vlm"}, "no engine called 'vlm'; nearest: vllm"),
    "system": ({"on": "8xh20o"}, "no chip called 'h20o'"),
    "one device": (
        {"on": "1xh200"},
        "a collective on fabric hgx-h200 needs 2 ranks or more, but got (ranks=1, stride=1)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_named_in_one_line(case):
    changes, said = BAD[case]
    asked = {"on": TWO_LEVELS, "pattern": "all_reduce", "bytes": 1e6, **changes}
    with pytest.raises(st.StrataError, match="^" + re.escape(said)) as caught:
        st.network.collective(**asked)
    assert "\n" not in str(caught.value)
