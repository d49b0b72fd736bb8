"""Operators that fold many elements into few: what they keep between passes is theirs alone, on every device."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from pyruntime.compiler.verify import checked
from pyruntime.device.null import NullDevice
from pyruntime.ir import DType, TensorType
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.session.run.program import Program
from tests.compiler.test_forms import TARGETS

F = TensorProto.FLOAT

NODES: dict[str, dict[str, Any]] = {
    "Hardmax": {"axis": 1},
    "Softmax": {"axis": 1},
    "LogSoftmax": {"axis": 1},
    "ArgMax": {"axis": 1},
    "ArgMin": {"axis": 1, "select_last_index": 1},
    "LpNormalization": {"axis": 1},
    "MeanVarianceNormalization": {"axes": [0, 1]},
    "ReduceLogSumExp": {},
    "ReduceSumSquare": {},
    "GlobalAveragePool": {},
    "GlobalLpPool": {},
    "InstanceNormalization": {},
    "LayerNormalization": {"axis": 1},
    "BatchNormalization": {"training_mode": 1},
    "DynamicQuantizeLinear": {},
    "TopK": {"axis": 1},
    "CumSum": {},
    "NegativeLogLikelihoodLoss": {"reduction": "mean"},
    "SoftmaxCrossEntropyLoss": {"reduction": "mean"},
}
WEIGHTS = {
    "InstanceNormalization": 2,
    "BatchNormalization": 4,
    "LayerNormalization": 1,
}
PICTURES = {"GlobalAveragePool", "GlobalLpPool", "InstanceNormalization", "BatchNormalization"}
SHAPES = [(1, 8320), (2, 50000), (1, 262147), (1, 3, 500, 501), (2, 2, 64, 70)]
OUTPUTS = {
    "ArgMax": [TensorProto.INT64],
    "ArgMin": [TensorProto.INT64],
    "TopK": [F, TensorProto.INT64],
    "BatchNormalization": [F, F, F],
    "DynamicQuantizeLinear": [TensorProto.UINT8, F, TensorProto.UINT8],
}


def model(name: str, shape: tuple[int, ...]) -> tuple[bytes, list[str]]:
    weights: list[TensorProto] = []

    def given(value: Any) -> str:
        weights.append(numpy_helper.from_array(np.asarray(value), f"c{len(weights)}"))
        return str(weights[-1].name)

    inputs = ["x"]
    width = shape[1] if name in PICTURES else int(np.prod(shape[1:]))
    inputs += [given(np.ones(width, np.float32)) for _ in range(WEIGHTS.get(name, 0))]
    if name == "TopK":
        inputs.append(given(np.array([3], np.int64)))
    if name == "CumSum":
        inputs.append(given(np.int64(1)))
    if name.endswith("Loss"):
        inputs.append(given(np.zeros((shape[0], *shape[2:]), np.int64)))
    types = OUTPUTS.get(name, [F])
    outputs = [f"y{i}" for i in range(len(types))]
    graph = helper.make_graph(
        [helper.make_node(name, inputs, outputs, name="n", **NODES[name])],
        "g",
        [helper.make_tensor_value_info("x", F, list(shape))],
        [helper.make_tensor_value_info(n, t, None) for n, t in zip(outputs, types, strict=True)],
        weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString()), outputs


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NODES)
def test_fold__of_many_elements__overwrites_nothing_that_is_still_read(name: str, target: str) -> None:
    """The verifier sees every plan; it raises PlanError where memory between passes is shared by mistake."""
    assert checked()
    for shape in SHAPES:
        if (name in PICTURES) != (len(shape) == 4) and not (name.endswith("Loss") and len(shape) == 4):
            continue
        data, outputs = model(name, shape)
        program = Program(import_model(read_model(data)).graph, NullDevice(TARGETS[target]))
        stage = asyncio.run(program.prepare({"x": TensorType(DType.FLOAT, shape)}, outputs))
        assert stage is not None
        # Invocations of WebAssembly do not wait for each other: what has kernels with barriers alone is on the host.
        assert stage.executable.plan.commands or TARGETS[target].is_serial
