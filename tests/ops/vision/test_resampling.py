"""Resize, Upsample, GridSample, AffineGrid, RoiAlign, MaxRoiPool, DepthToSpace, SpaceToDepth on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.reference
import pytest

from pyruntime.errors import InvalidGraph, RuntimeException
from pyruntime.ir import Array, DType, TensorType, ValueNeeded
from pyruntime.kernels import Target
from pyruntime.ops.base import Op, Unsupported
from tests.harness import make_op, run_op, typed
from tests.ops.vision.resampling_cases import grid_cases, region_cases, resize_cases
from tests.oracle import check_against_ort, node_of

SUMS = (1e-3, 1e-3)


def resampling_op(name: str, inputs: list[Array | None], opset: int = 19, **attributes: Any) -> Op:
    """The operator of a node with these inputs."""
    made: Op = make_op(node_of(name, inputs, **attributes), {"": opset})
    return made


def reference(name: str, inputs: list[Array | None], opset: int, **attributes: Any) -> Array:
    """What ONNX's reference implementation computes."""
    node = node_of(name, inputs, **attributes)
    declared = [
        onnx.helper.make_tensor_value_info(f"x{i}", onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for i, x in enumerate(inputs)
        if x is not None
    ]
    graph = onnx.helper.make_graph([node], "one", declared, [onnx.ValueInfoProto(name="y0")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    feed = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    result: Any = onnx.reference.ReferenceEvaluator(model).run(None, feed)
    return np.asarray(result[0])


def _floats(*values: float) -> Array:
    return np.array(values, np.float32)


def _image(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_resize__random__as_onnxruntime() -> None:
    for name, inputs, opset, attributes in resize_cases(120):
        check_against_ort(name, inputs, opset=opset, tolerance=SUMS, **attributes)


def test_grid_sample__random__as_onnxruntime() -> None:
    for name, inputs, opset, attributes in grid_cases(120):
        check_against_ort(name, inputs, opset=opset, tolerance=(1e-3, 1e-4), **attributes)


def test_regions__random__as_onnxruntime() -> None:
    for name, inputs, opset, attributes in region_cases(90):
        check_against_ort(name, inputs, opset=opset, tolerance=(1e-3, 1e-4), **attributes)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_resize__antialias_and_policies__as_the_reference(mode: str, policy: str) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 9, 11)).astype(np.float32)
    for sizes in ([4, 3], [20, 5], [1, 11]):
        for exclude in (0, 1):
            attributes: dict[str, Any] = {"mode": mode, "antialias": 1, "axes": [2, 3], "exclude_outside": exclude}
            inputs: list[Array | None] = [x, None, None, np.array(sizes)]
            op = resampling_op("Resize", inputs, keep_aspect_ratio_policy=policy, **attributes)
            expected = reference("Resize", inputs, 19, keep_aspect_ratio_policy=policy, **attributes)
            np.testing.assert_allclose(run_op(op, inputs)[0], expected, 1e-4, 1e-4)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.float16, np.float64])
def test_resize__sums_of_every_type__rounded_as_the_reference(dtype: type) -> None:
    x: Array = np.random.default_rng(1).integers(0, 100, (1, 1, 5, 6)).astype(dtype)
    inputs: list[Array | None] = [x, None, _floats(1, 1, 1.7, 0.6)]
    for mode in ("linear", "cubic"):
        (y,) = run_op(resampling_op("Resize", inputs, mode=mode), inputs)
        expected = reference("Resize", inputs, 19, mode=mode)
        assert y.dtype == dtype
        np.testing.assert_allclose(y.astype(np.float64), expected.astype(np.float64), 1e-3)


@pytest.mark.parametrize(("name", "opset"), [("Resize", 10), ("Upsample", 9)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize__scales_input_alone__as_onnxruntime(name: str, opset: int, mode: str) -> None:
    for scales in ((1, 1, 2, 3), (1, 1, 1.5, 2.2), (1, 1, 0.6, 0.4))[: 3 if name == "Resize" else 2]:
        check_against_ort(name, [_image(1, 2, 4, 5), _floats(*scales)], opset=opset, mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample__scales_attribute__as_onnxruntime(mode: str) -> None:
    check_against_ort("Upsample", [_image(1, 2, 4, 5)], opset=7, mode=mode, scales=[1.0, 1.0, 2.0, 1.5])


def test_resize__opset_11_with_empty_inputs__as_onnxruntime() -> None:
    x, empty = _image(1, 1, 4, 4), np.array([], np.float32)
    check_against_ort("Resize", [x, empty, _floats(1, 1, 2, 2)], opset=11, mode="cubic")
    check_against_ort("Resize", [x, empty, empty, np.array([1, 1, 3, 7])], opset=11, mode="linear")
    check_against_ort(
        "Resize",
        [x, empty, _floats(1, 1, 0.6, 0.6)],
        opset=11,
        coordinate_transformation_mode="tf_half_pixel_for_nn",
        nearest_mode="floor",
    )


@pytest.mark.parametrize(("length", "scale"), [(5, 1.5), (7, 1.5), (5, 2.3), (9, 1.7), (4, 0.6), (4, 2.0), (5, 0.2)])
def test_resize__corners_aligned_and_a_fractional_scale__as_pytorch_and_onnxruntime(length: int, scale: float) -> None:
    x = _image(1, 1, length, 4) ** 2
    inputs: list[Array | None] = [x, None, _floats(1, 1, scale, 1)]
    aligned: dict[str, Any] = {"coordinate_transformation_mode": "align_corners"}
    (y,) = run_op(resampling_op("Resize", inputs, mode="linear", **aligned), inputs)
    # torch.nn.functional.interpolate places output o of n at o * (length - 1) / (n - 1).
    count = int(length * scale)
    places = np.arange(count) * (length - 1) / max(count - 1, 1)
    expected = [np.interp(places, np.arange(length), x[0, 0, :, k]) for k in range(4)]
    np.testing.assert_allclose(y[0, 0].T, expected, 1e-4)
    for mode in ("nearest", "linear", "cubic"):
        check_against_ort("Resize", inputs, opset=18, tolerance=SUMS, mode=mode, **aligned)


@pytest.mark.parametrize("coordinates", ["align_corners", "half_pixel_symmetric", "asymmetric", "half_pixel"])
@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_resize__nearest_of_many__every_tie_as_onnxruntime(nearest: str, coordinates: str) -> None:
    attributes: dict[str, Any] = {"coordinate_transformation_mode": coordinates, "nearest_mode": nearest}
    for length, output in ((3000, 7001), (7001, 3000), (20, 6), (6, 20), (26, 64)):
        x = _image(1, 1, length)
        check_against_ort("Resize", [x, None, None, np.array([1, 1, output])], opset=19, **attributes)
        check_against_ort("Resize", [x, None, _floats(1, 1, output / length)], opset=19, **attributes)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize__corners_aligned_within_an_aspect_ratio__as_onnxruntime(mode: str, policy: str) -> None:
    for sizes in ([9, 5], [7, 1], [11, 13]):
        check_against_ort(
            "Resize", [_image(1, 2, 6, 9), None, None, np.array(sizes)], opset=19, tolerance=SUMS, mode=mode,
            coordinate_transformation_mode="align_corners", axes=[2, 3], keep_aspect_ratio_policy=policy,
        )  # fmt: skip


def test_resize__crop_of_three_axes__ends_where_onnxruntime_does() -> None:
    roi = _floats(-0.2, 0.3, -0.2, 1.3, 0.9, 1.0)
    for mode in ("nearest", "linear"):
        check_against_ort(
            "Resize", [_image(1, 2, 9, 3, 7), roi, None, np.array([8, 7, 13])], opset=19, tolerance=SUMS, mode=mode,
            coordinate_transformation_mode="tf_crop_and_resize", axes=[2, 3, 4], extrapolation_value=-7.0,
        )  # fmt: skip


def test_resize__third_of_a_size__pixels_at_whole_numbers() -> None:
    x, scales = _image(1, 1, 30), _floats(1, 1, 1 / 3)
    attributes: dict[str, Any] = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    (y,) = run_op(resampling_op("Resize", [x, None, scales], **attributes), [x, None, scales])
    np.testing.assert_array_equal(y[0, 0], np.arange(0, 30, 3))


def test_resize__strings_and_bools__nearest() -> None:
    x = np.array([["a", "b"]], object)
    (y,) = run_op(resampling_op("Resize", [x, None, _floats(2, 2)]), [x, None, _floats(2, 2)])
    assert y.tolist() == [["a", "a", "b", "b"]] * 2
    x = np.array([[True, False]])
    (y,) = run_op(resampling_op("Resize", [x, None, _floats(1, 2)]), [x, None, _floats(1, 2)])
    assert y.dtype == bool and y.tolist() == [[True, True, False, False]]


def test_resampling__no_elements__no_elements() -> None:
    empty = np.zeros((0, 3, 4, 4), np.float32)
    scales = _floats(1, 1, 2, 2)
    assert run_op(resampling_op("Resize", [empty, None, scales], mode="linear"), [empty, None, scales])[0].shape[
        2:
    ] == (8, 8)
    grid = np.zeros((0, 5, 6, 2), np.float32)
    assert run_op(resampling_op("GridSample", [empty, grid]), [empty, grid])[0].shape == (0, 3, 5, 6)
    rois, batch = np.zeros((0, 4), np.float32), np.zeros(0, np.int64)
    x = np.ones((1, 3, 4, 4), np.float32)
    assert run_op(resampling_op("RoiAlign", [x, rois, batch]), [x, rois, batch])[0].shape == (0, 3, 1, 1)
    assert run_op(resampling_op("SpaceToDepth", [empty], blocksize=2), [empty])[0].shape == (0, 12, 2, 2)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_grid_sample__places_out_of_reach__a_value_of_the_input(mode: str, padding: str) -> None:
    x = np.ones((1, 1, 3, 1), np.float32)
    grid = np.array([[[[np.nan, 0], [0, np.inf], [-np.inf, 1e30]]]], np.float32)
    for align in (0, 1):
        op = resampling_op("GridSample", [x, grid], 20, mode=mode, padding_mode=padding, align_corners=align)
        np.testing.assert_allclose(run_op(op, [x, grid])[0], np.full((1, 1, 1, 3), padding != "zeros"), atol=1e-6)


def test_grid_sample__integers__truncated_and_saturated() -> None:
    x = np.array([[[[0, 255, 255, 0]]]], np.uint8)
    grid = np.array([[[[0.0, 0.0], [-0.5, 0.0], [0.2, 0.0]]]], np.float32)
    (linear,) = run_op(resampling_op("GridSample", [x, grid], 20), [x, grid])
    assert linear.dtype == np.uint8 and linear.tolist() == [[[[255, 127, 255]]]]
    (cubic,) = run_op(resampling_op("GridSample", [x, grid], 20, mode="cubic"), [x, grid])
    assert cubic[0, 0, 0, 0] == 255


@pytest.mark.parametrize("rank", [1, 3])
def test_grid_sample__other_ranks__as_the_reference(rank: int) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 2, *(5, 4, 3)[:rank])).astype(np.float32)
    grid = rng.standard_normal((2, *(3, 2, 2)[:rank], rank)).astype(np.float32)
    for mode in ("nearest", "linear", "cubic"):
        expected = reference("GridSample", [x, grid], 20, mode=mode)
        np.testing.assert_allclose(
            run_op(resampling_op("GridSample", [x, grid], 20, mode=mode), [x, grid])[0], expected, 1e-4, 1e-5
        )


def test_affine_grid__one_pixel__lies_at_the_centre() -> None:
    theta, size = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32), np.array([1, 1, 1, 1])
    for align in (0, 1):
        (grid,) = run_op(resampling_op("AffineGrid", [theta, size], 20, align_corners=align), [theta, size])
        np.testing.assert_array_equal(grid, np.zeros((1, 1, 1, 2)))


@pytest.mark.parametrize("name", ["RoiAlign", "MaxRoiPool"])
def test_regions__image_that_does_not_exist__runtime_exception(name: str) -> None:
    x = np.ones((2, 1, 4, 4), np.float32)
    inputs: list[Array | None] = [x, np.array([[2, 0, 0, 1, 1]], np.float32)]
    attributes: dict[str, Any] = {"pooled_shape": [1, 1]}
    if name == "RoiAlign":
        inputs, attributes = [x, np.zeros((1, 4), np.float32), np.array([-1])], {}
    with pytest.raises(RuntimeException, match=r"batch.indices in \[0, (1\]|2\))"):
        run_op(resampling_op(name, inputs, 16, **attributes), inputs)


def test_depth_to_space__and_back__unchanged() -> None:
    x = _image(2, 12, 4, 6)
    for mode in ("DCR", "CRD"):
        (deep,) = run_op(resampling_op("DepthToSpace", [x], 28, blocksize=2, mode=mode), [x])
        assert deep.shape == (2, 3, 8, 12)
        (back,) = run_op(resampling_op("SpaceToDepth", [deep], 28, blocksize=2, mode=mode), [deep])
        np.testing.assert_array_equal(back, x)
    check_against_ort("DepthToSpace", [x], opset=1, blocksize=2)
    check_against_ort("SpaceToDepth", [x], opset=13, blocksize=2)
    assert resampling_op("SpaceToDepth", [x], blocksize=1).alias(typed(x)) == 0


@pytest.mark.parametrize(
    ("name", "inputs", "attributes"),
    [
        ("Resize", [_image(2, 2), None, _floats(1)], {}),
        ("Resize", [_image(2, 2), None, _floats(1, -2)], {}),
        ("Resize", [_image(2, 2), None, _floats(1, 2), np.array([2, 2])], {}),
        ("Resize", [_image(2, 2)], {}),
        ("Resize", [_image(2, 2), None, _floats(1, 2)], {"mode": "quintic"}),
        ("Resize", [_image(2, 2), None, _floats(1, 2)], {"antialias": 1}),
        (
            "Resize",
            [_image(2, 2), _floats(0, 1), _floats(1, 2)],
            {"coordinate_transformation_mode": "tf_crop_and_resize"},
        ),
        ("Resize", [_image(2, 2), None, _floats(2)], {"axes": [2]}),
        ("Resize", [_image(2, 2), None, _floats(2, 2)], {"axes": [1, -1]}),
        ("Resize", [_image(2, 0), None, None, np.array([2, 1])], {}),
        ("GridSample", [_image(1, 1, 2, 2), np.zeros((1, 2, 2, 3), np.float32)], {}),
        ("GridSample", [_image(1, 1, 2, 2), np.zeros((1, 2, 2, 2), np.float32)], {"mode": "best"}),
        ("RoiAlign", [_image(1, 1, 2, 2), np.zeros((1, 5), np.float32), np.zeros(1, np.int64)], {}),
        ("MaxRoiPool", [_image(1, 1, 2, 2), np.zeros((1, 4), np.float32)], {"pooled_shape": [1, 1]}),
        ("DepthToSpace", [_image(1, 3, 2, 2)], {"blocksize": 2}),
        ("SpaceToDepth", [_image(1, 3, 3, 2)], {"blocksize": 2}),
        ("SpaceToDepth", [_image(3, 4, 2)], {"blocksize": 2}),
    ],
)
def test_infer__malformed__invalid_graph(name: str, inputs: list[Array | None], attributes: dict[str, Any]) -> None:
    with pytest.raises(InvalidGraph, match=f"{name}: expected"):
        resampling_op(name, inputs, **attributes).infer(*(typed(x) for x in inputs))


def test_resize__scales_unknown_while_planning__asked_for() -> None:
    x, scales = typed(_image(2, 2)), typed(_floats(1, 2), known=False)
    with pytest.raises(ValueNeeded):
        resampling_op("Resize", [_image(2, 2), None, _floats(1, 2)]).infer(x, None, scales)


def test_lower__sums_that_float32_cannot_hold__unsupported() -> None:
    scales = typed(_floats(1, 1, 2, 2))
    for dtype in (DType.DOUBLE, DType.INT32, DType.INT64):
        x = TensorType(dtype, (1, 1, 2, 2))
        with pytest.raises(Unsupported, match="exact on the host"):
            resampling_op("Resize", [_image(1), None, _floats(1)], mode="linear").lower(Target(), x, None, scales)
        assert resampling_op("Resize", [_image(1), None, _floats(1)]).lower(Target(), x, None, scales)
