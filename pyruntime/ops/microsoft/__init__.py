"""Operators of onnxruntime's domain com.microsoft: one operator, or one inseparable family, per file."""
