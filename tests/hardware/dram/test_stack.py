"""DRAM stacked on logic: bandwidth of its layers, the memory it names, bad input."""

from dataclasses import replace

import numpy as np
import pytest
from test_channel import random_streams

import strata as st
from strata.base.arrays import enable_jax
from strata.base.errors import BadValue, UnknownName
from strata.hardware.chip import with_memory
from strata.hardware.dram.channel import (
    Stream,
    dram_channel,
    sustained_channel,
)
from strata.hardware.dram.stack import (
    Stack,
    channel_in_stack,
    check_stack,
    dram_of,
    stack_bandwidth,
    stack_banks,
    stack_channels,
    whole_waves,
)


def of_a_channel(stack, stream, port=None):
    """What one of a stack's channels sustains: its share of what all cores ask for, and of their ports,
    through which a byte goes twice.
    """
    found, count = dram_of(stack), stack_channels(stack)
    share = None if stream.outstanding is None else stream.outstanding / count
    asked = replace(stream, banks=stack_banks(stack, found), outstanding=share)
    return sustained_channel(
        channel_in_stack(stack, found), asked, 0.0, None if port is None else port / (2.0 * count)
    )


def test_jax_gives_the_same_and_a_slope():
    jax = pytest.importorskip("jax")
    enable_jax()
    many = random_streams(32)
    stack = Stack(
        layers=8.0,
        channels_per_layer=16.0,
        channel_width=32.0,
        transfer_rate=0.8e9,
        capacity_per_layer=1.5e9,
        connected_layers=4.0,
        memory="stacked-dram",
    )

    def whole(layers, run, share):
        stream = Stream(run=run, read_share=share, outstanding=1e6, latency=1e-7)
        return of_a_channel(replace(stack, layers=layers), stream, 4e12).bandwidth

    made = jax.jit(whole)(8.0, many["run"], many["read_share"])
    np.testing.assert_allclose(np.asarray(made), whole(8.0, many["run"], many["read_share"]), rtol=1e-9)
    assert np.isfinite(jax.grad(lambda f: whole(8.0, 1024.0, f))(0.7))


def test_unconnected_layers_hide_row_cycles_as_deepstack_says():
    """One bank behind a channel of a layer, whole rows: all of the peak up to half of the layers connected,
    read over full at all of them.
    """
    one = dram_channel("stacked-dram", **{"bank_groups": 1.0, "banks_per_group": 1.0, "timing.refi": 1.0})
    made = [
        Stack(
            layers=8.0,
            channels_per_layer=16.0,
            channel_width=32.0,
            transfer_rate=0.8e9,
            capacity_per_layer=1e9,
            connected_layers=float(n),
            dram=one,
        )
        for n in range(1, 9)
    ]
    share = np.array(
        [
            float(of_a_channel(s, Stream(run=2048.0)).bandwidth * stack_channels(s) / stack_bandwidth(s))
            for s in made
        ]
    )
    assert share[:4] == pytest.approx(1.0, rel=1e-4) and np.all(np.diff(share) <= 1e-9)
    assert share[-1] == pytest.approx(16 * 5 / (8 + 15 * 5 + 5 + 8), rel=1e-4)


def test_more_layers_connected_give_more_and_unconnected_ones_never_less():
    base = Stack(
        layers=8.0,
        channels_per_layer=16.0,
        channel_width=32.0,
        transfer_rate=0.8e9,
        capacity_per_layer=1.5e9,
        memory="stacked-dram",
    )
    runs = Stream(run=np.array([64.0, 128.0, 512.0, 2048.0]), read_share=0.8)
    of = {
        (m, n): of_a_channel(replace(base, layers=m, connected_layers=n), runs).bandwidth * n * 16
        for m in (4.0, 8.0)
        for n in (2.0, 4.0)
    }
    assert np.all(of[4.0, 4.0] > of[4.0, 2.0]) and np.all(of[8.0, 4.0] >= of[4.0, 4.0] * (1 - 1e-9))
    assert stack_bandwidth(replace(base, layers=8.0, connected_layers=4.0)) == stack_bandwidth(
        replace(base, layers=4.0)
    )


def test_a_wider_channel_helps_until_the_banks_bind():
    base = Stack(
        layers=4.0,
        channels_per_layer=16.0,
        channel_width=32.0,
        transfer_rate=0.8e9,
        capacity_per_layer=1.5e9,
        memory="stacked-dram",
    )
    found = [
        of_a_channel(replace(base, channel_width=w), Stream(run=128.0)) for w in (16.0, 32.0, 64.0, 256.0)
    ]
    assert [f.binding for f in found] == ["interface", "interface", "activation", "activation"]
    assert found[2].bandwidth == pytest.approx(found[3].bandwidth, rel=1e-3)


def test_waves_cover_what_is_moved():
    moved = np.array([0.0, 1.0, 2048.0, 2049.0, 1e9])
    np.testing.assert_allclose(whole_waves(2048.0, moved), np.ceil(moved / 2048) * 2048)


def test_a_stack_names_its_memory_and_may_change_it():
    written = with_memory(
        {
            "stack": {
                "memory": "stacked-dram",
                "dram": {"timing": {"rcd": {"value": "9 ns", "source": "a test's own"}}},
            }
        }
    )
    assert (
        written["stack"]["dram"]["timing"]["rcd"]["value"] == "9 ns"
        and written["stack"]["dram"]["timing"]["rp"]["value"] == "8 ns"
    )
    assert dram_of(replace(st.chip("stack-ref").stack, memory="", dram=None)) is None
    with pytest.raises(UnknownName, match="no memory called 'stacked'; nearest: stacked-dram"):
        with_memory({"stack": {"memory": "stacked"}})


def test_more_connected_layers_than_layers_are_refused():
    with pytest.raises(BadValue, match=r"connected_layers must be at most stack\.layers"):
        check_stack(
            Stack(
                layers=4.0,
                channels_per_layer=16.0,
                channel_width=32.0,
                transfer_rate=1e9,
                capacity_per_layer=1e9,
                connected_layers=6.0,
            ),
            "a.toml",
        )
