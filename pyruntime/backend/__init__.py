"""ONNX's backend interface, as in onnxruntime.backend."""

from pyruntime.backend.backend import is_compatible, prepare, run, supports_device

__all__ = ["is_compatible", "prepare", "run", "supports_device"]
