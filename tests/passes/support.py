"""Graphs for pass tests, and the proof that a pass keeps what a graph computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pyruntime.ir import Array, Constant, DType, Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.ops.base import Op
from pyruntime.ops.interpreter import execute
from pyruntime.passes.cleanup import dead_code
from tests.compiler.graphs import node, typed_graph

__all__ = ["LAST", "Pass", "apply", "cleaned", "copied", "evaluate", "graph_of", "ints", "node", "op_types"]

LAST = 2**63 - 1
"""The end of a Slice that goes to the end."""

Pass = Callable[[TypedGraph, Target], bool]


def graph_of(
    nodes: Sequence[Node],
    inputs: Mapping[str, tuple[int, ...]],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    dtype: DType = DType.FLOAT,
) -> TypedGraph:
    """A typed graph over float inputs of these shapes."""
    made = {n: Constant.from_array(np.asarray(a)) for n, a in (constants or {}).items()}
    return typed_graph(list(nodes), {n: TensorType(dtype, s) for n, s in inputs.items()}, list(outputs), made)


def copied(graph: TypedGraph) -> TypedGraph:
    """The same graph, to be changed."""
    return replace(
        graph,
        _nodes=[Node(n.op, n.inputs, n.outputs, n.name) for n in graph.nodes],
        types=dict(graph.types),
        outputs=list(graph.outputs),
        constants=dict(graph.constants),
        static=set(graph.static),
        states=dict(graph.states),
        _producers=None,
        _consumers={},
        _positions=None,
        _edits={},
    )


def evaluate(graph: TypedGraph, feeds: Mapping[str, Array]) -> list[Array]:
    """The graph's outputs, node by node on NumPy."""
    values: dict[str, Array] = dict(feeds)

    def value(name: str) -> Array:
        return values[name] if name in values else graph.tensor(name).value()

    def known(name: str) -> TensorType:
        kind = graph.tensor(name)
        return TensorType(kind.dtype, kind.shape, lambda: value(name), name)

    for step in graph.nodes:
        op = step.op
        assert isinstance(op, Op)
        results = execute(op, *(known(n) if n else None for n in step.inputs))
        values.update({n: r.value() for n, r in zip(step.outputs, results, strict=False) if n and r is not None})
    return [value(n) for n in graph.outputs]


def apply(run: Pass, graph: TypedGraph, seed: int = 0, target: Target | None = None) -> bool:
    """Run a pass on `graph`; it must keep the invariants and what the graph computes (1e-5). Returns what it said."""
    rng = np.random.default_rng(seed)
    feeds = {n: rng.standard_normal(graph.tensor(n).shape).astype(graph.tensor(n).dtype.numpy) for n in graph.inputs}
    before = evaluate(graph, feeds)
    changed = run(graph, target or Target())
    graph.verify()
    for mine, theirs in zip(evaluate(graph, feeds), before, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
    return changed


def op_types(graph: TypedGraph) -> list[str]:
    """Operators in order."""
    return [n.op.op_type for n in graph.nodes]


def cleaned(graph: TypedGraph) -> list[str]:
    """Operators in order, without nodes that have no consumer."""
    dead_code.run(graph, Target())
    return op_types(graph)


def ints(*values: int) -> Array:
    """Constants of an exporter's shapes, axes and places."""
    return np.array(values, np.int64)
