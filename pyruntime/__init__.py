"""Runs ONNX models on the browser's GPU, with onnxruntime's Python API.

    import pyruntime as ort
    session = ort.InferenceSession("model.onnx")
    y, = session.run(None, {"x": x})

In a browser (Pyodide) models run on WebGPU. Under CPython they run on the GPU with the package `wgpu` or `wgpudawn`;
without a GPU, on NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyruntime import errors
from pyruntime.compat import install_as_onnxruntime
from pyruntime.errors import (
    BadValue,
    BindingError,
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
    WrongType,
)

if TYPE_CHECKING:
    from pyruntime.ir import DType, TensorType
    from pyruntime.ops.custom import CustomOp as Op
    from pyruntime.ops.custom import custom_op
    from pyruntime.ops.randomness import set_seed
    from pyruntime.session import (
        ExecutionMode,
        ExecutionOrder,
        GraphOptimizationLevel,
        InferenceSession,
        IOBinding,
        ModelMetadata,
        NodeArg,
        OrtValue,
        RunOptions,
        SessionOptions,
        adapters,
    )
    from pyruntime.session import IOBinding as SessionIOBinding
    from pyruntime.session import available_providers as get_available_providers
    from pyruntime.session.api.devices import (
        OrtAllocatorType,
        OrtDevice,
        OrtDeviceMemoryType,
        OrtDeviceVendorId,
        OrtMemoryInfo,
        OrtMemoryInfoDeviceType,
        OrtMemType,
    )
    from pyruntime.session.api.gpu import gpu
    from pyruntime.session.api.model_of import model_of
    from pyruntime.session.api.ortvalue import copy_tensors
    from pyruntime.session.inspect.insight import AssignedNode as OrtEpAssignedNode
    from pyruntime.session.inspect.insight import AssignedSubgraph as OrtEpAssignedSubgraph
    from pyruntime.session.log import (
        set_default_logger_callback,
        set_default_logger_severity,
        set_default_logger_verbosity,
    )

__version__ = "0.1.0"

__all__ = [
    "BadValue",
    "BindingError",
    "DType",
    "DeviceLost",
    "EPFail",
    "EngineError",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "GraphOptimizationLevel",
    "IOBinding",
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
    "Op",
    "OrtAllocatorType",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtEpAssignedNode",
    "OrtEpAssignedSubgraph",
    "OrtError",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtValue",
    "OutOfMemory",
    "RunOptions",
    "RuntimeException",
    "SessionIOBinding",
    "SessionOptions",
    "TensorType",
    "WrongType",
    "adapters",
    "copy_tensors",
    "custom_op",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "errors",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "gpu",
    "has_collective_ops",
    "install_as_onnxruntime",
    "model_of",
    "set_default_logger_callback",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
]

_ELSEWHERE = {
    name: (module, attribute or name)
    for module, names in {
        "pyruntime.ir": "DType TensorType",
        "pyruntime.ops.custom": "Op=CustomOp custom_op",
        "pyruntime.ops.randomness": "set_seed",
        "pyruntime.session": "SessionIOBinding=IOBinding get_available_providers=available_providers",
        "pyruntime.session.api.devices": "OrtAllocatorType OrtDevice OrtDeviceMemoryType OrtDeviceVendorId OrtMemType"
        " OrtMemoryInfo OrtMemoryInfoDeviceType",
        "pyruntime.session.api.gpu": "gpu",
        "pyruntime.session.api.model_of": "model_of",
        "pyruntime.session.api.ortvalue": "copy_tensors",
        "pyruntime.session.inspect.insight": "OrtEpAssignedNode=AssignedNode OrtEpAssignedSubgraph=AssignedSubgraph",
        "pyruntime.session.log": "set_default_logger_callback set_default_logger_severity set_default_logger_verbosity",
    }.items()
    for name, _, attribute in (each.partition("=") for each in names.split())
}
"""Names to the modules that have them, and what they are called there; all others are of `pyruntime.session`."""


def __getattr__(name: str) -> Any:
    """Import names of the session layer on first use, which keeps `import pyruntime` fast."""
    if name in ("backend", "capi"):
        return import_module(f"pyruntime.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'pyruntime' has no attribute '{name}'")
    module, attribute = _ELSEWHERE.get(name, ("pyruntime.session", name))
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})


def get_device() -> str:
    """Return 'GPU' if WebGPU may be available, else 'CPU'."""
    providers = import_module("pyruntime.session").available_providers()
    return "GPU" if "WebGpuExecutionProvider" in providers else "CPU"


def get_all_providers() -> list[str]:
    """Return all providers of this package, whether available or not."""
    return ["WebGpuExecutionProvider", "CPUExecutionProvider"]


def get_version_string() -> str:
    """Return the version of this package."""
    return __version__


def get_build_info() -> str:
    """Return the package name, its version, and the supported opsets."""
    from pyruntime.ops.base import LATEST

    return f"pyruntime {__version__}, ONNX opsets 1 to {LATEST}"


def has_collective_ops() -> bool:
    """Return False: a session uses a single device."""
    return False


def enable_telemetry_events() -> None:
    """Accepted for compatibility without effect: there is no telemetry."""


def disable_telemetry_events() -> None:
    """Accepted for compatibility without effect: there is no telemetry."""


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
    """Accepted for compatibility without effect: there is no thread pool."""
