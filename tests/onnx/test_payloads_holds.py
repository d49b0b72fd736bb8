"""Whether a window of a file has what is asked for."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from pyruntime.onnx.formats.payloads import holds
from pyruntime.onnx.formats.source import HEADER, Buffer, ByteSource
from pyruntime.onnx.reader import read_model
from tests.onnx.compare import compare_model

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
        (bytes(50) + b"\x0a\x05abcde", 60, HEADER, 1000, True),  # a short text, whole
        (bytes(50) + b"\x0a\x05abcd", 60, HEADER, 1000, False),
        (bytes(50) + b"\x0a\x05", 60, 7, 1000, False),  # which is asked for itself
        (bytes(50) + b"\x0a\x0e", 60, HEADER, 1000, False),  # the longest that fits a header
        (bytes(50) + b"\x0a\x0f", 60, HEADER, 1000, True),
    ],
)
def test_holds__window_at_10__has_as_much_as_is_asked_for_or_a_whole_header(
    window: bytes, offset: int, minimum: int, size: int, expected: bool
) -> None:
    assert holds(window, 10, offset, minimum, size) is expected


class CutOff(ByteSource):
    """A file whose first window ends anywhere; later windows are counted."""

    def __init__(self, data: bytes, cut: int) -> None:
        super().__init__(len(data))
        self.data, self.asked = data, 0
        self._window = data[:cut]

    def fetch(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]

    def window(self, offset: int, minimum: int = 1) -> tuple[Buffer, int]:
        self.asked += 1
        assert self.asked < 1000, f"asks for {minimum} bytes at {offset} again and again"
        if holds(self._window, self._base, offset, minimum, self.size):
            return self._window, self._base
        return super().window(offset, minimum)


def test_read__window_that_ends_anywhere__comes_to_the_end() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    nodes = [
        helper.make_node("Relu", ["x"], ["hidden"], doc_string="d" * 1500),
        helper.make_node("Abs", ["hidden"], ["y"]),
    ]
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[512], raw_data=bytes(2048))
    data = helper.make_model(helper.make_graph(nodes, "graph", [x], [y], [weight])).SerializeToString()
    for cut in range(len(data)):
        compare_model(read_model(CutOff(data, cut)), onnx.load_from_string(data))
