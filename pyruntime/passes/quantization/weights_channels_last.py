"""Store weights of int8 convolutions with their channels last where the fastest kernel reads them so.

    ConvInteger(x, w), QLinearConv   =  the same with ChannelsLast(w), w a constant

A word of such weights is four channels of a filter position, which software adapters unpack once per four pixels. The
session converts the weights once.
"""

from __future__ import annotations

from typing import Any

from pyruntime.ir import DType, Node, TensorType, TypedGraph
from pyruntime.kernels import Target, inp, out
from pyruntime.kernels.convolution.convolution import chosen_of_constant
from pyruntime.ops.convolution.conv_integer import ConvInteger, QLinearConv
from pyruntime.ops.fused.integer_conv_channels_last import ChannelsLast, channels_last_weights
from pyruntime.passes.graph_pass import Fact, graph_pass
from pyruntime.passes.quantization.dequantized import derived

__all__ = ["run"]


@graph_pass(requires=(Fact.INTEGER_PRODUCTS,), breaks=(Fact.NO_DEAD_NODES,))
def run(graph: TypedGraph, target: Target) -> bool:
    """Rewrite every match; return whether there was one."""
    made: dict[str, str] = {}
    return graph.rewrite(lambda node: _instead(graph, target, node, made))


def _instead(graph: TypedGraph, target: Target, node: Node, made: dict[str, str]) -> list[Node] | None:
    op: Any = node.op
    if type(op) not in (ConvInteger, QLinearConv) or node.outputs[0] in graph.static:
        return None
    at = 1 if isinstance(op, ConvInteger) else 3
    zeros = (2, 3) if at == 1 else (2, 5)
    name = node.inputs[at]
    if name not in graph.static:
        return None
    x, w, y = graph.tensor(node.inputs[0]), graph.tensor(name), graph.tensor(node.outputs[0])
    given = [inp(i, graph.tensor(node.inputs[i])) if len(node.inputs) > i and node.inputs[i] else None for i in zeros]
    sums = out(0, TensorType(DType.INT32, y.shape))
    conv = op.describe(inp(0, x), inp(at, w), sums, (given[0], given[1]))
    if conv.window.is_pointwise or chosen_of_constant(target, conv).kernel != "int8_direct":
        return None
    nodes: list[Node] = []
    if name not in made:
        made[name] = derived(graph, f"{name}.channels_last", ChannelsLast(), name, nodes)
    inputs = (*node.inputs[:at], made[name], *node.inputs[at + 1 :])
    return [*nodes, Node(channels_last_weights(op, w.shape[1]), inputs, node.outputs, node.name)]
