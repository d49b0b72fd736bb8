"""CausalConvWithState on the GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from tests.harness import make_op, run_op
from tests.ops.attention.test_causal_conv_with_state import NAME, noise
from tests.oracle import node_of


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 1e-5), (np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)])
@pytest.mark.parametrize("kernel", [1, 4, 9])
@pytest.mark.parametrize("length", [0, 1, 7])
@pytest.mark.parametrize("state", [False, True])
def test_causal_conv__types_and_states__as_the_host(
    gpu: Gpu, dtype: Any, rtol: float, kernel: int, length: int, state: bool
) -> None:
    inputs: list[Any] = [noise(2, 3, length), noise(3, 1, kernel, seed=1), noise(3, seed=2)]
    inputs += [noise(2, 3, kernel - 1, seed=3)] if state else []
    inputs = [x.astype(dtype) for x in inputs]
    op = make_op(node_of(NAME, inputs, 2, activation="swish"), {"": 27})
    for mine, theirs in zip(run_op(op, inputs, gpu), run_op(op, inputs), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=rtol)
