"""Operators of onnxruntime's domain com.microsoft, one operator or family per module."""
