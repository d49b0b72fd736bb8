"""onnxruntime's classes where its own module has them."""

from pyruntime.session import InferenceSession, IOBinding, OrtValue

__all__ = ["IOBinding", "InferenceSession", "OrtValue"]
