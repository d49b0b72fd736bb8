"""ONNX models as onnxruntime saves them in its own format, and small files of that format made by hand."""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import flatbuffers  # type: ignore[import-untyped]
import onnxruntime
from onnxruntime.tools.ort_format_model.ort_flatbuffers_py import fbs

from tests.onnx.corpus import node_models

__all__ = ["Flat", "converted", "samples"]

_LEVEL = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED


def converted(model: bytes, level: Any = _LEVEL) -> bytes | None:
    """`model` in ORT format after onnxruntime's passes of a level; None where onnxruntime does not take it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.ort"
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(path)
        options.graph_optimization_level = level
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.add_session_config_entry("session.save_model_format", "ORT")
        try:
            onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception:
            return None
        return path.read_bytes()


@lru_cache(maxsize=1)
def samples(step: int = 12) -> dict[str, bytes]:
    """Every so many'th of ONNX's node models that onnxruntime takes, and all with control flow, by name."""
    models = sorted(node_models().items())
    chosen = dict(models[::step]) | {n: m for n, m in models if n.startswith(("test_if", "test_loop", "test_scan"))}
    return {name: data for name, model in chosen.items() if (data := converted(model)) is not None}


class Flat:
    """Writes one node in ORT format, Relu unless something else is said, also what onnxruntime would not save."""

    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(0)

    def _vector(self, module: Any, table: str, field: str, items: list[int]) -> int:
        getattr(module, f"{table}Start{field}Vector")(self.builder, len(items))
        for item in reversed(items):
            self.builder.PrependUOffsetTRelative(item)
        end: int = self.builder.EndVector()
        return end

    def _table(self, name: str, **fields: Any) -> int:
        module = __import__(f"{fbs.__name__}.{name}", fromlist=[name])
        ready: dict[str, Any] = {}
        for field, value in fields.items():
            if isinstance(value, str):
                ready[field] = self.builder.CreateString(value)
            elif isinstance(value, bytes):
                ready[field] = self.builder.CreateByteVector(value)
            elif isinstance(value, list):
                items = [self.builder.CreateString(v) if isinstance(v, str) else v for v in value]
                ready[field] = self._vector(module, name, field, items)
            else:
                ready[field] = value
        getattr(module, f"{name}Start")(self.builder)
        for field, value in ready.items():
            getattr(module, f"{name}Add{field}")(self.builder, value)
        end: int = getattr(module, f"{name}End")(self.builder)
        return end

    def tensor(self, **fields: Any) -> int:
        return self._table("Tensor", **fields)

    def graph(self, initializers: list[int] | None = None, **node: Any) -> int:
        given = {"OpType": "Relu", "Inputs": ["x"], "Outputs": ["y"], **node}
        return self._table(
            "Graph",
            Inputs=["x"],
            Outputs=["y"],
            Nodes=[self._table("Node", **given)],
            **({"Initializers": initializers} if initializers else {}),
        )

    def file(self, graph: int | None) -> bytes:
        """The file of a graph; without one, of a session that has no model."""
        fields: dict[str, Any] = {"OrtVersion": "6"}
        if graph is not None:
            opset = self._table("OperatorSetId", Domain="", Version=21)
            fields["Model"] = self._table("Model", IrVersion=10, OpsetImport=[opset], Graph=graph)
        self.builder.Finish(self._table("InferenceSession", **fields), file_identifier=b"ORTM")
        return bytes(self.builder.Output())
