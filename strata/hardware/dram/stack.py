"""DRAM stacked on logic: what its geometry and its banks give in bandwidth and capacity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from strata.base.arrays import Number, ceil_div, namespace
from strata.base.errors import require
from strata.hardware.dram.channel import Dram, dram_channel
from strata.params import part, positive, quantity, record, text

PORT_PASSES = 2.0  # a byte from DRAM enters a core's SRAM once and leaves it once


@record
class Stack:
    """DRAM layers bonded onto a logic die; unconnected layers add capacity and banks, not peak bandwidth."""

    layers: Number = quantity("1", "DRAM layers in the stack", minimum=1, more="faster")
    channels_per_layer: Number = quantity("1", "independent channels (vaults) of one layer", minimum=1)
    channel_width: Number = quantity("B", "bytes a channel moves in one transfer", minimum=1)
    transfer_rate: Number = positive("Hz", "transfers a second of one channel")
    capacity_per_layer: Number = positive("B", "capacity of one layer")
    connected_layers: Number | None = quantity(
        "1", "layers with their own data connection to the logic die; left out: all", minimum=1, more="faster"
    )
    memory: str = text(
        "the banks behind a channel: a memory's name or TOML path; left out: a fixed efficiency of the peak",
        default="",
    )
    dram: Dram | None = part(Dram, "that memory's quantities, from its file")


def dram_of(stack: Stack) -> Dram | None:
    """The banks behind a channel of a stack, none where it does not describe them."""
    if stack.dram is not None:
        return stack.dram
    return dram_channel(stack.memory) if stack.memory else None


def check_stack(stack: Stack, file: str) -> None:
    """Refuse more connected layers than there are.

    >>> from strata.hardware.chip import chip
    >>> check_stack(replace(chip("stack-ref").stack, connected_layers=6.0), "my.toml")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    strata.base.errors.BadValue: my.toml: stack.connected_layers must be at most stack.layers, but got ...
    """
    if stack.connected_layers is not None:
        fits = bool(np.all(np.asarray(stack.connected_layers) <= np.asarray(stack.layers)))
        relation = f"{file}: stack.connected_layers must be at most stack.layers"
        require(fits, relation, connected_layers=stack.connected_layers, layers=stack.layers)


def connected_layers(stack: Stack) -> Number:
    """Layers with a data connection of their own, at most those there are."""
    if stack.connected_layers is None:
        return stack.layers
    return namespace(stack.connected_layers, stack.layers).minimum(stack.connected_layers, stack.layers)


def stack_channels(stack: Stack) -> Number:
    """Channels that work side by side: those of the connected layers."""
    return connected_layers(stack) * stack.channels_per_layer


def stack_bandwidth(stack: Stack) -> Number:
    r"""Peak bandwidth of a stack [B/s].

    .. math:: B = n \, C \, w \, f

    connected layers n; channels a layer C; bytes a transfer w; transfers a second f.

    DeepStack (arXiv 2604.04750), bandwidth of connected layers.

    >>> from strata.hardware.chip import chip
    >>> stack_bandwidth(replace(chip("stack-ref").stack, transfer_rate=1e9)) / 1e12
    2.048
    """
    return stack_channels(stack) * stack.channel_width * stack.transfer_rate


def stack_capacity(stack: Stack) -> Number:
    r"""Capacity of a stack [B]: layers times capacity of one; unconnected layers hold data too.

    .. math:: C = m \, c

    >>> from strata.hardware.chip import chip
    >>> stack_capacity(chip("stack-ref").stack) / 1e9
    6.0
    """
    return stack.layers * stack.capacity_per_layer


def whole_waves(wave: Number, moved: Number) -> Number:
    r"""Bytes a stack moves when so many are asked for [B]: whole transactions on all channels of a layer.

    .. math:: \hat m = \left\lceil \frac{m}{x C} \right\rceil x C

    wave x C: bytes of a transaction times channels a layer, over which addresses are spread.

    DeepStack (arXiv 2604.04750): waves of transaction bytes times channels of a connected layer.

    >>> float(whole_waves(2048.0, 1.0)), float(whole_waves(2048.0, 2049.0))
    (2048.0, 4096.0)
    """
    return ceil_div(moved, wave) * wave


def channel_in_stack(stack: Stack, dram: Dram) -> Dram:
    """A channel of a stack: its memory, with the time of a burst that width and rate of the channel allow."""
    burst = dram.burst / (stack.channel_width * stack.transfer_rate)
    xp = namespace(burst, dram.timing.ccd_s)
    return replace(
        dram,
        timing=replace(
            dram.timing,
            ccd_s=xp.maximum(dram.timing.ccd_s, burst),
            ccd_l=xp.maximum(dram.timing.ccd_l, burst),
        ),
    )


def stack_banks(stack: Stack, dram: Dram, banks: Number | None = None) -> Number:
    """Banks behind a channel of a connected layer: its own, and its part of unconnected layers' banks."""
    own = dram.bank_groups * dram.banks_per_group if banks is None else banks
    return own * (stack.layers / connected_layers(stack))
