"""Let tensors that are dequantized, moved and quantized again move in their quantized type.

QuantizeLinear(move(DequantizeLinear(x)))  =  move(x)    with one scale and zero point; Reshape, MaxPool and such
QuantizeLinear(Concat(x, y))               =  Concat(QuantizeLinear(x), QuantizeLinear(y)), of dequantized x, y
"""

from __future__ import annotations

from typing import Any

from pyruntime.errors import OrtError
from pyruntime.ir import Node, TensorType, TypedGraph, ValueNeeded
from pyruntime.kernels import Target
from pyruntime.ops.fused.quantization_steps import STORED
from pyruntime.ops.registry import newest
from pyruntime.passes.graph_pass import Fact, graph_pass
from pyruntime.passes.match import Matcher
from pyruntime.passes.quantization.dequantized import Scaled, is_quantized, scaled

__all__ = ["run"]

_SHAPES = ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Expand", "Tile")
_PICKS = ("MaxPool", "Slice", "Gather", "GatherElements", "GatherND", "DepthToSpace", "SpaceToDepth")
_MOVES = frozenset((*_SHAPES, *_PICKS))
"""Operators whose results are elements of their first input."""


@graph_pass(
    requires=(Fact.INTEGER_PRODUCTS,),
    ensures=(Fact.QUANTIZATION_MOVED,),
    breaks=(Fact.NO_DEAD_NODES,),
    repeats=True,
)
def run(graph: TypedGraph, target: Target) -> bool:
    """Move quantization past each Concat and each movement once; return whether there was one."""
    if not is_quantized(graph):
        return False
    match = Matcher(graph)
    changed = graph.substitute(_concatenations(graph, match))
    for node in graph.nodes:
        changed |= _move(graph, match, node)
    return changed


def _concatenations(graph: TypedGraph, match: Matcher) -> dict[Node, list[Node]]:
    """Return edits that quantize the parts of a Concat, not its result: equally quantized parts pass unchanged."""
    instead: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        after = scaled(graph, node, "QuantizeLinear")
        concat = match.producer(node.inputs[0], "Concat") if after else None
        if after is None or concat is None or after.axis is not None or not match.read_once(node.inputs[0]):
            continue
        parts = [scaled(graph, graph.producer(n), "DequantizeLinear") for n in concat.inputs]
        kind = graph.tensor(node.outputs[0])
        if kind.dtype not in STORED or not all(p is not None and p.axis is None for p in parts):
            continue
        quantized: list[Node] = []
        for name in concat.inputs:
            part = graph.add_value(f"{name}.bytes", TensorType(kind.dtype, graph.tensor(name).shape))
            quantized.append(Node(node.op, (name, *node.inputs[1:]), (part,), node.name))
        names = tuple(n.outputs[0] for n in quantized)
        instead |= {concat: [], node: [*quantized, Node(concat.op, names, node.outputs, concat.name)]}
    return instead


def _move(graph: TypedGraph, match: Matcher, node: Node) -> bool:
    """Remove the quantization `node` of a tensor that is only moved; return False if `node` does not match."""
    after = scaled(graph, node, "QuantizeLinear")
    move = graph.producer(node.inputs[0]) if after else None
    if after is None or move is None or move.op.domain or any(move.outputs[1:]):
        return False
    before = scaled(graph, move, "DequantizeLinear")
    if before is not None and _is_undone(graph, before, after):
        graph.update(node, newest("Identity"), (before.x,))
        return True
    before = scaled(graph, graph.producer(move.inputs[0]), "DequantizeLinear") if move.op.op_type in _MOVES else None
    if before is None or not match.read_once(move.outputs[0]):
        return False
    if not _is_undone(graph, before, after) or not _accepts(graph, move, graph.tensor(before.x)):
        return False
    moved = Node(move.op, (before.x, *move.inputs[1:]), node.outputs, move.name)
    return graph.substitute({move: [], node: [moved]})


def _is_undone(graph: TypedGraph, before: Scaled, after: Scaled) -> bool:
    """Return whether `after` restores the integers that `before` dequantized."""
    kinds = graph.tensor(before.x).dtype, graph.tensor(after.node.outputs[0]).dtype
    return kinds[0] is kinds[1] and kinds[0] in STORED and before.same(graph, after)


def _accepts(graph: TypedGraph, move: Node, kind: TensorType) -> bool:
    """Return whether the operator, in its opset version, accepts tensors of this type."""
    op: Any = move.op
    try:
        op.infer(kind, *(graph.types[n] if n else None for n in move.inputs[1:]))
    except (OrtError, ValueNeeded):
        return False
    return True
