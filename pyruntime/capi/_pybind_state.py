"""onnxruntime's binding under its other name."""

from pyruntime.capi.onnxruntime_pybind11_state import *  # noqa: F403
