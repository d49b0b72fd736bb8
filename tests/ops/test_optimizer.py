"""Adagrad, Adam and Momentum on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph
from tests.harness import check_case, make_op, node_tests, run_op, single_node
from tests.oracle import node_of

TRAINING = "ai.onnx.preview.training"
CASES = [n for n, case in node_tests().items() if (node := single_node(case)) and node.domain == TRAINING]


@pytest.mark.parametrize("name", CASES)
def test_optimizer__onnx_case__expected_output(name: str) -> None:
    check_case(name)


def test_adam__first_step__no_bias_correction() -> None:
    inputs: list[Any] = [np.array(0.5), np.array(0), *(np.array([n], np.float64) for n in (2, 3, 0, 0))]
    x, v, h = run_op(make_op(node_of("Adam", inputs, 3, TRAINING, alpha=0.5, beta=0.5), {TRAINING: 1}), inputs)
    assert (v[0], h[0]) == (1.5, 4.5)
    np.testing.assert_allclose(x, 2 - 0.5 * 1.5 / (np.sqrt(4.5) + 1e-6), rtol=1e-9)


def test_adagrad__a_tensor_without_its_state__invalid_graph() -> None:
    inputs: list[Any] = [np.array(0.5), np.array(0), np.ones(3), np.ones(3)]
    with pytest.raises(InvalidGraph, match="multiple of 3 tensors: x, g, h"):
        run_op(make_op(node_of("Adagrad", inputs, 2, TRAINING), {TRAINING: 1}), inputs)
