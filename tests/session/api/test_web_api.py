"""onnxruntime-web's names of options become those of this package, and what a model takes gets its names."""

from __future__ import annotations

import pytest

from pyruntime.errors import InvalidArgument
from pyruntime.session import GraphOptimizationLevel, NodeArg
from pyruntime.session.web_api import providers, run_options, session_options, value_metadata


def test_value_metadata__of_a_tensor__has_its_elements_and_unknown_dimensions_are_empty() -> None:
    told = value_metadata(NodeArg("x", "tensor(float)", ["batch", 3, None]))
    assert told == {"name": "x", "isTensor": True, "type": "float32", "shape": ["batch", 3, ""]}


def test_value_metadata__of_a_sequence__is_as_onnx_writes_it() -> None:
    told = value_metadata(NodeArg("x", "seq(tensor(float))", []))
    assert told == {"name": "x", "isTensor": False, "type": "seq(tensor(float))", "shape": []}


def test_providers__some_unknown__are_those_that_are_here_once_each() -> None:
    assert providers([{"name": "webgpu"}, "webnn", "wasm", "cpu"]) == [
        "WebGpuExecutionProvider",
        "CPUExecutionProvider",
    ]
    assert providers([]) is None


def test_providers__all_unknown__are_refused() -> None:
    with pytest.raises(InvalidArgument, match="expected some of webgpu, wasm, cpu, got webnn"):
        providers(["webnn"])


def test_session_options__nested_entries__are_config_entries() -> None:
    plain = {
        "graphOptimizationLevel": "basic",
        "logSeverityLevel": 3,
        "freeDimensionOverrides": {"batch": 4},
        "extra": {"session": {"disable_cpu_ep_fallback": True}, "pyruntime.disable": "tiles"},
    }
    options = session_options(plain, [])
    assert options.graph_optimization_level == GraphOptimizationLevel.ORT_ENABLE_BASIC
    assert options.log_severity_level == 3
    assert options.free_dimension_overrides == {"batch": 4}
    assert options.config_entries == {"session.disable_cpu_ep_fallback": "1", "pyruntime.disable": "tiles"}


def test_session_options__unknown_level__is_refused() -> None:
    with pytest.raises(InvalidArgument, match="graphOptimizationLevel: expected one of disabled"):
        session_options({"graphOptimizationLevel": "most"}, [])


def test_run_options__entries__are_config_entries() -> None:
    options = run_options({"tag": "one", "extra": {"memory": {"shrink": "gpu:0"}}})
    assert options.logid == "one"
    assert options.get_run_config_entry("memory.shrink") == "gpu:0"
