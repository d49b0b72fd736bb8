"""The NumPy executor: order, lifetimes, errors, limits, callbacks."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

from pyruntime import errors
from pyruntime.ir import Array, Constant, DType, Graph, Node, SequenceType, TensorType, ValueInfo, ValueType, known
from pyruntime.ops.base import Op
from pyruntime.ops.interpreter import Limits, Program, RunContext, execute, interpret
from pyruntime.ops.movement.transpose import Transpose
from tests.harness import make_op, typed
from tests.oracle import node_of, ort_run


class _Double(Op):
    """y = 2x, computed in float64 whatever the type: the executor must re-encode it."""

    op_type = "Double"

    def infer(self, x: TensorType) -> tuple[ValueType, ...]:
        return (TensorType(x.dtype, x.shape),)

    def evaluate(self, x: Array) -> tuple[Any, ...]:
        return (x.astype(np.float64) * 2,)


class _Wrong(_Double):
    def evaluate(self, x: Array) -> tuple[Any, ...]:
        return (x[:1],)


class _Raises(_Double):
    def evaluate(self, x: Array) -> tuple[Any, ...]:
        raise IndexError("index 7 is out of bounds")


class _Spied(_Double):
    made: list[weakref.ref[Any]] = []  # noqa: RUF012

    def evaluate(self, x: Array) -> tuple[Any, ...]:
        assert all(ref() is None for ref in self.made[:-1]), "a value is alive after its last reader"
        y = x * 2
        self.made.append(weakref.ref(y))
        return (y,)


def f32(numbers: Any) -> Array:
    return np.array(numbers, np.float32)


def value(array: Any, dtype: DType | None = None) -> ValueType:
    array = np.asarray(array)
    return known(TensorType(dtype or DType.from_numpy(array.dtype), array.shape), array)


def chain(*ops: Op) -> Graph:
    nodes = [Node(op, (f"v{i}",), (f"v{i + 1}",), f"n{i}") for i, op in enumerate(ops)]
    return Graph("chain", [ValueInfo("v0")], [ValueInfo(f"v{len(ops)}")], nodes)


def test_interpret__chain__values_and_types() -> None:
    got = interpret(chain(Transpose(), _Double()), {"v0": value(f32([[1, 2, 3]]))})["v2"]
    assert got == TensorType(DType.FLOAT, (3, 1))
    assert got.value().dtype == np.float32
    np.testing.assert_array_equal(got.value(), [[2], [4], [6]])


@pytest.mark.parametrize(
    ("dtype", "given", "expected"),
    [
        (DType.BFLOAT16, [1.00390625], [2.0]),
        (DType.FLOAT8E4M3FN, [1.0625], [2.0]),
        (DType.INT4, [5], [-6]),
        (DType.UINT8, [200], [144]),
        (DType.FLOAT16, [40000.0], [np.inf]),
    ],
)
def test_interpret__types_numpy_lacks__rounded_or_wrapped_once(dtype: DType, given: Any, expected: Any) -> None:
    x = np.array(given).astype(dtype.numpy)
    got = interpret(chain(_Double()), {"v0": value(x, dtype)})["v1"].value()
    np.testing.assert_array_equal(got, np.array(expected, dtype.numpy))


def test_interpret__float8_infinity__moved_unchanged() -> None:
    x = value(f32([[np.inf, -np.inf, np.nan]]), DType.FLOAT8E5M2)
    got = interpret(chain(Transpose()), {"v0": x})["v1"].value()
    np.testing.assert_array_equal(got, f32([[np.inf], [-np.inf], [np.nan]]))


def test_interpret__dead_node__not_run() -> None:
    graph = chain(_Double())
    graph.nodes.append(Node(_Raises(), ("v0",), ("dead",)))
    interpret(graph, {"v0": value(f32([1]))})
    with pytest.raises(errors.RuntimeException):
        interpret(graph, {"v0": value(f32([1]))}, ["dead"])


def test_interpret__last_reader_done__value_freed() -> None:
    _Spied.made.clear()
    interpret(chain(*[_Spied()] * 5), {"v0": value(f32([1]))})
    assert len(_Spied.made) == 5


def test_interpret__output_of_shape_infer_did_not_say__names_the_node() -> None:
    with pytest.raises(errors.RuntimeException, match=r"'n0' \(Double\).*output 0.*expected float\[3\].*\[1\]"):
        interpret(chain(_Wrong()), {"v0": value(f32([1, 2, 3]))})


def test_interpret__numpy_error__runtime_exception_with_inputs() -> None:
    with pytest.raises(errors.RuntimeException, match=r"'n0' \(Double\).*IndexError: index 7.*inputs int8\[3\]"):
        interpret(chain(_Raises()), {"v0": value(np.array([1, 2, 3], np.int8))})


def test_interpret__operator_refuses__its_own_class_with_the_node() -> None:
    with pytest.raises(errors.InvalidGraph, match=r"'n1' \(Transpose\), opset 1: Transpose: expected"):
        interpret(chain(_Double(), Transpose(perm=(0, 0))), {"v0": value(f32([[1]]))})


def test_interpret__missing_feed__named() -> None:
    with pytest.raises(errors.MissingInput, match="'v0', an input of 'n0'"):
        interpret(chain(_Double()), {})


def test_interpret__constants_and_override__feed_wins() -> None:
    graph = chain(_Double())
    graph.constants["v0"] = Constant.from_array(f32([3]))
    np.testing.assert_array_equal(interpret(graph, {})["v1"].value(), [6])
    np.testing.assert_array_equal(interpret(graph, {"v0": value(f32([5]))})["v1"].value(), [10])


def test_run_context__callbacks__every_node_and_a_stop() -> None:
    seen: list[str] = []
    count = 0

    def check() -> None:
        nonlocal count
        count += 1
        if count > 2:
            raise errors.Fail("terminated")

    context = RunContext(check=check, on_node=lambda node, made, seconds: seen.append(f"{node.name} {made[0]}"))
    with pytest.raises(errors.Fail, match="terminated"):
        interpret(chain(_Double(), _Double(), _Double()), {"v0": value(f32([1]))}, context=context)
    assert seen == ["n0 float[1]", "n1 float[1]"]


def test_execute__outputs_over_the_limit__refused_before_computing() -> None:
    context = RunContext(limits=Limits(node_bytes=7))
    with pytest.raises(errors.OutOfMemory, match="at most 7 bytes"):
        interpret(chain(_Raises()), {"v0": value(f32([1, 2]))}, context=context)


def test_execute__sequence_where_a_tensor_is_due__runtime_exception() -> None:
    class Lists(_Double):
        def evaluate(self, x: Array) -> tuple[Any, ...]:
            return ([x],)

    with pytest.raises(errors.RuntimeException, match=r"expected float\[1\], got a list"):
        execute(Lists(), value(f32([1])))


def test_program__run_twice__same_answer() -> None:
    program = Program(chain(_Double()))
    for _ in range(2):
        np.testing.assert_array_equal(program.run({"v0": value(np.array([4], np.int32))})["v1"].value(), [8])


def test_sequence_type__string__as_onnxruntime_spells_it() -> None:
    assert str(SequenceType(DType.FLOAT)) == "seq(tensor(float))"


@pytest.mark.parametrize(
    ("op_type", "domain", "shapes", "attributes"),
    [
        ("ArgMax", "", [(0, 0)], {"axis": 0}),
        ("ArgMin", "", [(0, 0)], {"axis": 1, "keepdims": 0}),
        ("InstanceNormalization", "", [(1, 0, 2, 3), (0,), (0,)], {}),
        ("Inverse", "com.microsoft", [(2, 0, 0)], {}),
        ("Conv", "", [(0, 2, 4, 4), (3, 2, 3, 3)], {}),
    ],
)
def test_execute__outputs_without_elements__shapes_of_onnxruntime(
    op_type: str, domain: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any]
) -> None:
    arrays: list[Array | None] = [np.ones(shape, np.float32) for shape in shapes]
    (wanted,) = ort_run(op_type, arrays, domain=domain, **attributes)
    op = make_op(node_of(op_type, arrays, domain=domain, **attributes), {domain: 1 if domain else 21, "": 21})
    (made,) = execute(op, *(typed(x) for x in arrays))
    assert made is not None and made.value().shape == wanted.shape and made.value().dtype == wanted.dtype
