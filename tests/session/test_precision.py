"""The session option `precision: 'float16'`: results, memory, what it refuses, what `explain` says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from pyruntime.cli import main
from pyruntime.compiler.saved import read
from pyruntime.device.null import NullDevice
from pyruntime.device.tensor import DeviceTensor
from pyruntime.errors import InvalidArgument
from pyruntime.ir import Array
from pyruntime.session import InferenceSession, SessionOptions
from pyruntime.session.aot.compile_ahead import compile_model
from tests import float32_models as models
from tests.contrib.decoder import decoder
from tests.desktop import desktop_device, on_target
from tests.half_models import attention
from tests.loop_models import LOOPS, floats
from tests.models import text_model
from tests.open_models import encoder, encoder_feeds, listener, listener_feeds, picture_feeds, unet
from tests.session.doubles import on_device
from tests.window_models import GPU

WEBGPU, CPU = ["WebGpuExecutionProvider"], ["CPUExecutionProvider"]

TOLERANCE = 4e-3
"""Largest difference from float32, relative to the largest output: eight units in the last place of float16."""


def options(precision: str = "float16", /, nodes: Sequence[str] = (), **entries: str) -> SessionOptions:
    made = SessionOptions()
    if precision:
        made.add_session_config_entry("pyruntime.precision", precision)
    if nodes:
        made.add_session_config_entry("pyruntime.float32_nodes", json.dumps(nodes))
    for name, value in entries.items():
        made.add_session_config_entry(f"pyruntime.{name}", value)
    return made


def expected(model: bytes, feeds: dict[str, Array]) -> list[Array]:
    return onnxruntime.InferenceSession(model, providers=CPU).run(None, feeds)  # type: ignore[no-any-return]


def check(session: InferenceSession, model: bytes, feeds: dict[str, Array], tolerance: float = TOLERANCE) -> None:
    for mine, theirs in zip(session.run(None, feeds), expected(model, feeds), strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, 0, tolerance * max(1e-6, np.abs(theirs).max(initial=0)))


MODELS: dict[str, tuple[bytes, list[dict[str, Array]]]] = {
    "bert": (models.bert(), [models.bert_feeds(1, 16), models.bert_feeds(2, 24), models.bert_feeds(1, 40)]),
    "llama": (models.llama(), [models.llama_feeds(1, 16), models.llama_feeds(2, 24)]),
    "loop": (models.heavy_loop(), [{"x": floats(4, 128)}, {"x": floats(9, 128)}]),
    "branches": (models.branches(), [{"c": np.array(c), "x": floats(n, 128)} for c, n in ((True, 4), (False, 5))]),
    "4 bits": (models.blocks4(), [{"x": floats(n, 256)} for n in (4, 1, 40)]),
    "encoder": (encoder(), [encoder_feeds(1, 8), encoder_feeds(2, 20), encoder_feeds(3, 33)]),
    "listener": (listener(), [listener_feeds(1, 8), listener_feeds(2, 20)]),
    "unet": (unet(), [picture_feeds(1, 32, 32), picture_feeds(2, 40, 48)]),
}
"""Models of float32, and feeds of several sizes."""


@pytest.mark.parametrize("name", MODELS)
def test_run__float16_of_gpus_with_shader_f16__is_about_float32(name: str, desktop_gpu: None) -> None:
    assert "shader-f16" in desktop_device().target.features
    model, feeds = MODELS[name]
    session = InferenceSession(model, options(disable="software,fallback_kernels"), WEBGPU)
    for given in feeds:
        check(session, model, given)
    assert "" in (session.explain().precision or {}).values()


@pytest.mark.parametrize("name", MODELS)
def test_run__float16_without_shader_f16__is_about_float32(name: str) -> None:
    with on_target("nvidia") as device:
        assert "shader-f16" not in device.target.features
        model, feeds = MODELS[name]
        session = InferenceSession(model, options(), WEBGPU)
        for given in feeds:
            check(session, model, given)


@pytest.mark.parametrize("name", [n for n in LOOPS if n != "half"])
def test_run__float16_of_loops__is_about_float32(name: str, desktop_gpu: None) -> None:
    text, feeds = LOOPS[name]
    model = text_model(text).SerializeToString()
    session = InferenceSession(model, options(), WEBGPU)
    for length in (3, 5):
        check(session, model, feeds(length))


def test_run__float16_without_optimizations__is_about_float32(desktop_gpu: None) -> None:
    model, feeds = MODELS["llama"]
    made = options()
    made.graph_optimization_level = 0  # type: ignore[assignment]
    check(InferenceSession(model, made, WEBGPU), model, feeds[0])


@contextmanager
def recording() -> Iterator[NullDevice]:
    device = NullDevice(GPU)
    with on_device(device):
        yield device


def bytes_of(session: InferenceSession) -> int:
    """What a session has on its device besides staging memory."""
    return sum(n for kind, n in session.memory_plan.allocated.items() if kind != "staging")


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_memory__transformer__takes_at_most_60_percent_of_float32(name: str) -> None:
    taken = {}
    for precision in ("float32", "float16"):
        with recording():
            session = InferenceSession(MODELS[name][0], options(precision), WEBGPU)
            session.run(None, MODELS[name][1][0])
            taken[precision] = bytes_of(session)
            session.release()
    assert taken["float16"] <= 0.60 * taken["float32"]


def test_memory__weights__none_stays_in_float32() -> None:
    model = models.bert()
    with recording():
        session = InferenceSession(model, options(), WEBGPU)
        session.run(None, MODELS["bert"][1][0])
        (stage,) = session._program.roots  # type: ignore[union-attr]
        plan = stage.executable.plan
        assert sum(c.nbytes for c in plan.constants) + sum(c.nbytes for c in stage.compiled.prologue) < 0.51 * 2108608
        session.release()


def test_dispatches__transformer__are_those_of_float32_and_a_cast() -> None:
    counts = []
    for precision in ("float32", "float16"):
        with recording():
            session = InferenceSession(models.bert(), options(precision), WEBGPU)
            session.run(None, MODELS["bert"][1][0])
            counts.append(session.summary()["dispatches"])
            session.release()
    assert counts[1] <= counts[0] + 1


def test_caches__declared_as_float32__grow_in_place_without_casts() -> None:
    made = decoder(layers=2, size=64, positions=1024)
    kernels: dict[str, list[str]] = {}

    async def text(precision: str) -> None:
        device = NullDevice(GPU)
        with on_device(device):
            session = await InferenceSession.create(made.model, options(precision))
            outputs, caches = [o.name for o in session.get_outputs()], dict[str, Any](made.empty(1))
            past = 0
            for tokens in (300, 1, 1, 1):
                ids = np.ones((1, tokens), np.int64)
                feeds = {"input_ids": ids, "attention_mask": np.ones((1, past + tokens), np.int64), **caches}
                values = await session._run_values(feeds, outputs, None, dict.fromkeys(outputs[1:]))
                caches = dict(zip(caches, (values[n] for n in outputs[1:]), strict=True))
                past += tokens
            assert all(isinstance(c, DeviceTensor) and c.type.dtype.onnx_name == "float" for c in caches.values())
            assert session._program is not None
            kernels[precision] = [c.kernel for c in session._program.roots[-1].executable.plan.commands]
            session.release()

    asyncio.run(text("float32"))
    asyncio.run(text("float16"))
    assert len(kernels["float16"]) <= len(kernels["float32"]) + 2 * 2 + 1  # casts of a token's queries and result


def test_overflow__unseen_values_beyond_65504__are_infinite_and_named_nodes_are_right(desktop_gpu: None) -> None:
    model, feeds = models.overflowing(), {"x": np.ones((1, 128), np.float32)}
    (y,) = InferenceSession(model, options(), WEBGPU).run(None, feeds)
    assert not np.isfinite(y).all()
    session = InferenceSession(model, options(nodes=["first", "second", "third"]), WEBGPU)
    check(session, model, feeds)
    found = session.explain().precision
    assert found == dict.fromkeys(("first", "second", "third"), "the session's options name it")


def test_float32_nodes__node_of_a_body__is_known_by_its_name_there(desktop_gpu: None) -> None:
    model, feeds = MODELS["loop"]
    session = InferenceSession(model, options(nodes=["product"]), WEBGPU)
    check(session, model, feeds[0])
    found = session.explain().precision or {}
    reasons = [why for name, why in found.items() if name.endswith("/product")]
    assert reasons == ["the session's options name it"]


def test_explain__float16__says_what_is_in_which_precision() -> None:
    with recording():
        session = InferenceSession(models.bert(), options(), WEBGPU)
        session.run(None, MODELS["bert"][1][0])
        found = session.explain()
        assert found.precision is not None and list(found.precision.values()).count("") > 20
        assert " in float16, 4 in float32" in str(found) and "positions, masks" in str(found)
        assert "positions, masks" in found.html()
        assert found.to_dict()["precision"] == found.precision
        session.release()


def test_explain__without_the_option__says_nothing_of_precision() -> None:
    with recording():
        session = InferenceSession(models.bert(), options(""), WEBGPU)
        assert session.explain().precision is None and "precision" not in str(session.explain())
        session.release()


def test_float16_file__with_the_option__is_run_as_without() -> None:
    kernels = []
    for precision in ("float32", "float16"):
        with recording():
            session = InferenceSession(attention().SerializeToString(), options(precision), WEBGPU)
            assert session._program is not None
            kernels.append([c.kernel for c in session._program.roots[0].executable.plan.commands])
            session.release()
    assert kernels[0] == kernels[1]


def test_numpy__with_the_option__computes_in_float32_and_says_so() -> None:
    model, feeds = MODELS["bert"]
    session = InferenceSession(model, options(), CPU)
    check(session, model, feeds[0], 1e-5)
    assert any("precision 'float16' has no effect" in text for text in session.summary()["warnings"])


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ({"precision": "half"}, "expected 'float16' or 'float32', got 'half'"),
        ({"precision": "float16", "float32_nodes": "Pow"}, "expected a JSON list of names"),
        ({"precision": "float16", "float32_nodes": '["nowhere"]'}, "the model has no node 'nowhere'"),
        ({"float32_nodes": '["first"]'}, "is not 'float16'"),
    ],
)
def test_options__wrong__are_refused_with_what_is_expected(entries: dict[str, str], match: str) -> None:
    with pytest.raises(InvalidArgument, match=match):
        InferenceSession(models.overflowing(), options("", **entries), CPU)


def test_compile__float16__is_another_plan_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    path.write_bytes(models.overflowing())
    shapes = {"x": [(1, 128)]}
    plain = read(compile_model(path, shapes))
    half = read(compile_model(path, shapes, precision="float16", float32_nodes=["third", "second"]))
    assert plain.options == {}
    assert half.options == {"precision": "float16", "float32_nodes": ["second", "third"]}
    assert (plain.inputs, plain.outputs) == (half.inputs, half.outputs)


def test_command_line__precision__is_that_of_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, plan = tmp_path / "large.onnx", tmp_path / "large.plan"
    path.write_bytes(models.overflowing())
    half = ["--precision", "float16"]
    assert main(["compile", str(path), "--shape", "x=1,128", *half, "-o", str(plan)]) == 0
    assert read(plan.read_bytes()).options["precision"] == "float16"
    assert main(["plan", str(path), *half]) == 0
    assert "Cast" in capsys.readouterr().out
    assert main(["plan", str(path), *half, "--float32-node", "nowhere"]) == 1
    assert "the model has no node 'nowhere'" in capsys.readouterr().err


def test_stored_plans__of_each_precision__are_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, desktop_gpu: None
) -> None:
    monkeypatch.setenv("PYRUNTIME_CACHE", str(tmp_path))
    path, feeds = tmp_path / "bert.onnx", MODELS["bert"][1][0]
    path.write_bytes(models.bert())
    found = []
    for precision in ("float32", "float16", "float32", "float16"):
        session = InferenceSession(str(path), options(precision), WEBGPU)
        found.append(session.run(None, feeds)[0])
        session.release()
    assert len(list((tmp_path / "plans").iterdir())) == 2
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[1], found[3])
    assert not np.array_equal(found[0], found[1])
