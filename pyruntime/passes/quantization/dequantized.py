"""The parameters of DequantizeLinear and QuantizeLinear that are known while planning, in the form kernels take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, Node, TypedGraph

__all__ = ["Scaled", "derived", "is_quantized", "scaled", "shaped", "value"]


@dataclass(frozen=True, slots=True)
class Scaled:
    """y = (x - zero) scale, or the other way round.

    Attributes:
        node: the operator. x: its first input. scale, zero: names; zero may be "".
        axis: None for one scale for the tensor, or the axis whose every index has its own.
    """

    node: Node
    x: str
    scale: str
    zero: str
    axis: int | None

    def same(self, graph: TypedGraph, other: Scaled) -> bool:
        """True where both have the same known scale and zero point for the tensor."""
        if self.axis is not None or other.axis is not None:
            return False
        mine, theirs = (s.numbers(graph) for s in (self, other))
        return mine is not None and mine == theirs

    def numbers(self, graph: TypedGraph) -> tuple[float, int] | None:
        """Scale and zero point for the tensor, where they are known."""
        scale, zero = value(graph, self.scale), value(graph, self.zero) if self.zero else np.zeros(1)
        if self.axis is not None or scale is None or zero is None:
            return None
        return float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0])


def is_quantized(graph: TypedGraph) -> bool:
    """True where anything is quantised or dequantised."""
    return any(n.op.op_type in ("QuantizeLinear", "DequantizeLinear") and not n.op.domain for n in graph.nodes)


def value(graph: TypedGraph, name: str) -> Array | None:
    """A static value, or None."""
    return graph.tensor(name).value() if name in graph.static else None


def scaled(graph: TypedGraph, node: Node | None, op_type: str) -> Scaled | None:
    """`node` as an ai.onnx operator of this type, of float32 scales without blocks; None where it is none."""
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
    """A static value as a constant of another shape and element type."""
    kind = graph.tensor(name)
    if kind.shape == shape and kind.dtype is dtype:
        return name
    return graph.add_constant(np.asarray(kind.value()).astype(dtype.numpy).reshape(shape), dtype, name)


def derived(graph: TypedGraph, hint: str, op: Any, source: str, nodes: list[Node]) -> str:
    """A value that follows from constants: computed on demand, or by the GPU once."""
    kind = graph.tensor(source)
    (result,) = op.infer(kind)
    name = graph.add_value(hint, result, lambda: op.evaluate_typed((kind,), kind.value())[0])
    nodes.append(Node(op, (source,), (name,), name))
    return name
