"""Typed tensor data of TensorProto as raw_data: variable-length integers and tagged elements, decoded in bulk.

Source: protobuf.dev, "Encoding"; onnx.proto, the comments on `int32_data` and similar fields.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from pyruntime.errors import InvalidProtobuf
from pyruntime.ir import DType
from pyruntime.onnx.formats.payloads import Malformed, Truncated, read_varint, signed, varint
from pyruntime.onnx.formats.source import Buffer

if TYPE_CHECKING:
    from pyruntime.ir import Array

__all__ = ["blocks", "decode_runs", "packed_ints", "split_strings", "varints", "varints_at"]

_BLOCK = 1 << 18
_FEW = 256
_LONGEST = 10
_IN_32_BITS = 4  # bytes of seven bits
_FIXED_WIDTH = {4: 4, 10: 8}  # float_data and double_data: bytes an element


def varints(data: bytes | memoryview) -> Array:
    """Decode variable-length integers to uint64: `sum((byte[k] & 127) << 7 k)` modulo 2^64.

    Raises:
        InvalidProtobuf: an integer of more than 10 bytes, or an incomplete last one.
    """
    octets = np.frombuffer(data, np.uint8)
    last = octets < 0x80
    if octets.size and not last[-1]:
        raise InvalidProtobuf("not a valid ONNX model: tensor data ends within an integer")
    ends = np.flatnonzero(last)
    starts = np.concatenate([ends[:0], [0], ends[:-1] + 1])[: ends.size]
    return varints_at(octets, starts, ends)


def varints_at(octets: Array, starts: Array, ends: Array) -> Array:
    """Decode the integers with first and last bytes at `starts` and `ends` of `octets`. Raises as `varints` does."""
    lengths = ends - starts + 1
    longest = int(lengths.max(initial=0))
    if longest > _LONGEST:
        raise InvalidProtobuf("not a valid ONNX model: tensor data has an integer of more than 10 bytes")
    wide = np.dtype(np.uint32 if longest <= _IN_32_BITS else np.uint64)
    values: Array = (octets[starts] & 0x7F).astype(wide)
    for k in range(1, longest):
        longer = np.flatnonzero(lengths > k)
        values[longer] |= (octets[starts[longer] + k] & 0x7F).astype(wide) << wide.type(7 * k)
    return values.astype(np.uint64)


def blocks(data: bytes | memoryview) -> Iterator[bytes | memoryview]:
    """Split `data` at boundaries of integers, to bound the memory that `varints` needs."""
    octets = np.frombuffer(data, np.uint8)
    start = 0
    while start < len(data):
        stop = min(start + _BLOCK, len(data))
        if stop < len(data):
            ends = np.flatnonzero(octets[max(start, stop - _LONGEST) : stop] < 0x80)
            if ends.size == 0:
                raise InvalidProtobuf("not a valid ONNX model: tensor data has an integer of more than 10 bytes")
            stop = max(start, stop - _LONGEST) + int(ends[-1]) + 1
        yield data[start:stop]
        start = stop


def packed_ints(buffer: Buffer, pos: int, end: int, values: array[int]) -> None:
    """Append packed integers to `values`."""
    if end - pos > _FEW:
        try:
            for block in blocks(buffer[pos:end]):
                values.frombytes(varints(block).view(np.int64).tobytes())
        except InvalidProtobuf as error:
            raise Malformed("packed integers that are cut off, or of more than 10 bytes") from error
        return
    try:
        while pos < end:
            value, pos = varint(buffer, pos, end)
            values.append(signed(value))
    except Truncated:
        raise Malformed("a packed integer without its last byte") from None


def _storage(dtype: DType) -> np.dtype[np.generic]:
    """Return the NumPy integer type whose low bits an entry of int32_data, int64_data or uint64_data holds."""
    return np.dtype(f"<u{max(dtype.bits, 8) // 8}")


def decode_runs(runs: Iterable[tuple[bytes | memoryview, bool]], field: int, dtype: DType, label: str) -> memoryview:
    """Convert runs (bytes, packed) of a typed field to raw_data of `dtype`.

    An entry of int32_data holds one element (6-bit ones too), or one byte of packed 4- or 2-bit elements. Booleans are
    true where the entry is not zero. Wider entries are taken modulo the element's width.

    Raises:
        InvalidProtobuf: the bytes are not a sequence of entries.
    """
    parts: list[Array] = []
    for data, packed in runs:
        width = _FIXED_WIDTH.get(field)
        if width:
            entry = width if packed else width + 1
            if len(data) % entry:
                raise InvalidProtobuf(f"not a valid ONNX model: {label} ends within an element")
            parts.append(np.frombuffer(data, np.uint8).reshape(-1, entry)[:, entry - width :].reshape(-1))
            continue
        tags_seen = 0
        for block in blocks(data):
            values = varints(block)
            if not packed:  # tag, value, tag, value ...: a one-byte tag is an integer too
                values, tags_seen = values[1 - tags_seen % 2 :: 2], tags_seen + values.size
            stored = values.astype(np.uint32) != 0 if dtype is DType.BOOL else values
            parts.append(stored.astype(_storage(dtype)).view(np.uint8))
    raw = np.concatenate([np.zeros(0, np.uint8), *parts])
    return (_packed6(raw) if dtype.bits == 6 else raw).data


def _packed6(values: Array) -> Array:
    """Pack 6-bit elements, one in the low bits of each byte, into a bit stream, lowest bits first."""
    bits = np.unpackbits(values[:, None], axis=1, count=6, bitorder="little")
    return np.packbits(bits.reshape(-1), bitorder="little")


def split_strings(runs: Iterable[bytes | memoryview]) -> list[bytes]:
    """Return the payloads of repeated `bytes` fields with one-byte tags.

    Raises:
        InvalidProtobuf: the bytes are not a sequence of such fields.
    """
    strings = []
    for data in runs:
        pos, end = 0, len(data)
        while pos < end:
            size, pos = read_varint(data, pos + 1, end)
            if size > end - pos:
                raise InvalidProtobuf("not a valid ONNX model: tensor data ends within a string")
            strings.append(bytes(data[pos : pos + size]))
            pos += size
    return strings
