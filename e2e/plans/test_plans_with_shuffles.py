"""Plans whose kernels know the subgroups of a device run where it has such; elsewhere Python plans anew."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from playwright.sync_api import Page

from e2e.harness.browser import Guard
from e2e.harness.script import Script
from e2e.plans.test_forged_plans import REASONS
from e2e.plans.test_plans import ATOL, RTOL, RUN, fed, feeds_of, started_python
from pyruntime.compiler.saved import read
from pyruntime.kernels import Limits, Target
from pyruntime.onnx.formats.source import open_file
from pyruntime.session.aot.compile_ahead import compile_model
from pyruntime.target import MATRIX_UNIT, SHADER_F16, SUBGROUP_MATRIX, SUBGROUP_SIZE


@pytest.fixture
def script(page: Page, guard: Guard, site_url: str) -> Script:
    page.goto(f"{site_url}e2e/blank.html")
    return Script(page, guard)


@pytest.fixture
def softmax(tmp_path: Path) -> Path:
    """A model whose rows are shared by invocations."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [3, 1000]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"])], "softmax", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def compiled(model: Path, size: int) -> bytes:
    """For devices whose subgroups all have `size` invocations."""
    plan = compile_model(model, target=Target(features=frozenset({"subgroups", f"{SUBGROUP_SIZE}{size}"})))
    (shader,) = read(plan, open_file(model)).programs[0].plan.shaders
    assert "subgroupShuffleDown" in shader
    return plan


@pytest.mark.parametrize("size", [4, 32])
def test_plan__other_size_of_subgroups__python_plans_anew(script: Script, softmax: Path, size: int) -> None:
    there = script("return (await navigator.gpu.requestAdapter()).info.subgroupMinSize;")
    feeds = feeds_of(softmax, 1)
    found = script(
        RUN + "await session.release(); return { result, said };",
        model=softmax.read_bytes(),
        plan=compiled(softmax, size),
        feeds=fed(feeds),
    )
    (expected,) = onnxruntime.InferenceSession(softmax).run(None, feeds)
    np.testing.assert_allclose(np.reshape(found["result"]["y"]["values"], expected.shape), expected, RTOL, ATOL)
    reason = f"pyruntime: the plan is not used, Python plans: it is for devices with subgroup_size_{size}"
    assert found["said"][:1] == ([] if size == there else [reason])
    assert started_python(script.page) == (size != there)


def test_plan__device_without_subgroups__is_refused(script: Script, softmax: Path) -> None:
    plans = [base64.b64encode(compiled(softmax, 4)).decode()]
    assert script(REASONS, plans=plans) == ["it is for devices with subgroups"]


MATRICES = """
const { readPlan } = await import('/src/web/plans/plan.js');
const { limits } = await navigator.gpu.requestAdapter();
const said = [];
for (const [componentType, resultComponentType, M, N, K] of configs) {
  const adapterInfo = {
    subgroupMinSize: 32, subgroupMaxSize: 32,
    subgroupMatrixConfigs: [{ componentType, resultComponentType, M, N, K }],
  };
  const device = { limits, features: new Set(features), adapterInfo };
  try {
    await readPlan(decode(plan).buffer, { version: env.versions.pyruntime, device, vendor: '' });
    said.push('was read');
  } catch (error) {
    said.push(error.message);
  }
}
return said;
"""
"""`configs`: what devices report of the matrices that their subgroups multiply."""


def test_plan__subgroup_matrices__is_read_where_the_device_has_these(script: Script, tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT16, [256, 256]) for n in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "x"], ["y"])], "product", [x], [y])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    features = ["subgroups", SHADER_F16, SUBGROUP_MATRIX]
    known = frozenset({*features, f"{SUBGROUP_SIZE}32", f"{MATRIX_UNIT}16x16x16"})
    plan = compile_model(path, target=Target(Limits(workgroup_bytes=32768), known))
    (shader,) = read(plan, open_file(path)).programs[0].plan.shaders
    assert "subgroupMatrixMultiplyAccumulate" in shader
    configs = [("f16", "f32", 16, 16, 16), ("f16", "f32", 16, 8, 16), ("f16", "f16", 16, 16, 16)]
    said = script(MATRICES, plan=base64.b64encode(plan).decode(), configs=configs, features=features)
    lacking = f"it is for devices with {MATRIX_UNIT}16x16x16"
    assert said == ["was read", lacking, lacking]
