"""Products of rows rounded to 8 bits and packed weights on the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.ir import Array
from pyruntime.kernels.products.packed_dot import CHUNK, DOTS
from pyruntime.ops.fused.elementwise import FusedElementwise, Step
from pyruntime.ops.fused.with_epilogue import WithEpilogue
from pyruntime.ops.registry import newest, op_class
from pyruntime.target import Winners
from tests.harness import run_op, typed


def product(k: int, n: int, bits: int, block: int, zeros: bool, dtype: Any = np.float32) -> tuple[Any, list[Array]]:
    """The operator, which permits 8 bits, and its weights."""
    rng = np.random.default_rng([k, n, bits])
    blocks = -(-k // block)
    weights = [
        rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
        (rng.uniform(0.5, 1.5, (n, blocks)) * 2.0**-bits).astype(dtype),
    ]
    if zeros:
        weights.append(rng.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8))
    make: Any = op_class("MatMulNBits", "com.microsoft", 1)
    return make(K=k, N=n, block_size=block, bits=bits, accuracy_level=4), weights


def whole_rows(m: int, k: int, dtype: Any = np.float32) -> Array:
    """Rows that 8 bits hold: whole multiples of a power of two for each chunk, of which one is 127 times it."""
    rng = np.random.default_rng([m, k])
    rows = rng.integers(-127, 128, (m, k)).astype(np.float64)
    rows[:, ::CHUNK] = 127 * rng.choice([-1, 1], rows[:, ::CHUNK].shape)
    steps = 2.0 ** rng.integers(-6, 3, (m, -(-k // CHUNK)))
    made: Array = (rows * np.repeat(steps, CHUNK, 1)[:, :k]).astype(dtype)
    return made


def kernels_of(op: Any, inputs: list[Array | None], gpu: Gpu) -> list[str]:
    """Names of the dispatches."""
    types: Any = [None if x is None else typed(x) for x in inputs]
    return [d.kernel.name for d in op.lower(gpu.target, *types)]


@pytest.fixture
def dots(gpu: Gpu) -> Iterator[Gpu]:
    """A GPU, whose target a test may replace."""
    given = gpu.target
    yield gpu
    gpu.target = given


@pytest.mark.parametrize(
    ("m", "k", "n", "bits", "block", "zeros"),
    [
        (9, 32, 4, 4, 32, False),
        (70, 300, 52, 4, 32, True),
        (33, 521, 131, 4, 64, True),
        (130, 256, 70, 2, 32, True),
        (17, 1000, 66, 2, 128, False),
        (40, 200, 129, 8, 32, False),
        (65, 384, 64, 8, 256, False),
    ],
)
def test_dots__rows_that_8_bits_hold__are_the_product_of_floats(
    m: int, k: int, n: int, bits: int, block: int, zeros: bool, dots: Gpu
) -> None:
    op, weights = product(k, n, bits, block, zeros)
    a = whole_rows(m, k)
    assert any(name.startswith(f"matmul_dot_{bits}bits") for name in kernels_of(op, [a, *weights], dots))
    (found,), (expected,) = run_op(op, [a, *weights], dots), run_op(op, [a, *weights])
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("candidate", [c.name for c in DOTS.candidates])
def test_dots__each_candidate__is_the_product_of_floats(candidate: str, dots: Gpu) -> None:
    m, k, n = 75, 1100, 140
    op, weights = product(k, n, 4, 32, True)
    a = whole_rows(m, k)
    dots.target = replace(dots.target, winners=Winners({("packed_dot", f"{m}x{n}x{k}tbits4"): candidate}))
    name = DOTS.named(candidate).way.kernel
    assert f"matmul_dot_4bits_{name}" in kernels_of(op, [a, *weights], dots)
    (found,), (expected,) = run_op(op, [a, *weights], dots), run_op(op, [a, *weights])
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("k", [96, 2100])
def test_dots__what_follows_the_product__is_done_to_each_result(k: int, dtype: Any, dots: Gpu) -> None:
    n = 72
    base, weights = product(k, n, 4, 32, False, dtype)
    rng = np.random.default_rng(3)
    inputs: list[Array | None] = [whole_rows(20, k, dtype), *weights, None, None, rng.standard_normal(n).astype(dtype)]
    add: Any = newest("Add")
    op = WithEpilogue(base=base, count=6, chain=FusedElementwise(steps=(Step(add, (0, 1)),)))
    inputs.append(rng.standard_normal((20, n)).astype(dtype))
    (found,), (expected,) = run_op(op, inputs, dots), run_op(op, inputs)
    error = 1e-5 if dtype == np.float32 else 2e-3
    np.testing.assert_allclose(found, expected, error, error * np.abs(expected).max())


def test_dots__any_rows__differ_by_their_rounding(dots: Gpu) -> None:
    k, n = 640, 64
    op, weights = product(k, n, 4, 32, False)
    a = np.random.default_rng(5).standard_normal((24, k)).astype(np.float32)
    a[3] = 0
    a[:, :CHUNK] *= 1e-20  # a chunk has a scale of its own, however small
    chunks = a.reshape(24, -1, CHUNK).astype(np.float64)
    steps = np.abs(chunks).max(-1, keepdims=True) / 127
    rounded = np.where(steps > 0, np.rint(chunks / np.where(steps > 0, steps, 1)), 0) * steps
    (found,) = run_op(op, [a, *weights], dots)
    (expected,) = run_op(op, [rounded.reshape(24, k).astype(np.float32), *weights])
    # A number between two levels may go to either: a step of its chunk, times a weight.
    slack = steps.max() * 8 * weights[1].max()
    np.testing.assert_allclose(found, expected, 1e-4, slack)
    assert np.median(np.abs(found - expected)) < 1e-4
    assert (found[3] == 0).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_dots__a_number_that_is_none__is_not_lost(value: float, dots: Gpu) -> None:
    op, weights = product(256, 64, 4, 32, False)
    a = whole_rows(16, 256)
    a[5, 100] = value
    (found,) = run_op(op, [a, *weights], dots)
    assert not np.isfinite(found[5]).any()
    rest = np.delete(np.arange(16), 5)
    (expected,) = run_op(op, [a[rest], *weights])
    np.testing.assert_allclose(found[rest], expected, 1e-5, 1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("bits", "block", "zeros"), [(8, 32, True), (4, 16, False)], ids=["zero points of 8 bits", "blocks of 16"]
)
def test_dots__weights_that_are_no_8_bits_or_have_more_scales__are_products_of_floats(
    bits: int, block: int, zeros: bool, dots: Gpu
) -> None:
    op, weights = product(256, 64, bits, block, zeros)
    a = np.random.default_rng(1).standard_normal((20, 256)).astype(np.float32)
    assert not any("dot" in name for name in kernels_of(op, [a, *weights], dots))
    (found,), (expected,) = run_op(op, [a, *weights], dots), run_op(op, [a, *weights])
    np.testing.assert_allclose(found, expected, 1e-4, 1e-3)


def test_dots__levels_that_do_not_permit_them_and_skinny_products__are_products_of_floats(dots: Gpu) -> None:
    op, weights = product(256, 64, 4, 32, False)
    a = np.random.default_rng(1).standard_normal((20, 256)).astype(np.float32)
    assert "dot" in "".join(kernels_of(op, [a, *weights], dots))
    assert "dot" not in "".join(kernels_of(op, [a[:8], *weights], dots))
    for level in range(4):
        assert "dot" not in "".join(kernels_of(replace(op, accuracy_level=level), [a, *weights], dots))
    dots.target = replace(dots.target, vendor="apple")
    assert "dot" not in "".join(kernels_of(op, [a, *weights], dots))
