"""BatchNormalization, InstanceNormalization, GroupNormalization, MeanVarianceNormalization, LRN on the GPU."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.ir import Array
from pyruntime.kernels.rows.groups_candidates import GROUP_NORMS, GroupsProblem
from pyruntime.kernels.samples import sample
from pyruntime.kernels.selection.candidates import Noted
from tests.harness import run_op, typed
from tests.ops.normalization.test_normalization import SHAPES, batch_inputs, normalization_op

TOLERANCE = {"float32": (1e-4, 1e-4), "float16": (5e-3, 5e-3), "bfloat16": (4e-2, 4e-2)}


def _as_host(
    gpu: Gpu, name: str, inputs: list[Array | None], outputs: int = 1, opset: int = 22, **attributes: Any
) -> None:
    op = normalization_op(name, len(inputs), outputs, opset, **attributes)
    host, device = run_op(op, list(inputs)), run_op(op, list(inputs), gpu)
    assert inputs[0] is not None
    for mine, theirs in zip(device, host, strict=True):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, *TOLERANCE[inputs[0].dtype.name])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_normalization__every_type_and_rank__as_host(gpu: Gpu, dtype: str) -> None:
    numpy = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    for shape in SHAPES:
        inputs: list[Array | None] = [a.astype(numpy) for a in batch_inputs(shape, (4,)) if a is not None]
        _as_host(gpu, "BatchNormalization", inputs)
        _as_host(gpu, "LRN", inputs[:1], size=3)
        _as_host(gpu, "MeanVarianceNormalization", inputs[:1], axes=[0, *range(2, len(shape))])
        if len(shape) > 2:
            _as_host(gpu, "BatchNormalization", inputs, 3, training_mode=1)
            _as_host(gpu, "InstanceNormalization", inputs[:3])
            _as_host(gpu, "GroupNormalization", inputs[:3], num_groups=2)
            halves: list[Array | None] = [inputs[0], *(a[:2] for a in inputs[1:3] if a is not None)]
            _as_host(gpu, "GroupNormalization", halves, opset=18, num_groups=2)


def test_batch_normalization__old_opsets__as_host(gpu: Gpu) -> None:
    _as_host(gpu, "BatchNormalization", batch_inputs((2, 4, 6), (4,)), 5, 9)
    _as_host(gpu, "BatchNormalization", batch_inputs((2, 4, 6), (4, 6)), 1, 7, spatial=0)
    _as_host(gpu, "BatchNormalization", batch_inputs((5, 4, 6), (4, 6)), 5, 7, spatial=0)


@pytest.mark.parametrize("axes", [[1, 3], [-1], [0, 1, 2, 3], [0]])
def test_mean_variance_normalization__axes__as_host(gpu: Gpu, axes: list[int]) -> None:
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 5)).astype(np.float32)
    _as_host(gpu, "MeanVarianceNormalization", [x], axes=axes)


def test_normalization__large_mean__variance_without_cancellation(gpu: Gpu) -> None:
    x = (np.random.default_rng(2).standard_normal((2, 2, 5000)) + 3000).astype(np.float32)
    ones = np.ones(2, np.float32)
    for disabled in (frozenset[str](), frozenset({"normalize_split"})):
        one = copy.copy(gpu)
        one.target = replace(gpu.target, disabled=disabled)
        _as_host(one, "InstanceNormalization", [x, ones, ones])
    _as_host(gpu, "BatchNormalization", [x, ones, ones, ones, ones], 3, training_mode=1)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("shape", "groups"), [((2, 4, 64, 66), 2), ((1, 3, 53, 61), 1), ((3, 2, 5003), 1)])
def test_normalization__rows_shared_by_workgroups__as_host(
    gpu: Gpu, shape: tuple[int, ...], groups: int, dtype: str
) -> None:
    rng = np.random.default_rng(5)
    x = (rng.standard_normal(shape) * 2 + (100 if dtype == "float32" else 3)).astype(dtype)
    scale, bias = (rng.standard_normal(shape[1]).astype(dtype) for _ in range(2))
    op = normalization_op("GroupNormalization", 3, num_groups=groups)
    assert len(op.lower(gpu.target, *map(typed, (x, scale, bias)))) == 2
    _as_host(gpu, "GroupNormalization", [x, scale, bias], num_groups=groups)
    _as_host(gpu, "MeanVarianceNormalization", [x], axes=list(range(1, len(shape))))
    halves: list[Array | None] = [x, scale[:groups], bias[:groups]]
    _as_host(gpu, "GroupNormalization", halves, opset=18, num_groups=groups)


def test_normalization__no_images__no_output(gpu: Gpu) -> None:
    inputs = batch_inputs((0, 4, 3), (4,))
    _as_host(gpu, "BatchNormalization", inputs)
    _as_host(gpu, "InstanceNormalization", inputs[:3])
    _as_host(gpu, "LRN", inputs[:1], size=3)


@pytest.mark.parametrize("software", [False, True])
@pytest.mark.parametrize("problem", [GroupsProblem(3, 9001), GroupsProblem(4, 20000), GroupsProblem(70, 300)])
def test_group_norm__every_candidate__as_the_formula(gpu: Gpu, problem: GroupsProblem, software: bool) -> None:
    target = replace(gpu.target, vendor="google" if software else "")
    x = (np.random.default_rng(9).standard_normal((problem.rows, problem.length)) + 3000).astype(np.float32)
    d = x.astype(np.float64) - x.mean(1, dtype=np.float64, keepdims=True)
    expected = (d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5)).astype(np.float32)
    names = {c.name for c in GROUP_NORMS.rank(problem, target).others if c.cost is not None}
    assert names == {"one_64", "one_256", *(["split"] if problem.length > 8192 else [])}
    for name in names:
        made = sample(Noted(GROUP_NORMS, problem), name, target)
        (got,) = gpu.run(made, [x], [typed(x)], [typed(expected)])
        np.testing.assert_allclose(got, expected, 1e-4, 1e-4, err_msg=name)
