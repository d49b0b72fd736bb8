"""Products with packed weights on the GPU: bits that do not depend on the rows, and what is fused after them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.ir import Array
from pyruntime.kernels.products import nbits
from pyruntime.ops.fused.elementwise import FusedElementwise, Step
from pyruntime.ops.fused.normed_product import NormedProduct
from pyruntime.ops.fused.paired_product import PairedProduct
from pyruntime.ops.fused.with_epilogue import WithEpilogue
from pyruntime.ops.registry import newest, op_class
from tests.harness import run_op, typed
from tests.sampling import matrix


def product(k: int, n: int, bits: int, block: int) -> tuple[Any, list[Array]]:
    """The operator and its weights, scales and zero points."""
    rng = np.random.default_rng([k, n, bits])
    blocks = -(-k // block)
    b = rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    zeros = rng.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
    scales = (rng.uniform(0.5, 1.5, (n, blocks)) * 2.0**-bits).astype(np.float32)
    make: Any = op_class("MatMulNBits", "com.microsoft", 1)
    return make(K=k, N=n, block_size=block, bits=bits), [b, scales, zeros]


@pytest.mark.parametrize("device", ["gpu", "software"])
@pytest.mark.parametrize(
    ("k", "n", "bits", "block"),
    [
        (2304, 64, 4, 32),
        (2500, 37, 4, 16),
        (4096, 40, 2, 64),
        (20, 32801, 8, 16),
        (520, 4100, 4, 128),
        (6200, 44, 4, 32),
    ],
)
def test_skinny__any_number_of_rows__gives_the_same_bits(
    k: int, n: int, bits: int, block: int, device: str, request: pytest.FixtureRequest
) -> None:
    gpu: Any = request.getfixturevalue(device)
    op, weights = product(k, n, bits, block)
    a = np.random.default_rng(0).standard_normal((8, k)).astype(np.float32)
    (whole,) = run_op(op, [a, *weights], gpu)
    (expected,) = run_op(op, [a, *weights])
    np.testing.assert_allclose(whole, expected, 1e-4, 1e-4)
    for rows in range(1, 8):
        (part,) = run_op(op, [a[:rows], *weights], gpu)
        np.testing.assert_array_equal(part, whole[:rows])


def test_skinny__long_rows_in_workgroups_of_twice_as_many__have_the_same_bits_for_any_number(
    gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This adapter has no 512 invocations: 128 and twice as many instead.
    monkeypatch.setattr(nbits, "THREADS", 128)
    op, weights = product(6200, 44, 4, 32)
    a = np.random.default_rng(0).standard_normal((5, 6200)).astype(np.float32)
    types: Any = [typed(x) for x in (a, *weights)]
    (dispatch,) = op.lower(gpu.target, *types)
    assert "LANES: u32 = 64u" in dispatch.kernel.body and "THREADS: u32 = 256u" in dispatch.kernel.body
    (whole,), (expected,) = run_op(op, [a, *weights], gpu), run_op(op, [a, *weights])
    np.testing.assert_allclose(whole, expected, 1e-4, 1e-4)
    (one,) = run_op(op, [a[:1], *weights], gpu)
    np.testing.assert_array_equal(one, whole[:1])


def normed(base: Any, inputs: list[Array | None], dtype: Any) -> tuple[NormedProduct, list[Array | None]]:
    """`base` after an RMS norm of its rows, whose gain is the last input."""
    norm: Any = newest("RMSNormalization", epsilon=1e-3)
    assert inputs[0] is not None
    gain = np.random.default_rng(7).uniform(0.5, 1.5, inputs[0].shape[-1]).astype(dtype)
    return NormedProduct(base=base, count=len(inputs), norm=norm), [*inputs, gain]


@pytest.mark.parametrize(
    ("k", "n", "bits", "block"),
    [(2304, 64, 4, 32), (2500, 37, 4, 16), (4096, 40, 2, 64), (20, 12001, 8, 16), (525, 4100, 4, 128)],
)
def test_normed_rows__any_number_of_them__give_the_same_bits(k: int, n: int, bits: int, block: int, gpu: Any) -> None:
    base, weights = product(k, n, bits, block)
    # Rows of very different sizes: each has a mean square of its own.
    a = np.random.default_rng(0).standard_normal((8, k)) * 10.0 ** np.arange(-3, 5)[:, None]
    op, inputs = normed(base, [a.astype(np.float32), *weights], np.float32)
    types: Any = tuple(typed(x) for x in inputs)
    assert len(op.lower(gpu.target, *types)) == 1
    (whole,), (expected,) = run_op(op, inputs, gpu), run_op(op, inputs)
    np.testing.assert_allclose(whole, expected, 1e-4, 2e-4)
    for rows in range(1, 8):
        (part,) = run_op(op, [a[:rows].astype(np.float32), *inputs[1:]], gpu)
        np.testing.assert_array_equal(part, whole[:rows])


@pytest.mark.parametrize(
    ("follows", "rows", "dtype", "device"),
    matrix(["bias", "epilogue", "pair"], [1, 5, 40], [np.float32, np.float16], ["gpu", "software"]),
)
def test_normed_rows__whatever_follows_the_product__agree_with_numpy(
    follows: str, rows: int, dtype: Any, device: str, request: pytest.FixtureRequest
) -> None:
    gpu: Any = request.getfixturevalue(device)
    rng = np.random.default_rng(3)
    base, weights = product(200, 74, 4, 32)
    weights[1] = weights[1].astype(dtype)
    inputs: list[Array | None] = [(3 * rng.standard_normal((rows, 200))).astype(dtype), *weights]
    if follows == "bias":
        inputs += [None, rng.standard_normal(74).astype(dtype)]
    elif follows == "epilogue":
        add: Any = newest("Add")
        base = WithEpilogue(base=base, count=4, chain=FusedElementwise(steps=(Step(add, (0, 1)),)))
        inputs.append(rng.standard_normal((rows, 74)).astype(dtype))
    else:
        mul: Any = newest("Mul")
        sigmoid: Any = newest("Sigmoid")
        steps = (Step(sigmoid, (0,)), Step(mul, (0, -1)), Step(mul, (-2, 1)))
        base = PairedProduct(base=base, chain=FusedElementwise(steps=steps))
    op, inputs = normed(base, inputs, dtype)
    (mine,), (expected,) = run_op(op, inputs, gpu), run_op(op, inputs)
    tolerance = 2e-4 if dtype is np.float32 else 1e-2
    np.testing.assert_allclose(mine.astype(np.float32), expected.astype(np.float32), tolerance, 4 * tolerance)


@pytest.mark.parametrize(
    ("n", "rows", "dtype", "device"), matrix([44, 37], [1, 6, 40], [np.float32, np.float16], ["gpu", "software"])
)
def test_epilogue__bias_activation_and_residual__agree_with_numpy(
    n: int, rows: int, dtype: Any, device: str, request: pytest.FixtureRequest
) -> None:
    gpu: Any = request.getfixturevalue(device)
    op, weights = product(200, n, 4, 32)
    add: Any = newest("Add")
    mul: Any = newest("Mul")
    sigmoid: Any = newest("Sigmoid")
    steps = (Step(add, (0, 1)), Step(sigmoid, (-1,)), Step(mul, (-1, -2)), Step(add, (-1, 2)))
    rng = np.random.default_rng(1)
    weights[1] = weights[1].astype(dtype)
    others = [rng.standard_normal(s).astype(dtype) for s in ((n,), (rows, n))]
    inputs: list[Array | None] = [rng.standard_normal((rows, 200)).astype(dtype), *weights, *others]
    whole = WithEpilogue(base=op, count=4, chain=FusedElementwise(steps=steps))
    types: Any = tuple(typed(x) for x in inputs)
    attached = whole.attached(gpu.target, types)
    assert attached is not None
    (mine,), (expected,) = run_op(whole, inputs, gpu), run_op(whole, inputs)
    tolerance = 1e-4 if dtype is np.float32 else 4e-3
    np.testing.assert_allclose(mine, expected, tolerance, tolerance)
