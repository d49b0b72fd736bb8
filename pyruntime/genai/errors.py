"""Exceptions that onnxruntime-genai raises as RuntimeError."""

from __future__ import annotations

from pyruntime.errors import InvalidArgument

__all__ = ["GenerationError"]


class GenerationError(InvalidArgument, RuntimeError):
    """A call, option or folder that onnxruntime-genai refuses with a RuntimeError."""
