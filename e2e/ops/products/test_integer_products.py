"""Int8 products on the GPU: exact sums, whatever kernel makes them."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pyruntime.ops.fused.integer_conv_channels_last import ChannelsLast, channels_last_weights
from tests.harness import make_op, run_op, typed
from tests.oracle import check_against_ort, node_of
from tests.quantized.cases import bytes_of, conv_case, matmul_case, rngs, trimmed
from tests.sampling import ALL, matrix

DEVICES = ["gpu", "unpacked", "software"]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, gpu: Any) -> Any:
    """A GPU, one without packed dot products, and a processor."""
    other = copy.copy(gpu)
    if request.param == "unpacked":
        other.target = replace(gpu.target, features=frozenset())
    elif request.param == "software":
        other.target = replace(gpu.target, vendor="google")
    return other


def test_gpu__of_chromium__has_packed_dot_products(gpu: Any) -> None:
    assert "packed_4x8_integer_dot_product" in gpu.target.features


def test_matmul_integer__random_cases__as_onnxruntime(device: Any) -> None:
    for seed, rng in rngs(24 if ALL else 12):
        inputs = trimmed(matmul_case(rng))
        try:
            check_against_ort("MatMulInteger", inputs, device)
        except Exception as error:
            raise AssertionError(f"PYRUNTIME_SEED={seed}: {[getattr(x, 'shape', x) for x in inputs]}") from error


CONFIGURATIONS = [
    (130, 96, 384), (64, 1200, 64), (700, 700, 40), (1, 9000, 36), (8, 64, 1536), (33, 65, 47), (3, 1, 9)
]  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "zero", "device"), matrix(CONFIGURATIONS, [0, 128, 201], DEVICES), indirect=["device"]
)
def test_matmul_integer__every_configuration__is_exact(shape: tuple[int, int, int], zero: int, device: Any) -> None:
    m, n, k = shape
    rng = np.random.default_rng([m, n, k])
    a = rng.integers(0, 256, (m, k)).astype(np.uint8)
    b = rng.integers(-128, 128, (k, n)).astype(np.int8)
    check_against_ort("MatMulInteger", [a, b, np.array(zero, np.uint8)], device)
    check_against_ort(
        "MatMulInteger",
        [a, b.astype(np.uint8), np.array(zero, np.uint8), rng.integers(0, 256, n).astype(np.uint8)],
        device,
    )


def test_matmul_integer__extremes__do_not_overflow(device: Any) -> None:
    a, b = np.full((9, 4096), 255, np.uint8), np.full((4096, 12), 255, np.uint8)
    check_against_ort("MatMulInteger", [a, b, np.array(0, np.uint8), np.array(0, np.uint8)], device)
    check_against_ort("MatMulInteger", [a * 0, b, np.array(255, np.uint8), np.array(0, np.uint8)], device)


def test_matmul_integer__rows_with_zero_points__as_numpy(device: Any) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 256, (37, 50)).astype(np.uint8), rng.integers(0, 256, (50, 21)).astype(np.uint8)
    inputs: list[Any] = [a, b, rng.integers(0, 256, 37).astype(np.uint8), rng.integers(0, 256, 21).astype(np.uint8)]
    op = make_op(node_of("MatMulInteger", inputs), {"": 21})
    (mine,), (expected,) = run_op(op, inputs, device), run_op(op, inputs)
    np.testing.assert_array_equal(mine, expected)


def test_conv_integer__random_cases__as_onnxruntime(device: Any) -> None:
    for seed, rng in rngs(24 if ALL else 12):
        inputs, attributes = conv_case(rng)
        note = f"PYRUNTIME_SEED={seed}: {[getattr(x, 'shape', x) for x in inputs]} {attributes}"
        given = trimmed(inputs)
        try:
            if len(given) < 4 or given[3].size == 1:
                check_against_ort("ConvInteger", given, device, **attributes)
            else:  # onnxruntime has one zero point for the tensor alone
                op = make_op(node_of("ConvInteger", given, **attributes), {"": 21})
                np.testing.assert_array_equal(run_op(op, given, device)[0], run_op(op, given)[0])
        except Exception as error:
            raise AssertionError(note) from error


@pytest.mark.parametrize("op_type", ["MatMulInteger", "ConvInteger"])
def test_zero_points__that_come_with_a_run__as_numpy(op_type: str, device: Any) -> None:
    rng = np.random.default_rng(5)
    shapes = ((9, 36), (36, 20)) if op_type == "MatMulInteger" else ((2, 8, 9, 7), (12, 8, 3, 3))
    for size in ((), (20 if op_type == "MatMulInteger" else 12,)):
        inputs: list[Any] = [rng.integers(0, 256, s).astype(np.uint8) for s in (*shapes, (), size)]
        inputs = [np.asarray(x, np.uint8) for x in inputs]
        op: Any = make_op(node_of(op_type, inputs), {"": 21})
        types: list[Any] = [typed(x, known=False) for x in inputs]
        (mine,) = device.run(op.lower(device.target, *types), inputs, types, op.infer(*types))
        np.testing.assert_array_equal(mine, run_op(op, inputs)[0])


def _with_channels_last(given: list[Any], attributes: dict[str, Any], gpu: Any) -> tuple[list[Any], list[str]]:
    """ConvInteger with its weights turned, both on `gpu`; and the names of the kernels."""
    plain: Any = make_op(node_of("ConvInteger", given, **attributes), {"": 21})
    (turned,) = run_op(ChannelsLast(), [given[1]], gpu)
    np.testing.assert_array_equal(turned, run_op(ChannelsLast(), [given[1]])[0])
    inputs = [given[0], turned, *given[2:]]
    op: Any = channels_last_weights(plain, given[1].shape[1])
    names = [d.kernel.name for d in op.lower(gpu.target, *map(typed, inputs))]
    assert typed(run_op(op, inputs)[0]) == op.infer(*map(typed, inputs))[0]
    return run_op(op, inputs, gpu), names


def test_conv_integer_channels_last__random_cases__as_numpy(software: Any) -> None:
    for seed, rng in rngs(24 if ALL else 12):
        inputs, attributes = conv_case(rng)
        given = trimmed(inputs)
        if attributes["group"] > 1:
            given = [x if i < 3 or x is None else x.reshape(-1)[0] for i, x in enumerate(given)]
        op = make_op(node_of("ConvInteger", given, **attributes), {"": 21})
        note = f"PYRUNTIME_SEED={seed}: {[getattr(x, 'shape', x) for x in given]} {attributes}"
        (mine,), _ = _with_channels_last(given, attributes, software)
        np.testing.assert_array_equal(mine, run_op(op, given)[0], note)


@pytest.mark.parametrize(
    ("x", "w", "attributes", "kernel"),
    [
        ((1, 3, 20, 24), (16, 3, 7, 7), {"strides": [2, 2], "pads": [3, 3, 3, 3]}, "conv_int8_direct"),
        ((2, 24, 9, 8), (12, 24, 3, 3), {"pads": [1, 1, 1, 1]}, "conv_int8_direct"),  # sums of several positions
        ((1, 300, 6, 7), (5, 300, 2, 1), {}, "conv_int8_direct"),  # positions of more than f32 sums exactly
        ((1, 1030, 5), (9, 1030, 3), {"pads": [1, 1]}, "conv_int8_direct"),
        ((2, 8, 9, 12), (8, 1, 3, 3), {"group": 8, "pads": [1, 1, 1, 1]}, "conv_depthwise_int8"),
        ((1, 6, 10, 11), (12, 1, 5, 5), {"group": 6, "pads": [2, 1, 2, 3]}, "conv_depthwise_int8"),
        ((1, 4, 9, 16), (4, 1, 3, 3), {"group": 4, "strides": [2, 2], "pads": [1, 1, 1, 1]}, "conv_depthwise_int8"),
        ((1, 4, 9, 8), (4, 1, 3, 4), {"group": 4, "strides": [1, 2], "pads": [0, 5, 2, 5]}, "conv_depthwise_int8"),
        ((1, 1, 9, 12), (5, 1, 3, 3), {"pads": [1, 1, 1, 1]}, "conv_"),
        ((1, 3, 7, 8), (3, 1, 3, 3), {"group": 3, "dilations": [2, 2]}, "conv_"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("signed", [False, True])
def test_conv_integer_channels_last__extremes__are_exact(
    x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any], kernel: str, signed: bool, software: Any
) -> None:
    rng = np.random.default_rng([*x, *w, signed])
    kind, other = (np.int8, np.uint8) if signed else (np.uint8, np.int8)
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    for zero, fill in ((least, most), (most, least), (3, None)):
        pixels = np.full(x, fill, kind) if fill is not None else bytes_of(rng, kind, x)
        weights = np.full(w, np.iinfo(other).min, other) if fill is not None else bytes_of(rng, other, w)
        given: list[Any] = [pixels, weights, np.array(zero, kind), np.array(np.iinfo(other).max, other)]
        op = make_op(node_of("ConvInteger", given, **attributes), {"": 21})
        (mine,), names = _with_channels_last(given, attributes, software)
        np.testing.assert_array_equal(mine, run_op(op, given)[0])
        assert names[0].startswith(kernel)


def test_qlinear_conv_channels_last__as_qlinear_conv(software: Any) -> None:
    rng = np.random.default_rng(8)
    x, w = bytes_of(rng, np.uint8, (2, 5, 9, 8)), bytes_of(rng, np.int8, (6, 5, 3, 3))
    scales = [np.float32(0.02), rng.uniform(0.001, 0.004, 6).astype(np.float32), np.float32(0.05)]
    bias = rng.integers(-3000, 3000, 6).astype(np.int32)
    given: list[Any] = [x, scales[0], np.uint8(7), w, scales[1], np.zeros(6, np.int8), scales[2], np.uint8(120), bias]
    given = [np.asarray(v) for v in given]
    plain: Any = make_op(node_of("QLinearConv", given, pads=[1, 1, 1, 1]), {"": 21})
    inputs = [*given[:3], run_op(ChannelsLast(), [w])[0], *given[4:]]
    op: Any = channels_last_weights(plain, 5)
    (expected,) = run_op(plain, given)
    np.testing.assert_array_equal(run_op(op, inputs)[0], expected)
    np.testing.assert_array_equal(run_op(op, inputs, software)[0], expected)
    assert len(np.unique(expected)) > 50
