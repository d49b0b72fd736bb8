"""Shaders that a plan will have, known while its nodes are placed: their pipelines compile while planning goes on.

A kernel's text depends on which of its operands are one memory, which is certain when all lifetimes are known. Nodes
are placed from the outputs backwards, so whoever reads a value later has been seen, and what a dispatch overwrites
follows from that. Where another order is taken afterwards, or memory is not shared as foreseen, a pipeline was made in
vain.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator

from pyruntime.ir import Constant, TensorType, TypedGraph, upper
from pyruntime.kernels import Dispatch, Role
from pyruntime.ops.base import Op
from pyruntime.plan.lifetimes import same_place
from pyruntime.plan.memory import round_up
from pyruntime.plan.placement import Placed, fold

__all__ = ["Foreseen"]


class Foreseen:
    """The shaders of nodes, given one after the other from the last to the first.

    Args:
        graph: what is planned.
        resident: values that stay in memory of their own.
    """

    def __init__(self, graph: TypedGraph, resident: Iterable[str]) -> None:
        self._graph = graph
        self._own: set[Hashable] = {*graph.constants, *graph.static, *graph.resident, *resident}
        self._views = dict(_views(graph))
        self._read: set[Hashable] = {self._root(name) for name in graph.outputs}

    def sources(self, placed: Placed) -> Iterator[str]:
        """The texts of a node's kernels."""
        for dispatch in reversed(placed.dispatches):
            values = [self._value(placed, dispatch, at) for at in range(len(dispatch.operands))]
            shared = self._shared(dispatch, values)
            if shared is not None:
                yield dispatch.kernel.wgsl(shared)
            self._read.update(values)

    def _root(self, name: str) -> str:
        while name in self._views:
            name = self._views[name]
        return name

    def _value(self, placed: Placed, dispatch: Dispatch, at: int) -> Hashable:
        """What tells the memory of an operand from that of others."""
        operand = dispatch.operands[at]
        names = placed.node.inputs if operand.role is Role.INPUT else placed.node.outputs
        if operand.role is Role.CONSTANT:
            return self._constant(operand.data)
        if operand.role is Role.SCRATCH or operand.index >= len(names) or not names[operand.index]:
            return id(placed), operand.role, operand.index
        root = self._root(names[operand.index])
        if root in self._graph.static:
            fold(self._graph, [root])
        return self._constant(self._graph.constants[root]) if root in self._graph.constants else root

    def _constant(self, constant: Constant | None) -> Hashable:
        key = constant.key if constant is not None else None
        self._own.add(key)
        return key

    def _shared(self, dispatch: Dispatch, values: list[Hashable]) -> tuple[int, ...] | None:
        """For each operand the first that has its memory; None where one is copied first, as they cannot share."""
        values = list(values)
        for read, written in dispatch.inplace:
            if self._overwrites(dispatch, values, read, written):
                values[written] = values[read]
                break
        shared = tuple(values.index(value) for value in values)
        for at, first in enumerate(shared):
            if at != first and not dispatch.kernel.can_share(first, at):
                return None
        return shared

    def _overwrites(self, dispatch: Dispatch, values: list[Hashable], read: int, written: int) -> bool:
        """Whether operand `written` takes the memory of operand `read`, which nobody reads any more."""
        source, result = values[read], values[written]
        sizes = [self._nbytes(dispatch, values, at) for at in (read, written)]
        if {source, result} & self._own or source in self._read or sizes[0] != sizes[1]:
            return False
        there = [at for at, value in enumerate(values) if value == source]
        return all((at, written) in dispatch.inplace and same_place(dispatch, at, written) for at in there)

    def _nbytes(self, dispatch: Dispatch, values: list[Hashable], at: int) -> int:
        """Bytes of the memory that an operand is in."""
        kind = self._graph.types.get(str(values[at]))
        most = upper(dispatch.operands[at].type.nbytes)
        return round_up(max(most, upper(kind.nbytes)) if isinstance(kind, TensorType) else most)


def _views(graph: TypedGraph) -> Iterator[tuple[str, str]]:
    """Each value that is a view of another one, with that."""
    for node in graph.nodes:
        if not isinstance(node.op, Op) or type(node.op).alias is Op.alias:
            continue
        types = tuple(graph.types[name] if name else None for name in node.inputs)
        alias = node.op.alias(*types)
        if alias is not None and all(isinstance(kind, TensorType) for kind in types if kind):
            yield node.outputs[0], node.inputs[alias]
