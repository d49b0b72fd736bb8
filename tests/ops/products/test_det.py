"""Det and SwiGLU on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph
from tests.harness import make_op, run_op
from tests.oracle import check_against_ort, node_of


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 4, 4), (2, 3, 7, 7), (0, 3, 3)])
def test_det__batches__as_onnxruntime(shape: tuple[int, ...]) -> None:
    check_against_ort("Det", [np.random.default_rng(0).standard_normal(shape).astype(np.float32)], opset=11)


def test_det__empty_matrix__one() -> None:
    x = np.zeros((2, 0, 0), np.float32)
    assert run_op(make_op(node_of("Det", [x]), {"": 22}), [x])[0].tolist() == [1, 1]


@pytest.mark.parametrize("shape", [(3, 4), (3,), (0, 3, 2)])
def test_det__not_square__invalid_graph(shape: Any) -> None:
    x = np.zeros(shape, np.float32)
    with pytest.raises(InvalidGraph, match=r"\[..., M, M\]"):
        run_op(make_op(node_of("Det", [x]), {"": 22}), [x])


def test_swiglu__shapes_that_would_broadcast__invalid_graph() -> None:
    a, b = np.zeros((2, 3), np.float32), np.zeros(3, np.float32)
    with pytest.raises(InvalidGraph, match="one shape"):
        run_op(make_op(node_of("SwiGLU", [a, b]), {"": 28}), [a, b])
