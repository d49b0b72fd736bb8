"""What onnxruntime-web's API calls things, in this package's terms: inputs and outputs, options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyruntime.errors import InvalidArgument
from pyruntime.ir import DType
from pyruntime.session.log import logger
from pyruntime.session.metadata import NodeArg
from pyruntime.session.options import GraphOptimizationLevel, RunOptions, SessionOptions

__all__ = ["providers", "run_options", "session_options", "value_metadata"]

_PROVIDERS = {
    "webgpu": "WebGpuExecutionProvider",
    "wasm": "CPUExecutionProvider",
    "cpu": "CPUExecutionProvider",
}
_OPTIMIZATION = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "layout": "ORT_ENABLE_LAYOUT",
    "all": "ORT_ENABLE_ALL",
}


def value_metadata(value: NodeArg) -> dict[str, Any]:
    """ValueMetadata of `web/pyruntime.d.ts`; `type` is that of a tensor's elements, else what ONNX calls the kind."""
    is_tensor = value.type.startswith("tensor(")
    kind = DType.from_name(value.type[len("tensor(") : -1]).js_name if is_tensor else value.type
    shape = ["" if dim is None else dim for dim in value.shape] if is_tensor else []
    return {"name": value.name, "isTensor": is_tensor, "type": kind, "shape": shape}


def providers(wanted: Sequence[Any] | None) -> list[str] | None:
    """Python's names of `executionProviders`, each `'webgpu'` or `{name: 'webgpu'}`; a list may name others besides."""
    if not wanted:
        return None
    names = [str(item["name"] if isinstance(item, Mapping) else item) for item in wanted]
    unknown = [name for name in names if name not in _PROVIDERS]
    names = [name for name in names if name in _PROVIDERS]
    if unknown and names:
        logger.warning("executionProviders: %s are not here; %s are used", ", ".join(unknown), ", ".join(names))
    if not names:
        raise InvalidArgument(f"executionProviders: expected some of {', '.join(_PROVIDERS)}, got {', '.join(unknown)}")
    return list(dict.fromkeys(_PROVIDERS[name] for name in names))


def session_options(plain: Mapping[str, Any], external: Sequence[tuple[str, Any]]) -> SessionOptions:
    """`SessionOptions` of onnxruntime-web, those that are data, with the files that the model names as external data.

    Args:
        external: (path, ArrayBuffer, Blob, `ArrivingBuffer` or `ModelFile` of web/loading/).
    """
    options = SessionOptions()
    if (level := plain.get("graphOptimizationLevel")) is not None:
        if level not in _OPTIMIZATION:
            raise InvalidArgument(f"graphOptimizationLevel: expected one of {', '.join(_OPTIMIZATION)}, got {level!r}")
        options.graph_optimization_level = getattr(GraphOptimizationLevel, _OPTIMIZATION[level])
    if "enableProfiling" in plain:
        options.enable_profiling = bool(plain["enableProfiling"])
    if "profileFilePrefix" in plain:
        options.profile_file_prefix = str(plain["profileFilePrefix"])
    if "logId" in plain:
        options.logid = str(plain["logId"])
    if "logSeverityLevel" in plain:
        options.log_severity_level = int(plain["logSeverityLevel"])
    for name, size in plain.get("freeDimensionOverrides", {}).items():
        options.add_free_dimension_override_by_name(name, int(size))
    for key, value in _flatten(plain.get("extra", {})):
        options.add_session_config_entry(key, value)
    if external:
        paths, buffers = zip(*external, strict=True)
        lengths = [int(getattr(buffer, "size", None) or buffer.byteLength) for buffer in buffers]
        options.add_external_initializers_from_files_in_memory(list(paths), list(buffers), lengths)
    return options


def run_options(plain: Mapping[str, Any]) -> RunOptions:
    """`RunOptions` of onnxruntime-web."""
    options = RunOptions()
    if "tag" in plain:
        options.logid = str(plain["tag"])
    if "logSeverityLevel" in plain:
        options.log_severity_level = int(plain["logSeverityLevel"])
    for key, value in _flatten(plain.get("extra", {})):
        options.add_run_config_entry(key, value)
    return options


def _flatten(entries: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """`{"session": {"a": 1}}` -> `[("session.a", "1")]`."""
    flat: list[tuple[str, str]] = []
    for key, value in entries.items():
        if isinstance(value, Mapping):
            flat += _flatten(value, f"{prefix}{key}.")
        else:
            flat.append((f"{prefix}{key}", str(int(value) if isinstance(value, bool) else value)))
    return flat
