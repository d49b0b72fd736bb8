"""Format a typed graph as text."""

from __future__ import annotations

from pyruntime.ir import TypedGraph

__all__ = ["listing"]


def listing(graph: TypedGraph) -> str:
    """Return one line for each input, node and output; results of nodes are listed with their types."""
    lines = [f"input {name}: {graph.types[name]}" for name in graph.inputs]
    for node in graph.nodes:
        made = ", ".join(f"{name}: {graph.types[name]}" if name else "_" for name in node.outputs)
        lines.append(f"{made} = {node.op.title}({', '.join(node.inputs)})")
    return "\n".join([*lines, *(f"output {name}" for name in graph.outputs)]) + "\n"
