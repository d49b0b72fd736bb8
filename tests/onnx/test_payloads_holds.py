"""Whether a window of a file has what is asked for."""

from __future__ import annotations

import pytest

from pyruntime.onnx.payloads import holds
from pyruntime.onnx.source import HEADER

TENSOR = b"\x2a\x80\x80\x80\x04"
"""A field's tag, and a length of four bytes: its content is elsewhere."""


@pytest.mark.parametrize(
    ("window", "offset", "minimum", "size", "expected"),
    [
        (bytes(100), 20, 90, 1000, True),
        (bytes(100), 20, 91, 1000, False),
        (bytes(100), 9, 1, 1000, False),
        (bytes(100), 110, 1, 1000, False),
        (bytes(100), 20, 500, 110, True),  # to the end of the file
        (bytes(50) + TENSOR, 60, HEADER, 1000, True),
        (bytes(50) + TENSOR[:-1], 60, HEADER, 1000, False),
        (bytes(50) + TENSOR[:1], 60, HEADER, 1000, False),
        (bytes(50) + TENSOR, 60, HEADER + 1, 1000, False),
        (bytes(50) + b"\x08\x96\x01", 60, HEADER, 1000, True),  # a number
        (bytes(50) + b"\x08\x96", 60, HEADER, 1000, False),
        (bytes(50) + b"\x0d\0\0\0\0", 60, HEADER, 1000, True),  # four bytes
        (bytes(50) + b"\x0d\0\0\0", 60, HEADER, 1000, False),
        (bytes(50) + b"\x0f", 60, HEADER, 1000, False),  # no wire type
    ],
)
def test_holds__window_at_10__has_as_much_as_is_asked_for_or_a_whole_header(
    window: bytes, offset: int, minimum: int, size: int, expected: bool
) -> None:
    assert holds(window, 10, offset, minimum, size) is expected
