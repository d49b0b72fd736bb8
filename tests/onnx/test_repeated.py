"""Long lists of attributes: read in bulk from any source, as protobuf reads them, and kept in arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import pyruntime
from pyruntime.errors import InvalidProtobuf
from pyruntime.ir import Floats, Ints, Strings
from pyruntime.onnx.formats import repeated
from pyruntime.onnx.formats.source import ByteSource
from pyruntime.onnx.reader import read_model
from tests.onnx.encode import blob, fixed32, integer, model, packed, varint
from tests.onnx.ort_files import converted
from tests.ops.ml.test_trees import ML, forest, votes
from tests.oracle import OPTIONS, node_of

FLOATS, INTS, STRINGS = 7, 8, 9
COUNT = 40_000


class Windowed(ByteSource):
    """Bytes that come in windows, as files do."""

    def __init__(self, data: bytes) -> None:
        super().__init__(len(data))
        self.data = data

    def fetch(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]


def lists(kind: str) -> tuple[list[Any], bytes]:
    """Elements, and the fields that hold them."""
    random = np.random.default_rng(3)
    match kind:
        case "ints of any length":
            values = [
                int(v) >> int(s)
                for v, s in zip(random.integers(-(1 << 62), 1 << 62, COUNT), random.integers(0, 62, COUNT), strict=True)
            ]
            return values, b"".join(integer(INTS, v & (1 << 64) - 1) for v in values)
        case "small ints":
            values = random.integers(0, 300, COUNT).tolist()
            return values, b"".join(integer(INTS, v) for v in values)
        case "packed ints":
            values = random.integers(-9, 1 << 40, COUNT).tolist()
            return values, packed(INTS, [v & (1 << 64) - 1 for v in values])
        case "ints packed and not":
            values = random.integers(0, 1 << 20, COUNT).tolist()
            return values + values, b"".join(integer(INTS, v) for v in values) + packed(INTS, values)
        case "floats":
            values = random.standard_normal(COUNT).astype(np.float32).tolist()
            return values, b"".join(fixed32(FLOATS, v) for v in values)
        case "few texts":
            texts = [[b"LEAF", b"BRANCH_LEQ", b"", b"JJ\x04J"][int(i)] for i in random.integers(0, 4, COUNT)]
            return texts, b"".join(blob(STRINGS, t) for t in texts)
        case "texts of any length":
            sizes = random.choice(
                [0, 1, 5, 127, 128, 300, 16_383, 16_384], 3000, p=[0.1, 0.2, 0.3, 0.1, 0.1, 0.19, 0.005, 0.005]
            )
            texts = [random.choice([74, 4, 200], int(size)).astype(np.uint8).tobytes() for size in sizes]
            return texts, b"".join(blob(STRINGS, t) for t in texts)
    raise KeyError(kind)


KINDS = [
    "ints of any length",
    "small ints",
    "packed ints",
    "ints packed and not",
    "floats",
    "few texts",
    "texts of any length",
]


@pytest.mark.parametrize("source", [bytes, Windowed])
@pytest.mark.parametrize("kind", KINDS)
def test_list__of_many_elements__as_protobuf_reads_it(kind: str, source: Callable[[bytes], Any]) -> None:
    values, fields = lists(kind)
    data = model(blob(1, blob(5, blob(1, "a") + fields)))
    (read,) = read_model(source(data)).graph.node[0].attribute  # type: ignore[union-attr]
    assert isinstance(read.value, Floats | Ints | Strings)
    assert list(read.value) == values
    (theirs,) = onnx.load_from_string(data).graph.node[0].attribute
    assert list(theirs.floats or theirs.ints or theirs.strings) == values


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (integer(INTS, 5) * 2000 + bytes([INTS << 3]) + b"\xff" * 11 + b"\0", "more than 10 bytes"),
        (integer(INTS, 5) * 2000 + bytes([INTS << 3, 0x80]), "ends in the middle"),
        (blob(INTS, varint(5) * 2000 + b"\x80"), "packed integers that are cut off"),
        (blob(STRINGS, b"abc") * 2000 + bytes([STRINGS << 3 | 2, 9]), "a field of 9 bytes where 0 are left"),
        (fixed32(FLOATS, 7) * 2000 + bytes([FLOATS << 3 | 5, 0]), "ends in the middle"),
    ],
)
def test_list__of_many_elements_and_damage__is_refused(fields: bytes, message: str) -> None:
    data = model(blob(1, blob(5, blob(1, "a") + fields)))
    for source in (data, Windowed(data)):
        with pytest.raises(InvalidProtobuf, match=message):
            read_model(source)


def trees(op_type: str, prefix: str, outputs: int) -> tuple[bytes, np.ndarray[Any, Any]]:
    """A forest of some thousand nodes, which is read in bulk; and an input."""
    x = np.round(np.random.default_rng(1).standard_normal((9, 4)).astype(np.float32), 1)
    attributes = forest(40, 6, ["BRANCH_LEQ"]) | votes(40, 6, 3, prefix)
    attributes |= {"classlabels_strings": ["a", "b", "c"]} if prefix == "class" else {"n_targets": 3}
    made = [TensorProto.STRING, TensorProto.FLOAT] if outputs == 2 else [TensorProto.FLOAT]
    graph = helper.make_graph(
        [node_of(op_type, [x], outputs, ML, **attributes)],
        "g",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [None, 4])],
        [helper.make_tensor_value_info(f"y{i}", kind, None) for i, kind in enumerate(made)],
    )
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid(ML, 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()), x


@pytest.mark.parametrize(
    ("op_type", "prefix", "outputs"), [("TreeEnsembleClassifier", "class", 2), ("TreeEnsembleRegressor", "target", 1)]
)
def test_forest__of_long_lists__in_both_formats_as_onnxruntime(op_type: str, prefix: str, outputs: int) -> None:
    data, x = trees(op_type, prefix, outputs)
    ort_format = converted(data)
    assert ort_format is not None
    wanted = onnxruntime.InferenceSession(data, OPTIONS, providers=["CPUExecutionProvider"]).run(None, {"x0": x})
    for file in (data, ort_format):
        for mine, theirs in zip(pyruntime.InferenceSession(file).run(None, {"x0": x}), wanted, strict=True):
            if theirs.dtype == object:
                assert mine.tolist() == theirs.tolist()
            else:
                np.testing.assert_allclose(mine, theirs, 1e-5, 1e-5)


def test_dimensions__before_data__only_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_bulk(many: Any, octets: Any) -> int:
        raise AssertionError(f"{octets.size} bytes were looked at")

    monkeypatch.setattr(repeated, "_take_ints", in_bulk)
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 2, 50, 100], bytes(4 * 40_000), raw=True)
    graph = helper.make_graph([], "g", [], [], [weight])
    (read,) = read_model(helper.make_model(graph).SerializeToString()).graph.initializer  # type: ignore[union-attr]
    assert tuple(read.dims) == (4, 2, 50, 100)
