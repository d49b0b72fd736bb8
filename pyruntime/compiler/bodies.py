"""Bodies of loops: rewritten by the passes, and lowered to the dispatches of one iteration.

States are updated where they are: the last dispatch that makes a state writes over the one before, where nothing reads
that any more; otherwise it is copied at the end of the iteration.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pyruntime.compiler.lifetimes import same_place
from pyruntime.compiler.loops import capture
from pyruntime.compiler.lowering import Lowerings
from pyruntime.compiler.placement import Placed, place
from pyruntime.ir import Node, TensorType, TypedGraph, has_dims, upper
from pyruntime.kernels import Dispatch, Operand, Role, Target, constant, inp, out, scratch, strided_copy
from pyruntime.kernels.ir.dispatch import Repetition, numbered
from pyruntime.kernels.ir.indexing import contiguous
from pyruntime.kernels.iteration import count_up, padded_row, read_row, write_row, zeros
from pyruntime.ops.base import Unsupported
from pyruntime.ops.fused.repeat import Repeat
from pyruntime.ops.interpreter import execute
from pyruntime.passes.graph_pass import Pass
from pyruntime.passes.pipeline import optimize

__all__ = ["lower_bodies", "rewrite_bodies"]

MOST_DISPATCHES = 1 << 20
"""Dispatches of a loop: more of them in one run would keep the GPU for seconds, without an end to be asked for."""


def rewrite_bodies(graph: TypedGraph, target: Target, passes: Sequence[Pass]) -> None:
    """Run passes on the bodies of all loops; what they make of constants moves before the loop."""
    for node, body in _bodies(graph):
        rewrite_bodies(body, target, passes)
        optimize(body, target, passes)
        _cast_before(graph, node, body)
        fixed = [n for n in body.nodes if all(o in body.static for o in n.outputs if o)]
        body.remove(fixed)
        graph.insert_before(node, *fixed)
        others = capture(body, next(filter(None, node.outputs)))
        graph.update(node, inputs=[*node.inputs, *others])


def _cast_before(graph: TypedGraph, node: Node, body: TypedGraph) -> None:
    """Let casts of constants that a body has captured be constants of the graph; what it no longer reads goes."""
    op = node.op
    assert isinstance(op, Repeat)
    first = op.states + op.sliced
    outer = dict(zip(body.inputs[1 + first :], node.inputs[first:], strict=True))
    for cast in body.nodes:
        name = outer.get(cast.inputs[0]) if cast.op.op_type == "Cast" else None
        if name is not None and name in graph.static:
            body.update(cast, inputs=[name])
            made, kind = cast.outputs[0], graph.tensor(name)
            source = partial(_cast_value, cast.op, kind)
            graph.types[made] = replace(graph.tensor(made), source=source)
            graph.static.add(made)
    read = {n for inner in body.nodes for n in inner.inputs} | {*body.outputs}
    unread = {own for own, name in outer.items() if own not in read and name in graph.static}
    body.inputs = [n for n in body.inputs if n not in unread]
    kept = [name for own, name in outer.items() if own not in unread]
    graph.update(node, inputs=[*node.inputs[:first], *kept])


def _cast_value(op: Any, kind: TensorType) -> Any:
    (made,) = execute(op, kind)
    assert made is not None
    return made.value()


def lower_bodies(graph: TypedGraph, target: Target, lowerings: Lowerings) -> None:
    """Lower the bodies of all loops, once."""
    for node, body in _bodies(graph):
        op = node.op
        assert isinstance(op, Repeat)
        if op.dispatches is not None or op.refusal:
            continue
        lower_bodies(body, target, lowerings)
        try:
            graph.update(node, op=replace(op, dispatches=_Lowering(op, node, graph, target).made(lowerings)))
        except Unsupported as reason:
            graph.update(node, op=_on_host(op, str(reason)))


def _bodies(graph: TypedGraph) -> Iterator[tuple[Node, TypedGraph]]:
    """The loops of a graph; what is known of values is known in their bodies, too."""
    for node in graph.nodes:
        if isinstance(node.op, Repeat):
            body: TypedGraph = node.op.body
            body.types, body.static, body.constants = graph.types, graph.static, graph.constants
            body.precision = graph.precision
            yield node, body


def _on_host(op: Repeat, reason: str) -> Repeat:
    """The loop for NumPy, which computes with the sizes seen alone: the plan then depends on them."""
    body: TypedGraph = op.body
    for name in {n for node in body.nodes for n in (*node.inputs, *node.outputs) if n}:
        kind = body.types[name]
        if isinstance(kind, TensorType) and has_dims(kind):
            value = kind.value().astype(kind.dtype.numpy) if kind.is_known else None
            shape = tuple(map(int, kind.shape))
            source = None if value is None else (lambda value=value: value)
            body.types[name] = TensorType(kind.dtype, shape, source, name)
    return replace(op, times=int(op.times), refusal=reason)


class _Lowering:
    """Makes the dispatches of a loop: its operands are the node's, and scratch memory for what the body makes."""

    def __init__(self, op: Repeat, node: Node, graph: TypedGraph, target: Target) -> None:
        self._op, self._graph, self._target = op, graph, target
        self._body: TypedGraph = op.body
        self._memory: dict[str, Operand] = {}
        self._views: dict[str, str] = {}
        names = self._body.inputs
        count = 1 + op.states + op.sliced
        self._counter, self._states, self._slices = names[0], names[1 : 1 + op.states], names[1 + op.states : count]
        self._ends, self._rows = self._body.outputs[: op.states], self._body.outputs[op.states :]
        self._memory[self._counter] = scratch(self._type(self._counter).dtype, *self._type(self._counter).shape)
        for k, name in enumerate(self._states):
            self._memory[name] = out(k, self._type(name))
        for k, name in enumerate(names[count:], op.states + op.sliced):
            self._memory[name] = inp(k, self._type(name))
        self._inputs = [graph.tensor(n) for n in node.inputs]

    def made(self, lowerings: Lowerings) -> tuple[Dispatch, ...]:
        """All dispatches. Raises Unsupported: the host would have to take part."""
        body = self._body
        body.resident = frozenset(body.inputs)
        running, _ = place(body, self._target, lowerings=lowerings)
        for placed in running:
            if placed.where in ("host", "forward"):
                raise Unsupported(f"its body runs on the host: {placed.node.label}, {placed.reason}")
            if placed.alias is not None:
                self._views[placed.node.outputs[0]] = placed.reads[0]
        steps = [d for placed in running for d in self._dispatches(placed)]
        steps = self._in_place(steps)
        before, each, after = self._around(steps)
        count = sum(math.prod(upper(loop.times) for loop in d.loops) for d in each)
        if count * upper(self._op.times) > MOST_DISPATCHES:
            raise Unsupported(
                f"its {upper(self._op.times):,} iterations of {count:,} dispatches are more than {MOST_DISPATCHES:,}"
            )
        loop = Repetition(self._op.times)
        repeated = (replace(d, loops=(loop, *d.loops)) for d in each)
        return numbered([*before, *repeated, *after])

    def _type(self, name: str) -> TensorType:
        return self._body.tensor(name)

    def _root(self, name: str) -> str:
        while name in self._views:
            name = self._views[name]
        return name

    def _operand(self, name: str, kind: TensorType) -> Operand:
        """The memory of a value, as a tensor of this type."""
        root = self._root(name)
        found = self._memory.get(root)
        if found is None:
            if root in self._body.constants:
                found = constant(self._body.constants[root])
            elif root in self._body.static:
                raise Unsupported(f"its body reads the elements of '{root}', which follow from dynamic dimensions")
            else:
                found = scratch(self._type(root).dtype, *self._type(root).shape)
            self._memory[root] = found
        return Operand(found.role, found.index, kind, found.data)

    def _dispatches(self, placed: Placed) -> Iterator[Dispatch]:
        """The dispatches of a node, on the operands of the loop."""
        own: dict[tuple[Role, int], Operand] = {}
        node = placed.node
        for dispatch in placed.dispatches:
            operands = []
            for o in dispatch.operands:
                names = {Role.INPUT: node.inputs, Role.OUTPUT: node.outputs}.get(o.role, ())
                if o.index < len(names) and names[o.index]:
                    operands.append(self._operand(names[o.index], o.type))
                    continue
                if (o.role, o.index) not in own:
                    fresh = scratch(o.type.dtype, *o.type.shape) if o.data is None else constant(o.data)
                    own[o.role, o.index] = fresh
                operands.append(replace(own[o.role, o.index], type=o.type))
            yield replace(dispatch, operands=tuple(operands))

    def _in_place(self, steps: list[Dispatch]) -> list[Dispatch]:
        """Let states be made in the memory of those before, where nothing needs these afterwards."""
        ends = [self._root(name) for name in self._ends]
        rows = {self._root(name) for name in self._rows}
        for state, end in zip(self._states, ends, strict=True):
            old, new = self._memory[state], self._memory.get(end)
            read_later = state in rows or any(e == state for s, e in zip(self._states, ends, strict=True) if s != state)
            if new is None or new.role is not Role.SCRATCH or end == self._counter or read_later:
                continue
            if not _may_overwrite(steps, old, new):
                continue
            steps = [_with(d, new, old) for d in steps]
            self._memory[end] = old
        return steps

    def _around(self, steps: list[Dispatch]) -> tuple[list[Dispatch], list[Dispatch], list[Dispatch]]:
        """What runs before the loop, in each iteration, and after the loop."""
        op, counter, target = self._op, self._memory[self._counter], self._target
        used = {_key(o) for d in steps for o in d.operands} | {_key(self._memory[self._root(n)]) for n in self._kept()}
        before = [zeros(target, counter)]
        before += [self._copy(self._memory[s], inp(k, self._type(s))) for k, s in enumerate(self._states)]
        reads: list[Dispatch] = []
        for k, name in enumerate(self._slices):
            memory = self._memory.get(name)
            if memory is not None and _key(memory) in used:
                x = inp(op.states + k, self._inputs[op.states + k])
                reads.append(read_row(target, memory, x, counter, op.backward[k]))
        writes, after = list[Dispatch](), list[Dispatch]()
        for k, name in enumerate(self._rows):
            row = self._operand(name, self._type(name))
            y = out(op.states + k, TensorType(row.type.dtype, (op.times, *row.type.shape)))
            if math.prod(row.type.shape) == 0:
                continue
            stack, size = y, padded_row(row.type)
            if size != row.type.size:
                stack = scratch(row.type.dtype, op.times, size)
                flat = replace(y, type=TensorType(row.type.dtype, (op.times, row.type.size)))
                after.append(strided_copy(target, "copy", flat, stack, 0, (size, 1)))
            before.append(zeros(target, stack))
            writes.append(write_row(target, stack, row, counter, op.backward[op.sliced + k]))
        each = [*reads, *steps, *writes, *self._moved()]
        is_counted = any(_key(o) == _key(counter) for d in each for o in d.operands)
        each += [count_up(target, counter)] if is_counted else []
        return [d for d in before if not d.is_empty], [d for d in each if not d.is_empty], after

    def _kept(self) -> Iterator[str]:
        """What is read at the end of an iteration."""
        for name in (*self._rows, *self._ends):
            self._operand(name, self._type(name))
            yield name

    def _moved(self) -> list[Dispatch]:
        """Copies of states that were made elsewhere; those that are other states are copied away first."""
        pairs = []
        for state, end in zip(self._states, self._ends, strict=True):
            old, new = self._memory[state], self._operand(end, self._type(state))
            if _key(old) != _key(new):
                pairs.append((old, new))
        states = {_key(self._memory[s]) for s in self._states}
        first: list[Dispatch] = []
        then: list[Dispatch] = []
        for old, new in pairs:
            source = new
            if _key(new) in states:
                source = scratch(new.type.dtype, *new.type.shape)
                first.append(self._copy(source, new))
            then.append(self._copy(old, source))
        return [*first, *then]

    def _copy(self, y: Operand, x: Operand) -> Dispatch:
        flat = TensorType(y.type.dtype, (y.type.size,))
        return strided_copy(
            self._target, "copy", replace(y, type=flat), replace(x, type=flat), 0, contiguous(flat.shape)
        )


def _key(operand: Operand) -> tuple[Any, int]:
    return operand.role, operand.index


def _with(dispatch: Dispatch, old: Operand, new: Operand) -> Dispatch:
    """The dispatch with other memory in the place of some."""
    operands = tuple(replace(new, type=o.type) if _key(o) == _key(old) else o for o in dispatch.operands)
    return replace(dispatch, operands=operands)


def _may_overwrite(steps: Sequence[Dispatch], old: Operand, new: Operand) -> bool:
    """Whether nothing reads `old` once `new` is written, which may then have its memory."""
    makers = [i for i, d in enumerate(steps) if any(_key(o) == _key(new) for o in d.operands)]
    if not makers:
        return False
    maker = steps[makers[0]]
    if any(_key(o) == _key(old) for d in steps[makers[0] + 1 :] for o in d.operands):
        return False
    reads = [i for i, o in enumerate(maker.operands) if _key(o) == _key(old)]
    writes = [i for i, o in enumerate(maker.operands) if _key(o) == _key(new)]
    return not maker.loops and all((r, w) in maker.inplace and same_place(maker, r, w) for r in reads for w in writes)
