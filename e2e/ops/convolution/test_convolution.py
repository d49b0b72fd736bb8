"""Conv, ConvTranspose, ConvInteger, QLinearConv, DeformConv, Col2Im on the GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.ir import Array
from pyruntime.kernels import Limits, Target
from pyruntime.kernels.convolution import convolution
from pyruntime.kernels.convolution.candidates import CONVOLUTIONS
from pyruntime.kernels.selection.candidates import Family
from pyruntime.ops.registry import newest
from tests.harness import carrier, make_op, run_op, typed
from tests.ops.convolution.conv_cases import conv_cases, conv_transpose_cases, deform_cases, integer_cases
from tests.oracle import check_against_ort, node_of

SUMS = (1e-3, 1e-4)
HALVES = {"float16": (2e-3, 2e-3), "bfloat16": (2e-2, 2e-2)}


def _as_host(
    gpu: Gpu, name: str, inputs: list[Array | None], tolerance: tuple[float, float] = SUMS, **attributes: Any
) -> Array:
    """The GPU's result, after comparing it with the host's (integers exactly)."""
    op = make_op(node_of(name, inputs, **attributes), {"": 22})
    (host,), (device,) = run_op(op, list(inputs)), run_op(op, list(inputs), gpu)
    assert device.shape == host.shape and device.dtype == host.dtype
    if host.dtype.kind == "f":
        np.testing.assert_allclose(device.astype(np.float32), host.astype(np.float32), *tolerance)
    else:
        np.testing.assert_array_equal(device, host)
    return device


def _floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_conv__random__as_onnxruntime(gpu: Gpu, software: Gpu) -> None:
    for number, (inputs, attributes) in enumerate(conv_cases(24, 3)):
        check_against_ort("Conv", inputs, software if number % 4 else gpu, tolerance=SUMS, **attributes)


def test_conv_transpose__random__as_onnxruntime(gpu: Gpu, software: Gpu) -> None:
    for number, (inputs, attributes) in enumerate(conv_transpose_cases(24, 3)):
        check_against_ort("ConvTranspose", inputs, software if number % 4 else gpu, tolerance=SUMS, **attributes)


def test_conv_integer__random__as_onnxruntime(gpu: Gpu, software: Gpu) -> None:
    for number, (inputs, attributes) in enumerate(integer_cases(10, quantised=False, seed=3)):
        check_against_ort("ConvInteger", inputs, software if number % 3 else gpu, opset=10, **attributes)


def test_qlinear_conv__random__as_onnxruntime(software: Gpu) -> None:
    for inputs, attributes in integer_cases(10, quantised=True, seed=3):
        check_against_ort("QLinearConv", inputs, software, opset=10, **attributes)


def test_qlinear_conv__scales_unknown_while_planning__computed_there(software: Gpu) -> None:
    for inputs, attributes in integer_cases(4, quantised=True, seed=4):
        op = make_op(node_of("QLinearConv", inputs, **attributes), {"": 10})
        (host,) = run_op(op, list(inputs))
        types = [typed(x, known=False) for x in inputs]
        values = [None if x is None else carrier(x)[1] for x in inputs]
        (device,) = software.run(op.lower(software.target, *types), values, types, op.infer(*types))
        difference = np.abs(device.astype(int) - host.astype(int))
        assert difference.max() <= 1 and np.mean(difference > 0) < 0.01


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_deform_conv__random__as_host(software: Gpu, rank: int) -> None:
    for inputs, attributes in deform_cases(4, rank, 3):
        _as_host(software, "DeformConv", inputs, **attributes)


@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((1, 64, 14, 14), (64, 64, 3, 3), {"pads": [1, 1, 1, 1]}),  # four slices, split k
        ((2, 16, 9, 9), (40, 16, 3, 3), {"strides": [2, 2]}),  # two slices, odd pixels
        ((2, 64, 12, 12), (96, 64, 1, 1), {}),  # pointwise, vectors
        ((3, 300, 1, 1), (33, 300, 1, 1), {}),  # pointwise of one pixel
        ((1, 24, 30), (48, 8, 3), {"group": 3}),  # groups of many channels, one axis
        ((1, 3, 40, 40), (16, 3, 7, 7), {"strides": [2, 2], "pads": [3, 3, 3, 3]}),  # a network's stem
    ],
)
def test_conv__shapes_of_networks__as_host(
    gpu: Gpu, software: Gpu, x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    for device in (gpu, software):
        _as_host(device, "Conv", [_floats(*x), _floats(*w, seed=1), _floats(w[0], seed=2)], **attributes)


@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((2, 5, 24, 22), (13, 5, 3, 3), {"pads": [1, 1, 1, 1]}),  # the last block has five channels
        ((1, 6, 33, 35), (20, 3, 3, 2), {"group": 2, "dilations": [2, 1]}),  # the last block has two; odd pixels
        ((1, 3, 8, 12, 13), (7, 3, 2, 2, 2), {}),  # fewer than eight, three axes
        ((3, 17, 400), (9, 17, 1), {}),  # pointwise
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
def test_conv__eight_channels_an_invocation__as_host(
    software: Gpu, x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any], dtype: type
) -> None:
    integer = dtype is np.int8
    inputs: list[Array | None] = [(5 * _floats(*x)).astype(dtype), (5 * _floats(*w, seed=1)).astype(dtype)]
    inputs += (
        [np.array([-3], np.int8), np.arange(w[0], dtype=np.int8)] if integer else [_floats(w[0], seed=2).astype(dtype)]
    )
    name = "ConvInteger" if integer else "Conv"
    op = make_op(node_of(name, inputs, **attributes), {"": 22})
    (made,) = op.lower(software.target, *map(typed, inputs))
    pointwise = integer and len(w) == 3
    assert ("conv_matmul_integer_direct_8" if pointwise else "eight") in made.kernel.name
    _as_host(software, name, inputs, (4e-3, 4e-2) if dtype is np.float16 else SUMS, **attributes)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_conv__halves__as_host(gpu: Gpu, dtype: str) -> None:
    numpy = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    shapes: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
        ("Conv", (1, 16, 8, 8), (32, 16, 3, 3), {"pads": [1, 1, 1, 1]}),
        ("Conv", (1, 16, 7, 7), (32, 16, 1, 1), {}),
        ("Conv", (1, 16, 8, 8), (16, 1, 3, 3), {"group": 16}),
        ("Conv", (1, 3, 5, 5), (3, 3, 3, 3), {}),
        ("ConvTranspose", (1, 8, 4, 4), (8, 16, 3, 3), {"strides": [2, 2]}),
        ("ConvTranspose", (1, 8, 4, 4), (8, 3, 3, 3), {"strides": [2, 2]}),
    ]
    for name, x, w, attributes in shapes:
        scale = np.float32((w[1] * 9) ** -0.5)
        given: list[Array | None] = [_floats(*x).astype(numpy), (scale * _floats(*w, seed=1)).astype(numpy)]
        _as_host(gpu, name, given, HALVES[dtype], **attributes)


def test_conv_transpose__infinity__only_where_positions_meet_it(gpu: Gpu) -> None:
    for maps in (1, 16):
        x, w = np.zeros((1, 1, 6), np.float32), np.ones((1, maps, 3), np.float32)
        x[0, 0, 2] = np.inf
        y = _as_host(gpu, "ConvTranspose", [x, w], strides=[2])
        np.testing.assert_array_equal(np.flatnonzero(~np.isfinite(y[0, 0])), [4, 5, 6])


def test_conv__more_tiles_than_workgroups_in_x__folded(gpu: Gpu) -> None:
    tight = Target(replace(Limits(), workgroups=16))
    for name, w in (("Conv", (40, 2, 3, 3)), ("Conv", (2, 2, 3, 3)), ("ConvTranspose", (2, 40, 3, 3))):
        inputs = [_floats(2, 2, 24, 24), _floats(*w, seed=1)]
        op = make_op(node_of(name, inputs), {"": 22})
        types = [typed(x) for x in inputs]
        dispatches = op.lower(tight, *types)
        assert max(max(d.grid) for d in dispatches) <= 16
        (device,) = gpu.run(dispatches, inputs, types, op.infer(*types))
        np.testing.assert_allclose(device, run_op(op, list(inputs))[0], *SUMS)


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "bool"]
)
def test_col2im__every_type__as_host(gpu: Gpu, dtype: str) -> None:
    numpy = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    x = np.random.default_rng(5).integers(0, 100, (2, 12, 24)).astype(numpy)
    attributes: dict[str, Any] = {"pads": [0, 1, 0, 1], "dilations": [1, 2]}
    _as_host(gpu, "Col2Im", [x, np.array([5, 6]), np.array([2, 2])], (0, 0), **attributes)


def test_col2im__64_bits__carried(gpu: Gpu) -> None:
    x = np.full((1, 2, 3), 2**62 - 1, np.int64)
    y = _as_host(gpu, "Col2Im", [x, np.array([4]), np.array([2])])
    assert y[0, 0, 1] == 2**63 - 2


@pytest.mark.parametrize(
    ("name", "x", "w", "attributes"),
    [
        ("Conv", (2, 5, 9, 11), (60, 5, 3, 3), {}),
        ("Conv", (1, 8, 10, 12), (120, 4, 3, 3), {"group": 2, "pads": (1, 1, 1, 1)}),
        ("ConvTranspose", (1, 5, 8, 8), (5, 50, 3, 3), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ],
)
def test_convolution__tiles_of_64__as_host(
    gpu: Gpu, name: str, x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any], monkeypatch: Any
) -> None:
    only = Family("convolution", (CONVOLUTIONS.named("gemm_m1"),), {})
    monkeypatch.setattr(convolution, "CONVOLUTIONS", only)
    rng = np.random.default_rng(3)
    channels = w[0] if name == "Conv" else w[1]
    inputs = [rng.standard_normal(s).astype(np.float32) for s in (x, w, (channels,))]
    op = newest(name, **attributes)
    target = replace(gpu.target, vendor="")
    assert all("side16" in d.kernel.name for d in op.lower(target, *map(typed, inputs)))
    (expected,) = run_op(op, list(inputs))
    (got,) = run_op(op, list(inputs), gpu)
    np.testing.assert_allclose(got, expected, 1e-4, 1e-4)
