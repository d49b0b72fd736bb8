"""Depthwise convolutions with channels last on the GPU, against the same on NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pyruntime.ir import Array
from pyruntime.kernels import Limits, Target
from pyruntime.kernels.convolution import depthwise_channels_last as depthwise_last
from pyruntime.kernels.convolution.depthwise_channels_last import DEPTHWISE_LAST
from pyruntime.kernels.selection.candidates import Family
from pyruntime.ops.fused.depthwise_channels_last import DepthwiseLast
from pyruntime.ops.fused.elementwise import FusedElementwise, Step
from pyruntime.ops.fused.with_epilogue import WithEpilogue
from pyruntime.ops.registry import newest
from tests.harness import run_op, typed
from tests.sampling import matrix

TOLERANCE = {np.float32: (1e-4, 1e-5), np.float16: (4e-3, 4e-3)}

CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 7, 9, 8), (3, 3, 8), {"pads": (1, 1, 1, 1)}),
    ((1, 9, 11, 12), (5, 5, 12), {"pads": (2, 0, 1, 3), "strides": (2, 2)}),
    ((1, 6, 13, 4), (7, 7, 4), {"pads": (3, 3, 3, 3)}),
    ((1, 8, 14, 20), (3, 2, 20), {"dilations": (2, 3), "strides": (1, 2), "auto_pad": "SAME_UPPER"}),
    ((3, 10, 16), (4, 16), {"pads": (1, 2)}),  # one axis
    ((2, 5, 5, 260), (1, 1, 260), {}),
    ((1, 3, 1, 4), (5, 5, 4), {"pads": (2, 2, 2, 2)}),  # windows larger than the picture
    ((1, 1, 40, 4), (1, 9, 4), {"dilations": (1, 4), "pads": (0, 16, 0, 16)}),
]


def numbers(dtype: Any, *shape: int, seed: int) -> Array:
    made: Array = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    return made


@pytest.mark.parametrize(
    ("case", "pixels", "dtype"), matrix(CASES, [1, 2, 4], [np.float32, np.float16]), ids=lambda v: str(v)[:40]
)
def test_depthwise_last__windows__as_host(gpu: Any, case: Any, pixels: int, dtype: Any, monkeypatch: Any) -> None:
    x, w, attributes = case
    only = Family("depthwise_last", (DEPTHWISE_LAST.named(f"pixels_{pixels}"),), {})
    monkeypatch.setattr(depthwise_last, "DEPTHWISE_LAST", only)
    op = DepthwiseLast(**attributes)
    for biased in (True, False):
        inputs: list[Array | None] = [numbers(dtype, *x, seed=1), numbers(dtype, *w, seed=2)]
        inputs += [numbers(dtype, w[-1], seed=3)] if biased else []
        (device,), (host,) = run_op(op, inputs, gpu), run_op(op, inputs)
        np.testing.assert_allclose(device.astype(np.float32), host.astype(np.float32), *TOLERANCE[dtype])


@pytest.mark.parametrize("shape", [(2, 5, 6, 8), (8,), (1, 1, 1, 8), ()])
def test_depthwise_last__epilogue__applied_before_the_store(gpu: Any, shape: tuple[int, ...]) -> None:
    relu: Any = newest("Relu")
    add: Any = newest("Add")
    chain = FusedElementwise(steps=(Step(relu, (0,)), Step(add, (-1, 1))))
    op = WithEpilogue(base=DepthwiseLast(pads=(1, 1, 1, 1)), count=2, chain=chain)
    inputs: list[Array | None] = [
        numbers(np.float32, *s, seed=i) for i, s in enumerate([(2, 5, 6, 8), (3, 3, 8), shape])
    ]
    (device,), (host,) = run_op(op, inputs, gpu), run_op(op, inputs)
    np.testing.assert_allclose(device, host, 1e-4, 1e-5)


def test_depthwise_last__more_workgroups_than_in_x__folded(gpu: Any) -> None:
    tight = Target(replace(Limits(), workgroups=16))
    inputs: list[Array | None] = [numbers(np.float32, *s, seed=i) for i, s in enumerate([(2, 40, 9, 96), (3, 3, 96)])]
    op: Any = DepthwiseLast(pads=(1, 1, 1, 1))
    types = [typed(x) for x in inputs]
    dispatches = op.lower(tight, *types)
    assert max(dispatches[0].grid) <= 16 and min(sorted(dispatches[0].grid)[1:]) > 1
    (device,) = gpu.run(dispatches, inputs, types, op.infer(*types))
    np.testing.assert_allclose(device, run_op(op, inputs)[0], 1e-4, 1e-5)
