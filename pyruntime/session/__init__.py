"""InferenceSession and friends: onnxruntime's Python API."""

from pyruntime.ir import HostTensor
from pyruntime.session.environment import adapter, available_providers
from pyruntime.session.inference import InferenceSession
from pyruntime.session.iobinding import IOBinding
from pyruntime.session.metadata import ModelMetadata, NodeArg
from pyruntime.session.options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions
from pyruntime.session.ortvalue import OrtValue

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "HostTensor",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "adapter",
    "available_providers",
]
