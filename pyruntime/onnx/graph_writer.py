"""Writer of graphs as ONNX files.

Source: onnx.proto (ModelProto and its messages); docs/ExternalData.md of ONNX.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, BinaryIO

from pyruntime.errors import InvalidArgument
from pyruntime.ir import Constant, DeclaredTensor, DeclaredType, DType, Graph, HostKind, Node, ValueInfo
from pyruntime.onnx.importer.attributes import KINDS, signature
from pyruntime.onnx.importer.model import Metadata
from pyruntime.onnx.records import AttributeType
from pyruntime.onnx.writer import attribute_of, field, joined, number, text
from pyruntime.ops.base import Op, registered
from pyruntime.ops.control.body import BodyOp

__all__ = ["FUSED", "fused_operators", "opset_for", "write_model"]

FUSED = "pyruntime"
"""Domain of operators that only passes create; no other runtime has them."""

_IR_VERSION = 10
_LARGEST_FILE = (1 << 31) - (1 << 24)
"""Bytes of weights above which they are stored in a separate file: protobuf is limited to 2 GiB."""
_INLINE = 1024
"""Bytes up to which a weight is stored in the model even then."""
_ALIGNMENT = 4096
"""Alignment in bytes of a weight in the separate file, for memory mapping."""

_FIRST = {"LayerNormalization": 17}
"""First opset of operators that onnxruntime, and so pyruntime, accepts in earlier opsets too."""

_WRAPPED = {"seq": 4, "optional": 9}
"""Field numbers in TypeProto of types with one element type."""


def write_model(
    path: str | os.PathLike[str], graph: Graph, opsets: Mapping[str, int], metadata: Metadata | None = None
) -> None:
    """Write a graph as an ONNX model. More than 2 GiB of weights are stored in `<name>.data` next to it.

    Args:
        opsets: version of each domain; the empty domain is ai.onnx, whose version is raised where an operator needs it.

    Raises:
        InvalidArgument: operators that ONNX does not have, operators without a common opset, or a failed write.
    """
    needed = {op.domain for op in _operators(graph)}
    versions = {"": opset_for(graph, opsets.get("", 1)), **{d: v for d, v in opsets.items() if d in needed and d}}
    file = Path(path)
    data = file.with_name(f"{file.name}.data")
    try:
        with ExitStack() as stack:
            weights: BinaryIO | None = None
            if sum(c.nbytes for c in graph.constants.values()) > _LARGEST_FILE:
                weights = stack.enter_context(open(f"{data}.part", "wb"))
            content = _Writer(weights, data.name).model(graph, versions, metadata or Metadata())
        Path(f"{file}.part").write_bytes(content)
        # The weights may be read from the files that these replace.
        if weights is not None:
            os.replace(f"{data}.part", data)
        os.replace(f"{file}.part", file)
    except OSError as error:
        raise InvalidArgument(f"the model could not be written to '{path}': {error}") from None


def fused_operators(graph: Graph) -> list[Node]:
    """Return the nodes, including those in bodies, with operators that only pyruntime has."""
    return [node for node in _nodes(graph) if node.op.domain == FUSED]


def opset_for(graph: Graph, opset: int) -> int:
    """Return the smallest opset of ai.onnx, at least `opset`, that defines all nodes of a graph as they are.

    Raises:
        InvalidArgument: there is none.
    """
    fused = fused_operators(graph)
    if fused:
        names = ", ".join(dict.fromkeys(node.label for node in fused[:5]))
        raise InvalidArgument(
            f"{len(fused)} nodes have operators that ONNX does not have: {names}{', ...' * (len(fused) > 5)}; "
            "leave out the passes that make them, or compile the model to a plan instead"
        )
    ranges = {(op.op_type, _versions(op)) for op in _operators(graph) if not op.domain}
    least = max([opset, *(versions.start for _, versions in ranges)])
    late = sorted(name for name, versions in ranges if versions.start == least)
    early = sorted(f"{name} (at most {versions.stop - 1})" for name, versions in ranges if versions.stop <= least)
    if early:
        raise InvalidArgument(
            f"no opset has all operators of the graph: it would be {least} for {', '.join(late)}, but the model has "
            f"{', '.join(early)}; leave out the pass that writes the former, or convert the model to a newer opset"
        )
    return least


def _versions(op: Op) -> range:
    """Return the opsets of ONNX that define an operator as it is."""
    start, stop = type(op).compatible.start, type(op).compatible.stop
    added = {name for name, _, _ in _attributes(op)}
    for older in registered[op.domain, op.op_type]:
        if older.compatible.stop == stop and added <= signature(older).annotations.keys():
            start = min(start, older.compatible.start)
    return range(max(start, _FIRST.get(op.op_type, 1)), stop)


def _nodes(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        if isinstance(node.op, BodyOp):
            for body in node.op.bodies():
                yield from _nodes(body)


def _operators(graph: Graph) -> Iterator[Op]:
    for node in _nodes(graph):
        assert isinstance(node.op, Op)
        yield node.op


class _Writer:
    """Serializes the messages of a model.

    Args:
        weights: the file for large weights, whose name in the model is `name`; None: weights are in the model.
    """

    def __init__(self, weights: BinaryIO | None, name: str) -> None:
        self._weights, self._name = weights, name
        self._names = Counter[str]()

    def model(self, graph: Graph, opsets: Mapping[str, int], metadata: Metadata) -> bytes:
        """Serialize a ModelProto."""
        imports = [(field(1, text(domain)) if domain else b"") + number(2, v) for domain, v in opsets.items()]
        entries = [field(1, text(key)) + field(2, text(value)) for key, value in metadata.custom.items()]
        about = field(2, text(metadata.producer_name)) + field(3, text(metadata.producer_version))
        about += field(4, text(metadata.domain)) + number(5, metadata.version) + field(6, text(metadata.description))
        content = self._graph(graph, metadata.graph_description)
        return number(1, _IR_VERSION) + about + joined(8, imports) + joined(14, entries) + field(7, content)

    def _graph(self, graph: Graph, description: str = "") -> bytes:
        made = joined(1, [self._node(node) for node in graph.nodes]) + field(2, text(graph.name or "graph"))
        made += joined(5, [self._tensor(name, c) for name, c in graph.constants.items()]) + field(10, text(description))
        made += joined(11, [_value(v) for v in (*graph.inputs, *graph.overridable)])
        return made + joined(12, [_value(v) for v in graph.outputs])

    def _node(self, node: Node) -> bytes:
        op: Any = node.op
        bodies: dict[str, str] = {}
        inputs: Sequence[str] = node.inputs
        if isinstance(op, BodyOp):
            names = op.captures()
            inputs, outer = node.inputs[: len(inputs) - len(names)], node.inputs[len(inputs) - len(names) :]
            bodies = dict(zip(names, outer, strict=True))
        attributes = [self._attribute(name, value, kinds, bodies) for name, value, kinds in _attributes(op)]
        made = joined(1, [text(name) for name in inputs]) + joined(2, [text(name) for name in node.outputs])
        made += field(3, text(self._unique(node.name))) + field(4, text(op.op_type))
        return made + joined(5, attributes) + field(7, text(op.domain))

    def _unique(self, name: str) -> str:
        """Return a unique node name: a pass may give several nodes the name of the one they replace."""
        self._names[name] += 1
        return name if not name or self._names[name] == 1 else f"{name}#{self._names[name]}"

    def _attribute(self, name: str, value: Any, kinds: Sequence[str], outer: Mapping[str, str]) -> bytes:
        kind = _kind(value, kinds)
        if kind is AttributeType.TENSOR:
            content = field(5, self._tensor("", value))
        elif kind is AttributeType.TENSORS:
            content = joined(10, [self._tensor("", one) for one in value])
        elif kind is AttributeType.GRAPH:
            content = field(6, self._graph(value.renamed(outer, "")))
        elif kind is AttributeType.GRAPHS:
            content = joined(11, [self._graph(one.renamed(outer, "")) for one in value])
        elif kind is AttributeType.TYPE_PROTO:
            content = field(14, _type(value))
        elif kind is AttributeType.TYPE_PROTOS:
            content = joined(15, [_type(one) for one in value])
        else:
            return attribute_of(name, kind, value)
        return field(1, text(name)) + content + number(20, kind.value)

    def _tensor(self, name: str, constant: Constant) -> bytes:
        """Serialize a TensorProto."""
        kind = constant.type
        made = b"".join(number(1, d) for d in kind.shape) + number(2, kind.dtype.code) + field(8, text(name))
        if kind.dtype is DType.STRING:
            return made + joined(6, [text(str(item)) for item in constant.numpy().reshape(-1)])
        if self._weights is None or constant.nbytes <= _INLINE or not name:
            return made + field(9, bytes(constant.raw()))
        self._weights.write(bytes(-self._weights.tell() % _ALIGNMENT))
        place = {"location": self._name, "offset": self._weights.tell(), "length": constant.nbytes}
        self._weights.write(constant.raw())
        entries = [field(1, text(key)) + field(2, text(str(value))) for key, value in place.items()]
        return made + joined(13, entries) + number(14, 1)


def _attributes(op: Op) -> Iterator[tuple[str, Any, Sequence[str]]]:
    """Yield name, value and annotated types of the attributes that differ from ONNX's default."""
    annotations = signature(type(op)).annotations
    for one in fields(op):
        value = getattr(op, one.name)
        is_default = one.default is not MISSING and type(value) is type(one.default) and value == one.default
        if one.name in annotations and value is not None and not is_default:
            yield one.name, value, annotations[one.name]


def _kind(value: Any, annotations: Sequence[str]) -> AttributeType:
    """Return the type of an attribute: the annotated one, or among several that of the value."""
    kinds = [KINDS[a] for a in annotations if a in KINDS]
    if len(kinds) == 1:
        return kinds[0]
    own = {
        int: AttributeType.INT,
        float: AttributeType.FLOAT,
        str: AttributeType.STRING,
        Constant: AttributeType.TENSOR,
    }
    return next(kind for kind in kinds if own.get(type(value)) is kind)


def _value(info: ValueInfo) -> bytes:
    """Serialize a ValueInfoProto."""
    return field(1, text(info.name)) + (b"" if info.type is None else field(2, _type(info.type)))


def _type(kind: DeclaredType) -> bytes:
    """Serialize a TypeProto."""
    if isinstance(kind, DeclaredTensor):
        return field(1, _tensor_type(kind))
    assert isinstance(kind, HostKind)
    element = b"" if kind.element is None else _type(kind.element)
    if kind.kind == "map":
        return field(5, number(1, kind.key.code if kind.key else 0) + field(2, element))
    if kind.kind == "sparse_tensor":
        assert isinstance(kind.element, DeclaredTensor)
        return field(8, _tensor_type(kind.element))
    return field(_WRAPPED[kind.kind], field(1, element))


def _tensor_type(kind: DeclaredTensor) -> bytes:
    """Serialize a TypeProto.Tensor."""
    if kind.shape is None:
        return number(1, kind.dtype.code)
    dims = [number(1, d) if isinstance(d, int) else field(2, text(d)) if d else b"" for d in kind.shape]
    return number(1, kind.dtype.code) + field(2, joined(1, dims))
