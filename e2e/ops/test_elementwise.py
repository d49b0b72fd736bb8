"""Elementwise operators on the GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Limits, Target
from pyruntime.ops.base import Unsupported
from pyruntime.ops.registry import op_class
from tests.harness import check_case, typed
from tests.ops.elementwise import elementwise_cases as cases

FLOATS = ["float32", "float16", "bfloat16"]
ON_HOST = {
    "test_training_dropout_default": "random numbers",
    "test_training_dropout_default_mask": "random numbers",
    "test_training_dropout": "random numbers",
    "test_training_dropout_mask": "random numbers",
    "test_equal_string": "string",
    "test_equal_string_broadcast": "string",
    "test_max_float64": "float64",
    "test_min_float64": "float64",
    "test_mod_mixed_sign_float64": "float64",
    "test_mod_float64_mixed_sign_fmod_0": "float64",
    "test_mod_float_edge_cases_fmod_0_float64": "float64",
    "test_identity_sequence": "sequence",
    "test_identity_opt": "optional",
}
"""ONNX's cases that run on the host, and a word of the reason `lower` gives."""


@pytest.mark.parametrize("name", [n for n in ON_HOST if not n.startswith("test_identity")])
def test_operators__onnx_cases_for_the_host__say_why(gpu: Gpu, name: str) -> None:
    with pytest.raises(Unsupported, match=ON_HOST[name]):
        check_case(name, gpu)


# SwiftShader and WGSL flush subnormals: references here stay clear of them.
@pytest.mark.parametrize("dtype", FLOATS)
def test_unary__floats_of_all_sizes__as_float64_reference(gpu: Gpu, dtype: str) -> None:
    for name, reference in cases.UNARY_FLOAT.items():
        cases.check_float(name, reference, dtype, gpu)
    for name, attributes, function in cases.ACTIVATIONS:
        cases.check_float(name, function, dtype, gpu, **attributes)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize(("name", "attributes", "function"), cases.INTEGER_BINARY)
def test_binary__integer_edges__as_python_integers(
    gpu: Gpu, name: str, attributes: dict[str, Any], function: Callable[[int, int], int], dtype: str
) -> None:
    cases.check_integer_binary(name, attributes, function, dtype, gpu)


@pytest.mark.parametrize("dtype", cases.INTEGERS)
@pytest.mark.parametrize("name", ["Abs", "BitwiseNot", "Neg", "Relu", "Sign"])
def test_unary__integer_edges__as_host(gpu: Gpu, name: str, dtype: str) -> None:
    if dtype[0] == "u" and name in ("Neg", "Relu"):
        pytest.skip("signed types only")
    x = np.array(cases.edges(dtype), dtype)
    np.testing.assert_array_equal(cases.run(name, [x], gpu), cases.run(name, [x]))


@pytest.mark.parametrize("dtype", cases.INTEGERS)
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_bit_shift__every_count__as_python_integers(gpu: Gpu, direction: str, dtype: str) -> None:
    cases.check_bit_shift(direction, dtype, gpu)


@pytest.mark.parametrize("exponent", [*(t for t in cases.INTEGERS if t != "uint64"), "float32"])
@pytest.mark.parametrize("base", ["int32", "int64"])
def test_pow__integers__modulo_their_range(gpu: Gpu, base: str, exponent: str) -> None:
    cases.check_whole_power(base, exponent, gpu)


def test_pow__integer_to_a_fraction__runs_on_the_host(gpu: Gpu) -> None:
    with pytest.raises(Unsupported, match="Pow of int32 and float"):
        cases.run("Pow", [np.array([4, 9], np.int32), np.array([0.5], np.float32)], gpu)


def test_pow__special_floats__as_c(gpu: Gpu) -> None:
    cases.check_power(gpu)


@pytest.mark.parametrize("exponent", cases.INTEGERS)
def test_pow__float_to_integer__as_host(gpu: Gpu, exponent: str) -> None:
    values = [0, 1, 2, 3, 7, 31, 33] + ([-1, -2, -3] if exponent[0] == "i" else [])
    if exponent.endswith(("32", "64")):
        values += [16777217, 16777216]
    x, y = np.meshgrid(np.array([-2, -1, -0.5, 0, 0.5, 1, 3], "f"), np.array(values, exponent), indexing="ij")
    np.testing.assert_allclose(cases.run("Pow", [x, y], gpu), cases.run("Pow", [x, y]), rtol=2e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_mod__floats__exact(gpu: Gpu, dtype: str) -> None:
    cases.check_float_remainder(dtype, gpu)


@pytest.mark.parametrize("dtype", ["float32", "float16", ml_dtypes.bfloat16], ids=str)
def test_comparison_and_extremes__nan__as_ieee(gpu: Gpu, dtype: Any) -> None:
    cases.check_comparisons_with_nan(dtype, gpu)
    cases.check_extremes_with_nan(dtype, gpu)


BROADCASTS: list[list[tuple[int, ...]]] = [
    [(2, 3, 5), (5,)],
    [(2, 3, 5), (3, 1)],
    [(2, 1, 5), (3, 1)],
    [(), (4, 3)],
    [(1,), ()],
    [(7,), (7,)],
    [(2, 0, 3), (3,)],
    [(2, 1, 3, 1, 2), (4, 1, 5, 1)],
]


@pytest.mark.parametrize("shapes", BROADCASTS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int64", "bool"])
def test_binary__broadcasting__as_numpy(gpu: Gpu, dtype: str, shapes: list[tuple[int, ...]]) -> None:
    rng = np.random.default_rng(1)
    a, b = (np.asarray(rng.integers(0, 50, s)).astype(dtype) for s in shapes)
    name, function = ("And", np.logical_and) if dtype == "bool" else ("Add", np.add)
    got = cases.run(name, [a, b], gpu)
    assert got.dtype == a.dtype
    np.testing.assert_array_equal(got, function(a, b))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 257, 70001])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bool", "int64"])
def test_where__every_size_of_tail__as_numpy(gpu: Gpu, dtype: str, size: int) -> None:
    rng = np.random.default_rng(size)
    condition = rng.integers(0, 2, size).astype(np.bool_)
    a, b = (rng.integers(0, 100, size).astype(dtype) for _ in range(2))
    np.testing.assert_array_equal(cases.run("Where", [condition, a, b], gpu), np.where(condition, a, b))


def test_where__float64_and_nan_payloads__bits_kept(gpu: Gpu) -> None:
    a = np.array([0x7FF8000000000123, 0xFFF0000000000001, 5], np.uint64).view(np.float64)
    got = cases.run("Where", [np.array([True, True, False]), a, -a], gpu)
    np.testing.assert_array_equal(got[:2].view(np.uint64), a[:2].view(np.uint64))


@pytest.mark.parametrize(
    ("dtype", "count"), [*(("float32", count) for count in (1, 9, 10, 11, 40)), ("float16", 2), ("float16", 11)]
)
def test_variadic__many_inputs__as_host(gpu: Gpu, dtype: str, count: int) -> None:
    rng = np.random.default_rng(count)
    shapes = [(3, 4), (4,), (3, 1), (1,)]
    inputs = [rng.standard_normal(shapes[i % 4]).astype(dtype) for i in range(count)]
    for name in ("Sum", "Mean", "Max", "Min"):
        tolerance = 2e-6 if dtype == "float32" else 1e-3
        np.testing.assert_allclose(
            cases.run(name, list(inputs), gpu), cases.run(name, list(inputs)), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "uint64"])
def test_max__forty_integers__as_host(gpu: Gpu, dtype: str) -> None:
    values = cases.edges(dtype)
    rng = np.random.default_rng(4)
    inputs = [rng.choice(np.array(values, dtype), (5,)) for _ in range(40)]
    np.testing.assert_array_equal(cases.run("Max", list(inputs), gpu), np.max(inputs, axis=0))
    np.testing.assert_array_equal(cases.run("Min", list(inputs), gpu), np.min(inputs, axis=0))


@pytest.mark.parametrize("dtype", [*FLOATS, *cases.INTEGERS])
def test_clip__bounds_present_and_absent__as_host(gpu: Gpu, dtype: str) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x = np.array([0, 1, 3, 7, 100], kind)
    if dtype in FLOATS:
        x = np.concatenate([x, np.array([-3, np.inf, -np.inf, np.nan], kind)])
    low, high = np.array(2, kind), np.array(5, kind)
    for bounds in ([], [low], [None, high], [low, high], [high, low]):
        np.testing.assert_array_equal(cases.run("Clip", [x, *bounds], gpu), cases.run("Clip", [x, *bounds]))
    if dtype in FLOATS:
        np.testing.assert_array_equal(
            cases.run("Clip", [x], gpu, opset=6, min=-1.0, max=2.5), cases.run("Clip", [x], opset=6, min=-1.0, max=2.5)
        )


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint32", "int64", "uint64"])
def test_prelu__slopes_that_broadcast__as_host(gpu: Gpu, dtype: str) -> None:
    x = np.arange(-6, 6).reshape(2, 3, 2).astype(dtype)
    for slope in (np.array([2], dtype), np.array([[1], [2], [3]], dtype)):
        np.testing.assert_array_equal(cases.run("PRelu", [x, slope], gpu), cases.run("PRelu", [x, slope]))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_shrink__narrow_integers__as_host(gpu: Gpu, dtype: str) -> None:
    x = np.array(cases.edges(dtype), dtype)
    settings: list[dict[str, Any]] = [{"lambd": 1.5, "bias": 1.5}, {"lambd": 100.0, "bias": -60.25}]
    for attributes in settings:
        np.testing.assert_array_equal(
            cases.run("Shrink", [x], gpu, **attributes), cases.run("Shrink", [x], **attributes)
        )


def test_is_inf_and_is_nan__every_float8__as_host(gpu: Gpu) -> None:
    bits = np.arange(256, dtype=np.uint8)
    for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"):
        x = bits.view(getattr(ml_dtypes, name))
        for predicate in ("IsInf", "IsNaN"):
            np.testing.assert_array_equal(cases.run(predicate, [x], gpu), cases.run(predicate, [x]))
    x = np.array([np.inf, -np.inf, np.nan, 1], "f")
    np.testing.assert_array_equal(cases.run("IsInf", [x], gpu, detect_negative=0), [True, False, False, False])
    np.testing.assert_array_equal(cases.run("IsInf", [x], gpu, detect_positive=0), [False, True, False, False])


@pytest.mark.parametrize(("name", "dtype"), [("Neg", np.float32), ("BitwiseNot", np.int64)])
def test_elementwise__more_workgroups_than_a_dimension_takes__all_elements(gpu: Gpu, name: str, dtype: Any) -> None:
    x: Array = np.arange(100_003).astype(dtype)
    types = [typed(x, False)]
    (dispatch,) = op_class(name, "", 28)().lower(Target(Limits(workgroups=20)), *types)
    assert max(dispatch.grid) <= 20 and dispatch.grid[1] > 1
    (got,) = gpu.run([dispatch], [x], types, [TensorType(DType.from_numpy(x.dtype), x.shape)])
    np.testing.assert_array_equal(got, -x if name == "Neg" else ~x)


def test_dropout__inference_with_mask__as_host(gpu: Gpu) -> None:
    x = np.arange(11, dtype=np.float32)
    for opset in (7, 10, 13):
        y, mask = cases.run("Dropout", [x], gpu, opset, 2)
        np.testing.assert_array_equal(y, x)
        dtype = np.float32 if opset == 7 else np.bool_
        np.testing.assert_array_equal(mask, np.full(11, opset == 13, dtype))
        assert mask.dtype == dtype
