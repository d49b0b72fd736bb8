"""ONNX's cases with the kernels that real GPUs get and SwiftShader does not; conformance/ runs all with the latter."""

from __future__ import annotations

from typing import Any

from e2e.conformance.known import known_failures
from e2e.harness.gpu import Gpu
from pyruntime.kernels import Target
from pyruntime.kernels.legalize import legalize
from pyruntime.ops.base import Unsupported
from tests.harness import check_case, node_tests, op_and_data, single_node, typed


def test_onnx_cases__kernels_of_real_gpus__expected_outputs(gpu: Gpu, software: Gpu) -> None:
    ran, wrong, known = 0, {}, known_failures("native")
    for name, case in node_tests().items():
        node = single_node(case)
        if node is None or any(a.HasField("g") for a in node.attribute) or name in known:
            continue
        if _shaders(name, gpu.target) == _shaders(name, software.target):
            continue
        ran += 1
        try:
            check_case(name, gpu)
        except AssertionError as error:
            wrong[name] = str(error)
    assert not wrong
    assert ran >= 130


def _shaders(name: str, target: Target) -> list[Any]:
    """What ONNX's case `name` dispatches: source, uniforms, grid; nothing where it runs on the host."""
    op, data = op_and_data(name)
    if any(isinstance(x, list) for x in data[0][0]):
        return []
    types: list[Any] = [typed(x) for x in data[0][0]]
    op.infer(*types)
    try:
        dispatches = op.lower(target, *types) if op.alias(*types) is None else ()
    except Unsupported:
        return []
    legal = legalize(target, [d for d in dispatches if not d.is_empty])
    return [(d.kernel.wgsl(), d.params, d.grid) for d in legal]
