"""Order the weights of convolutions in panels of eight output channels, for targets without parallel invocations.

    Conv(x, w, b)  =  ConvPanels(x, WeightPanels(w), b), w a constant

A vector is then eight weights of one step, and a step multiplies each pixel by them. The weights are ordered once.
"""

from __future__ import annotations

from pyruntime.ir import DType, Node, TypedGraph
from pyruntime.kernels import Target
from pyruntime.kernels.convolution.panels import PANEL
from pyruntime.ops.convolution.conv import Conv
from pyruntime.ops.fused.conv_panels import WeightPanels, with_panels
from pyruntime.passes.graph_pass import Fact, graph_pass
from pyruntime.passes.quantization.dequantized import derived

__all__ = ["run"]


@graph_pass(requires=(Fact.INTEGER_PRODUCTS,), breaks=(Fact.NO_DEAD_NODES,))
def run(graph: TypedGraph, target: Target) -> bool:
    """Rewrite every match; return whether there was one."""
    if not target.is_serial:
        return False
    made: dict[tuple[str, int], str] = {}
    return graph.rewrite(lambda node: _instead(graph, node, made))


def _instead(graph: TypedGraph, node: Node, made: dict[tuple[str, int], str]) -> list[Node] | None:
    op = node.op
    if type(op) is not Conv or node.outputs[0] in graph.static or node.inputs[1] not in graph.static:
        return None
    name, group = node.inputs[1], op.group
    w = graph.tensor(name)
    if w.dtype is not DType.FLOAT or w.rank < 3 or w.shape[0] // group < PANEL // 2:
        return None
    nodes: list[Node] = []
    if (name, group) not in made:
        made[name, group] = derived(graph, f"{name}.panels", WeightPanels(group=group), name, nodes)
    inputs = (node.inputs[0], made[name, group], *node.inputs[2:])
    return [*nodes, Node(with_panels(op, w.shape), inputs, node.outputs, node.name)]
