"""Random graphs that name no size, and the sizes they are run with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

__all__ = ["drawn", "graph_of"]

STEPS: dict[str, list[dict[str, Any]]] = {
    "Relu": [{}],
    "Sigmoid": [{}],
    "Neg": [{}],
    "Softmax": [{"axis": a} for a in (-1, 1)],
    "Transpose": [{"perm": p} for p in ([0, 2, 1], [1, 0, 2], [2, 1, 0])],
    "ReduceMean": [{"axes": [a], "keepdims": 1} for a in (0, 1, 2)],
    "CumSum": [{"axis": a} for a in (0, 1, 2)],
    "Concat": [{"axis": a} for a in (0, 1, 2)],
    "Slice": [{"axis": a, "step": s} for a in (0, 1, 2) for s in (1, 2, -1)],
    "MatMul": [{"swap": s} for s in (False, True)],
    "Pad": [{"mode": "constant"}],
    "Flat": [{"keep": k} for k in (0, 1, 2)],
    "Tile": [{"axis": a} for a in (0, 1, 2)],
    "Add": [{}],
}


class Random:
    """A graph over one tensor of rank 3; nothing in it names a size."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.last = "x"

    def ints(self, *values: int) -> str:
        self.constants.append(numpy_helper.from_array(np.array(values, np.int64), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def step(self, op: str, how: dict[str, Any]) -> None:
        y = self.last
        if op == "Slice":
            ends = (-1, -(1 << 40)) if how["step"] < 0 else (how["step"] - 1, 1 << 40)
            y = self.node(op, y, *(self.ints(v) for v in (*ends, how["axis"], how["step"])))
        elif op == "CumSum":
            y = self.node("Tanh", self.node(op, y, self.ints(how["axis"])))
        elif op == "Concat":
            y = self.node(op, y, self.node("Neg", y), axis=how["axis"])
        elif op == "MatMul":
            turned = self.node("Transpose", y, perm=[0, 2, 1])
            y = self.node("Tanh", self.node(op, *((turned, y) if how["swap"] else (y, turned))))
        elif op == "Pad":
            y = self.node(op, y, self.ints(0, 1, 0, 1, 0, 2), mode=how["mode"])
        elif op == "Flat":
            kept = self.node("Gather", self.node("Shape", y), self.ints(how["keep"]))
            y = self.node("Reshape", y, self.node("Concat", self.ints(1), kept, self.ints(-1), axis=0))
        elif op == "Tile":
            y = self.node(op, y, self.ints(*(2 if a == how["axis"] else 1 for a in range(3))))
        elif op == "Add":
            y = self.node(op, y, self.node("ReduceMax", y, axes=[1], keepdims=1))
        else:
            y = self.node(op, y, **how)
        self.last = y

    def model(self) -> bytes:
        self.nodes.append(helper.make_node("Identity", [self.last], ["y"]))
        graph = helper.make_graph(
            self.nodes,
            "random",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["a", "b", "c"])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            self.constants,
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return bytes(made.SerializeToString())


def graph_of(steps: Sequence[tuple[str, dict[str, Any]]]) -> bytes:
    """The model x: [a, b, c] -> y of these steps, one after another."""
    made = Random()
    for op, how in steps:
        made.step(op, how)
    return made.model()


steps = st.sampled_from([(op, how) for op, hows in STEPS.items() for how in hows])
sizes = st.lists(st.tuples(*[st.integers(1, 9) | st.sampled_from([16, 33])] * 3), min_size=4, max_size=5)
drawn = st.tuples(st.lists(steps, min_size=1, max_size=6), sizes, st.booleans())
"""Steps of a graph, shapes of its runs, and whether kernels are those of GPUs."""
