"""Never crash, never lie, in a browser: lost devices, device calls that fail, overlapping and cancelled runs.

tests/mutations takes defences away to see tests here fail.
"""

from __future__ import annotations

import numpy as np

from e2e.harness.python import BrowserPython
from e2e.harness.sessions import SOAK, X, Y, run
from tests.session import models


def test_loss__device_destroyed_fifty_times__every_run_answers_right(any_python: BrowserPython) -> None:
    result = run(
        any_python,
        """
        session = await InferenceSession.create(model)
        devices, right = [], 0
        for number in range(losses):
            gpu = session._program.device
            devices.append(gpu)
            gpu.gpu_device.destroy()
            (y,) = await session.run_async(None, {"x": x})
            right += bool(np.array_equal(y, expected))
        distinct = len({id(d) for d in devices})
        devices.append(session._program.device)
        session.release()
        {"right": right, "distinct": distinct, "warnings": len(session._warnings),
         "left": [d.ledger.total for d in devices if d.ledger.total]}
        """,
        model=models.double(),
        x=X,
        expected=Y,
        losses=50 * SOAK,
    )
    assert result == {"right": 50 * SOAK, "distinct": 50 * SOAK, "warnings": 50 * SOAK, "left": []}


def test_loss__while_runs_and_stages_are_in_progress__answers_equal_the_serial_ones(
    python_in_browser: BrowserPython,
) -> None:
    result = run(
        python_in_browser,
        """
        session = await InferenceSession.create(model)
        expected = await session.run_async(None, {"x": x})
        same = 0
        for number in range(6):
            runs = [asyncio.ensure_future(session.run_async(None, {"x": x})) for _ in range(4)]
            for _ in range(number):
                await asyncio.sleep(0)
            session._program.device.gpu_device.destroy()
            for got in await asyncio.gather(*runs):
                same += all(np.array_equal(a, b) for a, b in zip(got, expected))
        gpu = session._program.device
        session.release()
        {"same": same, "left": gpu.ledger.total, "z": expected[1]}
        """,
        model=models.staged(),
        x=np.linspace(-1, 1, 320, dtype=np.float32).reshape(2, 160),
    )
    assert result["same"] == 24
    assert result["left"] == 0
    assert len(result["z"]) > 0


def test_loss__no_adapter_any_more__says_so_and_the_cpu_goes_on(python_in_browser: BrowserPython) -> None:
    result = run(
        python_in_browser,
        """
        from pyruntime.device.webgpu import pyodide as backend
        real = backend.find_adapter
        async def none():
            raise errors.EPFail("WebGPU found no adapter")
        session = await InferenceSession.create(model)
        allowed = await InferenceSession.create(model, options(pyruntime__cpu_after_device_loss=1))
        backend.find_adapter = none
        try:
            session._program.device.gpu_device.destroy()
            try:
                await session.run_async(None, {"x": x})
                said = ""
            except errors.DeviceLost as error:
                said = str(error)
            (automatic,) = await allowed.run_async(None, {"x": x})
            session.set_providers(["CPUExecutionProvider"])
            (asked,) = await session.run_async(None, {"x": x})
        finally:
            backend.find_adapter = real
        (await open_device()).ledger.total
        {"said": said, "automatic": automatic, "asked": asked, "providers": allowed.get_providers()}
        """,
        model=models.double(),
        x=X,
    )
    assert "set_providers" in result["said"] and "no adapter" in result["said"]
    np.testing.assert_array_equal(result["automatic"], Y)
    np.testing.assert_array_equal(result["asked"], Y)
    assert result["providers"] == ["CPUExecutionProvider"]


def test_fault__of_every_call_of_webgpu__is_an_exception_and_frees_everything(any_python: BrowserPython) -> None:
    result = run(
        any_python,
        """
        import js
        outcomes = {}
        for fault in js.faultNames.to_py():
            (await open_device()).close()  # pipelines that are there would not be made again
            gpu = await open_device()
            js.injectFault(fault)
            try:
                session = await InferenceSession.create(model)
                try:
                    await session.run_async(None, {"x": x})
                    outcomes[fault] = "an answer"
                finally:
                    session.release()
            except Exception as error:
                outcomes[fault] = type(error).__name__ + ": " + str(error)
            finally:
                js.restoreFaults()
            outcomes[fault] += f" | {gpu.ledger.total} bytes"
        session = await InferenceSession.create(model)
        (y,) = await session.run_async(None, {"x": x})
        session.release()
        {"outcomes": outcomes, "y": y}
        """,
        model=models.double(("rows", 4)),
        x=X,
    )
    np.testing.assert_array_equal(result["y"], Y)
    assert len(result["outcomes"]) == 16
    for fault, outcome in result["outcomes"].items():
        assert outcome.startswith(("EngineError: ", "OutOfMemory: ")), f"{fault}: {outcome}"
        assert "injected" in outcome, f"{fault}: {outcome}"
        assert outcome.endswith("| 0 bytes"), f"{fault}: {outcome}"


def test_overlapping_runs__of_eight_sessions_while_others_load__equal_the_serial_ones(
    python_in_browser: BrowserPython,
) -> None:
    result = run(
        python_in_browser,
        """
        gpu = await open_device()
        before = set(gpu.ledger.live)
        feeds = {
            "double": {"x": np.arange(8, dtype=np.float32).reshape(2, 4) - 4},
            "staged": {"x": np.linspace(-1, 1, 320, dtype=np.float32).reshape(2, 160)},
            "segmented": {"x": np.arange(12, dtype=np.float32).reshape(3, 2, 2)},
        }
        kinds = (list(feeds) * 3)[:8]
        expected = {}
        for kind in feeds:
            session = await InferenceSession.create(models[kind])
            expected[kind] = [await session.run_async(None, {"x": feeds[kind]["x"] + k}) for k in range(8)]
            session.release()
        sessions = await asyncio.gather(*(InferenceSession.create(models[kind]) for kind in kinds))

        async def once(session, kind, k):
            return kind, k, await session.run_async(None, {"x": feeds[kind]["x"] + k})

        work = [once(s, kind, k) for k in range(8) for s, kind in zip(sessions, kinds)]
        loads = [InferenceSession.create(models[kind]) for kind in kinds]
        done = await asyncio.gather(*work[:32], *loads, *work[32:])
        wrong = []
        for item in done:
            if isinstance(item, InferenceSession):
                item.release()
                continue
            kind, k, got = item
            if not all(np.array_equal(a, b) for a, b in zip(got, expected[kind][k], strict=True)):
                wrong.append((kind, k))
        late = [asyncio.ensure_future(once(s, kind, 0)) for s, kind in zip(sessions, kinds)]
        await asyncio.sleep(0)
        for session in sessions:
            session.release()
        ends = []
        for item in await asyncio.gather(*late, return_exceptions=True):
            if isinstance(item, Exception):
                ends.append(type(item).__name__ + ": " + str(item))
            else:
                kind, k, got = item
                same = all(np.array_equal(a, b) for a, b in zip(got, expected[kind][k], strict=True))
                ends.append("same" if same else f"wrong {kind}")
        {"wrong": wrong, "runs": len(done) - len(loads), "ends": ends, "left": more_than(gpu, before)}
        """,
        models={"double": models.double(), "staged": models.staged(), "segmented": models.segmented()},
    )
    assert result["wrong"] == []
    assert result["runs"] == 64
    assert all(end == "same" or ("Fail" in end and "released" in end) for end in result["ends"]), result["ends"]
    assert result["left"] == 0


def test_error_outside_of_any_run__a_write_refused__is_no_answer_but_a_new_device(
    python_in_browser: BrowserPython,
) -> None:
    """Parameters do not reach the GPU and no scope sees it: without `onuncapturederror` the run answers from zeros."""
    result = run(
        python_in_browser,
        """
        import js
        session = await InferenceSession.create(model)
        gpu = session._program.device
        write, lost = gpu.write, []

        def write_nowhere(*given):
            js.injectFault("write goes nowhere", 1)
            try:
                write(*given)
                lost.append(given)
            finally:
                js.restoreFaults()

        gpu.write = write_nowhere
        (y, z) = await session.run_async(None, {"x": x})
        warned = list(session._warnings)
        expected = await session.run_async(None, {"x": x})
        session.release()
        {"same": np.array_equal(z, expected[1]), "some": len(z), "warned": warned, "lost": len(lost),
         "left": [gpu.ledger.total, (await open_device()).ledger.total]}
        """,
        model=models.staged(),
        x=np.linspace(-1, 1, 320, dtype=np.float32).reshape(2, 160),
    )
    assert result["same"] and result["some"] > 0 and result["lost"] > 0
    assert len(result["warned"]) == 1 and "an error outside of any run" in result["warned"][0]
    assert result["left"] == [0, 0]


def test_cancellation__of_a_load__frees_everything(python_in_browser: BrowserPython) -> None:
    result = run(
        python_in_browser,
        """
        gpu = await open_device()
        before = set(gpu.ledger.live)
        outcomes = []
        for turns in range(0, 24, 3):
            made = SessionOptions()
            load = asyncio.ensure_future(InferenceSession.create(model, made))
            for _ in range(turns):
                await asyncio.sleep(0)
            made.set_load_cancellation_flag(True)
            try:
                (await load).release()
                outcomes.append("loaded")
            except errors.ModelLoadCanceled:
                outcomes.append("cancelled")
            task = asyncio.ensure_future(InferenceSession.create(model))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            try:
                (await task).release()
            except asyncio.CancelledError:
                pass
        session = await InferenceSession.create(model)
        await session.run_async(None, {"x": x})
        session.release()
        for _ in range(500):  # a load that was cancelled frees its memory once the browser has answered
            if not more_than(gpu, before):
                break
            await asyncio.sleep(0.01)
        {"outcomes": outcomes, "left": more_than(gpu, before)}
        """,
        model=models.segmented(),
        x=np.ones((3, 2, 2), np.float32),
    )
    assert "cancelled" in result["outcomes"]
    assert result["left"] == 0
