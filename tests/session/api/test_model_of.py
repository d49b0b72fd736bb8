"""Models of one node, held against the onnx package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import pyruntime as ort
from pyruntime.ops.base import registered

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Operators of a test end with it."""
    yield
    for key in [key for key in registered if key[0] == "my.domain"]:
        del registered[key]


def test_model_of__attributes_of_every_kind__are_what_onnx_reads() -> None:
    @ort.custom_op("my.domain", "Mixed")
    class Mixed(ort.Op):
        beta: float = 1.5
        count: int = -3
        mode: str = "linear"
        axes: tuple[int, ...] = (0, -1)
        scales: tuple[float, ...] = (0.5, 2.0)
        names: tuple[str, ...] = ("a", "b")
        absent: int | None = None

        def evaluate(self, left: Any, right: Any) -> Any:
            return (left * self.beta + right * self.count,)

    data = ort.model_of(Mixed(beta=2.5), X, np.ones(3, np.float32))
    proto = onnx.load_model_from_string(data)
    onnx.checker.check_model(proto, check_custom_domain=False)
    (node,) = proto.graph.node
    assert (node.op_type, node.domain, list(node.input)) == ("Mixed", "my.domain", ["left", "right"])
    assert {a.name: helper.get_attribute_value(a) for a in node.attribute} == {
        "beta": 2.5,
        "count": -3,
        "mode": b"linear",
        "axes": [0, -1],
        "scales": [0.5, 2.0],
        "names": [b"a", b"b"],
    }
    shapes = [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in (*proto.graph.input, *proto.graph.output)]
    assert shapes == [[2, 3], [3], [2, 3]]
    (y,) = ort.InferenceSession(data).run(None, {"left": X, "right": np.ones(3, np.float32)})
    np.testing.assert_allclose(y, 2.5 * X - 3)


def test_model_of__several_outputs_and_other_types__are_declared() -> None:
    @ort.custom_op("my.domain", "Halves")
    class Halves(ort.Op):
        outputs = ("low", "x")

        def infer(self, x: Any) -> Any:
            return x, ort.TensorType(ort.DType.INT64, x.shape[:1])

        def evaluate(self, x: Any) -> Any:
            return x // 2, np.arange(len(x))

    session = ort.InferenceSession(ort.model_of(Halves(), np.array([[4, 9]], np.int32)))
    assert [(o.name, o.type, o.shape) for o in session.get_outputs()] == [
        ("low", "tensor(int32)", [1, 2]),
        ("x_out", "tensor(int64)", [1]),
    ]
    low, number = session.run(None, {"x": np.array([[4, 9]], np.int32)})
    assert low.tolist() == [[2, 4]] and number.tolist() == [0]


def test_model_of__lists_and_types_as_examples__are_float32_and_themselves() -> None:
    @ort.custom_op("my.domain", "Sum")
    class Sum(ort.Op):
        def evaluate(self, a: Any, b: Any) -> Any:
            return (a + b,)

    session = ort.InferenceSession(ort.model_of(Sum(), [[1.0, 2.0]], ort.TensorType(ort.DType.FLOAT, (2,))))
    assert [(i.name, i.type, i.shape) for i in session.get_inputs()] == [
        ("a", "tensor(float)", [1, 2]),
        ("b", "tensor(float)", [2]),
    ]


@pytest.mark.parametrize("op", [ort.Op, 3, "Swish"])
def test_model_of__no_operator_of_ones_own__says_what_is_expected(op: Any) -> None:
    with pytest.raises(ort.InvalidArgument, match="@custom_op"):
        ort.model_of(op, X)


def test_model_of__attribute_that_no_node_can_have__is_named() -> None:
    @ort.custom_op("my.domain", "Odd")
    class Odd(ort.Op):
        table: Any = None

    with pytest.raises(ort.InvalidArgument, match="'table'"):
        ort.model_of(Odd(table={"a": 1}), X)
