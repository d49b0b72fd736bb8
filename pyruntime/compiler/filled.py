"""NonZero of ConstantOfShape, which exporters write for a range: all coordinates of a tensor, in row-major order.

Row i is the range of dimension i, repeated over the others. Written so, its size follows from the shape, and plans for
dynamic dimensions need not wait for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Constant, Node
from pyruntime.ops.base import LATEST
from pyruntime.ops.registry import op_class

__all__ = ["coordinates"]


def coordinates(node: Node, shape: str, rank: int) -> tuple[list[Node], dict[str, Constant]]:
    """The nodes and constants that stand for `node`, NonZero of a tensor of this `rank` without a 0.

    Args:
        shape: the value that has its dimensions, int64 [rank].
    """
    prefix = f"{node.name or node.outputs[0]}/coordinates/"
    nodes: list[Node] = []
    constants: dict[str, Constant] = {}

    def given(name: str, *values: int, scalar: bool = False) -> str:
        array = np.array(values[0] if scalar else values, np.int64)
        constants[prefix + name] = Constant.from_array(array)
        return prefix + name

    def add(op: str, name: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(Node(op_class(op, "", LATEST)(**attributes), inputs, (prefix + name,), prefix + name))
        return prefix + name

    zero, one, row = given("zero", 0, scalar=True), given("one", 1, scalar=True), given("row", 1, -1)
    rows = []
    for i in range(rank):
        size = add("Gather", f"size{i}", shape, given(f"axis{i}", i, scalar=True))
        every = add("Range", f"range{i}", zero, size, one)
        if rank > 1:
            along = given(f"along{i}", *(-1 if axis == i else 1 for axis in range(rank)))
            every = add("Expand", f"all{i}", add("Reshape", f"line{i}", every, along), shape)
        rows.append(add("Reshape", f"row{i}", every, row))
    joined: Any = op_class("Concat", "", LATEST)
    nodes.append(Node(joined(axis=0), tuple(rows), node.outputs, node.name))
    return nodes, constants
