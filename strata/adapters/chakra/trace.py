"""Chakra execution traces: nodes with their attributes, and the bytes of their files.

A file holds messages of the protocol buffer wire format, each after its length: the metadata of the trace,
then its nodes. Numbers of fields and enumerations are those of MLCommons Chakra
(schema/protobuf/et_def.proto), kinds of attributes those that its feeder reads
(src/feeder/et_feeder_node.cpp). Five messages of plain fields need no library.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strata.base.errors import BadFile
from strata.base.reading import file_bytes

VERSION = "0.0.4"  # of the schema
NODE_TYPES = (
    "INVALID_NODE",
    "METADATA_NODE",
    "MEM_LOAD_NODE",
    "MEM_STORE_NODE",
    "COMP_NODE",
    "COMM_SEND_NODE",
    "COMM_RECV_NODE",
    "COMM_COLL_NODE",
)
METADATA, MEM_LOAD, MEM_STORE, COMPUTE, SEND, RECEIVE, COLLECTIVE = range(1, len(NODE_TYPES))
COMM_TYPES = (
    "all_reduce",
    "reduce",
    "all_gather",
    "gather",
    "scatter",
    "broadcast",
    "all_to_all",
    "reduce_scatter",
)
# fields of an attribute: one for each type of its value
DOUBLE, FLOAT, INT32, INT64, UINT32, UINT64, SINT32, SINT64 = 3, 5, 7, 9, 11, 13, 15, 17
FIXED32, FIXED64, SFIXED32, SFIXED64, BOOL, BOOL_LIST, STRING = 19, 21, 23, 25, 27, 28, 29
# attributes whose type is not that of their value in Python
TYPED = {"tensor_size": UINT64, "comm_src": INT32, "comm_dst": INT32, "comm_tag": INT32}
VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5  # types of the wire
WORD = 1 << 64


@dataclass(frozen=True, kw_only=True)
class ChakraNode:
    """One node of a rank's trace: work of the device, a collective, a message sent or received."""

    id: int
    name: str
    type: int  # of NODE_TYPES
    data_deps: tuple[int, ...] = ()
    ctrl_deps: tuple[int, ...] = ()
    start: int = 0  # [us]
    duration: int = 0  # [us]
    attributes: dict[str, Any] = field(default_factory=dict)

    def number(self, name: str) -> float:
        """An attribute that is a number; 0 where there is none."""
        value = self.attributes.get(name, 0)
        return float(value) if isinstance(value, int | float) else 0.0


@dataclass(frozen=True, kw_only=True)
class ChakraFile:
    """The trace of one rank: its metadata, its nodes."""

    nodes: tuple[ChakraNode, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    version: str = VERSION


# ------------------------------------------------------------------------------------------------ written


def varint(value: int) -> bytes:
    """A whole number, seven bits a byte; negative ones as the 64 bits of their complement.

    >>> varint(300).hex(), len(varint(-1))
    ('ac02', 10)
    """
    value %= WORD
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _number(place: int, value: int) -> bytes:
    return varint(place << 3 | VARINT) + varint(value) if value else b""


def _bytes(place: int, value: bytes) -> bytes:
    return varint(place << 3 | BYTES) + varint(len(value)) + value


def _text(place: int, value: str) -> bytes:
    return _bytes(place, value.encode()) if value else b""


def _packed(place: int, values: tuple[int, ...]) -> bytes:
    return _bytes(place, b"".join(map(varint, values))) if values else b""


def attribute_bytes(name: str, value: Any) -> bytes:
    """An attribute: its name, and its value in the field of its type."""
    if isinstance(value, tuple):
        told = _bytes(BOOL_LIST, _packed(1, tuple(int(v) for v in value)))
    elif isinstance(value, str):
        told = _bytes(STRING, value.encode())
    elif isinstance(value, float):
        told = varint(DOUBLE << 3 | EIGHT) + struct.pack("<d", value)
    else:
        place = BOOL if isinstance(value, bool) else TYPED.get(name, INT64)
        told = varint(place << 3 | VARINT) + varint(int(value))
    return _text(1, name) + told


def node_bytes(node: ChakraNode) -> bytes:
    """A node as a message."""
    parts = [_number(1, node.id), _text(2, node.name), _number(3, node.type)]
    parts += [_packed(4, node.ctrl_deps), _packed(5, node.data_deps)]
    parts += [_number(6, node.start), _number(7, node.duration)]
    parts += [_bytes(10, attribute_bytes(name, value)) for name, value in node.attributes.items()]
    return b"".join(parts)


def chakra_bytes(trace: ChakraFile, known: dict[int, bytes] | None = None) -> bytes:
    """A rank's trace as the bytes of its file; `known`: those of nodes that ranks share, by identity."""
    attributes = (_bytes(2, attribute_bytes(name, value)) for name, value in trace.attributes.items())
    parts = [_long(_text(1, trace.version) + b"".join(attributes))]
    for node in trace.nodes:
        found = known.get(id(node)) if known is not None else None
        found = _long(node_bytes(node)) if found is None else found
        if known is not None and node.type == COMPUTE:
            known[id(node)] = found
        parts.append(found)
    return b"".join(parts)


def _long(message: bytes) -> bytes:
    """A message after its length."""
    return varint(len(message)) + message


# --------------------------------------------------------------------------------------------------- read


class _Short(Exception):
    """Bytes end within a field."""


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise _Short
    raise _Short


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message, with whole numbers and bytes as they are."""
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _read_varint(data, at)
            yield key >> 3, value
            continue
        if kind not in (EIGHT, BYTES, FOUR):
            raise _Short
        size = {EIGHT: 8, FOUR: 4}.get(kind, 0)
        if kind == BYTES:
            size, at = _read_varint(data, at)
        if at + size > len(data):
            raise _Short
        yield key >> 3, data[at : at + size]
        at += size


def _numbers(value: Any) -> Iterable[int]:
    """Repeated whole numbers, packed or one by one."""
    if isinstance(value, int):
        return (value,)
    found, at = [], 0
    while at < len(value):
        one, at = _read_varint(value, at)
        found.append(one)
    return found


def _signed(value: int) -> int:
    return value - WORD if value >= WORD >> 1 else value


def _zigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def _unpacked(form: str) -> Callable[[bytes], Any]:
    return lambda value: struct.unpack(f"<{form}", value)[0]


VALUES: dict[int, Callable[[Any], Any]] = {
    DOUBLE: _unpacked("d"),
    FLOAT: _unpacked("f"),
    **dict.fromkeys((INT32, INT64), _signed),
    **dict.fromkeys((UINT32, UINT64), int),
    **dict.fromkeys((SINT32, SINT64), _zigzag),
    FIXED32: _unpacked("I"),
    FIXED64: _unpacked("Q"),
    SFIXED32: _unpacked("i"),
    SFIXED64: _unpacked("q"),
    BOOL: bool,
    BOOL_LIST: lambda value: tuple(bool(v) for k, m in _fields(value) if k == 1 for v in _numbers(m)),
    STRING: lambda value: value.decode(),
}


def _attribute(data: bytes) -> tuple[str, Any]:
    """Name and value of an attribute; lists of other things than truths are left out."""
    name, value = "", None
    for place, told in _fields(data):
        if place == 1:
            name = told.decode()
        elif place in VALUES:
            value = VALUES[place](told)
    return name, value


def _node(data: bytes) -> ChakraNode:
    made: dict[str, Any] = {"id": 0, "name": "", "type": 0}
    deps: dict[int, list[int]] = {4: [], 5: []}
    attributes = {}
    words = {1: "id", 3: "type", 6: "start", 7: "duration"}
    for place, value in _fields(data):
        if place in words:
            made[words[place]] = int(value)
        elif place == 2:
            made["name"] = value.decode()
        elif place in deps:
            deps[place] += _numbers(value)
        elif place == 10:
            name, told = _attribute(value)
            attributes[name] = told
    return ChakraNode(**made, ctrl_deps=tuple(deps[4]), data_deps=tuple(deps[5]), attributes=attributes)


def _metadata(data: bytes) -> tuple[str, dict[str, Any]]:
    version, attributes = "", {}
    for place, value in _fields(data):
        if place == 1:
            version = value.decode()
        elif place == 2:
            name, told = _attribute(value)
            attributes[name] = told
    return version, attributes


def _messages(data: bytes, name: str) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        try:
            size, at = _read_varint(data, at)
        except _Short:
            raise BadFile(f"{name} is cut off within a message, at byte {at:,}") from None
        if at + size > len(data):
            raise BadFile(
                f"{name} is cut off, or no Chakra trace: a message of {size:,} bytes begins at byte {at:,} "
                f"of {len(data):,}"
            )
        yield data[at : at + size]
        at += size


def read_chakra(path: Path | str, most: int) -> ChakraFile:
    """The trace in a file, of so many nodes at most; what is wrong with it is one line."""
    name, data = Path(path).name, file_bytes(path, "Chakra trace")
    if data[:2] == b"\x1f\x8b":
        raise BadFile(f"{name} is compressed: gunzip it first")
    if data[:1] in (b"{", b"["):
        raise BadFile(f"{name} is JSON; a Chakra trace is protocol buffers, each after its length")
    version, attributes, nodes = "", dict[str, Any](), list[ChakraNode]()
    for place, message in enumerate(_messages(data, name)):
        if place > most:
            raise BadFile(f"{name} has more than {most:,} nodes")
        try:
            if place == 0:
                version, attributes = _metadata(message)
                continue
            node = _node(message)
        except (_Short, ValueError, TypeError, AttributeError, struct.error):
            what = "its metadata" if place == 0 else f"node {place}"
            raise BadFile(f"{name} is no Chakra trace: {what} is not as et_def.proto says") from None
        if node.type >= len(NODE_TYPES):
            raise BadFile(
                f"{name}: node {node.id} '{node.name}' is of type {node.type}; known are "
                f"{', '.join(f'{i} {word}' for i, word in enumerate(NODE_TYPES))}"
            )
        nodes.append(node)
    if not nodes:
        raise BadFile(f"{name} holds no nodes")
    return ChakraFile(nodes=tuple(nodes), attributes=attributes, version=version)
