"""Sizes of a decoder's caches that its inputs do not declare, from the attention that reads them.

onnxruntime-genai's builder declares caches as [batch, kv heads, past rows, `kv_cache_dim`]: how many components a head
has is a name there. It follows from how many numbers the product before the attention makes for a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyruntime.ir import Graph, Node

__all__ = ["cache_sizes"]

_PAST = {"GroupQueryAttention": (3, 4), "MultiHeadAttention": (6, 7)}
"""Which inputs of an attention operator are caches, [batch, heads, rows, components]."""

_KEEPING = (
    "Add",
    "Cast",
    "LayerNormalization",
    "MRotaryEmbedding",
    "Mul",
    "Reshape",
    "RotaryEmbedding",
    "SimplifiedLayerNormalization",
    "Transpose",
)
"""Operators whose first input that is no weight has as many elements as their output."""


def cache_sizes(graph: Graph) -> Mapping[str, tuple[int, int]]:
    """Heads and components of a head, for each cache that attention reads, where they follow from weights."""
    makers = graph.producers()
    found: dict[str, tuple[int, int]] = {}
    for node in graph.nodes:
        op: Any = node.op
        if node.op.op_type not in _PAST:
            continue
        heads = op.kv_num_heads if op.op_type == "GroupQueryAttention" else op.num_heads
        components = _components(graph, makers, node, op.num_heads, heads)
        for at in _PAST[node.op.op_type]:
            if components and at < len(node.inputs) and node.inputs[at]:
                found[node.inputs[at]] = heads, components
    return found


def _components(graph: Graph, makers: Mapping[str, Node], node: Node, heads: int, groups: int) -> int:
    """Of a head of this attention; 0 where that is not known."""
    packed = len(node.inputs) < 2 or not node.inputs[1]
    width = _width(graph, makers, node.inputs[0])
    parts = heads + 2 * groups if packed else heads
    return width // parts if width % parts == 0 else 0


def _width(graph: Graph, makers: Mapping[str, Node], name: str) -> int:
    """Numbers of a value for each token, by the product with weights that made it; 0 where that is not known."""
    while (node := makers.get(name)) is not None:
        op: Any = node.op
        if op.op_type == "MatMulNBits":
            return int(op.N)
        if op.op_type == "MatMul" and node.inputs[1] in graph.constants:
            return graph.constants[node.inputs[1]].type.shape[-1]
        if op.op_type not in _KEEPING:
            return 0
        name = next((n for n in node.inputs if n and n not in graph.constants), "")
    return 0
