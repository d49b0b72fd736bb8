"""Large static values, computed on the GPU when a model is loaded.

A static value could be folded on the host, but then its inputs have to come into Python's memory: a transposed weight
of 100 MB would cost twice that, in a browser out of 4 GB. Values above `HEAVY` bytes whose operators have kernels are
computed once, by a separate plan, and stay on the GPU.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from pyruntime.compiler.lowering import Lowerings
from pyruntime.ir import Constant, Node, TensorType, TypedGraph, ValueNeeded
from pyruntime.kernels import Target
from pyruntime.ops.base import Op, Unsupported

__all__ = ["HEAVY", "identities", "part", "split_static"]

HEAVY = 64 << 10
"""Bytes above which a static value is not folded on the host."""


def split_static(graph: TypedGraph, target: Target, lowerings: Lowerings | None = None) -> TypedGraph | None:
    """Take the nodes that make heavy static values out of `graph`.

    `graph` then reads these values as resident inputs, which are `computed`; views of constants stay in it, since they
    cost nothing, and keep their value for host steps.

    Returns:
        The graph that makes them, to be run once, or None where there are none.
    """
    lowerings = lowerings or Lowerings(target, graph.sizes is None)
    heavy: set[str] = set()
    makers: list[Node] = []
    views: list[Node] = []
    plain: set[str] = set(graph.constants)
    # While all static values were known, passes could write a node before the producers of those that it reads.
    graph.sort()
    for node in graph.nodes:
        kind = _kind(graph, node, heavy, lowerings)
        if kind is None:
            continue
        heavy.update(n for n in node.outputs if n)
        if kind == "view" and _viewed(graph, node) in plain:
            plain.update(n for n in node.outputs if n)
        (views if kind == "view" else makers).append(node)
    if not heavy:
        return None
    made = {n for node in makers for n in node.outputs if n}
    inside = set(makers)
    for node in reversed(views):
        read = [reader for n in node.outputs for reader in graph.consumers(n)]
        if read and inside.issuperset(read) and not set(graph.outputs).intersection(node.outputs):
            inside.add(node)
    ends = sorted(n for n in made if n in graph.outputs or not inside.issuperset(graph.consumers(n)))
    graph.static = graph.static - heavy
    computed = heavy - plain
    graph.types = {n: (replace(t, source=None) if n in computed else t) for n, t in graph.types.items()}
    both = inside.union(views)
    first = TypedGraph([n for n in graph.nodes if n in both], graph.types, [], ends, graph.constants, graph.static)
    graph.remove(inside)
    graph.resident = graph.resident | set(ends)
    graph.computed = graph.computed | set(ends)
    graph.inputs = [*graph.inputs, *ends]
    return first if makers else None


def identities(graph: TypedGraph) -> dict[str, Hashable]:
    """Return what tells the values of a graph of constants apart: equal identities mean equal bytes, in any plan.

    A constant is known by its bytes (`Constant.key`), any other value by its operator and what that reads.
    """
    known: dict[str, Hashable] = {n: (c.key, str(c.type)) for n, c in graph.constants.items()}

    def identity(name: str) -> Hashable:
        if name not in known:
            constant = Constant.from_array(graph.tensor(name).value(), graph.tensor(name).dtype) if name else None
            known[name] = (constant.key, str(constant.type)) if constant else None
        return known[name]

    for node in graph.nodes:
        inputs = tuple(identity(n) for n in node.inputs)
        known.update({n: (node.op, i, inputs) for i, n in enumerate(node.outputs) if n})
    return known


def part(graph: TypedGraph, output: str) -> TypedGraph:
    """The nodes of `graph` that make one of its outputs: run alone, the others' inputs need not be there too."""
    needed = {output}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            kept.append(node)
            needed.update(node.inputs)
    return TypedGraph(kept[::-1], graph.types, graph.inputs, [output], dict(graph.constants), graph.static)


def _kind(graph: TypedGraph, node: Node, heavy: set[str], lowerings: Lowerings) -> str | None:
    """'view' or 'kernel' for a node that makes a heavy static value on the GPU; None for all others."""
    outputs = [n for n in node.outputs if n]
    static = all(n in graph.static and n not in graph.constants for n in outputs)
    if not outputs or not static or not _dense_and_large(graph, outputs[0]):
        return None
    op = node.op
    assert isinstance(op, Op)
    types = [graph.types[n] if n else None for n in node.inputs]
    try:
        source = _viewed(graph, node)
        if source is not None:
            return "view" if source in graph.constants or source in heavy else None
        lowerings.of(op, types)  # type: ignore[arg-type]
    except (Unsupported, ValueNeeded):
        return None
    return "kernel"


def _viewed(graph: TypedGraph, node: Node) -> str | None:
    """The value that output 0 of `node` is a view of, or None."""
    op = node.op
    assert isinstance(op, Op)
    alias = op.alias(*(graph.types[n] if n else None for n in node.inputs))
    return None if alias is None else node.inputs[alias]


def _dense_and_large(graph: TypedGraph, name: str) -> bool:
    kind = graph.types[name]
    return isinstance(kind, TensorType) and bool(kind.dtype.compute) and kind.nbytes > HEAVY
