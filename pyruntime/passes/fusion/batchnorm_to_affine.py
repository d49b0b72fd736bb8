"""Replace BatchNormalization with constant statistics by y = x * a + b, which fuses with the preceding convolution.

a = scale / sqrt(var + epsilon), b = bias - mean * a are vectors of C numbers. The convolution's weights are not
changed, so Python does not need to load them. Source: Ioffe and Szegedy, 2015.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pyruntime.ir import Node
from pyruntime.kernels import Target
from pyruntime.ops.registry import newest
from pyruntime.passes.graph_pass import Fact, node_pass
from pyruntime.passes.match import Matcher

__all__ = ["run"]


@node_pass(breaks=(Fact.NO_DEAD_NODES,))
def run(match: Matcher, target: Target, node: Node) -> list[Node] | None:
    """Replace an inference-mode BatchNormalization with constant statistics by Mul and Add."""
    graph = match.graph
    op: Any = node.op
    if op.domain or op.op_type != "BatchNormalization" or any(node.outputs[1:]):
        return None
    if getattr(op, "training_mode", 0) or node.outputs[0] in graph.static:
        return None
    x = graph.tensor(node.inputs[0])
    values = [graph.static_value(n) for n in node.inputs[1:5]]
    if x.rank < 2 or not x.dtype.is_float or any(v is None or v.ndim != 1 for v in values):
        return None
    scale, bias, mean, var = (np.asarray(v, np.float64) for v in values)
    a = scale / np.sqrt(var + op.epsilon)
    shape = (-1, *(1,) * (x.rank - 2))
    dtype = x.dtype
    names = [
        graph.add_constant(v.reshape(shape).astype(dtype.numpy), dtype, f"{node.outputs[0]}.{hint}")
        for v, hint in ((a, "a"), (bias - mean * a, "b"))
    ]
    product = graph.add_value(f"{node.outputs[0]}.product", x)
    mul, add = newest("Mul"), newest("Add")
    return [
        Node(mul, (node.inputs[0], names[0]), (product,), node.name),
        Node(add, (product, names[1]), (node.outputs[0],), node.name),
    ]
