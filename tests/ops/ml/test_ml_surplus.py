"""ai.onnx.ml: other numbers of coefficients, labels and values than an operator uses, as onnxruntime takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime import errors
from tests.ops.ml.test_ml import check, noise, run, strings


@pytest.mark.parametrize("more", [0, 1, 4])
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_linear_models__more_coefficients_than_are_used__as_onnxruntime(classes: int, more: int) -> None:
    coefficients, intercepts = noise((2 + more) * classes).tolist(), noise(classes, seed=1).tolist()
    labels = list(range(7, 7 + max(2, classes)))
    for x in (noise(5, 2), noise(2), noise(0, 2), np.arange(6).reshape(3, 2)):
        attributes: dict[str, Any] = {"coefficients": coefficients, "intercepts": intercepts}
        check("LinearClassifier", [x], 2, classlabels_ints=labels, **attributes)
        check("LinearRegressor", [x.astype(np.float32)], targets=classes, **attributes)


def test_linear_models__other_numbers_of_intercepts_and_labels__as_onnxruntime() -> None:
    x, coefficients = noise(5, 2), noise(6).tolist()
    for intercepts in ([0.5], [0.5, 1.0], [0.5, 1.0, 2.0], [1.0] * 5):
        check("LinearRegressor", [x], targets=3, coefficients=coefficients, intercepts=intercepts)
    for classes in (2, 3):
        attributes: dict[str, Any] = {"coefficients": coefficients, "intercepts": [0.1, 0.2, 0.3][:classes]}
        check("LinearClassifier", [x], 2, classlabels_strings=list("abcdef"), **attributes)


def test_linear_classifier__too_few_coefficients__invalid_graph() -> None:
    with pytest.raises(errors.InvalidGraph, match="expected 3 times 2 coefficients or more, got 5"):
        run("LinearClassifier", [noise(5, 2)], 2, coefficients=[1.0] * 5, intercepts=[0.0] * 3)
    with pytest.raises(errors.InvalidGraph, match="expected 3 times 2 coefficients or more, got 5"):
        run("LinearRegressor", [noise(5, 2)], coefficients=[1.0] * 5, targets=3)


@pytest.mark.parametrize("more", [0, 2, 5])
def test_svm__more_numbers_than_are_used__as_onnxruntime(more: int) -> None:
    machine: dict[str, Any] = {"kernel_type": "RBF", "kernel_params": [0.5, 0.0, 0.0]}
    support: dict[str, Any] = {"support_vectors": noise(8, seed=6).tolist(), "n_supports": 4}
    coefficients = noise(8 + more, seed=5).tolist()
    check("SVMRegressor", [noise(9, 2)], coefficients=coefficients, rho=[0.1] * (1 + more), **machine, **support)
    classes: dict[str, Any] = {"vectors_per_class": [1, 2, 1], "classlabels_ints": [7, 8, 9]}
    rho, vectors = noise(3 + more, seed=7).tolist(), support["support_vectors"]
    check(
        "SVMClassifier",
        [noise(9, 2)],
        2,
        coefficients=coefficients,
        rho=rho,
        support_vectors=vectors,
        **machine,
        **classes,
    )
    linear: dict[str, Any] = {"kernel_params": [0.0, 0.0, 0.0], "classlabels_ints": [7, 8, 9]}
    check("SVMClassifier", [noise(6, 2)], 2, coefficients=coefficients[: 6 + min(more, 2)], rho=[0.1], **linear)


@pytest.mark.parametrize("shape", [(3,), (1,), (2, 3), (3, 2), (2, 3, 2), (3, 1, 2), (2, 3, 3), (0, 3)])
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_imputer__ranks_and_other_numbers_of_values__as_onnxruntime(shape: tuple[int, ...], count: int) -> None:
    values = np.arange(1.0, count + 1).tolist()
    check("Imputer", [np.full(shape, 0.5, np.float32)], imputed_value_floats=values, replaced_value_float=0.5)
    integers = [int(v) for v in values]
    check("Imputer", [np.full(shape, 7)], imputed_value_int64s=integers, replaced_value_int64=7)


def test_one_hot_encoder__equal_categories__last_one_counts_as_in_onnxruntime() -> None:
    check("OneHotEncoder", [np.array([1, 0, 2, 1])], cats_int64s=[0, 1, 2, 1])
    check("OneHotEncoder", [strings("a", "b", "a")], cats_strings=["a", "b", "a", "b"])
