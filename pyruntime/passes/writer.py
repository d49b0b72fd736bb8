"""Nodes that passes write, and a base class for passes that rewrite all nodes of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, Node, TensorType, TypedGraph, int_array
from pyruntime.ops.registry import newest
from pyruntime.passes.match import Matcher

__all__ = ["Writer", "joined", "rearranged", "reshaped"]


def reshaped(graph: TypedGraph, source: str, result: str, shape: Sequence[Any], name: str = "") -> Node:
    """Return the Reshape of `source` to `result` with shape `shape`."""
    wanted = graph.add_constant(int_array(shape), DType.INT64, f"{result}.shape")
    return Node(newest("Reshape", allowzero=1), (source, wanted), (result,), name or result)


def rearranged(graph: TypedGraph, node: Node, source: str, split: Sequence[int], perm: Sequence[int]) -> list[Node]:
    """Return nodes that replace `node` by reshape(transpose(reshape(source, split), perm))."""
    (result,), y = node.outputs, graph.tensor(node.outputs[0])
    apart = graph.add_value(f"{result}.split", TensorType(y.dtype, tuple(split)))
    turned = graph.add_value(f"{result}.turned", TensorType(y.dtype, tuple(split[p] for p in perm)))
    return [
        reshaped(graph, source, apart, split),
        Node(newest("Transpose", perm=tuple(perm)), (apart,), (turned,), node.name),
        reshaped(graph, turned, result, y.shape, node.name),
    ]


def joined(graph: TypedGraph, names: Sequence[str], axis: int) -> Node:
    """Return the Concat of static values. The result is static: folded if small, else computed once on the GPU."""
    kinds = [graph.tensor(n) for n in names]
    shape = list(kinds[0].shape)
    shape[axis] = sum(k.shape[axis] for k in kinds)

    def value() -> Array:
        made: Array = np.concatenate([k.value() for k in kinds], axis=axis)
        return made

    result = graph.add_value(f"{names[0]}.joined", kinds[0].with_shape(*shape), value)
    return Node(newest("Concat", axis=axis), tuple(names), (result,), result)


class Writer:
    """Base of passes that rewrite nodes: `_write` appends replacements of a node to `made`, or returns False."""

    def __init__(self, graph: TypedGraph, match: Matcher) -> None:
        self.graph = graph
        self.match = match
        self.made: list[Node] = []

    def instead(self) -> dict[Node, list[Node]]:
        """Return the replacements of all rewritten nodes."""
        found: dict[Node, list[Node]] = {}
        for node in self.graph.nodes:
            self.made = []
            if self._write(node):
                found[node] = self.made
        return found

    def _write(self, node: Node) -> bool:
        raise NotImplementedError

    def _static(self, name: str, made: Callable[[Array], Array], shape: tuple[Any, ...], hint: str) -> str:
        """Add a value computed from the static value `name`; returns its name, or "" if `name` is not static."""
        kind = self.graph.tensor(name)
        if name not in self.graph.static:
            return ""
        return self.graph.add_value(hint, replace(kind, shape=shape), lambda: made(kind.value()))

    def _value(self, hint: str, dtype: DType, shape: tuple[Any, ...]) -> str:
        return self.graph.add_value(hint, TensorType(dtype, shape))

    def _reshape(self, source: str, result: str, shape: Sequence[Any]) -> Node:
        return reshaped(self.graph, source, result, shape)
