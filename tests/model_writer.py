"""Nodes and weights of a model under construction."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

__all__ = ["ModelNodes"]


class ModelNodes:
    """Nodes and weights in order; methods give the name of what they make.

    Attributes:
        rng: draws the weights, the same for each `seed`.
    """

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self.rng = np.random.default_rng(seed)

    def given(self, value: Any) -> str:
        """A constant."""
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def ints(self, *values: int) -> str:
        """A constant int64 [n]."""
        return self.given(np.array(values, np.int64))

    def add(self, op: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """A node of one output."""
        name = out or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name
