"""Scan, and Loop where its trips are known before a run: written as `Repeat`, whose body the GPU repeats.

What does not depend on the iteration moves before the loop. Scan inputs and outputs whose axis is not the first are
transposed before and after it. A loop stays what it is, and runs on the host, where

- its condition or its number of trips is computed by the run;
- a state changes its shape, or is no tensor;
- a node of its body needs a value that the run computes, has no kernel, or draws random numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np

from pyruntime.compiler.constants import HEAVY
from pyruntime.errors import Defect, OrtError
from pyruntime.ir import (
    Constant,
    DeclaredTensor,
    DType,
    Graph,
    Node,
    Sizes,
    TensorType,
    TypedGraph,
    ValueNeeded,
    ValueType,
    known,
    lower,
    upper,
)
from pyruntime.ops.base import Op
from pyruntime.ops.fused.repeat import Repeat
from pyruntime.ops.interpreter import current
from pyruntime.ops.registry import newest

__all__ = ["capture", "repeated"]


class Typing(Protocol):
    """What is known of values (`compiler.typing`)."""

    types: dict[str, ValueType]
    static: set[str]
    sizes: Sizes | None
    done: list[Node]

    def within(self, inputs: Mapping[str, ValueType]) -> Self:
        """The types of a body that gets `inputs`."""
        ...

    def add_constants(self, constants: Mapping[str, Constant]) -> None:
        """Add values that are constants."""
        ...

    def run(self, nodes: list[Node]) -> tuple[list[Node], object | None]:
        """Infer nodes; what is not None stopped it."""
        ...

    def adopt(self, inner: Self, nodes: Iterable[Node]) -> None:
        """Take over what is known of a body, and these of its nodes."""
        ...


@dataclass(slots=True)
class _Loop:
    """A loop of the model, whichever operator it is.

    Attributes:
        body: on the graph's names. inputs: types of what an iteration brings: the number, the states, the slices.
        states: the first ones, by name. sliced: (name, axis) of scan inputs. axes: of scan outputs.
        backward: see `Repeat`. condition: the body's condition, which has to be true; empty: there is none.
    """

    body: Graph
    inputs: dict[str, ValueType]
    times: Any
    states: list[str]
    sliced: list[tuple[str, int]]
    axes: list[int]
    backward: list[bool]
    condition: str = ""


def repeated(typing: Typing, node: Node) -> list[Node] | None:
    """The nodes that a loop of the model stands for; None where it stays."""
    if node.op.domain != "" or not any(node.outputs) or all(n in typing.static for n in node.inputs if n):
        return None
    read = {"Scan": _scan, "Loop": _loop}.get(node.op.op_type)
    if read is None:
        return None
    try:
        loop = read(typing, node)
        return None if loop is None else _written(typing, node, loop)
    except Defect:
        raise
    except (ValueNeeded, OrtError):  # the loop itself says what is wrong, where an iteration gets there
        return None


def _tensor(typing: Typing, name: str) -> TensorType | None:
    kind = typing.types.get(name)
    return kind if isinstance(kind, TensorType) and kind.dtype.compute else None


def _label(node: Node) -> str:
    """What tells the loop from others: names of nodes need not be different."""
    return next(filter(None, node.outputs))


def _renamed(node: Node) -> Graph:
    """Return the body of the loop with its values renamed to those of the graph."""
    op: Any = node.op
    own = len(node.inputs) - len(op.captures())
    prefix = f"{_label(node)}/"
    body: Graph = op.body.renamed(dict(zip(op.captures(), node.inputs[own:], strict=True)), prefix)
    return body


def _scan(typing: Typing, node: Node) -> _Loop | None:
    op: Any = node.op
    if op.opsets.start < 9:  # with a batch axis, and lengths
        return None
    own = node.inputs[: len(node.inputs) - len(op.captures())]
    kinds = [_tensor(typing, name) for name in own]
    count = len(own) - op.num_scan_inputs
    if count < 0 or any(k is None for k in kinds) or len(op.body.inputs) != len(own):
        return None
    tensors = [k for k in kinds if k is not None]
    outputs = len(op.body.outputs) - count
    in_axes, in_back = (a or (0,) * op.num_scan_inputs for a in (op.scan_input_axes, op.scan_input_directions))
    out_axes, out_back = (a or (0,) * outputs for a in (op.scan_output_axes, op.scan_output_directions))
    if {len(in_axes), len(in_back)} != {op.num_scan_inputs} or {len(out_axes), len(out_back)} - {outputs}:
        return None
    axes = [op.axis_of(axis, x.rank) for axis, x in zip(in_axes, tensors[count:], strict=True)]
    lengths = [x.shape[axis] for axis, x in zip(axes, tensors[count:], strict=True)]
    if any(x.rank == 0 for x in tensors[count:]) or any(n != lengths[0] for n in lengths):
        return None
    body = _renamed(node)
    names = [info.name for info in body.inputs]
    inputs: dict[str, ValueType] = {f"{names[0]}/trip": TensorType(DType.INT64, ())}
    inputs |= {n: TensorType(x.dtype, x.shape) for n, x in zip(names, tensors[:count], strict=False)}
    for name, axis, x in zip(names[count:], axes, tensors[count:], strict=True):
        inputs[name] = TensorType(x.dtype, (*x.shape[:axis], *x.shape[axis + 1 :]))
    sliced = list(zip(own[count:], axes, strict=True))
    backward = [bool(b) for b in (*in_back, *out_back)]
    return _Loop(body, inputs, lengths[0], list(own[:count]), sliced, list(out_axes), backward)


def _loop(typing: Typing, node: Node) -> _Loop | None:
    op: Any = node.op
    own = node.inputs[: len(node.inputs) - len(op.captures())]
    if len(own) < 2 or len(own) != len(op.body.inputs) or not own[0]:
        return None
    trips, begins = (typing.types[n] if n else None for n in own[:2])
    if trips is None or not trips.is_known or not (begins is None or begins.is_known):
        return None
    if begins is not None and not bool(np.asarray(begins.value()).reshape(-1)[0]):
        return None
    times = np.asarray(trips.value()).reshape(-1)[0]
    times = max(int(times), 0) if isinstance(times, int | np.integer) else times
    if lower(times) < 0 or upper(times) > current().limits.loop_trips:
        return None
    kinds = [_tensor(typing, name) for name in own[2:]]
    if any(k is None for k in kinds):
        return None
    body = _renamed(node)
    shapes = [(1,) * len(i.type.shape or ()) if isinstance(i.type, DeclaredTensor) else () for i in body.inputs[:2]]
    names = [info.name for info in body.inputs]
    true = known(TensorType(DType.BOOL, shapes[1]), np.full(shapes[1], True))
    inputs: dict[str, ValueType] = {names[0]: TensorType(DType.INT64, shapes[0])}
    inputs |= {n: TensorType(x.dtype, x.shape) for n, x in zip(names[2:], kinds, strict=True) if x is not None}
    rows = len(body.outputs) - 1 - len(kinds)
    typing.types[names[1]] = replace(true, name=names[1])
    typing.static.add(names[1])
    condition, body.outputs = body.outputs[0].name, body.outputs[1:]
    return _Loop(body, inputs, times, list(own[2:]), [], [0] * rows, [False] * rows, condition)


def _written(typing: Typing, node: Node, loop: _Loop) -> list[Node] | None:
    """The nodes of a loop whose body can be typed."""
    inner = typing.within(loop.inputs)
    inner.add_constants(loop.body.constants)
    _, boundary = inner.run(loop.body.nodes)
    outputs = [info.name for info in loop.body.outputs]
    if boundary is not None or not _fits(inner, loop, outputs):
        return None
    first, body = _split(inner.done, loop.inputs)
    if not all(_repeatable(inner, n) for n in body):
        return None
    typing.adopt(inner, first)
    graph = TypedGraph(body, typing.types, list(loop.inputs), outputs, {}, typing.static, sizes=typing.sizes)
    others = capture(graph, _label(node))
    before, sliced = _moved(typing, node, loop)
    op = Repeat(
        kind=node.op.op_type,
        body=graph,
        times=loop.times,
        states=len(loop.states),
        sliced=len(sliced),
        backward=tuple(loop.backward),
        present=tuple(bool(n) for n in node.outputs),
    )
    made, after = _placed_outputs(typing, node, loop)
    return [*before, Node(op, (*loop.states, *sliced, *others), made, node.name), *after]


def _fits(inner: Typing, loop: _Loop, outputs: Sequence[str]) -> bool:
    """Whether all iterations run, and leave states of the types that they found."""
    if loop.condition:
        condition = inner.types[loop.condition]
        if loop.condition not in inner.static or not np.asarray(condition.value()).all():
            return False
    if any(_tensor(inner, name) is None for name in outputs):
        return False
    states = list(loop.inputs)[1 : 1 + len(loop.states)]
    pairs = [(inner.types[a], inner.types[b]) for a, b in zip(states, outputs, strict=False)]
    return len(outputs) >= len(states) and all(a == b for a, b in pairs)


def _split(nodes: Sequence[Node], inputs: dict[str, ValueType]) -> tuple[list[Node], list[Node]]:
    """The nodes that make the same in each iteration, and the others."""
    varying = set(inputs)
    first: list[Node] = []
    body: list[Node] = []
    for node in nodes:
        if varying.isdisjoint(node.inputs):
            first.append(node)
        else:
            varying.update(node.outputs)
            body.append(node)
    return first, body


def _repeatable(typing: Typing, node: Node) -> bool:
    """Whether the GPU can probably run a node of a body."""
    op = node.op
    assert isinstance(op, Op)
    if all(n in typing.static for n in node.outputs if n):
        return True
    if isinstance(op, Repeat):
        return True
    values = (n for n in (*node.inputs, *node.outputs) if n)
    return op.pure and op.has_kernel() and all(_tensor(typing, n) is not None for n in values)


def capture(body: TypedGraph, label: str) -> list[str]:
    """Give the body names of its own for what it reads of the graph; returns the graph's names, in their order.

    Small values that are known stay what they are: kernels may depend on them, and they cost nothing.
    """
    have = {n for node in body.nodes for n in node.outputs} | {*body.inputs}
    made = {n for n in _reads(body) if n not in have and not _is_small_static(body, n)}
    others = [n for n in dict.fromkeys(_reads(body)) if n in made]
    names = {}
    for name in others:
        kind = body.tensor(name)
        own = names[name] = body.fresh(f"{label}/{name}")
        source = None if name in body.static else kind.source
        body.types[own] = TensorType(kind.dtype, kind.shape, source, own)
    for node in body.nodes:
        if not made.isdisjoint(node.inputs):
            body.update(node, inputs=[names.get(n, n) for n in node.inputs])
    body.outputs = [names.get(n, n) for n in body.outputs]
    body.inputs = [*body.inputs, *names.values()]
    return others


def _reads(body: TypedGraph) -> Iterator[str]:
    for node in body.nodes:
        yield from filter(None, node.inputs)
    yield from body.outputs


def _is_small_static(body: TypedGraph, name: str) -> bool:
    kind = body.types[name]
    return name in body.static and isinstance(kind, TensorType) and upper(kind.nbytes) <= HEAVY


def _moved(typing: Typing, node: Node, loop: _Loop) -> tuple[list[Node], list[str]]:
    """Scan inputs with their axis first: the nodes, and the names."""
    nodes, names = [], []
    for name, axis in loop.sliced:
        if axis == 0:
            names.append(name)
            continue
        rank = typing.types[name].rank  # type: ignore[union-attr]
        perm = (axis, *(d for d in range(rank) if d != axis))
        names.append(f"{_label(node)}/{len(names)}/{name}")
        nodes.append(Node(_transpose(perm), (name,), (names[-1],), f"{node.name}/Transpose"))
    return nodes, names


def _placed_outputs(typing: Typing, node: Node, loop: _Loop) -> tuple[tuple[str, ...], list[Node]]:
    """The outputs of the loop, and the nodes that put the axis of stacked rows in its place."""
    names, nodes = list(node.outputs), list[Node]()
    kinds = [typing.types[info.name] for info in loop.body.outputs]
    for number, axis in enumerate(loop.axes, len(loop.states)):
        rank = kinds[number].rank + 1  # type: ignore[union-attr]
        at = axis % rank
        if number >= len(names) or not names[number] or at == 0:
            continue
        made = f"{_label(node)}/stacked/{names[number]}"
        perm = (*range(1, at + 1), 0, *range(at + 1, rank))
        nodes.append(Node(_transpose(perm), (made,), (names[number],), f"{node.name}/Transpose"))
        names[number] = made
    return tuple(names), nodes


def _transpose(perm: Sequence[int]) -> Op:
    return newest("Transpose", perm=tuple(perm))
