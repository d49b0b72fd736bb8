"""x^2 becomes x * x, and x^3 x * x * x: GELU by tanh and norms in single steps have them.

A power of any exponent is sixty lines of a shader, which a product with an epilogue has once for each of its results.
NaN, infinities and zeros stay the same; other results differ by rounding. Not for types of fewer bits than float32,
whose square would be rounded in between.
"""

from __future__ import annotations

from pyruntime.ir import DType, Node
from pyruntime.kernels import Target
from pyruntime.ops.registry import newest
from pyruntime.passes.graph_pass import Fact, node_pass
from pyruntime.passes.match import Matcher

__all__ = ["run"]


@node_pass(breaks=(Fact.NO_DEAD_NODES,))
def run(match: Matcher, target: Target, node: Node) -> list[Node] | None:
    """Products in the place of a Pow of float32 to a static 2 or 3."""
    graph = match.graph
    if node.op.domain or node.op.op_type != "Pow" or node.outputs[0] in graph.static:
        return None
    x = graph.tensor(node.inputs[0])
    exponent = match.scalar(node.inputs[1])
    if x.dtype is not DType.FLOAT or exponent not in (2, 3) or graph.tensor(node.inputs[1]).rank > x.rank:
        return None
    mul, base, power = newest("Mul"), node.inputs[0], node.outputs[0]
    if exponent == 2:
        return [Node(mul, (base, base), (power,), node.name)]
    square = graph.add_value(f"{power}.square", x)
    return [Node(mul, (base, base), (square,), node.name), Node(mul, (square, base), (power,), node.name)]
