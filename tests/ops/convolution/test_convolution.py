"""Conv, ConvTranspose, ConvInteger, QLinearConv, DeformConv, Col2Im on the host, and what they lower to."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph
from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Target
from pyruntime.kernels.ir.fallback import without_fallback
from pyruntime.ops.base import Op, Unsupported
from pyruntime.ops.convolution import conv as conv_module
from tests.desktop import DesktopGpu
from tests.harness import make_op, run_op
from tests.ops.convolution.conv_cases import conv_cases, conv_transpose_cases, deform_cases, integer_cases
from tests.oracle import check_against_ort, node_of

SUMS = (1e-3, 1e-4)


def _op(name: str, inputs: int, opset: int = 22, **attributes: Any) -> Op:
    made: Op = make_op(node_of(name, [np.zeros(1)] * inputs, **attributes), {"": opset})
    return made


def _type(*shape: int, dtype: DType = DType.FLOAT) -> TensorType:
    return TensorType(dtype, shape)


def test_conv__random__as_onnxruntime() -> None:
    for number, (inputs, attributes) in enumerate(conv_cases(60)):
        check_against_ort("Conv", inputs, opset=(7, 11, 21)[number % 3], tolerance=SUMS, **attributes)


def test_conv_transpose__random__as_onnxruntime() -> None:
    for number, (inputs, attributes) in enumerate(conv_transpose_cases(60)):
        check_against_ort("ConvTranspose", inputs, opset=(7, 11, 21)[number % 3], tolerance=SUMS, **attributes)


@pytest.mark.parametrize("kernels", ["gpu", "software"])
def test_conv_transpose__on_the_desktop__as_onnxruntime(kernels: str, desktop_gpu: None) -> None:
    gpu = DesktopGpu()
    if kernels == "gpu":
        gpu.target = replace(gpu.target, disabled=gpu.target.disabled | {"software"})
    for inputs, attributes in conv_transpose_cases(16, 5):
        check_against_ort("ConvTranspose", inputs, gpu, tolerance=SUMS, **attributes)


@pytest.mark.parametrize(("maps", "rows"), [(1, 1), (3, 4), (16, 8)])
@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
def test_conv_transpose__on_a_software_adapter__four_outputs_of_several_channels(
    maps: int, rows: int, strides: tuple[int, int]
) -> None:
    op = _op("ConvTranspose", 2, strides=strides)
    x, w = _type(2, 8, 60, 40), _type(8, maps, 3, 3)
    (made,) = op.lower(Target(vendor="google"), x, w)
    assert made.kernel.name.startswith("conv_transpose_rows") and made.kernel.name.endswith(f"rows{rows}")
    (y,) = op.infer(x, w)
    assert isinstance(y, TensorType)
    least = math.prod(y.shape) / (4 * min(rows, maps) * 64)
    assert least <= math.prod(made.grid) <= 1.5 * least + 1
    (alone,) = op.lower(Target(vendor="nvidia", disabled=frozenset({"conv_gemm"})), x, w)
    assert alone.kernel.name.startswith("conv_transpose_k")


def test_conv_integer__random__as_onnxruntime() -> None:
    for inputs, attributes in integer_cases(40, quantised=False):
        check_against_ort("ConvInteger", inputs, opset=10, **attributes)


def test_qlinear_conv__random__as_onnxruntime() -> None:
    for inputs, attributes in integer_cases(40, quantised=True):
        check_against_ort("QLinearConv", inputs, opset=10, **attributes)


def test_deform_conv__random__as_onnxruntime() -> None:
    for inputs, attributes in deform_cases(40, rank=2):
        check_against_ort("DeformConv", inputs, opset=19, tolerance=SUMS, **attributes)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_conv__other_float__as_float32(dtype: type) -> None:
    for name, cases in (("Conv", conv_cases(8, 1)), ("ConvTranspose", conv_transpose_cases(8, 1))):
        for inputs, attributes in cases:
            op = _op(name, len(inputs), **attributes)
            given: list[Array | None] = [x.astype(dtype) for x in inputs if x is not None]
            (got,) = run_op(op, list(given))
            (expected,) = run_op(op, [x.astype(np.float32) for x in given if x is not None])
            assert got.dtype == dtype
            np.testing.assert_allclose(got.astype(np.float32), expected, 2e-3, 2e-3)


@pytest.mark.parametrize("size", [1, 60, 700])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_conv__small_tiles__as_whole(size: int, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [("Conv", *case) for case in conv_cases(12, rank)]
    cases += [("ConvInteger", *case) for case in integer_cases(12, quantised=False)]
    cases += [("QLinearConv", *case) for case in integer_cases(12, quantised=True)]
    for name, inputs, attributes in cases:
        op = _op(name, len(inputs), **attributes)
        (expected,) = run_op(op, list(inputs))
        for limit in ("TILE", "CACHED"):
            monkeypatch.setattr(conv_module, limit, size)
        (got,) = run_op(op, list(inputs))
        monkeypatch.undo()
        np.testing.assert_allclose(got, expected, *(SUMS if name == "Conv" else (0, 0)))


@pytest.mark.parametrize("channels", [8, 57, 58, 300, 700])
def test_conv_integer__largest_sums__exact_beyond_24_bits(channels: int) -> None:
    x, w = np.full((1, channels, 4, 4), 255, np.uint8), np.full((2, channels, 3, 3), -128, np.int8)
    x[0, 0, 0, 0] = 254
    (y,) = run_op(_op("ConvInteger", 2), [x, w])
    expected = np.full((1, 2, 2, 2), -channels * 9 * 255 * 128)
    expected[:, :, 0, 0] += 128
    np.testing.assert_array_equal(y, expected)


def test_conv_integer__largest_sums_of_one_channel__exact_beyond_24_bits() -> None:
    x, w = np.full((1, 2, 24, 24), 255, np.uint8), np.full((2, 1, 24, 24), -128, np.int8)
    x[0, 1, 3, 4] = 254
    (y,) = run_op(_op("ConvInteger", 2, group=2), [x, w])
    np.testing.assert_array_equal(y.ravel(), [-576 * 255 * 128, -576 * 255 * 128 + 128])


def test_q_linear_conv__large_bias__added_exactly_before_it_is_scaled() -> None:
    x, w = np.full((1, 1, 3), 255, np.uint8), np.array([[[127]], [[-127]]], np.int8)
    b = np.array([(1 << 30) + 1, -(1 << 24) - 1], np.int32)
    scales = [np.array(s, np.float32) for s in (1, 1, 2.0**24)]
    zero, y_zero = np.zeros((), np.uint8), np.array(100, np.uint8)
    inputs: list[Array | None] = [x, scales[0], zero, w, scales[1], np.zeros((), np.int8), scales[2], y_zero, b]
    check_against_ort("QLinearConv", inputs, opset=10)


def test_conv__no_images__no_output() -> None:
    (y,) = run_op(
        _op("Conv", 2, pads=[1, 1, 1, 1]), [np.zeros((0, 3, 5, 5), np.float32), np.ones((4, 3, 3, 3), np.float32)]
    )
    assert y.shape == (0, 4, 5, 5)


def test_conv__no_channels__bias_alone() -> None:
    x, w, b = np.zeros((1, 0, 4)), np.zeros((2, 0, 3)), np.array([1.0, -2.0])
    (y,) = run_op(_op("Conv", 3), [a.astype(np.float32) for a in (x, w, b)])
    np.testing.assert_array_equal(y, np.array([[[1, 1], [-2, -2]]]))


def test_conv__negative_pads__crop() -> None:
    x, w = np.arange(12, dtype=np.float32).reshape(1, 1, 12), np.ones((1, 1, 2), np.float32)
    (cropped,) = run_op(_op("Conv", 2, pads=[-3, -1]), [x, w])
    (expected,) = run_op(_op("Conv", 2), [x[:, :, 3:-1], w])
    np.testing.assert_array_equal(cropped, expected)


def test_conv__input_only_read() -> None:
    x, w = (np.ones((1, 1, 3, 3), np.float32) for _ in range(2))
    x.flags.writeable = w.flags.writeable = False
    for name in ("Conv", "ConvTranspose"):
        assert run_op(_op(name, 2), [x, w])[0].size


def test_col2im__every_type__sums_of_that_type() -> None:
    image, block = np.array([4, 5]), np.array([2, 3])
    for dtype in (np.int8, np.uint16, np.int64, np.float16, np.float64, np.complex64):
        x = (np.arange(2 * 6 * 9) % 50).reshape(2, 6, 9).astype(dtype)
        (y,) = run_op(_op("Col2Im", 3), [x, image, block])
        assert y.dtype == dtype and y.shape == (2, 1, 4, 5)
        assert y.sum() == x.sum() or dtype is np.int8
    (y,) = run_op(_op("Col2Im", 3), [np.ones((1, 6, 9), bool), image, block])
    assert y.dtype == bool and y.all()


@pytest.mark.parametrize(
    ("name", "types", "attributes"),
    [
        ("Conv", [_type(1, 3), _type(4, 3)], {}),
        ("Conv", [_type(1, 3, 8, 8), _type(4, 2, 3, 3)], {}),
        ("Conv", [_type(1, 3, 8, 8), _type(4, 3, 3)], {}),
        ("Conv", [_type(1, 4, 8), _type(3, 2, 3)], {"group": 2}),
        ("Conv", [_type(1, 3, 8, 8), _type(4, 3, 3, 3), _type(5)], {}),
        ("Conv", [_type(1, 3, 8, 8), _type(4, 3, 3, 3)], {"kernel_shape": [3, 2]}),
        ("Conv", [_type(1, 3, 8, 8), _type(4, 3, 3, 3)], {"strides": [1]}),
        ("Conv", [_type(1, 3, 8, 8), _type(4, 3, 3, 3)], {"strides": [0, 1]}),
        ("Conv", [_type(1, 3, 8, 8), _type(4, 3, 3, 3)], {"pads": [1, 1]}),
        ("Conv", [_type(1, 3, 8, 8), _type(4, 3, 3, 3)], {"auto_pad": "SAME"}),
        ("Conv", [_type(1, 3, 2, 8), _type(4, 3, 3, 3)], {}),
        ("Conv", [_type(1, 3, 8), _type(4, 3, 3, dtype=DType.FLOAT16)], {}),
        ("ConvTranspose", [_type(1, 3, 8), _type(2, 4, 3)], {}),
        ("ConvTranspose", [_type(1, 3, 8), _type(3, 4, 3)], {"group": 2}),
        ("ConvTranspose", [_type(1, 3, 8), _type(3, 4, 3)], {"output_shape": [1, 2]}),
        ("ConvTranspose", [_type(1, 3, 2), _type(3, 4, 1)], {"pads": [1, 1]}),
        ("ConvInteger", [_type(1, 3, 8), _type(4, 3, 3)], {}),
        ("Col2Im", [_type(1, 5, 4)], {}),
        ("DeformConv", [_type(1, 2, 5, 5), _type(2, 2, 3, 3), _type(1, 18, 3, 4)], {}),
    ],
)
def test_infer__malformed__invalid_graph(name: str, types: list[TensorType], attributes: dict[str, Any]) -> None:
    op = _op(name, len(types), **attributes)
    if name == "Col2Im":
        shape = np.array([2, 2])
        types = [*types, *(TensorType(DType.INT64, (2,), lambda: shape) for _ in range(2))]
    with pytest.raises(InvalidGraph, match=f"{name}: expected"):
        op.infer(*types)


def test_lower__float64_or_four_axes__unsupported_with_reason() -> None:
    wide = [_type(1, 3, 8, dtype=DType.DOUBLE), _type(4, 3, 3, dtype=DType.DOUBLE)]
    with pytest.raises(Unsupported, match="float64"):
        _op("Conv", 2).lower(Target(), *wide)
    with pytest.raises(Unsupported, match="3 spatial axes"):
        _op("Conv", 2).lower(Target(), _type(1, 3, 4, 4, 4, 4), _type(4, 3, 1, 1, 1, 1))


@pytest.mark.parametrize(
    ("name", "attributes", "kernels", "sizes"),
    [
        ("Conv", {"pads": [1, 1, 1, 1]}, (3, 3), ((1, 64, 28), (2, 96, 30))),
        ("ConvTranspose", {"strides": [2, 2]}, (4, 4), ((1, 64, 28), (1, 64, 30))),
    ],
)
def test_lower__other_sizes__same_pipelines(
    name: str, attributes: dict[str, Any], kernels: tuple[int, int], sizes: tuple[tuple[int, int, int], ...]
) -> None:
    """Sizes for which the same candidate is the cheapest."""
    op = _op(name, 2, **attributes)
    first, second = (op.lower(Target(), _type(n, c, h, h), _type(c, c, *kernels)) for n, c, h in sizes)
    before, after = ([(d.kernel.name, without_fallback(d.kernel.wgsl())) for d in made] for made in (first, second))
    assert [one for one in before if "sum" not in one[0]] == after


def test_lower__channels_of_a_group__the_kernel_that_suits() -> None:
    def names(x: TensorType, w: TensorType, **attributes: Any) -> list[str]:
        return [d.kernel.name.split("_bias")[0] for d in _op("Conv", 2, **attributes).lower(Target(), x, w)]

    assert "depthwise" in names(_type(1, 32, 28, 28), _type(32, 1, 3, 3), group=32)[0]
    assert "direct" in names(_type(1, 32, 28, 28), _type(32, 4, 3, 3), group=8)[0]
    assert "direct" in names(_type(1, 64, 56, 56), _type(64, 1, 31, 31), group=64, pads=[15] * 4)[0]
    assert "implicit_gemm" in names(_type(1, 1, 4000), _type(256, 1, 400), strides=[2])[0]
    gemm, total = names(_type(1, 512, 7, 7), _type(512, 512, 3, 3), pads=[1, 1, 1, 1])
    assert "implicit_gemm" in gemm and "split_sum" in total
    assert "pointwise1" in names(_type(1, 64, 28, 28), _type(64, 64, 1, 1))[0]


def _poisoned(shape: tuple[int, ...], at: tuple[int, ...], value: float) -> Array:
    x = np.zeros(shape, np.float32)
    x[at] = value
    return x


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_conv__not_finite__only_where_windows_see_it(value: float) -> None:
    x, w = _poisoned((1, 1, 6), (0, 0, 2), value), np.ones((1, 1, 2), np.float32)
    (y,) = run_op(_op("Conv", 2), [x, w])
    np.testing.assert_array_equal(np.isfinite(y[0, 0]), [True, False, False, True, True])
    (y,) = run_op(_op("ConvTranspose", 2, strides=[2]), [x, w])
    np.testing.assert_array_equal(np.flatnonzero(~np.isfinite(y[0, 0])), [4, 5])
