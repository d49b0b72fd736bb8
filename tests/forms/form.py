"""One model y = act(f(t) op t) under construction, and what the kinds of f are written with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["ACTS", "MOST_WEIGHTS", "OPS", "SIZES", "Form", "Kind", "Shape", "few", "maps_of", "swapped"]

Shape = tuple[int, ...]
OPS = ("Add", "Mul", "Sub", "from", "Where")
"""'from' is Sub with t in front; 'Where' reads t three times: t > 0 ? f(t) t : t."""
ACTS = ("Relu", "", "Sigmoid", "HardSwish")
SIZES: tuple[Shape, ...] = (
    (1, 8, 13, 13),
    (1, 32, 28, 28),
    (1, 64, 56, 56),
    (2, 7, 33, 33),
    (3, 6, 5, 7),
    (1, 256, 7, 7),
    (1, 49, 65),
    (1, 196, 64),
    (64, 1024),
    (300, 301),
    (3, 67),
    (1, 128, 60, 60),
    (2, 4, 80, 131),
    (1, 2, 128, 81),
)
"""Last dimensions that are whole groups of four and such that are not, tiles that are cut and such that are not."""
MOST_WEIGHTS = 1 << 20
OPSETS = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]


@dataclass
class Form:
    """One model under construction.

    Attributes:
        shape: of t, of f(t) and of y.
        name: kind, shape, operator and activation.
        atol: by how much results may differ.
    """

    shape: Shape
    name: str = ""
    atol: float = 1e-4
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: dict[str, Any] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)

    def op(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """A node; its first output."""
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, **attributes))
        return names[0]

    def const(self, value: Any) -> str:
        """An initializer of this value."""
        name = f"c{len(self.initializers)}"
        self.initializers[name] = np.asarray(value)
        return name

    def ints(self, *values: int) -> str:
        """An int64 vector."""
        return self.const(np.array(values, np.int64))

    def weight(self, *shape: int) -> str:
        """Numbers that keep a sum over all but the first dimension near 1."""
        rng = np.random.default_rng(len(self.initializers) + 17 * sum(shape))
        return self.const((rng.standard_normal(shape) / math.sqrt(max(1, math.prod(shape[1:])))).astype(np.float32))

    def scale(self, *shape: int) -> str:
        """Numbers around 1."""
        return self.const((1 + np.random.default_rng(sum(shape)).standard_normal(shape) / 4).astype(np.float32))

    def finish(self, f: str, op: str, act: str) -> None:
        """y = act(f op t)."""
        if op == "Where":
            positive = self.op("Greater", "t", self.const(np.float32(0)))
            y = self.op("Where", positive, self.op("Mul", f, "t"), "t")
        else:
            y = self.op("Sub", "t", f) if op == "from" else self.op(op, f, "t")
        self.outputs = [self.op(act, y) if act else y]

    def model(self) -> bytes:
        """The model's bytes; its one input is x."""
        nodes = [helper.make_node("Tanh", ["x"], ["t"]), *self.nodes]
        graph = helper.make_graph(
            nodes,
            "form",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, self.shape)],
            [onnx.ValueInfoProto(name=name) for name in self.outputs],
            [numpy_helper.from_array(value, name) for name, value in self.initializers.items()],
        )
        model = helper.make_model(graph, opset_imports=OPSETS, ir_version=10)
        return bytes(model.SerializeToString())

    def feed(self) -> Any:
        """A value for x."""
        return np.random.default_rng(len(self.name)).standard_normal(self.shape).astype(np.float32)


Kind = Callable[[Form], str | None]
"""Adds f to a form and gives its result's name; None where the shape does not fit."""


def maps_of(form: Form) -> Shape | None:
    """The shape of pictures."""
    return form.shape if len(form.shape) == 4 else None


def swapped(form: Form) -> list[int]:
    rank = len(form.shape)
    return [*range(rank - 2), rank - 1, rank - 2]


def few(channels: int) -> int:
    """Few groups of many channels."""
    return next(g for g in (2, 3, 7, 1) if channels % g == 0)
