"""Exceptions and option classes of onnxruntime.capi.onnxruntime_pybind11_state."""

from pyruntime.errors import *  # noqa: F403
from pyruntime.session import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    ModelMetadata,
    NodeArg,
    OrtValue,
    RunOptions,
    SessionOptions,
    available_providers,
)
from pyruntime.session import IOBinding as SessionIOBinding
from pyruntime.session.api.devices import DeviceCode as OrtDevice
from pyruntime.session.api.devices import (
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtMemoryInfo,
    OrtMemoryInfoDeviceType,
    OrtMemType,
)
from pyruntime.session.api.ortvalue import OrtValueVector

get_available_providers = available_providers

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "ModelMetadata",
    "NodeArg",
    "OrtAllocatorType",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtValue",
    "OrtValueVector",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "get_available_providers",
]
