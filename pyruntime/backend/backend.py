"""Backend of ONNX's backend interface. Source: onnx.backend.base; onnxruntime.backend."""

from __future__ import annotations

import os
from typing import Any

import pyruntime
from pyruntime.backend.backend_rep import OnnxRuntimeBackendRep, set_allowed
from pyruntime.errors import BindingError
from pyruntime.ops.base import LATEST
from pyruntime.session import InferenceSession, SessionOptions

__all__ = ["OnnxRuntimeBackend", "is_compatible", "prepare", "run", "supports_device"]

_ALLOWED_SESSION_OPTIONS = frozenset(
    {
        "enable_cpu_mem_arena",
        "enable_mem_pattern",
        "enable_mem_reuse",
        "execution_mode",
        "execution_order",
        "graph_optimization_level",
        "inter_op_num_threads",
        "intra_op_num_threads",
        "log_severity_level",
        "log_verbosity_level",
        "logid",
        "use_deterministic_compute",
        "use_per_session_threads",
    }
)


class OnnxRuntimeBackend:
    """onnx.backend.base.Backend over sessions, without the onnx package."""

    @classmethod
    def is_compatible(cls, model: Any, device: str | None = None, **kwargs: Any) -> bool:
        """Return whether the device exists; `model` is ignored."""
        return cls.supports_device(device or pyruntime.get_device())

    @classmethod
    def is_opset_supported(cls, model: Any) -> tuple[bool, str]:
        """Return whether the operator sets of an onnx.ModelProto are supported, and if not, why."""
        for opset in model.opset_import:
            if opset.domain in ("", "ai.onnx") and opset.version > LATEST:
                return False, f"expected ai.onnx up to version {LATEST}, got {opset.version}"
        return True, ""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether models run on 'CPU' or 'GPU' ('CUDA' means 'GPU')."""
        here = pyruntime.get_device()
        return device in (("CPU", "GPU", "CUDA") if here == "GPU" else (here,))

    @classmethod
    def prepare(cls, model: Any, device: str | None = None, **kwargs: Any) -> OnnxRuntimeBackendRep:
        """Load a model and return it prepared to run.

        Args:
            model: a path, bytes, an onnx.ModelProto, an InferenceSession, or a result of this function.
            device: 'CPU' or 'GPU'; default: the available one.
            kwargs: attributes of `SessionOptions`, unless the model is a session; unknown names are ignored.

        Raises:
            BindingError (a RuntimeError): the device does not exist, or an attribute is not permitted.
        """
        if isinstance(model, OnnxRuntimeBackendRep):
            return model
        if isinstance(model, InferenceSession):
            return OnnxRuntimeBackendRep(model)
        options = SessionOptions()
        set_allowed(options, kwargs, _ALLOWED_SESSION_OPTIONS)
        if device is not None and not cls.supports_device(device):
            raise BindingError(f"Incompatible device expected '{device}', got '{pyruntime.get_device()}'")
        excluded = os.getenv("ORT_ONNX_BACKEND_EXCLUDE_PROVIDERS", "").split(",")
        providers = [name for name in pyruntime.get_available_providers() if name not in excluded]
        return OnnxRuntimeBackendRep(InferenceSession(model, options, providers, enable_fallback=0))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str | None = None, **kwargs: Any) -> list[Any]:
        """Load a model and run it: `prepare(model, device, **kwargs).run(inputs, **kwargs)`."""
        return cls.prepare(model, device, **kwargs).run(inputs, **kwargs)

    @classmethod
    def run_node(
        cls, node: Any, inputs: Any, device: str | None = None, outputs_info: Any = None, **kwargs: Any
    ) -> None:
        """Raise NotImplementedError, as onnxruntime does."""
        raise NotImplementedError("It is much more efficient to run a whole model than every node independently.")


is_compatible = OnnxRuntimeBackend.is_compatible
prepare = OnnxRuntimeBackend.prepare
run = OnnxRuntimeBackend.run_model
supports_device = OnnxRuntimeBackend.supports_device
