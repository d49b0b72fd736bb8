"""Parser for the Protocol Buffers wire format, driven by descriptions of messages.

A message is a sequence of fields. A field is a tag, `(number << 3) | wire_type` as a varint, and a payload. Of several
scalars the last one counts, repeated fields concatenate (packed or not), repeated occurrences of a message field merge,
unknown fields are skipped. Groups are refused, as ONNX never had them. Bulk data is not read: a `SPAN` and typed tensor
data (`RUN_*`) become offsets into the file.

Every length is checked against the rest of its message; nesting and the number of messages are limited.
Source: protobuf.dev, "Encoding"; onnx.proto for the field types used here.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar

from pyruntime.errors import InvalidProtobuf
from pyruntime.onnx.formats.fields import (
    BYTES,
    FLOAT,
    INT32,
    INT64,
    LENGTH,
    MANY_BYTES,
    MANY_FLOAT,
    MANY_INT64,
    MANY_MESSAGE,
    MANY_STRING,
    MESSAGE,
    PACKED_FLOAT,
    PACKED_INT64,
    PACKED_RUN,
    RUN_BYTES,
    SPAN,
    STRING,
    Message,
)
from pyruntime.onnx.formats.packed_numbers import packed_ints
from pyruntime.onnx.formats.payloads import Malformed, Truncated, past_end, signed, skip, varint
from pyruntime.onnx.formats.repeated import STRETCH, Texts, collected, taken
from pyruntime.onnx.formats.source import HEADER, Buffer, ByteSource

__all__ = ["Limits", "Parser", "Reading", "Run", "at_once"]

T = TypeVar("T")
Reading: TypeAlias = Generator[int, None, T]
"""A parser as a generator: yields the end of the bytes that it reads next, returns the result."""

_WHOLE = 1024  # longer fields are not fetched as a whole: their messages are read field by field
_FLOAT32 = struct.Struct("<f")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a model that a reader accepts.

    Attributes:
        nbytes: size of the model file in bytes.
        messages: number of nodes, attributes, tensors, types and other messages; bounds memory and time.
        depth: nesting of messages; a subgraph adds three.
        nodes: number of nodes in the graph and its subgraphs, after functions are inlined.
    """

    nbytes: int = 1 << 40
    messages: int = 500_000
    depth: int = 100
    nodes: int = 200_000


class Run(NamedTuple):
    """Part of a repeated field that stays in the file: payloads without tags (`packed`), or each after its tag."""

    field: int
    offset: int
    length: int
    packed: bool


class Parser:
    """Parses the messages of one source into records.

    Raises:
        InvalidProtobuf: from every method, where the bytes are not a valid message.
    """

    def __init__(self, source: ByteSource, limits: Limits) -> None:
        self._source = source
        self._limits = limits
        self._budget = limits.messages
        self._base = 0
        self._at = 0
        self._unread: dict[str, set[int]] = {}

    def parse(self, message: Message) -> Any:
        """Parse the whole source as one message; return its record."""
        return at_once(self.reading(message))

    def reading(self, message: Message) -> Reading[Any]:
        """Like `parse`, as a generator for a source that is still loading: yields the end of its next read."""
        values = message.defaults.copy()
        yield from self._stream(message, values, 0, self._source.size, 0)
        return self._finish(message, values)

    def _stream(self, message: Message, values: list[Any], pos: int, end: int, depth: int) -> Reading[None]:
        """Read [pos, end) of the source, which may be longer than a window, into `values`."""
        while pos < end:
            yield min(pos + HEADER, end)
            window, base = self._source.window(pos, min(HEADER, end - pos))
            self._base = base
            stop = min(end, base + len(window))
            pos = base + self._fields(message, values, window, pos - base, stop - base, stop < end, depth)
            if pos < end:
                pos = yield from self._long_field(message, values, pos, end, depth)

    def _long_field(self, message: Message, values: list[Any], start: int, end: int, depth: int) -> Reading[int]:
        """Read, record or skip the field at `start`, which exceeds the window; or load a window with all of it.

        Returns the position to continue at: after the field, or `start` if the window has the field now.
        """
        yield min(start + HEADER, end)
        window, base = self._source.window(start, min(HEADER, end - start))
        stop = min(end - base, len(window))
        try:
            tag, pos = varint(window, start - base, stop)
            if tag & 7 != LENGTH:
                return start
            size, pos = varint(window, pos, stop)
        except (Truncated, Malformed):
            return start  # `_fields` sees the same and reports it
        pos += base
        action, slot, extra = message.actions.get(tag, (-1, 0, None))
        if action < 0:
            self._unknown(message, tag, start)
        if size > end - pos:
            raise self._error(message, start, past_end(size, end - pos))
        stop = pos + size
        if action == MANY_MESSAGE and size > _WHOLE:
            child = self._begin(extra, depth + 1)
            yield from self._stream(extra, child, pos, stop, depth + 1)
            _append(values, slot, self._finish(extra, child))
        elif action == MESSAGE and size > _WHOLE:
            yield from self._stream(extra[0], self._merge(values, slot, extra, depth + 1), pos, stop, depth + 1)
        elif action == SPAN:
            values[slot] = (pos, size)
        elif action == PACKED_RUN:
            self._add_run(values, slot, Run(extra, pos, size, True))
        elif action == RUN_BYTES:
            self._add_run(values, slot, Run(extra, start, stop - start, False))
        elif action >= 0:
            yield stop
            self._source.window(start, stop - start)
            return start
        return stop

    def _fields(
        self, message: Message, values: list[Any], buffer: Buffer, pos: int, end: int, partial: bool, depth: int
    ) -> int:
        """Read the fields in buffer[pos:end] into `values`; return the end of the last complete field.

        That is `end`, unless the buffer is `partial`, with only the first part of the message.
        """
        try:
            return self._read(message, values, buffer, pos, end, partial, depth)
        except Truncated as error:
            if partial:
                return self._at
            text = str(error) or "a field that the message ends in the middle of"
            raise self._error(message, self._base + self._at, text) from None
        except Malformed as error:
            raise self._error(message, self._base + self._at, str(error)) from None
        except UnicodeDecodeError as error:
            raise self._error(message, self._base + self._at, f"text that is not UTF-8 ({error.reason})") from None

    def _read(
        self, message: Message, values: list[Any], buffer: Buffer, pos: int, end: int, partial: bool, depth: int
    ) -> int:
        """Like `_fields`. When it raises, `_at` is the start of the faulty field."""
        actions = message.actions
        unread = self._unread.setdefault(message.name, set())
        while pos < end:
            start = self._at = pos
            tag = buffer[pos]
            pos += 1
            if tag > 0x7F:
                tag, pos = varint(buffer, start, end)
            known = actions.get(tag)
            if known is None:
                if tag not in unread:
                    self._unknown(message, tag, self._base + start)
                    unread.add(tag)
                pos = skip(buffer, pos, end, tag & 7)
                continue
            action, slot, extra = known
            if tag & 7 == LENGTH:
                if pos >= end:
                    raise Truncated
                size = buffer[pos]
                pos += 1
                if size > 0x7F:
                    size, pos = varint(buffer, pos - 1, end)
                if size > end - pos:
                    if partial:
                        return start
                    raise Malformed(past_end(size, end - pos))
                stop = pos + size
                if action == MANY_MESSAGE:
                    child = self._begin(extra, depth + 1)
                    self._fields(extra, child, buffer, pos, stop, False, depth + 1)
                    _append(values, slot, self._finish(extra, child))
                elif action == MANY_STRING:
                    _append(values, slot, str(buffer[pos:stop], "utf-8"))
                elif action == STRING:
                    values[slot] = str(buffer[pos:stop], "utf-8")
                elif action == MESSAGE:
                    child = self._merge(values, slot, extra, depth + 1)
                    self._fields(extra[0], child, buffer, pos, stop, False, depth + 1)
                elif action == SPAN:
                    values[slot] = (self._base + pos, size)
                elif action == MANY_BYTES:
                    _begun(values, slot, Texts).append(bytes(buffer[pos:stop]))
                    if end - stop > STRETCH and buffer[stop] == tag:
                        stop = taken(action, values[slot], buffer, stop, end)
                else:
                    self._bulk(values, known, buffer, start, pos, stop)
                pos = stop
            elif action == INT64 or action == MANY_INT64:  # noqa: SIM109 (a tuple would be built for every field)
                if pos < end and buffer[pos] < 0x80:
                    value = buffer[pos]
                    pos += 1
                else:
                    value, pos = varint(buffer, pos, end)
                    value = signed(value)
                if action == INT64:
                    values[slot] = value
                else:
                    _begun(values, slot, _ints).append(value)
                    if end - pos > STRETCH and buffer[pos] == tag:
                        pos = taken(action, values[slot], buffer, pos, end)
            else:
                pos = self._scalar(values, known, buffer, start, pos, end)
        return pos

    def _bulk(
        self, values: list[Any], known: tuple[int, int, Any], buffer: Buffer, start: int, pos: int, stop: int
    ) -> None:
        """Read the less frequent length-delimited fields: bytes, packed numbers, tensor data."""
        action, slot, extra = known
        if action == BYTES:
            values[slot] = bytes(buffer[pos:stop])
        elif action == PACKED_INT64:
            packed_ints(buffer, pos, stop, _begun(values, slot, _ints))
        elif action == PACKED_FLOAT:
            if (stop - pos) % 4:
                raise Malformed(f"packed floats of {stop - pos} bytes")
            _begun(values, slot, _floats).frombytes(buffer[pos:stop])
        elif action == PACKED_RUN:
            self._add_run(values, slot, Run(extra, self._base + pos, stop - pos, True))
        else:
            self._add_run(values, slot, Run(extra, self._base + start, stop - start, False))

    def _scalar(
        self, values: list[Any], known: tuple[int, int, Any], buffer: Buffer, start: int, pos: int, end: int
    ) -> int:
        """Read the less frequent fields that are not length-delimited; return the position after the payload."""
        action, slot, extra = known
        if action == INT32:
            value, pos = varint(buffer, pos, end)
            values[slot] = (value & 0x7FFFFFFF) - (value & 0x80000000)
            return pos
        if action in (FLOAT, MANY_FLOAT):
            if end - pos < 4:
                raise Truncated
            number = _FLOAT32.unpack_from(buffer, pos)[0]
            pos += 4
            if action == FLOAT:
                values[slot] = number
                return pos
            _begun(values, slot, _floats).append(number)
            if end - pos > STRETCH and buffer[pos] == buffer[start]:
                pos = taken(action, values[slot], buffer, pos, end)
            return pos
        tag = buffer[start]
        if tag > 0x7F:
            raise Malformed("tensor data after a tag of more than one byte")
        pos = start
        try:
            while pos < end and buffer[pos] == tag:
                pos = skip(buffer, pos + 1, end, tag & 7)
        except Truncated:
            if pos == start:
                raise
        self._add_run(values, slot, Run(extra, self._base + start, pos - start, False))
        return pos

    def _add_run(self, values: list[Any], slot: int, run: Run) -> None:
        runs = values[slot]
        if runs is None:
            values[slot] = [run]
            return
        last = runs[-1]
        if not run.packed and not last.packed and run.field == last.field and last.offset + last.length == run.offset:
            runs[-1] = last._replace(length=last.length + run.length)
            return
        self._spend()
        runs.append(run)

    def _unknown(self, message: Message, tag: int, offset: int) -> None:
        """Check the tag of a field that is skipped."""
        number = tag >> 3
        if number == 0 or tag >> 32:
            raise self._error(message, offset, f"field number {number}")
        if number in message.numbers:
            name = message.numbers[number].attribute
            raise self._error(message, offset, f"field {number} ({name}) with wire type {tag & 7}")

    def _spend(self) -> None:
        self._budget -= 1
        if self._budget < 0:
            raise InvalidProtobuf(
                f"the model holds more than {self._limits.messages} messages (nodes, tensors, types ...); "
                "raise the limit `messages` (SessionOptions.limits) if it is trusted"
            )

    def _begin(self, message: Message, depth: int) -> list[Any]:
        """Return the initial values of a message."""
        self._spend()
        if depth > self._limits.depth:
            raise InvalidProtobuf(
                f"messages are nested more than {self._limits.depth} deep (at {message.name}); "
                "raise the limit `nesting` (SessionOptions.limits) if the model is trusted"
            )
        return message.defaults.copy()

    def _merge(self, values: list[Any], slot: int, extra: tuple[Message, tuple[int, ...]], depth: int) -> list[Any]:
        """Return the values of a message field, including those of an earlier occurrence."""
        message, others = extra
        for other in others:
            values[other] = None
        begun: list[Any] | None = values[slot]
        if begun is None:
            begun = values[slot] = self._begin(message, depth)
        return begun

    def _finish(self, message: Message, values: list[Any]) -> Any:
        """Make the record of a message from the values of its fields."""
        for slot in message.repeated:
            many = values[slot]
            values[slot] = () if many is None else collected(many)
        for slot, inner in message.messages:
            if values[slot] is not None:
                values[slot] = self._finish(inner, values[slot])
        return message.record(self._source, *values) if message.sourced else message.record(*values)

    def _error(self, message: Message, offset: int, found: str) -> InvalidProtobuf:
        return InvalidProtobuf(
            f"not a valid ONNX model: {message.name} has {found} at byte {offset} of {self._source.size}; "
            "the file is damaged or incomplete"
        )


def at_once(reading: Reading[T]) -> T:
    """Run a parser to its end and return the result, for sources that are complete."""
    while True:
        try:
            next(reading)
        except StopIteration as done:
            result: T = done.value
            return result


def _append(values: list[Any], slot: int, value: Any) -> None:
    many = values[slot]
    if many is None:
        values[slot] = [value]
    else:
        many.append(value)


def _begun(values: list[Any], slot: int, begin: Callable[[], Any]) -> Any:
    """Return the list in a slot, created on first use."""
    if values[slot] is None:
        values[slot] = begin()
    return values[slot]


def _ints() -> array[int]:
    return array("q")


def _floats() -> array[float]:
    return array("f")
