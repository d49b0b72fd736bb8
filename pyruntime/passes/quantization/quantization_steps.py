"""Quantisation as elementwise steps, which join the kernels around them, and as nothing where bytes are only moved.

    QuantizeLinear(move(DequantizeLinear(x)))  =  move(x)    of one scale and zero point, for Reshape, MaxPool and such
    QuantizeLinear(Concat(x, y))               =  Concat(QuantizeLinear(x), QuantizeLinear(y)), where these were bytes

What remains becomes Quantize and Dequantize (`ops.fused.quantization_steps`); every elementwise reader has its own
Dequantize, so that bytes are what is stored between kernels.
requires: `quantized_products` has run. ensures: no QuantizeLinear or DequantizeLinear between float32 and integers of 8
or 16 bits, with known parameters or one scale for the tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.errors import OrtError
from pyruntime.ir import DType, Node, TensorType, TypedGraph, ValueNeeded
from pyruntime.kernels import Target
from pyruntime.ops.elementwise.elementwise import Elementwise
from pyruntime.ops.fused.quantization_steps import STORED, Dequantize, Quantize
from pyruntime.ops.registry import newest
from pyruntime.passes.match import Matcher
from pyruntime.passes.quantization.dequantized import Scaled, is_quantized, scaled, shaped

__all__ = ["run"]

_SHAPES = ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Expand", "Tile")
_PICKS = ("MaxPool", "Slice", "Gather", "GatherElements", "GatherND", "DepthToSpace", "SpaceToDepth")
_MOVES = frozenset((*_SHAPES, *_PICKS))
"""Operators whose results are elements of their first input."""

_SOURCES = (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, DType.INT32)


def run(graph: TypedGraph, target: Target) -> bool:
    """Rewrite all; True where anything was."""
    if not is_quantized(graph):
        return False
    joined = _join(graph)
    moved = _move(graph)
    return _steps(graph, target) or moved or joined


def _join(graph: TypedGraph) -> bool:
    """Quantise the parts of a Concat instead of the whole: parts of the same scale are then bytes as they stand."""
    match = Matcher(graph)
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
        quantised: list[Node] = []
        for name in concat.inputs:
            part = graph.add_value(f"{name}.bytes", TensorType(kind.dtype, graph.tensor(name).shape))
            quantised.append(Node(node.op, (name, *node.inputs[1:]), (part,), node.name))
        names = tuple(n.outputs[0] for n in quantised)
        instead |= {concat: [], node: [*quantised, Node(concat.op, names, node.outputs, concat.name)]}
    return graph.substitute(instead)


def _move(graph: TypedGraph) -> bool:
    """Take the quantisation off what is only moved."""
    changed = False
    while _move_one(graph):
        changed = True
    return changed


def _move_one(graph: TypedGraph) -> bool:
    match = Matcher(graph)
    for node in graph.nodes:
        after = scaled(graph, node, "QuantizeLinear")
        move = graph.producer(node.inputs[0]) if after else None
        if after is None or move is None or move.op.domain or any(move.outputs[1:]):
            continue
        before = scaled(graph, move, "DequantizeLinear")
        if before is not None and _is_undone(graph, before, after):
            graph.update(node, newest("Identity"), (before.x,))
            return True
        if move.op.op_type not in _MOVES:
            continue
        before = scaled(graph, graph.producer(move.inputs[0]), "DequantizeLinear")
        if before is None or not match.read_once(move.outputs[0]):
            continue
        if not _is_undone(graph, before, after) or not _takes(graph, move, graph.tensor(before.x)):
            continue
        return graph.substitute(
            {move: [], node: [Node(move.op, (before.x, *move.inputs[1:]), node.outputs, move.name)]}
        )
    return False


def _is_undone(graph: TypedGraph, before: Scaled, after: Scaled) -> bool:
    """True where `after` makes the bytes of what `before` made of them."""
    kinds = graph.tensor(before.x).dtype, graph.tensor(after.node.outputs[0]).dtype
    return kinds[0] is kinds[1] and kinds[0] in STORED and before.same(graph, after)


def _takes(graph: TypedGraph, move: Node, kind: TensorType) -> bool:
    """True where the operator, of its version, takes bytes."""
    op: Any = move.op
    try:
        op.infer(kind, *(graph.types[n] if n else None for n in move.inputs[1:]))
    except (OrtError, ValueNeeded):
        return False
    return True


def _steps(graph: TypedGraph, target: Target) -> bool:
    return graph.rewrite(lambda node: _step(graph, target, node))


def _step(graph: TypedGraph, target: Target, node: Node) -> list[Node] | None:
    """The steps in the place of one operator."""
    back = scaled(graph, node, "DequantizeLinear")
    if back is not None and graph.tensor(back.x).dtype in _SOURCES and node.outputs[0] not in graph.static:
        return _dequantized(graph, target, back)
    there = scaled(graph, node, "QuantizeLinear")
    return _quantized(graph, target, there) if there is not None else None


def _dequantized(graph: TypedGraph, target: Target, back: Scaled) -> list[Node] | None:
    """One Dequantize for each elementwise consumer, which then reads that, and one for all others."""
    parameters = _parameters(graph, target, back, graph.tensor(back.x).rank)
    if parameters is None:
        return None
    result = back.node.outputs[0]
    kind, readers = graph.tensor(result), graph.consumers(result)
    elementwise = [r for r in readers if isinstance(r.op, Elementwise) or r.op.op_type == "QuantizeLinear"]
    shared = len(elementwise) < len(readers) or result in graph.outputs or not readers
    names = [result] if shared or len(elementwise) == 1 else []
    nodes = [Node(Dequantize(), (back.x, *parameters), (n,), back.node.name) for n in names]
    if not names or shared:
        for reader in elementwise:
            name = graph.add_value(f"{result}.of", kind)
            graph.update(reader, inputs=[name if n == result else n for n in reader.inputs])
            nodes.append(Node(Dequantize(), (back.x, *parameters), (name,), back.node.name))
    return nodes


def _quantized(graph: TypedGraph, target: Target, there: Scaled) -> list[Node] | None:
    op: Any = there.node.op
    kind = graph.tensor(there.node.outputs[0])
    x = graph.tensor(there.x)
    if (
        kind.dtype not in STORED
        or there.node.outputs[0] in graph.static
        or op.quotient_dtype(graph.tensor(there.scale)) is not DType.FLOAT
    ):
        return None
    parameters = _parameters(graph, target, there, x.rank)
    if parameters is None:
        return None
    step = Quantize(to=kind.dtype.code)
    return [Node(step, (there.x, *parameters), there.node.outputs, there.node.name)]


def _parameters(graph: TypedGraph, target: Target, it: Scaled, rank: int) -> tuple[str, ...] | None:
    """Scale and zero point as they broadcast over the tensor; numbers that are known as float32.

    A processor gets zeros, too: an addition is nothing to it, a pipeline more takes it a tenth of a second.
    """
    shape: tuple[int, ...] = ()
    if it.axis is not None:
        size = graph.tensor(it.scale).size
        shape = (*(1,) * it.axis, size, *(1,) * (rank - 1 - it.axis))
    names: list[str] = []
    for name in (it.scale, it.zero):
        if not name:
            continue
        if name in graph.static:
            names.append(shaped(graph, name, shape, DType.FLOAT))
        elif it.axis is None and graph.tensor(name).rank <= rank:
            names.append(name)
        else:
            return None
    if target.is_software and not it.zero and it.axis is None:
        names.append(graph.add_constant(np.zeros((), np.float32), DType.FLOAT, "zero"))
    return tuple(names)
