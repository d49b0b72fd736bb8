"""Operators about shapes, and tensors made from numbers, on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph, RuntimeException
from pyruntime.ir import Array, Constant, DType, TensorType
from pyruntime.kernels import Limits, Role, Target
from pyruntime.ops.base import Op
from pyruntime.ops.indexing.tensor_scatter import TensorScatter
from pyruntime.ops.registry import op_class
from tests.harness import run_op, typed
from tests.ops.attention.cache_cases import check_tensor_scatter
from tests.ops.movement.movement_cases import one_hot_case
from tests.oracle import check_against_ort, ort_run

X = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4, 1)


def make(op_type: str, opset: int = 21, **attributes: Any) -> Op:
    """The operator of a node with one output."""
    return op_class(op_type, "", opset)(**attributes)


def inferred(op: Op, *inputs: TensorType | None) -> TensorType:
    """The type of the first output."""
    y = op.infer(*inputs)[0]
    assert isinstance(y, TensorType)
    return y


def ints(*values: int) -> Array:
    """An int64 vector."""
    return np.array(values, np.int64)


VIEWS: list[tuple[str, int, list[Array], dict[str, Any]]] = [
    ("Reshape", 5, [ints(0, -1, 4)], {}),
    ("Reshape", 13, [ints(24)], {}),
    ("Reshape", 14, [ints(2, -1, 2, 1)], {"allowzero": 1}),
    ("Reshape", 21, [ints(0, 0, 12)], {}),
    ("Flatten", 7, [], {}),
    ("Flatten", 9, [], {"axis": 0}),
    ("Flatten", 11, [], {"axis": -2}),
    ("Flatten", 21, [], {"axis": 5}),
    ("Squeeze", 7, [], {}),
    ("Squeeze", 11, [], {"axes": [0, -1]}),
    ("Squeeze", 13, [ints(-1)], {}),
    ("Squeeze", 21, [], {}),
    ("Squeeze", 13, [ints()], {}),
    ("Squeeze", 21, [ints(0, -1, -5)], {}),
    ("Squeeze", 11, [], {"axes": [0, -1, 0]}),
    ("Unsqueeze", 21, [ints()], {}),
    ("Unsqueeze", 7, [], {"axes": [0, 3]}),
    ("Unsqueeze", 11, [], {"axes": [-1, 2]}),
    ("Unsqueeze", 13, [ints(-3, 1)], {}),
    ("Unsqueeze", 21, [np.array(2)], {}),
]


@pytest.mark.parametrize(("op_type", "opset", "inputs", "attributes"), VIEWS)
def test_view__as_onnxruntime__and_owns_no_memory(
    op_type: str, opset: int, inputs: list[Array], attributes: dict[str, Any]
) -> None:
    check_against_ort(op_type, [X, *inputs], opset=opset, **attributes)
    fields = {name: tuple(v) if isinstance(v, list) else v for name, v in attributes.items()}
    assert make(op_type, opset, **fields).alias(*(typed(x) for x in (X, *inputs))) == 0


@pytest.mark.parametrize(
    ("shape", "wanted", "allowzero", "result"),
    [
        ((0, 3), (-1, 3), 0, (0, 3)),
        ((0, 3), (0, 3), 1, (0, 3)),
        ((2, 3), (), 0, None),
        ((1,), (), 0, ()),
        ((), (1, 1), 0, (1, 1)),
        ((2, 3), (-1, -1), 0, None),
        ((2, 3), (-2, -3), 0, None),
        ((2, 3), (4, -1), 0, None),
        ((2, 3), (2, 3, 0), 0, None),
        ((0, 3), (0, -1), 1, None),
        ((2, 3), (7,), 0, None),
    ],
)
def test_reshape__edge_cases__shape_or_invalid_graph(
    shape: tuple[int, ...], wanted: tuple[int, ...], allowzero: int, result: tuple[int, ...] | None
) -> None:
    op, x = make("Reshape", allowzero=allowzero), np.zeros(shape, np.float32)
    if result is None:
        with pytest.raises(InvalidGraph, match="Reshape: expected"):
            op.infer(typed(x), typed(ints(*wanted)))
    else:
        assert run_op(op, [x, ints(*wanted)])[0].shape == result


@pytest.mark.parametrize("bounds", [{}, {"start": 1}, {"end": -1}, {"start": -9, "end": 9}, {"start": 3, "end": 1}])
def test_shape__tensor_without_data__known_value(bounds: dict[str, Any]) -> None:
    y = inferred(make("Shape", 15, **bounds), TensorType(DType.FLOAT, (2, 3, 4)))
    (expected,) = ort_run("Shape", [np.zeros((2, 3, 4), np.float32)], 15, **bounds)
    np.testing.assert_array_equal(y.value(), expected)
    assert y.value().dtype == np.int64


def test_size__tensor_without_data__known_scalar() -> None:
    for shape, size in (((2, 0, 3), 0), ((), 1), ((4, 5), 20)):
        y = inferred(make("Size"), TensorType(DType.STRING, shape))
        assert (y.shape, y.value().item()) == ((), size)


@pytest.mark.parametrize(
    ("attributes", "dtype", "value"),
    [
        ({"value": Constant.from_array(np.array([[1.5]], np.float16))}, DType.FLOAT16, [[1.5]]),
        ({"sparse_value": Constant.from_array(np.array([0, 7, 0], np.int8))}, DType.INT8, [0, 7, 0]),
        ({"value_float": 2.5}, DType.FLOAT, 2.5),
        ({"value_floats": (1.0, 2.0)}, DType.FLOAT, [1, 2]),
        ({"value_int": -(2**40)}, DType.INT64, -(2**40)),
        ({"value_ints": ()}, DType.INT64, []),
        ({"value_string": "añb"}, DType.STRING, "añb"),
        ({"value_strings": ("", "x")}, DType.STRING, ["", "x"]),
    ],
)
def test_constant__every_form__known_value(attributes: dict[str, Any], dtype: DType, value: Any) -> None:
    op = make("Constant", **attributes)
    y = inferred(op)
    assert (y.dtype, y.shape) == (dtype, np.shape(value))
    np.testing.assert_array_equal(y.value(), value)
    np.testing.assert_array_equal(op.evaluate()[0], value)


def test_constant__no_value_or_two__invalid_graph() -> None:
    both: dict[str, Any] = {"value_int": 1, "value_float": 1.0}
    for attributes in ({}, both):
        with pytest.raises(InvalidGraph, match="one attribute"):
            make("Constant", **attributes).infer()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.int32, np.int64])
def test_range__random__as_onnxruntime(dtype: Any) -> None:
    rng = np.random.default_rng(3)
    for _ in range(25):
        scale = 1 if np.dtype(dtype).kind == "i" else 0.37
        start, limit, delta = (np.array(v * scale, dtype) for v in (*rng.integers(-90, 90, 2), rng.integers(1, 9)))
        for step in (delta, np.array(-delta)):
            check_against_ort("Range", [start, limit, step], opset=11, tolerance=(1e-5, 1e-4))


def test_range__integers_beyond_float64__exact() -> None:
    start, limit, delta = (np.array(v, np.int64) for v in (2**62, 2**62 + 5, 2))
    np.testing.assert_array_equal(run_op(make("Range"), [start, limit, delta])[0], [2**62, 2**62 + 2, 2**62 + 4])


def test_range__bad_delta_or_count__invalid_graph() -> None:
    for numbers in ((0, 1, 0), (0, np.inf, 1), (0, np.nan, 1)):
        with pytest.raises(InvalidGraph, match="Range: expected"):
            make("Range").infer(*(typed(np.array(v, np.float32)) for v in numbers))


def test_eye_like__as_onnxruntime() -> None:
    for k in (-9, -2, 0, 1, 3, 9):
        for dtype in (None, 1, 7, 11):
            attributes: dict[str, Any] = {"k": k} if dtype is None else {"k": k, "dtype": dtype}
            check_against_ort("EyeLike", [np.zeros((3, 4), np.int32)], opset=9, **attributes)


def test_constant_of_shape__every_type__one_value() -> None:
    for dtype in DType:
        if dtype.compute:
            element = np.ones(1, dtype.numpy)
            y = inferred(make("ConstantOfShape", 25, value=Constant.from_array(element, dtype)), typed(ints(2, 0, 3)))
            assert (y.dtype, y.shape) == (dtype, (2, 0, 3))
            (array,) = run_op(make("ConstantOfShape", 25, value=Constant.from_array(element, dtype)), [ints(3)])
            np.testing.assert_array_equal(array, [1, 1, 1])
    assert run_op(make("ConstantOfShape"), [ints()])[0].shape == ()


@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("order", [0, 1])
def test_unique__random__as_onnxruntime(axis: int | None, order: int) -> None:
    rng = np.random.default_rng(5)
    attributes: dict[str, Any] = {"sorted": order} if axis is None else {"sorted": order, "axis": axis}
    for dtype in (np.float32, np.int64, np.int8, object):
        for shape in ((6,), (5, 4), (2, 3, 4)):
            x = rng.integers(0, 3, shape)
            x = x.astype(str).astype(object) if dtype is object else x.astype(dtype)
            check_against_ort("Unique", [x], opset=11, outputs=4, **attributes)


def test_unique__nan__one_element() -> None:
    y, first, inverse, counts = run_op(make("Unique"), [np.array([np.nan, 1, np.nan], np.float32)])
    np.testing.assert_array_equal(y, [1, np.nan])
    assert (first.tolist(), inverse.tolist(), counts.tolist()) == ([1, 0], [1, 0, 1], [1, 2])


def test_non_zero__random__as_onnxruntime() -> None:
    rng = np.random.default_rng(6)
    for dtype in (np.float32, np.int64, np.bool_, np.uint8):
        for shape in ((), (7,), (3, 4), (2, 0, 2)):
            check_against_ort("NonZero", [rng.integers(0, 2, shape).astype(dtype)], opset=13)


INVALID: list[tuple[str, int, dict[str, Any], list[Array]]] = [
    ("Concat", 13, {"axis": 0}, [np.zeros((2, 3)), np.zeros((2, 4))]),
    ("Concat", 13, {"axis": 0}, [np.zeros((2, 3)), np.zeros(3)]),
    ("Concat", 13, {"axis": 2}, [np.zeros((2, 3))]),
    ("Concat", 13, {"axis": 0}, [np.zeros(2), np.zeros(2, np.float32)]),
    ("Concat", 13, {"axis": 0}, [np.zeros(())]),
    ("Split", 13, {"present": (True, True)}, [np.zeros(5)]),
    ("Split", 13, {"present": (True, True)}, [np.zeros(5), ints(2, 2)]),
    ("Split", 13, {"present": (True, True)}, [np.zeros(5), ints(6, -1)]),
    ("Split", 18, {"present": (True,) * 4, "num_outputs": 4}, [np.zeros(5)]),
    ("Split", 18, {"present": (True, True), "num_outputs": 2}, [np.zeros(4), ints(2, 2)]),
    ("Slice", 13, {}, [np.zeros(5), ints(0), ints(1), ints(0), ints(0)]),
    ("Slice", 13, {}, [np.zeros((5, 5)), ints(0, 0), ints(1, 1), ints(0, -2)]),
    ("Slice", 13, {}, [np.zeros(5), ints(0, 0), ints(1)]),
    ("Slice", 13, {}, [np.zeros(5), np.zeros(1), ints(1)]),
    ("Gather", 13, {"axis": 1}, [np.zeros(5), ints(0)]),
    ("Gather", 13, {}, [np.zeros(5), np.zeros(1)]),
    ("GatherElements", 13, {"axis": 0}, [np.zeros((2, 2)), np.zeros((1, 3), np.int64)]),
    ("GatherND", 13, {"batch_dims": 1}, [np.zeros((2, 2)), np.zeros((3, 1), np.int64)]),
    ("GatherND", 13, {}, [np.zeros((2, 2)), np.zeros((3, 3), np.int64)]),
    ("Expand", 13, {}, [np.zeros((2, 3)), ints(2, 4)]),
    ("Expand", 13, {}, [np.zeros((2, 1)), ints(2, -1)]),
    ("Tile", 13, {}, [np.zeros((2, 1)), ints(2)]),
    ("Tile", 13, {}, [np.zeros(2), ints(-1)]),
    ("Pad", 18, {}, [np.zeros(2), ints(1)]),
    ("Pad", 18, {}, [np.zeros(2), ints(-2, -1)]),
    ("Pad", 18, {"mode": "mirror"}, [np.zeros(2), ints(1, 1)]),
    ("Pad", 18, {"mode": "edge"}, [np.zeros(0), ints(1, 0)]),
    ("Squeeze", 13, {}, [np.zeros((2, 1)), ints(0)]),
    ("Unsqueeze", 13, {}, [np.zeros(2), ints(0, -3)]),
    ("Flatten", 13, {"axis": 2}, [np.zeros(2)]),
    ("Transpose", 13, {"perm": (0, 0)}, [np.zeros((2, 2))]),
    ("ConstantOfShape", 9, {}, [ints(-1)]),
    ("OneHot", 11, {}, [ints(0), np.array(-1), np.zeros(2)]),
    ("OneHot", 11, {}, [ints(0), np.array(2), np.zeros(3)]),
    ("Trilu", 14, {}, [np.zeros(3)]),
    ("EyeLike", 9, {}, [np.zeros(3)]),
    ("ReverseSequence", 10, {}, [np.zeros((2, 3)), ints(1, 1)]),
    ("Compress", 9, {}, [np.zeros(3), ints(1)]),
    ("CenterCropPad", 18, {"axes": (0, 0)}, [np.zeros(3), ints(1, 2)]),
    ("TensorScatter", 24, {"axis": 0}, [np.zeros((2, 3)), np.zeros((2, 3))]),
    ("TensorScatter", 24, {"axis": 1}, [np.zeros((2, 3)), np.zeros((2, 4))]),
]


@pytest.mark.parametrize("attributes", [{}, {"axis": 1}])
@pytest.mark.parametrize("shape", [(2, 3), (1, 2), (3, 1, 1)])
def test_compress__condition_of_another_rank__is_flattened_as_onnxruntime(
    shape: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    condition = np.arange(np.prod(shape)).reshape(shape) % 2 == 1
    if attributes and condition.size > x.shape[1]:
        condition = condition[:1]
    check_against_ort("Compress", [x, condition], opset=11, **attributes)


@pytest.mark.parametrize(("op_type", "opset", "attributes", "inputs"), INVALID)
def test_infer__inputs_that_do_not_fit__invalid_graph(
    op_type: str, opset: int, attributes: dict[str, Any], inputs: list[Array]
) -> None:
    with pytest.raises(InvalidGraph, match=f"{op_type}: expected"):
        make(op_type, opset, **attributes).infer(*(typed(x) for x in inputs))


def test_split__no_sizes_in_the_list__equal_ones_as_onnxruntime() -> None:
    check_against_ort("Split", [X, ints()], opset=13, outputs=3, axis=2)
    check_against_ort("Split", [X, ints()], opset=18, outputs=2, axis=3)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pad__axis_twice__the_last_counts_as_in_onnxruntime(mode: str) -> None:
    check_against_ort("Pad", [X, ints(1, 2, 2, 1), None, ints(2, -3)], opset=21, mode=mode)
    check_against_ort("Pad", [X, ints(1, 1, 2, 2, 0, 1), None, ints(2, 3, -3)], opset=21, mode=mode)


def test_old_opsets__attributes_instead_of_inputs__same_results() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert run_op(make("Concat", 1), [x, x])[0].shape == (2, 6)
    np.testing.assert_array_equal(
        run_op(make("Tile", 1), [x, np.array(2, np.float32), np.array(1, np.float32)])[0], np.tile(x, (1, 2))
    )
    parts = run_op(make("Split", 1, axis=1, split=(1, 2), present=(True, True)), [x])
    assert [p.shape for p in parts] == [(2, 1), (2, 2)]
    assert run_op(make("Reshape", 1, shape=(3, -1)), [x])[0].shape == (3, 2)
    padded = run_op(make("Pad", 1, paddings=(0, 1, 0, 0), value=7.0), [x])[0]
    np.testing.assert_array_equal(padded, np.pad(x, ((0, 0), (1, 0)), constant_values=7))
    for mode in ("constant", "reflect", "edge"):
        check_against_ort("Pad", [x], opset=7, mode=mode, pads=[1, 1, 0, -1], value=2.5)


def test_tensor_scatter__random__as_specified() -> None:
    rng = np.random.default_rng(11)
    for number in range(60):
        check_tensor_scatter(rng, (np.float32, np.float16, np.int8)[number % 3])


def test_tensor_scatter__beyond_the_cache__runtime_exception() -> None:
    for write in (2, -1):
        with pytest.raises(RuntimeException, match=r"write_indices in \[0, 1\], from which on past has places"):
            run_op(TensorScatter(axis=1), [np.zeros((1, 3)), np.zeros((1, 2)), ints(write)])


@pytest.mark.parametrize("op_type", ["Gather", "GatherElements", "GatherND"])
def test_gather__index_out_of_range__names_index_and_bound(op_type: str) -> None:
    with pytest.raises(RuntimeException, match=r"expected indices in \[-3, 2\], the elements of axis 0, got -4"):
        run_op(make(op_type), [np.zeros(3), ints(-4)])


def test_reverse_sequence__length_out_of_range__runtime_exception() -> None:
    with pytest.raises(RuntimeException, match=r"lengths in \[0, 2\], the elements of axis 0, got 3 at \[1\]"):
        run_op(make("ReverseSequence"), [np.zeros((2, 2)), ints(1, 3)])


@pytest.mark.parametrize("kind", ["f4", "f8", "i1", "u1", "u4", "i8", "u8"])
def test_one_hot__indices_of_any_type__truncated_and_in_range(kind: str) -> None:
    indices, expected = one_hot_case(kind)
    (y,) = run_op(make("OneHot"), [indices, np.array(3.7, np.float32), np.array([5, 9], np.int16)])
    np.testing.assert_array_equal(y, np.where(expected, 9, 5))


def test_concat__forty_inputs__dispatches_within_the_device_limit() -> None:
    for dtype in (DType.FLOAT, DType.INT8):
        inputs = [TensorType(dtype, (3, 1 + k % 2)) for k in range(40)]
        dispatches = make("Concat", axis=1).lower(Target(Limits(storage_buffers=8)), *inputs)
        assert max(len(d.operands) for d in dispatches) <= 8
        read = {o.index for d in dispatches for o in d.reads if o.role is Role.INPUT}
        assert read == set(range(40))


def test_shape_operators__nothing_changes__views_of_their_input() -> None:
    x = TensorType(DType.INT8, (2, 1, 3))
    same: list[tuple[Op, list[Array]]] = [
        (make("Slice"), [ints(0, -9), ints(2**31 - 1, 3), ints(0, 2)]),
        (make("Expand"), [ints(1, 2, 1, 1)]),
        (make("Tile"), [ints(1, 1, 1)]),
        (make("Pad", mode="edge"), [ints(0, 0, 0, 0, 0, 0)]),
        (make("Transpose", perm=(1, 0, 2)), []),
        (make("Split", num_outputs=1), []),
        (make("Concat", axis=0), [np.zeros((0, 1, 3), np.int8)]),
    ]
    for op, others in same:
        assert op.alias(x, *(typed(o) for o in others)) == 0, op.op_type
    assert make("Slice").alias(x, typed(ints(1)), typed(ints(2))) is None
    assert make("Transpose", perm=(2, 1, 0)).alias(x) is None
