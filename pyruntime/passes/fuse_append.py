"""Rows behind those of a cache: a Concat of heads whose new rows are a view reads them where they are.

requires: `fuse_rotary` has run. ensures: no Concat [B, H, P, D] with [B, H, N, D] along the rows whose second input is
made by transposes, reshapes, slices or splits that copy.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyruntime.ir import Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.kernels.attention_form import HeadView
from pyruntime.ops.append_heads import AppendHeads
from pyruntime.passes.views import View, trace

__all__ = ["run"]


def run(graph: TypedGraph, target: Target) -> bool:
    """Replace every match; True where there was one. What it leaves dead is left to dead_code."""
    makers = graph.producers()
    made = [_appended(graph, makers, node) or node for node in graph.nodes]
    changed = any(a is not b for a, b in zip(made, graph.nodes, strict=True))
    graph.nodes = made
    return changed


def _appended(graph: TypedGraph, makers: Mapping[str, Node], node: Node) -> Node | None:
    if node.op.domain or node.op.op_type != "Concat" or len(node.inputs) != 2 or node.outputs[0] in graph.static:
        return None
    past, new = (graph.types[n] for n in node.inputs)
    if not isinstance(past, TensorType) or not isinstance(new, TensorType) or past.rank != 4:
        return None
    if node.op.axis % 4 != 2 or not past.dtype.is_float or past.dtype.is_wide:  # type: ignore[attr-defined]
        return None
    if node.inputs[0] in graph.static or node.inputs[1] in graph.static:
        return None
    view = trace(graph, node.inputs[1], makers)
    if view.scale != 1 or view.source == node.inputs[1] or view == View.whole(view.source, new):
        return None
    a, b, c, d = view.strides
    op = AppendHeads(rows=new.shape[2], view=HeadView(view.base, (a, b, c, d)))
    return Node(op, (node.inputs[0], view.source), node.outputs, node.name)
