"""onnxruntime's CPU provider as an independent oracle for single operators."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from pyruntime.ir import Array, DType
from tests.harness import carrier, make_op, run_op

__all__ = ["OPTIONS", "SECOND", "check_against_ort", "exact", "exact_inputs", "node_of", "ort_run", "saturates"]

TOLERANCE = {DType.FLOAT: (1e-4, 1e-5), DType.FLOAT16: (2e-3, 1e-3), DType.BFLOAT16: (2e-2, 1e-2)}
"""(rtol, atol) by output type; other types exactly, float64 to 1e-9."""

OPTIONS = onnxruntime.SessionOptions()
"""One node on one thread as it stands: a session is made and run in a tenth of the time."""
OPTIONS.intra_op_num_threads = 1
OPTIONS.log_severity_level = 4
OPTIONS.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def node_of(op_type: str, inputs: Sequence[Array | None], outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
    """A NodeProto that reads x0, x1, ... and writes y0, y1, ..."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    return helper.make_node(op_type, names, [f"y{i}" for i in range(outputs)], domain=domain, **attributes)


SECOND: dict[str, tuple[int, ...]] = dict.fromkeys(
    ("MatMulInteger", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QAttention"), (1,)
)
SECOND |= dict.fromkeys(("QLinearMatMul", "QLinearConv", "QGemm"), (3,))
SECOND["DynamicQuantizeLSTM"] = (1, 2)
SECOND["ConvInteger"] = (0, 2)  # its products have the weights first, and pads are zero points
"""Which inputs make the second factor of onnxruntime's int8 products."""


@cache
def saturates() -> bool:
    """True where onnxruntime adds products of uint8 and int8 in pairs of 16 bits, as on processors without VNNI."""
    (found,) = ort_run("MatMulInteger", [np.full((4, 64), 255, np.uint8), np.full((64, 16), 127, np.int8)])
    return bool((found != 64 * 255 * 127).any())


def exact(factor: Array) -> Array:
    """A second factor with which onnxruntime's products add up exactly: where it saturates, int8 ones of 7 bits."""
    return np.asarray(factor // np.int8(2)) if factor.dtype == np.int8 and saturates() else factor


def exact_inputs(op_type: str, inputs: Sequence[Array | None]) -> list[Array | None]:
    """The inputs of an operator, the second factor of its products `exact`."""
    second = SECOND.get(op_type, ())
    return [exact(x) if i in second and x is not None else x for i, x in enumerate(inputs)]


def ort_run(
    op_type: str,
    inputs: Sequence[Array | None],
    opset: int = 21,
    outputs: int = 1,
    domain: str = "",
    domain_opset: int = 1,
    **attributes: Any,
) -> list[Any]:
    """The outputs onnxruntime computes for one node."""
    node = node_of(op_type, inputs, outputs, domain, **attributes)
    feed = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in feed.items()
    ]
    made = [onnx.ValueInfoProto(name=f"y{i}") for i in range(outputs)]
    graph = helper.make_graph([node], "one", declared, made)
    imports = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, domain_opset)] if domain else [])]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"])
    result: list[Any] = session.run(None, feed)
    return result


def check_against_ort(
    op_type: str,
    inputs: Sequence[Array | None],
    gpu: Any = None,
    opset: int = 21,
    outputs: int = 1,
    tolerance: tuple[float, float] | None = None,
    domain: str = "",
    domain_opset: int = 1,
    **attributes: Any,
) -> None:
    """Compare one node, on NumPy or on `gpu`, with onnxruntime: types, shapes and values."""
    inputs = exact_inputs(op_type, inputs)
    expected = ort_run(op_type, inputs, opset, outputs, domain, domain_opset, **attributes)
    op = make_op(node_of(op_type, inputs, outputs, domain, **attributes), {domain: domain_opset, "": opset})
    got = run_op(op, list(inputs), gpu)
    assert len(got) >= outputs
    for mine, theirs in zip(got, expected, strict=False):
        dtype, value = carrier(theirs)
        assert mine.dtype == value.dtype, f"type {mine.dtype}, onnxruntime says {value.dtype}"
        assert mine.shape == value.shape, f"shape {mine.shape}, onnxruntime says {value.shape}"
        if dtype.is_float:
            rtol, atol = tolerance or TOLERANCE.get(dtype, (1e-9, 1e-12))
            np.testing.assert_allclose(mine, value, rtol, atol)
        else:
            np.testing.assert_array_equal(mine, value)
