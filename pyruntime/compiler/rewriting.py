"""Rewrite a graph by the passes whose results are operators of ONNX: what any runtime can run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pyruntime.compiler.size_nodes import SizeNodes
from pyruntime.compiler.typing import Guards, Typing
from pyruntime.errors import InvalidArgument, InvalidGraph
from pyruntime.ir import (
    Array,
    Constant,
    DeclaredTensor,
    Graph,
    Node,
    Sizes,
    TensorType,
    TypedGraph,
    ValueInfo,
    ValueType,
    are_open,
    hint,
    is_dim,
)
from pyruntime.ops.registry import newest
from pyruntime.passes.pipeline import PORTABLE, PassRun, optimize
from pyruntime.target import Target

__all__ = ["rewrite"]

_LARGEST = 1 << 20
"""What a dimension that stays symbolic is taken to be at most where that matters to a pass."""

_SEEN = 67
"""A dimension that stays symbolic is taken to be seen as this, or a little more: no size that means something."""

_FREE_FOLD = 1 << 12
"""Bytes of a folded value up to which it may be larger than what it is computed from."""

_QUANTIZATION = ("QuantizeLinear", "DequantizeLinear")


def rewrite(
    graph: Graph,
    dims: Mapping[str, int],
    disabled: Iterable[str] = (),
    observe: Callable[[PassRun, TypedGraph], object] | None = None,
) -> Graph:
    """Return the graph after constant folding and the passes of `passes.pipeline.PORTABLE`.

    Values that follow from weights and sizes become constants where that is not larger than what they are computed
    from; quantized weights stay quantized. Nodes after one whose output shape only a run knows stay as they are.

    Args:
        dims: sizes of symbolic dimensions; the others stay symbolic.
        disabled: names of passes to leave out.
        observe: called after each pass, with the graph as it is then.

    Raises:
        InvalidArgument: an input has no declared shape, or the graph for one size of a symbolic dimension is not that
            for others.
    """
    sizes = Sizes()
    axes: list[tuple[str, int]] = []
    types = dict(_input_types(graph, dims, sizes, axes))
    constants = {n: c for n, c in graph.constants.items() if n not in types}
    known = {n: TensorType(c.type.dtype, c.type.shape, c.numpy, n) for n, c in constants.items()}
    typing = Typing({**types, **known}, set(constants), Guards({}), sizes if sizes.names else None, decompose=False)
    try:
        rest, boundary = typing.run(graph.nodes)
    except InvalidGraph as error:
        if not sizes.names:
            raise
        raise InvalidArgument(f"{error}; sizes that were not given: {', '.join(sizes.names)}") from error
    if boundary is not None and boundary.node is not None:
        rest = [boundary.node, *rest]
    made = {name for node in typing.done for name in node.outputs if name}
    wanted = [n for n in _read(graph.outputs, rest) if n in made]
    typed = typing.graph(list(types), wanted, constants)
    typed.static = set(typed.static)
    sizes.by = "a pass"
    optimize(typed, Target(disabled=frozenset(disabled)), PORTABLE, observe)
    inputs = [replace(v, type=_declared(types[v.name], v)) for v in graph.inputs]
    outputs = [replace(v, type=_declared(typed.types.get(v.name), v)) for v in graph.outputs]
    nodes, stored = _Folded(typed, rest, axes).result()
    _check_sizes(sizes)
    for value in graph.overridable:
        stored[value.name] = graph.constants[value.name]
    return Graph(graph.name, inputs, outputs, [*nodes, *rest], stored, graph.overridable)


def _read(outputs: Sequence[ValueInfo], rest: Sequence[Node]) -> dict[str, None]:
    """What the graph gives and what untyped nodes read."""
    return dict.fromkeys([*(v.name for v in outputs), *(n for node in rest for n in node.inputs if n)])


def _input_types(
    graph: Graph, dims: Mapping[str, int], sizes: Sizes, axes: list[tuple[str, int]]
) -> Iterator[tuple[str, ValueType]]:
    """Types of the inputs, and of constants that a run may override.

    Symbols without a size become Dims of `sizes`; `axes` gets an input that has each, and where.
    """
    symbols: dict[str, Any] = {}
    for value in graph.inputs:
        kind = value.type
        if not isinstance(kind, DeclaredTensor) or kind.shape is None:
            raise InvalidArgument(f"input '{value.name}' has no declared shape; declare one in the model")
        shape = []
        for axis, dim in enumerate(kind.shape):
            name = f"{value.name}.{axis}" if dim is None else str(dim)
            if not isinstance(dim, int) and name not in symbols:
                if name in dims:
                    symbols[name] = dims[name]
                else:
                    symbols[name] = sizes.add(name, _SEEN + 2 * len(axes), 1, _LARGEST)
                    axes.append((value.name, axis))
            shape.append(dim if isinstance(dim, int) else symbols[name])
        yield value.name, TensorType(kind.dtype, tuple(shape), None, value.name)
    for value in graph.overridable:
        yield value.name, replace(graph.constants[value.name].type, name=value.name)
    unknown = sorted(dims.keys() - symbols.keys())
    if unknown:
        have = ", ".join(symbols) or "none"
        raise InvalidArgument(f"'{unknown[0]}' is no symbolic dimension of the model; it has {have}")


def _check_sizes(sizes: Sizes) -> None:
    """Raise InvalidArgument where the graph holds for some sizes of the dynamic dimensions only."""
    for guard in sizes.guards.values():
        names = sizes.symbols(guard.terms)
        raise InvalidArgument(
            f"what the graph has to do at {guard.by} depends on {' and '.join(names)}; give the size: "
            + " ".join(f"--dim {name}=SIZE" for name in names)
        )


def _declared(kind: ValueType | None, value: ValueInfo) -> Any:
    """The declared type with the sizes that are known."""
    declared = value.type
    if not isinstance(kind, TensorType) or not isinstance(declared, DeclaredTensor | None):
        return declared
    before: Sequence[Any] = declared.shape or () if declared else ()
    names = before if len(before) == kind.rank else (None,) * kind.rank
    shape = tuple(d if is_dim(n) else int(n) for n, d in zip(kind.shape, names, strict=True))
    return DeclaredTensor(kind.dtype, shape)


class _Folded:
    """Nodes and constants of a typed graph whose known values are constants.

    Args:
        rest: nodes after the graph's, which read its values.
        axes: for each size of the graph's dynamic dimensions, an input that has it and where.
    """

    def __init__(self, graph: TypedGraph, rest: Sequence[Node], axes: Sequence[tuple[str, int]]) -> None:
        self._graph, self._rest = graph, rest
        self._written = SizeNodes(graph, axes)
        self._constants: dict[str, Constant] = {}

    def result(self) -> tuple[list[Node], dict[str, Constant]]:
        """The nodes that stay, and the constants that they and `rest` read."""
        for node in self._graph.nodes:
            self._constants.update(self._values(node))
        nodes: list[Node] = []
        for node in self._live():
            nodes += self._readable(node)
        read = {n for node in (*nodes, *self._rest) for n in node.inputs} | set(self._graph.outputs)
        found = {**self._graph.constants, **self._constants, **self._written.constants}
        return nodes, {name: constant for name, constant in found.items() if name in read}

    def _values(self, node: Node) -> dict[str, Constant]:
        """The outputs of a node as constants, where it is to be folded; else none."""
        graph, outputs = self._graph, [n for n in node.outputs if n]
        if node.op.op_type in _QUANTIZATION or not all(n in graph.static and n not in graph.outputs for n in outputs):
            return {}
        read = [n for n in node.inputs if n in graph.static]
        if not all(n in self._constants or n in graph.constants or graph.producer(n) is None for n in read):
            return {}
        if sum(_nbytes(graph.types[n]) for n in outputs) > max(_FREE_FOLD, sum(_nbytes(graph.types[n]) for n in read)):
            return {}
        arrays = {n: graph.static_value(n) for n in outputs if isinstance(graph.types[n], TensorType)}
        if len(arrays) < len(outputs) or any(a is None or _is_symbolic(a) for a in arrays.values()):
            return {}
        return {n: Constant.from_array(a, graph.tensor(n).dtype) for n, a in arrays.items() if a is not None}

    def _live(self) -> list[Node]:
        """The nodes that outputs follow from, without those that are folded."""
        needed, live = set(self._graph.outputs), list[Node]()
        for node in reversed(self._graph.nodes):
            if any(n in needed and n not in self._constants for n in node.outputs if n):
                live.append(node)
                needed.update(node.inputs)
        return live[::-1]

    def _readable(self, node: Node) -> list[Node]:
        """A node, after those that compute what a pass gave it to read and no node makes."""
        graph, before, inputs, op = self._graph, list[Node](), list(node.inputs), node.op
        is_reshape = (op.domain, op.op_type) == ("", "Reshape")
        for i, name in enumerate(inputs):
            if name not in graph.static or name in graph.constants or graph.producer(name) is not None:
                continue
            array, dtype = graph.static_value(name), graph.tensor(name).dtype
            assert array is not None
            if is_reshape and sum(map(is_dim, array)) == 1 and all(is_dim(n) or n > 0 for n in array):
                array = np.array([-1 if is_dim(n) else n for n in array], np.int64)
                name = inputs[i] = f"{name}.inferred"
            if _is_symbolic(array):
                before += self._written.nodes(name, array, dtype)
            else:
                self._constants[name] = Constant.from_array(array, dtype)
        shape = {**graph.constants, **self._constants}.get(inputs[1]) if is_reshape else None
        if shape is not None and shape.numpy().all():
            op = newest("Reshape")  # without allowzero, which early opsets lack
        return [*before, Node(op, tuple(inputs), node.outputs, node.name)]


def _is_symbolic(array: Array) -> bool:
    """Whether there are dynamic dimensions among the elements."""
    return array.dtype == object and are_open(array)


def _nbytes(kind: ValueType) -> int:
    """Bytes of a tensor for the sizes seen; 0 for other values."""
    return hint(kind.size) * kind.dtype.bits // 8 if isinstance(kind, TensorType) else 0
