"""Placement: which nodes run, where, and why.

The largest nodes are lowered first: their kernels take longest to compile, and what they have the smaller ones may
share; of equal ones the first, and the others after all of these, so that every kernel is requested soon. Then nodes
are visited from the outputs backwards, and only what is needed runs: a Reshape binds no shape input, hence nothing that
computes the shape remains.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

from pyruntime.compiler.lowering import Lowerings
from pyruntime.errors import Defect, OrtError
from pyruntime.ir import Constant, Node, TensorType, TypedGraph, ValueNeeded, ValueType, has_dims, upper
from pyruntime.ir.encoding import round_to
from pyruntime.kernels import Dispatch, Target
from pyruntime.kernels.selection.candidates import Noted
from pyruntime.ops.base import Op, Unsupported
from pyruntime.ops.defects import planning

__all__ = ["Placed", "fold", "place"]


@dataclass(slots=True)
class Placed:
    """A node and where it runs.

    Attributes:
        where: 'gpu', 'host', 'forward' (a view taken on the host, which costs nothing) or 'none' (folded, unneeded, or
            a view on the GPU of the input numbered `alias`).
        reads: the values it needs at run time.
        choices: what kernels were chosen for.
    """

    node: Node
    where: str
    reason: str
    dispatches: tuple[Dispatch, ...] = ()
    alias: int | None = None
    reads: tuple[str, ...] = ()
    types: tuple[ValueType | None, ...] = ()
    outputs: tuple[ValueType, ...] = ()
    kernels: tuple[str, ...] = field(default=())
    choices: tuple[Noted, ...] = ()


def place(
    graph: TypedGraph,
    target: Target,
    tell: Callable[[int, Placed, int], None] = lambda at, placed, times: None,
    lowerings: Lowerings | None = None,
) -> tuple[list[Placed], list[Placed]]:
    """Place every node of `graph`.

    Args:
        tell: called with each node that will probably run, its place among the graph's, and how many equal ones it
            stands for, itself included; the largest first, and last those that another one stood for, with 0.
        lowerings: those of the stage's other graphs, for the same device.

    Returns:
        The nodes that run, in order; and those that do not (folded, or without a consumer), for reports.
    """
    lowerings = lowerings or Lowerings(target, graph.sizes is None)
    every = _placed(graph, lowerings, tell)
    needed = set(graph.outputs)
    running: list[Placed] = []
    idle: list[Placed] = []
    for at, node in reversed(list(enumerate(graph.nodes))):
        wanted = [n for n in node.outputs if n and n in needed]
        if not wanted:
            idle.append(Placed(node, "none", "nothing needs its value while running"))
            continue
        if all(n in graph.static for n in wanted):
            fold(graph, wanted)
            idle.append(Placed(node, "none", "its value follows from constants and shapes: folded"))
            continue
        placed = every.get(at) or _place(graph, node, lowerings)
        needed.update(placed.reads)
        running.append(placed)
    # Static values whose node is not in this graph (an earlier stage, the plan of heavy constants) are folded here.
    fold(graph, [n for n in (*graph.outputs, *(r for p in running for r in p.reads)) if n in graph.static])
    running.reverse()
    return _resolve_views(graph, running), idle[::-1]


def fold(graph: TypedGraph, names: Iterable[str]) -> None:
    """Make constants of static tensor values; those that follow from dynamic dimensions are written for each run."""
    for name in names:
        kind = graph.types[name]
        if name not in graph.constants and isinstance(kind, TensorType) and not has_dims(kind):
            graph.constants[name] = Constant.from_array(round_to(kind.value(), kind.dtype), kind.dtype)


def _placed(graph: TypedGraph, lowerings: Lowerings, tell: Callable[[int, Placed, int], None]) -> dict[int, Placed]:
    """The nodes whose values are not all static by their places in the graph, placed in the order of `tell`.

    Those that are wrong are left out: perhaps nothing needs them.
    """
    keys: dict[int, Hashable] = {}
    sizes: dict[int, float] = {}
    for at, node in enumerate(graph.nodes):
        if all(n in graph.static for n in node.outputs if n):
            continue
        op, types = node.op, [graph.types[n] if n else None for n in node.inputs]
        assert isinstance(op, Op)
        tensors = all(t is None or isinstance(t, TensorType) for t in types)
        keys[at] = lowerings.key(op, types) if tensors else None  # type: ignore[arg-type]
        sizes[at] = _size(graph, node)
    counts = Counter(keys.values())
    times = {at: counts[key] if key is not None else 1 for at, key in keys.items()}
    order = sorted(keys, key=lambda at: (-sizes[at] * times[at], -at))
    firsts = {keys[at] if keys[at] is not None else at: at for at in reversed(order)}.values()
    stands_for = {at: times[at] for at in firsts}
    made: dict[int, Placed] = {}
    for at in sorted(order, key=lambda at: at not in stands_for):
        try:
            made[at] = _place(graph, graph.nodes[at], lowerings, keys[at], times[at])
        except Defect:
            raise
        except OrtError:  # comes again where the node is needed
            continue
        tell(at, made[at], stands_for.get(at, 0))
    return made


def _size(graph: TypedGraph, node: Node) -> float:
    """About how many operations: m·n·k for a product, whose matrices have m·k, k·n and m·n elements."""
    kinds = [graph.types[n] for n in (*node.inputs, *node.outputs) if n]
    largest = sorted((float(upper(t.size)) for t in kinds if isinstance(t, TensorType)), reverse=True)[:3]
    return math.sqrt(math.prod(largest))


def _place(graph: TypedGraph, node: Node, lowerings: Lowerings, key: Hashable = ..., times: int = 1) -> Placed:
    op = node.op
    assert isinstance(op, Op)
    if graph.sizes is not None:
        graph.sizes.by = node.label
    types = tuple(graph.types[n] if n else None for n in node.inputs)
    outputs = tuple(graph.types[n] for n in node.outputs if n)
    everything = tuple(n for n in node.inputs if n)

    def host(reason: str) -> Placed:
        return Placed(node, "host", reason, reads=everything, types=types, outputs=outputs)

    for kind in (*filter(None, types), *outputs):
        if not isinstance(kind, TensorType):
            return host("sequences, optionals and maps live on the host")
        if not kind.dtype.compute:
            return host(f"{kind.dtype.onnx_name} tensors live on the host")
    alias = op.alias(*types)
    if alias is not None and (type(op).lower is Op.lower or _fills(types[alias], outputs[0])):
        return Placed(
            node, "none", "a view of its input", alias=alias, reads=(node.inputs[alias],), types=types, outputs=outputs
        )
    if not type(op).has_kernel():
        return host(f"{op.op_type} has no GPU kernel")
    if not any(isinstance(t, TensorType) and upper(t.size) for t in outputs):
        return Placed(node, "gpu", "its outputs have no elements", types=types, outputs=outputs)
    try:
        with planning("lowering", node, types):
            dispatches, choices, numbers, too_large = lowerings.of(op, types, key, times)  # type: ignore[arg-type]
    except Unsupported as reason:
        return host(str(reason))
    except ValueNeeded as missing:
        return host(f"its kernel depends on the value of '{missing.name}', which is computed while running")
    if too_large:
        return host(too_large)
    reads = dict.fromkeys([node.inputs[i] for i in numbers])
    kernels = tuple(d.kernel.name for d in dispatches)
    return Placed(node, "gpu", "has a GPU kernel", dispatches, None, tuple(reads), types, outputs, kernels, choices)


def _fills(given: ValueType | None, result: ValueType) -> bool:
    """True where a view has all of the result, for every size of dynamic dimensions: those seen may just be equal."""
    if not isinstance(given, TensorType) or not isinstance(result, TensorType):
        return True
    return upper(given.nbytes) >= upper(result.nbytes)


def _resolve_views(graph: TypedGraph, running: list[Placed]) -> list[Placed]:
    """A view whose source only the host has and whose value only the host wants is taken on the host, at no cost.

    Not where the host lacks another of its inputs, which a view on the GPU does not read.
    """
    on_host = {*graph.inputs, *graph.constants, *graph.static} - set(graph.resident)
    on_gpu = {n for p in running if p.where == "gpu" for n in p.node.outputs}
    gpu_reads = {n for p in running if p.where == "gpu" for n in p.reads}
    for placed in reversed(running):
        if placed.alias is not None and placed.node.outputs[0] in gpu_reads:
            gpu_reads.add(placed.reads[0])
    for placed in running:
        if placed.alias is None:
            on_host.update(placed.node.outputs if placed.where == "host" else ())
            continue
        source, result = placed.reads[0], placed.node.outputs[0]
        others = {n for n in placed.node.inputs if n} - {source}
        if source in on_gpu or source in graph.resident or result in gpu_reads or others - on_host:
            on_gpu.add(result)
        else:
            on_host.add(result)
            placed.where, placed.alias = "forward", None
            placed.reads = tuple(n for n in placed.node.inputs if n)
    return running
