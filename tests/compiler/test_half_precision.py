"""Plans of float16 models: shader-f16 is in those for devices that have it, which say so, and in no others."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from pyruntime.cli import main
from pyruntime.compiler.plan import Plan
from pyruntime.compiler.saved import read
from pyruntime.device.null import NullDevice
from pyruntime.ir import DType, TensorType
from pyruntime.kernels import Limits, Target
from pyruntime.onnx.formats.source import open_file
from pyruntime.onnx.importer.model import import_model
from pyruntime.onnx.reader import read_model
from pyruntime.session.aot.compile_ahead import compile_model
from pyruntime.session.run.program import Program
from pyruntime.target.named import profiles, read_target
from tests.compiler.test_forms import TARGETS
from tests.half_models import attention, feeds

HALF = Target(Limits(workgroup_bytes=32768), frozenset({"shader-f16"}))
OFF = frozenset({"half_loads", "attention_half"})
USED = re.compile(r"\bf16\b|unpack2x16float")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "half.onnx"
    onnx.save(attention(), path)
    return path


def planned(target: Target) -> Plan:
    graph = import_model(read_model(attention().SerializeToString())).graph
    program = Program(graph, NullDevice(target), disabled=target.disabled)
    given = {name: TensorType(DType.FLOAT, x.shape) for name, x in feeds().items()}
    stage = asyncio.run(program.prepare(given, ("y",)))
    assert stage is not None
    return stage.executable.plan


def uses(plan: Plan) -> set[str]:
    """What of float16 its shaders use."""
    return {found for text in plan.shaders for found in USED.findall(text)}


def test_plan__device_with_shader_f16__reads_and_keeps_float16() -> None:
    assert uses(planned(HALF)) == {"f16", "unpack2x16float"}
    assert uses(planned(replace(HALF, disabled=frozenset({"half_loads"})))) == {"f16"}
    assert uses(planned(replace(HALF, disabled=frozenset({"attention_half"})))) == {"unpack2x16float"}


@pytest.mark.parametrize("name", TARGETS)
def test_plan__without_the_feature_or_its_variants__is_the_same(name: str) -> None:
    """Nothing else looks at the feature."""
    target = replace(TARGETS[name], limits=replace(TARGETS[name].limits, workgroup_bytes=32768))
    without = planned(replace(target, features=target.features - {"shader-f16"}))
    off = planned(replace(target, features=target.features | {"shader-f16"}, disabled=OFF))
    assert uses(without) == set()
    assert off.shaders == without.shaders
    assert (off.steps, off.arenas, off.params) == (without.steps, without.arenas, without.params)


def test_plan__processor__has_no_use_for_the_feature() -> None:
    assert uses(planned(replace(TARGETS["software"], features=frozenset({"shader-f16"})))) == set()


def test_compile__for_a_device_with_shader_f16__the_file_asks_for_it(model: Path) -> None:
    saved = read(compile_model(model, target=HALF), open_file(model))
    assert saved.target["features"] == ["shader-f16"]
    assert uses(saved.programs[0].plan) == {"f16", "unpack2x16float"}


@pytest.mark.parametrize("name", profiles())
def test_command__profiles__use_what_they_name(name: str, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "half.plan"
    assert main(["compile", str(model), "-o", str(out), "--target", name]) == 0
    saved = read(out.read_bytes(), open_file(model))
    assert ("shader-f16" in saved.target["features"]) == ("shader-f16" in read_target(name).features)
    assert bool(uses(saved.programs[0].plan)) == ("shader-f16" in saved.target["features"])
    if name == "default":
        assert saved.target["features"] == []
