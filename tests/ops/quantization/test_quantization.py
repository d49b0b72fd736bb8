"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph
from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Limits, Target
from pyruntime.ops.registry import op_class
from tests.ops.quantization import quantization_cases as cases
from tests.oracle import check_against_ort


def scalar(value: float) -> Array:
    """A float32 tensor of rank 0."""
    return np.array(value, np.float32)


X = np.linspace(-40, 40, 60, dtype=np.float32).reshape(3, 4, 5)


@pytest.mark.parametrize("zero", cases.ZEROS, ids=lambda z: z.dtype.name)
def test_quantize__per_tensor__as_onnxruntime(zero: Any) -> None:
    x = np.concatenate([X.reshape(-1), np.array([1e9, -1e9, np.inf, -np.inf, 0.25, 0.75, 1.25, -0.25], np.float32)])
    check_against_ort("QuantizeLinear", [x, scalar(0.5), np.asarray(zero)], opset=21)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("opset", [13, 19, 21])
def test_quantize__per_axis__as_onnxruntime(axis: int, opset: int) -> None:
    size = X.shape[axis]
    scale, zero = np.linspace(0.3, 1.1, size, dtype=np.float32), np.arange(size, dtype=np.int8)
    check_against_ort("QuantizeLinear", [X, scale, zero], opset=opset, axis=axis)


@pytest.mark.parametrize(("axis", "block"), [(1, 2), (2, 2), (2, 3), (0, 3), (1, 3), (-1, 5)])
def test_quantize_and_dequantize__blocks__as_onnxruntime(axis: int, block: int) -> None:
    scale, zero = cases.block_scales(X.shape, axis, block)
    check_against_ort("QuantizeLinear", [X, scale, zero], opset=21, axis=axis, block_size=block)
    x = np.arange(60, dtype=np.int8).reshape(X.shape)
    check_against_ort("DequantizeLinear", [x, scale, zero], opset=21, axis=axis, block_size=block)


def test_quantize__opset_10_and_absent_zero_point__as_onnxruntime() -> None:
    check_against_ort("QuantizeLinear", [X, scalar(0.4), np.array(3, np.uint8)], opset=10)
    check_against_ort("QuantizeLinear", [X, scalar(0.4)], opset=13)
    check_against_ort("DequantizeLinear", [np.arange(6, dtype=np.uint8), scalar(0.4)], opset=10)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32])
def test_dequantize__per_axis__as_onnxruntime(dtype: Any) -> None:
    x = np.arange(-30, 30).reshape(3, 4, 5).astype(dtype)
    zero = None if dtype == np.int32 else np.array([1, 2, 3, 4], dtype)
    check_against_ort("DequantizeLinear", [x, np.array([0.1, 2, 0.7, 1.3], np.float32), zero], opset=21, axis=1)


def test_quantize__nan__lowest_integer_as_onnxruntime() -> None:
    check_against_ort(
        "QuantizeLinear", [np.array([np.nan] * 32, np.float32), scalar(1), np.array(3, np.int8)], opset=21
    )


def test_quantize__quotient_of_half_precision__rounded_to_the_scale_s_type() -> None:
    x, scale = (np.arange(0, 400) * 0.25 + 0.05).astype(np.float16), np.float16(0.1)
    exact = np.rint(x.astype(np.float32) / np.float32(scale))
    rounded = np.rint((x / scale).astype(np.float32))
    got = cases.run("QuantizeLinear", [x, scale, np.int16(0)])
    np.testing.assert_array_equal(got, rounded)
    wide = cases.run("QuantizeLinear", [x, scale, np.int16(0)], precision=DType.FLOAT.code)
    np.testing.assert_array_equal(wide, exact)
    assert (exact != rounded).any()


@pytest.mark.parametrize("x", cases.DYNAMIC, ids=lambda x: str(x.shape))
def test_dynamic_quantize__as_onnxruntime(x: Any) -> None:
    check_against_ort("DynamicQuantizeLinear", [x], opset=11, outputs=3)


def test_dynamic_quantize__no_elements__scale_one() -> None:
    y, scale, zero = cases.run("DynamicQuantizeLinear", [np.zeros((2, 0), np.float32)], outputs=3)
    assert (y.shape, scale, zero) == ((2, 0), 1.0, 0)


def test_dynamic_quantize__large_input__two_dispatches_and_few_bounds_to_merge() -> None:
    first, second = op_class("DynamicQuantizeLinear", "", 11)().lower(
        Target(Limits()), TensorType(DType.FLOAT, (4096, 4096))
    )
    assert first.grid == (128, 1, 1) and second.grid == (1024, 1, 1)


def test_dynamic_quantize__few_elements__one_dispatch() -> None:
    op = op_class("DynamicQuantizeLinear", "", 11)(present=(True, True, True))
    (only,) = op.lower(Target(Limits()), TensorType(DType.FLOAT, (1, 1536)))
    assert only.grid == (1, 1, 1)


@pytest.mark.parametrize(
    ("vendor", "elements", "expected"),
    [("", 8, False), ("google", 6, False), ("google", 8, True), ("google", 9, False)],
)
def test_dynamic_quantize__software_adapter__reads_by_fours_where_all_elements_are_fours(
    vendor: str, elements: int, expected: bool
) -> None:
    op = op_class("DynamicQuantizeLinear", "", 11)(present=(True, True, True))
    (only,) = op.lower(Target(Limits(), vendor=vendor), TensorType(DType.FLOAT, (elements,)))
    assert ("fours" in only.kernel.name) is expected


X_TYPE = TensorType(DType.FLOAT, (2, 3))


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ([X_TYPE, TensorType(DType.FLOAT, (2,))], {}),
        ([X_TYPE, TensorType(DType.FLOAT, (2, 2))], {}),
        ([X_TYPE, TensorType(DType.FLOAT, (2, 3))], {"block_size": 2}),
        ([X_TYPE, TensorType(DType.FLOAT, (3,)), TensorType(DType.UINT8, ())], {}),
        (
            [TensorType(DType.FLOAT, (2, 3)), TensorType(DType.FLOAT, ()), TensorType(DType.UINT8, ())],
            {"output_dtype": 3},
        ),
        ([X_TYPE, TensorType(DType.FLOAT, ()), TensorType(DType.INT32, ())], {}),
        ([TensorType(DType.DOUBLE, (2, 3)), TensorType(DType.DOUBLE, ())], {}),
        ([X_TYPE, TensorType(DType.FLOAT, (3,))], {"axis": 5}),
    ],
)
def test_quantize_infer__malformed__invalid_graph(inputs: list[TensorType], attributes: dict[str, Any]) -> None:
    with pytest.raises(InvalidGraph, match="QuantizeLinear"):
        op_class("QuantizeLinear", "", 23)(**attributes).infer(*inputs)
