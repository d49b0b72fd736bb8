"""Operators of opset 6: the broadcasting examples of the specification, written out for NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyruntime.errors import InvalidGraph
from pyruntime.ir import Array
from tests.harness import make_op, run_op, typed
from tests.oracle import node_of

RNG = np.random.default_rng(6)
FUNCTIONS: dict[str, Any] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Pow": np.power,
    "Less": np.less,
    "Greater": np.greater,
}


def numbers(*shape: int) -> Array:
    return np.asarray(RNG.random(shape) + 0.5, np.float32)


def computed(op_type: str, inputs: list[Array], **attributes: Any) -> Array:
    return run_op(make_op(node_of(op_type, inputs, **attributes), {"": 6}), list(inputs))[0]


@pytest.mark.parametrize("op_type", FUNCTIONS)
@pytest.mark.parametrize(
    ("a", "b", "axis", "seen"),
    [
        ((2, 3, 4, 5), (), None, ()),
        ((2, 3, 4, 5), (5,), None, (5,)),
        ((2, 3, 4, 5), (4, 5), None, (4, 5)),
        ((2, 3, 4, 5), (3, 4), 1, (3, 4, 1)),
        ((2, 3, 4, 5), (2,), 0, (2, 1, 1, 1)),
        ((2, 3, 4, 5), (3, 1), -3, (3, 1, 1)),
    ],
)
def test_axis_broadcast__examples_of_the_specification__are_followed(
    op_type: str, a: tuple[int, ...], b: tuple[int, ...], axis: int | None, seen: tuple[int, ...]
) -> None:
    x, y = numbers(*a), numbers(*b)
    got = computed(op_type, [x, y], broadcast=1, **({} if axis is None else {"axis": axis}))
    np.testing.assert_allclose(got, FUNCTIONS[op_type](x, y.reshape(seen)), rtol=1e-5)


def test_axis_broadcast__without_broadcast__wants_one_shape() -> None:
    with pytest.raises(InvalidGraph, match="one shape"):
        computed("Add", [numbers(2, 3), numbers(3)])


def test_axis_broadcast__b_does_not_fit__is_refused() -> None:
    with pytest.raises(InvalidGraph, match="from axis 1"):
        computed("Mul", [numbers(2, 3, 4), numbers(4)], broadcast=1, axis=1)


def test_prelu_of_opset_6__slope_a_channel__is_applied_along_dimension_1() -> None:
    x = numbers(2, 3, 4) - 1
    slope = np.array([0.1, 0.2, 0.3], np.float32)
    np.testing.assert_allclose(computed("PRelu", [x, slope]), np.where(x < 0, x * slope[:, None], x), rtol=1e-6)


@pytest.mark.parametrize("c", [(4,), (3, 4)])
def test_gemm_of_opset_6__bias__is_scaled_and_added(c: tuple[int, ...]) -> None:
    a, b, bias = numbers(3, 5), numbers(5, 4), numbers(*c)
    got = computed("Gemm", [a, b, bias], alpha=0.5, beta=2.0, broadcast=int(len(c) == 1))
    np.testing.assert_allclose(got, 0.5 * a @ b + 2 * bias, rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "attributes", "written"),
    [((3,), {"broadcast": 1, "axis": 1}, ["Unsqueeze", "Sub"]), ((2, 3, 4), {}, ["Sub"])],
)
def test_axis_broadcast__planned__is_todays_operator(
    shape: Any, attributes: dict[str, Any], written: list[str]
) -> None:
    inputs = [numbers(2, 3, 4), numbers(*shape)]
    op: Any = make_op(node_of("Sub", inputs, **attributes), {"": 6})
    body, _ = op.written(*(typed(x) for x in inputs))
    assert [node.op.op_type for node in body.nodes] == written
