"""Never crash, never lie, in a browser: lost devices, device calls that fail, bad models, overlapping runs, limits.

tests/mutations takes defences away to see tests here fail.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from e2e.harness.python import BrowserPython
from tests.bad_models import test_damage
from tests.bad_models.corpus import cases
from tests.bad_models.damage import Damaged, damaged
from tests.session import models
from tests.session.doubles import FaultyDevice, on_device

X = np.array([[1, -2, 3, -4]], np.float32)
Y = np.maximum(2 * X, 0)
SOAK = int(os.environ.get("PYRUNTIME_SOAK", "1"))

PRELUDE = """
import asyncio, warnings
import numpy as np
import pyruntime
from pyruntime import errors
from pyruntime.session import InferenceSession, RunOptions, SessionOptions
from pyruntime.session.environment import device as open_device
warnings.simplefilter("ignore")

def options(**entries):
    made = SessionOptions()
    for name, value in entries.items():
        made.add_session_config_entry(name.replace("__", "."), str(value))
    return made
"""


def run(python: BrowserPython, source: str, **variables: Any) -> Any:
    import textwrap

    return python(PRELUDE + textwrap.dedent(source), **variables)


def test_loss__device_destroyed_fifty_times__every_run_answers_right(any_python: BrowserPython) -> None:
    result = run(
        any_python,
        """
        session = await InferenceSession.create(model)
        devices, right = [], 0
        for number in range(losses):
            gpu = session._program.device
            devices.append(gpu)
            gpu.device.destroy()
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
            session._program.device.device.destroy()
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
        from pyruntime.device import pyodide as backend
        real = backend.find_adapter
        async def none():
            raise errors.EPFail("WebGPU found no adapter")
        session = await InferenceSession.create(model)
        allowed = await InferenceSession.create(model, options(pyruntime__cpu_after_device_loss=1))
        backend.find_adapter = none
        try:
            session._program.device.device.destroy()
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


def test_bad_models__in_one_batch__raise_what_they_name_and_the_next_good_model_runs(
    python_in_browser: BrowserPython,
) -> None:
    batch = [
        {
            "name": c.name,
            "data": c.data,
            "feeds": c.feeds,
            "files": c.files,
            "limits": {f"pyruntime.limits.{k}": str(v) for k, v in c.limits.items()},
        }
        for c in cases().values()
        if not c.host_only
    ]
    result = run(
        python_in_browser,
        """
        import time
        outcomes = {}
        gpu = await open_device()
        before = gpu.ledger.total
        for case in batch:
            made = SessionOptions()
            for key, value in case["limits"].items():
                made.add_session_config_entry(key, value)
            made.external_files.update(case["files"])
            began = time.perf_counter()
            try:
                session = await InferenceSession.create(case["data"], made)
                try:
                    await session.run_async(None, case["feeds"])
                    outcome = "an answer", ""
                finally:
                    session.release()
            except Exception as error:
                outcome = type(error).__name__, str(error)
            outcomes[case["name"]] = [*outcome, time.perf_counter() - began, gpu.ledger.total - before]
        session = await InferenceSession.create(good)
        (y,) = await session.run_async(None, {"x": x})
        session.release()
        {"outcomes": outcomes, "y": y}
        """,
        batch=batch,
        good=models.double(),
        x=X,
    )
    np.testing.assert_array_equal(result["y"], Y)
    wrong = {}
    for name, (error, message, seconds, left) in result["outcomes"].items():
        case = cases()[name]
        if error != case.error or case.says not in message or "bug of pyruntime" in message or seconds > 2 or left:
            wrong[name] = error, message[:200], seconds, left
    assert not wrong


def _native_outcome(case: Damaged) -> str:
    with on_device(FaultyDevice()):
        return asyncio.run(test_damage.outcome(case))


def test_damaged_models__at_structural_boundaries__end_as_natively_and_the_next_good_model_runs(
    python_in_browser: BrowserPython,
) -> None:
    """A sample of tests/bad_models/damage.py; all of it with PYRUNTIME_SOAK."""
    batch = list(damaged())[:: 1 if SOAK > 1 else 23]
    with ThreadPoolExecutor(1) as thread:  # Playwright's event loop runs in this one
        native = thread.submit(lambda: {case.name: _native_outcome(case) for case in batch}).result()
    result = run(
        python_in_browser,
        """
        import time
        outcomes = {}
        gpu = await open_device()
        before = gpu.ledger.total
        for name, data, shape in batch:
            made = SessionOptions()
            made.limits.node_bytes = made.limits.gpu_bytes = 1 << 22
            made.limits.loop_trips = 1000
            began = time.perf_counter()
            try:
                session = await InferenceSession.create(data, made)
                try:
                    await session.run_async(None, {"x": np.ones(shape, np.float32)})
                    outcome = "an answer", ""
                finally:
                    session.release()
            except Exception as error:
                outcome = type(error).__name__, str(error)
            outcomes[name] = [*outcome, time.perf_counter() - began, gpu.ledger.total - before]
        session = await InferenceSession.create(good)
        (y,) = await session.run_async(None, {"x": x})
        session.release()
        {"outcomes": outcomes, "y": y}
        """,
        batch=[[case.name, case.data, list(case.shape)] for case in batch],
        good=models.double(),
        x=X,
    )
    np.testing.assert_array_equal(result["y"], Y)
    wrong = {
        name: (native[name], error, message[:200], seconds, left)
        for name, (error, message, seconds, left) in result["outcomes"].items()
        if error != native[name] or "bug of pyruntime" in message or seconds > 2 or left
    }
    assert not wrong
    assert len(set(native.values())) >= 4


def test_overlapping_runs__of_eight_sessions_while_others_load__equal_the_serial_ones(
    python_in_browser: BrowserPython,
) -> None:
    result = run(
        python_in_browser,
        """
        gpu = await open_device()
        before = gpu.ledger.total
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
        {"wrong": wrong, "runs": len(done) - len(loads), "ends": ends, "left": gpu.ledger.total - before}
        """,
        models={"double": models.double(), "staged": models.staged(), "segmented": models.segmented()},
    )
    assert result["wrong"] == []
    assert result["runs"] == 64
    assert all(end == "same" or ("Fail" in end and "released" in end) for end in result["ends"]), result["ends"]
    assert result["left"] == 0


def test_many_input_shapes__memory_stays_within_the_plans_kept(python_in_browser: BrowserPython) -> None:
    result = run(
        python_in_browser,
        """
        gpu = await open_device()
        before = gpu.ledger.total
        session = await InferenceSession.create(model, options(pyruntime__limits__cached_plans=3))
        right, held = 0, []
        for rows in (*range(1, shapes), 1):
            x = np.full((rows, 4), rows, np.float32)
            (y,) = await session.run_async(None, {"x": x})
            right += bool(np.array_equal(y, 2 * x))
            held.append(gpu.ledger.total - before)
        plans = len(session._program.roots)
        session.release()
        {"right": right, "plans": plans, "peak": max(held), "first": held[0], "left": gpu.ledger.total - before}
        """,
        shapes=25 * SOAK,
        model=models.double(),
    )
    assert result["right"] == 25 * SOAK
    assert result["plans"] == 3
    assert result["peak"] <= 3 * (result["first"] + 4096)
    assert result["left"] == 0


def test_out_of_memory__predicted__refuses_with_numbers_and_others_go_on(python_in_browser: BrowserPython) -> None:
    result = run(
        python_in_browser,
        """
        from pyruntime.ir import DType, TensorType
        gpu = await open_device()
        other = await InferenceSession.create(model)
        before = gpu.ledger.total
        said = []
        session = await InferenceSession.create(model, options(pyruntime__limits__gpu_bytes=1000))
        limit = gpu.target.limits.buffer_bytes
        for work in (
            lambda: session.run_async(None, {"x": np.zeros((1000, 4), np.float32)}),
            lambda: other._program.prepare({"x": TensorType(DType.FLOAT, (limit // 4, 4))}, ["y"]),
        ):
            try:
                await work()
                said.append("an answer")
            except errors.OutOfMemory as error:
                said.append(str(error))
        session.release()
        (y,) = await other.run_async(None, {"x": x})
        left = gpu.ledger.total - before
        other.release()
        {"said": said, "y": y, "left": left}
        """,
        model=models.double(),
        x=X,
    )
    np.testing.assert_array_equal(result["y"], Y)
    assert "`gpu_bytes` is 1,000" in result["said"][0]
    assert "`node_bytes`" in result["said"][1]  # no binding is that large: the host would have to
    assert result["left"] <= 512  # the plan of `other`


def test_out_of_memory__of_the_device_itself__leaves_nothing_and_others_go_on(python_in_browser: BrowserPython) -> None:
    """Nothing is injected: SwiftShader refuses one allocation of what its limits allow, through the error scope.

    Buffers as large as the device says it allows, until it refuses one, and a model whose plan needs such a buffer;
    where a GPU has that much the model answers.
    """
    result = run(
        python_in_browser,
        """
        gpu = await open_device()
        other = await InferenceSession.create(model)
        await other.run_async(None, {"x": x})
        before = gpu.ledger.total
        limit = gpu.target.limits.buffer_bytes
        said, made = [], []
        try:
            for number in range(64):
                made += await gpu.allocate([256, limit, 256], "a test")
            said.append("granted")
        except errors.OutOfMemory as error:
            said.append(str(error))
        finally:
            gpu.free(made)
        session = await InferenceSession.create(large, options(pyruntime__limits__gpu_bytes=4 * limit))
        try:
            rows = np.array([gpu.target.limits.binding_bytes // 4], np.int64)
            (total,) = await session.run_async(None, {"rows": rows})
            said.append(f"an answer: {total}")
        except errors.OutOfMemory as error:
            said.append(str(error))
        held = gpu.ledger.total - before
        (y,) = await other.run_async(None, {"x": x})
        (small,) = await session.run_async(None, {"rows": np.array([1000], np.int64)})
        session.release()
        left = gpu.ledger.total - before
        other.release()
        {"said": said, "y": y, "small": small, "held": held, "left": left, "gpu": gpu.info.architecture}
        """,
        model=models.double(),
        large=models.counted(),
        x=X,
    )
    np.testing.assert_array_equal(result["y"], Y)
    np.testing.assert_array_equal(result["small"], 2000)
    assert "the device refused" in result["said"][0] and "bytes were in use" in result["said"][0]
    if result["gpu"] == "swiftshader":
        assert "the device refused" in result["said"][1] and "OUT_OF_DEVICE_MEMORY" in result["said"][1]
        assert result["held"] <= 4096
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
        before = gpu.ledger.total
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
            await asyncio.sleep(0.05)
        session = await InferenceSession.create(model)
        await session.run_async(None, {"x": x})
        session.release()
        {"outcomes": outcomes, "left": gpu.ledger.total - before}
        """,
        model=models.segmented(),
        x=np.ones((3, 2, 2), np.float32),
    )
    assert "cancelled" in result["outcomes"]
    assert result["left"] == 0


def test_many_runs__memory_of_gpu_and_python_stays_flat(python_in_browser: BrowserPython) -> None:
    """After warm-up: the GPU's ledger to the byte, WebAssembly's memory and the number of Python objects within 2 %."""
    result = run(
        python_in_browser,
        """
        import gc
        import pyodide_js
        gpu = await open_device()
        session = await InferenceSession.create(model)

        async def measured(count):
            for _ in range(count):
                (y,) = await session.run_async(None, {"x": x})
            gc.collect()
            return [gpu.ledger.total, int(pyodide_js._module.HEAP8.length), len(gc.get_objects())], y

        before, _ = await measured(100)
        after, y = await measured(runs)
        session.release()
        {"before": before, "after": after, "y": y}
        """,
        model=models.double(),
        x=X,
        runs=1000 * SOAK,
    )
    np.testing.assert_array_equal(result["y"], Y)
    (gpu, heap, objects), (gpu_after, heap_after, objects_after) = result["before"], result["after"]
    assert gpu_after == gpu
    assert heap_after <= 1.02 * heap
    assert objects_after <= 1.02 * objects
