"""Files in onnxruntime's own format: read as onnxruntime reads them, and hostile ones refused."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import pyruntime
from pyruntime.errors import InvalidProtobuf, NotImplemented, OrtError
from pyruntime.onnx.formats.flatbuffers import INT64, FlatReader, Many, Table
from pyruntime.onnx.formats.source import FileSource, MemorySource
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import Limits, read_model
from tests.harness import node_tests
from tests.onnx.ort_files import Flat, converted, samples
from tests.oracle import OPTIONS

_LEFT_OUT = {
    "dft": "onnxruntime's error is above the tolerance",
    "attention": "onnxruntime adds biases of masks otherwise than ONNX says",
    "maxunpool": "onnxruntime places values otherwise than ONNX says",
}
"""Operators with a case that cannot be compared, and why."""


def parts(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def inputs_of(name: str) -> list[Any]:
    """The inputs of ONNX's case as arrays, or lists of arrays."""
    sets = node_tests()[name].data_sets
    assert sets is not None
    return [numpy_helper.to_array(x) if isinstance(x, TensorProto) else x for x in sets[0][0]]


def compared() -> list[str]:
    """Samples whose inputs onnxruntime's Python API takes: of types that NumPy has."""
    known = [n for n in samples() if n.split("_")[1] not in _LEFT_OUT]
    return [n for n in known if all(np.asarray(a).dtype.isbuiltin != 2 for x in inputs_of(n) for a in parts(x))]


@pytest.mark.parametrize("name", compared())
def test_results__of_a_converted_model__are_onnxruntime_s(name: str) -> None:
    data, case = samples()[name], node_tests()[name]
    assert case.model is not None
    theirs = onnxruntime.InferenceSession(data, OPTIONS, providers=["CPUExecutionProvider"])
    names = {i.name for i in theirs.get_inputs()}
    given = zip((i.name for i in case.model.graph.input), inputs_of(name), strict=False)
    feeds = {n: [*map(np.asarray, v)] if isinstance(v, list) else np.asarray(v) for n, v in given if n in names}
    wanted = theirs.run(None, feeds)
    mine = pyruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    assert [i.name for i in mine.get_inputs()] == [i.name for i in theirs.get_inputs()]
    assert [(o.name, o.type) for o in mine.get_outputs()] == [(o.name, o.type) for o in theirs.get_outputs()]
    for got, want in zip(mine.run(None, feeds), wanted, strict=True):
        for a, b in zip(parts(got), parts(want), strict=True):
            if np.asarray(b).dtype.kind in "fc":
                np.testing.assert_allclose(a, b, 2e-3, 1e-4)
            else:
                np.testing.assert_array_equal(a, b)


def test_record__of_all_that_a_graph_has__is_that_of_the_onnx_file() -> None:
    weight = numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(2, 3), "w")
    names = numpy_helper.from_array(np.array(["a", "\u00e4"], object), "names")
    inner = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["inner"])], "g", [], [onnx.ValueInfoProto(name="inner")]
    )
    other = helper.make_graph(
        [helper.make_node("Sub", ["x", "w"], ["other"])], "h", [], [onnx.ValueInfoProto(name="other")]
    )
    nodes = [
        helper.make_node("If", ["flag"], ["y"], then_branch=inner, else_branch=other),
        helper.make_node("Cast", ["y"], ["z"], to=TensorProto.INT64),
        helper.make_node("StringConcat", ["given", "names"], ["words"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3]),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
        helper.make_tensor_value_info("given", TensorProto.STRING, [2]),
    ]
    outputs = [helper.make_tensor_value_info("z", TensorProto.INT64, None)]
    outputs.append(helper.make_tensor_value_info("words", TensorProto.STRING, [2]))
    model = helper.make_model(
        helper.make_graph(nodes, "main", inputs, outputs, [weight, names], doc_string="of the graph"),
        opset_imports=[helper.make_opsetid("", 21)], ir_version=9, producer_name="me", model_version=7,
    )  # fmt: skip
    helper.set_model_props(model, {"key": "value"})
    data = converted(model.SerializeToString(), onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    assert data is not None
    record = read_model(data)
    imported = import_model(record)
    assert imported.ir_version == 9 and imported.opsets[""] == 21
    assert imported.metadata.producer_name == "me" and imported.metadata.version == 7
    assert imported.metadata.custom == {"key": "value"}
    assert record.graph is not None
    assert [i.type.shape for i in record.graph.input] == [("rows", 3), (), (2,)]  # type: ignore[union-attr]
    stored = {t.name: t.to_numpy() for t in record.graph.initializer}
    np.testing.assert_array_equal(stored["w"], numpy_helper.to_array(weight))
    assert list(stored["names"]) == ["a", "\u00e4"]
    session = pyruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    feeds = {"x": np.ones((2, 3), np.float32), "flag": np.array(True), "given": np.array(["b", "c"], object)}
    z, words = session.run(None, feeds)
    np.testing.assert_array_equal(z, 1 + np.arange(6).reshape(2, 3))
    assert list(words) == ["ba", "c\u00e4"]


def large() -> bytes:
    """A model of 4 MiB, nearly all weights."""
    weights = [numpy_helper.from_array(np.full((256, 1024), i, np.float32), f"w{i}") for i in range(4)]
    nodes = [helper.make_node("Add", [f"v{i}", f"w{i}"], [f"v{i + 1}"]) for i in range(4)]
    shape = [256, 1024]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("v0", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("v4", TensorProto.FLOAT, shape)], weights,
    )  # fmt: skip
    data = converted(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9).SerializeToString()
    )
    assert data is not None and len(data) > 3 << 20
    return data


class Counting(FileSource):
    """Counts the bytes that are fetched."""

    fetched = 0

    def fetch(self, offset: int, length: int) -> bytes:
        self.fetched += length
        return bytes(super().fetch(offset, length))


def test_reading__of_a_file_with_large_weights__leaves_them_in_it(tmp_path: Path) -> None:
    path = tmp_path / "model.ort"
    path.write_bytes(large())
    source = Counting(os.open(path, os.O_RDONLY))
    record = read_model(source)
    assert source.fetched < source.size / 10
    assert record.graph is not None
    for tensor in record.graph.initializer:
        np.testing.assert_array_equal(tensor.to_numpy(), np.full((256, 1024), int(tensor.name[1:]), np.float32))


def test_node__compiled_for_a_device__is_refused_by_name() -> None:
    flat = Flat()
    data = flat.file(flat.graph(Name="joined_0", Type=1, ExecutionProviderType="QNNExecutionProvider"))
    with pytest.raises(NotImplemented, match=r"'joined_0' \(Relu\).*QNNExecutionProvider.*\.onnx"):
        read_model(data)


def test_tensor__in_another_file__is_refused_by_name() -> None:
    flat = Flat()
    data = flat.file(flat.graph([flat.tensor(Name="w", DataType=1, ExternalDataOffset=64)]))
    with pytest.raises(NotImplemented, match=r"'w'.*another file.*\.onnx"):
        read_model(data)


def test_file__without_a_model__says_so() -> None:
    with pytest.raises(InvalidProtobuf, match="no model"):
        read_model(Flat().file(None))


def test_fields__absent_where_they_are_zero_or_empty__have_these_values() -> None:
    flat = Flat()
    record = read_model(flat.file(flat.graph([flat.tensor(Name="empty", DataType=1, RawData=b"")])))
    assert record.graph is not None and record.ir_version == 10
    (node,) = record.graph.node
    assert (node.domain, node.name, node.attribute) == ("", "", ())
    (tensor,) = record.graph.initializer
    assert tensor.dims == () and tensor.raw is not None and tensor.raw[1] == 0
    assert record.graph.input[0].type is None


@pytest.mark.parametrize("name", ["test_if", "test_loop11", "test_softmax_example", "test_string_concat"])
def test_damaged_files__of_any_kind__are_refused_with_errors_of_ours(name: str) -> None:
    data = samples().get(name) or next(d for n, d in samples().items() if n.startswith(name[:9]))
    rng = random.Random(3)
    broken = [data[:end] for end in range(8, len(data), max(1, len(data) // 100))]
    for _ in range(1500):
        changed = bytearray(data)
        if rng.random() < 0.5:
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        else:
            at = rng.randrange(0, len(data) - 4, 4)
            changed[at : at + 4] = struct.pack("<I", rng.choice((0, 1, 0x7FFFFFFF, 0xFFFFFFFF, len(data), 1 << 20)))
        changed[4:8] = b"ORTM"
        broken.append(bytes(changed))
    refused = 0
    for model in broken:
        try:
            graph = import_model(read_model(model, Limits(messages=20_000, nodes=2_000))).graph
            for constant in graph.constants.values():
                if constant.type.nbytes <= 1 << 20:
                    constant.numpy()
        except OrtError:
            refused += 1
    assert refused > len(broken) / 10


def test_limits__of_vectors_that_overlap__bound_what_is_taken_out_of_the_file() -> None:
    size = 1 << 16
    head = struct.pack("<I", size // 8) + bytes(size)  # any offset into it is a vector, or a string, of some size
    table = Table("Table", lambda *values: len(values))
    table.declare([(i, Many(INT64), ()) for i in range(64)])
    vtable = struct.pack("<66H", 4 + 128, 4 + 256, *(4 + 4 * i for i in range(64)))
    begin = 8 + len(vtable)
    places = [begin + 4 + 256 + 8 + 4 * i for i in range(64)]
    fields = struct.pack("<i", len(vtable)) + struct.pack(
        "<64I", *(place - (begin + 4 + 4 * i) for i, place in enumerate(places))
    )
    vectors = struct.pack("<I", 4096) * 66 + head
    data = struct.pack("<I", begin) + b"ORTM" + vtable + fields + vectors
    assert FlatReader(MemorySource(data), Limits()).root(table) == 64
    with pytest.raises(InvalidProtobuf, match="more than 3000 tables and names, or as many times 512 bytes"):
        FlatReader(MemorySource(data), Limits(messages=3000)).root(table)


def test_limits__of_tables_and_nesting__are_kept() -> None:
    data = samples()["test_loop11"]
    with pytest.raises(InvalidProtobuf, match="more than 50 tables"):
        read_model(data, Limits(messages=50))
    with pytest.raises(InvalidProtobuf, match="nested more than 3 deep"):
        read_model(data, Limits(depth=3))
