"""Byte sources: ranges, windows and how few bytes a model's skeleton takes."""

from __future__ import annotations

import os
from array import array
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from pyruntime.errors import Fail, InvalidArgument, InvalidProtobuf, NoSuchFile
from pyruntime.onnx.formats.source import ByteSource, FileSource, MemorySource, open_descriptor, open_file
from pyruntime.onnx.reader import read_model
from tests.onnx.compare import compare_model


class CountingSource(ByteSource):
    """Bytes that are fetched piecemeal, as from outside the process."""

    def __init__(self, data: bytes) -> None:
        super().__init__(len(data))
        self.data = data
        self.fetched = 0
        self.calls = 0

    def fetch(self, offset: int, length: int) -> bytes:
        self.fetched += length
        self.calls += 1
        return self.data[offset : offset + length]


class HollowSource(CountingSource):
    """A file of zeros but for its skeleton: (offset, bytes) pieces."""

    def __init__(self, pieces: list[bytes | int]) -> None:
        super().__init__(b"")
        self.pieces: list[tuple[int, bytes]] = []
        for piece in pieces:
            if isinstance(piece, bytes):
                self.pieces.append((self.size, piece))
                self.size += len(piece)
            else:
                self.size += piece

    def fetch(self, offset: int, length: int) -> bytes:
        self.fetched += length
        self.calls += 1
        out = bytearray(length)
        for start, piece in self.pieces:
            low, high = max(start, offset), min(start + len(piece), offset + length)
            if low < high:
                out[low - offset : high - offset] = piece[low - start : high - start]
        return bytes(out)


def header(number: int, size: int) -> bytes:
    """Tag and length of a length-delimited field."""
    out = bytearray([number << 3 | 2])
    while size > 0x7F:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*out, size])


def large_model(layers: int, nbytes: int) -> HollowSource:
    """A chain of MatMuls, four small nodes and a bias between them; each weight has `nbytes` of raw_data."""
    nodes, pieces, value = [], [], "x"
    for layer in range(layers):
        for op, inputs in (
            ("MatMul", [f"w{layer}"]),
            ("Add", [f"b{layer}"]),
            ("Relu", []),
            ("Identity", []),
            ("Abs", []),
        ):
            name = f"/model/encoder/layer.{layer}/block/{op}"
            nodes.append(helper.make_node(op, [value, *inputs], [f"{name}_output_0"], name=name))
            value = f"{name}_output_0"
        bias = TensorProto(name=f"b{layer}", data_type=1, dims=[768], raw_data=bytes(3072)).SerializeToString()
        weight = TensorProto(name=f"w{layer}", data_type=1, dims=[768, nbytes // 3072]).SerializeToString()
        weight += header(9, nbytes)
        pieces += [header(5, len(bias)) + bias, header(5, len(weight) + nbytes) + weight, nbytes]
    x = helper.make_tensor_value_info("x", 1, ["N", 768])
    graph = helper.make_graph(nodes, "g", [x], [helper.make_tensor_value_info(value, 1, None)])
    body = graph.SerializeToString()
    size = len(body) + sum(p if isinstance(p, int) else len(p) for p in pieces)
    front = onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 17)]).SerializeToString()
    return HollowSource([front + header(7, size) + body, *pieces])


def test_read_model__half_a_gigabyte_in_windows__fetches_below_a_thousandth() -> None:
    source = large_model(layers=210, nbytes=768 * 3072)
    record = read_model(source)
    assert source.size > 490_000_000
    assert source.fetched < source.size / 1000
    assert record.graph is not None
    assert len(record.graph.node) == 1050 and len(record.graph.initializer) == 420
    last = record.graph.initializer[-1].raw_span()
    assert last is not None and last.offset + last.length == source.size


def test_read_model__skeleton_alone__fetches_every_byte_about_once() -> None:
    data = helper.make_model(
        helper.make_graph([helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(20_000)], "g", [], [])
    ).SerializeToString()
    source = CountingSource(data)
    read_model(source)
    assert source.fetched < 1.1 * len(data) and source.calls < 20


def test_read_model__long_notes_after_every_node__takes_few_fetches() -> None:
    """torch.onnx's exporter writes each node's stack trace into its metadata_props, which is not read."""
    nodes = []
    for i in range(2000):
        node = helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"])
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value="File 'model.py', in forward\n" * (10 + i % 40))
        nodes.append(node)
    source = CountingSource(helper.make_model(helper.make_graph(nodes, "g", [], [])).SerializeToString())
    record = read_model(source)
    assert record.graph is not None and len(record.graph.node) == 2000
    assert source.calls < 2 * source.size / (1 << 16) + 20
    assert source.fetched < 1.1 * source.size


def test_read_model__file_without_raw_data__fetches_no_tensor_values() -> None:
    floats = helper.make_tensor("f", 1, [1_000_000], np.ones(1_000_000, np.float32))
    ints = helper.make_tensor("i", 7, [1_000_000], np.full(1_000_000, 1 << 40))
    assert not floats.HasField("raw_data") and not ints.HasField("raw_data")
    source = CountingSource(helper.make_model(helper.make_graph([], "g", [], [], [floats, ints])).SerializeToString())
    record = read_model(source)
    assert source.size > 10_000_000 and source.fetched < 5000
    assert record.graph is not None
    assert record.graph.initializer[1].to_numpy()[-1] == 1 << 40


@given(st.data())
def test_window__any_sequence_of_requests__holds_what_was_asked(data: st.DataObject) -> None:
    source = CountingSource(bytes(range(256)) * 1000)
    for _ in range(20):
        offset = data.draw(st.integers(0, source.size - 1))
        minimum = data.draw(st.integers(1, 200_000))
        buffer, base = source.window(offset, minimum)
        length = min(minimum, source.size - offset)
        assert base <= offset and offset + length <= base + len(buffer)
        assert bytes(buffer[offset - base :][:length]) == source.data[offset : offset + length]


@pytest.mark.parametrize(
    "kind", [bytes, bytearray, memoryview, lambda b: array("B", b), lambda b: np.frombuffer(b, "u1")]
)
def test_memory_source__any_bytes_like__is_read_alike(kind: type) -> None:
    data = helper.make_model(
        helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [], [])
    ).SerializeToString()
    compare_model(read_model(kind(data)), onnx.load_from_string(data))


def test_memory_source__read__copies_nothing() -> None:
    data = bytearray(100)
    view = MemorySource(data).read(10, 20)
    data[10] = 7
    assert view[0] == 7 and len(view) == 20


@pytest.mark.parametrize("thing", [None, 3, object(), [1, 2], np.zeros((4, 4))[:, 1]])
def test_memory_source__not_contiguous_bytes__is_an_invalid_argument(thing: object) -> None:
    with pytest.raises(InvalidArgument, match="contiguous bytes"):
        MemorySource(thing)


@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, -1), (0, 11), (11, 0), (10, 1), (1 << 70, 1)])
def test_read__outside_the_source__is_an_invalid_argument(offset: int, length: int) -> None:
    with pytest.raises(InvalidArgument):
        MemorySource(bytes(10)).read(offset, length)


def test_read__fewer_bytes_than_there_were__fails() -> None:
    source = CountingSource(bytes(100))
    source.data = bytes(50)
    with pytest.raises(Fail, match="changed while it was read"):
        source.read(40, 20)


def test_file_source__ranges__equal_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(range(256)))
    for source in (open_file(path), FileSource(open_descriptor(str(path)))):
        assert source.size == 256
        assert bytes(source.read(250, 6)) == bytes(range(250, 256))
        assert bytes(source.read(3, 0)) == b""


def test_open_file__not_a_file__says_so(tmp_path: Path) -> None:
    with pytest.raises(NoSuchFile, match="there is no file"):
        open_file(tmp_path / "nothing.onnx")
    with pytest.raises(InvalidProtobuf, match="directory"):
        open_file(tmp_path)
    with pytest.raises(Fail):
        open_file("nul\0byte")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidProtobuf, match="not a regular file"):
        open_file(tmp_path / "pipe")
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(InvalidProtobuf, match="empty"):
        read_model(tmp_path / "empty.onnx")
