"""Adagrad, Adam and Momentum on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph
from tests.harness import make_op, run_op
from tests.oracle import node_of

TRAINING = "ai.onnx.preview.training"


def test_adam__first_step__no_bias_correction() -> None:
    inputs: list[Any] = [np.array(0.5), np.array(0), *(np.array([n], np.float64) for n in (2, 3, 0, 0))]
    x, v, h = run_op(make_op(node_of("Adam", inputs, 3, TRAINING, alpha=0.5, beta=0.5), {TRAINING: 1}), inputs)
    assert (v[0], h[0]) == (1.5, 4.5)
    np.testing.assert_allclose(x, 2 - 0.5 * 1.5 / (np.sqrt(4.5) + 1e-6), rtol=1e-9)


def test_adagrad__a_tensor_without_its_state__invalid_graph() -> None:
    inputs: list[Any] = [np.array(0.5), np.array(0), np.ones(3), np.ones(3)]
    with pytest.raises(InvalidGraph, match="multiple of 3 tensors: x, g, h"):
        run_op(make_op(node_of("Adagrad", inputs, 2, TRAINING), {TRAINING: 1}), inputs)
