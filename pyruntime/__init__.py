"""ONNX models on the browser's GPU, with onnxruntime's Python API.

    import pyruntime as ort
    session = ort.InferenceSession("model.onnx")
    y, = session.run(None, {"x": x})

In a browser (Pyodide) models run on WebGPU; under CPython, and where there is no GPU, on NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyruntime import errors
from pyruntime.errors import (
    DeviceLost,
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    MissingInput,
    ModelLoadCanceled,
    ModelLoaded,
    ModelRequiresCompilation,
    NoModel,
    NoSuchFile,
    NotFound,
    NotImplemented,
    OrtError,
    OutOfMemory,
    RuntimeException,
)

if TYPE_CHECKING:
    from pyruntime.session import (
        ExecutionMode,
        ExecutionOrder,
        GraphOptimizationLevel,
        InferenceSession,
        ModelMetadata,
        NodeArg,
        RunOptions,
        SessionOptions,
    )
    from pyruntime.session import available_providers as get_available_providers

__version__ = "0.1.0"

__all__ = [
    "DeviceLost",
    "EPFail",
    "EngineError",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "GraphOptimizationLevel",
    "InferenceSession",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "MissingInput",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelMetadata",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NotFound",
    "NotImplemented",
    "OrtError",
    "OutOfMemory",
    "RunOptions",
    "RuntimeException",
    "SessionOptions",
    "errors",
    "get_available_providers",
    "get_device",
]


def __getattr__(name: str) -> Any:
    """Names of the session layer load it when first used: `import pyruntime` costs next to nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'pyruntime' has no attribute '{name}'")
    session = import_module("pyruntime.session")
    value = getattr(session, "available_providers" if name == "get_available_providers" else name)
    globals()[name] = value
    return value


def get_device() -> str:
    """'GPU' where WebGPU may be there, else 'CPU'."""
    providers = import_module("pyruntime.session").available_providers()
    return "GPU" if "WebGpuExecutionProvider" in providers else "CPU"
