"""Indices and lengths that no element has: an error, as in onnxruntime, on the GPU too where the host knows them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from pyruntime.compiler.saved import read
from pyruntime.ir import Array
from pyruntime.session.aot.compile_ahead import compile_model
from tests.session.run.test_positions import on_numpy, told

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
ONES = np.ones((1, 12, 2), np.float32)


@dataclass(frozen=True)
class Case:
    """An operator whose input `at` has right values, and wrong ones; `range` is what the error says of these."""

    op: str
    inputs: dict[str, Array]
    wrong: list[Array]
    range: str
    attributes: dict[str, Any] = field(default_factory=dict)
    at: str = "i"
    opset: int = 21
    domain: str = ""

    def model(self, dynamic: bool = False) -> bytes:
        """The model; `dynamic`: no dimension of its inputs is known."""
        given = [
            helper.make_tensor_value_info(
                n, helper.np_dtype_to_tensor_dtype(x.dtype), [f"{n}{k}" for k in range(x.ndim)] if dynamic else x.shape
            )
            for n, x in self.inputs.items()
            if n
        ]
        op = helper.make_node(self.op, list(self.inputs), ["y"], domain=self.domain, **self.attributes)
        graph = helper.make_graph([op], "g", given, [helper.make_tensor_value_info("y", 1, None)])
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        made: bytes = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
        return made

    @property
    def right(self) -> dict[str, Array]:
        return {n: x for n, x in self.inputs.items() if n}


def integers(*numbers: Any) -> Array:
    return np.array(numbers, np.int64)


def recurrent(op: str, gates: int, steps: int, layout: int = 0) -> Case:
    x, w = np.ones((1, steps, 2) if layout else (steps, 1, 2), np.float32), ONES[:, : 2 * gates]
    return Case(
        op,
        {"x": x, "w": w, "r": w, "": ONES, "i": np.array([steps], np.int32)},
        [np.array([n], np.int32) for n in (steps + 1, -1)],
        f"sequence_lens in [0, {steps}], the steps of x",
        {"hidden_size": 2, **({"layout": layout} if layout else {})},
    )


CASES = {
    "Gather": Case(
        "Gather",
        {"x": X, "i": integers([0, -3], [2, 1])},
        [integers([0, -3], [3, 1])],
        "indices in [-3, 2], the elements of axis 1",
        {"axis": -2},
    ),
    "Gather of int32": Case(
        "Gather",
        {"x": X, "i": np.array(-2, np.int32)},
        [np.array(-3, np.int32)],
        "indices in [-2, 1], the elements of axis 0",
    ),
    "GatherElements": Case(
        "GatherElements",
        {"x": X, "i": integers([[3, -4]])},
        [integers([[3, 4]])],
        "indices in [-4, 3], the elements of axis 2",
        {"axis": 2},
    ),
    "GatherND": Case(
        "GatherND",
        {"x": X, "i": integers([1, 2], [0, -3])},
        [integers([2, 1], [0, 0]), integers([0, 0], [1, 3])],
        "indices in [-",
    ),
    "GatherND of batches": Case(
        "GatherND",
        {"x": X, "i": integers([2, 3], [0, 0])},
        [integers([2, 3], [3, 0])],
        "indices in [-3, 2], the elements of axis 1",
        {"batch_dims": 1},
    ),
    "ScatterElements": Case(
        "ScatterElements",
        {"x": X, "i": integers([[1, 0]]), "u": np.ones((1, 1, 2), np.float32)},
        [integers([[0, 2]]), integers([[-3, 0]])],
        "indices in [-2, 1], the elements of axis 0",
        {"reduction": "add"},
    ),
    "Scatter": Case(
        "Scatter",
        {"x": X, "i": integers([[1, 0]]), "u": np.ones((1, 1, 2), np.float32)},
        [integers([[0, 4]])],
        "indices in [-4, 3], the elements of axis 2",
        {"axis": 2},
        opset=9,
    ),
    "ScatterND": Case(
        "ScatterND",
        {"x": X, "i": integers([1, -1]), "u": np.ones((1, 4), np.float32)},
        [integers([1, 3]), integers([2, 1])],
        "indices in [-",
    ),
    "ReverseSequence": Case(
        "ReverseSequence",
        {"x": X, "i": integers(3, 0)},
        [integers(4, 0), integers(3, -1)],
        "lengths in [0, 3], the elements of axis 1",
        {"batch_axis": 0, "time_axis": 1},
    ),
    "RNN": recurrent("RNN", 1, 3),
    "GRU": recurrent("GRU", 3, 4),
    "LSTM": recurrent("LSTM", 4, 5),
}


@pytest.mark.parametrize("name", CASES)
def test_integers__outside__are_refused_on_numpy_and_on_a_gpu_as_in_onnxruntime(name: str) -> None:
    case = CASES[name]
    source = case.model()
    feeds = [case.right, *({**case.right, case.at: wrong} for wrong in case.wrong)]
    found = told(source, *feeds, case.right)
    assert found[0] == found[-1] == ""
    theirs = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    theirs.run(None, case.right)
    for feed, error in zip(feeds[1:], found[1:], strict=False):
        assert error == on_numpy(source, feed) and f"expected {case.range}" in error
        with pytest.raises(Exception, match=r"(?i)invalid|bounds|range"):
            theirs.run(None, feed)


def test_indices__of_data_whose_length_is_dynamic__are_checked_with_that_length() -> None:
    source = CASES["GatherND"].model(dynamic=True)
    feeds = [
        {"x": np.zeros((n, m, 4), np.float32), "i": integers([i, j])}
        for n, m, i, j in ((2, 3, 1, 2), (4, 9, 3, 8), (5, 6, 4, 5), (6, 5, 4, 5), (6, 5, 5, 4), (5, 6, 5, 4))
    ]
    assert [bool(error) for error in told(source, *feeds)] == [False, False, False, True, False, True]
    assert told(source, *feeds)[3] == on_numpy(source, feeds[3])


def test_compile__of_indices__leaves_their_bounds_to_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(CASES["ScatterND"].model())
    (program,) = read(compile_model(path)).programs
    assert [(b.input, b.least, b.most, b.every) for b in program.plan.bounds] == [
        ("i", -2, 1, (0, 2)),
        ("i", -3, 2, (1, 2)),
    ]


def test_indices__that_are_outputs_of_the_gpu__are_clamped() -> None:
    """A kernel cannot raise: NumPy does."""
    ops = [helper.make_node("Add", ["i", "i"], ["j"]), helper.make_node("Gather", ["x", "j"], ["y"])]
    given = [helper.make_tensor_value_info("x", 1, (3,)), helper.make_tensor_value_info("i", 7, (1,))]
    graph = helper.make_graph(ops, "g", given, [helper.make_tensor_value_info("y", 1, None)])
    source = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    feed = {"x": np.zeros(3, np.float32), "i": integers(2)}
    assert told(source, feed) == [""]
    assert "got 4 at [0] of the indices" in on_numpy(source, feed)
