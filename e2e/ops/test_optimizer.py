"""Adagrad, Adam and Momentum on the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from tests.harness import make_op, run_op
from tests.ops.training.test_optimizer import TRAINING
from tests.oracle import node_of


@pytest.mark.parametrize("step", [0, 1, 7, 100_000])
@pytest.mark.parametrize(
    ("op", "states", "attributes"),
    [
        ("Adam", 2, {"norm_coefficient": 0.1, "norm_coefficient_post": 0.2}),
        ("Adagrad", 1, {"norm_coefficient": 0.1, "decay_factor": 0.01}),
        ("Momentum", 1, {"norm_coefficient": 0.1, "alpha": 0.9, "beta": 0.3, "mode": "standard"}),
        ("Momentum", 1, {"norm_coefficient": 0.1, "alpha": 0.9, "beta": 0.3, "mode": "nesterov"}),
    ],
)
def test_optimizer__two_tensors_and_step_numbers__as_the_host(
    gpu: Gpu, op: str, states: int, attributes: dict[str, Any], step: int
) -> None:
    random = np.random.default_rng(0)
    tensors = [random.random(shape).astype(np.float32) for _ in range(2 + states) for shape in ((3, 5), (7,))]
    inputs: list[Any] = [np.array(0.1, np.float32), np.array(step), *tensors]
    made = make_op(node_of(op, inputs, 2 * (1 + states), TRAINING, **attributes), {TRAINING: 1})
    for mine, theirs in zip(run_op(made, inputs, gpu), run_op(made, inputs), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4)
