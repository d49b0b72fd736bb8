"""Convert products of dequantized operands to integer products with a scaled result.

    f(DequantizeLinear(x), DequantizeLinear(w)) + b  =  (f_integer(x, w) + b / s) s,  s = x_scale w_scale

f is Conv, MatMul or Gemm; x has one scale, w one or one per output channel or column, all constant. Sums are exact in
int32, as in onnxruntime's kernels; a bias quantized with scale s is added to them, any other bias after the scaling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pyruntime.ir import DType, Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.kernels.products.integer_matmul import BYTES
from pyruntime.ops.convolution.sliding import conv_attributes
from pyruntime.ops.registry import newest
from pyruntime.passes.graph_pass import Fact, node_pass
from pyruntime.passes.match import Matcher
from pyruntime.passes.quantization.dequantized import Scaled, scaled, shaped, value

__all__ = ["run"]


@node_pass(ensures=(Fact.INTEGER_PRODUCTS,), breaks=(Fact.NO_DEAD_NODES,))
def run(match: Matcher, target: Target, node: Node) -> list[Node] | None:
    """Replace a Conv, MatMul or Gemm by an integer product and its scaling."""
    graph = match.graph
    op: Any = node.op
    if op.domain or op.op_type not in ("Conv", "MatMul", "Gemm") or node.outputs[0] in graph.static:
        return None
    x, w = (scaled(graph, graph.producer(n), "DequantizeLinear") for n in node.inputs[:2])
    if x is None or w is None or x.axis is not None or value(graph, w.scale) is None:
        return None
    if any(graph.tensor(s.x).dtype not in BYTES for s in (x, w)):
        return None
    if op.op_type == "Gemm" and (op.alpha != 1.0 or op.beta != 1.0 or op.transA):
        return None
    y = graph.tensor(node.outputs[0])
    build = _Build(graph, node, y)
    if op.op_type == "Conv":
        return build.product(newest("ConvInteger", **conv_attributes(op)), x, w, 0, (-1, *(1,) * (y.rank - 2)))
    rank = graph.tensor(w.x).rank
    transposed = op.op_type == "Gemm" and op.transB
    if rank < 2 and w.axis is not None:
        return None
    if transposed:
        w = build.turned(w)
    return build.product(newest("MatMulInteger"), x, w, rank - 1, (-1,))


@dataclass
class _Build:
    """Builds the replacement of `node`, whose result has type `y`."""

    graph: TypedGraph
    node: Node
    y: TensorType
    before: list[Node] = field(default_factory=list)

    def turned(self, w: Scaled) -> Scaled:
        """Transpose [n, k] weights to [k, n]."""
        kind = self.graph.tensor(w.x)
        value = (lambda: kind.value().T) if w.x in self.graph.static else None
        result = self.graph.add_value(f"{w.x}.turned", kind.with_shape(*kind.shape[::-1]), value)
        self.before = [Node(newest("Transpose", perm=(1, 0)), (w.x,), (result,), result)]
        return Scaled(w.node, result, w.scale, w.zero, None if w.axis is None else 1 - w.axis)

    def product(self, op: Any, x: Scaled, w: Scaled, axis: int, column: tuple[int, ...]) -> list[Node] | None:
        """Return the nodes of the integer product `op` and its scaling; None if the operands do not match.

        Args:
            axis: the axis of w that may have a scale per index.
            column: the shape of such scales over y, -1 for their number.
        """
        graph, node = self.graph, self.node
        if w.axis is not None and w.axis != axis:
            return None
        if w.zero and value(graph, w.zero) is None:
            return None
        nodes = self.before
        sums = TensorType(DType.INT32, self.y.shape)
        current = graph.add_value(f"{node.outputs[0]}.sums", sums)
        inputs = [x.x, w.x, x.zero, w.zero]
        while not inputs[-1]:
            inputs.pop()
        nodes.append(Node(op, tuple(inputs), (current,), node.name))
        weights = value(graph, w.scale)
        assert weights is not None
        weights = weights.reshape(column if w.axis is not None else ())
        bias = node.inputs[2] if len(node.inputs) > 2 else ""
        exact = self._exact_bias(bias, x, weights) if bias else ""
        if exact:
            current = self._add(nodes, current, self._column(exact, column, DType.INT32), sums)
        real = graph.add_value(f"{node.outputs[0]}.real", self.y)
        nodes.append(Node(newest("Cast", to=DType.FLOAT.code), (current,), (real,), node.name))
        last = not bias or bool(exact)
        done = node.outputs[0] if last else graph.add_value(f"{node.outputs[0]}.scaled", self.y)
        nodes.append(Node(newest("Mul"), (real, self._scale(nodes, x, weights)), (done,), node.name))
        if not last:
            kind = graph.tensor(bias)
            shaped_bias = self._column(bias, column, DType.FLOAT) if kind.rank == 1 and bias in graph.static else bias
            if op.op_type == "ConvInteger" and shaped_bias == bias:
                return None
            nodes.append(Node(newest("Add"), (done, shaped_bias), node.outputs, node.name))
        return nodes

    def _scale(self, nodes: list[Node], x: Scaled, weights: Any) -> str:
        """Return the name of x_scale w_scale: a constant if both are known."""
        graph = self.graph
        given = value(graph, x.scale)
        if given is not None:
            return graph.add_constant(np.asarray(given.reshape(()) * weights, np.float32), DType.FLOAT, "scale")
        other = graph.add_constant(np.asarray(weights, np.float32), DType.FLOAT, "scale")
        kind = TensorType(DType.FLOAT, weights.shape if weights.shape else graph.tensor(x.scale).shape)
        result = graph.add_value(f"{self.node.outputs[0]}.scale", kind)
        nodes.append(Node(newest("Mul"), (x.scale, other), (result,), self.node.name))
        return result

    def _exact_bias(self, bias: str, x: Scaled, weights: Any) -> str:
        """Return the int32 bias that `bias` dequantizes, if its scale is that of the sums; otherwise ""."""
        found = scaled(self.graph, self.graph.producer(bias), "DequantizeLinear")
        scale, given = (value(self.graph, n) if n else None for n in (found.scale if found else "", x.scale))
        if found is None or found.zero or scale is None or given is None or found.x not in self.graph.static:
            return ""
        if self.graph.tensor(found.x).dtype is not DType.INT32 or self.graph.tensor(found.x).rank != 1:
            return ""
        expected = given.reshape(-1) * weights.reshape(-1)
        if scale.size not in (1, expected.size) or not np.allclose(scale.reshape(-1), expected, 1e-6, 0):
            return ""
        return found.x

    def _column(self, name: str, column: Sequence[int], dtype: DType) -> str:
        """Reshape a static vector to broadcast over y."""
        size = self.graph.tensor(name).size
        return shaped(self.graph, name, tuple(size if d < 0 else d for d in column), dtype)

    def _add(self, nodes: list[Node], a: str, b: str, kind: TensorType) -> str:
        result = self.graph.add_value(f"{self.node.outputs[0]}.biased", kind)
        nodes.append(Node(newest("Add"), (a, b), (result,), self.node.name))
        return result
