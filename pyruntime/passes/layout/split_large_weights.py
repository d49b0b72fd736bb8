"""Split weights larger than a device's binding limit into parts that are bound separately.

    Gather(w, i)                       the rows of each part, one part at a time
    MatMul(a, w), MatMulInteger        the sum of products of columns of a and rows of w
    MatMul(w, x), Gemm(a, wᵀ), Conv    the results for rows of w, concatenated; also for packed weights
    MatMul(a, w) of stacked matrices   the results of stacks, concatenated

A part is a byte range of the constant w: nothing is copied. If ConstantOfShape produces w, another one produces each
part. A Transpose of w before a product, and a Cast to a wider float, are applied to each part. Weights with other
consumers are not split: those run on the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from pyruntime.ir import Constant, DType, Node, TensorType, TypedGraph, int_array
from pyruntime.kernels import Target
from pyruntime.ops.creation.constant_of_shape import ConstantOfShape
from pyruntime.ops.fused.rows_of_part import PartIndex, PartRows
from pyruntime.ops.registry import newest
from pyruntime.passes.graph_pass import Fact, node_pass
from pyruntime.passes.match import Matcher
from pyruntime.passes.writer import reshaped

__all__ = ["run"]

ROWS = 64
"""Parts have a multiple of this many rows if possible, so that kernels read whole vectors and tiles."""


@node_pass(breaks=(Fact.NO_DEAD_NODES,), always=True)
def run(match: Matcher, target: Target, node: Node) -> list[Node] | None:
    """Replace a node that reads a large weight by nodes that read its parts."""
    graph = match.graph
    split = _SPLITS.get((node.op.domain, node.op.op_type))
    if split is None or node.outputs[0] in graph.static:
        return None
    limit = min(target.limits.binding_bytes, target.limits.buffer_bytes)
    return split(_Splitter(graph, node, limit))


_Inputs: TypeAlias = Callable[[int, int, list[Node]], Sequence[str]]
"""Returns the inputs of a node for the rows `first` to `end` of a weight; appends the nodes that produce them."""


@dataclass(frozen=True, slots=True)
class _Weight:
    """A constant, or the result of ConstantOfShape, to split.

    Attributes:
        parts: (first, end) of the rows of each part.
        cast: type to which its elements are cast.
        turned: a Transpose of the matrix follows.
    """

    name: str
    parts: tuple[tuple[int, int], ...]
    cast: DType
    turned: bool


@dataclass(frozen=True, slots=True)
class _Splitter:
    """Builder of the nodes that replace `node`, for bindings of at most `limit` bytes."""

    graph: TypedGraph
    node: Node
    limit: int

    @property
    def op(self) -> Any:
        """Operator of the node."""
        return self.node.op

    def weight(self, name: str) -> _Weight | None:
        """Return the weight from which `name` is computed, if it is too large for a binding; else None."""
        graph = self.graph
        if name not in graph.static or graph.tensor(name).nbytes <= self.limit:
            return None
        cast, turned = graph.tensor(name).dtype, False
        while (made := graph.producer(name)) is not None:
            op: Any = made.op
            if isinstance(op, ConstantOfShape):
                break
            if op.domain or op.op_type not in ("Cast", "Transpose", "Identity"):
                return None
            if op.op_type == "Transpose":
                if graph.tensor(name).rank != 2 or tuple(op.perm or (1, 0)) != (1, 0):
                    return None
                turned = not turned
            if op.op_type == "Cast" and not _widens(graph.tensor(made.inputs[0]).dtype, graph.tensor(name).dtype):
                return None
            name = made.inputs[0]
        if made is None and name not in graph.constants:
            return None
        kind = graph.tensor(name)
        parts = _parts(kind, max(cast.bits, kind.dtype.bits), self.limit)
        return _Weight(name, parts, cast, turned) if parts else None

    def part(self, weight: _Weight, first: int, end: int, nodes: list[Node]) -> str:
        """Return rows of a weight, cast but not transposed; appends the nodes that produce them."""
        name = self.rows(weight.name, self.graph.tensor(weight.name).shape[0], first, end, nodes)
        kind = self.graph.tensor(name)
        if kind.dtype is weight.cast:
            return name

        def value(kind: TensorType = kind) -> Any:
            return kind.value().astype(weight.cast.numpy)

        result = self.graph.add_value(f"{name}.cast", TensorType(weight.cast, kind.shape), value)
        nodes.append(Node(newest("Cast", to=weight.cast.code), (name,), (result,), self.node.name))
        return result

    def rows(self, name: str, rows: int, first: int, end: int, nodes: list[Node]) -> str:
        """Return rows `first` to `end` of a weight with `rows` rows; appends the nodes that produce them."""
        graph = self.graph
        if name not in graph.constants:
            return self.filled(name, (end - first, *graph.tensor(name).shape[1:]), nodes)
        constant = graph.constants[name]
        kind = constant.type
        row = kind.size // rows
        shape = (end - first, *kind.shape[1:]) if kind.shape[0] == rows else ((end - first) * row,)
        offset = constant.offset + first * row * kind.dtype.bits // 8
        part = Constant(kind.with_shape(*shape), constant.source, offset)
        return graph.add_stored(part, f"{name}.rows{first}")

    def filled(self, name: str, shape: tuple[int, ...], nodes: list[Node]) -> str:
        """Return the result of ConstantOfShape in another shape; appends the node that produces it."""
        graph, made = self.graph, self.graph.producer(name)
        assert made is not None
        op: Any = made.op
        kind, dims = graph.tensor(name).with_shape(*shape), int_array(shape)
        result = graph.add_value(f"{name}.rows", kind, lambda: op.evaluate(dims)[0])
        nodes.append(Node(op, (graph.add_constant(dims, DType.INT64, f"{result}.shape"),), (result,), made.name))
        return result

    def sliced(self, name: str, axis: int, first: int, end: int, nodes: list[Node]) -> str:
        """Return a range of `name` along an axis; appends the Slice."""
        graph, kind = self.graph, self.graph.tensor(name)
        shape = list(kind.shape)
        shape[axis] = end - first
        value = None
        if name in graph.static:
            at = (slice(None),) * axis + (slice(first, end),)
            value = lambda: kind.value()[at]  # noqa: E731
        result = graph.add_value(f"{name}.part{first}", kind.with_shape(*shape), value)
        ends = [graph.add_constant(int_array([n]), DType.INT64, f"{result}.{n}") for n in (first, end, axis)]
        nodes.append(Node(newest("Slice"), (name, *ends), (result,), self.node.name))
        return result

    def value(self, axis: int | None = None, size: int = 0) -> str:
        """Add a value of the type of the node's result, optionally with another size along an axis."""
        (name,), y = self.node.outputs, self.graph.tensor(self.node.outputs[0])
        shape = list(y.shape)
        if axis is not None:
            shape[axis] = size
        return self.graph.add_value(f"{name}.part", y.with_shape(*shape))

    def concatenated(self, results: Sequence[str], axis: int, nodes: list[Node]) -> list[Node]:
        """Return `nodes`, followed by the Concat of `results` to the node's output."""
        return [*nodes, Node(newest("Concat", axis=axis), tuple(results), self.node.outputs, self.node.name)]

    def along(self, axis: int, weight: _Weight, inputs: _Inputs, op: Callable[[int], Any] | None = None) -> list[Node]:
        """Return the node for each part of a weight, and the Concat of the results along `axis`.

        Args:
            inputs: inputs for the part with the given rows.
            op: operator for a part of a given number of rows; None: that of the node.
        """
        nodes: list[Node] = []
        results = [
            self.made(
                self.op if op is None else op(end - first),
                inputs(first, end, nodes),
                self.value(axis, end - first),
                nodes,
            )
            for first, end in weight.parts
        ]
        return self.concatenated(results, axis, nodes)

    def added(self, results: Sequence[str], nodes: list[Node]) -> list[Node]:
        """Return `nodes`, followed by the sum of `results` to the node's output."""
        total = results[0]
        for number, result in enumerate(results[1:], 2):
            outputs = self.node.outputs if number == len(results) else (self.value(),)
            nodes.append(Node(newest("Add"), (total, result), outputs, self.node.name))
            total = outputs[0]
        return nodes

    def made(self, op: Any, inputs: Sequence[str], result: str, nodes: list[Node]) -> str:
        """Append a node to `nodes` and return its result."""
        nodes.append(Node(op, tuple(inputs), (result,), self.node.name))
        return result


def _widens(source: DType, result: DType) -> bool:
    """Whether a Cast between floats is lossless."""
    return source.is_float and result.is_float and source.bits < result.bits


def _parts(kind: TensorType, bits: int, limit: int) -> tuple[tuple[int, int], ...]:
    """Return (first, end) of parts of a tensor's rows with elements of `bits` bits; empty if a row is too large."""
    if not kind.rank or not kind.size or not kind.dtype.compute:
        return ()
    rows, row = kind.shape[0], kind.size // kind.shape[0]
    if row * kind.dtype.bits % 8:
        return ()
    most = limit * 8 // (row * bits)
    most -= most % ROWS if most >= ROWS else 0
    return tuple((first, min(first + most, rows)) for first in range(0, rows, most)) if most else ()


def _gather(s: _Splitter) -> list[Node] | None:
    weight = s.weight(s.node.inputs[0])
    if weight is None or weight.turned or s.op.axis % s.graph.tensor(weight.name).rank:
        return None
    nodes: list[Node] = []
    indices, y = s.graph.tensor(s.node.inputs[1]), s.graph.tensor(s.node.outputs[0])
    table = s.graph.tensor(weight.name)
    made = ""
    for first, end in weight.parts:
        at = s.graph.add_value(f"{s.node.inputs[1]}.local", TensorType(DType.INT32, indices.shape))
        s.made(PartIndex(rows=table.shape[0], start=first, length=end - first), s.node.inputs[1:2], at, nodes)
        last = end == table.shape[0] and weight.cast is table.dtype
        result = s.node.outputs[0] if last else s.graph.add_value(f"{at}.rows", TensorType(table.dtype, y.shape))
        inputs = (s.rows(weight.name, table.shape[0], first, end, nodes), at, *([made] if made else []))
        made = s.made(PartRows(), inputs, result, nodes)
    if made != s.node.outputs[0]:
        s.made(newest("Cast", to=weight.cast.code), (made,), s.node.outputs[0], nodes)
    return nodes


def _gather_packed(s: _Splitter) -> list[Node] | None:
    weight = s.weight(s.node.inputs[0])
    x = s.graph.tensor(s.node.inputs[0])
    others = [n for n in s.node.inputs[2:] if n]
    if weight is None or weight.turned or weight.cast is not x.dtype or s.op.gather_axis % x.rank:
        return None
    if s.op.quantize_axis % x.rank == 0 or not all(n in s.graph.constants for n in others):
        return None
    nodes: list[Node] = []
    results: list[str] = []
    indices = s.graph.tensor(s.node.inputs[1])
    for first, end in weight.parts:
        at = s.graph.add_value(f"{s.node.inputs[1]}.local", TensorType(DType.INT32, indices.shape))
        s.made(PartIndex(rows=x.shape[0], start=first, length=end - first), s.node.inputs[1:2], at, nodes)
        x_part, *rest = (s.rows(n, x.shape[0], first, end, nodes) for n in (weight.name, *others))
        results.append(s.made(s.op, (x_part, at, *rest), s.value(), nodes))
    return s.added(results, nodes)


def _matmul(s: _Splitter) -> list[Node] | None:
    a, b = s.node.inputs[:2]
    left = s.weight(a)
    if left is not None:
        return _rows_of_left(s, left, b)
    weight = s.weight(b)
    if weight is None:
        return None
    rank = s.graph.tensor(b).rank
    if rank == 2:
        return _columns(s, weight) if weight.turned else _shares_of_k(s, weight, s.graph.tensor(a).rank - 1)
    return _stacks(s, weight) if rank > 2 and s.op.op_type == "MatMul" else None


def _rows_of_left(s: _Splitter, weight: _Weight, b: str) -> list[Node] | None:
    if s.op.op_type != "MatMul" or weight.turned or s.graph.tensor(s.node.inputs[0]).rank != 2:
        return None
    axis = s.graph.tensor(s.node.outputs[0]).rank - min(2, s.graph.tensor(b).rank)
    return s.along(axis, weight, lambda first, end, nodes: (s.part(weight, first, end, nodes), b))


def _shares_of_k(s: _Splitter, weight: _Weight, axis: int) -> list[Node]:
    """Return the sum of products over parts of k, which is axis `axis` of a; the bias is added once."""
    nodes: list[Node] = []
    results: list[str] = []
    a, _, *more = s.node.inputs
    for first, end in weight.parts:
        left = s.sliced(a, axis, first, end, nodes)
        inputs = (left, s.part(weight, first, end, nodes), *(more if not results or s.op.op_type != "Gemm" else []))
        results.append(s.made(s.op, inputs, s.value(), nodes))
    return s.added(results, nodes)


def _columns(s: _Splitter, weight: _Weight) -> list[Node]:
    """Return the concatenation of the products with rows of w [n, k]."""
    graph, (a, *_), (result,) = s.graph, s.node.inputs, s.node.outputs
    kind, y = graph.tensor(a), graph.tensor(result)
    nodes: list[Node] = []
    flat = a
    if kind.rank != 2:
        shape = (math.prod(kind.shape[:-1]), kind.shape[-1])
        flat = graph.add_value(f"{a}.matrix", kind.with_shape(*shape))
        nodes.append(reshaped(graph, a, flat, shape, s.node.name))
    results: list[str] = []
    for first, end in weight.parts:
        part = graph.add_value(f"{result}.part", y.with_shape(graph.tensor(flat).shape[0], end - first))
        results.append(s.made(newest("Gemm", transB=1), (flat, s.part(weight, first, end, nodes)), part, nodes))
    if kind.rank == 2:
        return s.concatenated(results, 1, nodes)
    joined = graph.add_value(f"{result}.matrix", y.with_shape(graph.tensor(flat).shape[0], y.shape[-1]))
    s.made(newest("Concat", axis=1), results, joined, nodes)
    return [*nodes, reshaped(graph, joined, result, y.shape, s.node.name)]


def _stacks(s: _Splitter, weight: _Weight) -> list[Node] | None:
    a, b = (s.graph.tensor(n) for n in s.node.inputs)
    if a.rank > b.rank or weight.turned:
        return None
    apart = a.rank == b.rank and a.shape[0] == b.shape[0]

    def inputs(first: int, end: int, nodes: list[Node]) -> Sequence[str]:
        left = s.sliced(s.node.inputs[0], 0, first, end, nodes) if apart else s.node.inputs[0]
        return left, s.part(weight, first, end, nodes)

    return s.along(0, weight, inputs)


def _gemm(s: _Splitter) -> list[Node] | None:
    weight = s.weight(s.node.inputs[1])
    if weight is None:
        return None
    if bool(s.op.transB) == weight.turned:
        return _shares_of_k(s, weight, 0 if s.op.transA else 1)
    n = s.graph.tensor(s.node.outputs[0]).shape[1]

    def inputs(first: int, end: int, nodes: list[Node]) -> Sequence[str]:
        added = [_shared(s, c, n, first, end, nodes) for c in s.node.inputs[2:]]
        return s.node.inputs[0], s.part(weight, first, end, nodes), *added

    return s.along(1, weight, inputs, lambda rows: replace(s.op, transB=1))


def _shared(s: _Splitter, name: str, n: int, first: int, end: int, nodes: list[Node]) -> str:
    """Return the columns `first` to `end` of an operand that broadcasts to n columns."""
    if not name:
        return ""
    kind = s.graph.tensor(name)
    return s.sliced(name, kind.rank - 1, first, end, nodes) if kind.rank and kind.shape[-1] == n else name


def _conv(s: _Splitter) -> list[Node] | None:
    weight = s.weight(s.node.inputs[1])
    if weight is None or s.op.group != 1:
        return None

    def inputs(first: int, end: int, nodes: list[Node]) -> Sequence[str]:
        bias = [s.sliced(b, 0, first, end, nodes) if b else "" for b in s.node.inputs[2:]]
        return s.node.inputs[0], s.part(weight, first, end, nodes), *bias

    return s.along(1, weight, inputs)


def _matmul_packed(s: _Splitter) -> list[Node] | None:
    a, b, scales, zeros, groups, bias = (*s.node.inputs, "", "", "")[:6]
    weight = s.weight(b)
    rows = [n for n in (scales, zeros) if n]
    if weight is None or weight.turned or not all(n in s.graph.constants for n in rows):
        return None
    if s.graph.tensor(b).shape[0] != s.op.N or any(s.graph.tensor(n).size * 8 % s.op.N for n in rows):
        return None
    axis = s.graph.tensor(s.node.outputs[0]).rank - 1

    def inputs(first: int, end: int, nodes: list[Node]) -> Sequence[str]:
        sides = [s.rows(n, s.op.N, first, end, nodes) if n else "" for n in (b, scales, zeros)]
        return a, *sides, groups, s.sliced(bias, 0, first, end, nodes) if bias else ""

    return s.along(axis, weight, inputs, lambda rows: replace(s.op, N=rows))


_SPLITS: dict[tuple[str, str], Callable[[_Splitter], list[Node] | None]] = {
    ("", "Gather"): _gather,
    ("", "MatMul"): _matmul,
    ("", "MatMulInteger"): _matmul,
    ("", "Gemm"): _gemm,
    ("", "Conv"): _conv,
    ("com.microsoft", "MatMulNBits"): _matmul_packed,
    ("com.microsoft", "GatherBlockQuantized"): _gather_packed,
}
