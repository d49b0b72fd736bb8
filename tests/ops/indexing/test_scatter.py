"""ScatterElements and ScatterND on the host: duplicates, reductions, bad indices."""

from __future__ import annotations

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph, RuntimeException
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Target
from pyruntime.ops.base import Unsupported
from pyruntime.ops.indexing.scatter import ScatterElements, ScatterND
from tests.harness import run_op
from tests.ops.indexing.scatter_cases import DTYPES, REDUCTIONS, check_scatter, random_scatter
from tests.oracle import check_against_ort


def _floats(*shape: int) -> TensorType:
    return TensorType(DType.FLOAT, shape)


@pytest.mark.parametrize("op_type", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scatter__duplicate_indices__updates_apply_in_order(op_type: str, reduction: str) -> None:
    rng = np.random.default_rng(7)
    for dtype in DTYPES:
        for _ in range(4):
            check_scatter(rng, op_type, dtype, reduction)


@pytest.mark.parametrize("op_type", ["ScatterElements", "ScatterND"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_scatter__random__as_onnxruntime(op_type: str, reduction: str) -> None:
    rng = np.random.default_rng(8)
    for dtype in ("float32", "int32", "int64"):
        for _ in range(6):
            inputs, attributes = random_scatter(rng, op_type, dtype)
            check_against_ort(op_type, inputs, opset=18, tolerance=(0, 0), reduction=reduction, **attributes)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("op_type", ["ScatterElements", "ScatterND"])
def test_scatter__many_unsorted_updates_of_few_places__as_onnxruntime(op_type: str, reduction: str) -> None:
    rng = np.random.default_rng(9)
    for kind in (np.float32, np.float64, np.int32, np.int64, np.uint8):
        data, updates = (rng.uniform(0, 9, n).astype(kind) for n in ((7, 3), (400, 3)))
        indices = rng.integers(-7, 7, (400, 1) if op_type == "ScatterND" else updates.shape)
        check_against_ort(op_type, [data, indices, updates], opset=18, tolerance=(0, 0), reduction=reduction)


def test_scatter__reduction_with_nan__nan_wins() -> None:
    data, indices = np.zeros(2, np.float32), np.array([0, 1, 0])
    updates = np.array([np.nan, 2, 1], np.float32)
    for reduction in ("max", "min", "add"):
        (y,) = run_op(ScatterElements(reduction=reduction), [data, indices, updates])
        np.testing.assert_array_equal(y, [np.nan, {"max": 2, "min": 0, "add": 2}[reduction]])


def test_scatter__index_out_of_range__names_index_and_bound() -> None:
    data = np.zeros((2, 3), np.float32)
    with pytest.raises(RuntimeException, match=r"indices in \[-3, 2\], the elements of axis 1, got 3 at \[1, 0\]"):
        run_op(ScatterElements(axis=1), [data, np.array([[0], [3]]), np.ones((2, 1), np.float32)])
    with pytest.raises(RuntimeException, match=r"\[-2, 1\], the elements of axis 0, got -3"):
        run_op(ScatterND(), [data, np.array([[-3]]), np.ones((1, 3), np.float32)])


@pytest.mark.parametrize(
    ("indices", "updates"),
    [((2, 4), (2, 4)), ((1,), (1,)), ((2, 2), (2, 1))],
    ids=["too long along another axis", "another rank", "updates of another shape"],
)
def test_scatter_elements__shapes_that_do_not_fit__invalid_graph(
    indices: tuple[int, ...], updates: tuple[int, ...]
) -> None:
    with pytest.raises(InvalidGraph, match="ScatterElements"):
        ScatterElements().infer(_floats(2, 3), TensorType(DType.INT64, indices), _floats(*updates))


def test_scatter__bad_attribute_or_types__invalid_graph() -> None:
    x, i, u = (TensorType(dtype, (2,)) for dtype in (DType.FLOAT, DType.INT64, DType.DOUBLE))
    with pytest.raises(InvalidGraph, match="reduction none, add"):
        ScatterElements(reduction="sum").infer(x, i, x)
    with pytest.raises(InvalidGraph, match="one type"):
        ScatterElements().infer(x, i, u)
    with pytest.raises(InvalidGraph, match="int32"):
        ScatterElements().infer(x, x, x)


def test_scatter__reductions_the_gpu_leaves_to_the_host__unsupported_with_the_reason() -> None:
    double, indices = TensorType(DType.DOUBLE, (4,)), TensorType(DType.INT64, (4,))
    with pytest.raises(Unsupported, match="float64"):
        ScatterElements(reduction="add").lower(Target(), double, indices, double)
    assert ScatterElements().lower(Target(), double, indices, double)


def test_scatter__reduction_of_many_updates__work_in_proportion_to_them_on_the_gpu() -> None:
    many, indices = _floats(1 << 17), TensorType(DType.INT64, (1 << 17,))
    dispatches = ScatterElements(reduction="add").lower(Target(), many, indices, many)
    assert [d.kernel.name for d in dispatches if "sort" in d.kernel.name] == ["sort_updates"]
    whole = TensorType(DType.INT32, many.shape)
    assert len(ScatterElements(reduction="add").lower(Target(), whole, indices, whole)) == len(dispatches) - 1


def test_scatter__no_updates__a_view_of_data() -> None:
    assert ScatterElements().alias(_floats(2, 3), TensorType(DType.INT64, (0, 3)), _floats(0, 3)) == 0
