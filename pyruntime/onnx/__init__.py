"""ONNX files: parsed into records (`reader`), imported as graphs (`importer`), written (`writer`, `graph_writer`)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyruntime.onnx.formats.source import open_file
    from pyruntime.onnx.graph_writer import write_model
    from pyruntime.onnx.importer.model import ImportedModel, Metadata, import_model
    from pyruntime.onnx.reader import read_model
    from pyruntime.onnx.writer import ModelWriter

__all__ = [
    "ImportedModel",
    "Metadata",
    "ModelWriter",
    "import_model",
    "open_file",
    "read_model",
    "write_model",
]

_MODULES = {
    "ImportedModel": "importer.model",
    "Metadata": "importer.model",
    "ModelWriter": "writer",
    "import_model": "importer.model",
    "open_file": "formats.source",
    "read_model": "reader",
    "write_model": "graph_writer",
}


def __getattr__(name: str) -> Any:
    """Import the module of a name on first use, so that a page fetches only the modules it needs."""
    if name not in _MODULES:
        raise AttributeError(f"module 'pyruntime.onnx' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(f"pyruntime.onnx.{_MODULES[name]}"), name)
    return value
