"""Number of positions that a decoder supports: rows of its rotary or learned position tables.

Kernels have no angles for later positions; onnxruntime refuses them too.
"""

from __future__ import annotations

from typing import Any

from pyruntime.ir.graph import Graph, Node

__all__ = ["positions_of"]


def positions_of(graph: Graph, positions: str) -> int | None:
    """Return the number of rows of the shortest position table; None where there is no constant one.

    Args:
        positions: name of the input with positions, to find tables that are gathered with it.
    """
    names = [_table(node, positions) for node in graph.nodes]
    tables = [graph.constants[name].type.shape for name in names if name in graph.constants]
    return min((shape[0] for shape in tables if len(shape) == 2 and shape[0]), default=None)


def _table(node: Node, positions: str) -> str:
    """Return the name of the position table that a node reads; '' if there is none."""
    op: Any = node.op
    kind = (op.op_type, op.domain)
    slots = {
        ("GroupQueryAttention", "com.microsoft"): 7,
        ("RotaryEmbedding", "com.microsoft"): 2,
        ("MRotaryEmbedding", "com.microsoft"): 2,
        ("RotaryEmbedding", ""): 1,
        ("Gather", ""): 0 if node.inputs[1:] == (positions,) else None,
    }
    slot = slots.get(kind)
    if op.op_type == "GroupQueryAttention" and not op.do_rotary:
        return ""
    return node.inputs[slot] if slot is not None and slot < len(node.inputs) else ""
