"""Replace a Concat of strided slices with all start offsets by a transpose, as in patch merging and YOLO's Focus.

concat([x[i::n, j::m] for j, i in ...]) = reshape(transpose(reshape(x, [.., size / n, n, ..]))), where the slices cover
x in mixed-radix order of their starts. Not for dynamic dimensions. Rotary embeddings have such slices, too, and are
fused first. Source: Liu et al., 2021 (Swin); YOLOv5.
"""

from __future__ import annotations

import math
from itertools import permutations, product
from typing import Any

from pyruntime.ir import Node, TypedGraph, is_dim
from pyruntime.kernels import Target
from pyruntime.passes.graph_pass import Fact, node_pass
from pyruntime.passes.match import Matcher
from pyruntime.passes.views import View, trace
from pyruntime.passes.writer import rearranged

__all__ = ["run"]

MOST = 3
"""Maximum number of axes with strided slices."""


@node_pass(requires=(Fact.ROTARY_FUSED,), ensures=(Fact.PATCHES_TRANSPOSED,), breaks=(Fact.NO_DEAD_NODES,))
def run(match: Matcher, target: Target, node: Node) -> list[Node] | None:
    """Replace a Concat of strided slices by a transpose."""
    graph = match.graph
    op: Any = node.op
    if op.domain or op.op_type != "Concat" or len(node.inputs) < 2 or node.outputs[0] in graph.static:
        return None
    sources = {_sliced(match, n) for n in node.inputs}
    source = sources.pop()
    if sources or source in node.inputs:
        return None
    shape, part, y = (graph.tensor(n).shape for n in (source, node.inputs[0], node.outputs[0]))
    if any(is_dim(d) or not d for d in (*shape, *part, *y)) or len(shape) != len(y):
        return None
    steps = [whole // size for whole, size in zip(shape, part, strict=True)]
    stepped = [d for d, step in enumerate(steps) if step > 1]
    if math.prod(steps) != len(node.inputs) or len(stepped) > MOST:
        return None
    if any(size * step != whole for whole, size, step in zip(shape, part, steps, strict=True)):
        return None
    whole = trace(graph, source)
    parts = [trace(graph, n) for n in node.inputs]
    order = next((o for o in permutations(stepped) if _parts(whole, part, steps, o) == parts), None)
    return None if order is None else _transposed(graph, node, source, part, steps, order)


def _sliced(match: Matcher, name: str) -> str:
    """Return the value that `name` is a slice, or nested slice, of."""
    while (made := match.producer(name, "Slice")) is not None:
        name = made.inputs[0]
    return name


def _parts(whole: View, part: tuple[int, ...], steps: list[int], order: tuple[int, ...]) -> list[View]:
    """Return slices with these steps, with starts in mixed-radix order; the last axis of `order` varies fastest."""
    made: list[View] = []
    for starts in product(*(range(steps[d]) for d in order)):
        view = whole
        for axis, start in zip(order, starts, strict=True):
            view = view.sliced(axis, start, part[axis], steps[axis])
        made.append(view)
    return made


def _transposed(
    graph: TypedGraph, node: Node, source: str, part: tuple[int, ...], steps: list[int], order: tuple[int, ...]
) -> list[Node]:
    axis = node.op.axis % len(part)  # type: ignore[attr-defined]
    split: list[int] = []
    sizes, starts = dict[int, int](), dict[int, int]()
    for d, (size, step) in enumerate(zip(part, steps, strict=True)):
        sizes[d] = len(split)
        split.append(size)
        if step > 1:
            starts[d] = len(split)
            split.append(step)
    perm = [at for d in range(len(part)) for at in ([starts[o] for o in order] if d == axis else []) + [sizes[d]]]
    return rearranged(graph, node, source, split, perm)
