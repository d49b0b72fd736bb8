"""Names under which scripts written for onnxruntime find its exceptions and classes."""

from pyruntime.capi import onnxruntime_inference_collection, onnxruntime_pybind11_state

__all__ = ["onnxruntime_inference_collection", "onnxruntime_pybind11_state"]
