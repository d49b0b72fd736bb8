"""Substitution of this package for onnxruntime."""

from __future__ import annotations

import sys
from importlib import import_module

__all__ = ["install_as_onnxruntime"]

_MODULES = (
    "backend",
    "backend.backend",
    "backend.backend_rep",
    "capi",
    "capi._pybind_state",
    "capi.onnxruntime_inference_collection",
    "capi.onnxruntime_pybind11_state",
)


def install_as_onnxruntime() -> None:
    """Make `import onnxruntime` import this package, including `onnxruntime.capi` with its exceptions.

    Raises:
        RuntimeError: the real onnxruntime was imported already.
    """
    package = import_module("pyruntime")
    if sys.modules.get("onnxruntime", package) is not package:
        raise RuntimeError("onnxruntime is imported already; call install_as_onnxruntime() before that")
    for name in _MODULES:
        sys.modules[f"onnxruntime.{name}"] = import_module(f"pyruntime.{name}")
    sys.modules["onnxruntime"] = package
