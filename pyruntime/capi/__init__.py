"""Modules of onnxruntime.capi, for scripts that import exceptions and classes from there."""

from pyruntime.capi import onnxruntime_inference_collection, onnxruntime_pybind11_state

__all__ = ["onnxruntime_inference_collection", "onnxruntime_pybind11_state"]
