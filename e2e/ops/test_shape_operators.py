"""Tensors made from numbers, caches, clamped indices and folded grids on the GPU."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pyruntime.ir import Array, Constant, DType
from pyruntime.ops.base import Op
from pyruntime.ops.registry import op_class
from tests.harness import run_op
from tests.ops.attention.cache_cases import check_tensor_scatter
from tests.ops.movement.movement_cases import DTYPES, RANDOM, check_moves, one_hot_case, random_case

FOLDED = [name for name in RANDOM if name not in ("compress", "transpose")]


def make(op_type: str, opset: int = 27, **attributes: Any) -> Op:
    """The operator of a node with one output."""
    return op_class(op_type, "", opset)(**attributes)


def ints(*values: int) -> Array:
    """An int64 vector."""
    return np.array(values, np.int64)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int16", "int32", "int64"])
def test_range__every_type__start_plus_multiples_of_delta(dtype: str, gpu: Any) -> None:
    for numbers in ((3, 900, 7), (900, 3, -7), (5, 5, 1), (0, 1, 1)):
        inputs = [np.array(n, dtype) for n in numbers]
        np.testing.assert_array_equal(run_op(make("Range"), [*inputs], gpu)[0], np.arange(*numbers).astype(dtype))


def test_range__int64_beyond_32_bits__exact(gpu: Any) -> None:
    numbers = (-(2**40), 2**41, 2**38 + 1)
    (y,) = run_op(make("Range"), [np.array(n, np.int64) for n in numbers], gpu)
    np.testing.assert_array_equal(y, np.arange(*numbers, dtype=np.int64))


def test_range__float_delta__within_rounding(gpu: Any) -> None:
    numbers = [np.array(v, np.float32) for v in (-1.5, 100, 0.1)]
    (y,) = run_op(make("Range"), [*numbers], gpu)
    np.testing.assert_allclose(y, -1.5 + np.arange(1015) * np.float64(np.float32(0.1)), rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("dtype", [d for d in DType if d.compute], ids=lambda d: d.onnx_name)
def test_filled_tensors__every_type__right_bits(dtype: DType, gpu: Any) -> None:
    element = np.ones(1, dtype.numpy)
    (y,) = run_op(make("ConstantOfShape", value=Constant.from_array(element, dtype)), [ints(3, 7)], gpu)
    np.testing.assert_array_equal(y, np.ones((3, 7)))
    if dtype is DType.FLOAT8E8M0:  # it has no zero
        return
    (y,) = run_op(make("EyeLike", dtype=dtype.code, k=-1), [np.zeros((4, 3), np.float32)], gpu)
    np.testing.assert_array_equal(y, np.eye(4, 3, -1))


def test_tensor_scatter__random__as_specified(gpu: Any) -> None:
    rng = np.random.default_rng(12)
    for number in range(30):
        check_tensor_scatter(rng, (np.float32, np.float16, np.int8)[number % 3], gpu)


@pytest.mark.parametrize("kind", ["f4", "i1", "u1", "u4", "i8", "u8"])
def test_one_hot__indices_of_any_type__truncated_and_in_range(kind: str, gpu: Any) -> None:
    indices, expected = one_hot_case(kind)
    (y,) = run_op(make("OneHot"), [indices, np.array(3), np.array([5, 9], np.int16)], gpu)
    np.testing.assert_array_equal(y, np.where(expected, 9, 5))


@pytest.mark.parametrize("index", [2**62, -(2**62), 2**31, 3, -4])
def test_gather__index_out_of_range__an_element_at_the_edge(index: int, gpu: Any) -> None:
    x, edge = np.array([1, 2, 3], np.float32), np.array([3.0 if index > 0 else 1.0], np.float32)
    for op_type in ("Gather", "GatherElements"):
        np.testing.assert_array_equal(run_op(make(op_type), [x, ints(index)], gpu)[0], edge)
    np.testing.assert_array_equal(run_op(make("GatherND"), [x, ints(index)[:, None]], gpu)[0], edge)


@pytest.mark.parametrize("name", FOLDED)
def test_movement__grid_beyond_the_limit__folded(name: str, gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "target", replace(gpu.target, limits=replace(gpu.target.limits, workgroups=2)))
    rng = np.random.default_rng(zlib.crc32(name.encode()) + 2)
    tried = 0
    while tried < 2:
        case = random_case(name, rng)
        if sum(int(np.prod(x)) for x in case.inputs if isinstance(x, tuple)) > 600 or name == "one_hot":
            check_moves(case, rng, list(DTYPES)[tried], gpu)
            tried += 1


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64"])
@pytest.mark.parametrize("perm", [(1, 0), (0, 2, 1), (0, 2, 3, 1), (2, 1, 0, 3), (3, 1, 2, 0), (4, 3, 2, 1, 0)])
def test_transpose__long_dimensions__tiles_fit_at_every_edge(perm: tuple[int, ...], dtype: str, gpu: Any) -> None:
    for size in (31, 40):
        shape = [3] * len(perm)
        shape[perm[-1]] = size
        shape[-1] = 36 if perm[-1] != len(perm) - 1 else 5
        x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
        np.testing.assert_array_equal(run_op(make("Transpose", perm=perm), [x], gpu)[0], x.transpose(perm))
