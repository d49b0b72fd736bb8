"""Parameters in another rank than ONNX writes, which onnxruntime reads flat: as there."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ValueInfoProto, helper

import pyruntime
from pyruntime.ir import Array

CPU = ["CPUExecutionProvider"]


def numbers(*shape: int) -> Array:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def ints(shape: tuple[int, ...], *values: int) -> Array:
    return np.array(values, np.int64).reshape(shape)


CASES: dict[str, tuple[str, list[Array], dict[str, Any]]] = {
    "Expand [1, n]": ("Expand", [numbers(3, 1), ints((1, 3), 2, 1, 4)], {}),
    "Expand [n, 1]": ("Expand", [numbers(3, 1), ints((3, 1), 2, 1, 4)], {}),
    "Expand []": ("Expand", [numbers(1), ints((), 4)], {}),
    "Expand none": ("Expand", [numbers(2), ints((0, 2))], {}),
    "ConstantOfShape [1, n]": ("ConstantOfShape", [ints((1, 2), 2, 3)], {}),
    "ConstantOfShape [n, 1]": ("ConstantOfShape", [ints((2, 1), 2, 3)], {}),
    "ConstantOfShape none": ("ConstantOfShape", [ints((1, 0))], {}),
    "STFT window [n, 1]": ("STFT", [numbers(1, 32, 1), ints((), 4), numbers(8, 1)], {}),
    "STFT step, length [1, 1]": ("STFT", [numbers(1, 32, 1), ints((1, 1), 4), numbers(8), ints((1, 1), 8)], {}),
    "GroupNormalization [1, c]": (
        "GroupNormalization",
        [numbers(2, 4, 3), numbers(1, 4), numbers(4, 1)],
        {"num_groups": 2},
    ),
    "GroupNormalization [2, 2]": (
        "GroupNormalization",
        [numbers(2, 4, 3), numbers(2, 2), numbers(4)],
        {"num_groups": 2},
    ),
}


def model(op_type: str, inputs: list[Array], attributes: dict[str, Any], output: str = "y") -> bytes:
    """A node, and undeclared shapes."""
    kinds = [helper.np_dtype_to_tensor_dtype(x.dtype) for x in inputs]
    given = [helper.make_tensor_value_info(f"x{i}", kind, None) for i, kind in enumerate(kinds)]
    node = helper.make_node(op_type, [v.name for v in given], [output], **attributes)
    graph = helper.make_graph([node], "g", given, [ValueInfoProto(name=output)])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(made.SerializeToString())


def theirs(made: bytes, inputs: list[Array]) -> Any:
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    return onnxruntime.InferenceSession(made, providers=CPU).run(None, feeds)[0]


def mine(made: bytes, inputs: list[Array]) -> Any:
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    return pyruntime.InferenceSession(made, providers=CPU).run(None, feeds)[0]


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), CASES.values(), ids=CASES)
def test_parameter__of_another_rank__as_onnxruntime(op_type: str, inputs: list[Array], attributes: Any) -> None:
    made = model(op_type, inputs, attributes)
    expected, found = theirs(made, inputs), mine(made, inputs)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(2, 1), (1, 2), (1, 1), (2,), ()])
def test_split_to_sequence__sizes_of_any_rank__listed(shape: tuple[int, ...]) -> None:
    """A scalar alone is the size of every part."""
    sizes = {2: (1, 3), 1: (4,)}[int(np.prod(shape))]
    inputs = [numbers(4, 2), ints(shape, *sizes)]
    made = model("SplitToSequence", inputs, {})
    expected, found = theirs(made, inputs), mine(made, inputs)
    assert len(found) == len(expected) == len(sizes)
    for mine_, theirs_ in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine_, theirs_)


REFUSED: dict[str, tuple[str, list[Array], dict[str, Any]]] = {
    "a scalar shape": ("ConstantOfShape", [ints((), 3)], {}),
    "scale of rank 2": ("InstanceNormalization", [numbers(2, 4, 3), numbers(4, 1), numbers(4)], {}),
}


@pytest.mark.parametrize(("op_type", "inputs", "attributes"), REFUSED.values(), ids=REFUSED)
def test_parameter__of_a_rank_that_onnxruntime_refuses__refused(
    op_type: str, inputs: list[Array], attributes: Any
) -> None:
    made = model(op_type, inputs, attributes)
    with pytest.raises(Exception, match=r"Must have a valid input shape|number of dimensions is not 1"):
        theirs(made, inputs)
    with pytest.raises(pyruntime.InvalidGraph, match=f"{op_type}: expected"):
        mine(made, inputs)


def test_nonzero_of_a_filled_tensor__shape_of_rank_2__as_onnxruntime() -> None:
    """NonZero of ConstantOfShape is written as ranges, for shapes of rank 1."""
    shape = helper.make_node("ConstantOfShape", ["x0"], ["f"], value=helper.make_tensor("v", 1, [1], [1.0]))
    given = [helper.make_tensor_value_info("x0", 7, None)]
    graph = helper.make_graph(
        [shape, helper.make_node("NonZero", ["f"], ["y"])], "g", given, [ValueInfoProto(name="y")]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    for sizes in ((2, 3), (4, 1)):
        inputs = [ints((2, 1), *sizes)]
        np.testing.assert_array_equal(mine(made, inputs), theirs(made, inputs))
