"""MatMul, Gemm, MatMulInteger, QLinearMatMul, Einsum on the GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Limits, Target, inp, out
from pyruntime.kernels.products.matmul import Matmul, product_of
from pyruntime.kernels.products.tiling import LARGE, MEDIUM, SMALL, Tiling
from pyruntime.ops.base import Op
from pyruntime.ops.products.einsum import Einsum
from pyruntime.ops.products.gemm import Gemm
from pyruntime.ops.products.matmul import MatMul
from pyruntime.ops.products.matmul_integer import MatMulInteger, QLinearMatMul
from tests.harness import run_op, typed
from tests.sampling import matrix

TOLERANCE = {"float32": 1e-5, "float16": 1e-3, "bfloat16": 1e-2}
WIDE = Target(Limits(storage_buffers=10, workgroup_bytes=32768))


def _same(gpu: Gpu, op: Op, inputs: list[Any]) -> None:
    """The GPU's result is the host's, exactly for integers."""
    (host,), (device,) = run_op(op, list(inputs)), run_op(op, list(inputs), gpu)
    assert device.shape == host.shape and device.dtype == host.dtype
    if host.dtype.kind == "f":
        tolerance = TOLERANCE.get(inputs[0].dtype.name, 1e-2)
        scale = max(1.0, float(np.abs(host[np.isfinite(host)]).max(initial=1)))
        np.testing.assert_allclose(device, host, tolerance, tolerance * scale)
    else:
        np.testing.assert_array_equal(device, host)


def _array(dtype: str, *shape: int) -> Array:
    rng = np.random.default_rng(sum(shape) + len(dtype))
    if dtype == "bfloat16":
        return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
    if dtype.startswith("float"):
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 100, shape).astype(dtype)


LAYOUTS = [(False, False), (True, False), (False, True), (True, True)]


def _check_product(
    gpu: Gpu,
    shape: tuple[int, int, int],
    trans: tuple[bool, bool] = (False, False),
    tiling: Tiling | None = None,
    target: Target = WIDE,
) -> str:
    """One product against NumPy in float64; the kernel's name."""
    m, n, k = shape
    a = _array("float32", *((k, m) if trans[0] else (m, k)))
    b = _array("float32", *((n, k) if trans[1] else (k, n)))
    ta, tb, ty = (TensorType(DType.FLOAT, s) for s in (a.shape, b.shape, (m, n)))
    product = product_of(a.shape, b.shape, *trans)
    made = Matmul(product, out(0, ty), inp(0, ta), inp(1, tb), tiling=tiling).lower(target)
    (got,) = gpu.run(made, [a, b], [ta, tb], [ty])
    left, right = (x.T if t else x for x, t in zip((a, b), trans, strict=True))
    np.testing.assert_allclose(got, left.astype(np.float64) @ right.astype(np.float64), 1e-4, 1e-4)
    return made[0].kernel.name


@pytest.mark.parametrize("trans", LAYOUTS)
@pytest.mark.parametrize(
    ("tiling", "shape"),
    [
        (SMALL, (33, 35, 19)),
        (replace(SMALL, slices=2, splits=2), (36, 68, 64)),
        (replace(MEDIUM, splits=2), (36, 68, 64)),
    ],
    ids=["small", "small-sliced-split", "medium-split"],
)
def test_tiled__every_layout__as_numpy(
    gpu: Gpu, tiling: Tiling, trans: tuple[bool, bool], shape: tuple[int, int, int]
) -> None:
    _check_product(gpu, shape, trans, tiling)


def test_tiled__four_slices__as_numpy(gpu: Gpu) -> None:
    assert "s4" in _check_product(gpu, (20, 36, 300), tiling=replace(SMALL, slices=4))


@pytest.mark.parametrize("shape", [(70, 100, 96), (65, 67, 101)])
def test_tiled__medium_slices__as_numpy(gpu: Gpu, shape: tuple[int, int, int]) -> None:
    _check_product(gpu, shape, tiling=replace(MEDIUM, slices=2))


@pytest.mark.parametrize("trans", LAYOUTS)
@pytest.mark.parametrize(("shape", "splits"), [((132, 140, 48), 1), ((70, 260, 101), 2)])
def test_tiled__large_configuration__as_numpy(
    gpu: Gpu, trans: tuple[bool, bool], shape: tuple[int, int, int], splits: int
) -> None:
    _check_product(gpu, shape, trans, tiling=replace(LARGE, splits=splits), target=gpu.target)


@pytest.mark.parametrize("trans", LAYOUTS)
@pytest.mark.parametrize("shape", [(1, 36, 64), (3, 35, 19), (50, 1, 24)])
def test_skinny__every_layout__as_numpy(gpu: Gpu, trans: tuple[bool, bool], shape: tuple[int, int, int]) -> None:
    assert "skinny" in _check_product(gpu, shape, trans)


@pytest.mark.parametrize(
    ("trans", "shape", "dtype"),
    matrix(LAYOUTS, [(4, 21, 40), (7, 33, 520), (77, 20, 54), (130, 9, 36)], ["float32", "int32"]),
)
def test_direct__four_and_eight_rows__as_host(
    software: Gpu, trans: tuple[bool, bool], shape: tuple[int, int, int], dtype: str
) -> None:
    m, k, n = shape
    a, b = _array(dtype, *((k, m) if trans[0] else (m, k))), _array(dtype, *((n, k) if trans[1] else (k, n)))
    op = Gemm(transA=int(trans[0]), transB=int(trans[1]))
    types: list[Any] = [typed(a), typed(b)]
    (made,) = op.lower(software.target, *types)
    assert made.kernel.name.startswith("matmul_direct_eight" if m > 4 else "matmul_direct_four")
    _same(software, op, [a, b])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32", "uint32", "int64", "uint64"])
def test_matmul__types__as_host(gpu: Gpu, dtype: str) -> None:
    odd = dtype in ("float16", "uint32")
    for shapes in (((3, 17), (17, 5)), ((9, 17), (17, 5))) if odd else (((2, 9, 8), (2, 8, 4)),):
        _same(gpu, MatMul(), [_array(dtype, *s) for s in shapes])


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((2, 3, 9, 8), (3, 8, 12)),
        ((2, 3, 9, 8), (2, 1, 8, 12)),
        ((2, 1, 4, 8), (3, 8, 12)),
        ((5, 9, 8), (8, 12)),
        ((9, 8), (5, 8, 12)),
        ((4,), (3, 4, 5)),
        ((3, 9, 4), (4,)),
        ((0, 4), (4, 3)),
        ((9, 0), (0, 12)),
        ((2, 0), (0, 3)),
        ((1, 1), (1, 1)),
        ((2, 1, 3, 1, 2, 9, 8), (1, 2, 1, 3, 1, 8, 12)),
    ],
)
def test_matmul__batches_and_vectors__as_host(gpu: Gpu, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    _same(gpu, MatMul(), [_array("float32", *a), _array("float32", *b)])
    if len(a) > 1 < len(b):
        pair: list[Any] = [np.random.default_rng(4).integers(0, 255, s).astype(np.uint8) for s in (a, b)]
        _same(gpu, MatMulInteger(), [*pair, np.array(7, np.uint8), np.array(9, np.uint8)])


def test_matmul__nan_and_infinity__as_host(gpu: Gpu) -> None:
    a, b = _array("float32", 9, 8), _array("float32", 8, 12)
    a[2, 3], a[4, 5], b[1, 7] = np.nan, np.inf, -np.inf
    (host,), (device,) = run_op(MatMul(), [a, b]), run_op(MatMul(), [a, b], gpu)
    np.testing.assert_allclose(device, host, 1e-4, 1e-4)


BIASES = [("float32", ()), ("float32", (12,)), ("float32", (12, 1)), ("float32", (10,)), ("float16", (12,))]
BIASES += [("int32", (12, 1)), ("int64", (12,)), ("int64", ())]


@pytest.mark.parametrize(("dtype", "c"), BIASES)
def test_gemm__bias__as_host(gpu: Gpu, dtype: str, c: tuple[int, ...]) -> None:
    n = 10 if 10 in c else 12
    op = Gemm(transB=1) if dtype.startswith("int") else Gemm(transB=1, alpha=0.5, beta=2.0)
    _same(gpu, op, [_array(dtype, 12, 20), _array(dtype, n, 20), np.asarray(_array(dtype, *c))])


def test_gemm__split_and_skinny__bias_added_once(gpu: Gpu) -> None:
    for m, n, k in ((16, 40, 600), (1, 40, 600), (40, 1, 24)):
        a, b, c = _array("float32", k, m), _array("float32", k, n), _array("float32", m, n)
        _same(gpu, Gemm(transA=1, alpha=2.0), [a, b, c])
        _same(gpu, Gemm(transA=1, alpha=2.0, beta=0.0), [a, b, c])
        _same(gpu, Gemm(transA=1, alpha=2.0), [a, b])


def test_matmul_integer__zero_points__as_host(gpu: Gpu) -> None:
    a, b = _array("uint8", 3, 9, 20), _array("int8", 20, 7)
    rows, cols = _array("uint8", 3, 9, 1), _array("int8", 7)
    for zeros in ([], [np.array(3, np.uint8)], [np.array([3], np.uint8), cols], [rows, cols], [None, cols]):
        _same(gpu, MatMulInteger(), [a, b, *zeros])
    _same(gpu, MatMulInteger(), [a[0], b, np.arange(9, dtype=np.uint8), cols])
    _same(gpu, MatMulInteger(), [a[0, :2], b, np.arange(2, dtype=np.uint8), cols])
    _same(gpu, MatMulInteger(), [a, np.stack([b, b + 1, b]), rows, _array("int8", 3, 1, 7)])


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_qlinear_matmul__per_row_and_column__as_host(gpu: Gpu, kind: str) -> None:
    a, b = _array(kind, 9, 20), _array(kind, 20, 7)
    rows, cols = np.linspace(0.01, 0.02, 9, dtype=np.float32), np.linspace(0.02, 0.03, 7, dtype=np.float32)
    zero = np.array(4, kind)
    _same(gpu, QLinearMatMul(), [a, rows, zero, b, cols, np.full(7, 50, kind), np.float32(0.3), zero])
    scale = np.array(0.02, np.float32)
    _same(gpu, QLinearMatMul(), [a, scale, zero, b, scale, zero, np.array(0.5, np.float32), zero])


def test_qlinear_matmul__float8__as_host(gpu: Gpu) -> None:
    kind = ml_dtypes.float8_e4m3fn
    a, b = (np.random.default_rng(1).standard_normal(s).astype(kind) for s in ((9, 8), (8, 4)))
    one, zero = np.array(1, np.float32), np.array(0, kind)
    _same(gpu, QLinearMatMul(), [a, one, zero, b, one, zero, np.array(2, np.float32), zero])


EQUATIONS = [
    ("ij,jk->ik", (13, 14), (14, 15)),
    ("ij,jk->ki", (13, 14), (14, 15)),
    ("ij,ij->", (3, 40), (3, 40)),
    ("i,j->ij", (3,), (4,)),
    ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)),
    ("...ij->...ji", (2, 3, 4)),
    ("ii->i", (4, 4)),
    ("ii", (40, 40)),
    ("iji,jk->ki", (4, 5, 4), (5, 3)),
    ("bfnh,btnh->bnft", (2, 24, 3, 40), (2, 20, 3, 40)),
    ("bhwc,hkc->bhwk", (2, 8, 28, 40), (8, 32, 40)),
    ("abc,cd->bda", (8, 40, 50), (50, 70)),
    ("ab,bc,cd->ad", (2, 3), (3, 4), (4, 5)),
    ("ab,cd->c", (2, 3), (4, 5)),
    ("aij,jk->ik", (3, 40, 300), (300, 100)),
    ("ijk->j", (2, 3, 4)),
    ("ij,jk->ik", (3, 0), (0, 4)),
]


@pytest.mark.parametrize("case", EQUATIONS, ids=lambda c: f"{c[0]}{c[1][0]}")
def test_einsum__equation__as_host(gpu: Gpu, case: Any) -> None:
    equation, *shapes = case
    _same(gpu, Einsum(equation=equation), [_array("float32", *s) for s in shapes])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "uint16", "int32", "int64", "uint64"])
def test_einsum__types__as_host(gpu: Gpu, dtype: str) -> None:
    _same(gpu, Einsum(equation="ab,bc,cd->da"), [_array(dtype, *s) for s in ((4, 3), (3, 5), (5, 6))])
