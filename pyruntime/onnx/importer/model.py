"""Import of a model file's records as a graph and metadata."""

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
"""Operator sets of a model that does not import them, as in onnxruntime: some exporters import only one."""
_FIRST_IR_WITH_OPSETS = 3
_FIRST_IR_WITH_DEFAULTS = 4  # before it, initializers are inputs too, but are constant


@dataclass(frozen=True, slots=True)
class Metadata:
    """Metadata of a model; `description` is that of ModelProto, `graph_description` the doc_string of GraphProto."""

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
    """A model's graph, with the file's metadata and versions.

    Attributes:
        opsets: version by domain; the empty domain is ai.onnx.
        denotations: for inputs that declare any, the denotation of each dimension ('DATA_BATCH'), or ''.
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
    """Return the graph of a model. External data is looked up by name in `files`, then in `folder`.

    `folder` may also be the path of the model: then its directory is used, and where the path is a link, its target's.

    Raises:
        InvalidProtobuf: the file has no graph.
        NotImplemented: operators that this runtime lacks; the message lists all of them, with a node for each.
        InvalidGraph: a node that does not match its operator, an undefined input, recursive functions.
        Fail: duplicate names, a cycle, unsupported versions, inconsistent tensors, exceeded limits.
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
    """Return IR version and operator sets. Raises Fail: no IR version, an unsupported version, or no operator set."""
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
