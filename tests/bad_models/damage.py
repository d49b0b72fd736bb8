"""Good models cut, and with bytes flipped, at every boundary of their structure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onnx import ModelProto

from tests.bad_models.case import graph_model, node
from tests.session import models

__all__ = ["Damaged", "boundaries", "damaged"]

_FLIPS = (0x01, 0x80, 0xFF)


@dataclass(frozen=True)
class Damaged:
    """A good model with one thing wrong, and inputs that fit the good one."""

    name: str
    data: bytes
    shape: tuple[int, ...]


def _good() -> dict[str, tuple[bytes, tuple[int, ...]]]:
    chain = graph_model([node("Relu", ["x"], ["a"]), node("Softmax", ["a"], ["y"], axis=0)])
    return {
        "double": (models.double(), (3, 4)),
        "chain": (chain, (2,)),
        "segmented": (models.segmented(), (3, 2, 2)),
        "loop": (models.branching(3), (2,)),
    }


def damaged() -> Iterator[Damaged]:
    """Every cut and flip of every model; the same in every run."""
    for name, (data, shape) in _good().items():
        for at in boundaries(data):
            yield Damaged(f"{name}, cut at {at}", data[:at], shape)
            for mask in _FLIPS if at < len(data) else ():
                flipped = data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
                yield Damaged(f"{name}, byte {at} ^ {mask:#04x}", flipped, shape)


def boundaries(data: bytes) -> list[int]:
    """Where a tag, a length or a payload begins or ends, at every depth."""
    found: set[int] = set()
    _walk(data, 0, len(data), ModelProto.DESCRIPTOR, found)
    return sorted(found)


def _walk(data: bytes, pos: int, end: int, message: object, found: set[int]) -> None:
    fields = message.fields_by_number  # type: ignore[attr-defined]
    while pos < end:
        found.add(pos)
        tag, pos = _varint(data, pos)
        found.add(pos)
        if tag & 7 == 2:
            size, pos = _varint(data, pos)
            found.update((pos, pos + size))
            field = fields.get(tag >> 3)
            if field is not None and field.message_type is not None:
                _walk(data, pos, pos + size, field.message_type, found)
            pos += size
        else:
            pos = _varint(data, pos)[1] if tag & 7 == 0 else pos + (4 if tag & 7 == 5 else 8)
    found.add(end)


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7
