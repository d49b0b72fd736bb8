"""Remove two Reshapes around an addition if they only insert and remove dimensions of size 1.

reshape(reshape(x, [1, ..]) + m, shape of x) = x + reshape(m), as in the masks of windowed attention. Before a softmax
over several images, reshape(reshape(x, [b, n, ..]) + m, [b * n, ..]) = x + reshape(expand(m)) for a static mask m. The
same for Sub, Mul and Div. Not for dynamic dimensions, or intermediate values with other consumers.
"""

from __future__ import annotations

import math

import numpy as np

from pyruntime.ir import Array, DType, Node, TypedGraph, int_array
from pyruntime.kernels import Target
from pyruntime.ops.registry import newest
from pyruntime.passes.graph_pass import Fact, node_pass
from pyruntime.passes.match import Matcher

__all__ = ["run"]


@node_pass(breaks=(Fact.NO_DEAD_NODES,))
def run(match: Matcher, target: Target, node: Node) -> list[Node] | None:
    """Replace the last Reshape by the operator on reshaped operands."""
    graph = match.graph
    if node.op.domain or node.op.op_type != "Reshape" or node.outputs[0] in graph.static:
        return None
    inner = match.producer(node.inputs[0], "Add", "Sub", "Mul", "Div")
    if inner is None or not match.read_once(node.inputs[0]):
        return None
    y = graph.tensor(node.outputs[0])
    for i in (0, 1):
        before = match.producer(inner.inputs[i], "Reshape")
        other = inner.inputs[1 - i]
        if before is None or other == inner.inputs[i] or not match.read_once(inner.inputs[i]):
            continue
        x, wide, m = (graph.tensor(n) for n in (before.inputs[0], before.outputs[0], other))
        if x.shape != y.shape or graph.tensor(inner.outputs[0]).shape != wide.shape or m.rank > wide.rank:
            continue
        padded = (1,) * (wide.rank - m.rank) + m.shape
        shape = _without(wide.shape, y.shape, padded)
        made: list[Node] = []
        if shape is None and other in graph.static and match.only_consumer(node.outputs[0], "Softmax"):
            merged = _merged(wide.shape, y.shape, padded)
            if merged is not None:
                other, shape = _shaped(graph, "Expand", other, merged[0], made), merged[1]
        if shape is None:
            continue
        name = _shaped(graph, "Reshape", other, shape, made)
        inputs = (before.inputs[0], name) if i == 0 else (name, before.inputs[0])
        return [*made, Node(inner.op, inputs, node.outputs, inner.name)]
    return None


def _shaped(graph: TypedGraph, op_type: str, source: str, shape: tuple[int, ...], made: list[Node]) -> str:
    """Add a Reshape or Expand of `source` to `made`; the result is static if `source` is."""
    m = graph.tensor(source)

    def value() -> Array:
        return m.value().reshape(shape) if op_type == "Reshape" else np.broadcast_to(m.value(), shape)

    name = graph.add_value(f"{source}.reshaped", m.with_shape(*shape), value if source in graph.static else None)
    wanted = graph.add_constant(int_array(shape), DType.INT64, f"{name}.shape")
    op = newest("Reshape", allowzero=1) if op_type == "Reshape" else newest(op_type)
    made.append(Node(op, (source, wanted), (name,), name))
    return name


def _without(wide: tuple[int, ...], narrow: tuple[int, ...], m: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape of `m`, which broadcasts to `wide`, in the dimensions of `narrow`.

    None if `wide` and `narrow` differ by more than dimensions of size 1.
    """
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


def _merged(
    wide: tuple[int, ...], narrow: tuple[int, ...], m: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the shape to expand `m` to, and then its shape in the dimensions of `narrow`; `m` broadcasts to `wide`.

    None unless the dimensions of `narrow` are products of those of `wide`.
    """
    if not all(isinstance(d, int) and d for d in (*wide, *narrow, *m)):
        return None
    expanded: list[int] = []
    shape: list[int] = []
    at = 0
    for size in narrow:
        first, whole = at, 1
        while at < len(wide) and (whole < size or at == first):
            whole *= wide[at]
            at += 1
        if whole != size:
            return None
        group = wide[first:at] if any(d != 1 for d in m[first:at]) else (1,) * (at - first)
        expanded += group
        shape.append(math.prod(group))
    return (tuple(expanded), tuple(shape)) if at == len(wide) else None
