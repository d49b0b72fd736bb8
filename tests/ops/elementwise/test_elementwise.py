"""Elementwise operators on the host."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pyruntime.errors import InvalidGraph
from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Limits, Role, Target
from pyruntime.ops.base import Unsupported
from pyruntime.ops.elementwise.cast import Cast
from pyruntime.ops.elementwise.elementwise import Elementwise
from pyruntime.ops.registry import find, op_class
from tests.ops.elementwise import elementwise_cases as cases
from tests.oracle import check_against_ort

FLOATS = ["float32", "float16", "bfloat16", "float64"]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", cases.UNARY_FLOAT)
def test_unary__floats_of_all_sizes__as_float64_reference(name: str, dtype: str) -> None:
    cases.check_float(name, cases.UNARY_FLOAT[name], dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("name", "attributes", "reference"), cases.ACTIVATIONS)
def test_activation__floats_of_all_sizes__as_float64_reference(
    name: str, attributes: dict[str, Any], reference: Callable[[Array], Any], dtype: str
) -> None:
    cases.check_float(name, reference, dtype, **attributes)


@pytest.mark.parametrize("dtype", cases.INTEGERS)
@pytest.mark.parametrize(("name", "attributes", "function"), cases.INTEGER_BINARY)
def test_binary__integer_edges__as_python_integers(
    name: str, attributes: dict[str, Any], function: Callable[[int, int], int], dtype: str
) -> None:
    cases.check_integer_binary(name, attributes, function, dtype)


@pytest.mark.parametrize("dtype", cases.INTEGERS)
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_bit_shift__every_count__as_python_integers(direction: str, dtype: str) -> None:
    cases.check_bit_shift(direction, dtype)


@pytest.mark.parametrize("exponent", [*cases.INTEGERS, "float32", "float64"])
@pytest.mark.parametrize("base", ["int32", "int64"])
def test_pow__integers__modulo_their_range(base: str, exponent: str) -> None:
    cases.check_whole_power(base, exponent)


def test_pow__special_floats__as_c() -> None:
    cases.check_power()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_mod__floats__exact(dtype: str) -> None:
    cases.check_float_remainder(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", ml_dtypes.bfloat16], ids=str)
def test_comparison__nan__false(dtype: Any) -> None:
    cases.check_comparisons_with_nan(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", ml_dtypes.bfloat16], ids=str)
def test_extremes__nan__kept(dtype: Any) -> None:
    cases.check_extremes_with_nan(dtype)


def floats(values: Any) -> Array:
    """A float32 array."""
    return np.asarray(values, np.float32)


X = np.linspace(-4, 4, 30, dtype=np.float32).reshape(2, 3, 5)


@pytest.mark.parametrize(
    ("name", "inputs", "opset", "attributes"),
    [
        ("Add", [X, X[0, 1]], 7, {}),
        ("Sub", [X, X[:, :1]], 13, {}),
        ("Mul", [X[0, :, :1], X], 14, {}),
        ("Div", [np.arange(-9, 9, dtype=np.int64), np.array([4])], 7, {}),
        ("Pow", [np.abs(X), floats([2, 0.5, -1, 3, 1.5])], 7, {}),
        ("Pow", [X, np.array([3], np.int64)], 13, {}),
        ("Pow", [np.arange(1, 10), floats([0.5])], 13, {}),
        ("Pow", [np.arange(1, 10, dtype=np.int32), np.array([2.5, 1.75, -0.5] * 3)], 15, {}),
        ("PRelu", [X, floats([[0.1], [0.2], [0.3]])], 9, {}),
        ("Clip", [X], 6, {"min": -1.5, "max": 2.0}),
        ("Clip", [X], 6, {"max": 2.0}),
        ("Clip", [X, np.array(-1.5, np.float32)], 11, {}),
        ("Clip", [X, None, np.array(1.5, np.float32)], 12, {}),
        ("Clip", [floats([np.inf, -np.inf, np.nan])], 13, {}),
        ("Clip", [X, np.array(np.nan, np.float32), np.array(1.5, np.float32)], 13, {}),
        ("Clip", [X, np.array(-1.5, np.float32), np.array(np.nan, np.float32)], 13, {}),
        ("Clip", [np.arange(-9, 9, dtype=np.int8), np.array(-3, np.int8), np.array(-5, np.int8)], 12, {}),
        ("Clip", [np.arange(9, dtype=np.uint64), np.array(3, np.uint64)], 13, {}),
        ("Sum", [X, X[:1], X[:, :, :1]], 8, {}),
        ("Mean", [X, X[:1], X[:, :, :1], X], 13, {}),
        ("Max", [X, X[:1], X[:, :, :1]], 12, {}),
        ("Min", [X[0], X[1], X[0, 0]], 8, {}),
        ("Max", [np.arange(5), np.array(3)], 13, {}),
        ("Where", [X > 0, X, X[:, :1]], 9, {}),
        ("Where", [X[0] > 0, np.array(["a"], object), np.array(["b", "c", "d", "e", "f"], object)], 16, {}),
        ("Equal", [np.array(["a", "b"], object), np.array(["a", "c"], object)], 19, {}),
        ("Less", [X, X[:, ::-1]], 9, {}),
        ("IsInf", [floats([np.inf, -np.inf, np.nan, 1])], 10, {"detect_negative": 0}),
        ("IsInf", [np.array([np.inf, -np.inf, np.nan, 1])], 10, {"detect_positive": 0}),
        ("Shrink", [np.arange(-5, 6, dtype=np.int8)], 9, {"lambd": 1.5, "bias": 1.5}),
        ("Shrink", [np.arange(6, dtype=np.uint8)], 9, {"lambd": 1.5, "bias": 1.5}),
        ("Softsign", [X], 1, {}),
        ("Celu", [X], 12, {"alpha": 2.0}),
        ("ThresholdedRelu", [X], 9, {"alpha": 0.5}),
        ("Erf", [X], 9, {}),
        ("Sign", [np.arange(-3, 3, dtype=np.int64)], 13, {}),
        ("Abs", [np.array([-128, 127, 0], np.int8)], 6, {}),
        ("Neg", [np.array([-(2**63), 5], np.int64)], 13, {}),
        ("Relu", [np.array([-7, 5], np.int32)], 14, {}),
        ("Mod", [np.arange(-9, 9, dtype=np.int16), np.array([-4], np.int16)], 10, {}),
        ("Mod", [X, floats([1.5])], 13, {"fmod": 1}),
        ("BitShift", [np.arange(8, dtype=np.uint8), np.array([3], np.uint8)], 11, {"direction": "LEFT"}),
        ("Dropout", [X], 7, {"ratio": 0.3}),
        ("Dropout", [X], 13, {}),
        ("Identity", [X], 1, {}),
    ],
    ids=lambda v: v if isinstance(v, str) else None,
)
def test_operator__other_opsets__as_onnxruntime(
    name: str, inputs: list[Any], opset: int, attributes: dict[str, Any]
) -> None:
    check_against_ort(name, inputs, opset=opset, **attributes)


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 12, 22])
def test_dropout__mask_of_inference__as_onnxruntime(opset: int) -> None:
    check_against_ort("Dropout", [X], opset=opset, outputs=2)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0, 3), (7,)])
@pytest.mark.parametrize("name", ["Abs", "Relu", "Elu", "Add", "Equal", "Sum", "Where", "Clip", "Mod"])
def test_operator__scalars_and_empty_tensors__keep_their_shape(name: str, shape: tuple[int, ...]) -> None:
    x = np.ones(shape, np.float32)
    two: list[Any] = [x, x]
    inputs = {"Where": [x > 0, x, x], "Add": two, "Equal": two, "Sum": two, "Mod": two}.get(name, [x])
    got = cases.run(name, inputs)
    assert isinstance(got, np.ndarray) and got.shape == shape


@pytest.mark.parametrize("count", [1, 7, 8, 40])
def test_variadic__many_inputs__one_dispatch_for_what_the_device_binds(count: int) -> None:
    target = Target(Limits(storage_buffers=8))
    x = TensorType(DType.FLOAT16, (3, 4))
    for name in ("Sum", "Mean", "Max", "Min"):
        dispatches = op_class(name, "", 13)().lower(target, *[x] * count)
        reads = [o for d in dispatches for o in d.reads]
        assert all(len(d.operands) <= 8 for d in dispatches)
        assert [o.index for o in reads if o.role is Role.INPUT] == list(range(count))
        partial = [o for d in dispatches[:-1] for o in d.writes]
        assert all(o.type.dtype is DType.FLOAT for o in partial), "partial results must not be rounded"


@pytest.mark.parametrize("name", ["Sum", "Mean", "Max", "Min"])
def test_variadic__forty_inputs__as_onnxruntime(name: str) -> None:
    rng = np.random.default_rng(0)
    check_against_ort(name, [rng.standard_normal((2, 3)).astype(np.float32) for _ in range(40)], opset=13)


@pytest.mark.parametrize(
    ("name", "types", "attributes"),
    [
        ("Add", [TensorType(DType.FLOAT, (2, 3)), TensorType(DType.FLOAT, (2,))], {}),
        ("Add", [TensorType(DType.FLOAT, (2,)), TensorType(DType.INT32, (2,))], {}),
        ("Add", [TensorType(DType.BOOL, (2,)), TensorType(DType.BOOL, (2,))], {}),
        ("And", [TensorType(DType.FLOAT, (2,)), TensorType(DType.FLOAT, (2,))], {}),
        ("Sin", [TensorType(DType.INT32, (2,))], {}),
        ("Neg", [TensorType(DType.UINT8, (2,))], {}),
        ("PRelu", [TensorType(DType.FLOAT, (2, 3)), TensorType(DType.FLOAT, (4, 1, 3))], {}),
        ("Clip", [TensorType(DType.FLOAT, (2, 3)), TensorType(DType.FLOAT, (3,))], {}),
        ("Clip", [TensorType(DType.FLOAT, (2, 3)), TensorType(DType.DOUBLE, ())], {}),
        ("Where", [TensorType(DType.INT32, (2,)), TensorType(DType.FLOAT, (2,)), TensorType(DType.FLOAT, (2,))], {}),
        ("Where", [TensorType(DType.BOOL, (2,)), TensorType(DType.FLOAT, (2,)), TensorType(DType.INT32, (2,))], {}),
        ("Mod", [TensorType(DType.FLOAT, (2,)), TensorType(DType.FLOAT, (2,))], {"fmod": 2}),
        ("BitShift", [TensorType(DType.UINT8, (2,)), TensorType(DType.UINT8, (2,))], {"direction": "UP"}),
        ("Gelu", [TensorType(DType.FLOAT, (2,))], {"approximate": "erf"}),
        ("Sum", [], {}),
        ("BitCast", [TensorType(DType.FLOAT, (2,))], {"to": DType.INT64.code}),
        ("Cast", [TensorType(DType.FLOAT, (2,))], {"to": 99}),
    ],
    ids=lambda v: v if isinstance(v, str) else None,
)
def test_infer__malformed_inputs__invalid_graph(name: str, types: list[TensorType], attributes: dict[str, Any]) -> None:
    with pytest.raises(InvalidGraph, match=name):
        op_class(name, "", 28)(**attributes).infer(*types)


def test_sum__before_opset_8__does_not_broadcast() -> None:
    with pytest.raises(InvalidGraph, match="one shape"):
        op_class("Sum", "", 7)().infer(TensorType(DType.FLOAT, (2, 3)), TensorType(DType.FLOAT, (3,)))


def test_lower__float64__runs_on_the_host() -> None:
    with pytest.raises(Unsupported, match="float64 is exact on the host"):
        op_class("Add", "", 14)().lower(Target(), *[TensorType(DType.DOUBLE, (2,))] * 2)


@pytest.mark.parametrize("name", ["Sum", "Mean", "Max", "Min", "Identity", "Dropout"])
def test_alias__one_input__is_the_output(name: str) -> None:
    assert op_class(name, "", 13)().alias(TensorType(DType.FLOAT, (2,))) == 0


@pytest.mark.parametrize(
    ("source", "to", "expected"),
    [
        (DType.INT32, DType.UINT32, 0),
        (DType.BOOL, DType.UINT8, 0),
        (DType.UINT64, DType.INT64, 0),
        (DType.FLOAT, DType.FLOAT, 0),
        (DType.UINT8, DType.BOOL, None),
        (DType.FLOAT, DType.INT32, None),
        (DType.FLOAT16, DType.BFLOAT16, None),
    ],
)
def test_cast_alias__same_bits__is_a_view(source: DType, to: DType, expected: int | None) -> None:
    assert Cast(to=to.code).alias(TensorType(source, (3,))) == expected


def test_row_class__like_any_other_operator() -> None:
    relu = op_class("Relu", "", 14)
    assert (relu.op_type, relu.domain, relu.__name__, relu.__module__) == (
        "Relu",
        "",
        "Relu",
        "pyruntime.ops.elementwise.unary",
    )
    assert repr(relu()) == "Relu(present=(True,))"
    assert relu() == relu() and hash(relu()) == hash(relu())
    assert relu() != op_class("Abs", "", 14)()
    assert pickle.loads(pickle.dumps(relu())) == relu()


def test_expression__every_elementwise_operator__names_its_inputs_and_scalars() -> None:
    seen = 0
    for name in sorted(cases.FAMILY - {"Cast", "CastLike", "BitShift"}):
        cls = find(name, "", 28)
        assert cls is not None
        if not issubclass(cls, Elementwise):
            continue
        count = {"Where": 3, "Clip": 3}.get(name, 2 if len(cls.names) == 2 or hasattr(cls, "pair") else 1)
        types = [DType.BOOL, DType.FLOAT, DType.FLOAT] if name == "Where" else [DType.FLOAT] * count
        expression = cls().expression(*types)
        if expression is None:
            assert DType.FLOAT not in cls.dtypes
            continue
        assert len(expression.names) == count
        assert all(n in expression.code for n in (*expression.names, *expression.scalars)), name
        seen += 1
    assert seen > 50


def test_cast_expression__in_a_chain__rounds() -> None:
    expression = Cast(to=DType.FLOAT16.code).expression(DType.FLOAT)
    assert expression is not None
    assert "f16_encode" in expression.code
