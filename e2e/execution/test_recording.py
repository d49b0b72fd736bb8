"""What Python says to JavaScript while a session is made: as many calls for a long plan as for a short one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from e2e.harness.python import BrowserPython

COUNTED = """
import sys, numpy as np, pyruntime as ort
from contextlib import contextmanager
from pyodide import ffi
from pyruntime.device.base import Slot

TOOL = 4
converting = [ffi.to_js, ffi.create_proxy]

@contextmanager
def counted(calls):
    '''Calls of JavaScript's functions, and of Pyodide's conversions, are appended by their names.'''
    def called(code, offset, callable, first):
        if isinstance(callable, ffi.JsProxy):
            calls.append(str(getattr(callable, "name", callable)))
        elif type(callable).__name__ == "JsMethodCallSingleton":  # called at once: no proxy is made
            calls.append("a method")
        elif any(callable is each for each in converting):  # not all callables hash: a WeakSet's callbacks do not
            calls.append(callable.__name__)
    sys.monitoring.use_tool_id(TOOL, "counted")
    sys.monitoring.register_callback(TOOL, sys.monitoring.events.CALL, called)
    sys.monitoring.set_events(TOOL, sys.monitoring.events.CALL)
    try:
        yield
    finally:
        sys.monitoring.set_events(TOOL, 0)
        sys.monitoring.free_tool_id(TOOL)
"""


def chain(length: int) -> np.ndarray[Any, Any]:
    """The bytes of a model of `length` dispatches, alternating products and softmaxes."""
    nodes, x = [], "x"
    for i in range(length // 2):
        nodes += [
            helper.make_node("MatMul", [x, "w"], [f"h{i}"]),
            helper.make_node("Softmax", [f"h{i}"], [y := f"s{i}"]),
        ]
        x = y
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in ("x", x)]
    w = numpy_helper.from_array(np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32), "w")
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [w])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return np.frombuffer(made.SerializeToString(), np.uint8)


@pytest.mark.parametrize("where", ["host", "gpu"])
def test_recording__of_150_dispatches__takes_the_calls_of_one_of_10(
    python_in_browser: BrowserPython, where: str
) -> None:
    """`where`: inputs and outputs on the host; or on the GPU, in memory that each run brings."""
    got = python_in_browser(
        COUNTED
        + """
x = np.ones((4, 8), np.float32)
found = []
for model in models:
    session = await ort.InferenceSession.create(bytes(model), None, ["WebGpuExecutionProvider"])
    if where == "gpu":
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x, "webgpu"))
        binding.bind_output(session.get_outputs()[0].name, "webgpu")
        session.run_with_iobinding(binding)
    else:
        await session.run_async(None, {"x": x})
    *_, stage = session._program.roots
    executable, gpu = stage.executable, session._program.device
    *_, recorded = executable.recordings._bound.values()
    bound = [executable.memory.bind(c, recorded.external) for c in executable.plan.steps[0].commands]
    opened = [executable.memory.bind(c, executable.memory.external({})) for c in executable.plan.steps[0].commands]
    recording, binding, replay, run = [], [], [], []
    with counted(recording):
        number = gpu.record(bound)
    with counted(binding):
        another = gpu.bind(executable.recordings.open[0], recorded.external)
    gpu.drop(another)
    with counted(run):
        await gpu.submit(number, [], [])
        await gpu.submit(number, [], [])
    gpu.drop(number)
    seen = executable.replay({"x"} if where == "gpu" else ())
    with counted(replay):
        gpu.replay_object(seen, None, executable.plan.params)
    open_ones = sum(isinstance(p, Slot) for c in opened for p in c.storage)
    run = [call for call in run if call in ("to_js", "play")]  # the others are the event loop's
    found.append([len(bound), recording, binding, run, replay, open_ones])
    session.release()
found
""",
        models=[chain(10), chain(150)],
        where=where,
    )
    (short, *few, _), (long, *many, slots) = got
    assert (short, long) == (10, 150)
    assert slots == (2 if where == "gpu" else 0)
    assert few == many
    recording, binding, run, replay = many
    assert len(binding) <= 2, binding
    assert "record" in recording and len(recording) <= 4, recording
    assert run.count("play") == 2 and len(run) <= 10, run
    assert "a method" in replay and len(replay) <= 6, replay
