"""Select the sums of a float16 graph, and the arithmetic that reads them, which compute in float32.

The sum of a mean written as ReduceSum and a product may exceed 65504, float16's largest number, and so may a norm or a
product before it is scaled; a variance written as E[x^2] - E[x]^2 loses its digits in float16. So sums, squares that
only sums read, and arithmetic with sums are computed in float32, and rounded where other nodes read them. onnxruntime's
CPU provider inserts casts to float32 around most nodes and omits those between two of them, which includes these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyruntime.ir import DType, Node, TensorType, ValueType

__all__ = ["float32_sums", "is_half"]

_SUMS = frozenset(("ReduceL1", "ReduceL2", "ReduceMean", "ReduceSum", "ReduceSumSquare"))
_PRODUCTS = frozenset(("Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"))
_ARITHMETIC = frozenset(("Add", "Div", "Max", "Min", "Mul", "Pow", "Reciprocal", "Sqrt", "Sub"))
_MOVES = frozenset(("Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"))


def is_half(kind: ValueType | None) -> bool:
    """Whether it is a tensor of float16."""
    return isinstance(kind, TensorType) and kind.dtype is DType.FLOAT16


def float32_sums(nodes: Sequence[Node], is_constant: Callable[[str], bool], *, products: bool = False) -> set[Node]:
    """Return the nodes that compute in float32 where their floats are float16.

    Args:
        nodes: nodes in topological order, of any types.
        is_constant: whether the value with this name is known without a run; sizes are taken for constants, too.
        products: products are sums, too.
    """
    sums = _SUMS | _PRODUCTS if products else _SUMS
    found: list[Node] = []
    wide: set[str] = set()
    constants = {name for node in nodes for name in node.inputs if is_constant(name)}
    for node in nodes:
        op = "" if node.op.domain else node.op.op_type
        if op in ("Shape", "Size") or constants.issuperset(node.inputs):
            constants.update(node.outputs)
        elif op in sums or (op in _MOVES and node.inputs[0] in wide):
            found.append(node)
            wide.update(node.outputs)
        elif op in _ARITHMETIC and not wide.isdisjoint(node.inputs):
            found.append(node)
            if all(name in wide or name in constants for name in node.inputs):
                wide.update(node.outputs)
    kept: set[Node] = set()
    read: set[str] = set()
    for node in reversed(found):
        if node.op.op_type in _ARITHMETIC or not read.isdisjoint(node.outputs):
            kept.add(node)
            read.update(node.inputs)
    return kept | _squares(nodes, kept)


def _squares(nodes: Sequence[Node], selected: set[Node]) -> set[Node]:
    """Return the products and powers that only the sums among the selected nodes read."""
    sums = {node for node in selected if node.op.op_type in _SUMS}
    elsewhere = {name for node in nodes if node not in sums for name in node.inputs}
    summed = {node.inputs[0] for node in sums} - elsewhere
    return {
        node
        for node in nodes
        if node.op.op_type in ("Mul", "Pow") and not node.op.domain and not summed.isdisjoint(node.outputs)
    }
