"""Parts of external files that a model needs: their sizes (`extents`), and ranges read by planning (`looked_at`)."""

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
    """Return the external files of a model, each with its least size in bytes."""
    found: dict[str, int] = {}
    for _, location, _, end in _places(model):
        found[location] = max(found.get(location, 0), end)
    return found


LARGE = 1 << 16
"""Bytes up to which a tensor may be read during planning."""

FOLDED = 1 << 16
"""Elements up to which a tensor may be constant-folded: a mask with one byte for each is as large as planning folds. An
element has four bytes, or eight for the types of `_WIDE`.
"""

MOST_FOLDED = 8 << 20
"""Limit of the bytes read for that reason alone, in each file."""

_WIDE = frozenset({DType.INT64.code, DType.DOUBLE.code, DType.UINT64.code, DType.COMPLEX64.code})


def looked_at(model: ModelRecord) -> dict[str, list[tuple[int, int]]]:
    """Return the ranges (begin, end) that planning may read in each external file, ascending and disjoint.

    web/onnx/scanner.js has the same rule for tensors in the model's own file.
    """
    places: dict[str, set[tuple[int, int, int]]] = {}
    for tensor, location, begin, end in _places(model):
        places.setdefault(location, set()).add((begin, end, tensor.data_type))
    return {location: _small(sorted(found)) for location, found in places.items()}


def _small(places: Iterable[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """Select the ranges (begin, end, element type) that planning may read; adjacent ones are merged."""
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
    """Yield each external tensor with its file, and the begin and end of its bytes."""
    for tensor in _tensors(model):
        entries = dict(tensor.external)
        location = plain_location(entries.get("location", ""))
        if tensor.is_external and location:
            with suppress(OrtError):  # reading the tensor reports the error
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
"""Types of attributes that contain tensors."""


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
