"""A protobuf encoder small enough to be plainly right, for encodings the protobuf package does not write."""

from __future__ import annotations

import struct
from collections.abc import Iterable


def varint(value: int) -> bytes:
    """`value` modulo 2^64, seven bits a byte, low first."""
    value %= 1 << 64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(number: int, wire_type: int) -> bytes:
    """A field's tag."""
    return varint(number << 3 | wire_type)


def integer(number: int, value: int) -> bytes:
    """A varint field."""
    return tag(number, 0) + varint(value)


def blob(number: int, payload: bytes | str) -> bytes:
    """A length-delimited field: bytes, text or a message."""
    payload = payload.encode() if isinstance(payload, str) else payload
    return tag(number, 2) + varint(len(payload)) + payload


def fixed32(number: int, value: float) -> bytes:
    """A float field."""
    return tag(number, 5) + struct.pack("<f", value)


def fixed64(number: int, value: float) -> bytes:
    """A double field."""
    return tag(number, 1) + struct.pack("<d", value)


def packed(number: int, values: Iterable[int]) -> bytes:
    """A packed repeated varint field."""
    return blob(number, b"".join(map(varint, values)))


def model(graph: bytes) -> bytes:
    """A ModelProto of IR version 8 and opset 17 with this GraphProto."""
    return integer(1, 8) + blob(8, integer(2, 17)) + blob(7, graph)
