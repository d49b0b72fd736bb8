"""Move computations that depend only on the slices of an iteration out of a loop, for all iterations at once.

A recurrent cell multiplies each token by weights, and its state by others: the former become one matrix product over
all tokens. MatMul, Gemm, and elementwise operators whose result is not larger than their inputs are moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyruntime.ir import Node, TensorType, TypedGraph, is_dim
from pyruntime.kernels import Target
from pyruntime.ops.elementwise.elementwise import Elementwise
from pyruntime.ops.fused.repeat import Repeat
from pyruntime.passes.graph_pass import graph_pass
from pyruntime.passes.writer import reshaped

__all__ = ["run"]


@graph_pass()
def run(graph: TypedGraph, target: Target) -> bool:
    """Move nodes out of all loops; returns whether any were moved."""
    changed = False
    for node in graph.nodes:
        if isinstance(node.op, Repeat) and node.op.sliced:
            changed |= _Batched(graph, node, node.op).run()
    return changed


@dataclass(frozen=True, slots=True)
class _Tokens:
    """A value of all iterations: its name in the outer graph, and whether iterations read it in reverse order."""

    name: str
    is_backward: bool


class _Batched:
    """Moves nodes out of one loop."""

    def __init__(self, graph: TypedGraph, node: Node, op: Repeat) -> None:
        self._graph, self._node, self._op = graph, node, op
        self._body: TypedGraph = op.body
        first, last = 1 + op.states, 1 + op.states + op.sliced
        self._tokens = {
            name: _Tokens(node.inputs[first - 1 + n], op.backward[n])
            for n, name in enumerate(self._body.inputs[first:last])
        }
        self._outer = dict(zip(self._body.inputs[last:], node.inputs[last - 1 :], strict=True))
        self._before: list[Node] = []

    def run(self) -> bool:
        """Move nodes; returns whether any were moved."""
        slices = {*self._tokens}
        moved = [node for node in self._body.nodes if self._move(node)]
        if not moved:
            return False
        self._body.remove(moved)
        read = {n for node in self._body.nodes for n in node.inputs} | {*self._body.outputs}
        fresh = [n for n in self._tokens if n in read and n not in slices]
        op, at = self._op, 1 + self._op.states + self._op.sliced
        backward = [self._tokens[n].is_backward for n in fresh]
        self._body.inputs[at:at] = fresh
        inputs = list(self._node.inputs)
        inputs[at - 1 : at - 1] = [self._tokens[n].name for n in fresh]
        merged = (*op.backward[: op.sliced], *backward, *op.backward[op.sliced :])
        self._graph.insert_before(self._node, *self._before)
        self._graph.update(self._node, replace(op, sliced=op.sliced + len(fresh), backward=merged), inputs)
        return True

    def _move(self, node: Node) -> bool:
        """Write the node for all iterations if its inputs allow it; returns whether they did."""
        given = [self._tokens[n] for n in node.inputs if n in self._tokens]
        known = all(not n or n in self._tokens or n in self._outer or n in self._body.static for n in node.inputs)
        if not given or not known or len(node.outputs) != 1 or len({t.is_backward for t in given}) != 1:
            return False
        if isinstance(node.op, Elementwise):
            fits = self._is_elementwise(node)
        elif node.op.domain == "" and node.op.op_type in ("MatMul", "Gemm"):
            fits = self._is_product(node)
        else:
            fits = False
        if fits:
            made = self._gemm(node) if node.op.op_type == "Gemm" else self._plain(node)
            self._tokens[node.outputs[0]] = _Tokens(made, given[0].is_backward)
        return fits

    def _kind(self, name: str) -> TensorType:
        return self._body.tensor(name)

    def _is_elementwise(self, node: Node) -> bool:
        """Return whether an elementwise node allows a leading token axis.

        Its per-iteration inputs must have the rank of the result, and one of them its shape.
        """
        y = self._kind(node.outputs[0])
        kinds = [self._kind(n) for n in node.inputs if n in self._tokens]
        return all(k.rank == y.rank for k in kinds) and any(k.shape == y.shape for k in kinds)

    def _is_product(self, node: Node) -> bool:
        """Whether only the left factor is per-iteration, and the right one is a matrix."""
        op: Any = node.op
        left, right, *rest = node.inputs
        if left not in self._tokens or right in self._tokens or self._kind(right).rank != 2:
            return False
        if op.op_type == "MatMul":
            return True
        wide = [self._kind(n).shape[:-1] for n in rest if n]
        same_rows = all(not is_dim(n) and n == 1 for shape in wide for n in shape)
        return not op.transA and same_rows and not any(n in self._tokens for n in rest)

    def _names(self, node: Node) -> list[str]:
        """Return the inputs of a node in the outer graph."""
        return [self._tokens[n].name if n in self._tokens else self._outer.get(n, n) for n in node.inputs]

    def _value(self, name: str, shape: Sequence[Any]) -> str:
        return self._graph.add_value(f"{name}.tokens", TensorType(self._kind(name).dtype, tuple(shape)))

    def _plain(self, node: Node) -> str:
        result = node.outputs[0]
        made = self._value(result, (self._op.times, *self._kind(result).shape))
        self._before.append(Node(node.op, tuple(self._names(node)), (made,), node.name))
        return made

    def _gemm(self, node: Node) -> str:
        """Write the Gemm of the rows of all iterations."""
        names, result, times = self._names(node), node.outputs[0], self._op.times
        (rows, depth), columns = self._kind(node.inputs[0]).shape, self._kind(result).shape[1]
        flat = self._value(node.inputs[0], (times * rows, depth))
        product = self._value(result, (times * rows, columns))
        made = self._value(result, (times, rows, columns))
        self._before += [
            reshaped(self._graph, names[0], flat, (times * rows, depth)),
            Node(node.op, (flat, *names[1:]), (product,), node.name),
            reshaped(self._graph, product, made, (times, rows, columns)),
        ]
        return made
