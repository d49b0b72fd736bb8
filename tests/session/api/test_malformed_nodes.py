"""Nodes that no kernel was written for: inference refuses what is wrong, and the host runs what is right."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from pyruntime.device.null import NullDevice
from pyruntime.errors import InvalidGraph
from pyruntime.session import InferenceSession
from tests.session.doubles import on_device

Array = np.ndarray[Any, Any]


def model(op: str, inputs: Sequence[Array | None], opset: int, **attributes: Any) -> tuple[bytes, dict[str, Array]]:
    """One node on these inputs, None being absent, and how it is fed."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    feeds = {n: x for n, x in zip(names, inputs, strict=True) if x is not None}
    kinds = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for n, x in feeds.items()
    ]
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attributes)],
        "one",
        kinds,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return made.SerializeToString(), feeds


def placement(data: bytes, feeds: dict[str, Array]) -> str:
    """Where the node runs."""

    async def main() -> str:
        session = await InferenceSession.create(data)
        await session.run_async(None, feeds)
        assert session._program is not None
        (assignment,) = session._program.roots[-1].executable.plan.assignments
        return assignment.placement

    with on_device(NullDevice()):
        return asyncio.run(main())


def floats(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def quantized(**changed: Array | None) -> list[Array | None]:
    """The inputs of QLinearMatMul, some of them changed."""
    byte = np.ones(1, np.uint8)
    given: dict[str, Array | None] = {
        "a": np.ones((2, 4), np.uint8),
        "a_scale": floats(1),
        "a_zero": byte,
        "b": np.ones((4, 3), np.uint8),
        "b_scale": floats(1),
        "b_zero": byte,
        "y_scale": floats(1),
        "y_zero": byte,
    }
    return [*(given | changed).values()]


@pytest.mark.parametrize(
    ("op", "opset", "inputs", "told"),
    [
        ("LayerNormalization", 17, [floats(2, 3), None, floats(3)], "needs its input 1, which is absent"),
        ("Conv", 13, [floats(1, 1, 4, 4), None, floats(1)], "needs its input 1, which is absent"),
        ("QLinearMatMul", 10, quantized(a_zero=None), "needs its input 2, which is absent"),
        ("QLinearMatMul", 10, quantized(a_scale=floats(4, 3)), r"expected a_scale for y of shape \[2, 3\]"),
        ("QLinearMatMul", 10, quantized(b_scale=floats(5)), r"expected b_scale for y of shape \[2, 3\]"),
        ("QLinearMatMul", 10, quantized(y_scale=floats(3)), r"expected y_scale for y of shape \[2, 3\]"),
        ("QLinearMatMul", 10, quantized(y_zero=np.ones((4, 3), np.uint8)), "expected y_zero_point for y"),
        ("MatMulInteger", 10, [np.ones((2, 4), np.int64), np.ones((4, 3), np.int8)], "expected input 1 .*tensor.int64"),
        ("RMSNormalization", 23, [np.ones((3, 4), np.uint64), floats(4)], "expected input 1 .*tensor.uint64"),
        ("RMSNormalization", 23, [floats(3, 4), np.ones(4, np.int64)], "expected input 2 .*tensor.int64"),
        (
            "LayerNormalization",
            17,
            [np.ones((3, 4), np.int32), np.ones(4, np.int32)],
            "expected input 1 .*tensor.int32",
        ),
        ("Softmax", 13, [np.ones((2, 4), np.int64)], "expected input 1 .*tensor.int64"),
        ("ReduceL1", 18, [np.ones((3, 2), np.bool_)], "expected input 1 .*tensor.bool"),
        ("ReduceSum", 13, [np.ones((3, 2), np.bool_)], "expected input 1 .*tensor.bool"),
    ],
)
def test_node__inputs_that_do_not_fit__are_refused_by_inference(
    op: str, opset: int, inputs: list[Array | None], told: str
) -> None:
    with pytest.raises(InvalidGraph, match=told):
        placement(*model(op, inputs, opset))


@pytest.mark.parametrize("shape", [(2,), (1,), (2, 1), ()])
def test_matmul__scales_of_rows__are_taken(shape: tuple[int, ...]) -> None:
    assert placement(*model("QLinearMatMul", quantized(a_scale=floats(*shape)), 10)) == "gpu"


@pytest.mark.parametrize(
    ("op", "opset", "inputs", "attributes"),
    [
        ("MaxPool", 12, [floats(1, 1, 4, 4)], {"kernel_shape": [2, 2], "strides": [1 << 40, 1]}),
        ("AveragePool", 19, [floats(1, 1, 4, 4)], {"kernel_shape": [2, 2], "strides": [1, 1 << 33]}),
        ("Softmax", 13, [np.ones((2, 4), np.float64)], {}),
        ("IsInf", 10, [floats(6)], {"detect_positive": 1 << 40}),
    ],
)
def test_node__no_kernel_for_its_numbers__runs_on_the_host(
    op: str, opset: int, inputs: list[Array | None], attributes: dict[str, Any]
) -> None:
    assert placement(*model(op, inputs, opset, **attributes)) == "host"
