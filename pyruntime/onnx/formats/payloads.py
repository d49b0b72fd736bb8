"""Payloads of protobuf fields: integers, and the lengths of skipped fields.

Functions raise Truncated where a payload exceeds the given end.
"""

from __future__ import annotations

from pyruntime.errors import InvalidProtobuf
from pyruntime.onnx.formats.fields import END_GROUP, FIXED32, FIXED64, LENGTH, START_GROUP, VARINT
from pyruntime.onnx.formats.source import HEADER, Buffer

__all__ = [
    "Malformed",
    "Truncated",
    "holds",
    "past_end",
    "read_varint",
    "signed",
    "skip",
    "varint",
]

_MASK64 = (1 << 64) - 1


class Truncated(Exception):
    """A field exceeds its message, or the window; a message text, if any, says by how much."""


class Malformed(Exception):
    """Bytes that no encoder writes; the message says what is wrong."""


def varint(buffer: Buffer, pos: int, end: int) -> tuple[int, int]:
    """Return the unsigned 64-bit integer at `pos`, and the position after it."""
    if pos + 1 < end and buffer[pos + 1] < 0x80 <= buffer[pos]:  # two bytes, as most lengths are
        return buffer[pos] & 0x7F | buffer[pos + 1] << 7, pos + 2
    value = shift = 0
    while shift < 70:
        if pos >= end:
            raise Truncated
        byte = buffer[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK64, pos
        shift += 7
    raise Malformed("an integer of more than 10 bytes")


def read_varint(buffer: Buffer, pos: int, end: int) -> tuple[int, int]:
    """Return the unsigned 64-bit integer at `pos`, and the position after it. Raises InvalidProtobuf."""
    try:
        return varint(buffer, pos, end)
    except (Truncated, Malformed):
        raise InvalidProtobuf("not a valid ONNX model: data ends within an integer") from None


def signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def skip(buffer: Buffer, pos: int, end: int, wire_type: int) -> int:
    """Return the position after a payload."""
    if wire_type == VARINT:
        return varint(buffer, pos, end)[1]
    if wire_type == LENGTH:
        if pos < end and buffer[pos] < 0x80:
            size = buffer[pos]
            pos += 1
        else:
            size, pos = varint(buffer, pos, end)
        if size > end - pos:
            raise Truncated(past_end(size, end - pos))
    elif wire_type in (FIXED32, FIXED64):
        size = 4 if wire_type == FIXED32 else 8
    else:
        raise Malformed("a group" if wire_type in (START_GROUP, END_GROUP) else f"wire type {wire_type}")
    if size > end - pos:
        raise Truncated
    return pos + size


def past_end(size: int, left: int) -> str:
    """Return the error text for a field longer than the rest of its message."""
    return f"a field of {size} bytes where {left} are left"


def holds(window: Buffer, base: int, offset: int, minimum: int, size: int) -> bool:
    """Return whether a window of a file of `size` bytes covers `minimum` bytes from `offset`, or a whole header.

    Args:
        base: offset of the window in the file. offset, minimum: see `ByteSource.window`.
    """
    last = base + len(window)
    if not base <= offset < last:
        return False
    return offset + min(minimum, size - offset) <= last or (minimum <= HEADER and _is_readable(window, offset - base))


def _is_readable(data: Buffer, start: int) -> bool:
    """Return whether the field at `start` is complete, or of a long field at least tag and length.

    A short field that is cut off does not count: a reader would request it as a header again and again.
    """
    try:
        tag, pos = varint(data, start, len(data))
        if tag & 7 == LENGTH:
            length, pos = varint(data, pos, len(data))
            return pos + length <= len(data) or pos + length - start > HEADER
        skip(data, pos, len(data), tag & 7)
    except (Truncated, Malformed):
        return False
    return True
