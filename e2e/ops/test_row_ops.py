"""Softmax, LogSoftmax, Hardmax, LayerNormalization, RMSNormalization, LpNormalization, CumSum, CumProd on the GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.ir import Array
from pyruntime.kernels.rows.rows_candidates import NORMS, SCANS, SOFTMAX, RowsProblem
from pyruntime.kernels.samples import sample
from pyruntime.kernels.selection.candidates import Family, Noted
from tests.harness import make_op, run_op, typed
from tests.ops.normalization.test_row_ops import AWKWARD
from tests.oracle import node_of

TOLERANCE = {"float32": 2e-5, "float16": 2e-3, "bfloat16": 1e-2}
RNG = np.random.default_rng(0)
OPSET = 26


def _same(gpu: Gpu, name: str, inputs: list[Any], opset: int = OPSET, outputs: int = 1, **attributes: Any) -> None:
    """The GPU's results are the host's, exactly for integers."""
    op = make_op(node_of(name, inputs, outputs, **attributes), {"": opset})
    for host, device in zip(run_op(op, list(inputs)), run_op(op, list(inputs), gpu), strict=False):
        assert device.shape == host.shape and device.dtype == host.dtype
        if host.dtype.kind == "f":
            tolerance = TOLERANCE[inputs[0].dtype.name]
            np.testing.assert_allclose(device, host, tolerance, tolerance)
        else:
            np.testing.assert_array_equal(device, host)


def _normal(dtype: str, *shape: int) -> Array:
    return RNG.standard_normal(shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


SHAPES = [((5, 10), 1), ((5, 12), 1), ((3, 70), 1), ((3, 1100), 1), ((3, 1101), 1), ((2, 40, 3), 1), ((2, 7, 600), 1)]


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_softmax__shapes__as_host(gpu: Gpu, name: str, shape: tuple[int, ...], axis: int) -> None:
    _same(gpu, name, [_normal("float32", *shape) * 5], axis=axis)


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_softmax__half__as_host(gpu: Gpu, name: str, dtype: str) -> None:
    for shape in ((4, 8), (3, 9), (2, 80)):
        _same(gpu, name, [_normal(dtype, *shape)])


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("width", [3, 12, 60, 61])
def test_softmax__nan_and_infinity__as_host(gpu: Gpu, name: str, width: int) -> None:
    _same(gpu, name, [np.stack([np.resize(row, width) for row in AWKWARD])])


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax__before_opset_13__flattened(gpu: Gpu, name: str) -> None:
    for axis in (0, 1, 2):
        _same(gpu, name, [_normal("float32", 2, 3, 5)], opset=11, axis=axis)


@pytest.mark.parametrize("name", ["Softmax", "LogSoftmax", "Hardmax", "LpNormalization"])
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 0), (1, 1)])
def test_row_op__scalar_or_empty__as_host(gpu: Gpu, name: str, shape: tuple[int, ...]) -> None:
    _same(gpu, name, [np.zeros(shape, np.float32)])


def test_hardmax__ties__first(gpu: Gpu) -> None:
    for axis in (0, 1, 2):
        _same(gpu, "Hardmax", [RNG.integers(0, 3, (3, 40, 5)).astype(np.float32)], axis=axis)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("length", [8, 9, 96, 97, 1024])
def test_layer_normalization__lengths__as_host(gpu: Gpu, dtype: str, length: int) -> None:
    x, scale, bias = _normal(dtype, 3, length), _normal(dtype, length), _normal(dtype, length)
    _same(gpu, "LayerNormalization", [x, scale, bias], outputs=3)
    if length in (9, 96):
        _same(gpu, "LayerNormalization", [x, scale])
        _same(gpu, "RMSNormalization", [x, scale])


def test_layer_normalization__broadcast_scale__as_host(gpu: Gpu) -> None:
    x = _normal("float32", 2, 3, 8)
    for scale in ((1,), (8,), (3, 8), (3, 1), (2, 1, 1)):
        s = _normal("float32", *scale)
        _same(gpu, "LayerNormalization", [x, s, s], outputs=3, axis=1)
        _same(gpu, "RMSNormalization", [x, s], axis=-2)


def test_layer_normalization__large_mean__as_host(gpu: Gpu) -> None:
    x = (10000 + np.arange(400).reshape(4, 100)).astype(np.float32)
    _same(gpu, "LayerNormalization", [x, np.ones(100, np.float32)], outputs=3)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization__zero_rows__as_host(gpu: Gpu, dtype: str, p: int) -> None:
    x = _normal(dtype, 3, 40, 5)
    x[1] = 0
    x[:, :, 2] = 0
    for axis in (0, 1, -1):
        _same(gpu, "LpNormalization", [x], axis=axis, p=p)


@pytest.mark.parametrize("name", ["CumSum", "CumProd"])
@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (1, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint32", "int64", "uint64"])
def test_cumulative__types__as_host(gpu: Gpu, name: str, exclusive: int, reverse: int, dtype: str) -> None:
    x = RNG.integers(1, 4, (2, 70, 3)).astype(dtype)
    if dtype.startswith("f"):
        x = x * np.asarray(0.5 if name == "CumProd" else 1, dtype)
    for axis in (1, -1):
        _same(gpu, name, [x, np.array(axis)], exclusive=exclusive, reverse=reverse)


@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("length", [1, 64, 65, 5000])
def test_cumsum__lengths__as_host(gpu: Gpu, exclusive: int, reverse: int, length: int) -> None:
    x = RNG.integers(-9, 9, (2, length)).astype(np.int32)
    _same(gpu, "CumSum", [x, np.array([1], np.int32)], exclusive=exclusive, reverse=reverse)


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


def _norm(x: Array) -> Array:
    d = x - x.mean(1, keepdims=True)
    return np.asarray(d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5))


@pytest.mark.parametrize("software", [False, True])
@pytest.mark.parametrize("problem", [RowsProblem(3, 4100), RowsProblem(70, 301), RowsProblem(2, 70, 40)])
@pytest.mark.parametrize(
    ("family", "formula"),
    [(SOFTMAX, _softmax), (NORMS, _norm), (SCANS, lambda x: x.cumsum(1))],
    ids=["softmax", "norm", "scan"],
)
def test_rows__every_candidate__as_the_formula(
    gpu: Gpu, family: Family[Any, Any], formula: Callable[[Array], Array], problem: RowsProblem, software: bool
) -> None:
    if family is NORMS:
        problem = RowsProblem(problem.count, problem.length)
    target = replace(gpu.target, vendor="google" if software else "")
    shape = (problem.outer, problem.length, problem.inner)
    x = np.random.default_rng(8).standard_normal(shape).astype(np.float32)
    given = [x, np.ones(problem.length, np.float32)][: 2 if family is NORMS else 1]
    expected = formula(x.astype(np.float64)).astype(np.float32)
    names = {c.name for c in family.rank(problem, target).others if c.cost is not None}
    assert software or {"each", "shared_8"} <= names
    for name in names:
        made = sample(Noted(family, problem), name, target)
        (got,) = gpu.run(made, given, [typed(v) for v in given], [typed(expected)])
        np.testing.assert_allclose(got, expected, 2e-5, 2e-5 * max(1.0, float(abs(expected).max())), err_msg=name)
