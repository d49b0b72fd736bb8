"""Static parameters of DequantizeLinear and QuantizeLinear, in the form that kernels take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, Node, TypedGraph

__all__ = ["Scaled", "derived", "is_quantized", "scaled", "shaped", "value"]


@dataclass(frozen=True, slots=True)
class Scaled:
    """y = (x - zero) scale, or the inverse.

    Attributes:
        node: the operator.
        x: its first input.
        scale, zero: names; zero may be "".
        axis: axis with a scale per index; None: one scale per tensor.
    """

    node: Node
    x: str
    scale: str
    zero: str
    axis: int | None

    def same(self, graph: TypedGraph, other: Scaled) -> bool:
        """Return whether `other` has the same static per-tensor scale and zero point."""
        if self.axis is not None or other.axis is not None:
            return False
        mine, theirs = (s.numbers(graph) for s in (self, other))
        return mine is not None and mine == theirs

    def numbers(self, graph: TypedGraph) -> tuple[float, int] | None:
        """Return the per-tensor scale and zero point, or None if they are not static."""
        scale, zero = value(graph, self.scale), value(graph, self.zero) if self.zero else np.zeros(1)
        if self.axis is not None or scale is None or zero is None:
            return None
        return float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0])


def is_quantized(graph: TypedGraph) -> bool:
    """Whether the graph has QuantizeLinear or DequantizeLinear."""
    return any(n.op.op_type in ("QuantizeLinear", "DequantizeLinear") and not n.op.domain for n in graph.nodes)


def value(graph: TypedGraph, name: str) -> Array | None:
    """Return a static value, or None."""
    return graph.tensor(name).value() if name in graph.static else None


def scaled(graph: TypedGraph, node: Node | None, op_type: str) -> Scaled | None:
    """Return `node` as an operator of type `op_type` with float32 scales that are not blocked, or None."""
    if node is None or node.op.domain or node.op.op_type != op_type:
        return None
    op: Any = node.op
    x, scale, y = graph.tensor(node.inputs[0]), graph.tensor(node.inputs[1]), graph.tensor(node.outputs[0])
    floats = y if op_type == "DequantizeLinear" else x
    if scale.dtype is not DType.FLOAT or floats.dtype is not DType.FLOAT or op.block_size:
        return None
    zero = node.inputs[2] if len(node.inputs) > 2 else ""
    whole = scale.size == 1 and scale.rank <= 1
    if not whole and scale.rank != 1:
        return None
    axis = None if whole else 0 if x.rank == 1 else op.axis_of(op.axis, x.rank)
    if zero and zero in graph.static and not np.any(graph.tensor(zero).value()):
        zero = ""
    return Scaled(node, node.inputs[0], node.inputs[1], zero, axis)


def shaped(graph: TypedGraph, name: str, shape: tuple[int, ...], dtype: DType) -> str:
    """Return a static value as a constant of another shape and element type."""
    kind = graph.tensor(name)
    if kind.shape == shape and kind.dtype is dtype:
        return name
    return graph.add_constant(np.asarray(kind.value()).astype(dtype.numpy).reshape(shape), dtype, name)


def derived(graph: TypedGraph, hint: str, op: Any, source: str, nodes: list[Node]) -> str:
    """Return a value derived from a static one: computed on demand, or once on the GPU. Appends its node."""
    kind = graph.tensor(source)
    (result,) = op.infer(kind)
    name = graph.add_value(hint, result, lambda: op.evaluate_typed((kind,), kind.value())[0])
    nodes.append(Node(op, (source,), (name,), name))
    return name
