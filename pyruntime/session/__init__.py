"""InferenceSession and friends: onnxruntime's Python API."""

from pyruntime.ir import HostTensor
from pyruntime.session.environment import adapter, available_providers
from pyruntime.session.inference import InferenceSession
from pyruntime.session.metadata import ModelMetadata, NodeArg
from pyruntime.session.options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "HostTensor",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "RunOptions",
    "SessionOptions",
    "adapter",
    "available_providers",
]
