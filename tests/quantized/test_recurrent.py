"""Recurrent layers that onnxruntime's tools quantised: against onnxruntime, as files and on the planner's graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization import QuantType

from pyruntime.ir import Array
from tests.open_models import Writer
from tests.ops.recurrent.recurrent_cases import GATES
from tests.quantized.models import dynamic, static
from tests.quantized.planned import planned
from tests.quantized.test_models import reference

TIME, BATCH, WIDTH, UNITS = 6, 3, 8, 12
BATCHES = [np.random.default_rng(i).standard_normal((TIME, BATCH, WIDTH)).astype(np.float32) for i in range(2)]


def stacked(kind: str, layers: int, direction: str, peepholes: bool = False) -> onnx.ModelProto:
    """Layers of LSTM, GRU or RNN, each reading all directions of the one before; the last layer's states, too."""
    w, x, width, d = Writer(3), "x", WIDTH, 1 + (direction == "bidirectional")
    rows, states = GATES[kind] * UNITS, ["h", "c"] if kind == "LSTM" else ["h"]
    for layer in range(layers):
        inputs = [x, w.weight(d, rows, width), w.weight(d, rows, UNITS), w.weight(d, 2 * rows)]
        if peepholes:
            inputs += ["", "", "", w.weight(d, 3 * UNITS)]
        outputs = [f"y{layer}", *(s if layer == layers - 1 else "" for s in states)]
        attributes: dict[str, Any] = {"hidden_size": UNITS, "direction": direction}
        w.nodes.append(helper.make_node(kind, inputs, outputs, f"{kind}_{layer}", **attributes))
        x = w.add("Reshape", w.add("Transpose", outputs[0], perm=[0, 2, 1, 3]), w.ints(0, 0, -1))
        width = d * UNITS
    made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in (x, *states)]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [TIME, BATCH, WIDTH])
    graph = helper.make_graph(w.nodes, "recurrent", [given], made, w.weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


def check(model: onnx.ModelProto, x: Array, atol: float) -> None:
    """The outputs of the graph that is planned agree with onnxruntime's."""
    feeds = {"x": x}
    plan = planned(model, {"x": x.shape})
    assert not plan.on_host
    for mine, theirs in zip(plan.run(feeds), reference(model, feeds), strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, atol=atol, rtol=0)


@pytest.mark.parametrize("peepholes", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    "options", [{}, {"per_channel": True}, {"weight_type": QuantType.QUInt8}, {"reduce_range": True}], ids=str
)
def test_lstm_layers__dynamically_quantised__as_onnxruntime(
    options: dict[str, Any], direction: str, peepholes: bool
) -> None:
    model = dynamic(stacked("LSTM", 2, direction, peepholes), **options)
    assert sum(node.op_type == "DynamicQuantizeLSTM" for node in model.graph.node) == 2
    check(model, BATCHES[0], 1e-5)


TYPES: dict[str, dict[str, Any]] = {
    "uint8, int8 by column": {},
    "uint8, int8": {"per_channel": False},
    "int8, int8": {"activation_type": QuantType.QInt8},
    "uint8, uint8": {"weight_type": QuantType.QUInt8, "per_channel": False},
    "uint16, int8": {"activation_type": QuantType.QUInt16},
    "int16, int16": {"activation_type": QuantType.QInt16, "weight_type": QuantType.QInt16},
}


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("types", TYPES)
def test_recurrent_layers__in_qdq__as_onnxruntime_within_a_step(types: str, kind: str) -> None:
    quantised = [kind, "Transpose", "Reshape"]
    model = static(stacked(kind, 2, "bidirectional"), BATCHES, op_types_to_quantize=quantised, **TYPES[types])
    node = next(node for node in model.graph.node if node.op_type == kind)
    scales = {n.output[0]: n.input[1] for n in model.graph.node if n.op_type == "DequantizeLinear"}
    assert set(node.input) & set(scales), "the tool quantises around the layer"
    values = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    y = next(
        n for n in model.graph.node if n.op_type == "DequantizeLinear" and n.output[0] == model.graph.output[0].name
    )
    check(model, BATCHES[0], 1.01 * float(values[y.input[1]].max()))
