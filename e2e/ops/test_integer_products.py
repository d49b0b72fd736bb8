"""Products of bytes on the GPU: exact sums, whatever kernel makes them."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.harness import make_op, run_op, typed
from tests.oracle import check_against_ort, node_of
from tests.quantized.cases import conv_case, matmul_case, rngs, trimmed
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
