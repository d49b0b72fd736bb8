"""BatchNormalization, InstanceNormalization, GroupNormalization, MeanVarianceNormalization, LRN on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph
from pyruntime.ir import Array, DType, TensorType
from pyruntime.kernels import Target
from pyruntime.ops.base import Op, Unsupported
from tests.harness import make_op, run_op
from tests.oracle import check_against_ort, node_of, ort_run

FAMILY = {"BatchNormalization", "InstanceNormalization", "GroupNormalization", "MeanVarianceNormalization", "LRN"}
SHAPES = [(2, 4), (2, 4, 7), (3, 4, 5, 6), (1, 4, 2, 3, 4)]


def normalization_op(name: str, inputs: int = 1, outputs: int = 1, opset: int = 22, **attributes: Any) -> Op:
    """The operator of a node with `inputs` inputs."""
    made: Op = make_op(node_of(name, [np.zeros(1)] * inputs, outputs, **attributes), {"": opset})
    return made


def batch_inputs(shape: tuple[int, ...], statistics: tuple[int, ...], seed: int = 0) -> list[Array | None]:
    """x, scale, b, mean, var."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 3 + 1
    scale, b, mean = (rng.standard_normal(statistics) for _ in range(3))
    return [a.astype(np.float32) for a in (x, scale, b, mean, rng.random(statistics) + 0.5)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_normalization__given_statistics__as_onnxruntime(shape: tuple[int, ...], opset: int) -> None:
    check_against_ort("BatchNormalization", batch_inputs(shape, (4,)), opset=opset, epsilon=1e-3)


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_batch_normalization__training__as_onnxruntime(shape: tuple[int, ...]) -> None:
    inputs = batch_inputs(shape, (4,))
    check_against_ort("BatchNormalization", inputs, opset=15, outputs=3, training_mode=1, momentum=0.7)
    got = run_op(normalization_op("BatchNormalization", 5, 5, opset=9, momentum=0.7), inputs)
    expected = ort_run("BatchNormalization", inputs, opset=9, outputs=5, momentum=0.7)
    # The fifth, saved_var, is an inverse deviation in onnxruntime.
    for mine, theirs in zip(got[:4], expected[:4], strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-4, 1e-5)


def test_batch_normalization__old_training__saves_batch_statistics() -> None:
    inputs = batch_inputs((3, 4, 5), (4,))
    x = inputs[0]
    assert x is not None
    *_, mean, var = run_op(normalization_op("BatchNormalization", 5, 5, opset=9), inputs)
    np.testing.assert_allclose(mean, x.mean((0, 2)), 1e-5, 1e-6)
    np.testing.assert_allclose(var, x.var((0, 2)), 1e-5)


def test_batch_normalization__not_spatial__statistics_per_activation() -> None:
    check_against_ort("BatchNormalization", batch_inputs((2, 4, 3), (4, 3)), opset=7, spatial=0)


def test_batch_normalization__large_mean__variance_without_cancellation() -> None:
    inputs = batch_inputs((4, 2, 100), (2,))
    assert inputs[0] is not None
    inputs[0] = inputs[0] + np.float32(1e5)
    y, _, _ = run_op(normalization_op("BatchNormalization", 5, 3, training_mode=1), inputs)
    x, scale, b = (np.asarray(a, np.float64) for a in inputs[:3])
    expected = (x - x.mean((0, 2), keepdims=True)) / np.sqrt(x.var((0, 2), keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, expected * scale[:, None] + b[:, None], 1e-3, 1e-2)


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_instance_normalization__random__as_onnxruntime(shape: tuple[int, ...]) -> None:
    check_against_ort("InstanceNormalization", batch_inputs(shape, (4,))[:3], opset=6, epsilon=1e-3)
    check_against_ort("InstanceNormalization", batch_inputs(shape, (4,))[:3], opset=22, tolerance=(1e-4, 1e-5))


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_group_normalization__random__as_onnxruntime(shape: tuple[int, ...]) -> None:
    check_against_ort("GroupNormalization", batch_inputs(shape, (4,))[:3], opset=21, num_groups=2)
    check_against_ort("GroupNormalization", batch_inputs(shape, (2,))[:3], opset=18, num_groups=2)


@pytest.mark.parametrize("axes", [[0, 2], [1, 3], [-1], [0, 1, 2, 3], None])
def test_mean_variance_normalization__axes__as_onnxruntime(axes: list[int] | None) -> None:
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 5)).astype(np.float32)
    attributes: dict[str, Any] = {} if axes is None else {"axes": axes}
    check_against_ort("MeanVarianceNormalization", [x], opset=13, tolerance=(1e-3, 1e-4), **attributes)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 5), (2, 3, 4, 2, 2)])
def test_mean_variance_normalization__of_other_ranks_without_axes__as_onnxruntime(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    check_against_ort("MeanVarianceNormalization", [x], opset=13)


@pytest.mark.parametrize("across", [0, 1])
@pytest.mark.parametrize("variance", [0, 1])
def test_mean_variance_normalization__first_version__as_onnxruntime(across: int, variance: int) -> None:
    x = np.random.default_rng(3).standard_normal((2, 3, 4, 5)).astype(np.float32)
    attributes = {"across_channels": across, "normalize_variance": variance}
    check_against_ort("MeanVarianceNormalization", [x], None, 8, **attributes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("size", "attributes"), [(1, {}), (3, {}), (5, {"alpha": 0.5, "beta": 0.6, "bias": 2.0}), (9, {})]
)
def test_lrn__sizes__as_onnxruntime(size: int, attributes: dict[str, Any]) -> None:
    x = np.random.default_rng(2).standard_normal((2, 7, 4, 5)).astype(np.float32) * 5
    check_against_ort("LRN", [x], opset=13, size=size, **attributes)


def test_lrn__even_size__one_more_channel_above() -> None:
    x = np.array([[[1], [2], [4]]], np.float32)
    (y,) = run_op(normalization_op("LRN", size=2, alpha=2.0, beta=1.0, bias=0.0), [x])
    np.testing.assert_allclose(y, x / [[[1 + 4], [4 + 16], [16]]])


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("name", sorted(FAMILY))
def test_normalization__other_float__close_to_float32(name: str, dtype: type) -> None:
    count = {"BatchNormalization": 5, "MeanVarianceNormalization": 1, "LRN": 1}.get(name, 3)
    attributes: dict[str, Any] = {"GroupNormalization": {"num_groups": 2}, "LRN": {"size": 3}}.get(name, {})
    op = normalization_op(name, count, **attributes)
    inputs: list[Array | None] = [a.astype(dtype) for a in batch_inputs((2, 4, 3, 5), (4,))[:count] if a is not None]
    (got,) = run_op(op, list(inputs))
    (expected,) = run_op(op, [a.astype(np.float32) for a in inputs if a is not None])
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype(np.float32), expected, 5e-3, 5e-3)


def test_normalization__no_images__no_output() -> None:
    for name, count, attributes in (
        ("BatchNormalization", 5, {}),
        ("InstanceNormalization", 3, {}),
        ("GroupNormalization", 3, {"num_groups": 2}),
        ("MeanVarianceNormalization", 1, {}),
        ("LRN", 1, {"size": 3}),
    ):
        given: dict[str, Any] = dict(attributes)
        op = normalization_op(name, count, **given)
        assert run_op(op, batch_inputs((0, 4, 3, 5), (4,))[:count])[0].shape == (0, 4, 3, 5)


@pytest.mark.parametrize(
    ("name", "shapes", "attributes"),
    [
        ("BatchNormalization", [(4,), (4,), (4,), (4,), (4,)], {}),
        ("BatchNormalization", [(1, 4, 2), (4,), (3,), (4,), (4,)], {}),
        ("InstanceNormalization", [(1, 4), (4,), (4,)], {}),
        ("GroupNormalization", [(1, 4, 2), (4,), (4,)], {"num_groups": 3}),
        ("GroupNormalization", [(1, 4, 2), (2,), (2,)], {"num_groups": 2}),
        ("MeanVarianceNormalization", [(1, 4, 2)], {"axes": [3]}),
        ("LRN", [(1, 4, 2)], {"size": 0}),
    ],
)
def test_infer__malformed__invalid_graph(name: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any]) -> None:
    with pytest.raises(InvalidGraph, match=f"{name}: expected"):
        normalization_op(name, len(shapes), **attributes).infer(*(TensorType(DType.FLOAT, s) for s in shapes))


def test_lower__float64__unsupported() -> None:
    with pytest.raises(Unsupported, match="float64"):
        normalization_op("LRN", size=3).lower(Target(), TensorType(DType.DOUBLE, (1, 4, 2)))
