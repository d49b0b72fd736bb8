"""An addition between two reshapes that only add and take away dimensions of one goes without them.

reshape(reshape(x, [1, ..]) + m, shape of x) = x + reshape(m), as windowed attention adds its mask.
requires: types. ensures: no such Add, Sub, Mul or Div of concrete sizes whose intermediate values nobody else reads.
"""

from __future__ import annotations

from pyruntime.ir import DType, Node, TensorType, TypedGraph, int_array
from pyruntime.kernels import Target
from pyruntime.ops.registry import newest
from pyruntime.passes.match import Matcher

__all__ = ["run"]


def run(graph: TypedGraph, target: Target) -> bool:
    """Rewrite every match; True where there was one. What it leaves dead is left to dead_code."""
    match = Matcher(graph)
    return graph.rewrite(lambda node: _rewritten(graph, match, node))


def _rewritten(graph: TypedGraph, match: Matcher, node: Node) -> list[Node] | None:
    if node.op.domain or node.op.op_type != "Reshape" or node.outputs[0] in graph.static:
        return None
    inner = match.maker(node.inputs[0], "Add", "Sub", "Mul", "Div")
    if inner is None or not match.read_once(node.inputs[0]):
        return None
    y = graph.tensor(node.outputs[0])
    for i in (0, 1):
        before = match.maker(inner.inputs[i], "Reshape")
        other = inner.inputs[1 - i]
        if before is None or other == inner.inputs[i] or not match.read_once(inner.inputs[i]):
            continue
        x, wide, m = (graph.tensor(n) for n in (before.inputs[0], before.outputs[0], other))
        if x.shape != y.shape or graph.tensor(inner.outputs[0]).shape != wide.shape or m.rank > wide.rank:
            continue
        shape = _without(wide.shape, y.shape, (1,) * (wide.rank - m.rank) + m.shape)
        if shape is None:
            continue
        name = graph.fresh(f"{other}.reshaped")
        kind = m
        source = (lambda k=kind, s=shape: k.value().reshape(s)) if other in graph.static else None
        graph.types[name] = TensorType(m.dtype, shape, source, name)
        if other in graph.static:
            graph.static.add(name)
        wanted = graph.add_constant(int_array(shape), DType.INT64, f"{name}.shape")
        inputs = (before.inputs[0], name) if i == 0 else (name, before.inputs[0])
        return [
            Node(newest("Reshape", allowzero=1), (other, wanted), (name,), name),
            Node(inner.op, inputs, node.outputs, inner.name),
        ]
    return None


def _without(wide: tuple[int, ...], narrow: tuple[int, ...], m: tuple[int, ...]) -> tuple[int, ...] | None:
    """`m`, which broadcasts to `wide`, in the dimensions of `narrow`; None where those differ by more than ones."""
    if not all(isinstance(d, int) for d in (*wide, *narrow, *m)):
        return None
    kept: list[int] = []
    i = 0
    for d, size in zip(wide, m, strict=True):
        if i < len(narrow) and d == narrow[i]:
            kept.append(size)
            i += 1
        elif d != 1:
            return None
    kept += [1] * (len(narrow) - i)
    return tuple(kept) if all(d == 1 for d in narrow[i:]) else None
