"""Runs that overlap in the browser, small and large inputs, measured and not, on tensors that others write: each gives
what it gives alone, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from e2e.harness.python import BrowserPython
from tests.session.models import double, segmented

RUNS = """
    import asyncio
    import numpy as np
    from pyruntime import InferenceSession
    from pyruntime.session.run.profiling import Recorder

    session = await InferenceSession.create(model)
    feeds = [{"x": np.random.default_rng(i).standard_normal(shape).astype(np.float32), "s": np.float32([i])}
             for i in range(6)]

    async def one(feed, recorder=None):
        values = await session._run_values(feed, ["y"], None, None, recorder)
        return values["y"].array()

    alone = [await one(feed) for feed in feeds]
    assert len({y.tobytes() for y in alone}) == 6
    wrong = 0
    for turn in range(3):
        order = [feeds[(i + turn) % 6] for i in range(6)]
        done = await asyncio.gather(*(one(feed, Recorder() if i % 3 == turn else None) for i, feed in enumerate(order)))
        wrong += sum(y.tobytes() != alone[(i + turn) % 6].tobytes() for i, y in enumerate(done))
    session.release()
    wrong
"""


def chain(shape: list[Any]) -> bytes:
    """y = a dozen operators on tanh(x) + s that are not fused into one."""
    w = np.random.default_rng(3).standard_normal((shape[-1], shape[-1])).astype(np.float32) / shape[-1] ** 0.5
    nodes = [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("Add", ["t", "s"], ["v0"])]
    for i in range(6):
        nodes.append(helper.make_node("MatMul", [f"v{i}", "w"], [f"m{i}"]))
        nodes.append(helper.make_node("Tanh", [f"m{i}"], [f"v{i + 1}"]))
    nodes.append(helper.make_node("Identity", ["v6"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "chain",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(w, "w")],
    )
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    )


@pytest.mark.parametrize("shape", [[3, 33], [9000, 64]], ids=["small", "in pieces"])
def test_runs__of_one_session_some_of_them_measured__equal_the_serial_ones(
    python_in_browser: BrowserPython, shape: list[int]
) -> None:
    assert python_in_browser(RUNS, model=chain(shape), shape=shape) == 0


OPEN = """
    import asyncio
    import numpy as np
    from pyruntime import InferenceSession

    session = await InferenceSession.create(model)
    rng = np.random.default_rng(4)

    def feed(rows):
        return {"x": rng.standard_normal((rows, 64)).astype(np.float32), "s": rng.standard_normal(1).astype(np.float32)}

    async def one(feed):
        (y,) = await session.run_async(None, feed)
        return y.tobytes()

    for rows in (30, 9000, 50, 9100, 40):
        await one(feed(rows))
    feeds = [feed(rows) for rows in (9000, 200, 9100, 300, 100, 9050)]
    alone = [await one(each) for each in feeds]
    plans = len(session._program.roots)
    wrong = 0
    for _ in range(4):
        done = await asyncio.gather(*(one(each) for each in feeds))
        wrong += sum(a != b for a, b in zip(alone, done))
    session.release()
    [wrong, plans]
"""


def test_runs__of_one_plan_with_large_and_small_inputs__equal_the_serial_ones(python_in_browser: BrowserPython) -> None:
    """Rows are left open: what is small is queued at once, what is large arrives in pieces at the same memory."""
    wrong, plans = python_in_browser(OPEN, model=chain(["rows", 64]))
    assert wrong == 0
    assert plans < 6, "sizes share a plan"


LENT = """
    import asyncio
    import numpy as np
    import pyruntime as ort

    reader, writer = [await ort.InferenceSession.create(m) for m in models]
    first, second = (np.random.default_rng(i).standard_normal((2, 2, 2)).astype(np.float32) for i in (1, 2))
    x, own = [await ort.OrtValue.create(v, "webgpu") for v in (first, second)]

    def run(session, given, to):
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", given)
        binding.bind_ortvalue_output("y", to)
        return session.run_with_iobinding_async(binding)

    async def read():
        y = await ort.OrtValue.create(np.zeros((2, 2, 2), np.float32), "webgpu")
        await run(reader, x, y)
        return await y.numpy_async()

    found = []
    expected = first
    for turn in range(4):
        got, *_ = await asyncio.gather(read(), run(writer, x, x) if turn % 2 else run(writer, own, x))
        found.append(bool(np.array_equal(got, np.maximum(3 * expected, 0))))
        expected = np.maximum(2 * (expected if turn % 2 else second), 0)
        found.append(bool(np.array_equal(await x.numpy_async(), expected)))
        junk = [await ort.OrtValue.create(np.full((2, 2, 2), 7, np.float32), "webgpu") for _ in range(3)]
    found
"""


def test_run__on_a_tensor_that_another_run_writes_meanwhile__reads_what_it_was(
    python_in_browser: BrowserPython,
) -> None:
    """The reader has two segments, with the host between them."""
    models = [segmented(), double((2, 2, 2))]
    assert python_in_browser(LENT, models=models) == [True] * 8


SEVERAL = """
    import asyncio
    import numpy as np
    import pyruntime as ort

    options = ort.SessionOptions()
    options.add_session_config_entry("pyruntime.disable", "dynamic_dimensions")
    session = await ort.InferenceSession.create(model, options)
    feeds = [{"x": np.random.default_rng(i).standard_normal((rows, 64)).astype(np.float32), "s": np.float32([i])}
             for i, rows in enumerate((70, 9000, 300, 5, 12000, 41))]

    async def one(feed):
        return (await session.run_async(["y"], feed))[0]

    alone = [await one(feed) for feed in feeds]
    wrong = 0
    for turn in range(3):
        order = [*feeds[turn:], *feeds[:turn], *feeds[::-1]]
        wanted = [*alone[turn:], *alone[:turn], *alone[::-1]]
        done = await asyncio.gather(*(one(feed) for feed in order))
        wrong += sum(y.tobytes() != w.tobytes() for y, w in zip(done, wanted))
    first = await ort.InferenceSession.create(model, options)
    grown = await asyncio.gather(*(first.run_async(["y"], feed) for feed in feeds))
    wrong += sum(y.tobytes() != w.tobytes() for (y,), w in zip(grown, alone))
    roots = session._program.roots
    held = session._program.cache.arenas.nbytes, max(sum(s.executable.plan.arenas) for s in roots), len(roots)
    session.release()
    first.release()
    [wrong, *held]
"""


def test_runs__of_several_plans_in_the_same_memory__equal_the_serial_ones(python_in_browser: BrowserPython) -> None:
    """Small and large inputs, the memory growing while runs are under way."""
    wrong, held, largest, plans = python_in_browser(SEVERAL, model=chain(["rows", 64]))
    assert wrong == 0
    assert held == largest and plans == 6


MANY = """
    import asyncio
    import numpy as np
    import pyruntime as ort
    from pyruntime.session.environment import device

    gpu = await device()
    recorded = gpu._recorded

    async def late(accepted):
        await asyncio.sleep(0.2)  # so that all runs have begun before the first is accepted
        return await accepted

    gpu._recorded = lambda made, unchecked: recorded(made, [asyncio.ensure_future(late(each)) for each in unchecked])
    session = await ort.InferenceSession.create(model)
    feeds = [np.full((3, 4), i, np.float32) for i in range(20)]
    outputs = [await ort.OrtValue.create(np.zeros((3, 4), np.float32), "webgpu") for _ in feeds]

    async def one(feed, y):
        binding = session.io_binding()
        binding.bind_cpu_input("x", feed)
        binding.bind_ortvalue_output("y", y)
        await session.run_with_iobinding_async(binding)
        return await y.numpy_async()

    done = await asyncio.gather(*(one(*each) for each in zip(feeds, outputs)))
    del gpu._recorded
    [bool(np.array_equal(y, 2 * x)) for x, y in zip(feeds, done)]
"""


def test_runs__with_more_sets_of_buffers_than_are_kept__are_all_right(python_in_browser: BrowserPython) -> None:
    """Each run binds another output: the recording of the first is dropped while the GPU has not yet accepted it."""
    assert python_in_browser(MANY, model=double()) == [True] * 20
