"""A process that ends while the GPU works."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.desktop import on_desktop

QUEUED = """
import numpy as np
from onnx import TensorProto, helper
import pyruntime

size = 256
value = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [size, size])
nodes = [helper.make_node("MatMul", [f"x{i}", f"x{i}"], [f"x{i + 1}"]) for i in range(20)]
graph = helper.make_graph(nodes, "g", [value("x0")], [value("x20")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
session = pyruntime.InferenceSession(model.SerializeToString())
assert session.get_providers()[0] == "WebGpuExecutionProvider"
binding = session.io_binding()
binding.bind_cpu_input("x0", np.zeros((size, size), np.float32))
binding.bind_output("x20", "webgpu")
for _ in range(20):
    session.run_with_iobinding(binding)
"""
"""Runs whose outputs are not read."""


@pytest.mark.parametrize("implementation", ["wgpu", "dawn"])
def test_exit__while_runs_are_queued__is_clean(implementation: str) -> None:
    with on_desktop(implementation):  # also sets the environment of the process
        done = subprocess.run([sys.executable, "-c", QUEUED], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
