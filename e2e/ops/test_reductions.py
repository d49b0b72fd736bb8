"""Reduce family, ArgMax, ArgMin on the GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.ir import Array
from pyruntime.kernels.rows.reduce_candidates import REDUCTIONS, ReductionProblem
from pyruntime.kernels.samples import sample
from pyruntime.kernels.selection.candidates import Noted
from pyruntime.ops.training.gradient import SumTo
from tests.harness import make_op, run_op, typed
from tests.oracle import node_of

FOLDS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
TOLERANCE = {"float32": 2e-5, "float16": 1e-3, "bfloat16": 1e-2}


def _same(gpu: Gpu, name: str, inputs: list[Array], opset: int = 12, **attributes: Any) -> None:
    """The GPU's result is the host's, exactly for integers."""
    op = make_op(node_of(name, inputs, **attributes), {"": opset})
    (host,), (device,) = run_op(op, list(inputs)), run_op(op, list(inputs), gpu)
    assert device.shape == host.shape and device.dtype == host.dtype
    if host.dtype.kind == "f":
        tolerance = TOLERANCE[inputs[0].dtype.name]
        np.testing.assert_allclose(device, host, tolerance, tolerance)
    else:
        np.testing.assert_array_equal(device, host)


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_reduce__float__as_host(gpu: Gpu, fold: str, dtype: str) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x = (np.random.default_rng(1).random((3, 5, 7)) * 0.5 + 0.75).astype(kind)
    for axes in ([2], [0], [1], [0, 2], [0, 1, 2]) if dtype == "float32" else ([2], [0, 1]):
        _same(gpu, f"Reduce{fold}", [x], axes=axes)


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64", "int8", "uint8"])
def test_reduce__integer__as_host(gpu: Gpu, fold: str, dtype: str) -> None:
    if fold.startswith("Log") or (dtype.endswith("8") and fold not in ("Max", "Min")):
        pytest.skip("logarithms of integers run on the host; 8-bit integers have Max and Min only")
    low = 0 if dtype.startswith("u") else -9
    x = np.random.default_rng(2).integers(low, 10, (3, 50, 6)).astype(dtype)
    for axes in ([1], [0, 2], [2]):
        _same(gpu, f"Reduce{fold}", [x], axes=axes, keepdims=0)


@pytest.mark.parametrize("fold", ["Sum", "Mean", "Max", "Min", "Prod", "L1", "SumSquare"])
def test_reduce__int64_beyond_32_bits__exact(gpu: Gpu, fold: str) -> None:
    x = np.random.default_rng(3).integers(-(2**44), 2**44, (5, 70))
    _same(gpu, f"Reduce{fold}", [x], axes=[1])


@pytest.mark.parametrize("fold", ["Mean", "L2"])
def test_reduce__int32_whose_sum_overflows__exact(gpu: Gpu, fold: str) -> None:
    x = np.random.default_rng(4).integers(2**29, 2**30, (3, 4)).astype(np.int32)
    _same(gpu, f"Reduce{fold}", [x], axes=[1])


@pytest.mark.parametrize("fold", sorted({*FOLDS} - {"L2"}))
def test_reduce__nan_and_infinity__as_host(gpu: Gpu, fold: str) -> None:
    inf, nan = np.inf, np.nan
    rows = [[1, nan, 2], [inf, -inf, 3], [inf, 2, 3], [-inf, -inf, -inf], [-inf, 1, 2]]
    for width in (3, 40):
        x = np.array([np.resize(row, width) for row in rows], np.float32)
        _same(gpu, f"Reduce{fold}", [x], axes=[1])


@pytest.mark.parametrize("fold", FOLDS)
def test_reduce__no_elements__as_host(gpu: Gpu, fold: str) -> None:
    _same(gpu, f"Reduce{fold}", [np.zeros((2, 0, 3), np.float32)], axes=[1])
    _same(gpu, f"Reduce{fold}", [np.zeros((2, 0, 3), np.float32)], axes=[2])


@pytest.mark.parametrize("fold", ["Sum", "Mean", "Max", "LogSumExp"])
@pytest.mark.parametrize(
    ("shape", "axes"), [((2, 70001), [1]), ((2, 70000), [1]), ((900, 80), [0]), ((3, 300, 64), [1])]
)
def test_reduce__long__as_host(gpu: Gpu, fold: str, shape: tuple[int, ...], axes: list[int]) -> None:
    x = np.random.default_rng(5).random(shape).astype(np.float32)
    _same(gpu, f"Reduce{fold}", [x], axes=axes)


@pytest.mark.parametrize(("fold", "dtype"), [("Sum", "int64"), ("Max", "uint64"), ("Mean", "int32"), ("Max", "int8")])
def test_reduce__long_integers__as_host(gpu: Gpu, fold: str, dtype: str) -> None:
    x = np.random.default_rng(5).integers(0, 100, (1, 70000)).astype(dtype)
    _same(gpu, f"Reduce{fold}", [x], axes=[1])


@pytest.mark.parametrize("fold", ["Max", "Min"])
def test_reduce__bool__as_host(gpu: Gpu, fold: str) -> None:
    x = np.random.default_rng(6).random((5, 36, 3)) > 0.9
    for axis in (0, 1, 2):
        _same(gpu, f"Reduce{fold}", [x, np.array([axis])], opset=20)
    _same(gpu, f"Reduce{fold}", [x.reshape(-1)[None, :540], np.array([1])], opset=20)
    _same(gpu, f"Reduce{fold}", [np.resize(x, (1, 70000)), np.array([1])], opset=20)
    _same(gpu, f"Reduce{fold}", [np.zeros((3, 0), bool), np.array([1])], opset=20)


@pytest.mark.parametrize("fold", ["Sum", "LogSum", "L2", "SumSquare"])
def test_reduce__no_axes_noop__elementwise(gpu: Gpu, fold: str) -> None:
    x = np.random.default_rng(7).random((3, 5)).astype(np.float32)
    _same(gpu, f"Reduce{fold}", [x, np.array([], np.int64)], opset=18, noop_with_empty_axes=1)


def test_reduce_sum__scalar__itself(gpu: Gpu) -> None:
    _same(gpu, "ReduceSumSquare", [np.array(3, np.float32)])


@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int32", "int64", "uint64"])
def test_arg__ties__as_host(gpu: Gpu, name: str, dtype: str) -> None:
    x = np.random.default_rng(8).integers(0, 4, (3, 70, 5)).astype(dtype)
    for axis in (0, 1, 2):
        for last in (0, 1):
            _same(gpu, name, [x], opset=13, axis=axis, select_last_index=last)


def test_arg__nan_and_infinity__as_host(gpu: Gpu) -> None:
    x = np.array([[1, np.nan, np.inf, np.nan], [-np.inf] * 4, [np.inf, -np.inf, np.inf, 0]], np.float32)
    for name in ("ArgMax", "ArgMin"):
        for last in (0, 1):
            for data in (x, np.tile(x, 12)):
                _same(gpu, name, [data], opset=13, axis=1, select_last_index=last)


@pytest.mark.parametrize("device", ["gpu", "software"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint32", "int64"])
@pytest.mark.parametrize("shape", [(2, 40003), (40003, 3), (65, 20000)])
def test_arg__in_two_passes__as_host(
    dtype: str, shape: tuple[int, int], device: str, request: pytest.FixtureRequest
) -> None:
    gpu: Any = request.getfixturevalue(device)
    x = np.random.default_rng(9).integers(0, 4, shape).astype(dtype)
    axis = int(np.argmax(shape))
    for name in ("ArgMax", "ArgMin"):
        for last in (0, 1):
            _same(gpu, name, [x], opset=13, axis=axis, select_last_index=last)
            if dtype == "float32":
                _same(gpu, name, [np.where(x < 2, np.nan, x)], opset=13, axis=axis, select_last_index=last)


def test_arg_max__long_row__as_host(gpu: Gpu) -> None:
    x = np.random.default_rng(9).random((2, 50257)).astype(np.float32)
    _same(gpu, "ArgMax", [x], opset=13, axis=1)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("wide", "narrow"), [((3, 5, 7), (5, 1)), ((3, 5, 7), (3, 1, 7)), ((4, 6), ()), ((2, 1), (1,))]
)
def test_sum_to__narrower_shapes__sums_what_broadcasting_repeated(
    gpu: Gpu, wide: tuple[int, ...], narrow: tuple[int, ...], dtype: type
) -> None:
    g: Array = np.random.default_rng(5).normal(size=wide).astype(dtype)
    like: Array = np.zeros(narrow, dtype)
    (y,) = run_op(SumTo(), [g, like], gpu)
    added = tuple(range(len(wide) - len(narrow)))
    kept = tuple(len(added) + d for d, n in enumerate(narrow) if n == 1)
    expected = g.astype(np.float64).sum((*added, *kept)).reshape(narrow)
    np.testing.assert_allclose(y, expected, TOLERANCE[np.dtype(dtype).name], 1e-3 if dtype == np.float16 else 1e-5)


@pytest.mark.parametrize("shape", [(1, 8320), (3, 20000)])
def test_hardmax__of_a_row_that_takes_two_passes__as_host(gpu: Gpu, software: Gpu, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(5).normal(size=shape).astype(np.float32)
    _same(gpu, "Hardmax", [x], opset=13, axis=1)
    _same(software, "Hardmax", [x], opset=13, axis=1)


@pytest.mark.parametrize("software", [False, True])
@pytest.mark.parametrize(
    ("problem", "least"),
    [
        (ReductionProblem(1, 40000, True), {"each", "shared_8", "shared_split", "each_split"}),
        (ReductionProblem(70, 300, True), {"each", "shared_8", "shared_4", "each_split"}),
        (ReductionProblem(70, 300, False), {"each", "shared_8", "shared_4", "each_split"}),
        (ReductionProblem(3, 20000, False, once=True), {"each", "shared_8"}),
    ],
    ids=lambda v: v.key if isinstance(v, ReductionProblem) else "",
)
def test_reduction__every_candidate__as_the_sum(
    gpu: Gpu, problem: ReductionProblem, least: set[str], software: bool
) -> None:
    target = replace(gpu.target, vendor="google" if software else "")
    shape = (problem.outputs, problem.count) if problem.adjacent else (problem.count, problem.outputs)
    x = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    expected = x.sum(int(problem.adjacent), dtype=np.float64).astype(np.float32)
    names = {c.name for c in REDUCTIONS.rank(problem, target).others if c.cost is not None}
    assert software or least <= names
    for name in names:
        made = sample(Noted(REDUCTIONS, problem), name, target)
        (got,) = gpu.run(made, [x], [typed(x)], [typed(expected)])
        np.testing.assert_allclose(got, expected, 1e-5, 1e-4, err_msg=name)
