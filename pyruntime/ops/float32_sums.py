"""Select the sums of a float16 graph that stay in float32 until they are scaled.

The sum of a mean written as ReduceSum and a product may exceed 65504, float16's largest number, and a variance written
as E[x^2] - E[x]^2 loses its digits in float16. So sums, squares that only these sums read, and arithmetic on sums alone
are computed in float32, and rounded where other nodes read them. onnxruntime's CPU provider inserts casts to float32
around most nodes and omits those between two of them, which includes these chains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyruntime.ir import Node

__all__ = ["float32_sums"]

_SUMS = frozenset(("ReduceL1", "ReduceL2", "ReduceMean", "ReduceSum", "ReduceSumSquare"))
_ARITHMETIC = frozenset(("Add", "Div", "Max", "Min", "Mul", "Pow", "Reciprocal", "Sqrt", "Sub"))
_MOVES = frozenset(("Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"))


def float32_sums(nodes: Sequence[Node], is_constant: Callable[[str], bool]) -> set[Node]:
    """Return the nodes that compute in float32 where their floats are float16.

    Args:
        nodes: nodes in topological order, of any types.
        is_constant: whether the value with this name is known without a run.
    """
    found: list[Node] = []
    wide: set[str] = set()
    constants = {name for node in nodes for name in node.inputs if is_constant(name)}
    for node in nodes:
        if constants.issuperset(node.inputs):
            constants.update(node.outputs)
        elif _is_wide(node, wide, constants):
            found.append(node)
            wide.update(node.outputs)
    kept: set[Node] = set()
    read: set[str] = set()
    for node in reversed(found):
        if node.op.op_type in _ARITHMETIC or not read.isdisjoint(node.outputs):
            kept.add(node)
            read.update(node.inputs)
    return kept | _squares(nodes, kept)


def _is_wide(node: Node, wide: set[str], constants: set[str]) -> bool:
    """Return whether a node is a sum, or computes with or moves nothing but sums and constants."""
    if node.op.domain or node.op.op_type in _SUMS:
        return not node.op.domain
    if node.op.op_type in _MOVES:
        return node.inputs[0] in wide
    if node.op.op_type not in _ARITHMETIC or wide.isdisjoint(node.inputs):
        return False
    return all(name in wide or name in constants for name in node.inputs)


def _squares(nodes: Sequence[Node], sums: set[Node]) -> set[Node]:
    """Return the products and powers that only `sums` read."""
    elsewhere = {name for node in nodes if node not in sums for name in node.inputs}
    summed = {node.inputs[0] for node in sums if node.op.op_type in _SUMS} - elsewhere
    return {
        node
        for node in nodes
        if node.op.op_type in ("Mul", "Pow") and not node.op.domain and not summed.isdisjoint(node.outputs)
    }
