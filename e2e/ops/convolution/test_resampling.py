"""Resize, Upsample, GridSample, AffineGrid, RoiAlign, MaxRoiPool, DepthToSpace, SpaceToDepth on the GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from e2e.harness.gpu import Gpu
from pyruntime.ir import Array
from tests.harness import run_op
from tests.ops.vision.resampling_cases import grid_cases, region_cases, resize_cases
from tests.ops.vision.test_resampling import resampling_op
from tests.oracle import check_against_ort

SUMS = (1e-3, 1e-3)
EVERY = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]


def _array(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    numpy = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    return np.random.default_rng(seed).integers(0, 100, shape).astype(numpy)


def _floats(values: Any) -> Array:
    return np.array(values, np.float32)


def _as_host(
    gpu: Gpu, name: str, inputs: list[Array | None], opset: int = 20, tolerance: float = 1e-4, **attributes: Any
) -> Array:
    """The GPU's result, after comparing it with the host's (integers exactly)."""
    op = resampling_op(name, inputs, opset, **attributes)
    (host,), (device,) = run_op(op, list(inputs)), run_op(op, list(inputs), gpu)
    assert device.shape == host.shape and device.dtype == host.dtype
    if host.dtype.kind == "f":
        np.testing.assert_allclose(device.astype(np.float64), host.astype(np.float64), tolerance, tolerance)
    else:
        np.testing.assert_array_equal(device, host)
    return device


def test_resize__random__as_onnxruntime(gpu: Gpu) -> None:
    for name, inputs, opset, attributes in resize_cases(50, 1):
        check_against_ort(name, inputs, gpu, opset=opset, tolerance=SUMS, **attributes)


def test_grid_sample__random__as_onnxruntime(gpu: Gpu) -> None:
    for name, inputs, opset, attributes in grid_cases(40, 1):
        check_against_ort(name, inputs, gpu, opset=opset, tolerance=SUMS, **attributes)


def test_regions__random__as_onnxruntime(gpu: Gpu) -> None:
    for name, inputs, opset, attributes in region_cases(30, 1):
        check_against_ort(name, inputs, gpu, opset=opset, tolerance=(1e-3, 1e-4), **attributes)


@pytest.mark.parametrize("dtype", [*EVERY, *FLOATS])
def test_nearest__every_type__moved_exactly(gpu: Gpu, dtype: str) -> None:
    x = _array((2, 3, 5, 7), dtype)
    _as_host(gpu, "Resize", [x, None, _floats([1, 1, 2, 0.6])], tolerance=0)
    grid = (np.random.default_rng(1).standard_normal((2, 3, 3, 2)) * 1.2).astype(np.float32)
    _as_host(gpu, "GridSample", [x, grid], mode="nearest", tolerance=0)
    roi = _floats([0, 0, -0.5, 0.2, 1, 1, 1.2, 0.8])
    crop: dict[str, Any] = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 3.0}
    _as_host(gpu, "Resize", [x, roi, None, np.array([2, 3, 4, 4])], tolerance=0, **crop)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 2e-3), ("bfloat16", 1e-2), ("uint8", 0), ("int16", 0)])
def test_sums__narrow_types__as_host(gpu: Gpu, dtype: str, tolerance: float) -> None:
    x = _array((1, 3, 9, 7), dtype, 2)
    for mode in ("linear", "cubic"):
        # Scales of two and a half have exact weights, so that both round the same ties.
        _as_host(gpu, "Resize", [x, None, _floats([1, 1, 2, 0.5])], mode=mode, tolerance=tolerance)
    grid = _floats([[[[0, 0], [0.25, -0.5], [1.5, 0]]]])
    _as_host(gpu, "GridSample", [x, grid], align_corners=1, tolerance=tolerance)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resize__many_positions_and_axes__axis_by_axis(gpu: Gpu, mode: str) -> None:
    x = np.random.default_rng(3).standard_normal((1, 2, 40, 30)).astype(np.float32)
    _as_host(gpu, "Resize", [x, None, _floats([1, 1, 0.13, 0.3])], mode=mode, antialias=1)
    _as_host(gpu, "Resize", [x, None, _floats([1, 1.5, 0.5, 2])], mode=mode)
    volume = np.random.default_rng(4).standard_normal((1, 2, 4, 5, 3)).astype(np.float32)
    _as_host(gpu, "Resize", [volume, None, _floats([1, 1, 2, 1.7, 3])], mode=mode)


def test_resize__nothing_changes__copied(gpu: Gpu) -> None:
    x = np.random.default_rng(5).standard_normal((2, 3, 4)).astype(np.float32)
    _as_host(gpu, "Resize", [x, None, _floats([1, 1, 1])], mode="linear", tolerance=0)
    _as_host(gpu, "Resize", [x, None, _floats([1, 1, 2])], mode="linear")


def test_resize__older_opsets__as_host(gpu: Gpu) -> None:
    x = np.random.default_rng(6).standard_normal((1, 2, 4, 5)).astype(np.float32)
    for mode in ("nearest", "linear"):
        _as_host(gpu, "Upsample", [x], 7, mode=mode, scales=[1.0, 1.0, 2.0, 1.5])
        _as_host(gpu, "Upsample", [x, _floats([1, 1, 2, 1.5])], 9, mode=mode)
        _as_host(gpu, "Resize", [x, _floats([1, 1, 0.6, 0.6])], 10, mode=mode)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_grid_sample__ranks_and_places_out_of_reach__as_host(gpu: Gpu, mode: str, padding: str) -> None:
    rng = np.random.default_rng(7)
    for rank in (1, 2, 3):
        x = rng.standard_normal((2, 2, *(5, 4, 3)[:rank])).astype(np.float32)
        grid = rng.standard_normal((2, *(3, 2, 2)[:rank], rank)).astype(np.float32)
        grid.reshape(-1)[:4] = [np.nan, np.inf, -np.inf, 1e20]
        _as_host(gpu, "GridSample", [x, grid], mode=mode, padding_mode=padding)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_regions_and_affine__halves__as_host(gpu: Gpu, dtype: str) -> None:
    numpy = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    x = np.random.default_rng(8).standard_normal((2, 3, 8, 8)).astype(numpy)
    boxes = np.array([[0, 0, 6, 5], [1, 2, 7, 7]]).astype(numpy)
    _as_host(gpu, "RoiAlign", [x, boxes, np.array([1, 0])], 22, 2e-2, output_height=3, output_width=2)
    rois = np.array([[1, 0, 0, 6, 5], [0, 1, 2, 7, 7]]).astype(numpy)
    _as_host(gpu, "MaxRoiPool", [x, rois], 22, 0, pooled_shape=[2, 3])
    theta = np.random.default_rng(9).standard_normal((2, 2, 3)).astype(numpy)
    _as_host(gpu, "AffineGrid", [theta, np.array([2, 1, 3, 5])], 20, 2e-2)


@pytest.mark.parametrize("dtype", [*EVERY, *FLOATS])
def test_depth_to_space__every_type_and_mode__as_host(gpu: Gpu, dtype: str) -> None:
    for mode in ("DCR", "CRD"):
        _as_host(gpu, "DepthToSpace", [_array((2, 8, 3, 5), dtype)], 28, 0, blocksize=2, mode=mode)
        _as_host(gpu, "SpaceToDepth", [_array((2, 3, 4, 6), dtype)], 28, 0, blocksize=2, mode=mode)


def test_resampling__no_elements__no_elements(gpu: Gpu) -> None:
    empty = np.zeros((0, 3, 4, 4), np.float32)
    _as_host(gpu, "Resize", [empty, None, _floats([1, 1, 2, 2])], mode="linear")
    _as_host(gpu, "GridSample", [empty, np.zeros((0, 5, 6, 2), np.float32)])
    _as_host(gpu, "SpaceToDepth", [empty], blocksize=2)
