"""Reduce family, ArgMax, ArgMin on the host."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import pytest

from pyruntime.errors import InvalidGraph
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Target
from pyruntime.kernels.rows.reduce_candidates import REDUCTIONS, ReductionProblem, Strategy, strategy_of
from pyruntime.ops.registry import op_class
from tests.harness import make_op, run_op
from tests.oracle import check_against_ort, node_of

FOLDS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")
FAMILY = {f"Reduce{f}" for f in FOLDS} | {"ArgMax", "ArgMin"}


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
def test_reduce__before_axes_input__as_onnxruntime(fold: str, dtype: Any) -> None:
    # Integers: onnxruntime saturates overflowing products and does LogSumExp in integers.
    if fold == "LogSumExp" and np.dtype(dtype).kind == "i":
        pytest.skip("onnxruntime rounds inside the sum")
    x = (np.random.default_rng(1).random((3, 4, 5)) * 3 + 1).astype(dtype)
    for axes in ([0, 2], [-1], [1, 0]):
        check_against_ort(f"Reduce{fold}", [x], opset=12 if fold == "Sum" else 17, axes=axes, keepdims=0)


@pytest.mark.parametrize("fold", FOLDS)
def test_reduce__axes_input__as_onnxruntime(fold: str) -> None:
    x = np.random.default_rng(2).random((2, 3, 4)).astype(np.float32) + 0.5
    check_against_ort(f"Reduce{fold}", [x, np.array([-1, 0])], opset=18)
    check_against_ort(f"Reduce{fold}", [x, np.array([], np.int64)], opset=18, noop_with_empty_axes=1)
    check_against_ort(f"Reduce{fold}", [x, np.array([], np.int64)], opset=18, keepdims=0)
    check_against_ort(f"Reduce{fold}", [x], opset=18)


@pytest.mark.parametrize("fold", sorted(set(FOLDS) - {"Mean"}))
def test_reduce__no_elements__neutral_element_as_onnxruntime(fold: str) -> None:
    check_against_ort(f"Reduce{fold}", [np.zeros((2, 0, 3), np.float32)], opset=12, axes=[1])
    check_against_ort(f"Reduce{fold}", [np.zeros((2, 0, 3), np.float32)], opset=12, axes=[0])


def test_reduce_mean__no_elements__nan() -> None:
    op = make_op(node_of("ReduceMean", [np.zeros(1)], axes=[1]), {"": 13})
    assert np.isnan(run_op(op, [np.zeros((2, 0), np.float32)])[0]).all()


@pytest.mark.parametrize("fold", sorted(set(FOLDS) - {"Max", "Min", "L2"}))
def test_reduce__nan_and_infinity__as_onnxruntime(fold: str) -> None:
    inf, nan = np.inf, np.nan
    x = np.array([[1, nan, 2], [inf, -inf, 3], [inf, 2, 3], [-inf, -inf, -inf], [-inf, 1, 2]], np.float32)
    check_against_ort(f"Reduce{fold}", [x], opset=12, axes=[1])


@pytest.mark.parametrize("fold", ["Max", "Min"])
def test_reduce_extreme__nan__nan(fold: str) -> None:
    x = np.array([[1, np.nan, 2], [-np.inf, np.nan, np.inf]], np.float32)
    op = make_op(node_of(f"Reduce{fold}", [x], axes=[1]), {"": 13})
    assert np.isnan(run_op(op, [x])[0]).all()


@pytest.mark.parametrize(
    ("fold", "dtype", "expected"),
    [("Max", np.int32, -(2**31)), ("Min", np.uint64, 2**64 - 1), ("Max", np.bool_, False), ("Min", np.bool_, True)],
)
def test_reduce_extreme__no_elements_of_integer__limit(fold: str, dtype: Any, expected: int) -> None:
    x = np.zeros((2, 0), dtype)
    op = make_op(node_of(f"Reduce{fold}", [x, np.array([1])], keepdims=0), {"": 20})
    assert run_op(op, [x, np.array([1])])[0].tolist() == [expected] * 2


def test_reduce_sum__int64_beyond_2_to_53__exact() -> None:
    x = np.array([[2**60, 1, -3], [2**62, 2**62, 5]], np.int64)
    op = make_op(node_of("ReduceSum", [x], axes=[1], keepdims=0), {"": 12})
    assert run_op(op, [x])[0].tolist() == [2**60 - 2, -(2**63) + 5]


def test_reduce__axis_out_of_range__invalid_graph() -> None:
    op = make_op(node_of("ReduceSum", [np.zeros(1)], axes=[3]), {"": 12})
    with pytest.raises(InvalidGraph, match="axis"):
        op.infer(TensorType(DType.FLOAT, (2, 3)))


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reduce__axis_twice__once_as_onnxruntime(fold: str, keepdims: int) -> None:
    x = np.random.default_rng(3).random((2, 3, 4)).astype(np.float32) + 0.5
    check_against_ort(f"Reduce{fold}", [x, np.array([1, 1])], opset=18, keepdims=keepdims)
    check_against_ort(f"Reduce{fold}", [x, np.array([0, 2, -3])], opset=18, keepdims=keepdims)
    check_against_ort(f"Reduce{fold}", [x], opset=11, axes=[1, -2], keepdims=keepdims)


def test_reduce_max__axes_of_size_one__alias() -> None:
    x = TensorType(DType.FLOAT, (2, 1, 3))
    for name, expected in (("ReduceMax", 0), ("ReduceL2", None)):
        assert op_class(name, "", 13)(axes=(1,)).alias(x) == expected  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_arg__ties__as_onnxruntime(name: str, last: int) -> None:
    x = np.random.default_rng(3).integers(0, 3, (4, 7, 5)).astype(np.float32)
    for axis in (0, 1, -1):
        check_against_ort(name, [x], opset=13, axis=axis, keepdims=axis % 2, select_last_index=last)


def test_arg_max__nan__first_nan_wins() -> None:
    x = np.array([1, np.nan, np.inf, np.nan], np.float32)
    for last, expected in ((0, 1), (1, 3)):
        op = make_op(node_of("ArgMax", [x], keepdims=0, select_last_index=last), {"": 13})
        assert run_op(op, [x])[0] == expected


def test_arg_max__empty_axis__invalid_graph() -> None:
    op = make_op(node_of("ArgMax", [np.zeros(1)], axis=1), {"": 13})
    with pytest.raises(InvalidGraph, match="at least one element"):
        op.infer(TensorType(DType.FLOAT, (2, 0)))


@pytest.mark.parametrize("name", sorted(FAMILY))
def test_reduction__every_opset__attributes_as_in_schema(name: str) -> None:
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.name == name and schema.domain == "":
            cls = op_class(name, "", schema.since_version)
            assert {f.name for f in dataclasses.fields(cls)} - {"present"} == set(schema.attributes)


@pytest.mark.parametrize(
    ("outputs", "count", "adjacent", "expected"),
    [
        (1, 8, True, Strategy(1)),
        (4096, 768, True, Strategy(64)),
        (32768, 128, True, Strategy(16)),
        (128, 4096, True, Strategy(256)),
        (1, 1 << 20, True, Strategy(256, 128)),
        (1 << 16, 512, False, Strategy(1, 2)),
        (1024, 4096, False, Strategy(1, 64)),
        (768, 128, False, Strategy(32)),
    ],
)
def test_choose__shape__strategy(outputs: int, count: int, adjacent: bool, expected: Strategy) -> None:
    problem = ReductionProblem(outputs, count, adjacent)
    assert strategy_of(REDUCTIONS.choose(problem, Target()).way, problem, Target()) == expected
