"""Fuse chains and trees of elementwise operators into one kernel.

A producer is fused into its only consumer if both have the same shape, so nothing is computed twice. So are products
and sums of scalars or vectors that cost less than a dispatch. The kernel stays within the device's limit of bindings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyruntime.ir import Node, TensorType, TypedGraph
from pyruntime.kernels import Target
from pyruntime.kernels.ir.indexing import broadcast_shapes
from pyruntime.ops.elementwise.elementwise import Elementwise
from pyruntime.ops.fused.elementwise import FusedElementwise, Number, Source, Step, fusible
from pyruntime.ops.fused.quantization_steps import Quantize
from pyruntime.passes.graph_pass import Fact, graph_pass

__all__ = ["run"]

_LIGHT = frozenset(("Mul", "Add", "Sub", "Cast"))

_SUMS = ("MatMulInteger", "ConvInteger", "ConvIntegerChannelsLast")

MAX_STEPS = 24
"""Maximum steps of a kernel. Longer ones compile slowly without being faster."""


@graph_pass(ensures=(Fact.ELEMENTWISE_FUSED,))
def run(graph: TypedGraph, target: Target) -> bool:
    """Fuse elementwise operators; returns whether there were any to fuse."""
    # First, chains end at the quantization of integer sums. Then, one such chain may be fused into its consumer.
    fused = _fuse(graph, target, lambda chain, end: False)
    ends = any(isinstance(n.op, FusedElementwise) and isinstance(n.op.steps[-1].op, Quantize) for n in graph.nodes)
    return (ends and _fuse(graph, target, lambda chain, end: not chain.sums)) or fused


def _fuse(graph: TypedGraph, target: Target, joins: Callable[[_Chain, _Chain], bool]) -> bool:
    """Fuse elementwise operators; returns whether there were any to fuse.

    Args:
        joins: whether a chain may include a producer that quantizes the sums of an integer product.
    """
    wanted = set(graph.outputs)
    chains: dict[str, _Chain] = {}
    fused: dict[Node, tuple[Node, ...]] = {}
    order: dict[str, int] = {}
    sums = frozenset(n.outputs[0] for n in graph.nodes if n.op.op_type in _SUMS)
    for node in graph.nodes:
        if not _is_elementwise(graph, node):
            continue
        single = as_chain(graph, node)
        chain = _Chain(single, frozenset((node,)), sums.intersection(single.inputs))
        shape = graph.tensor(node.outputs[0]).shape
        while True:
            before = {n for n in chain.node.inputs if n in order and n not in wanted}
            candidates = [chains[n] for n in sorted(before, key=order.__getitem__, reverse=True)]
            producer = next(
                (
                    c
                    for c in candidates
                    if chain.members.issuperset(graph.consumers(c.node.outputs[0]))
                    and (graph.tensor(c.node.outputs[0]).shape == shape or _is_light(graph, c.node))
                    and _fits(graph, c.node, chain.node, target)
                    and (not c.ends_sums or joins(chain, c))
                ),
                None,
            )
            if producer is None:
                break
            fused |= dict.fromkeys(producer.members, ())
            members, read = chain.members | producer.members, chain.sums | producer.sums
            chain = _Chain(_merge(producer.node, chain.node), members, read)
        chains[node.outputs[0]] = chain
        order[node.outputs[0]] = len(order)
        if chain.node is not single:
            fused[node] = (chain.node,)
    return graph.substitute(fused)


def _is_light(graph: TypedGraph, node: Node) -> bool:
    """Whether a node is cheap enough to recompute for each element of a consumer: arithmetic of scalars or vectors."""
    steps = _steps(node)
    return len(steps) <= 2 and graph.tensor(node.outputs[0]).rank <= 1 and all(s.op.op_type in _LIGHT for s in steps)


@dataclass(frozen=True, slots=True)
class _Chain:
    """A fused node that replaces the elementwise nodes `members`, and reads `sums` of integer products.

    Of two integer products whose sums are quantized, one is fused into its consumer and the other is not, so that
    quantized values are stored between them.
    """

    node: Node
    members: frozenset[Node]
    sums: frozenset[str]

    @property
    def ends_sums(self) -> bool:
        """Whether the chain quantizes sums."""
        return bool(self.sums) and isinstance(_steps(self.node)[-1].op, Quantize)


def _is_elementwise(graph: TypedGraph, node: Node) -> bool:
    if not isinstance(node.op, Elementwise | FusedElementwise) or node.outputs[0] in graph.static:
        return False
    if any(node.outputs[1:]):
        return False
    types = [graph.types[n] if n else None for n in node.inputs]
    dtypes = [t.dtype if isinstance(t, TensorType) else None for t in types]
    if not all(t is None or (d is not None and d.compute) for t, d in zip(types, dtypes, strict=True)):
        return False
    y = graph.tensor(node.outputs[0])
    last = node.op.steps[-1].op if isinstance(node.op, FusedElementwise) else node.op
    if (
        not (fusible(y.dtype) or isinstance(last, Quantize))
        or broadcast_shapes(*(t.shape for t in types if isinstance(t, TensorType))) != y.shape
    ):
        return False
    if isinstance(node.op, FusedElementwise):
        return True
    return node.op.alias(*types) is None and node.op.expression(*dtypes) is not None


def as_chain(graph: TypedGraph, node: Node) -> Node:
    """Return an elementwise node as a chain of one step, with constant scalars as uniforms."""
    if isinstance(node.op, FusedElementwise):
        return node
    assert isinstance(node.op, Elementwise)
    y = graph.tensor(node.outputs[0])
    names: list[str] = []
    sources: list[Source] = []
    for name in node.inputs:
        number = _number(graph, name, y) if name else None
        if number is None and name and name not in names:
            names.append(name)
        sources.append(number if number is not None else names.index(name) if name else None)
    if not any(graph.tensor(n).shape == y.shape for n in names):
        return _plain_chain(node, node.op)
    return Node(FusedElementwise(steps=(Step(node.op, tuple(sources)),)), tuple(names), node.outputs, node.name)


def _plain_chain(node: Node, op: Elementwise) -> Node:
    names = [n for n in dict.fromkeys(node.inputs) if n]
    sources = tuple(names.index(n) if n else None for n in node.inputs)
    return Node(FusedElementwise(steps=(Step(op, sources),)), tuple(names), node.outputs, node.name)


def _number(graph: TypedGraph, name: str, y: TensorType) -> Number | None:
    """Return a static one-element tensor as a uniform, or None if WGSL has no uniform of its type."""
    kind = graph.tensor(name)
    if name not in graph.static or kind.size != 1 or kind.rank > y.rank or kind.dtype.compute not in ("f32", "i32"):
        return None
    value = kind.value().reshape(-1)[0]
    return Number(float(value) if kind.dtype.is_float else int(value), kind.dtype)


def _names(producer: Node, reader: Node) -> list[str]:
    """Return the inputs of the two merged chains."""
    return list(dict.fromkeys([*producer.inputs, *(n for n in reader.inputs if n != producer.outputs[0])]))


def _fits(graph: TypedGraph, producer: Node, reader: Node, target: Target) -> bool:
    steps = len(_steps(producer)) + len(_steps(reader))
    names = (*_names(producer, reader), *reader.outputs)
    bound = sum(target.limits.bindings(graph.tensor(n).nbytes) for n in names if n)
    return bound <= target.limits.storage_buffers and steps <= MAX_STEPS


def _steps(node: Node) -> tuple[Step, ...]:
    assert isinstance(node.op, FusedElementwise)
    return node.op.steps


def _merge(producer: Node, reader: Node) -> Node:
    """Return `reader` with the steps of `producer` prepended."""
    first, second = _steps(producer), _steps(reader)
    names, shift = _names(producer, reader), len(first)

    def renumber(step: Step, inputs: tuple[str, ...], offset: int) -> Step:
        made: list[Source] = []
        for i in step.inputs:
            if not isinstance(i, int):
                made.append(i)
            elif i < 0:
                made.append(i - offset)
            elif inputs[i] == producer.outputs[0]:
                made.append(-shift)
            else:
                made.append(names.index(inputs[i]))
        return Step(step.op, tuple(made))

    front = [renumber(s, producer.inputs, 0) for s in first]
    back = [renumber(s, reader.inputs, shift) for s in second]
    return Node(FusedElementwise(steps=(*front, *back)), tuple(names), reader.outputs, reader.name)
