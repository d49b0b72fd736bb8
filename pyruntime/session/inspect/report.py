"""What a session tells about itself, as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyruntime.compiler.plan import Assignment
from pyruntime.ir import Graph, Node
from pyruntime.ops.base import Op
from pyruntime.session.environment import CPU
from pyruntime.session.inspect.explanation import DynamicDimension

if TYPE_CHECKING:
    from pyruntime.session.run.program import Program, Stage

__all__ = ["assignments", "dynamic_dimensions", "stages_of"]


def stages_of(program: Program | None) -> list[Stage]:
    """Return the stages of the signature planned last."""
    chain: list[Stage] = []
    options = program.roots if program else []
    while options:
        chain.append(options[-1])
        options = options[-1].next
    return chain


def dynamic_dimensions(program: Program | None) -> list[DynamicDimension]:
    """Return the dynamic dimensions of the plan used last."""
    sizes = next((stage.sizes for stage in stages_of(program) if stage.sizes), None)
    if sizes is None:
        return []
    pinned = sizes.specialized()
    pairs = zip(sizes.names, sizes.ranges, strict=True)
    return [DynamicDimension(name, low, high) for name, (low, high) in pairs if name not in pinned]


def assignments(graph: Graph, program: Program | None) -> list[Assignment]:
    """Return where each node runs and why, in the model's order; where it could run, before anything is planned."""
    if program is None:
        reason = f"the session runs on {CPU}"
        return [_assignment(n, "host", reason) for n in graph.nodes]
    stages = stages_of(program)
    made = [a for stage in stages for a in stage.executable.plan.assignments]
    boundaries = [s.boundary.node for s in stages if s.boundary and s.boundary.node]
    made += [_assignment(n, "host", _why_boundary(n)) for n in boundaries]
    for node in stages[-1].compiled.rest if stages else graph.nodes:
        has = isinstance(node.op, Op) and type(node.op).has_kernel()
        reason = "has a GPU kernel; planned when shapes are known" if has else f"{node.op.op_type} has no GPU kernel"
        made.append(_assignment(node, "gpu" if has else "host", reason))
    order = {n.name: i for i, n in enumerate(graph.nodes)}
    return sorted(made, key=lambda a: order.get(a.name, len(order)))


def _why_boundary(node: Node) -> str:
    """Why a stage ends before a node."""
    if node.op.domain == "" and node.op.op_type in ("Loop", "Scan"):
        return "its trips, its condition or a shape depends on values, or its body has a node without GPU kernel"
    return "its output shape depends on values"


def _assignment(node: Node, placement: str, reason: str) -> Assignment:
    return Assignment(node.name, node.op.op_type, node.op.domain, placement, reason)
