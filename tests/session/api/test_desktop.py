"""Sessions on the desktop's GPU: threads, event loops, tensors that stay, loss, other processes."""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import pickle
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import pyruntime as ort
from pyruntime.session import environment
from tests.desktop import desktop_device

GPU = "WebGpuExecutionProvider"
RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.standard_normal((64, 70), np.float32)


def model() -> bytes:
    """y = softmax(relu(x @ w)), x: [N, 64]."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["a"]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("Softmax", ["b"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 70])],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    )


MODEL = model()


def made(rows: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((rows, 64), np.float32)


def expected(x: Any) -> Any:
    a = np.maximum(x @ WEIGHT, 0)
    e = np.exp(a - a.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def close(got: Any, x: Any) -> None:
    np.testing.assert_allclose(got, expected(x), rtol=1e-4, atol=1e-6)


@pytest.fixture
def session(desktop_gpu: None) -> ort.InferenceSession:
    session = ort.InferenceSession(MODEL)
    assert session.get_providers() == [GPU, "CPUExecutionProvider"]
    return session


def test_run__several_sizes__expected_values(session: ort.InferenceSession) -> None:
    for rows in (1, 5, 3, 64, 1):
        close(session.run(None, {"x": made(rows)})[0], made(rows))


def test_run__outputs__have_memory_of_their_own(session: ort.InferenceSession) -> None:
    (first,) = session.run(None, {"x": made(4)})
    before = first.copy()
    (second,) = session.run(None, {"x": made(4, 1)})
    second[:] = 0
    np.testing.assert_array_equal(first, before)
    assert first.flags.writeable


def test_run__several_threads__each_gets_its_own_values(session: ort.InferenceSession) -> None:
    feeds = [made(n % 7 + 1, n) for n in range(30)]
    with ThreadPoolExecutor(6) as threads:
        for x, (y,) in zip(feeds, threads.map(lambda x: session.run(None, {"x": x}), feeds), strict=True):
            close(y, x)


def test_sessions__made_and_released_in_threads__leave_no_memory(session: ort.InferenceSession) -> None:
    device = desktop_device()
    gc.collect()
    held = dict(device.ledger.live)

    def once(seed: int) -> Any:
        other = ort.InferenceSession(MODEL)
        result = other.run(None, {"x": made(3, seed)})[0]
        other.release()
        return result

    with ThreadPoolExecutor(4) as threads:
        for seed, y in enumerate(threads.map(once, range(8))):
            close(y, made(3, seed))
    gc.collect()
    assert dict(device.ledger.live) == held


def test_session__collected_in_another_thread__frees_its_memory(desktop_gpu: None) -> None:
    device = desktop_device()
    gc.collect()
    held = dict(device.ledger.live)
    sessions = [ort.InferenceSession(MODEL)]
    sessions[0].run(None, {"x": made(2)})
    with ThreadPoolExecutor(1) as threads:
        threads.submit(sessions.clear).result()
        threads.submit(gc.collect).result()
    assert dict(device.ledger.live) == held


def test_event_loop__synchronous_and_awaited_runs__both_work(session: ort.InferenceSession) -> None:
    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        close(session.run(None, {"x": made(3)})[0], made(3))
        before = ticks
        feeds = [made(n + 1, n) for n in range(5)]
        for x, (y,) in zip(
            feeds, await asyncio.gather(*(session.run_async(None, {"x": x}) for x in feeds)), strict=True
        ):
            close(y, x)
        assert ticks > before, "the loop goes on meanwhile"
        other = await ort.InferenceSession.create(MODEL)
        close((await other.run_async(None, {"x": made(2)}))[0], made(2))
        ticking.cancel()

    asyncio.run(main())
    asyncio.run(main())


def test_run__terminated_before_and_over_its_time__ends(session: ort.InferenceSession) -> None:
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(ort.Fail, match="terminate"):
        session.run(None, {"x": made(1)}, options)
    limited = ort.SessionOptions()
    limited.limits.run_seconds = 1e-9
    with pytest.raises(ort.Fail, match="run_seconds"):
        ort.InferenceSession(MODEL, limited).run(None, {"x": made(1)})
    close(session.run(None, {"x": made(1)})[0], made(1))


def test_iobinding__outputs_on_the_gpu__stay_there(session: ort.InferenceSession) -> None:
    binding = session.io_binding()
    binding.bind_cpu_input("x", made(4))
    binding.bind_output("y", "webgpu")
    session.run_with_iobinding(binding)
    (value,) = binding.get_outputs()
    assert value.device_name() == "webgpu"
    close(value.numpy(), made(4))
    kept = ort.OrtValue.ortvalue_from_shape_and_type([4, 70], np.float32, "webgpu")
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(made(4, 1), "webgpu"))
    binding.bind_ortvalue_output("y", kept)
    session.run_with_iobinding(binding)
    close(kept.numpy(), made(4, 1))


def test_gpu_run__own_kernel__has_bounds_checks(desktop_gpu: None) -> None:
    x = ort.OrtValue.ortvalue_from_numpy(np.arange(64, dtype=np.float32), "webgpu")
    y = ort.OrtValue.ortvalue_from_shape_and_type([64], np.float32, "webgpu")
    wgsl = """@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
var<workgroup> shared_x: array<f32, 64>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) i: u32) {
  shared_x[i] = x[i];
  workgroupBarrier();
  y[i] = shared_x[min(63u, i * 1000000u)] * 2.0;
  if (i > 200u) { shared_x[i * 4096u] = 1.0; }
}"""
    ort.gpu.run(wgsl, [x, y], (1,))
    assert y.numpy()[:2].tolist() == [0, 126]
    with pytest.raises(ort.EngineError, match="unknown identifier"):
        ort.gpu.run(wgsl.replace("* 2.0", "* two"), [x, y], (1,))


def test_custom_op__wgsl__runs_on_the_gpu(desktop_gpu: None) -> None:
    @ort.custom_op("desktop.test", "Swish")
    class Swish(ort.Op):
        wgsl = "x / (1.0 + exp(-x))"

    graph = helper.make_graph(
        [helper.make_node("Swish", ["x"], ["y"], domain="desktop.test")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("desktop.test", 1)]
    session = ort.InferenceSession(helper.make_model(graph, opset_imports=opsets, ir_version=9))
    x = made(3)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x / (1 + np.exp(-x)), rtol=1e-5, atol=1e-6)
    (kernel,) = session.explain().kernels
    assert kernel.wgsl.rstrip().endswith("// custom kernel"), "it has bounds checks"
    del Swish


def test_destroyed_device__sessions__go_on_with_another_one(session: ort.InferenceSession) -> None:
    close(session.run(None, {"x": made(2)})[0], made(2))
    value = ort.OrtValue.ortvalue_from_numpy(made(2), "webgpu")
    ort.gpu.device.destroy()
    with pytest.warns(RuntimeWarning, match="the GPU device was lost .destroyed"):
        close(session.run(None, {"x": made(2)})[0], made(2))
    with pytest.raises(ort.DeviceLost, match="input 'x' was on a GPU device that was lost"):
        session.run(None, {"x": value})


def test_profile_tune_and_explain__on_the_gpu__tell_of_its_kernels(session: ort.InferenceSession) -> None:
    profile = session.profile({"x": made(4)}, 2)
    assert "GPU timestamps" in str(profile)
    session.tune()
    assert {node["placement"] for node in session.summary()["nodes"]} == {"gpu"}
    assert session.summary()["adapter"] == desktop_device().info.names
    assert "matmul" in session.explain()._repr_html_()


def test_provider_options__adapter__chooses_without_the_environment(
    desktop_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYRUNTIME_ADAPTER")
    if ort.get_available_providers() != ["CPUExecutionProvider"]:
        pytest.skip("this machine has a GPU")
    assert [a.kind for a in ort.adapters()] == ["software"]
    chosen = ort.InferenceSession(MODEL, providers=[(GPU, {"adapter": "software"})])
    assert chosen.get_provider_options()[GPU] == {"adapter": "software"}
    close(chosen.run(None, {"x": made(2)})[0], made(2))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        other = ort.InferenceSession(MODEL, providers=[(GPU, {"adapter": "nothing"})])
    assert other.get_providers() == ["CPUExecutionProvider"]
    assert any("not in available provider names" in str(w.message) for w in said)


def test_providers__cpu_alone__looks_for_no_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(*_: object) -> str:
        raise AssertionError("an adapter was looked for")

    monkeypatch.setattr(environment, "_missing_adapter", looked)
    monkeypatch.setattr(environment, "_why_not", looked)
    session = ort.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]
    close(session.run(None, {"x": made(2)})[0], made(2))


def test_providers__switched_off__no_warning_and_its_name_in_the_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PYRUNTIME_WEBGPU", "off")
    environment._missing_adapter.cache_clear()
    with caplog.at_level(logging.DEBUG):
        assert ort.get_available_providers() == ["CPUExecutionProvider"]
    records = [r for r in caplog.records if "models run on" in r.message]
    assert records and {r.levelno for r in records} == {logging.INFO}
    with pytest.raises(ort.EPFail, match="PYRUNTIME_WEBGPU is 'off'"):
        ort.adapters()


def test_pickle__bytes_and_path__load_the_model_again(session: ort.InferenceSession, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(MODEL)
    options = ort.SessionOptions()
    options.add_session_config_entry("pyruntime.rates", "assumed")
    for given in (session, ort.InferenceSession(str(path), options)):
        sent = pickle.dumps(given)
        assert (len(sent) < len(MODEL)) == (given is not session)
        again = pickle.loads(sent)
        assert again.get_providers() == given.get_providers()
        assert again.get_session_options().config_entries == given.get_session_options().config_entries
        close(again.run(None, {"x": made(2)})[0], made(2))
    session.release()
    with pytest.raises(ort.Fail, match="released"):
        pickle.dumps(session)


def _in_process(session: ort.InferenceSession, seed: int) -> tuple[str, Any]:
    return session.get_providers()[0], session.run(None, {"x": made(2, seed)})[0]


def test_processes__session_sent_to_them__runs_there(session: ort.InferenceSession) -> None:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as processes:
        provider, y = processes.submit(_in_process, session, 3).result(timeout=300)
    assert provider == GPU
    close(y, made(2, 3))


def _in_fork(results: Any) -> None:
    said: list[str] = []
    try:
        session = ort.InferenceSession(MODEL)
        said += [session.get_providers()[0], *session.summary()["warnings"]]
        close(session.run(None, {"x": made(2)})[0], made(2))
    finally:
        results.put(said)


def test_forked_process__new_sessions__run_on_numpy_and_say_why(session: ort.InferenceSession) -> None:
    session.run(None, {"x": made(2)})
    fork = multiprocessing.get_context("fork")
    results = fork.SimpleQueue()
    process = fork.Process(target=_in_fork, args=(results,))
    process.start()
    provider, warning = results.get()
    process.join(60)
    assert provider == "CPUExecutionProvider"
    assert "forked from one that uses the GPU" in warning
    close(session.run(None, {"x": made(2)})[0], made(2))
