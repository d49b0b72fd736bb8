"""`import onnxruntime` served by this package."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from pyruntime import errors

__all__ = ["install_as_onnxruntime"]

_STATE = "onnxruntime.capi.onnxruntime_pybind11_state"
_COLLECTION = "onnxruntime.capi.onnxruntime_inference_collection"
_SESSION_NAMES = ("IOBinding", "InferenceSession", "OrtValue")


def install_as_onnxruntime() -> None:
    """Make `import onnxruntime` give this package, with the exceptions of `capi.onnxruntime_pybind11_state`.

    Raises:
        RuntimeError: the real onnxruntime has been imported already.
    """
    package = sys.modules["pyruntime"]
    present = sys.modules.get("onnxruntime")
    if present is not None and present is not package:
        raise RuntimeError("onnxruntime is imported already; call install_as_onnxruntime() before that")
    state = _module(_STATE, {name: getattr(errors, name) for name in errors.__all__})
    for name in ("SessionOptions", "RunOptions", "NodeArg", "ModelMetadata", "GraphOptimizationLevel", "ExecutionMode"):
        setattr(state, name, getattr(package, name))
    collection = _module(_COLLECTION, {name: getattr(package, name) for name in _SESSION_NAMES})
    capi = _module(
        "onnxruntime.capi", {"onnxruntime_pybind11_state": state, _COLLECTION.rpartition(".")[2]: collection}
    )
    capi.__path__ = []
    package.capi = capi  # type: ignore[attr-defined]
    sys.modules["onnxruntime"] = package


def _module(name: str, members: dict[str, Any]) -> ModuleType:
    module = ModuleType(name, "pyruntime in onnxruntime's place.")
    module.__dict__.update(members)
    sys.modules[name] = module
    return module
