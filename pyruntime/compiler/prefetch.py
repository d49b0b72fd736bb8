"""Shaders that a plan will have, known while its nodes are placed: their pipelines compile while planning goes on.

A kernel's source depends on which of its operands share memory, which is certain when all lifetimes are known. What a
dispatch may overwrite is what no later node reads. Where another order is taken afterwards, or memory is not shared as
predicted, a pipeline was made in vain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator

from pyruntime.compiler.lifetimes import same_place
from pyruntime.compiler.memory import round_up
from pyruntime.compiler.placement import Placed, fold
from pyruntime.ir import Constant, TensorType, TypedGraph, hint, upper
from pyruntime.kernels import Dispatch, Role
from pyruntime.kernels.ir.fallback import MOST_WORK, without_fallback
from pyruntime.ops.base import Op

__all__ = ["Prefetch"]


class Prefetch:
    """Requests pipelines while nodes are placed: compiling them takes longer than what is left of planning.

    Args:
        resident: values that stay in separate memory.
        read_only: kernels bind constants as memory that is only read.
        ask: gets the source of each shader that the plan will probably have.
    """

    def __init__(
        self, graph: TypedGraph, resident: Iterable[str], read_only: bool, ask: Callable[[str], object] | None
    ) -> None:
        self._work = 0.0
        self._predicted = _Predicted(graph, resident, read_only) if ask else None
        self._ask = ask
        self._asked: dict[str, None] = {}

    def __call__(self, at: int, placed: Placed, times: int) -> None:
        """Note a node; see `place`. Plans of much work have no fallback kernels, those asked for before included."""
        was_much = self.is_much
        self._work += times * sum(hint(d.flops) for d in placed.dispatches)
        if self._predicted is None or self._ask is None:
            return
        sources = dict.fromkeys(self._predicted.sources(at, placed))
        self._asked.update(sources)
        for source in self._asked if self.is_much and not was_much else sources:
            self._ask(without_fallback(source) if self.is_much else source)

    @property
    def is_much(self) -> bool:
        """Whether the nodes placed so far are too much work for fallback kernels."""
        return self._work > MOST_WORK


class _Predicted:
    """The shaders of nodes, in any order.

    Args:
        graph: what is planned.
        resident: values that stay in separate memory.
        read_only: kernels bind constants as memory that is only read.
    """

    def __init__(self, graph: TypedGraph, resident: Iterable[str], read_only: bool) -> None:
        self._graph, self._read_only = graph, read_only
        self._own: set[Hashable] = {*graph.constants, *graph.static, *graph.resident, *resident}
        self._constants: set[Hashable] = {*graph.computed}
        self._views = dict(_views(graph))
        self._last = self._readers()

    def sources(self, at: int, placed: Placed) -> Iterator[str]:
        """The texts of the kernels of the node at this place in the graph."""
        read: set[Hashable] = set()
        for dispatch in reversed(placed.dispatches):
            values = [self._value(placed, dispatch, i) for i in range(len(dispatch.operands))]
            read |= {v for v in values if isinstance(v, str) and self._last.get(v, -1) > at}
            constants = [i for i, value in enumerate(values) if value in self._constants] if self._read_only else ()
            shared = self._shared(dispatch, values, read, frozenset(constants))
            if shared is not None:
                yield dispatch.kernel.wgsl(shared, frozenset(constants))
            read.update(values)

    def _readers(self) -> dict[str, float]:
        """For each value the place of the last node that reads it; after all nodes for outputs."""
        last: dict[str, float] = {}
        for at, node in enumerate(self._graph.nodes):
            outputs = [n for n in node.outputs if n]
            if not self._views.keys().isdisjoint(outputs) or all(n in self._graph.static for n in outputs):
                continue
            last |= {self._root(name): at for name in node.inputs if name}
        return last | {self._root(name): math.inf for name in self._graph.outputs}

    def _root(self, name: str) -> str:
        while name in self._views:
            name = self._views[name]
        return name

    def _value(self, placed: Placed, dispatch: Dispatch, at: int) -> Hashable:
        """Return a key of the memory that an operand is in: equal for operands that share it."""
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
        self._constants.add(key)
        return key

    def _shared(
        self, dispatch: Dispatch, values: list[Hashable], later: set[Hashable], constants: frozenset[int]
    ) -> tuple[int, ...] | None:
        """For each operand the first that has its memory; None where one is copied first, as they cannot share.

        Args:
            later: values that are read after this dispatch. constants: operands that are only read by any.
        """
        values = list(values)
        for read, written in dispatch.inplace:
            if values[read] not in later and self._overwrites(dispatch, values, read, written):
                values[written] = values[read]
                break
        apart = dispatch.kernel.apart(constants)
        shared = tuple(at if at in apart else values.index(value) for at, value in enumerate(values))
        for at, first in enumerate(shared):
            if at != first and not dispatch.kernel.can_share(first, at):
                return None
        return shared

    def _overwrites(self, dispatch: Dispatch, values: list[Hashable], read: int, written: int) -> bool:
        """Whether operand `written` takes the memory of operand `read`, which no later node reads."""
        source, result = values[read], values[written]
        sizes = [self._nbytes(dispatch, values, at) for at in (read, written)]
        if {source, result} & self._own or sizes[0] != sizes[1]:
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
