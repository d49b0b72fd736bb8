"""Classes of onnxruntime.capi.onnxruntime_inference_collection."""

from pyruntime.session import InferenceSession, IOBinding, OrtValue
from pyruntime.session.api.devices import OrtDevice, OrtDeviceVendorId
from pyruntime.session.api.ortvalue import copy_tensors

__all__ = ["IOBinding", "InferenceSession", "OrtDevice", "OrtDeviceVendorId", "OrtValue", "copy_tensors"]
