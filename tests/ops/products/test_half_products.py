"""Products and convolutions that multiply in float16, on lavapipe, to their bound around results of float64.

Of n products summed in float16 the error is at most n u / (1 - n u) times the sum of their magnitudes, u = 2^-11
(Higham 2002, 3.1); products below the normal numbers are off by 2^-25 at most, and a result is rounded once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx.parser
import pytest

import pyruntime as ort
from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Dispatch, inp, out
from pyruntime.kernels.convolution import convolution
from pyruntime.kernels.convolution.candidates import CONVOLUTIONS, ConvProblem, ConvWay
from pyruntime.kernels.ir.kernel import Binding, Kernel
from pyruntime.kernels.legalize import legalize
from pyruntime.kernels.products.matmul import Matmul, product_of
from pyruntime.kernels.products.tiling import LARGE, MEDIUM, SMALL, Tiling
from pyruntime.kernels.selection.candidates import Candidate
from pyruntime.ops.base import Op
from pyruntime.ops.registry import newest
from pyruntime.target import FLOAT16_CONVERSION, SHADER_F16, Target
from tests.desktop import DesktopGpu, on_desktop
from tests.harness import run_op
from tests.kernels.variant_cases import CASES

SUMMED = 16
"""Products that are summed in float16: half of a step."""

U = 2.0**-11
G = SUMMED * U / (1 - SUMMED * U)


@pytest.fixture(scope="module")
def gpu() -> Iterator[DesktopGpu]:
    with on_desktop():
        made = DesktopGpu()
        made.target = replace(made.target, disabled=made.target.disabled | {"software"})
        if not made.target.has_f16:
            pytest.skip("this Vulkan driver has no shader-f16")
        yield made


def halves(*shape: int, seed: int = 0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) / 2).astype(np.float16)


def assert_within(found: Array, exact: Array, magnitudes: Array, k: int) -> None:
    """`magnitudes`: sums of |a b|."""
    bound = G * magnitudes + k * 2.0**-25
    assert (np.abs(found - exact) <= bound + U * (np.abs(exact) + bound) + 2.0**-25).all()
    assert np.sqrt(np.mean((found - exact) ** 2)) < 1e-3 * exact.std()


TILINGS = (replace(SMALL, slices=4), MEDIUM, replace(LARGE, splits=2))


@pytest.mark.parametrize("tiling", TILINGS, ids=lambda t: t.name)
@pytest.mark.parametrize(
    ("m", "n", "k", "trans_a", "trans_b"), [(70, 132, 256, False, False), (35, 67, 257, True, True)]
)
def test_matmul__float16_tiles__are_within_the_bound(
    gpu: DesktopGpu, tiling: Tiling, m: int, n: int, k: int, trans_a: bool, trans_b: bool
) -> None:
    a = halves(*((k, m) if trans_a else (m, k)))
    b = halves(*((n, k) if trans_b else (k, n)), seed=1)
    kinds = [TensorType(DType.FLOAT16, x.shape) for x in (a, b)]
    y = TensorType(DType.FLOAT16, (m, n))
    product = product_of(a.shape, b.shape, trans_a=trans_a, trans_b=trans_b)
    half = replace(tiling, half=True)
    made = legalize(
        gpu.target, Matmul(product, out(0, y), inp(0, kinds[0]), inp(1, kinds[1]), tiling=half).lower(gpu.target)
    )
    assert "fma(left.xy" in made[0].kernel.wgsl()
    assert made[0].kernel.module.workgroup_bytes <= half.workgroup_bytes
    (found,) = gpu.run(made, [a, b], kinds, [y])
    left, right = (
        x.astype(np.float64).T if turned else x.astype(np.float64) for x, turned in ((a, trans_a), (b, trans_b))
    )
    assert_within(found, left @ right, np.abs(left) @ np.abs(right), k)


CONVOLVED: dict[str, tuple[Op, tuple[int, ...], tuple[int, ...], str]] = {
    "3 x 3": (newest("Conv", pads=(1, 1, 1, 1)), (1, 20, 9, 11), (37, 20, 3, 3), "gemm_half_s4"),
    "3 x 3, larger tiles": (newest("Conv", pads=(1, 1, 1, 1)), (1, 20, 9, 8), (70, 20, 3, 3), "gemm_half_m1"),
    "groups, strides, splits": (
        newest("Conv", pads=(1, 1, 1, 1), strides=(2, 2), group=2),
        (2, 64, 9, 8),
        (70, 32, 3, 3),
        "gemm_half_s2_split4",
    ),
    "pointwise, odd": (newest("Conv"), (2, 160, 7, 7), (40, 160, 1, 1), "gemm_half_s1"),
    "pointwise, quads": (newest("Conv"), (1, 160, 8, 8), (40, 160, 1, 1), "gemm_half_s2"),
    "pointwise, a product": (newest("Conv"), (2, 160, 7, 7), (40, 160, 1, 1), "matmul_half_m1"),
    "volume": (newest("Conv", pads=(1,) * 6), (1, 10, 4, 5, 6), (33, 10, 3, 3, 3), "gemm_half_s1"),
    "transposed": (newest("ConvTranspose", strides=(2, 2)), (1, 150, 5, 6), (150, 34, 3, 3), "gemm_half_s1"),
}


class Forced:
    """A family that chooses what it is told."""

    def __init__(self, name: str) -> None:
        self.name = name

    def choose(self, problem: ConvProblem, target: Target) -> Candidate[ConvProblem, ConvWay]:
        found = CONVOLUTIONS.named(self.name)
        assert problem.half and not found.refused(problem, target)
        return found


@pytest.mark.parametrize("name", CONVOLVED)
def test_convolution__float16__is_within_the_bound(gpu: DesktopGpu, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, x_shape, w_shape, candidate = CONVOLVED[name]
    monkeypatch.setattr(convolution, "CONVOLUTIONS", Forced(candidate))
    x, w = halves(*x_shape), halves(*w_shape, seed=1)
    (found,) = run_op(op, [x, w], gpu)
    wide: list[Any] = [v.astype(np.float64) for v in (x, w)]
    (exact,), (magnitudes,) = run_op(op, wide), run_op(op, [np.abs(v) for v in wide])
    assert_within(found, exact, magnitudes, int(np.prod(w_shape[1:])))


def test_matmul__sums_past_float16__stay_finite_where_no_partial_sum_passes(gpu: DesktopGpu) -> None:
    """Partial sums of 16 products fit; their total, of alternating sign, passes 65504 on its way."""
    a = np.full((32, 512), 32, np.float16)
    b = np.full((512, 32), 64, np.float16)
    b[256:] *= -1
    (found,) = run_op(newest("MatMul"), [a, b], gpu)
    np.testing.assert_array_equal(found, np.zeros((32, 32), np.float16))


def test_convolution__odd_rows__stores_single_elements_without_a_second_dispatch(gpu: DesktopGpu) -> None:
    op: Any = newest("Conv")
    kinds = [TensorType(DType.FLOAT16, shape) for shape in ((1, 8, 7, 7), (12, 8, 1, 1))]
    (made,) = legalize(gpu.target, op.lower(gpu.target, *kinds))
    assert made.kernel.halves and "y: array<f16>" in made.kernel.wgsl()
    x, w = halves(1, 8, 7, 7), halves(12, 8, 1, 1, seed=1)
    (found,), (exact,) = run_op(op, [x, w], gpu), run_op(op, [x.astype(np.float64), w.astype(np.float64)])
    np.testing.assert_allclose(found, exact, 2 * U, 2.0**-24)


def test_product__rows_are_normalised__in_the_kernel_that_adds_shares(gpu: DesktopGpu) -> None:
    op, (a, b, added, scale) = CASES["matmul_norm"].op, (halves(64, 2048), halves(2048, 256), halves(256), halves(256))
    kinds = [TensorType(DType.FLOAT16, v.shape) for v in (a, b, added, scale)]
    *_, last = legalize(gpu.target, op.lower(gpu.target, *kinds))
    assert last.kernel.name.startswith("matmul_sum_norm")
    found, product = run_op(op, [a, b, added, scale], gpu)
    p = a.astype(np.float64) @ b.astype(np.float64) + added
    np.testing.assert_allclose(product, p, 4e-3, 4e-2)
    np.testing.assert_allclose(found, p / np.sqrt((p**2).mean(-1, keepdims=True) + 1e-5) * scale, 4e-3, 4e-3)


RESIDUALS = {
    "product": ("y = MatMul(x, w)", (64, 128), (128, 128)),
    "convolution, odd": ("y = Conv(x, w)", (1, 128, 7, 7), (128, 128, 1, 1)),
}


@pytest.mark.parametrize("name", RESIDUALS)
def test_session__operand_is_the_residual_too__is_right(gpu: DesktopGpu, name: str) -> None:
    """The operand is read as f16 by the product and as words by its epilogue."""
    text, x_shape, w_shape = RESIDUALS[name]
    x, w = halves(*x_shape), halves(*w_shape, seed=1) / np.float16(8)
    dims = [",".join(map(str, shape)) for shape in (x_shape, w_shape)]
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float16[{dims[0]}] x) => (float16[{dims[0]}] z) '
        f"<float16[{dims[1]}] w> {{ {text} z = Add(y, x) }}"
    )
    del model.graph.initializer[:]
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    options = ort.SessionOptions()
    options.add_session_config_entry("pyruntime.disable", "software")
    session = ort.InferenceSession(model.SerializeToString(), options)
    (found,) = session.run(None, {"x": x})
    assert any("half" in kernel for node in session.summary()["nodes"] for kernel in node["kernels"])
    wide = x.astype(np.float64), w.astype(np.float64)
    exact = wide[0] @ wide[1] if x.ndim == 2 else np.einsum("nchw,mc->nmhw", wide[0], wide[1][:, :, 0, 0])
    np.testing.assert_allclose(found, exact + wide[0], 4e-3, 4e-3)


def test_store__gpu_without_shader_f16__changes_the_bits_of_one_element(gpu: DesktopGpu) -> None:
    features = gpu.target.features - {SHADER_F16} | {FLOAT16_CONVERSION}
    other = DesktopGpu()
    other.target = replace(gpu.target, features=features)
    op: Any = newest("Conv")
    x, w = halves(1, 8, 7, 7), halves(12, 8, 1, 1, seed=1)
    kinds = [TensorType(DType.FLOAT16, v.shape) for v in (x, w)]
    (made,) = legalize(other.target, op.lower(other.target, *kinds))
    text = made.kernel.wgsl()
    assert "y: array<atomic<u32>>" in text and "unpack2x16float" in text and "enable f16" not in text
    (found,), (exact,) = run_op(op, [x, w], other), run_op(op, [x.astype(np.float64), w.astype(np.float64)])
    np.testing.assert_allclose(found, exact, 2 * U, 2.0**-24)


STORING = {
    "packed": "store4_y(gid.x, v[0], v[1], v[2], v[3]);",
    "one at a time": "for (var c = 0u; c < 4u; c++) { store_y(4u * gid.x + c, v[c]); }",
}


@pytest.mark.parametrize("name", STORING)
def test_store__every_rounding__is_numpys(gpu: DesktopGpu, name: str) -> None:
    finite = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middle = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
    near = [np.nextafter(middle, np.float32(to)) for to in (-np.inf, np.inf)]
    special = np.array([65519.99, 65520, 1e30, np.inf, 1e-45, 2**-25, 0], np.float32)
    x = np.concatenate([finite, middle, *near, special])
    x = np.resize(np.concatenate([x, -x, np.full(9, np.nan, np.float32)]), 1024 * 256)
    given, made = TensorType(DType.FLOAT, x.shape), TensorType(DType.FLOAT16, x.shape)
    text = f"let v = load4_x(gid.x); {STORING[name]}"
    body = f"@compute @workgroup_size(64)\nfn main(@builtin(global_invocation_id) gid: vec3<u32>) {{ {text} }}"
    kernel = Kernel("narrow", body, (Binding("x", DType.FLOAT), Binding("y", DType.FLOAT16, True)))
    (dispatch,) = legalize(gpu.target, [Dispatch(kernel, (inp(0, given), out(0, made)), (1024, 1, 1))])
    assert dispatch.kernel.halves == (name != "packed")
    (found,) = gpu.run([dispatch], [x], [given], [made])
    numbers = ~np.isnan(x)
    with np.errstate(over="ignore"):
        expected = x[numbers].astype(np.float16)
    np.testing.assert_array_equal(found[numbers].view(np.uint16), expected.view(np.uint16))
    assert np.isnan(found[~numbers]).all()
