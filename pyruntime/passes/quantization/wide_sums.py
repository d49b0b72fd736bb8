"""Compute sums of float16, and arithmetic on them alone, in float32, with casts before and after.

`ops/float32_sums.py` selects the nodes, for NumPy as well. The pass runs after norms and attention are fused, whose
kernels accumulate in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pyruntime.ir import DType, Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.float32_sums import float32_sums, is_half
from pyruntime.ops.registry import newest
from pyruntime.passes.graph_pass import Fact, graph_pass

__all__ = ["run"]


@graph_pass(requires=(Fact.NORMS_FUSED, Fact.ATTENTION_FUSED), always=True)
def run(graph: TypedGraph, target: Target) -> bool:
    """Let the selected nodes of float16 compute in float32."""
    selected = float32_sums(graph.nodes, graph.static.__contains__)
    selected = {n for n in selected if is_half(graph.types.get(n.outputs[0])) and n.outputs[0] not in graph.static}
    sums = [n for n in graph.nodes if n in selected]
    read = {name for n in graph.nodes if n not in selected for name in n.inputs}.union(graph.outputs)
    edits: dict[Node, Sequence[Node]] = {}
    wide: dict[str, str] = {}
    for node in sums:
        halves = [n for n in dict.fromkeys(node.inputs) if n not in wide and is_half(graph.types.get(n))]
        before = [_widened(graph, wide, name) for name in halves]
        result = node.outputs[0]
        wide[result] = graph.add_value(f"{result}.float32", replace(graph.tensor(result), dtype=DType.FLOAT))
        graph.update(node, inputs=[wide.get(n, n) for n in node.inputs], outputs=[wide[result]])
        after = [_cast(wide[result], result, DType.FLOAT16)] if result in read else []
        edits[node] = (*before, node, *after)
    return graph.substitute(edits)


def _widened(graph: TypedGraph, wide: dict[str, str], name: str) -> Node:
    """Return the cast of a value of float16 to float32, and record its result."""
    kind = graph.tensor(name)
    value = (lambda: kind.value().astype(np.float32)) if name in graph.static else None
    wide[name] = graph.add_value(f"{name}.float32", TensorType(DType.FLOAT, kind.shape), value)
    return _cast(name, wide[name], DType.FLOAT)


def _cast(source: str, result: str, dtype: DType) -> Node:
    return Node(newest("Cast", to=dtype.code), (source,), (result,), result)
