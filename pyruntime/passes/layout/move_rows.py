"""Fuse permutations of rows before or after a normalization into its kernel.

Reshape, Transpose, RolledTranspose and Slice that keep rows whole (windows and shifts of channels-last images) are
described by a table of row indices. A norm stores its rows where the table says. It also reads one of the two tensors
that it adds in that order, or, where rows consist of pieces (patch merging), piece by piece. The order of its sum
output does not change. Values in between have no other consumers, and no dimension is dynamic. A Slice after the norm
is not fused. Source: Liu et al., 2021 (Swin).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pyruntime.ir import Array, DType, Node, TypedGraph, is_dim
from pyruntime.kernels import Target
from pyruntime.ops.fused.rolled_transpose import RolledTranspose
from pyruntime.ops.fused.with_norm import WithNorm
from pyruntime.ops.movement.slice import Slice
from pyruntime.ops.movement.transpose import Transpose
from pyruntime.ops.normalization.skip_norm import SkipNorm
from pyruntime.passes.graph_pass import Fact, graph_pass
from pyruntime.passes.match import Matcher
from pyruntime.passes.writer import reshaped

__all__ = ["run"]

LEAST = 16
"""Minimum elements of a piece of a row, so that tables are small compared to the data."""


@graph_pass(
    requires=(
        Fact.ROLLS_FUSED,
        Fact.PATCHES_TRANSPOSED,
        Fact.PRODUCT_NORMS_FUSED,
        Fact.SKIP_NORMS_FUSED,
        Fact.NORMED_PRODUCTS_FUSED,
    )
)
def run(graph: TypedGraph, target: Target) -> bool:
    """Rewrite all matches; returns whether there were any."""
    return _Rows(graph, target).run()


class _Rows:
    """State of the pass for one graph.

    Attributes:
        tables: movements -> name of the constant with their table.
        gone: nodes fused into a norm.
    """

    def __init__(self, graph: TypedGraph, target: Target) -> None:
        self.graph, self.target, self.match = graph, target, Matcher(graph)
        self.tables: dict[tuple[Any, ...], str] = {}
        self.gone: set[Node] = set()

    def run(self) -> bool:
        written = {node: self.rewritten(node) for node in self.graph.nodes if _is_norm(self.graph, node)}
        return bool(self.gone) and self.graph.substitute({**written, **{node: [] for node in self.gone}})

    def rewritten(self, node: Node) -> list[Node]:
        """Return the norm, fused with the movements around it, and the Reshape of its result, if any."""
        read = self.reads_moved(node)
        return self.writes_moved(read or node) or [read or node]

    def reads_moved(self, node: Node) -> Node | None:
        """Return the norm fused with the movements before one of its terms, or None."""
        if isinstance(node.op, WithNorm):
            return None
        normal = _as_skip_norm(node)
        op = normal.op
        assert isinstance(op, SkipNorm)
        inputs = [*normal.inputs, "", "", ""][:5]
        shape = self.graph.tensor(node.outputs[0]).shape
        for at in (0, 3):
            if not inputs[at] or op.shape or self.graph.tensor(inputs[at]).size != math.prod(shape):
                continue
            chain = self.movements_before(inputs[at])
            if not chain or not self.fits(normal, 1):
                continue
            source = chain[0].inputs[0]
            self.gone.update(chain)
            table = self.table(chain, _unit(self.graph, chain), False)
            other = inputs[3 - at]
            moved = (source, *inputs[1:3], other, inputs[4], table)
            return Node(replace(op, shape=shape), moved, normal.outputs, normal.name)
        return None

    def writes_moved(self, node: Node) -> list[Node] | None:
        """Return the norm fused with the movements after it, and the Reshape of its result, or None."""
        chain = self.movements_after(node.outputs[0])
        # The kernel that reduces a product's partial results binds these instead of the two factors.
        if not chain or not self.fits(node, 0 if isinstance(node.op, WithNorm) else 1):
            return None
        y, last = self.graph.tensor(node.outputs[0]), chain[-1].outputs[0]
        self.gone.update(chain)
        table = self.table(chain, y.shape[-1], True)
        name, after = last, list[Node]()
        if self.graph.tensor(last).shape != y.shape:
            name = self.graph.add_value(f"{node.outputs[0]}.moved", y)
            after = [reshaped(self.graph, name, last, self.graph.tensor(last).shape, chain[-1].name)]
        outputs = (name, *node.outputs[1:])
        if isinstance(node.op, WithNorm):
            return [Node(replace(node.op, moves=True), (*node.inputs, table), outputs, node.name), *after]
        normal = _as_skip_norm(node)
        inputs = (*[*normal.inputs, "", "", "", ""][:6], table)
        return [Node(normal.op, inputs, outputs, normal.name), *after]

    def fits(self, node: Node, more: int) -> bool:
        """Whether the device can bind the tensors of the node and `more` others in one kernel."""
        return sum(map(bool, (*node.inputs, *node.outputs))) + more <= self.target.limits.storage_buffers

    def movements_after(self, name: str) -> list[Node]:
        """Return the chain of single consumers that move the rows of `name`; the last one moves elements."""
        chain, unit = list[Node](), self.graph.tensor(name).shape[-1]
        while self.match.read_once(name):
            (node,) = self.graph.consumers(name)
            if node.inputs[0] != name or not self.keeps_rows(node) or isinstance(node.op, Slice):
                break
            if self.graph.tensor(node.outputs[0]).shape[-1] % unit:
                break
            chain.append(node)
            name = node.outputs[0]
        while chain and not self.moves(chain[-1]):
            chain.pop()
        return chain

    def movements_before(self, name: str) -> list[Node]:
        """Return the chain of nodes that produce `name` by moving rows or pieces; the first one moves elements."""
        chain, unit = list[Node](), self.graph.tensor(name).shape[-1]
        full = unit
        while self.match.read_once(name) and name not in self.graph.static:
            node = self.graph.producer(name)
            if node is None or not self.keeps_rows(node):
                break
            unit = math.gcd(unit, *(self.graph.tensor(n).shape[-1] for n in (node.inputs[0], name)))
            if unit != full and (unit % 4 or unit < LEAST):
                break
            chain.insert(0, node)
            name = node.inputs[0]
        while chain and not self.moves(chain[0]):
            chain.pop(0)
        return chain

    def keeps_rows(self, node: Node) -> bool:
        """Whether the node is a movement of concrete sizes that keeps the last dimension in place."""
        op = node.op
        if node in self.gone or node.outputs[0] in self.graph.static:
            return False
        if isinstance(op, Transpose):
            rank = self.graph.tensor(node.outputs[0]).rank
            kept = rank > 0 and op.permutation(rank)[-1] == rank - 1
        elif isinstance(op, Slice):
            kept = all(n in self.graph.static for n in node.inputs[1:] if n) and not _cuts_rows(self.graph, node)
        elif isinstance(op, RolledTranspose):
            kept = not op.before[-1] and not op.after[-1] and op.perm[-1] == len(op.perm) - 1
            kept = kept and op.middle[-1] == self.graph.tensor(node.inputs[0]).shape[-1] == op.shape[-1]
        else:
            kept = op.op_type == "Reshape" and not op.domain
        shapes = [self.graph.tensor(n).shape for n in (node.inputs[0], node.outputs[0])] if kept else []
        return kept and all(shape and not any(is_dim(d) or not d for d in shape) for shape in shapes)

    def moves(self, node: Node) -> bool:
        """Whether the movement moves elements."""
        if isinstance(node.op, Transpose):
            return node.op.alias(self.graph.tensor(node.inputs[0])) is None
        return isinstance(node.op, RolledTranspose | Slice)

    def table(self, chain: Sequence[Node], unit: int, placed: bool) -> str:
        """Return the name of a constant with the source index of each piece of `unit` elements.

        Args:
            placed: return the destination of each piece instead.
        """
        x = self.graph.tensor(chain[0].inputs[0])
        key = (x.shape, unit, placed, *(_movement_key(self.graph, n) for n in chain))
        if key not in self.tables:
            order = _order(self.graph, chain, x.shape, unit)
            if placed:
                order, places = np.empty_like(order), order
                order[places] = np.arange(order.size, dtype=np.uint32)
            self.tables[key] = self.graph.add_constant(order, DType.UINT32, f"{chain[-1].outputs[0]}.rows")
        return self.tables[key]


def _order(graph: TypedGraph, chain: Sequence[Node], shape: tuple[int, ...], unit: int) -> Array:
    """Return the index of the source piece for each piece of the result."""

    def pieces(dims: tuple[int, ...]) -> tuple[int, ...]:
        return (*dims[:-1], dims[-1] // unit)

    at = np.arange(math.prod(shape) // unit, dtype=np.uint32).reshape(pieces(shape))
    for node in chain:
        op = node.op
        if isinstance(op, Transpose):
            (at,) = op.evaluate(at)
        elif isinstance(op, RolledTranspose):
            (at,) = replace(op, middle=pieces(op.middle), shape=pieces(op.shape)).evaluate(at)
        elif isinstance(op, Slice):
            (at,) = op.evaluate(at, *(graph.tensor(n).value() if n else None for n in node.inputs[1:]))
        else:
            at = at.reshape(pieces(graph.tensor(node.outputs[0]).shape))
    return np.ascontiguousarray(at).reshape(-1)


def _unit(graph: TypedGraph, chain: Sequence[Node]) -> int:
    """Return the number of elements that stay adjacent in all nodes of the chain."""
    names = (chain[0].inputs[0], *(n.outputs[0] for n in chain))
    return math.gcd(*(graph.tensor(n).shape[-1] for n in names))


def _movement_key(graph: TypedGraph, node: Node) -> tuple[Any, ...]:
    """Return a key of what a movement does to a tensor of a given shape."""
    if isinstance(node.op, Transpose | RolledTranspose):
        return (node.op,)
    if isinstance(node.op, Slice):
        return tuple(graph.tensor(n).ints() if n else None for n in node.inputs[1:])
    return graph.tensor(node.outputs[0]).shape


def _cuts_rows(graph: TypedGraph, node: Node) -> bool:
    """Whether a Slice is along the last dimension."""
    rank = graph.tensor(node.inputs[0]).rank
    axes = graph.tensor(node.inputs[3]).ints() if node.inputs[3:4] and node.inputs[3] else range(rank)
    return any(axis % rank == rank - 1 for axis in axes)


def _is_norm(graph: TypedGraph, node: Node) -> bool:
    """Whether the node is a normalization over the last dimension, of concrete sizes, that can move rows."""
    op: Any = node.op
    if isinstance(op, SkipNorm | WithNorm):
        return not any(map(is_dim, graph.tensor(node.outputs[0]).shape))
    if op.domain or op.op_type not in ("LayerNormalization", "RMSNormalization") or any(node.outputs[1:]):
        return False
    x, y = graph.tensor(node.inputs[0]), graph.tensor(node.outputs[0])
    if any(map(is_dim, x.shape)):
        return False
    if x.dtype.compute != "f32" or y.dtype.compute != "f32" or not x.size or op.reduced(x.shape) != (x.rank - 1,):
        return False
    return all(graph.tensor(n).shape == x.shape[-1:] for n in node.inputs[1:] if n)


def _as_skip_norm(node: Node) -> Node:
    """Return a normalization as a SkipNorm of a single term."""
    op: Any = node.op
    if isinstance(op, SkipNorm):
        return node
    rms = int(op.op_type == "RMSNormalization")
    return Node(SkipNorm(epsilon=op.epsilon, rms=rms, adds=False), node.inputs, node.outputs, node.name)
