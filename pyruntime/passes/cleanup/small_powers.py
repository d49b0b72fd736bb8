"""Replace x^2 by x * x, and x^3 by x * x * x, as in tanh GELU and norms composed of several operators.

The general power takes sixty lines of WGSL, which an epilogue repeats for each of its results. NaN, infinities and
zeros are unchanged; other results differ by rounding. Only for float32: with fewer bits, the intermediate square would
be rounded.
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
    """Replace Pow of float32 with a static exponent of 2 or 3 by products."""
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
