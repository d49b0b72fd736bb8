"""EngramGate and the operators of hyper-connections on the GPU: NaN, infinity, long rows, no elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.ir import Array
from tests.contrib.case import Case, check

SHAPES = [(2, 3, 4, 5), (1, 2, 3, 64), (1, 1, 2, 2048), (1, 70, 2, 33), (0, 2, 3, 4)]


def normal(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("device", ["gpu", "software"])
def test_engram_gate__any_rows__agree_with_onnxruntime(
    shape: tuple[int, ...], bad: float, device: str, request: pytest.FixtureRequest
) -> None:
    gpu: Any = request.getfixturevalue(device)
    b, length, c, h = shape
    key, query = normal(*shape), normal(*shape)[..., ::-1].copy()
    key[:1, :1, 1, 2] = bad
    scales = [normal(c, h) for _ in range(3)]
    check(Case("EngramGate", [key, query, normal(b, length, h), *scales], 2), gpu)


@pytest.mark.parametrize("shape", [(0, 4, 8), (3, 2, 2048), (70, 3, 36), (9, 4, 33)])
def test_streams__any_rows__agree_with_onnxruntime(shape: tuple[int, ...], gpu: Any) -> None:
    n, c, h = shape
    x, gate = normal(n, c, h), normal(n, c)
    check(Case("BranchwiseRMSNorm", [x, normal(c, h)]), gpu)
    check(Case("HyperConnectionPreMix", [x, gate]), gpu)
    check(Case("HyperConnectionPostMix", [x, normal(n, h), gate, normal(n, c, c)]), gpu)
