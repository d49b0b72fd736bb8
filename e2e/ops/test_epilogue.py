"""Epilogues of every kernel that takes one: bias, activation and residual, against the same chain on NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.ir import Array, DType
from pyruntime.kernels.convolution import convolution
from pyruntime.kernels.convolution.candidates import CONVOLUTIONS
from pyruntime.kernels.selection.candidates import Family
from pyruntime.ops.base import Op
from pyruntime.ops.fused.elementwise import FusedElementwise, Number, Step
from pyruntime.ops.fused.with_epilogue import WithEpilogue
from pyruntime.ops.fused.with_norm import WithNorm
from pyruntime.ops.registry import newest
from tests.harness import run_op, typed
from tests.sampling import matrix

RNG = np.random.default_rng(3)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def chain() -> FusedElementwise:
    """tanh(0.5 * (result + bias)) + residual"""
    add: Any = newest("Add")
    mul: Any = newest("Mul")
    tanh: Any = newest("Tanh")
    half = Number(0.5, DType.FLOAT)
    steps = (Step(add, (0, 1)), Step(mul, (half, -1)), Step(tanh, (-2,)), Step(add, (-3, 2)))
    return FusedElementwise(steps=steps)


def check(gpu: Gpu, base: Op, inputs: list[Array], bias: Array, residual: Array, tolerance: float = 1e-4) -> None:
    op = WithEpilogue(base=base, count=len(inputs), chain=chain())
    operands: list[Array | None] = [*inputs, bias, residual]
    (expected,) = run_op(op, operands)
    for vendor in ("", "google"):
        target, gpu.target = gpu.target, replace(gpu.target, vendor=vendor)
        try:
            (got,) = run_op(op, operands, gpu)
        finally:
            gpu.target = target
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance, err_msg=f"vendor {vendor!r}")


@pytest.mark.parametrize(("m", "n", "trans_b"), matrix([1, 3, 8, 33, 96], [1, 3, 64, 101], [0, 1]))
def test_epilogue__gemm_of_any_shape__equals_the_chain(gpu: Gpu, m: int, n: int, trans_b: int) -> None:
    k = 40
    base = newest("Gemm", transB=trans_b)
    check(gpu, base, [normal(m, k), normal(*((n, k) if trans_b else (k, n)))], normal(n), normal(m, n))


def test_epilogue__batched_matmul__equals_the_chain(gpu: Gpu) -> None:
    check(gpu, newest("MatMul"), [normal(3, 10, 24), normal(3, 24, 20)], normal(20), normal(3, 10, 20))


def test_epilogue__matmul_whose_k_is_split__equals_the_chain(gpu: Gpu) -> None:
    check(gpu, newest("MatMul"), [normal(64, 2048), normal(2048, 256)], normal(256), normal(64, 256), 1e-3)


@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((2, 6, 9, 9), (20, 6, 3, 3), {"pads": (1, 1, 1, 1)}),
        ((1, 64, 8, 8), (48, 64, 1, 1), {}),
        ((1, 8, 12, 12), (8, 1, 3, 3), {"group": 8}),
        ((1, 6, 9, 9), (4, 3, 3, 3), {"group": 2, "strides": (2, 2)}),
        ((1, 256, 5, 5), (64, 256, 3, 3), {}),
        ((2, 5, 30), (12, 5, 3), {}),
    ],
)
def test_epilogue__convolution_of_any_kind__equals_the_chain(
    gpu: Gpu, x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    base = newest("Conv", **attributes)
    inputs = [normal(*x), normal(*w) / np.float32(np.sqrt(np.prod(w[1:])))]
    (y,) = run_op(base, list(inputs))
    bias = normal(1, w[0], *(1,) * (len(x) - 2))
    check(gpu, base, inputs, bias, normal(*y.shape))


@pytest.mark.parametrize(
    ("x", "w", "group"),
    [((2, 10, 5, 7), (20, 5, 1, 1), 2), ((1, 12, 8, 9), (70, 12, 1, 1), 1), ((3, 9, 4), (9, 9, 1), 1)],
)
@pytest.mark.parametrize("biased", [False, True])
def test_epilogue__convolution_as_a_product__equals_the_chain(
    gpu: Gpu, x: tuple[int, ...], w: tuple[int, ...], group: int, biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = Family("convolution", (CONVOLUTIONS.named("matmul_m1"),), {})
    monkeypatch.setattr(convolution, "CONVOLUTIONS", only)
    base = newest("Conv", group=group)
    inputs = [normal(*x), normal(*w), *([normal(w[0])] if biased else [])]
    made = base.lower(replace(gpu.target, vendor=""), *map(typed, inputs))
    assert [d.kernel.name for d in made] == ["conv_matmul_m1_nn"]
    bias = normal(1, w[0], *(1,) * (len(x) - 2))
    check(gpu, base, inputs, bias, normal(x[0], w[0], *x[2:]))


@pytest.mark.parametrize("shape", [(2, 4, 3, 4), (1, 4, 5, 7), (1, 4, 48, 52), (2, 6, 45, 67)])
def test_epilogue__group_normalization__equals_the_chain(gpu: Gpu, shape: tuple[int, ...]) -> None:
    base = newest("GroupNormalization", num_groups=2)
    inputs = [normal(*shape), normal(shape[1]), normal(shape[1])]
    check(gpu, base, inputs, normal(1, shape[1], 1, 1), normal(*shape))


@pytest.mark.parametrize(
    ("m", "k", "n", "norm", "kept"),
    [
        (64, 2048, 256, "LayerNormalization", True),
        (37, 1024, 300, "LayerNormalization", False),
        (33, 1036, 900, "RMSNormalization", True),
        (5, 24, 20, "LayerNormalization", True),
        (40, 1024, 30, "RMSNormalization", False),
    ],
)
def test_norm__after_a_product__equals_the_chain(gpu: Gpu, m: int, k: int, n: int, norm: str, kept: bool) -> None:
    base = WithEpilogue(base=newest("MatMul"), count=2, chain=chain())
    op = WithNorm(base=base, count=4, norm=newest(norm), present=(True, kept))
    weights = [normal(n), normal(n)][: 2 if norm == "LayerNormalization" else 1]
    inputs: list[Array | None] = [normal(m, k), normal(k, n) / np.float32(k**0.5), normal(n), normal(m, n), *weights]
    expected = run_op(op, inputs)
    for vendor in ("", "google"):
        target, gpu.target = gpu.target, replace(gpu.target, vendor=vendor)
        try:
            got = run_op(op, inputs, gpu)
        finally:
            gpu.target = target
        assert len(got) == 1 + kept
        for mine, theirs in zip(got, expected, strict=False):
            np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-3, err_msg=f"vendor {vendor!r}")


@pytest.mark.parametrize(("k", "n", "kept"), [(2048, 256, True), (1024, 300, False), (24, 20, True)])
def test_norm__after_a_product__writes_its_rows_where_they_go(gpu: Gpu, k: int, n: int, kept: bool) -> None:
    base = WithEpilogue(base=newest("MatMul"), count=2, chain=chain())
    there = WithNorm(base=base, count=4, norm=newest("LayerNormalization"), present=(True, kept))
    places = np.random.default_rng(k).permutation(37).astype(np.uint32)
    inputs: list[Array | None] = [normal(37, k), normal(k, n) / np.float32(k**0.5), normal(n), normal(37, n)]
    inputs += [normal(n), normal(n)]
    expected = run_op(there, inputs)
    target, gpu.target = gpu.target, replace(gpu.target, vendor="")
    try:
        got = run_op(replace(there, moves=True), [*inputs, places], gpu)
    finally:
        gpu.target = target
    np.testing.assert_allclose(got[0][places], expected[0], rtol=1e-3, atol=1e-3)
    if kept:
        np.testing.assert_allclose(got[1], expected[1], rtol=1e-3, atol=1e-3)
