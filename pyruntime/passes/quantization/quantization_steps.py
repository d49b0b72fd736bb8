"""Convert quantization to elementwise steps, which fuse with the kernels around them.

QuantizeLinear and DequantizeLinear between float32 and integers of 8 or 16 bits, with constant parameters or one scale
per tensor, become Quantize and Dequantize (`ops.fused.quantization_steps`). Every elementwise consumer gets a separate
Dequantize, so that kernels exchange integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import DType, Node, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.elementwise.elementwise import Elementwise
from pyruntime.ops.fused.quantization_steps import STORED, Dequantize, Quantize
from pyruntime.passes.graph_pass import Fact, node_pass
from pyruntime.passes.match import Matcher
from pyruntime.passes.quantization.dequantized import Scaled, scaled, shaped

__all__ = ["run"]

_SOURCES = (DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, DType.INT32)


@node_pass(requires=(Fact.INTEGER_PRODUCTS, Fact.QUANTIZATION_MOVED), breaks=(Fact.NO_DEAD_NODES,))
def run(match: Matcher, target: Target, node: Node) -> list[Node] | None:
    """Replace a QuantizeLinear or DequantizeLinear by Quantize or Dequantize."""
    graph = match.graph
    back = scaled(graph, node, "DequantizeLinear")
    if back is not None and graph.tensor(back.x).dtype in _SOURCES and node.outputs[0] not in graph.static:
        return _dequantized(graph, target, back)
    there = scaled(graph, node, "QuantizeLinear")
    return _quantized(graph, target, there) if there is not None else None


def _dequantized(graph: TypedGraph, target: Target, back: Scaled) -> list[Node] | None:
    """Return a separate Dequantize for each elementwise consumer, and one for all others."""
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


def _parameters(graph: TypedGraph, target: Target, node: Scaled, rank: int) -> tuple[str, ...] | None:
    """Return scale and zero point, shaped to broadcast over the tensor; constants become float32. None if impossible.

    Software adapters get a zero point of 0, too: the addition is free there, while a further pipeline takes 0.1 s to
    build.
    """
    shape: tuple[int, ...] = ()
    if node.axis is not None:
        size = graph.tensor(node.scale).size
        shape = (*(1,) * node.axis, size, *(1,) * (rank - 1 - node.axis))
    names: list[str] = []
    for name in (node.scale, node.zero):
        if not name:
            continue
        if name in graph.static:
            names.append(shaped(graph, name, shape, DType.FLOAT))
        elif node.axis is None and graph.tensor(name).rank <= rank:
            names.append(name)
        else:
            return None
    if target.is_software and not node.zero and node.axis is None:
        names.append(graph.add_constant(np.zeros((), np.float32), DType.FLOAT, "zero"))
    return tuple(names)
