"""DRAM stacked on logic: what its geometry gives in bandwidth and capacity."""

from __future__ import annotations

from dataclasses import dataclass

from strata.arrays import Number, namespace, register_pytree
from strata.params import quantity


@register_pytree
@dataclass(frozen=True, eq=False)
class Stack:
    """DRAM layers bonded onto a logic die; unconnected layers add capacity, not peak bandwidth."""

    layers: Number = quantity("1", "DRAM layers in the stack", minimum=1)
    channels_per_layer: Number = quantity("1", "independent channels (vaults) of one layer", minimum=1)
    channel_width: Number = quantity("B", "bytes a channel moves in one transfer", minimum=1)
    transfer_rate: Number = quantity("Hz", "transfers a second of one channel", positive=True)
    capacity_per_layer: Number = quantity("B", "capacity of one layer", positive=True)
    connected_layers: Number = quantity("1", "layers with their own data connection to the logic die; left out: all", optional=True, minimum=1)


def stack_bandwidth(stack: Stack) -> Number:
    r"""Peak bandwidth of a stack [B/s].

    .. math:: B = n \, C \, w \, f

    connected layers n (at most the layers there are); channels a layer C; bytes a transfer w; transfers a second f.
    Interface peak: bank cycles and refresh are part of the sustained fraction.

    DeepStack (arXiv 2604.04750), bandwidth of connected layers.

    >>> stack_bandwidth(Stack(4.0, 16.0, 32.0, 1e9, 1e9)) / 1e12
    2.048
    """
    connected = stack.layers
    if stack.connected_layers is not None:
        connected = namespace(stack.connected_layers, stack.layers).minimum(stack.connected_layers, stack.layers)
    return connected * stack.channels_per_layer * stack.channel_width * stack.transfer_rate


def stack_capacity(stack: Stack) -> Number:
    r"""Capacity of a stack [B]: layers times capacity of one; unconnected layers hold data too.

    .. math:: C = m \, c

    >>> stack_capacity(Stack(4.0, 16.0, 32.0, 1e9, 1.5e9)) / 1e9
    6.0
    """
    return stack.layers * stack.capacity_per_layer
