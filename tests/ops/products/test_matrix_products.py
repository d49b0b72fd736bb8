"""Products by subgroup matrices: what devices that have them run, and its results, the matrices emulated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, Limits, Target, inp, out
from pyruntime.kernels.convolution.candidates import CONVOLUTIONS, ConvProblem
from pyruntime.kernels.legalize import legalize
from pyruntime.kernels.products.candidates import MATRICES, PRODUCTS, TILES, ProductProblem
from pyruntime.kernels.products.matmul import Matmul, product_of
from pyruntime.kernels.products.tiling import MatrixTiling
from pyruntime.kernels.windows import Window
from pyruntime.target import MATRIX_UNIT, SUBGROUP_MATRIX, matrix_unit_of
from tests.desktop import DesktopGpu, on_desktop
from tests.kernels.subgroup_matrices import emulated, with_matrices

GPU = Target(Limits(storage_buffers=16, workgroup_bytes=32768, invocations=1024, workgroup_x=1024), vendor="any")

U = 2.0**-11

F32 = "f16", "f32"


@pytest.fixture(scope="module")
def gpu() -> Iterator[DesktopGpu]:
    with on_desktop():
        made = DesktopGpu()
        if "shader-f16" not in made.target.features:
            pytest.skip("this Vulkan driver has no shader-f16")
        made.target = with_matrices(made.target, (4, 4, 4), lanes=1)
        yield made


def halves(*shape: int, seed: int = 0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) / 2).astype(np.float16)


def product(
    target: Target, tiling: MatrixTiling, a: Array, b: Array, trans_a: bool, trans_b: bool, bias: Array | None = None
) -> tuple[tuple[Dispatch, ...], list[TensorType], TensorType]:
    """The dispatches, the types of their inputs and of their output."""
    kinds = [TensorType(DType.FLOAT16, x.shape) for x in (a, b, *(() if bias is None else (bias,)))]
    sizes = product_of(a.shape, b.shape, trans_a=trans_a, trans_b=trans_b)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    y = TensorType(DType.FLOAT16, (*batch, sizes.m if batch else a.shape[-1 if trans_a else -2], sizes.n))
    given = inp(2, kinds[2]) if bias is not None else None
    made = Matmul(sizes, out(0, y), inp(0, kinds[0]), inp(1, kinds[1]), bias=given, tiling=tiling).lower(target)
    return legalize(target, made), kinds, y


SMALL = MatrixTiling(16, 16, (2, 2), 8)
"""Each subgroup has 2 x 2 sums, of two matrices a step."""
CASES: dict[str, tuple[MatrixTiling, tuple[int, ...], tuple[int, ...], bool, bool]] = {
    "whole tiles": (SMALL, (32, 24), (24, 32), False, False),
    "quads, odd rows": (SMALL, (19, 24), (24, 28), False, False),
    "nothing divides": (SMALL, (19, 21), (21, 35), False, False),
    "both transposed, odd": (SMALL, (21, 19), (35, 21), True, True),
    "k split over workgroups": (replace(SMALL, splits=2), (19, 50), (28, 50), False, True),
    "one row": (SMALL, (1, 12), (12, 17), False, False),
    "batches": (SMALL, (3, 17, 24), (3, 24, 20), False, False),
    "one left matrix for all": (SMALL, (17, 24), (2, 24, 20), False, False),
    "subgroups along n alone": (MatrixTiling(4, 16, (1, 2), 8), (6, 20), (20, 24), False, False),
}


@pytest.mark.parametrize("name", CASES)
def test_matmul__subgroup_matrices__are_rounded_once(gpu: DesktopGpu, name: str) -> None:
    tiling, a_shape, b_shape, trans_a, trans_b = CASES[name]
    a, b = halves(*a_shape), halves(*b_shape, seed=1)
    made, kinds, y = product(gpu.target, tiling, a, b, trans_a, trans_b)
    (found,) = gpu.run([emulated(d) for d in made], [a, b], kinds, [y])
    left, right = (
        np.swapaxes(x.astype(np.float64), -1, -2) if turned else x.astype(np.float64)
        for x, turned in ((a, trans_a), (b, trans_b))
    )
    np.testing.assert_allclose(found, left @ right, 1.01 * U, 1e-5)


def test_matmul__bias_of_rows__is_added(gpu: DesktopGpu) -> None:
    a, b, bias = halves(35, 40), halves(40, 44, seed=1), halves(35, seed=2)
    made, kinds, y = product(gpu.target, SMALL, a, b, False, False, bias)
    (found,) = gpu.run([emulated(d) for d in made], [a, b, bias], kinds, [y])
    exact = a.astype(np.float64) @ b.astype(np.float64) + bias[:, None]
    np.testing.assert_allclose(found, exact, 1.01 * U, 1e-5)


@pytest.mark.parametrize("unit", [(16, 16, 16), (8, 8, 8), (16, 8, 8), (8, 16, 16)])
@pytest.mark.parametrize("tiling", MATRICES, ids=lambda t: t.name)
def test_lower__sizes_that_the_adapter_reports__are_those_of_the_kernel(
    tiling: MatrixTiling, unit: tuple[int, int, int]
) -> None:
    target, (m, n, k) = with_matrices(GPU, unit), unit
    assert tiling.on(target).fits(target.limits) == ""
    for trans in (False, True):
        a, b = halves(197, 768), halves(768, 196)
        turned = (a.T, b.T) if trans else (a, b)
        first, *_ = product(target, tiling, *turned, trans, trans)[0]
        text = first.kernel.wgsl()
        assert "enable chromium_experimental_subgroup_matrix;" in text and "enable subgroups;" in text
        for name, size in {"UNIT_M": m, "UNIT_N": n, "UNIT_K": k, "LANES": 32}.items():
            assert f"const {name}: u32 = {size}u;" in text
        module = first.kernel.module
        assert module.invocations == tiling.threads
        assert 0 < module.workgroup_bytes <= tiling.on(target).workgroup_bytes
        assert ("col_major>" in text) == trans


def chosen(target: Target, half: bool = True, size: Sequence[int] = (512, 512, 512)) -> str:
    m, n, k = size
    return PRODUCTS.rank(ProductProblem(m, n, k, half=half), target).chosen


def test_choose__float16_on_a_device_with_matrices__matrices() -> None:
    target = with_matrices(GPU)
    assert chosen(target) == "matrix_32x32"
    assert chosen(target, size=(2048, 2048, 2048)) == "matrix_128x128"
    assert chosen(target, size=(257, 768, 3072)).startswith("matrix_64x64_split")
    assert TILES.choose(ProductProblem(2048, 2048, 2048, half=True), target).name == "matrix_128x128"


def test_choose__float32_or_switched_off__no_matrices() -> None:
    target = with_matrices(GPU)
    assert "matrix" not in chosen(target, half=False)
    assert "matrix" not in chosen(replace(target, disabled=target.disabled | {"matmul_matrix"}))


def test_choose__device_that_lacks_something__says_why() -> None:
    """Without the feature, without sizes, with subgroups of several sizes, or with matrices that divide no tile."""
    whole = with_matrices(GPU)
    lacking = {
        "the device has no subgroup matrices": [
            replace(whole, features=whole.features - {SUBGROUP_MATRIX}),
            replace(whole, features=frozenset(f for f in whole.features if not f.startswith(MATRIX_UNIT))),
            replace(whole, features=whole.features - {"subgroup_size_32"}),
        ],
        "do not divide a tile": [with_matrices(GPU, (24, 16, 16))],
        "invocations a workgroup": [replace(whole, limits=replace(whole.limits, invocations=64))],
        "bytes of workgroup memory": [replace(whole, limits=replace(whole.limits, workgroup_bytes=16384))],
    }
    for reason, targets in lacking.items():
        for target in targets:
            ranked = PRODUCTS.rank(ProductProblem(512, 512, 2048, half=True), target)
            assert "matrix" not in ranked.chosen
            assert all(reason in c.reason for c in ranked.others if c.name.startswith("matrix"))


def test_choose__pointwise_convolution__matrices() -> None:
    ones = (1, 1, 1)
    window = Window((1, 56, 56), (1, 56, 56), ones, ones, ones, (0, 0, 0), (0, 0, 0))
    problem = ConvProblem(1, 1, 256, 256, window, pointwise=True, half=True)
    assert CONVOLUTIONS.choose(problem, with_matrices(GPU)).name.startswith("matmul_matrix")
    assert "matrix" not in CONVOLUTIONS.choose(replace(problem, half=False), with_matrices(GPU)).name


def test_matrix_unit_of__several_configurations__the_first_that_sums_float16_in_float32() -> None:
    reported = [("f16", "f16", 16, 16, 16), (*F32, 16, 8, 16), (*F32, 16, 16, 16), ("u8", "u32", 16, 16, 32)]
    assert matrix_unit_of(reported) == ["subgroup_matrix_16x8x16"]
    assert matrix_unit_of([("f32", "f32", 8, 8, 8), ("f16", "f16", 8, 8, 8)]) == []
    assert with_matrices(GPU, (16, 8, 16)).matrix_unit == (16, 8, 16)
    assert GPU.matrix_unit is None
