"""Equal problems of a stage are lowered once, and only equal ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.compiler.lowering import Lowerings, exact
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Target
from pyruntime.ops.base import Op
from pyruntime.ops.registry import newest
from pyruntime.target import Limits

X = TensorType(DType.FLOAT, (4, 8))
LONG, PLACES = TensorType(DType.FLOAT, (100,)), TensorType(DType.INT64, (100,))


def known(value: Any) -> TensorType:
    array = np.asarray(value)
    return TensorType(DType.from_numpy(array.dtype), array.shape, lambda: array, "known")


def test_lowerings__equal_operators_and_types__are_lowered_once() -> None:
    lowerings = Lowerings(Target())
    made = lowerings.of(newest("Softmax", axis=1), [X])
    assert lowerings.of(newest("Softmax", axis=1), [TensorType(DType.FLOAT, (4, 8), name="other")]) is made
    assert lowerings.of(newest("Softmax", axis=0), [X]) is not made
    assert lowerings.of(newest("Softmax", axis=1), [TensorType(DType.FLOAT, (4, 9))]) is not made


def test_lowerings__say_what_is_read_and_what_the_device_cannot_do() -> None:
    product = newest("MatMul")
    made = Lowerings(Target()).of(product, [X, TensorType(DType.FLOAT, (8, 4))])
    assert (made.reads, made.too_large) == ((0, 1), "")
    small = Target(Limits(buffer_bytes=64))
    assert "buffer limit of 64" in Lowerings(small).of(product, [X, TensorType(DType.FLOAT, (8, 4))]).too_large
    scatter = Lowerings(Target(Limits(binding_bytes=256))).of(newest("ScatterElements"), [LONG, PLACES, LONG])
    assert "binding limit of 256" in scatter.too_large
    assert Lowerings(Target()).of(newest("Expand"), [X, known(np.array([2, 4, 8]))]).reads == (0,)


def test_lowerings__not_shared__every_node_is_lowered() -> None:
    lowerings = Lowerings(Target(), shared=False)
    softmax = newest("Softmax", axis=1)
    assert lowerings.of(softmax, [X]) is not lowerings.of(softmax, [X])


def test_lowerings__a_value_is_looked_at__counts_for_that_node_alone() -> None:
    lowerings, cut = Lowerings(Target()), newest("Slice")
    first, second = (
        lowerings.of(cut, [X, known([start]), known([4]), known([0])])[0][0] for start in (np.int64(1), np.int64(2))
    )
    assert first.params != second.params


def test_lowerings__numbers_that_compare_equal__are_told_apart() -> None:
    lowerings = Lowerings(Target())
    plus, minus = (lowerings.of(newest("LeakyRelu", alpha=alpha), [X])[0][0] for alpha in (0.0, -0.0))
    assert plus.params != minus.params


def test_lowerings__an_operator_that_is_not_pure__is_lowered_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    relu: Op = newest("Relu")
    monkeypatch.setattr(type(relu), "pure", False)
    lowerings = Lowerings(Target())
    assert lowerings.of(relu, [X]) is not lowerings.of(relu, [X])


@pytest.mark.parametrize("pair", [(0.0, -0.0), (1, True), (1, 1.0), ((0.0,), (-0.0,))])
def test_exact__values_of_other_bits_or_types__differ(pair: tuple[Any, Any]) -> None:
    assert exact(pair[0]) != exact(pair[1])
