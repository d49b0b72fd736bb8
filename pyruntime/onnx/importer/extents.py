"""Which parts of other files a model needs: `extents` says how long they are, `looked_at` what planning may read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from pyruntime.errors import OrtError
from pyruntime.ir import DType
from pyruntime.onnx.formats.external import count_of, plain_location
from pyruntime.onnx.formats.tensor import SparseTensorRecord, TensorRecord
from pyruntime.onnx.records import AttributeType, GraphRecord, ModelRecord, NodeRecord

__all__ = ["FOLDED", "LARGE", "MOST_FOLDED", "extents", "looked_at"]


def extents(model: ModelRecord) -> dict[str, int]:
    """The files that hold tensors of the model, each with the bytes that it must have at least."""
    found: dict[str, int] = {}
    for _, location, _, end in _places(model):
        found[location] = max(found.get(location, 0), end)
    return found


LARGE = 1 << 16
"""Bytes up to which any tensor may be looked at while a model is planned."""

FOLDED = 1 << 16
"""Elements of a tensor that may be folded: a mask of one byte for each has no more bytes than planning folds. They have
four bytes, or eight where the type is one of `_WIDE`."""

MOST_FOLDED = 8 << 20
"""Most bytes of tensors that are looked at for that reason alone, in each file."""

_WIDE = frozenset({DType.INT64.code, DType.DOUBLE.code, DType.UINT64.code, DType.COMPLEX64.code})


def looked_at(model: ModelRecord) -> dict[str, list[tuple[int, int]]]:
    """Begin and end of what planning may look at in each file that holds tensors of the model: ascending, apart.

    The rule is that of web/onnx/scanner.js, for tensors that are in the model's own file.
    """
    places: dict[str, set[tuple[int, int, int]]] = {}
    for tensor, location, begin, end in _places(model):
        places.setdefault(location, set()).add((begin, end, tensor.data_type))
    return {location: _small(sorted(found)) for location, found in places.items()}


def _small(places: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Those of (begin, end, element type) that may be looked at; as one where they touch."""
    found: list[tuple[int, int]] = []
    folded = 0
    for begin, end, code in places:
        size = end - begin
        if size > LARGE:
            if size > min(FOLDED * (8 if code in _WIDE else 4), MOST_FOLDED - folded):
                continue
            folded += size
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        elif size:
            found.append((begin, end))
    return found


def _places(model: ModelRecord) -> Iterator[tuple[TensorRecord, str, int, int]]:
    """Each tensor of the model that is in another file: which, its first byte there, and the end of its bytes."""
    for tensor in _tensors(model):
        entries = dict(tensor.external)
        location = plain_location(entries.get("location", ""))
        if tensor.is_external and location:
            with suppress(OrtError):  # who reads the tensor says what is wrong with it
                begin = count_of(entries, "offset", 0, str(tensor))
                yield tensor, location, begin, begin + count_of(entries, "length", tensor.nbytes, str(tensor))


_HOLDERS = frozenset(
    {
        AttributeType.TENSOR,
        AttributeType.TENSORS,
        AttributeType.GRAPH,
        AttributeType.GRAPHS,
        AttributeType.SPARSE_TENSOR,
        AttributeType.SPARSE_TENSORS,
    }
)
"""Types of attributes that have tensors in them."""


def _tensors(model: ModelRecord) -> Iterator[TensorRecord]:
    if model.graph is not None:
        yield from _tensors_of_graph(model.graph)
    for function in model.functions:
        yield from _tensors_of_nodes(function.node)


def _tensors_of_graph(graph: GraphRecord) -> Iterator[TensorRecord]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from filter(None, (sparse.values, sparse.indices))
    yield from _tensors_of_nodes(graph.node)


def _tensors_of_nodes(nodes: Iterable[NodeRecord]) -> Iterator[TensorRecord]:
    for attribute in (attribute for node in nodes for attribute in node.attribute if attribute.type in _HOLDERS):
        for value in attribute.value if isinstance(attribute.value, tuple) else (attribute.value,):
            if isinstance(value, TensorRecord):
                yield value
            elif isinstance(value, SparseTensorRecord):
                yield from filter(None, (value.values, value.indices))
            elif isinstance(value, GraphRecord):
                yield from _tensors_of_graph(value)
