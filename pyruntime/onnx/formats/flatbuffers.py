"""Parser for FlatBuffers, driven by descriptions of tables.

A table starts with the signed distance back to its vtable. The vtable has its own size, the table's, and a number for
each field: the field's offset from the start of the table, 0 if absent. A scalar is stored at that offset; a string,
vector or table at an unsigned distance from it. A vector starts with its number of elements.

Every position is checked against the file size. Nesting, the number of tables and names, and the bytes copied from the
file are limited. Vectors of scalars, and strings, that several tables share are read once.
Source: flatbuffers.dev, "FlatBuffers Internals".
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn, TypeAlias

from pyruntime.errors import InvalidProtobuf
from pyruntime.onnx.formats.protobuf import Limits
from pyruntime.onnx.formats.repeated import LONG, Texts, collected
from pyruntime.onnx.formats.source import Buffer, ByteSource, MemorySource

__all__ = [
    "BYTES",
    "FLOAT",
    "INT8",
    "INT32",
    "INT64",
    "SPAN",
    "TEXT",
    "UINT8",
    "FlatReader",
    "Later",
    "Many",
    "Table",
    "Union",
]

INT8, UINT8, INT32, INT64, FLOAT = "<b", "<B", "<i", "<q", "<f"
"""Scalar types, as format strings of `struct`."""
TEXT, BYTES = "text", "bytes"
"""Strings, decoded and undecoded."""
SPAN = "span"
"""A byte vector that is not read: its offset and length in the file."""
_NUMBERS = {form: struct.Struct(form) for form in (INT8, UINT8, "<H", INT32, "<I", INT64, FLOAT)}
_PAGE = 1 << 15
_BLOCK = 1 << 16
_SHARE = 512
"""Bytes of vectors and strings, beyond the file's size, that count as one more message: vectors may overlap."""


@dataclass(frozen=True, slots=True)
class Many:
    """A vector with elements of type `of`: a scalar's format, TEXT, BYTES or a table."""

    of: str | Table


@dataclass(frozen=True, slots=True)
class Union:
    """One of several tables, selected by the number in the preceding field; 0: none."""

    of: Mapping[int, Table]


@dataclass(frozen=True, slots=True)
class Later:
    """A table that is read lazily: the field's value is a function that returns its record."""

    of: Table


@dataclass(slots=True, eq=False)
class Table:
    """A table type, and the record made from it.

    Attributes:
        name: name for error messages.
        record: takes the values in the order of `fields`; if `sourced`, after the source.
        fields: number, kind and default value of each field that is read.
    """

    name: str
    record: Callable[..., Any]
    sourced: bool = False
    fields: list[tuple[int, Kind, Any]] = field(default_factory=list)

    def declare(self, fields: Sequence[tuple[int, Kind, Any]]) -> None:
        """Add fields. Separate from the constructor, because tables may contain each other."""
        self.fields.extend(fields)


Kind: TypeAlias = "str | Table | Many | Union | Later"


class FlatReader:
    """Reads the tables of one source.

    Raises:
        InvalidProtobuf: from every method, where the bytes do not match a description.
    """

    def __init__(self, source: ByteSource, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self._budget = limits.messages + source.size // _SHARE
        self._pages: dict[int, Buffer] = {}
        self._seen: dict[tuple[int, str], Any] = {}

    def root(self, table: Table) -> Any:
        """Return the record of the root table."""
        return self._table(table, self._target(0, table), 0)

    def _table(self, table: Table, at: int, depth: int) -> Any:
        if depth > self._limits.depth:
            raise InvalidProtobuf(
                f"tables are nested more than {self._limits.depth} deep (at {table.name}); "
                "raise the limit `nesting` (SessionOptions.limits) if the model is trusted"
            )
        self._spend(1)
        distances = self._vtable(at - int(self._number(INT32, at, table)), table)
        values = []
        for slot, kind, default in table.fields:
            distance = distances[slot] if slot < len(distances) else 0
            if not distance:
                values.append(default)
            elif isinstance(kind, Union):
                chosen = distances[slot - 1] and kind.of.get(self._number(UINT8, at + distances[slot - 1], table))
                values.append(self._table(chosen, self._target(at + distance, table), depth + 1) if chosen else default)
            else:
                values.append(self._value(kind, at + distance, table, depth))
        return table.record(self._source, *values) if table.sourced else table.record(*values)

    def _vtable(self, at: int, table: Table) -> Sequence[int]:
        """Return each field's offset from the start of its table; 0: absent. Many tables share a vtable."""
        if (at, "vtable") not in self._seen:
            count = max(int(self._number("<H", at, table)) // 2 - 2, 0)
            data, start = self._bytes(at + 4, 2 * count, table)
            self._seen[at, "vtable"] = struct.unpack_from(f"<{count}H", data, start)
        distances: Sequence[int] = self._seen[at, "vtable"]
        return distances

    def _value(self, kind: Kind, at: int, table: Table, depth: int) -> Any:
        """Return the value of the field at `at`."""
        if isinstance(kind, Table):
            return self._table(kind, self._target(at, table), depth + 1)
        if isinstance(kind, Later):
            return partial(self._table, kind.of, self._target(at, table), depth + 1)
        if isinstance(kind, Many):
            return self._many(kind.of, self._target(at, table), table, depth)
        if kind == SPAN:
            start = self._target(at, table)
            return start + 4, self._count(start, 1, table)
        if kind in (TEXT, BYTES):
            return self._string(kind, self._target(at, table), table)
        assert isinstance(kind, str)
        return self._number(kind, at, table)

    def _many(self, of: str | Table, at: int, table: Table, depth: int) -> Sequence[Any]:
        if isinstance(of, Table) or of in (TEXT, BYTES):
            count = self._count(at, 4, table)
            if of == BYTES and count >= LONG:
                return self._texts(at + 4, count, table)
            self._spend(count)
            places = [self._target(at + 4 + 4 * i, table) for i in range(count)]
            if isinstance(of, Table):
                return tuple([self._table(of, place, depth + 1) for place in places])
            return tuple([self._string(of, place, table) for place in places])
        if (at, of) not in self._seen:
            width = _NUMBERS[of].size
            count = self._count(at, width, table)
            self._spend(width * count // _SHARE)
            data, start = self._bytes(at + 4, width * count, table)
            stored = array(of[1], bytes(memoryview(data)[start : start + width * count]))
            self._seen[at, of] = collected(stored)
        numbers: Sequence[Any] = self._seen[at, of]
        return numbers

    def _texts(self, at: int, count: int, table: Table) -> Sequence[bytes]:
        """Return the strings at `count` distances stored from `at` on."""
        import numpy as np

        self._spend(4 * count // _SHARE)
        data, start = self._bytes(at, 4 * count, table)
        places = np.frombuffer(data, "<u4", count, start) + np.arange(at, at + 4 * count, 4)
        first, last = int(places.min()), int(places.max())
        data, start = self._bytes(first, last + 4 - first, table)
        octets = np.frombuffer(data, np.uint8)
        begins = places - first + start
        sizes = np.sum([octets[begins + k].astype(np.int64) << 8 * k for k in range(4)], axis=0)
        end = int((places + 4 + sizes).max())
        self._spend(int(sizes.sum()) // _SHARE)
        data, start = self._bytes(first, end - first, table)
        octets, begins, texts = np.frombuffer(data, np.uint8), places - first + start + 4, Texts()
        for k in range(0, count, _BLOCK):
            texts.extend(octets, begins[k : k + _BLOCK], sizes[k : k + _BLOCK])
        return collected(texts)

    def _string(self, kind: str, at: int, table: Table) -> str | bytes:
        if (at, kind) not in self._seen:
            size = self._count(at, 1, table)
            self._spend(size // _SHARE)
            data, start = self._bytes(at + 4, size, table)
            stored = bytes(data[start : start + size])
            try:
                self._seen[at, kind] = stored.decode() if kind == TEXT else stored
            except UnicodeDecodeError as error:
                self._fail(table, at, f"text that is not UTF-8 ({error.reason})")
        text: str | bytes = self._seen[at, kind]
        return text

    def _target(self, at: int, table: Table) -> int:
        """Return the position that the distance stored at `at` refers to."""
        return at + int(self._number("<I", at, table))

    def _count(self, at: int, width: int, table: Table) -> int:
        """Return the number of elements of the vector at `at`; checks that they are within the file."""
        count = int(self._number("<I", at, table))
        if count * width > self._source.size - at - 4:
            self._fail(table, at, f"{count} elements of {width} bytes where {self._source.size - at - 4} are left")
        return count

    def _number(self, form: str, at: int, table: Table) -> Any:
        number = _NUMBERS[form]
        data, start = self._bytes(at, number.size, table)
        return number.unpack_from(data, start)[0]

    def _bytes(self, at: int, count: int, table: Table) -> tuple[Buffer, int]:
        """Return a buffer with `count` bytes of the file, and their offset in it."""
        if at < 0 or count > self._source.size - at:
            self._fail(table, at, "something that is not in the file")
        if isinstance(self._source, MemorySource):
            return self._source.window(0)[0], at
        first, last = at // _PAGE, (at + max(count, 1) - 1) // _PAGE
        if first == last:
            return self._page(first), at % _PAGE
        return b"".join(self._page(number) for number in range(first, last + 1)), at % _PAGE

    def _page(self, number: int) -> Buffer:
        if number not in self._pages:
            begin = number * _PAGE
            self._pages[number] = bytes(self._source.read(begin, min(_PAGE, self._source.size - begin)))
        return self._pages[number]

    def _spend(self, count: int) -> None:
        self._budget -= count
        if self._budget < 0:
            raise InvalidProtobuf(
                f"the model holds more than {self._limits.messages} tables and names, or as many times {_SHARE} bytes; "
                "raise the limit `messages` (SessionOptions.limits) if it is trusted"
            )

    def _fail(self, table: Table, at: int, found: str) -> NoReturn:
        raise InvalidProtobuf(
            f"not a valid ORT-format model: {table.name} has {found} at byte {at} of {self._source.size}; "
            "the file is damaged or incomplete"
        )
