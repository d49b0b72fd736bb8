"""onnxruntime's exceptions and option classes where its own module has them."""

from pyruntime.errors import *  # noqa: F403
from pyruntime.session import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    ModelMetadata,
    NodeArg,
    RunOptions,
    SessionOptions,
)

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "ModelMetadata",
    "NodeArg",
    "RunOptions",
    "SessionOptions",
]
