"""Update caches in place: present = past with new rows, where both stay on the GPU.

A past input on the GPU may have capacity for more rows than are valid; the capacity is a size of the plan. Operators
that append (`CacheOp.appends`) write their new rows into that memory. Operators that read the cache read the larger
tensor, in place where they can (`CacheOp.read_in_place`), else through FirstRows. An output that equals its past shares
its memory. A cache of fixed size (`CacheOp.rewrites`) is overwritten in place if the host knows which rows are written
and how many are valid; `DeviceTensor.rewritten` copies the cache if valid rows would be overwritten. The types of
inputs with a larger capacity change. Caches grow only along dynamic dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyruntime.ir import Node, Rows, State, TensorType, TypedGraph, hint, is_dim, lower, upper
from pyruntime.kernels import Target
from pyruntime.ops.caches import CacheOp, overwritten
from pyruntime.ops.movement.append_rows import FirstRows
from pyruntime.passes.graph_pass import Fact, graph_pass

__all__ = ["capacity", "run"]

LEAST = 256
"""Minimum capacity in rows."""


def capacity(rows: int) -> int:
    """Return the capacity of new memory for `rows` rows: a power of two, so that copies are rare."""
    return max(LEAST, 1 << (rows - 1).bit_length())


@graph_pass(ensures=(Fact.CACHES_IN_PLACE,), always=True)
def run(graph: TypedGraph, target: Target) -> bool:
    """Update in place those of `graph.free` that can share memory with inputs; records them in `graph.states`."""
    if not graph.free:
        return False
    made = _Rewriting(graph, target)
    for name in graph.free:
        made.forward(name)
    for node in graph.nodes:
        made.rewrite(node)
    if graph.sizes is not None:
        for node in graph.nodes:
            made.append(node)
    made.finish()
    return bool(graph.states)


@dataclass(slots=True)
class _Larger:
    """A value in memory with more rows: name of the tensor with all rows, type of the value, axis of the rows."""

    name: str
    kind: TensorType
    axis: int


class _Rewriting:
    """Rewriting of one graph."""

    def __init__(self, graph: TypedGraph, target: Target) -> None:
        self.graph, self.target = graph, target
        self.open = set(graph.free)
        self.capacities: dict[str, Any] = {}
        self.larger: dict[str, _Larger] = {}

    def _source(self, name: str) -> str:
        """Return the value that `name` is a copy of, or `name`."""
        while (node := self.graph.producer(name)) is not None and node.op.op_type == "Identity":
            name = node.inputs[0]
        return name

    def forward(self, output: str) -> None:
        """Share the memory of an output that equals a resident input."""
        source = self._source(output)
        if source in self.graph.resident and source != output:
            self.graph.states[output] = State(output, source)
            self.open.discard(output)

    def rewrite(self, node: Node) -> None:
        """Rewrite a node in place if all its rewritten outputs are kept, and nothing else reads their inputs."""
        op, graph = node.op, self.graph
        if not isinstance(op, CacheOp):
            return
        types = [graph.types[n] if n else None for n in node.inputs]
        found = op.rewrites(*types) if all(isinstance(t, TensorType) for t in types if t) else {}
        states: list[State] = []
        inputs = list(node.inputs)
        for output, made in found.items():
            name = node.outputs[output] if output < len(node.outputs) else ""
            if not name:
                continue
            past, present = self._source(node.inputs[made.input]), self._kept(name)
            first = self._rows(node, made.first)
            end = self._rows(node, made.end) if made.end else self._read(name)
            if made.known is not None and (first is None or end is None):
                first, end = (Rows(offset=rows) for rows in made.known)
            alone = past in graph.resident and past not in graph.outputs and len(self._readers(past)) == 1
            if present is None or first is None or end is None or not alone or past in inputs[: made.input]:
                return
            states.append(State(present, past, made.axis, first=first, end=end))
            inputs[made.input] = past
        for state in states:
            graph.states[state.output] = state
            self.open.discard(state.output)
        if states:
            graph.update(node, op.rewrite_in_place(*types), inputs)

    def _readers(self, name: str) -> list[tuple[Node, int]]:
        """Return (node, input index) of the consumers of a value or its copies."""
        found = []
        for node in self.graph.nodes:
            for i, given in enumerate(node.inputs):
                if given and node.op.op_type != "Identity" and self._source(given) == name:
                    found.append((node, i))
        return found

    def _read(self, name: str) -> Rows | None:
        """Return the rows of a value that are read, if all its consumers agree."""
        said = set[Rows | None]()
        for node, index in self._readers(name):
            op, counted = node.op, None
            if isinstance(op, CacheOp):
                counted = op.rows_read(index, *(self.graph.types[n] if n else None for n in node.inputs))
            said.add(self._rows(node, counted) if counted else None)
        return said.pop() if len(said) == 1 else None

    def _rows(self, node: Node, which: tuple[int, Any]) -> Rows | None:
        """Return rows counted by an input of `node`: a graph input plus an offset, or None."""
        index, offset = which
        if index < 0:
            return Rows(offset=offset)
        name = node.inputs[index]
        while (maker := self.graph.producer(name)) is not None:
            kinds = [self.graph.types[n] for n in maker.inputs if n]
            known = [i for i, n in enumerate(maker.inputs) if n in self.graph.static]
            if maker.op.op_type in ("Identity", "Cast"):
                name = maker.inputs[0]
            elif maker.op.op_type in ("Add", "Sub") and len(known) == 1 and kinds[known[0]].size == 1:  # type: ignore[union-attr]
                (at,) = known
                if maker.op.op_type == "Sub" and at == 0:
                    return None
                (number,) = kinds[at].ints()  # type: ignore[union-attr]
                offset, name = offset + number * (-1 if maker.op.op_type == "Sub" else 1), maker.inputs[1 - at]
            else:
                return None
        kind = self.graph.types[name]
        fed = name in self.graph.inputs and name not in self.graph.resident and isinstance(kind, TensorType)
        return Rows(name, offset) if fed and kind.dtype.is_integer else None  # type: ignore[union-attr]

    def append(self, node: Node) -> None:
        """Append in place in a node if all its growing outputs are kept, and their inputs are not used otherwise."""
        op = node.op
        if not isinstance(op, CacheOp):
            return
        types = [self.graph.types[n] if n else None for n in node.inputs]
        grown = op.appends(*types) if all(isinstance(t, TensorType) for t in types if t) else {}
        claims: dict[int, str] = {}
        for output, (given, axis) in grown.items():
            if output >= len(node.outputs) or not node.outputs[output]:
                continue
            past, present = self._source(node.inputs[given]), self._kept(node.outputs[output])
            if present is None or not self._can_grow(past, node.outputs[output], axis) or past in claims.values():
                return
            claims[output] = past
        if not claims:
            return
        changed = op.append_in_place(*types)
        inputs, outputs = list(node.inputs), list(node.outputs)
        for output, past in claims.items():
            given, axis = grown[output]
            name, kind = node.outputs[output], self.graph.tensor(node.outputs[output])
            rows = self._capacity(kind.shape[axis])
            before = self.graph.tensor(past)
            inputs[given], outputs[output] = past, self.graph.fresh(f"{name}@capacity")
            self.larger[past] = _Larger(past, before, axis)
            self.larger[name] = _Larger(outputs[output], kind, axis)
            for value in (past, outputs[output]):
                self.graph.types[value] = _resized(before, axis, rows, value)
            present = self._kept(name)
            assert present is not None
            self.graph.states[outputs[output]] = State(present, past, axis, rows, before)
            self.graph.outputs[self.graph.outputs.index(present)] = outputs[output]
            self.open.discard(present)
        self.graph.update(node, changed, inputs, outputs)

    def _kept(self, name: str) -> str | None:
        """Return the graph output that equals value `name`, or None."""
        return next((o for o in self.open if self._source(o) == name), None)

    def _can_grow(self, past: str, present: str, axis: int) -> bool:
        """Whether `past` is a resident input with a dynamic number of rows, whose capacity fits the device's limits."""
        graph = self.graph
        if past not in graph.resident or past in self.larger or past in graph.outputs:
            return False
        before, after = graph.tensor(past), graph.tensor(present)
        if not is_dim(before.shape[axis]) or not is_dim(after.shape[axis]) or before.dtype is not after.dtype:
            return False
        largest = upper(_resized(before, axis, capacity(upper(after.shape[axis])), past).nbytes)
        limits = self.target.limits
        return largest <= min(limits.binding_bytes, limits.buffer_bytes)

    def _capacity(self, rows: Any) -> Any:
        """Return the size of the plan that is the capacity for `rows` valid rows."""
        sizes, key = self.graph.sizes, repr(rows)
        assert sizes is not None
        if key not in self.capacities:
            low, most = max(2, lower(rows)), capacity(upper(rows))
            self.capacities[key] = sizes.add(f"capacity for {rows}", capacity(hint(rows)), low, most, True)
        return self.capacities[key]

    def finish(self) -> None:
        """Make consumers of grown values read the larger tensor, or its valid rows."""
        for node in self.graph.nodes:
            keeps = set(overwritten(node.op).values())
            for i, name in enumerate(node.inputs):
                if i not in keeps and name in self.larger:
                    self._read_larger(node, i, self.larger[name])

    def _read_larger(self, node: Node, index: int, value: _Larger) -> None:
        """Make input `index` of a node the larger tensor, or its valid rows."""
        graph, whole = self.graph, self.graph.tensor(value.name)
        op, changed = node.op, None
        if isinstance(op, CacheOp):
            changed = op.read_in_place(index, value.kind, value.axis, whole.shape[value.axis])
        name = value.name
        if changed is None:
            name = f"{value.name}@rows"
            if graph.producer(name) is None:
                graph.types[name] = replace(value.kind, source=None, name=name)
                first = FirstRows(axis=value.axis, rows=value.kind.shape[value.axis])
                graph.insert_before(node, Node(first, (value.name,), (name,), f"{name}/FirstRows"))
        graph.update(node, changed, (*node.inputs[:index], name, *node.inputs[index + 1 :]))


def _resized(kind: TensorType, axis: int, rows: Any, name: str) -> TensorType:
    shape = (*kind.shape[:axis], rows, *kind.shape[axis + 1 :])
    return TensorType(kind.dtype, shape, None, name)
