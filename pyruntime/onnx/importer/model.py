"""Import the records of a model file: its graph, and its metadata."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyruntime.errors import Fail, InvalidProtobuf
from pyruntime.ir import Graph
from pyruntime.onnx.formats.external import ExternalDirectory, ExternalFiles
from pyruntime.onnx.formats.protobuf import Limits
from pyruntime.onnx.importer.builder import GraphBuilder, versions
from pyruntime.onnx.records import ModelRecord, TensorTypeRecord
from pyruntime.ops.base import LATEST, LATEST_ML

__all__ = ["ImportedModel", "Metadata", "import_model"]

_NEWEST_IR = 14
_ASSUMED = {"": LATEST, "ai.onnx.ml": LATEST_ML, "com.microsoft": 1}
"""Operator sets that a model has without importing them, as onnxruntime does: some exporters forget all but one."""
_FIRST_IR_WITH_OPSETS = 3
_FIRST_IR_WITH_DEFAULTS = 4  # before it, every initializer is an input too, and a constant all the same


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a model says of itself; `description` is ModelProto's, `graph_description` GraphProto's doc_string."""

    producer_name: str = ""
    producer_version: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """A model's graph and what the file says around it.

    Attributes:
        opsets: version by domain; the empty domain is ONNX's own.
        denotations: a standard meaning for each dimension ('DATA_BATCH', '') of the inputs that state any.
    """

    graph: Graph
    metadata: Metadata
    ir_version: int
    opsets: Mapping[str, int]
    denotations: Mapping[str, tuple[str, ...]]


def import_model(
    model: ModelRecord,
    files: Mapping[str, Any] | None = None,
    folder: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
) -> ImportedModel:
    """The graph of a model; its external data is in `files` by name or, failing that, in `folder`.

    `folder` may also be the path of the model: then its directory, or where that path is a link, its target's.

    Raises:
        InvalidProtobuf: there is no graph.
        NotImplemented: operators this runtime does not have; the message names all of them, with a node each.
        InvalidGraph: a node that does not fit its operator, an input nothing defines, recursive functions.
        Fail: duplicate names, a cycle, unsupported versions, tensors that contradict themselves, limits.
        NoSuchFile: external data that was not given.
    """
    if model.graph is None:
        raise InvalidProtobuf("the file has no graph, so it is not an ONNX model; check that it is the right file")
    ir_version, opsets = _checked_versions(model)
    directory = None if folder is None else ExternalDirectory.of(folder)
    external = ExternalFiles(files or {}, directory) if files or directory else None
    builder = GraphBuilder(
        model.functions,
        {**_ASSUMED, **opsets},
        external,
        limits or Limits(),
        overridable=ir_version >= _FIRST_IR_WITH_DEFAULTS,
    )
    return ImportedModel(builder.main(model.graph), _metadata(model), ir_version, opsets, _denotations(model))


def _checked_versions(model: ModelRecord) -> tuple[int, dict[str, int]]:
    """IR version and operator sets. Raises Fail: no IR version, one that is too new, or no operator set."""
    version = model.ir_version
    if version is None:
        raise Fail("the model has no IR version; export it again")
    if not 0 <= version <= _NEWEST_IR:
        raise Fail(
            f"the model has IR version {version}, the newest supported is {_NEWEST_IR}; export it with an older one"
        )
    opsets = versions(model.opset_import)
    if not opsets and version < _FIRST_IR_WITH_OPSETS:
        return version, {"": 1}
    if not opsets:
        raise Fail("the model imports no operator set; export it again")
    for domain, newest in (("", LATEST), ("ai.onnx.ml", LATEST_ML)):
        if opsets.get(domain, 1) > newest:
            raise Fail(
                f"the model uses operator set {opsets[domain]} of {domain or 'ai.onnx'}, the newest supported is "
                f"{newest}; export it with an older one"
            )
    return version, opsets


def _metadata(model: ModelRecord) -> Metadata:
    return Metadata(
        model.producer_name,
        model.producer_version,
        model.graph.name if model.graph else "",
        model.domain,
        model.doc_string,
        model.graph.doc_string if model.graph else "",
        model.model_version,
        {entry.key: entry.value for entry in model.metadata_props},
    )


def _denotations(model: ModelRecord) -> dict[str, tuple[str, ...]]:
    inputs = model.graph.input if model.graph else ()
    return {
        value.name: value.type.denotations
        for value in inputs
        if isinstance(value.type, TensorTypeRecord) and value.type.denotations
    }
