"""ai.onnx.ml on the GPU: the operators that have kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.ir import Array
from pyruntime.ops.base import Unsupported
from tests.harness import make_op, run_op, typed
from tests.ops.ml.test_ml import ML, noise
from tests.ops.ml.test_trees import MODES, X, ensemble, forest, votes
from tests.oracle import node_of


def compare(gpu: Gpu, op_type: str, inputs: list[Any], opset: int = 1, rtol: float = 1e-5, **attributes: Any) -> Array:
    op = make_op(node_of(op_type, inputs, 1, ML, **attributes), {"": 15, ML: opset})
    mine, theirs = run_op(op, inputs, gpu)[0], run_op(op, inputs)[0]
    assert mine.dtype == theirs.dtype
    assert mine.shape == theirs.shape
    np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=1e-6)
    return mine


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_array_feature_extractor__types__moved(gpu: Gpu, dtype: Any) -> None:
    for shape in ((5,), (3, 5), (2, 3, 5), (0, 5)):
        compare(gpu, "ArrayFeatureExtractor", [(noise(*shape) * 9).astype(dtype), np.array([[4, 0, 0]])])


def test_binarizer__nan_and_odd_sizes__as_the_host(gpu: Gpu) -> None:
    x = noise(3, 7)
    x[0, :3] = np.nan, np.inf, -np.inf
    compare(gpu, "Binarizer", [x], threshold=0.5)


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7)])
@pytest.mark.parametrize("missing", [float("nan"), 2.0])
def test_imputer__missing_values__as_the_host(gpu: Gpu, shape: tuple[int, ...], missing: float) -> None:
    x = np.round(noise(*shape) * 3)
    x.reshape(-1)[::3] = missing
    x.reshape(-1)[1] = np.nan
    for values in ([9.0], np.arange(7.0).tolist()):
        compare(gpu, "Imputer", [x], imputed_value_floats=values, replaced_value_float=missing)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_scaler__types__as_the_host(gpu: Gpu, dtype: Any) -> None:
    x = (noise(5, 3) * 9).astype(dtype)
    compare(gpu, "Scaler", [x], offset=[1.0, 2.0, 3.0], scale=[0.5, 0.25, 3.0])
    compare(gpu, "Scaler", [x], offset=[1.5], scale=[2.0])


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer__rows_of_zero_and_nan__as_the_host(gpu: Gpu, norm: str) -> None:
    x = noise(6, 5)
    x[1] = 0
    x[2, 3] = np.nan
    x[3] = -np.abs(x[3])
    compare(gpu, "Normalizer", [x], norm=norm)
    compare(gpu, "Normalizer", [x[0]], norm=norm)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_tree_regressor__modes_and_missing_values__as_the_host(gpu: Gpu, aggregate: str, targets: int) -> None:
    x = X.copy()
    x[::3, ::2] = np.nan
    trees = forest(5, 4, MODES) | votes(5, 4, targets, "target")
    compare(gpu, "TreeEnsembleRegressor", [x], n_targets=targets + 1, aggregate_function=aggregate, **trees)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_tree_ensemble__types__as_the_host(gpu: Gpu, dtype: Any) -> None:
    compare(gpu, "TreeEnsemble", [X[:, :2].astype(dtype)], opset=5, **ensemble(dtype, [0, 3, 5]))
    compare(gpu, "TreeEnsemble", [X[:0, :2].astype(dtype)], opset=5, **ensemble(dtype, [0, 3, 5]))


def test_tree_ensemble__thresholds_that_are_no_float32__left_to_the_host(gpu: Gpu) -> None:
    import onnx

    trees = ensemble(np.float64, [0, 0, 0])
    trees["nodes_splits"] = onnx.numpy_helper.from_array(np.array([0.1, 0, 0]))
    x = X[:, :2]
    op = make_op(node_of("TreeEnsemble", [x], 1, ML, **trees), {"": 15, ML: 5})
    with pytest.raises(Unsupported, match="double precision"):
        op.lower(gpu.target, typed(x))
