"""InferenceSession and friends: onnxruntime's Python API."""

from pyruntime.ir import HostTensor
from pyruntime.session.api.inference import InferenceSession
from pyruntime.session.api.iobinding import IOBinding
from pyruntime.session.api.ortvalue import OrtValue
from pyruntime.session.environment import adapter, adapters, available_providers
from pyruntime.session.metadata import ModelMetadata, NodeArg
from pyruntime.session.options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions

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
    "adapters",
    "available_providers",
]
