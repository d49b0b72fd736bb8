"""CausalConvWithState on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph
from pyruntime.ir import Array
from tests.harness import make_op, run_op
from tests.oracle import node_of

NAME = "CausalConvWithState"


def noise(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kernel", [1, 2, 4, 9])
def test_causal_conv__in_two_parts__as_in_one(kernel: int) -> None:
    x, w, bias = noise(2, 3, 7), noise(3, 1, kernel, seed=1), noise(3, seed=2)
    op = make_op(node_of(NAME, [x] * 4, 2, activation="silu"), {"": 27})
    whole, end = run_op(op, [x, w, bias, None])
    first, state = run_op(op, [x[:, :, :4], w, bias, None])
    second, last = run_op(op, [x[:, :, 4:], w, bias, state])
    np.testing.assert_allclose(np.concatenate([first, second], axis=2), whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(last, end)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 3, 7), (3, 2, 4)), r"weight \[3, 1, k\]"),
        (((2, 3, 7), (3, 1, 4), (4,)), r"bias \[3\]"),
        (((2, 3, 7), (3, 1, 4), (3,), (2, 3, 4)), r"past_state float\[2,3,3\]"),
        (((3, 7), (3, 1, 4)), r"\[B, C, L\]"),
    ],
)
def test_causal_conv__malformed__invalid_graph(shapes: Any, message: str) -> None:
    inputs: list[Any] = [noise(*shape) for shape in shapes]
    with pytest.raises(InvalidGraph, match=message):
        run_op(make_op(node_of(NAME, inputs, 2), {"": 27}), inputs)
