"""Write nodes channels-last."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pyruntime.ir import DType, Node, TensorType, TypedGraph, int_array
from pyruntime.ops.fused.depthwise_channels_last import DepthwiseLast
from pyruntime.ops.registry import newest
from pyruntime.passes.layout.layouts import (
    Kind,
    across,
    layout_inputs,
    to_first,
    to_last,
    transposed_from,
    transposes_back,
)
from pyruntime.passes.match import Matcher
from pyruntime.passes.writer import Writer

__all__ = ["Rewriter"]


class Rewriter(Writer):
    """Rewrites the nodes of `kinds`, and the transposes before and after them."""

    def __init__(self, graph: TypedGraph, match: Matcher, kinds: Mapping[Node, Kind]) -> None:
        super().__init__(graph, match)
        self.kinds = kinds
        self.last: dict[str, str] = {}
        """The channels-last copies made so far, by the original's name."""

    def _write(self, node: Node) -> bool:
        kind = self.kinds.get(node)
        if kind is None:
            return self._viewed(node)
        self._convert(node, kind)
        return True

    def _convert(self, node: Node, kind: Kind) -> None:
        write = {
            Kind.DEPTHWISE: self._depthwise,
            Kind.POINTWISE: self._product,
            Kind.PATCHES: self._product,
            Kind.ELEMENTWISE: self._elementwise,
            Kind.SINK: self._sink,
        }[kind]
        write(node)
        name = node.outputs[0]
        if kind is not Kind.SINK and self._wanted_first(name):
            perm = to_first(self.graph.tensor(name).rank)
            self.made.append(Node(newest("Transpose", perm=perm), (self.last[name],), (name,), f"{node.name}.first"))

    def _wanted_first(self, name: str) -> bool:
        """Whether a consumer reads `name` in the model's layout."""
        graph, match = self.graph, self.match
        outside = [r for r in graph.consumers(name) if r not in self.kinds]
        return name in match.wanted or not all(transposes_back(graph, match, r, name) for r in outside)

    def _viewed(self, node: Node) -> bool:
        """Write a node that transposes a rewritten value as a view of it; returns False for other nodes."""
        source = node.inputs[0] if node.inputs else ""
        if source not in self.last or not transposes_back(self.graph, self.match, node, source):
            return False
        result = node.outputs[0]
        if node.op.op_type == "Transpose":
            self.made.append(self._reshape(self.last[source], result, self.graph.tensor(result).shape))
        else:  # the transposes after a Reshape are views of the same value
            self.last[result] = self.last[source]
        return True

    def _depthwise(self, node: Node) -> None:
        op: Any = node.op
        w = self.graph.tensor(node.inputs[1])
        filters = self._weights(node.inputs[1], (*range(1, w.rank), 0), (*w.shape[2:], w.shape[0]))
        made = DepthwiseLast(pads=op.pads, strides=op.strides, dilations=op.dilations, auto_pad=op.auto_pad)
        inputs = (self._in_last(node.inputs[0]), filters, *node.inputs[2:])
        self.made.append(Node(made, inputs, (self._named(node.outputs[0]),), node.name))

    def _product(self, node: Node) -> None:
        """Write a convolution of disjoint windows as patches [N, O1 .. On, K1 * .. * Kn * C] times weights."""
        w, y = self.graph.tensor(node.inputs[1]), self.graph.tensor(node.outputs[0])
        depth = math.prod(w.shape[1:])
        matrix = self._weights(node.inputs[1], (*range(2, w.rank), 1, 0), (depth, w.shape[0]))
        patches = self._patches(node, w, y) if math.prod(w.shape[2:]) > 1 else self._in_last(node.inputs[0])
        result = self._named(node.outputs[0])
        if len(node.inputs) < 3 or not node.inputs[2]:
            self.made.append(Node(newest("MatMul"), (patches, matrix), (result,), node.name))
            return
        product = self._value(f"{result}.product", y.dtype, self.graph.tensor(result).shape)
        self.made.append(Node(newest("MatMul"), (patches, matrix), (product,), node.name))
        self.made.append(Node(newest("Add"), (product, node.inputs[2]), (result,), f"{node.name}.bias"))

    def _patches(self, node: Node, w: TensorType, y: TensorType) -> str:
        """Return the patches of a convolution's input, [N, O1 .. On, K1 * .. * Kn * C], produced by one transpose."""
        name, graph = node.inputs[0], self.graph
        x, spatial = graph.tensor(name), y.rank - 2
        cut = [d for pair in zip(y.shape[2:], w.shape[2:], strict=True) for d in pair]
        if name in self.last or transposed_from(graph, self.match, name) is not None:
            source, shape = self._in_last(name), (x.shape[0], *cut, x.shape[1])
            outs, inside, channels = range(1, 2 * spatial, 2), range(2, 2 * spatial + 1, 2), 2 * spatial + 1
        else:
            source, shape = name, (x.shape[0], x.shape[1], *cut)
            outs, inside, channels = range(2, 2 * spatial + 1, 2), range(3, 2 * spatial + 2, 2), 1
        apart = self._value(f"{name}.cut", x.dtype, shape)
        self.made.append(self._reshape(source, apart, shape))
        perm = (0, *outs, *inside, channels)
        moved = self._value(f"{name}.moved", x.dtype, tuple(shape[p] for p in perm))
        self.made.append(Node(newest("Transpose", perm=perm), (apart,), (moved,), f"{node.name}.patches"))
        result = self._value(f"{name}.patches", x.dtype, (x.shape[0], *y.shape[2:], math.prod(w.shape[1:])))
        self.made.append(self._reshape(moved, result, graph.tensor(result).shape))
        return result

    def _elementwise(self, node: Node) -> None:
        inside = set(layout_inputs(self.graph, node, Kind.ELEMENTWISE))
        rank = self.graph.tensor(node.outputs[0]).rank
        inputs = tuple(n if not n else self._in_last(n) if n in inside else self._across(n, rank) for n in node.inputs)
        self.made.append(Node(node.op, inputs, (self._named(node.outputs[0]),), node.name))

    def _sink(self, node: Node) -> None:
        """Write a reduction of all spatial dimensions."""
        x, y = self.graph.tensor(node.inputs[0]), self.graph.tensor(node.outputs[0])
        axes = self.graph.add_constant(int_array(range(1, x.rank - 1)), DType.INT64, f"{node.outputs[0]}.axes")
        ones = (1,) * (x.rank - 2)
        reduce = newest(node.op.op_type, keepdims=1)
        reduced = self._value(f"{node.outputs[0]}.last", y.dtype, (x.shape[0], *ones, x.shape[1]))
        self.made.append(Node(reduce, (self._in_last(node.inputs[0]), axes), (reduced,), node.name))
        self.made.append(self._reshape(reduced, node.outputs[0], y.shape))

    def _across(self, name: str, rank: int) -> str:
        """Return an operand without spatial extent in channels-last layout."""
        kind = self.graph.tensor(name)
        shape = across(kind, rank)
        if kind.size == 1 or shape is None:
            return name
        known = self._static(name, lambda value: value.reshape(shape), shape, f"{name}.last")
        result = known or self._value(f"{name}.last", kind.dtype, shape)
        self.made.append(self._reshape(name, result, shape))
        return result

    def _in_last(self, name: str) -> str:
        """Return `name` in channels-last layout."""
        found = self.last.get(name)
        if found is not None:
            return found
        kind = self.graph.tensor(name)
        shape = tuple(kind.shape[p] for p in to_last(kind.rank))
        source = transposed_from(self.graph, self.match, name)
        if source in self.last:  # rewritten channels-last, so it may not exist in the model's layout
            source = None
        if source is not None and self.graph.tensor(source).shape == shape:
            self.last[name] = source
            return source
        perm = to_last(kind.rank)
        known = self._static(name, lambda value: value.transpose(perm), shape, f"{name}.last")
        result = known or self._value(f"{name}.last", kind.dtype, shape)
        if source is not None:
            self.made.append(self._reshape(source, result, shape))
        else:
            self.made.append(Node(newest("Transpose", perm=perm), (name,), (result,), f"{name}.last"))
        self.last[name] = result
        return result

    def _weights(self, name: str, perm: Sequence[int], shape: Sequence[Any]) -> str:
        """Return constant weights, transposed and reshaped to `shape`; computed once."""
        kind = self.graph.tensor(name)
        order = tuple(perm)
        turned = self._static(name, lambda v: v.transpose(order), tuple(kind.shape[p] for p in order), f"{name}.turned")
        self.made.append(Node(newest("Transpose", perm=order), (name,), (turned,), turned))
        viewed = self._static(turned, lambda v: v.reshape(shape), tuple(shape), f"{name}.last")
        self.made.append(self._reshape(turned, viewed, shape))
        return viewed

    def _named(self, name: str) -> str:
        """Add the channels-last version of `name` and return its name."""
        kind = self.graph.tensor(name)
        shape = tuple(kind.shape[p] for p in to_last(kind.rank))
        self.last[name] = self._value(f"{name}.last", kind.dtype, shape)
        return self.last[name]
