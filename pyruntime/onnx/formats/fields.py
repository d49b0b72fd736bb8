"""Descriptions of protobuf messages for the parser: fields, their kinds, and the records made from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

__all__ = ["Field", "Message"]

# Wire types.
VARINT, FIXED64, LENGTH, START_GROUP, END_GROUP, FIXED32 = range(6)

# Field kinds: scalars, a bytes field that stays in the file, a message; then repeated ones.
INT64, INT32, FLOAT, STRING, BYTES, SPAN, MESSAGE = range(7)
MANY_INT64, MANY_FLOAT, MANY_STRING, MANY_BYTES, MANY_MESSAGE = range(7, 12)
RUN_VARINT, RUN_FIXED32, RUN_FIXED64, RUN_BYTES = range(12, 16)
PACKED_INT64, PACKED_FLOAT, PACKED_RUN = range(16, 19)

_WIRE_TYPES: Final[Mapping[int, Mapping[int, int]]] = {
    INT64: {VARINT: INT64},
    INT32: {VARINT: INT32},
    FLOAT: {FIXED32: FLOAT},
    STRING: {LENGTH: STRING},
    BYTES: {LENGTH: BYTES},
    SPAN: {LENGTH: SPAN},
    MESSAGE: {LENGTH: MESSAGE},
    MANY_INT64: {VARINT: MANY_INT64, LENGTH: PACKED_INT64},
    MANY_FLOAT: {FIXED32: MANY_FLOAT, LENGTH: PACKED_FLOAT},
    MANY_STRING: {LENGTH: MANY_STRING},
    MANY_BYTES: {LENGTH: MANY_BYTES},
    MANY_MESSAGE: {LENGTH: MANY_MESSAGE},
    RUN_VARINT: {VARINT: RUN_VARINT, LENGTH: PACKED_RUN},
    RUN_FIXED32: {FIXED32: RUN_FIXED32, LENGTH: PACKED_RUN},
    RUN_FIXED64: {FIXED64: RUN_FIXED64, LENGTH: PACKED_RUN},
    RUN_BYTES: {LENGTH: RUN_BYTES},
}


class Field(NamedTuple):
    """A field of a message: the record's attribute, the kind, the message type of a nested message, the default value.

    Scalar fields with the same attribute form a oneof. Setting a message field clears the attributes named in `oneof`.
    """

    attribute: str
    kind: int
    message: Message | None = None
    default: Any = None
    oneof: tuple[str, ...] = ()


class Message:
    """A protobuf message type, as the parser needs it.

    `record` is called with the source, if `sourced`, and the values of `attributes` in the order of their declaration;
    repeated fields are tuples.
    """

    def __init__(self, name: str, record: Callable[..., Any], *, sourced: bool = False) -> None:
        self.name = name
        self.record = record
        self.sourced = sourced
        self.numbers: dict[int, Field] = {}
        self.attributes: tuple[str, ...] = ()
        self.defaults: list[Any] = []
        self.actions: dict[int, tuple[int, int, Any]] = {}
        self.repeated: tuple[int, ...] = ()
        self.messages: tuple[tuple[int, Message], ...] = ()

    def declare(self, numbers: Mapping[int, Field]) -> None:
        """Set the fields by number. Separate from the constructor, because messages may contain each other."""
        self.numbers = dict(numbers)
        defaults = {field.attribute: field.default for field in numbers.values()}
        self.attributes, self.defaults = tuple(defaults), list(defaults.values())
        slots = {attribute: slot for slot, attribute in enumerate(self.attributes)}
        for number, field in numbers.items():
            extra: Any = field.message
            if field.kind >= RUN_VARINT:
                extra = number
            elif field.kind == MESSAGE:
                extra = (field.message, tuple(slots[a] for a in field.oneof if a != field.attribute))
            for wire_type, action in _WIRE_TYPES[field.kind].items():
                self.actions[number << 3 | wire_type] = (action, slots[field.attribute], extra)
        self.repeated = tuple({slots[f.attribute]: 0 for f in numbers.values() if f.kind >= MANY_INT64})
        self.messages = tuple(
            (slots[f.attribute], f.message) for f in numbers.values() if f.kind == MESSAGE and f.message
        )
