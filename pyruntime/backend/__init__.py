"""ONNX's backend interface, as onnxruntime.backend has it: one-line runs of a model."""

from pyruntime.backend.backend import is_compatible, prepare, run, supports_device

__all__ = ["is_compatible", "prepare", "run", "supports_device"]
