"""Plans of earlier processes, in the folder of PYRUNTIME_CACHE."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pyruntime as ort
from pyruntime.compiler.compile import Compiler
from pyruntime.device.base import Write
from pyruntime.device.desktop.device import DesktopDevice
from pyruntime.session.run import prologue
from tests.desktop import desktop_device

DIGITS = Path(__file__).parents[3] / "models" / "digits.onnx"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, desktop_gpu: None) -> Path:
    monkeypatch.setenv("PYRUNTIME_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests that were compiled."""
    seen: list[Any] = []
    compile_ = Compiler.compile

    def noted(self: Compiler, request: Any) -> Any:
        seen.append(request)
        return compile_(self, request)

    monkeypatch.setattr(Compiler, "compile", noted)
    return seen


def image(rows: int) -> dict[str, Any]:
    return {"image": np.random.default_rng(rows).random((rows, 1, 16, 16), np.float32)}


def test_second_session__same_model__plans_nothing_and_gives_the_same_bits(folder: Path, compiled: list[Any]) -> None:
    path = str(DIGITS)
    first = ort.InferenceSession(path).run(None, image(2))
    assert len(compiled) == 1 and len(list((folder / "plans").iterdir())) == 1
    session = ort.InferenceSession(path)
    for mine, theirs in zip(session.run(None, image(2)), first, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert len(compiled) == 1
    assert {n["placement"] for n in session.summary()["nodes"]} <= {"gpu", "none"}
    session.run(None, image(5))
    assert len(compiled) == 2, "another size is another plan"


def test_second_session__other_bytes_options_or_file__plans_again(
    folder: Path, compiled: list[Any], tmp_path: Path
) -> None:
    data = DIGITS.read_bytes()
    ort.InferenceSession(data).run(None, image(1))
    ort.InferenceSession(data).run(None, image(1))
    assert len(compiled) == 1
    options = ort.SessionOptions()
    options.add_session_config_entry("pyruntime.disable", "software")
    ort.InferenceSession(data, options).run(None, image(1))
    assert len(compiled) == 2
    model = onnx.load(DIGITS)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    ort.InferenceSession(str(path)).run(None, image(1))
    os.utime(path, (1, 1))
    ort.InferenceSession(str(path)).run(None, image(1))
    assert len(compiled) == 4


def test_damaged_file__is_planned_anew_and_replaced(folder: Path, compiled: list[Any]) -> None:
    data = DIGITS.read_bytes()
    ort.InferenceSession(data).run(None, image(1))
    (file,) = (folder / "plans").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    ort.InferenceSession(data).run(None, image(1))
    ort.InferenceSession(data).run(None, image(1))
    assert len(compiled) == 2


def test_plans_for_values__each_is_stored(folder: Path, compiled: list[Any]) -> None:
    graph = helper.make_graph(
        [helper.make_node("Tile", ["x", "n"], ["t"]), helper.make_node("Sin", ["t"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]),
            helper.make_tensor_value_info("n", TensorProto.INT64, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    x = np.linspace(0, 1, 4, dtype=np.float32)
    for _ in range(2):
        for n in (2, 3):
            session = ort.InferenceSession(data)
            (y,) = session.run(None, {"x": x, "n": np.array([n])})
            np.testing.assert_allclose(y, np.sin(np.tile(x, n)), rtol=1e-5, atol=1e-6)
    planned = [r for r in compiled if not r.early]
    assert len(planned) == 2


def test_plans_with_dynamic_sizes__are_stored(folder: Path, compiled: list[Any]) -> None:
    weight = np.random.default_rng(0).standard_normal((16, 16), np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Shape", ["x"], ["shape"]),
            helper.make_node("Expand", ["row", "shape"], ["rows"]),
            helper.make_node("MatMul", ["x", "w"], ["t"]),
            helper.make_node("Add", ["t", "rows"], ["y"]),
        ],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", 16]),
            helper.make_tensor_value_info("row", TensorProto.FLOAT, [1, 1, 16]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    random = np.random.default_rng(1)
    counts = []
    for _ in range(3):
        session = ort.InferenceSession(data)
        for batch, length in ((2, 3), (2, 7), (2, 6), (3, 5), (4, 100), (2, 90)):
            feeds = {"x": random.random((batch, length, 16), np.float32), "row": random.random((1, 1, 16), np.float32)}
            (y,) = session.run(None, feeds)
            np.testing.assert_allclose(y, feeds["x"] @ weight + feeds["row"], rtol=1e-4, atol=1e-4)
        counts.append(len(compiled))
    assert any(request.sizes is not None for request in compiled)
    assert counts == [counts[0]] * 3


def test_external_weights__are_read_from_their_file(folder: Path, compiled: list[Any], tmp_path: Path) -> None:
    weight = np.random.default_rng(0).standard_normal((64, 512), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 512])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin")
    x = np.random.default_rng(1).standard_normal((3, 64), np.float32)
    for _ in range(2):
        (y,) = ort.InferenceSession(str(path)).run(None, {"x": x})
        np.testing.assert_allclose(y, x @ weight, rtol=1e-4, atol=1e-4)
    assert len(compiled) == 1
    (file,) = (folder / "plans").iterdir()
    assert file.stat().st_size < weight.nbytes // 4


def test_second_session__computed_constants__waits_for_the_plan_s_pipelines_last(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pipelines of constants compile first; all weights are uploaded before anything waits for the plan's pipelines."""
    random = np.random.default_rng(0)
    weights = {name: random.standard_normal((256, 256), np.float32) for name in "abcd"}
    graph = helper.make_graph(
        [
            helper.make_node("Mul", ["a", "b"], ["ab"]),
            helper.make_node("Mul", ["c", "d"], ["cd"]),
            helper.make_node("MatMul", ["x", "ab"], ["t"]),
            helper.make_node("MatMul", ["t", "cd"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 256])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    x = random.standard_normal((3, 256), np.float32)
    monkeypatch.setattr(prologue, "LEAST_TOGETHER", 1)
    ort.InferenceSession(data).run(None, {"x": x})
    device, log = desktop_device(), list[tuple[str, str]]()
    ask, compile_, upload = device._pipelines.ask, DesktopDevice.compile, DesktopDevice.upload

    def asked(source: str) -> None:
        log.append(("ask", source))
        ask(source)

    async def compiled(self: DesktopDevice, sources: Sequence[str]) -> None:
        await compile_(self, sources)
        log.extend(("compiled", source) for source in sources)

    async def uploaded(self: DesktopDevice, writes: Sequence[Write]) -> None:
        log.append(("upload", ""))
        await upload(self, writes)

    monkeypatch.setattr(device._pipelines, "ask", asked)
    monkeypatch.setattr(DesktopDevice, "compile", compiled)
    monkeypatch.setattr(DesktopDevice, "upload", uploaded)
    session = ort.InferenceSession(data)
    expected = x @ (weights["a"] * weights["b"]) @ (weights["c"] * weights["d"])
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-3, atol=1e-2)
    done = [source for what, source in log if what == "compiled"]
    assert done[0] == done[1] != done[2], "two constants are computed, one at a time"
    assert log[0] == ("ask", done[0])
    last_upload = max(place for place, (what, _) in enumerate(log) if what == "upload")
    assert log.index(("compiled", done[2])) > last_upload > log.index(("ask", done[2]))
