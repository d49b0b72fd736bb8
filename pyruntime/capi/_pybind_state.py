"""Alternative name of onnxruntime's binding module."""

from pyruntime.capi.onnxruntime_pybind11_state import *  # noqa: F403
