"""Operators that ONNX defines for floating-point numbers alone refuse integers, whose results would be rounded.

PyTorch's exporter writes such models, for softmax(x, dtype=...) of integers; onnxruntime refuses them, too. Types
that no schema tells, of elements of sequences, are known when the node runs; tests/onnx/test_element_types.py has the
others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.defs
import onnxruntime
import pytest
from onnx import TensorProto, ValueInfoProto, helper

import pyruntime
from pyruntime.ir import Array

CPU = ["CPUExecutionProvider"]

IMAGE = [1, 2, 4, 4]

MODELS: dict[str, tuple[list[list[int]], dict[str, Any]]] = {
    "Softmax": ([[2, 3]], {}),
    "LogSoftmax": ([[2, 3]], {}),
    "Hardmax": ([[2, 3]], {}),
    "LpNormalization": ([[2, 3]], {}),
    "MeanVarianceNormalization": ([IMAGE], {}),
    "LRN": ([IMAGE], {"size": 3}),
    "BatchNormalization": ([IMAGE, [2], [2], [2], [2]], {}),
    "InstanceNormalization": ([IMAGE, [2], [2]], {}),
    "GroupNormalization": ([IMAGE, [2], [2]], {"num_groups": 1}),
    "AveragePool": ([IMAGE], {"kernel_shape": [2, 2]}),
    "LpPool": ([IMAGE], {"kernel_shape": [2, 2]}),
    "GlobalAveragePool": ([IMAGE], {}),
    "GlobalMaxPool": ([IMAGE], {}),
    "GlobalLpPool": ([IMAGE], {"p": 3}),
    "Conv": ([IMAGE, [1, 2, 2, 2]], {}),
    "ConvTranspose": ([IMAGE, [2, 1, 2, 2]], {}),
    "RNN": ([[3, 1, 2], [1, 2, 2], [1, 2, 2]], {"hidden_size": 2}),
    "GRU": ([[3, 1, 2], [1, 6, 2], [1, 6, 2]], {"hidden_size": 2}),
    "LSTM": ([[3, 1, 2], [1, 8, 2], [1, 8, 2]], {"hidden_size": 2}),
    "DFT": ([[1, 8, 1]], {}),
    "RotaryEmbedding": ([[1, 2, 3, 4], [1, 3, 2], [1, 3, 2]], {}),
}
"""Operators with the shapes of inputs, all of one type, and attributes."""


def opset(name: str) -> int:
    """onnxruntime lacks GlobalLpPool of version 22."""
    return 23 if name == "RotaryEmbedding" else 21


def model(name: str, dtype: Any, in_sequences: bool = False) -> bytes:
    shapes, attributes = MODELS[name]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    inputs = [helper.make_tensor_value_info(f"x{i}", kind, shape) for i, shape in enumerate(shapes)]
    names, nodes, constants = [x.name for x in inputs], [], []
    if in_sequences:
        constants = [helper.make_tensor("first", TensorProto.INT64, [], [0])]
        for x in names:
            nodes.append(helper.make_node("SequenceConstruct", [x], [f"{x}_list"]))
            nodes.append(helper.make_node("SequenceAt", [f"{x}_list", "first"], [f"{x}_out"]))
        names = [f"{x}_out" for x in names]
    nodes.append(helper.make_node(name, names, ["y"], **attributes))
    graph = helper.make_graph(nodes, "g", inputs, [ValueInfoProto(name="y")], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset(name))], ir_version=11)
    return bytes(made.SerializeToString())


def feed(name: str, dtype: Any) -> dict[str, Array]:
    rng = np.random.default_rng(3)
    return {f"x{i}": rng.integers(1, 4, shape).astype(dtype) for i, shape in enumerate(MODELS[name][0])}


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.bool_])
@pytest.mark.parametrize("name", MODELS)
def test_operator_of_floats__integers_out_of_sequences__refused(name: str, dtype: Any) -> None:
    made = model(name, dtype, in_sequences=True)
    with pytest.raises(Exception, match="Type Error"):
        onnxruntime.InferenceSession(made, providers=CPU)
    with pytest.raises(pyruntime.InvalidGraph, match=f"{name}: expected floating-point numbers"):
        pyruntime.InferenceSession(made, providers=CPU).run(None, feed(name, dtype))


@pytest.mark.parametrize("name", MODELS)
def test_operator_of_floats__float32__as_onnxruntime(name: str) -> None:
    assert "tensor(int64)" not in onnx.defs.get_schema(name, opset(name)).inputs[0].types
    made, given = model(name, np.float32), feed(name, np.float32)
    (found,) = pyruntime.InferenceSession(made, providers=CPU).run(None, given)
    (expected,) = onnxruntime.InferenceSession(made, providers=CPU).run(None, given)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_grids_and_regions__integer_coordinates__refused() -> None:
    for name, shapes in (("GridSample", [IMAGE, [1, 2, 2, 2]]), ("RoiAlign", [IMAGE, [1, 4], [1]])):
        kinds = [TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT64]
        inputs = [
            helper.make_tensor_value_info(f"x{i}", kind, shape)
            for i, (kind, shape) in enumerate(zip(kinds, shapes, strict=False))
        ]
        graph = helper.make_graph(
            [helper.make_node(name, [x.name for x in inputs], ["y"])], "g", inputs, [ValueInfoProto(name="y")]
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10).SerializeToString()
        fed = {"x0": np.ones(IMAGE, np.float32), **{f"x{i}": np.zeros(s, np.int64) for i, s in enumerate(shapes) if i}}
        with pytest.raises(pyruntime.InvalidGraph, match=rf"\({name}\): expected input 2 .*, got tensor\(int64"):
            pyruntime.InferenceSession(made, providers=CPU).run(None, fed)
