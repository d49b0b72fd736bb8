"""Memory in a browser: within the limits however many shapes and runs there are, and none is left where it ends.

tests/mutations takes defences away to see tests here fail.
"""

from __future__ import annotations

import numpy as np

from e2e.harness.python import BrowserPython
from e2e.harness.sessions import SOAK, X, Y, run
from tests.session import models


def test_many_input_shapes__memory_stays_within_the_plans_kept(python_in_browser: BrowserPython) -> None:
    result = run(
        python_in_browser,
        """
        gpu = await open_device()
        before = set(gpu.ledger.live)
        session = await InferenceSession.create(model, options(pyruntime__limits__cached_plans=3))
        right, held = 0, []
        for rows in (*range(1, shapes), 1):
            x = np.full((rows, 4), rows, np.float32)
            (y,) = await session.run_async(None, {"x": x})
            right += bool(np.array_equal(y, 2 * x))
            held.append(more_than(gpu, before))
        plans = len(session._program.roots)
        session.release()
        {"right": right, "plans": plans, "peak": max(held), "first": held[0], "left": more_than(gpu, before)}
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
        before = set(gpu.ledger.live)
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
        left = more_than(gpu, before)
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
        before = set(gpu.ledger.live)
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
        held = more_than(gpu, before)
        (y,) = await other.run_async(None, {"x": x})
        (small,) = await session.run_async(None, {"rows": np.array([1000], np.int64)})
        session.release()
        left = more_than(gpu, before)
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
