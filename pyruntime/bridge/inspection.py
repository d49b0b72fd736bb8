"""Requests about sessions and the device that run no model; served by `requests.py`."""

from __future__ import annotations

from typing import Any

from pyruntime.bridge.sessions import session_of
from pyruntime.device.webgpu.javascript import JsObject
from pyruntime.errors import InvalidArgument
from pyruntime.ops import registry
from pyruntime.session import adapter
from pyruntime.session.base import Internals
from pyruntime.session.environment import adopt, device
from pyruntime.session.log import set_default_logger_severity

__all__ = [
    "adapter_info",
    "end_profiling",
    "explain",
    "gpu_device",
    "operators",
    "set_log_level",
    "start_profiling",
    "summary",
    "tune",
    "use_device",
]

_LOG_LEVELS = ("verbose", "info", "warning", "error", "fatal")


async def summary(handle: int) -> dict[str, Any]:
    """Return placement of nodes with reasons, and memory: interface Summary of `web/pyruntime.d.ts`."""
    return session_of(handle).summary()


async def explain(handle: int) -> dict[str, Any]:
    """Return nodes, kernels with WGSL, fusions and memory over time: interface Explanation of `web/pyruntime.d.ts`."""
    return session_of(handle).explain().to_dict()


async def tune(handle: int) -> dict[str, Any]:
    """Measure the candidate kernels of this model: interface Tuning of `web/pyruntime.d.ts`."""
    return (await session_of(handle).tune_async()).to_dict()


async def operators() -> dict[str, list[str]]:
    """Return the supported operators by domain ('' is ai.onnx). Some are supported only in newer opsets."""
    return {domain: registry.names(domain) for domain in registry.domains() if domain != "pyruntime"}


async def start_profiling(handle: int) -> None:
    """Start to record the times of runs."""
    Internals(session_of(handle)).start_trace()


async def end_profiling(handle: int) -> list[dict[str, Any]]:
    """Stop recording; return the events since `start_profiling`, or since `enableProfiling`, as a Chrome trace."""
    return Internals(session_of(handle)).end_trace()


async def use_device(gpu_device: JsObject) -> None:
    """Let sessions use this GPUDevice. Raises InvalidArgument: sessions already use another one."""
    await adopt(gpu_device)


async def gpu_device() -> JsObject:
    """Return the GPUDevice that sessions use."""
    return (await device()).gpu_device


async def set_log_level(level: str) -> None:
    """Set the lowest severity that is logged: onnxruntime-web's `env.logLevel`."""
    if level not in _LOG_LEVELS:
        raise InvalidArgument(f"env.logLevel: expected one of {', '.join(_LOG_LEVELS)}, got {level!r}")
    set_default_logger_severity(_LOG_LEVELS.index(level))


async def adapter_info() -> dict[str, str] | None:
    """Return vendor, architecture, device and description of the GPU adapter; None where there is none."""
    return await adapter()
