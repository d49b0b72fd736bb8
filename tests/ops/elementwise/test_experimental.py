"""Operators of the first ONNX versions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph
from tests.harness import make_op, run_op
from tests.oracle import check_against_ort, node_of

X = np.random.default_rng(0).standard_normal((2, 3, 5, 6)).astype(np.float32)


@pytest.mark.parametrize("opset", [7, 9])
@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("Affine", {}),
        ("Affine", {"alpha": 2.0, "beta": -1.0}),
        ("Scale", {"scale": 0.5}),
        ("ScaledTanh", {"alpha": 1.5, "beta": 0.5}),
        ("ParametricSoftplus", {"alpha": 1.5, "beta": 0.5}),
        ("ImageScaler", {"bias": [1.0, 2.0, 3.0], "scale": 2.0}),
        ("Crop", {"border": [1, 2, 3, 1]}),
        ("Crop", {"border": [1, 2, 0, 0], "scale": [2, 3]}),
    ],
)
def test_experimental__attributes__as_onnxruntime(name: str, attributes: dict[str, Any], opset: int) -> None:
    check_against_ort(name, [X], opset=opset, **attributes)


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("ImageScaler", {"bias": [1.0]}),
        ("Crop", {"border": [1, 2]}),
        ("Crop", {"border": [3, 0, 3, 0]}),
        ("Crop", {"border": [0, 0, 0, 0], "scale": [2, 7]}),
    ],
)
def test_experimental__attributes_that_do_not_fit__invalid_graph(name: str, attributes: dict[str, Any]) -> None:
    with pytest.raises(InvalidGraph):
        run_op(make_op(node_of(name, [X], **attributes), {"": 7}), [X])
